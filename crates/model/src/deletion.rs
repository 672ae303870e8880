//! Deletion times.

/// The local deletion time of data that is neither deleted nor expiring.
pub const NO_DELETION_TIME: u32 = u32::MAX;

/// The time of a partition, row, range or complex deletion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct DeletionTime {
    /// Writes with a timestamp up to and including this one are deleted, microseconds.
    pub marked_for_delete_at: i64,
    /// When the deletion was made, seconds since the epoch: it may be purged `gc_grace_seconds` later.
    pub local_deletion_time: u32,
}

impl DeletionTime {
    /// Deletes nothing.
    pub const LIVE: DeletionTime =
        DeletionTime { marked_for_delete_at: i64::MIN, local_deletion_time: NO_DELETION_TIME };

    /// A deletion of everything written up to `marked_for_delete_at` (microseconds), made at `local_deletion_time`
    /// (seconds).
    pub fn new(marked_for_delete_at: i64, local_deletion_time: u32) -> Self {
        DeletionTime { marked_for_delete_at, local_deletion_time }
    }

    /// Whether this deletes nothing.
    pub fn is_live(&self) -> bool {
        self.marked_for_delete_at == i64::MIN
    }

    /// Whether an SSTable can store this as the deletion of a partition, or as the range deletion that is open where a
    /// block of its row index begins. The format uses the sign bit of the timestamp for "no deletion".
    pub fn has_whole_form(&self) -> bool {
        self.is_live() || self.marked_for_delete_at >= 0
    }

    /// Whether this deletes a write at `timestamp` (microseconds).
    pub fn deletes(&self, timestamp: i64) -> bool {
        !self.is_live() && timestamp <= self.marked_for_delete_at
    }

    /// Whether this deletion wins over `other` where both apply.
    pub fn supersedes(&self, other: &DeletionTime) -> bool {
        self.marked_for_delete_at > other.marked_for_delete_at
            || (self.marked_for_delete_at == other.marked_for_delete_at
                && !self.is_live()
                && self.local_deletion_time > other.local_deletion_time)
    }

    /// The one of the two that wins where both apply.
    pub fn max(self, other: DeletionTime) -> DeletionTime {
        if other.supersedes(&self) { other } else { self }
    }
}
