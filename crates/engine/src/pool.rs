//! The memory of all memtables together.
//!
//! A write waits here, before it enters a write group, while the memtables hold more than they may. So a flush, which
//! waits for groups, never waits for a write that waits for the flush. Writes that are past this point may take the
//! memtables over the limit by what they carry.

use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Poll, Waker};

/// Counts bytes in memtables and holds writers back above the limit.
#[derive(Debug)]
pub(crate) struct MemtablePool {
    used_bytes: AtomicI64,
    limit_bytes: i64,
    cleanup_bytes: i64,
    waiting: Mutex<Vec<Waker>>,
}

impl MemtablePool {
    /// A pool of `limit_bytes` in which flushing begins at `cleanup_threshold` (0 to 1) of the limit.
    pub fn new(limit_bytes: u64, cleanup_threshold: f64) -> Self {
        MemtablePool {
            used_bytes: AtomicI64::new(0),
            limit_bytes: limit_bytes as i64,
            cleanup_bytes: (limit_bytes as f64 * cleanup_threshold) as i64,
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Notes that memtables grew or, if negative, gave memory back.
    pub fn add(&self, bytes: i64) {
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if bytes < 0 && used < self.limit_bytes {
            let waiting = std::mem::take(&mut *lock(&self.waiting));
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Bytes in memtables.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Whether the largest memtable should be flushed.
    pub fn wants_flush(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) > self.cleanup_bytes
    }

    /// The same when `freed_bytes` are on their way back.
    pub fn wants_flush_without(&self, freed_bytes: u64) -> bool {
        self.used_bytes() > freed_bytes.saturating_add(self.cleanup_bytes.max(0) as u64)
    }

    /// Ready once the memtables hold less than they may.
    pub async fn admit(&self) {
        if self.used_bytes.load(Ordering::Relaxed) < self.limit_bytes {
            return;
        }
        poll_fn(|context| {
            let mut waiting = lock(&self.waiting);
            if self.used_bytes.load(Ordering::Relaxed) < self.limit_bytes {
                return Poll::Ready(());
            }
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
