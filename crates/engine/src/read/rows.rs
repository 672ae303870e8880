//! Reads: the lookup of a few rows, and cursors over the sources of a view.

use std::sync::Arc;

use memtable::{Lookup, RowLocation};
use model::{
    BoxCursor, ClusteringBound, KeyRange, MergeCursor, PartitionKey, ReadRange, Row, RowRef, Side, Slice, Slices,
    Table, UnfilteredCursor,
};
use sstable::{Edge, PartitionHint, PartitionSlice, ReadMode, RowLookup, SSTableReader};

use super::newest_first::{self, NewestFirst};
use crate::error::EngineError;
use crate::files::open_cursor;
use crate::shared::{Catalog, Shared};
use crate::table::{Generation, View};
use crate::turn::Turn;

/// More than a core's own cache.
const LARGE_MEMTABLES_BYTES: u64 = 2 << 20;

/// The use of the rows of a read.
#[derive(Clone, Copy)]
enum Purpose {
    /// They are merged with rows of other places, which may need every deletion.
    Merge,
    /// They are the answer. What was deleted or expired before `gc_before` (seconds since the epoch) is not needed.
    Answer { gc_before: u32 },
}

/// The rows of `table` within `range`; see [`crate::Engine::read`].
pub(crate) fn read(shared: &Shared, table: &Arc<Table>, range: &ReadRange) -> Result<BoxCursor<'static>, EngineError> {
    read_for(Purpose::Merge, shared, table, range, Turn::BLOCKING)
}

/// Like [`read`], for a caller that knows what *now* is; see [`crate::Engine::read_at`].
pub(crate) fn read_at(
    shared: &Shared,
    table: &Arc<Table>,
    range: &ReadRange,
    now_seconds: u32,
    turn: Turn<'_>,
) -> Result<BoxCursor<'static>, EngineError> {
    let gc_before = now_seconds.saturating_sub(table.options.gc_grace_seconds.max(0) as u32);
    read_for(Purpose::Answer { gc_before }, shared, table, range, turn)
}

fn read_for(
    purpose: Purpose,
    shared: &Shared,
    table: &Arc<Table>,
    range: &ReadRange,
    turn: Turn<'_>,
) -> Result<BoxCursor<'static>, EngineError> {
    // The read may take long, so writes that this thread began before it go first.
    commitlog::release_held_wake_ups();
    let catalog = shared.catalog();
    let store = catalog.store(table)?;
    // Taken before the view: writes that are no longer in flight by then are visible in the view.
    let unsettled = turn.unsettled.and_then(|unsettled| unsettled.cursor(table, range));
    let unsettled = unsettled.map(|source| limited(source, turn));
    let view = store.borrow_view();
    if let Some(resident) = view.resident() {
        let source = resident.data.cursor(table, range);
        // If it missed a write meanwhile, it discards its rows.
        if resident.is_complete() {
            let sources = unsettled.into_iter().chain([limited(source, turn)]).collect();
            return Ok(Box::new(MergeCursor::new(table, range.reversed, sources)));
        }
    }
    let mut sstables: Vec<_> = view.sstables.iter().filter(|sstable| sstable.may_match(range)).cloned().collect();
    let mut search = NewestFirst::new();
    if let Purpose::Answer { gc_before } = purpose {
        leave_out_expired(&mut sstables, &view, gc_before);
        search.end_at_complete_row(table, range);
    }
    let sources = match newest_first::applies(range) && !sstables.is_empty() {
        true => newest_sources(search, &view, unsettled, sstables, table, range, turn)?,
        false => all_sources(&view, unsettled, &sstables, table, range, turn)?,
    };
    let mut merged = MergeCursor::new(table, range.reversed, sources);
    merged.limit_large_rows(turn.large_rows());
    Ok(Box::new(merged))
}

/// A source that copies large rows if the turn permits it.
fn limited(mut source: BoxCursor<'static>, turn: Turn<'_>) -> BoxCursor<'static> {
    source.limit_large_rows(turn.large_rows());
    source
}

