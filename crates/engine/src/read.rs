//! Reads: the rows of a table, from its memtables and SSTables, reconciled.
//!
//! A read takes no lock, and sees every write in exactly one place, because it works on one view of the table.
//! [`rows`] returns rows; [`newest_first`] skips SSTables that are too old to matter. This module knows nothing of CQL,
//! and takes *now* from its caller.

mod candidates;
mod nearest;
mod newest_first;
mod rows;

pub use candidates::{IndexCandidates, IndexedValues};
pub(crate) use candidates::{candidates, common_candidates, is_complete};
pub(crate) use nearest::nearest;
pub use nearest::{NearestCandidates, NearestStep};
pub use rows::{RowSelection, Rows};
pub(crate) use rows::{has_large_memtables, is_in_memory, prefetch, prefetch_hinted, read, read_at, rows, writes_wait};

use model::{BoxCursor, KeyRange, PartitionKey, ReadRange};

use crate::error::EngineError;
use crate::shared::Shared;
use crate::system::{SystemRow, read_rows};

/// All rows of a system table.
pub(crate) fn system_rows(shared: &Shared, keyspace: &str, table: &str) -> Result<Vec<SystemRow>, EngineError> {
    let rows = read(shared, &shared.find_table(keyspace, table), &ReadRange::all_rows(KeyRange::all()))?;
    Ok(read_rows(rows, shared.now_seconds())?)
}

/// The node's row of `system.local`, with the timestamps of its cells.
pub(crate) fn local_rows(shared: &Shared) -> Result<BoxCursor<'static>, EngineError> {
    let key = KeyRange::Single(PartitionKey::new(b"local"));
    read(shared, &shared.find_table("system", "local"), &ReadRange::all_rows(key))
}

/// The node's row of `system.local`.
pub(crate) fn local_row(shared: &Shared) -> Result<Option<SystemRow>, EngineError> {
    Ok(read_rows(local_rows(shared)?, shared.now_seconds())?.into_iter().next())
}
