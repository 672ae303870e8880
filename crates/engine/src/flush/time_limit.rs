//! The end of all flushes when a node stops.
//!
//! The data of a flush is in the commit log too, so a flush that would take too long is given up: the next start
//! replays it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use model::{DeletionTime, PartitionHead, ReadError, Table, Unfiltered, UnfilteredCursor};

/// The time at which flushes end, once it is set.
#[derive(Default)]
pub(crate) struct TimeLimit {
    at: OnceLock<Instant>,
}

impl TimeLimit {
    /// Sets the time. The first call counts.
    pub fn set(&self, at: Instant) {
        let _ = self.at.set(at);
    }

    /// Whether the time is over, so that flushes must end.
    pub fn is_over(&self) -> bool {
        self.at.get().is_some_and(|at| Instant::now() >= *at)
    }
}

/// The content of a memtable, for a flush that fails with [`ReadError::Closed`] when its time is over.
pub(super) struct Limited<'a, C> {
    pub cursor: C,
    pub limit: &'a TimeLimit,
}

impl<C> Limited<'_, C> {
    fn check(&self) -> Result<(), ReadError> {
        if self.limit.is_over() { Err(ReadError::Closed) } else { Ok(()) }
    }
}

impl<C: UnfilteredCursor> UnfilteredCursor for Limited<'_, C> {
    fn table(&self) -> &Arc<Table> {
        self.cursor.table()
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        self.check()?;
        self.cursor.advance_partition()
    }

    fn partition(&self) -> PartitionHead<'_> {
        self.cursor.partition()
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        self.check()?;
        self.cursor.advance()
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        self.cursor.unfiltered()
    }

    fn max_timestamp(&self) -> i64 {
        self.cursor.max_timestamp()
    }

    fn pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        self.cursor.pass_to(prefix, weight)
    }
}