/// The rows of a selection; see [`crate::Engine::rows`].
pub(crate) fn rows(
    shared: &Shared,
    catalog: &Catalog,
    table: &Arc<Table>,
    selection: &RowSelection<'_>,
    now_seconds: u32,
    turn: Turn<'_>,
    take: &mut dyn FnMut(RowRef<'_>) -> bool,
) -> Result<Rows, EngineError> {
    let is_settled = turn.unsettled.is_none_or(|unsettled| !unsettled.has_any(table, &selection.range(table)));
    if is_settled && look_up(&catalog.store(table)?.borrow_view(), table, selection, take) {
        return Ok(Rows::Taken);
    }
    read_at(shared, table, &selection.range(table), now_seconds, turn).map(Rows::Cursor)
}

/// Whether the table's memtables are so large that a partition is rarely in the processor's caches.
pub(crate) fn has_large_memtables(shared: &Shared, table: &Table) -> bool {
    shared.catalog().store(table).is_ok_and(|store| {
        let used = |generation: &Arc<Generation>| generation.memtable.memory().used_bytes;
        store.borrow_view().generations().map(used).sum::<u64>() >= LARGE_MEMTABLES_BYTES
    })
}

/// Whether writes wait for the log before memtables take them.
pub(crate) fn writes_wait(shared: &Shared) -> bool {
    !shared.log().is_periodic()
}

/// Prefetches the memory that reads of these partitions will access right after, in memtables and in the cached data of
/// SSTables at these places.
pub(crate) fn prefetch_hinted(shared: &Shared, table: &Table, keys: &[&PartitionKey], hints: &[PartitionHint]) {
    prefetch(shared, table, keys);
    let Ok(store) = shared.store(table) else { return };
    sstable::prefetch_hinted(&store.borrow_view().sstables, hints);
}

/// Prefetches the memory of memtables that reads and writes of these partitions will access right after.
pub(crate) fn prefetch(shared: &Shared, table: &Table, keys: &[&PartitionKey]) {
    let Ok(store) = shared.store(table) else { return };
    let view = store.borrow_view();
    let generations = view.generations().filter(|generation| !generation.memtable.is_empty());
    generations.for_each(|generation| generation.memtable.prefetch(keys));
}

/// Whether reads of the table touch memory only, so that they may run where blocking is not allowed.
pub(crate) fn is_in_memory(shared: &Shared, table: &Table) -> bool {
    shared.catalog().store(table).is_ok_and(|store| {
        let view = store.borrow_view();
        view.sstables.is_empty() || view.resident().is_some()
    })
}

/// A few rows of one partition of a table without static columns.
#[derive(Clone, Copy, Debug)]
pub enum RowSelection<'t> {
    /// One row, and where an SSTable probably has its partition.
    Row(RowLocation<'t>, Option<PartitionHint>),
    /// The rows between two places.
    Slice(PartitionSlice<'t>),
}

/// Where the rows of a [`RowSelection`] are.
pub enum Rows {
    /// They were passed on.
    Taken,
    /// In this cursor. Rows that were passed on before do not count.
    Cursor(BoxCursor<'static>),
}

impl RowSelection<'_> {
    /// The same rows for a cursor.
    fn range(&self, table: &Table) -> ReadRange {
        let bound = |edge: &Edge<'_>| {
            ClusteringBound::new(edge.prefix.to_vec(), if edge.weight < 0 { Side::Before } else { Side::After })
        };
        let (key, slice, reversed) = match self {
            RowSelection::Row(location, _) => (location.key, Slice::prefix(location.clustering), false),
            RowSelection::Slice(slice) => {
                (slice.key, Slice { start: bound(&slice.start), end: bound(&slice.end) }, slice.reversed)
            }
        };
        let slices = Slices::new(vec![slice], table.comparator());
        ReadRange { keys: KeyRange::Single(PartitionKey::new(key)), slices, reversed }
    }
}

/// Looks up rows that are in memory or in the cache of SSTables, if nothing has to be merged, and passes them to `take`
/// until that returns false. Returns false if a cursor is needed. Never blocks.
///
/// This duplicates the cursor in about a thousand lines here, in `memtable/src/find.rs` and in `sstable/src/reader/`.
/// It is justified because looking up a row in a memtable costs a third of what a cursor over it costs.
fn look_up(view: &View, table: &Table, selection: &RowSelection<'_>, take: &mut dyn FnMut(RowRef<'_>) -> bool) -> bool {
    match selection {
        RowSelection::Row(location, hint) => find_row(view, table, *location, *hint, take),
        RowSelection::Slice(slice) => {
            let lacks = |generation: &Arc<Generation>| generation.memtable.lacks_partition(slice.token, slice.key);
            view.resident().is_none()
                && view.generations().all(lacks)
                && sstable::find_rows(&view.sstables, table, slice, take)
        }
    }
}

/// Looks up one row. Returns false if a cursor is needed.
#[inline]
fn find_row(
    view: &View,
    table: &Table,
    location: RowLocation<'_>,
    hint: Option<PartitionHint>,
    take: &mut dyn FnMut(RowRef<'_>) -> bool,
) -> bool {
    let mut take_row = |row: Row<'_>| {
        take(RowRef { clustering: location.clustering, row });
    };
    if let Some(resident) = view.resident() {
        let lookup = resident.data.find_row(table, location, &mut take_row);
        // If it missed a write meanwhile, it has discarded its rows.
        return lookup == Lookup::Found || lookup == Lookup::Absent && resident.is_complete();
    }
    let mut generations = view.generations().filter(|generation| !generation.memtable.is_empty());
    if view.sstables.is_empty() {
        return match (generations.next(), generations.next()) {
            (Some(only), None) => only.memtable.find_row(table, location, &mut take_row) != Lookup::Unknown,
            (None, _) => true,
            _ => false,
        };
    }
    let is_absent =
        |generation: &Arc<Generation>| generation.memtable.find_row(table, location, &mut |_| {}) == Lookup::Absent;
    if !generations.all(is_absent) {
        return false;
    }
    if table.clustering().is_empty() {
        let partition = (location.token, location.key);
        return sstable::find_only_row(&view.sstables, table, partition, hint, &mut take_row) != RowLookup::Unknown;
    }
    find_clustered_row(&view.sstables, table, location, take)
}

