//! The times of the cells and deletions that a modification writes.

use model::{Cell, DeletionTime, Liveness, NO_DELETION_TIME, TTL_NONE};

/// The times that all writes of a statement share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// In microseconds.
    pub timestamp: i64,
    /// In seconds; [`TTL_NONE`] if cells do not expire.
    pub ttl: i32,
    /// In seconds since the epoch; [`NO_DELETION_TIME`] if cells do not expire.
    pub expiration: u32,
    /// In seconds since the epoch.
    pub now_seconds: u32,
}

impl Times {
    /// `ttl` is in seconds, or [`TTL_NONE`].
    pub fn new(timestamp: i64, ttl: i32, now_seconds: u32) -> Times {
        let expiration = match u32::try_from(ttl) {
            Ok(0) | Err(_) => NO_DELETION_TIME,
            Ok(seconds) => now_seconds.saturating_add(seconds).min(NO_DELETION_TIME - 1),
        };
        Times { timestamp, ttl, expiration, now_seconds }
    }

    /// A cell with this value.
    pub fn cell<'v>(&self, value: &'v [u8]) -> Cell<'v> {
        match self.ttl {
            TTL_NONE => Cell::live(self.timestamp, value),
            ttl => Cell::expiring(self.timestamp, ttl, self.expiration, value),
        }
    }

    /// A deleted cell.
    pub fn tombstone(&self) -> Cell<'static> {
        Cell::tombstone(self.timestamp, self.now_seconds)
    }

    /// The liveness of an inserted row.
    pub fn liveness(&self) -> Liveness {
        Liveness { timestamp: self.timestamp, ttl: self.ttl, expiration: self.expiration }
    }

    /// A deletion of everything that was written before.
    pub fn deletion(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp, self.now_seconds)
    }

    /// A deletion of a collection's content, which does not delete what the same statement writes.
    pub fn overwrite(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp.saturating_sub(1), self.now_seconds)
    }
}
