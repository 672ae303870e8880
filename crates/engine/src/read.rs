//! Reads: the rows of a table, from its memtables and SSTables, reconciled.
//!
//! A read takes no lock, and sees every write in exactly one place, because it works on one view of the table.
//! [`rows`] is the source of rows; [`newest_first`] leaves SSTables out that are too old to matter. It knows nothing of
//! CQL, and *now* only as far as its caller says.

mod newest_first;
mod rows;

pub use rows::{Rows, Target};
pub(crate) use rows::{has_large_memtables, is_in_memory, prefetch, read, read_at, rows, writes_wait};

use model::{KeyRange, ReadRange};

use crate::error::EngineError;
use crate::shared::Shared;
use crate::system::{SystemRow, read_rows};

/// All rows of a system table.
pub(crate) fn system_rows(shared: &Shared, keyspace: &str, table: &str) -> Result<Vec<SystemRow>, EngineError> {
    let rows = read(shared, &shared.find_table(keyspace, table), &ReadRange::all_rows(KeyRange::all()))?;
    Ok(read_rows(rows, shared.now_seconds())?)
}
