//! Counts of contended and uncontended writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of contended and uncontended writes of a shard. Cassandra's names are "Uncontended memtable puts", "Contended
/// memtable puts" and "Contention time".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutCounts {
    /// Updates that found no other writer.
    pub uncontended: u64,
    /// Updates that found another writer and waited, or were applied by it.
    pub contended: u64,
    /// The time from the attempts of the contended updates until they were applied.
    pub waited: Duration,
}

impl PutCounts {
    /// The sum of both.
    pub fn and(self, other: PutCounts) -> PutCounts {
        PutCounts {
            uncontended: self.uncontended + other.uncontended,
            contended: self.contended + other.contended,
            waited: self.waited + other.waited,
        }
    }
}

/// The live counters of one shard.
#[derive(Debug, Default)]
pub(crate) struct PutCounters {
    uncontended: AtomicU64,
    contended: AtomicU64,
    waited_nanos: AtomicU64,
}

impl PutCounters {
    pub fn uncontended(&self) {
        self.uncontended.fetch_add(1, Ordering::Relaxed);
    }

    /// Like `uncontended`, for a caller that is the only one to count at the moment.
    pub fn uncontended_alone(&self) {
        self.uncontended.store(self.uncontended.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn contended(&self, waited: Duration) {
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.waited_nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn counts(&self) -> PutCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let waited = Duration::from_nanos(count(&self.waited_nanos));
        PutCounts { uncontended: count(&self.uncontended), contended: count(&self.contended), waited }
    }
}
