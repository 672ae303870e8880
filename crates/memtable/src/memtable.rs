//! What every kind of memtable does.

use std::fmt;
use std::sync::Arc;

use model::{BoxCursor, PartitionKey, PartitionUpdate, ReadRange, Row, RowObserver, Table};
use types::Token;

use crate::PutCounts;

/// The newest writes of one table.
///
/// Thread-safe: any number of threads may apply and read at the same time. Readers see each update whole or not at all.
pub trait Memtable: Send + Sync {
    /// Applies an update; all of it becomes visible at once. `observer` is told of the rows that change. Returns by how
    /// much the memory in use grew, bytes (less than 0: it shrank); all that was returned makes up
    /// [`MemtableUse::used_bytes`].
    ///
    /// Takes memory from nobody: it may be waited for while the caller holds none of its own locks.
    ///
    /// Fails without any effect when the memtable can hold no more: the caller switches to a new one.
    fn apply(&self, update: &PartitionUpdate, observer: Option<&mut dyn RowObserver>) -> Result<i64, MemtableFull>;

    /// The rows within `range`, read under `table` (which may be newer or older than what rows were written under).
    ///
    /// Updates applied after the call may or may not be seen; an update is never seen in part within a partition that
    /// the cursor enters after it was applied.
    fn cursor(self: Arc<Self>, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static>;

    /// Looks up one row of a table without static columns and, if there is one that nothing may shadow, hands it to
    /// `take`: a row in one piece, in a partition without deletions. It is that of one version, as a cursor's.
    fn find_row(&self, table: &Table, place: RowPlace<'_>, take: &mut dyn FnMut(Row<'_>)) -> Lookup {
        let _ = (table, place, take);
        Lookup::Unknown
    }

    /// Whether nothing of a partition, its deletion included, is here; false where a cursor has to say.
    fn lacks_partition(&self, token: Token, key: &[u8]) -> bool {
        let _ = (token, key);
        self.is_empty()
    }

    /// Brings near what reads or updates of these partitions will look at first. Worth its time for some eight keys and
    /// more, read right after; otherwise without effect.
    fn prefetch(&self, keys: &[&PartitionKey]) {
        let _ = keys;
    }

    /// Tells the memtable that the table was altered, so that rows written under newer column sets can be read for
    /// callers that still hold an older schema.
    fn table_altered(&self, table: &Arc<Table>);

    /// What a flush has to know about all that was applied.
    fn statistics(&self) -> MemtableStatistics;

    /// The memory held, to the byte.
    fn memory(&self) -> MemtableUse;

    /// Whether nothing was applied yet.
    fn is_empty(&self) -> bool;

    /// How writers met each other, for each shard in the order of tokens.
    fn puts(&self) -> Vec<PutCounts>;
}

/// Where a row is.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace<'a> {
    /// The token of the partition key.
    pub token: Token,
    /// The serialized partition key.
    pub key: &'a [u8],
    /// The serialized clustering, whole; empty in tables without clustering columns.
    pub clustering: &'a [u8],
}

/// What came of looking a row up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// It was handed over.
    Found,
    /// There is none, and nothing deletes it.
    Absent,
    /// A cursor says.
    Unknown,
}

/// The bounds of what a memtable holds. Times of live things are not counted into the minima of deletion times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemtableStatistics {
    /// How many partitions there are.
    pub partition_count: u64,
    /// How many updates were applied.
    pub update_count: u64,
    /// The least timestamp, microseconds; `i64::MAX` if nothing was applied.
    pub timestamp_min: i64,
    /// The least local deletion time, seconds; `u32::MAX` if nothing is deleted or expires.
    pub local_deletion_time_min: u32,
    /// The least TTL, seconds; 0 if anything does not expire.
    pub ttl_min: i32,
    /// The least version of a column set that a regular row (first) or a static row was written under; `u32::MAX` if
    /// none was. A column that every set from there on has as dropped has no data here.
    pub column_set_min: [u32; 2],
}

/// Memory of a memtable, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemtableUse {
    /// Held by data and structure that are in use.
    pub used_bytes: u64,
    /// Free for reuse inside what is committed.
    pub reusable_bytes: u64,
    /// Held from the system: used, reusable, and what a shard of the paper's layout took and did not touch yet.
    pub committed_bytes: u64,
}

/// The memtable can hold no more; the update was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemtableFull;

impl fmt::Display for MemtableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the memtable is full")
    }
}

impl std::error::Error for MemtableFull {}