/// One row of a partition that may have many, in SSTables.
fn find_clustered_row(
    sstables: &[Arc<SSTableReader>],
    table: &Table,
    location: RowLocation<'_>,
    take: &mut dyn FnMut(RowRef<'_>) -> bool,
) -> bool {
    let edge = |weight: i8| Edge { prefix: location.clustering, weight };
    let RowLocation { token, key, .. } = location;
    let slice = PartitionSlice { token, key, start: edge(-1), end: edge(1), reversed: false, borders_max: 0 };
    let mut is_same = true;
    let is_known = sstable::find_rows(sstables, table, &slice, &mut |row| {
        // Some types have several forms of a value. A read returns the form that was written.
        is_same = row.clustering == location.clustering;
        if is_same {
            take(row);
        }
        false
    });
    is_known && is_same
}

/// Skips SSTables whose content was all deleted or expired before `gc_before` (seconds), if no other source of the read
/// is old enough to be shadowed by them.
///
/// It is not enough that the content has expired, because an expired cell is a deletion of older ones. Nor is it enough
/// that it shadows nothing here: until `gc_grace_seconds` are over, another place may still need the deletion. The
/// skipped SSTables are those that a compaction would drop at this moment (`fully_expired`), so no read finds data that
/// an earlier one could not find. SSTables with live parts are always read, because statistics do not say which parts.
fn leave_out_expired(sstables: &mut Vec<Arc<SSTableReader>>, view: &View, gc_before: u32) {
    let is_expired = |sstable: &SSTableReader| sstable.statistics().stats.max_local_deletion_time < gc_before;
    if !sstables.iter().any(|sstable| is_expired(sstable)) {
        return;
    }
    let others = sstables.iter().filter(|sstable| !is_expired(sstable));
    let oldest = others.map(|sstable| sstable.statistics().stats.min_timestamp).min().unwrap_or(i64::MAX);
    let oldest = oldest.min(view.oldest_in_memory());
    sstables.retain(|sstable| !is_expired(sstable) || sstable.statistics().stats.max_timestamp >= oldest);
}

fn memtable_sources(view: &View, table: &Arc<Table>, range: &ReadRange) -> impl Iterator<Item = BoxCursor<'static>> {
    let generations = view.generations().filter(|generation| !generation.memtable.is_empty());
    generations.map(|generation| generation.memtable.clone().cursor(table, range))
}

fn all_sources(
    view: &View,
    unsettled: Option<BoxCursor<'static>>,
    sstables: &[Arc<SSTableReader>],
    table: &Arc<Table>,
    range: &ReadRange,
    turn: Turn<'_>,
) -> Result<Vec<BoxCursor<'static>>, EngineError> {
    let mode = ReadMode::Cached { may_block: turn.may_block };
    let memtables = memtable_sources(view, table, range).map(|source| limited(source, turn));
    let mut sources: Vec<_> = unsettled.into_iter().chain(memtables).collect();
    for sstable in sstables {
        sources.push(limited(open_cursor(sstable, table, range, mode)?, turn));
    }
    Ok(sources)
}

/// The sources that can matter, the newest SSTable first.
fn newest_sources(
    mut search: NewestFirst,
    view: &View,
    unsettled: Option<BoxCursor<'static>>,
    mut sstables: Vec<Arc<SSTableReader>>,
    table: &Arc<Table>,
    range: &ReadRange,
    turn: Turn<'_>,
) -> Result<Vec<BoxCursor<'static>>, EngineError> {
    let mode = ReadMode::Cached { may_block: turn.may_block };
    let max_timestamp = |sstable: &SSTableReader| sstable.statistics().stats.max_timestamp;
    sstables.sort_by_key(|sstable| std::cmp::Reverse(max_timestamp(sstable)));
    let mut sources = Vec::with_capacity(2 + sstables.len());
    let memtables = memtable_sources(view, table, range).map(|source| limited(source, turn));
    for source in unsettled.into_iter().chain(memtables) {
        sources.push(search.enter(source)?);
    }
    for (index, sstable) in sstables.iter().enumerate() {
        if search.ends_before(max_timestamp(sstable)) {
            break;
        }
        let cursor = limited(open_cursor(sstable, table, range, mode)?, turn);
        // After the last source there is none that could be skipped.
        let is_last = index + 1 == sstables.len();
        sources.push(if is_last { cursor } else { search.enter(cursor)? });
    }
    Ok(sources)
}
