//! A partition: its newest version, and the lock for replacing it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use arc_swap::ArcSwapOption;

use super::version::Version;

pub(super) struct Partition {
    /// `None` until the first update is applied.
    version: ArcSwapOption<Version>,
    turn: Mutex<()>,
}

/// The right to replace the version.
pub(super) struct PartitionLock<'p> {
    partition: &'p Partition,
    _guard: MutexGuard<'p, ()>,
}

impl Partition {
    pub fn new() -> Partition {
        Partition { version: ArcSwapOption::empty(), turn: Mutex::new(()) }
    }

    /// The newest version.
    pub fn version(&self) -> Option<Arc<Version>> {
        self.version.load_full()
    }

    /// Waits until no other thread replaces the version. Sets `waited`, if it is not set, to the start of the wait.
    pub fn begin(&self, waited: &mut Option<Instant>) -> PartitionLock<'_> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                waited.get_or_insert_with(Instant::now);
                self.turn.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        PartitionLock { partition: self, _guard: turn }
    }
}

impl PartitionLock<'_> {
    pub fn version(&self) -> Option<Arc<Version>> {
        self.partition.version()
    }

    /// Publishes the version that readers see from now on.
    pub fn publish(&self, version: Version) {
        let version = Arc::new(version);
        debug_assert!(
            self.version().is_none_or(|old| !old.deletion.supersedes(&version.deletion)),
            "a deletion is not undone"
        );
        let published = Arc::as_ptr(&version);
        self.partition.version.store(Some(version));
        debug_assert!(
            self.version().is_some_and(|newest| Arc::as_ptr(&newest) == published),
            "only the lock's holder replaces the version"
        );
    }
}
