//! When a modification happens, as its cells and deletions say it.

use model::{Cell, DeletionTime, Liveness, NO_DELETION_TIME, TTL_NONE};

/// The times that everything a statement writes shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Microseconds.
    pub timestamp: i64,
    /// Seconds; [`TTL_NONE`] where cells do not expire.
    pub ttl: i32,
    /// Seconds since the epoch; [`NO_DELETION_TIME`] where cells do not expire.
    pub expiration: u32,
    /// Seconds since the epoch.
    pub now_seconds: u32,
}

impl Times {
    /// `ttl` is in seconds, [`TTL_NONE`] for none.
    pub fn new(timestamp: i64, ttl: i32, now_seconds: u32) -> Times {
        let expiration = match u32::try_from(ttl) {
            Ok(0) | Err(_) => NO_DELETION_TIME,
            Ok(seconds) => now_seconds.saturating_add(seconds).min(NO_DELETION_TIME - 1),
        };
        Times { timestamp, ttl, expiration, now_seconds }
    }

    /// A cell of this value.
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

    /// That the row was inserted.
    pub fn liveness(&self) -> Liveness {
        Liveness { timestamp: self.timestamp, ttl: self.ttl, expiration: self.expiration }
    }

    /// The deletion of what was written until now.
    pub fn deletion(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp, self.now_seconds)
    }

    /// The deletion of what was in a collection, which spares what the same statement puts into it.
    pub fn overwrite(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp.saturating_sub(1), self.now_seconds)
    }
}
