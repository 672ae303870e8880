//! The memory of all memtables together.
//!
//! A write takes its memory here before it enters a write group and before any lock: while the memtables hold as much
//! as they may, it waits for a flush, and holds nothing that the flush could wait for (the cause of CASSANDRA-21019).
//! It takes the size of its record. What the memtable grew by is counted once the write is applied, so that memtables
//! go over the limit by no more than the structure of the writes under way. A write that is applied at once only
//! checks that there is room: there are no more of those at a time than threads.

use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use crate::wakers::Wakers;

/// Counts bytes in memtables and holds writers back above the limit.
#[derive(Debug)]
pub(crate) struct MemtablePool {
    /// In memtables.
    used_bytes: AtomicI64,
    /// Taken by writes that are not in one yet.
    taken_bytes: AtomicI64,
    limit_bytes: i64,
    cleanup_bytes: i64,
    /// Writes that wait for memory.
    waiting: Wakers,
}

/// Memory that a write has taken; given back when it is dropped, when the memtable has counted what the write became.
#[derive(Debug)]
pub(crate) struct Taken<'p> {
    pool: &'p MemtablePool,
    bytes: i64,
}

impl MemtablePool {
    /// A pool of `limit_bytes` in which flushing begins at `cleanup_threshold` (0 to 1) of the limit.
    pub fn new(limit_bytes: u64, cleanup_threshold: f64) -> Self {
        MemtablePool {
            used_bytes: AtomicI64::new(0),
            taken_bytes: AtomicI64::new(0),
            limit_bytes: limit_bytes as i64,
            cleanup_bytes: (limit_bytes as f64 * cleanup_threshold) as i64,
            waiting: Wakers::default(),
        }
    }

    /// Notes that memtables grew or, if negative, gave memory back.
    pub fn add(&self, bytes: i64) {
        self.used_bytes.fetch_add(bytes, Ordering::SeqCst);
        if bytes < 0 {
            self.waiting.wake_all();
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

    /// Takes the memory that a write of `bytes` needs, once it is there.
    pub async fn take(&self, bytes: usize) -> Taken<'_> {
        // At the threshold a flush begins: what is above it is all that a write can count on.
        let bytes = (bytes as i64).min(self.limit_bytes - self.cleanup_bytes);
        if !self.try_take(bytes) {
            poll_fn(|context| {
                self.waiting.add(context.waker());
                // Memory that is given back after this wakes the waker.
                if self.try_take(bytes) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        Taken { pool: self, bytes }
    }

    /// As [`take`](Self::take); `None` while it is not there.
    pub fn take_now(&self, bytes: usize) -> Option<Taken<'_>> {
        let bytes = (bytes as i64).min(self.limit_bytes - self.cleanup_bytes);
        // `Taken` is made only if the memory was taken, because dropping it gives the memory back.
        self.try_take(bytes).then(|| Taken { pool: self, bytes })
    }

    /// As [`take_now`](Self::take_now) for a write that is applied before anything else happens on its thread: it is in
    /// the memtable by the time others could look, so that nothing is counted before.
    pub fn find_room(&self, bytes: usize) -> Option<Taken<'_>> {
        let bytes = (bytes as i64).min(self.limit_bytes - self.cleanup_bytes);
        let taken = self.taken_bytes.load(Ordering::SeqCst);
        (bytes <= self.room(taken)).then_some(Taken { pool: self, bytes: 0 })
    }

    /// The memory of a write that needs none.
    pub fn take_nothing(&self) -> Taken<'_> {
        Taken { pool: self, bytes: 0 }
    }

    /// Takes back what [`Taken::into_bytes`] gave out.
    pub fn give_back(&self, bytes: i64) {
        let before = self.taken_bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "{bytes} bytes are given back of {before} that were taken");
        self.waiting.wake_all();
    }

    #[cfg(test)]
    pub fn taken_bytes(&self) -> i64 {
        self.taken_bytes.load(Ordering::SeqCst)
    }

    /// What is left beside memtables and what writes have taken.
    fn room(&self, taken_bytes: i64) -> i64 {
        self.limit_bytes - self.used_bytes.load(Ordering::SeqCst) - taken_bytes
    }

    fn try_take(&self, bytes: i64) -> bool {
        let take = |taken: i64| (bytes <= self.room(taken)).then_some(taken + bytes);
        self.taken_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }
}

impl Taken<'_> {
    /// For whoever outlives the borrow and gives them back.
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
        assert!(pool.take_now(800).is_none() && pool.find_room(800).is_none());
        assert_eq!(pool.taken_bytes(), 800);
        drop(taken);
        assert_eq!(pool.taken_bytes(), 0);
    }
}
