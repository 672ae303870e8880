//! The way of a read.

use std::sync::Arc;

use model::{BoxCursor, MergeCursor, ReadRange, Table};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::files::open_cursor;

impl Engine {
    /// The rows of `table` within `range`, from all memtables and SSTables, reconciled and without what deletions
    /// shadow. Expired and deleted cells are still there: the caller knows what *now* is.
    ///
    /// Blocks on the disk where SSTables are not cached; see [`Engine::is_in_memory`].
    pub fn read(&self, table: &Arc<Table>, range: &ReadRange) -> Result<BoxCursor<'static>, EngineError> {
        let view = self.store(table)?.view();
        let mut sources: Vec<BoxCursor<'static>> = Vec::with_capacity(1 + view.frozen.len() + view.sstables.len());
        for generation in view.generations().filter(|generation| !generation.memtable.is_empty()) {
            sources.push(generation.memtable.clone().cursor(table, range));
        }
        for sstable in &view.sstables {
            if let Some(cursor) = open_cursor(sstable, table, range)? {
                sources.push(cursor);
            }
        }
        Ok(Box::new(MergeCursor::new(table.clone(), range.reversed, sources)))
    }

    /// Whether reads of the table touch memory only, so that they may run where blocking is not allowed.
    pub fn is_in_memory(&self, table: &Table) -> bool {
        self.store(table).is_ok_and(|store| store.borrow_view().sstables.is_empty())
    }
}
