//! The memory of all memtables together.
//!
//! A write takes its memory here before it enters a write group and before it takes any lock. While memtables use all
//! memory that they may use, it waits for a flush, and holds nothing for which that flush could wait (the cause of
//! CASSANDRA-21019). A write takes the size of its record. The growth of the memtable is counted after the write is
//! applied, so memtables exceed the limit at most by the structure of the writes in progress. A write that is applied
//! at once only checks that there is room: at most one such write per thread exists at a time.

use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use crate::wakers::Wakers;

/// Counts bytes in memtables, and makes writers wait above the limit.
#[derive(Debug)]
pub(crate) struct MemtablePool {
    /// The bytes in memtables.
    used_bytes: AtomicI64,
    /// The bytes taken by writes that are not in a memtable yet.
    taken_bytes: AtomicI64,
    limit_bytes: i64,
    cleanup_bytes: i64,
    /// Writes that wait for memory.
    waiting: Wakers,
}

/// Memory that a write has taken. It is returned when this is dropped, after the memtable has counted the write.
#[derive(Debug)]
pub(crate) struct Taken<'p> {
    pool: &'p MemtablePool,
    bytes: i64,
}

impl MemtablePool {
    /// A pool of `limit_bytes` in which flushing begins at `cleanup_threshold` (0 to 1) of the limit.
    pub fn new(limit_bytes: u64, cleanup_threshold: f64) -> Self {
        debug_assert!((0.0..=1.0).contains(&cleanup_threshold), "{cleanup_threshold} is no share of the limit");
        MemtablePool {
            used_bytes: AtomicI64::new(0),
            taken_bytes: AtomicI64::new(0),
            limit_bytes: limit_bytes as i64,
            cleanup_bytes: (limit_bytes as f64 * cleanup_threshold) as i64,
            waiting: Wakers::default(),
        }
    }

    /// Records that memtables grew or, if negative, freed memory.
    pub fn add(&self, bytes: i64) {
        self.used_bytes.fetch_add(bytes, Ordering::SeqCst);
        if bytes < 0 {
            self.waiting.wake_all();
        }
    }

    /// The bytes in memtables.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Whether the largest memtable should be flushed.
    pub fn wants_flush(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) > self.cleanup_bytes
    }

    /// Like `wants_flush`, if `freed_bytes` will be freed soon.
    pub fn wants_flush_without(&self, freed_bytes: u64) -> bool {
        self.used_bytes() > freed_bytes.saturating_add(self.cleanup_bytes.max(0) as u64)
    }

    /// Takes the memory for a write of `bytes`, as soon as it is available.
    pub async fn take(&self, bytes: usize) -> Taken<'_> {
        // A flush begins at the threshold, so a write can only count on the memory above it.
        let bytes = (bytes as i64).min(self.limit_bytes - self.cleanup_bytes);
        if !self.try_take(bytes) {
            poll_fn(|context| {
                self.waiting.add(context.waker());
                // If memory is returned after this, the waker is woken.
                if self.try_take(bytes) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        Taken { pool: self, bytes }
    }

    /// Like [`take`](Self::take), but returns `None` if the memory is not available.
    pub fn take_now(&self, bytes: usize) -> Option<Taken<'_>> {
        let bytes = (bytes as i64).min(self.limit_bytes - self.cleanup_bytes);
        // `Taken` is made only if the memory was taken, because dropping it gives the memory back.
        self.try_take(bytes).then(|| Taken { pool: self, bytes })
    }

    /// Like [`take_now`](Self::take_now), for a write that is applied before anything else happens on its thread. It is
    /// in the memtable before others can check, so nothing is counted before that.
    pub fn take_uncounted(&self, bytes: usize) -> Option<Taken<'_>> {
        let bytes = (bytes as i64).min(self.limit_bytes - self.cleanup_bytes);
        let taken = self.taken_bytes.load(Ordering::SeqCst);
        (bytes <= self.free_bytes(taken)).then_some(Taken { pool: self, bytes: 0 })
    }

    /// The memory of a write that needs none.
    pub fn take_nothing(&self) -> Taken<'_> {
        Taken { pool: self, bytes: 0 }
    }

    /// Returns memory from [`Taken::into_bytes`].
    pub fn give_back(&self, bytes: i64) {
        debug_assert!(bytes >= 0, "a write takes {bytes} bytes");
        let before = self.taken_bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "{bytes} bytes are given back of {before} that were taken");
        self.waiting.wake_all();
    }

    #[cfg(test)]
    pub fn taken_bytes(&self) -> i64 {
        self.taken_bytes.load(Ordering::SeqCst)
    }

    /// The memory that neither memtables nor writes use.
    fn free_bytes(&self, taken_bytes: i64) -> i64 {
        self.limit_bytes - self.used_bytes.load(Ordering::SeqCst) - taken_bytes
    }

    fn try_take(&self, bytes: i64) -> bool {
        debug_assert!(bytes <= self.limit_bytes, "{bytes} bytes are never free");
        let take = |taken: i64| (bytes <= self.free_bytes(taken)).then_some(taken + bytes);
        self.taken_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }
}

impl Taken<'_> {
    /// Converts to bytes, for owners that outlive the borrow. They must return them with `give_back`.
    pub fn into_bytes(mut self) -> i64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_memory_is_not_released() {
        let pool = MemtablePool::new(1000, 0.1);
        let taken = pool.take_now(800).expect("it is there");
        assert!(pool.take_now(800).is_none() && pool.take_uncounted(800).is_none());
        assert_eq!(pool.taken_bytes(), 800);
        drop(taken);
        assert_eq!(pool.taken_bytes(), 0);
    }
}
