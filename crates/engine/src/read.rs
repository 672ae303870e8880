//! The way of a read.

use std::sync::Arc;

use model::{BoxCursor, MergeCursor, PartitionKey, ReadRange, Table};
use sstable::SSTableReader;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::files::open_cursor;
use crate::newest_first::{self, NewestFirst};
use crate::store::View;

impl Engine {
    /// The rows of `table` within `range`, from all memtables and SSTables, reconciled and without what deletions
    /// shadow. Expired and deleted cells are still there: the caller knows what *now* is.
    ///
    /// SSTables are left out that cannot hold anything of the range by their keys, filter and clusterings, and (in reads
    /// of one partition) those too old to matter. Blocks on the disk where SSTables are not cached; see
    /// [`Engine::is_in_memory`].
    pub fn read(&self, table: &Arc<Table>, range: &ReadRange) -> Result<BoxCursor<'static>, EngineError> {
        // It may take long: writes that were begun before it on this thread go first.
        commitlog::release_held_wake_ups();
        let catalog = self.catalog();
        let store = catalog.store(table)?;
        store.check_readable()?;
        let view = store.borrow_view();
        if let Some(resident) = view.resident() {
            let source = resident.data.cursor(table, range);
            return Ok(Box::new(MergeCursor::new(table, range.reversed, vec![source])));
        }
        let sstables: Vec<_> = view.sstables.iter().filter(|sstable| sstable.may_match(range)).cloned().collect();
        let sources = match newest_first::applies(range) && !sstables.is_empty() {
            true => newest_sources(&view, sstables, table, range)?,
            false => all_sources(&view, &sstables, table, range)?,
        };
        Ok(Box::new(MergeCursor::new(table, range.reversed, sources)))
    }

    /// Brings near what reads of these partitions, right after, will look at in memtables.
    pub fn prefetch(&self, table: &Table, keys: &[&PartitionKey]) {
        let Ok(store) = self.store(table) else { return };
        store.borrow_view().generations().for_each(|generation| generation.memtable.prefetch(keys));
    }

    /// Whether reads of the table touch memory only, so that they may run where blocking is not allowed.
    pub fn is_in_memory(&self, table: &Table) -> bool {
        self.catalog().store(table).is_ok_and(|store| {
            let view = store.borrow_view();
            view.sstables.is_empty() || view.resident().is_some()
        })
    }
}

fn memtable_sources(view: &View, table: &Arc<Table>, range: &ReadRange) -> impl Iterator<Item = BoxCursor<'static>> {
    let generations = view.generations().filter(|generation| !generation.memtable.is_empty());
    generations.map(|generation| generation.memtable.clone().cursor(table, range))
}

fn all_sources(
    view: &View,
    sstables: &[Arc<SSTableReader>],
    table: &Arc<Table>,
    range: &ReadRange,
) -> Result<Vec<BoxCursor<'static>>, EngineError> {
    let mut sources: Vec<BoxCursor<'static>> = memtable_sources(view, table, range).collect();
    for sstable in sstables {
        sources.push(open_cursor(sstable, table, range)?);
    }
    Ok(sources)
}

/// The sources that can matter, the newest SSTable first.
fn newest_sources(
    view: &View,
    mut sstables: Vec<Arc<SSTableReader>>,
    table: &Arc<Table>,
    range: &ReadRange,
) -> Result<Vec<BoxCursor<'static>>, EngineError> {
    let max_timestamp = |sstable: &SSTableReader| sstable.statistics().stats.max_timestamp;
    sstables.sort_by_key(|sstable| std::cmp::Reverse(max_timestamp(sstable)));
    let mut search = NewestFirst::new(table, range);
    let mut sources = Vec::with_capacity(1 + sstables.len());
    for source in memtable_sources(view, table, range) {
        sources.push(search.enter(source)?);
    }
    for (index, sstable) in sstables.iter().enumerate() {
        if search.ends_before(max_timestamp(sstable)) {
            break;
        }
        let cursor = open_cursor(sstable, table, range)?;
        // There is nothing to be saved behind the last.
        let is_last = index + 1 == sstables.len();
        sources.push(if is_last { cursor } else { search.enter(cursor)? });
    }
    Ok(sources)
}
