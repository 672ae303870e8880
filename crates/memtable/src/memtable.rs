//! The interface of every kind of memtable.

use std::fmt;
use std::sync::Arc;

use model::{BoxCursor, PartitionKey, PartitionUpdate, ReadRange, Row, RowObserver, Table};
use types::Token;

use crate::PutCounts;

/// The newest writes of one table.
///
/// Thread-safe: any number of threads may apply and read at the same time. Readers see each update whole or not at all.
pub trait Memtable: Send + Sync {
    /// Applies an update, all of which becomes visible at once. Calls `observer` for the rows that change. Returns by
    /// how many bytes the memory in use grew (negative if it shrank); the sum of all results is
    /// [`MemtableUse::used_bytes`].
    ///
    /// It does not charge any memory budget; the caller does. It may block while another thread writes, so call it
    /// without holding a lock.
    ///
    /// Fails without any effect if the memtable can hold no more; the caller then switches to a new one.
    fn apply(&self, update: &PartitionUpdate, observer: Option<&mut dyn RowObserver>) -> Result<i64, MemtableFull>;

    /// The rows within `range`, read under `table`, which may be newer or older than the schema that rows were written
    /// under.
    ///
    /// Updates applied after the call may or may not be visible. An update that was applied before the cursor enters a
    /// partition is never visible in part there.
    fn cursor(self: Arc<Self>, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static>;

    /// Looks up one row of a table without static columns. If the row exists and nothing can shadow it (it is in one
    /// piece, in a partition without deletions), passes it to `take`. The row is of one version, as a cursor's is.
    fn find_row(&self, table: &Table, location: RowLocation<'_>, take: &mut dyn FnMut(Row<'_>)) -> Lookup {
        let _ = (table, location, take);
        Lookup::Unknown
    }

    /// Whether the memtable certainly has nothing of a partition, not even its deletion. If this is false, it may have
    /// something.
    fn lacks_partition(&self, token: Token, key: &[u8]) -> bool {
        let _ = (token, key);
        self.is_empty()
    }

    /// Prefetches the memory that reads or updates of these partitions touch first. It pays off for about eight keys or
    /// more that are used right afterwards, and has no other effect.
    fn prefetch(&self, keys: &[&PartitionKey]) {
        let _ = keys;
    }

    /// Tells the memtable that the table was altered, so that callers with an older schema can read rows that were
    /// written under newer column sets.
    fn table_altered(&self, table: &Arc<Table>);

    /// Statistics about everything applied, for a flush.
    fn statistics(&self) -> MemtableStatistics;

    /// The memory held, exact to the byte.
    fn memory(&self) -> MemtableUse;

    /// Whether nothing was applied yet.
    fn is_empty(&self) -> bool;

    /// Counts of contended and uncontended writes for each shard, in order of tokens.
    fn puts(&self) -> Vec<PutCounts>;
}

/// The location of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowLocation<'a> {
    /// The token of the partition key.
    pub token: Token,
    /// The serialized partition key.
    pub key: &'a [u8],
    /// The complete serialized clustering; empty in tables without clustering columns.
    pub clustering: &'a [u8],
}

/// The result of a row look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The row was passed to the caller.
    Found,
    /// There is no row, and nothing deletes it.
    Absent,
    /// Only a cursor can show whether there is a row.
    Unknown,
}

/// Bounds of a memtable's contents. Live data does not count for the minima of deletion times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemtableStatistics {
    /// The number of partitions.
    pub partition_count: u64,
    /// The number of applied updates.
    pub update_count: u64,
    /// The least timestamp, microseconds; `i64::MAX` if nothing was applied.
    pub timestamp_min: i64,
    /// The least local deletion time, seconds; `u32::MAX` if nothing is deleted or expires.
    pub local_deletion_time_min: u32,
    /// The least TTL, seconds; 0 if anything does not expire.
    pub ttl_min: i32,
    /// The least version of a column set that a regular row (first) or a static row was written under; `u32::MAX` if
    /// there is none. A column that is dropped in every set from there on has no data here.
    pub column_set_min: [u32; 2],
}

/// The memory of a memtable, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemtableUse {
    /// Held by data and structure that are in use.
    pub used_bytes: u64,
    /// Free for reuse inside the committed memory.
    pub reusable_bytes: u64,
    /// Held from the system: used, reusable, and what a shard of the paper's layout has allocated and not touched yet.
    pub committed_bytes: u64,
}

/// The memtable can hold no more, and the update was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemtableFull;

impl fmt::Display for MemtableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the memtable is full")
    }
}

impl std::error::Error for MemtableFull {}
