//! How much memory an update adds: an upper bound that does not read the stored data, and a tighter bound that does.

use std::sync::Arc;

use model::{
    DeletionTime, KeyRange, PartitionUpdate, ReadRange, Row, RowMerger, Slice, Slices, Table, Unfiltered,
    UnfilteredCursor,
};

use super::ResidentTable;
use crate::apply::merge;
use crate::layout::{DELETION_SIZE, Header, Layout, PIECE_BRANCH, partition_path};
use crate::pieces::{LargeRows, RowChange, StoredRow, is_large};
use crate::shard::newer_of;
use crate::{Memtable, TrieMemtable};

/// The most that a new key adds to the structure by itself: a chain is cut in three, and a leaf is rewritten.
const KEY_BYTES_MAX: usize = 384;
/// The most that a new key adds where it hangs on an existing node, which may become a flat node.
const NODE_GROWTH_BYTES_MAX: usize = 1024 - 256;
/// The bytes by which a cell grows when its times differ from the row's: flags, a timestamp, an expiration with its
/// TTL. If a row is inserted again without its other columns, this applies to all of them.
const CELL_TIMES_BYTES: usize = 1 + 8 + 8;
/// The same bound for cells that are written.
const WRITTEN_TIMES_BYTES: usize = 24;
/// The most bytes that a content takes beyond its length; an eighth of the length is the other limit.
const ROUNDING_BYTES_MAX: usize = 4 << 10;
const ROUNDING_SHARE: usize = 8;
/// The bytes added when a content moves out of a node that it shared.
const OWN_NODE_BYTES: usize = 96;
/// How many rows of a partition are examined to find how much a deletion frees.
const ROWS_LOOKED_AT: usize = 1_000;

const _: () = {
    assert!(ROUNDING_SHARE > 0 && ROUNDING_BYTES_MAX > 0);
    assert!(OWN_NODE_BYTES <= NODE_GROWTH_BYTES_MAX, "the node of a larger content is a part of what a node grows by");
};

/// The most bytes that applying `update` can add, whatever is there.
pub fn growth_max(update: &PartitionUpdate) -> u64 {
    let table = update.table();
    let rows = update.row_count() + usize::from(update.static_row().is_some());
    let columns = table.regulars().columns.len().max(table.statics().columns.len());
    let written: usize = update.rows().map(|row| row.row.written_columns(table).count()).sum();
    let times = rows * columns * CELL_TIMES_BYTES + (written + rows) * WRITTEN_TIMES_BYTES;
    growth_of_new(update) + (times + rows * ROUNDING_BYTES_MAX) as u64
}

/// The same bound for a partition that does not exist yet.
fn growth_of_new(update: &PartitionUpdate) -> u64 {
    // Each row may add itself and its deletion. Each range may add itself and the rest of a range that it cuts. There
    // is a header.
    let row_deletions = update.rows().filter(|row| !row.row.deletion().is_live()).count();
    let keys = 1 + update.row_count() + row_deletions + 2 * update.range_deletion_count();
    // If the header is new, all nodes below it are new too.
    let nodes = (keys - 1).max(1);
    let structure = keys * (KEY_BYTES_MAX + 2 * update.key().bytes().len()) + nodes * NODE_GROWTH_BYTES_MAX;
    let rows = || update.static_row().into_iter().chain(update.rows().map(|row| row.row));
    let of_rows: usize = rows().map(|row| row.as_bytes().len()).sum();
    let rest = 2 * update.as_bytes().len().saturating_sub(of_rows);
    (structure + rest + rows().map(|row| length_max(row, update.table())).sum::<usize>()) as u64
}

/// The most bytes of a row, without its key.
fn length_max(row: Row<'_>, table: &Table) -> usize {
    let length = row.as_bytes().len();
    // As much again covers the nodes that lead to the pieces.
    if is_large(row, table) { 2 * length } else { length + rounding(length) }
}

/// The most bytes that a content takes beyond its length.
fn rounding(length: usize) -> usize {
    (length / ROUNDING_SHARE).min(ROUNDING_BYTES_MAX)
}

/// The most that a content of `after` bytes adds where it replaces one of `before` bytes.
fn replaced(before: usize, after: usize) -> usize {
    if after <= before { 0 } else { after - before + rounding(after) + OWN_NODE_BYTES }
}

/// The most that a content adds at a new key.
fn added(bytes: usize) -> usize {
    KEY_BYTES_MAX + NODE_GROWTH_BYTES_MAX + replaced(0, bytes)
}

impl ResidentTable {
    /// The most bytes that applying `update` would add to the current data; 0 where it replaces as much, or surely
    /// frees more than it adds. Never more than [`growth_max`].
    pub fn growth(&self, update: &PartitionUpdate) -> u64 {
        let most = growth_max(update);
        let part = self.0.part_of(update.key().token());
        let memtable = &part.memtable;
        let (layout, shard) = (memtable.layout(), &memtable.shards()[0]);
        let table = newer_of(update.table(), &shard.table());
        if layout.has_clustering() && deletes_rows(update) {
            return if freed_bytes(memtable, &table, update, most) < most { most } else { 0 };
        }
        let mut path = Vec::new();
        partition_path(update.key(), &mut path);
        let pin = shard.trie.pin_for_single_keys();
        let partition = pin.tail(&path);
        let Some(header) = partition.get(&[]).map(Header::read) else { return growth_of_new(update) };
        let mut rows = GrowthEstimate::new(layout, &table);
        let of_header = header.row.map(|head| StoredRow { head, pieces: partition.tail(&[PIECE_BRANCH]) });
        if !layout.has_clustering() {
            let deleted = update.range_deletions().map(|range| range.deletion);
            let active = deleted.fold(header.deletion.max(update.partition_deletion()), DeletionTime::max);
            let new = update.rows().next().map(|row| row.row);
            let change = RowChange { new, active, deletes_stored: active != header.deletion };
            let is_first = header.deletion.is_live() && !active.is_live();
            return (rows.growth(of_header, change, if is_first { DELETION_SIZE } else { 0 }) as u64).min(most);
        }
        let written = |row| RowChange { new: Some(row), active: header.deletion, deletes_stored: false };
        let of_static = update.static_row().map_or(0, |row| rows.growth(of_header, written(row), 0));
        let of_rows = update.rows().map(|row| {
            let mut position = Vec::new();
            layout.push_row(row.clustering, &mut position);
            let pieces = partition.tail(&position);
            let head = pieces.get(&[]).map(|content| Row::new(layout.split_content(content).1));
            let growth = rows.growth(head.map(|head| StoredRow { head, pieces }), written(row.row), 0);
            // Includes the clustering, where it is kept.
            if head.is_none() { growth + 2 * row.clustering.len() } else { growth }
        });
        ((of_static + of_rows.sum::<usize>()) as u64).min(most)
    }
}

/// Computes the growth by changes of rows. It reuses its buffers for all rows.
struct GrowthEstimate<'l> {
    layout: &'l Layout,
    table: &'l Table,
    merger: RowMerger,
    merged: Vec<u8>,
    large: LargeRows,
}

impl<'l> GrowthEstimate<'l> {
    fn new(layout: &'l Layout, table: &'l Table) -> Self {
        GrowthEstimate {
            layout,
            table,
            merger: RowMerger::of_all_written(),
            merged: Vec::new(),
            large: LargeRows::new(),
        }
    }

    /// The most bytes that a row grows by a change, with `more` bytes of head in front of it.
    fn growth(&mut self, stored: Option<StoredRow<'_>>, change: RowChange<'_>, more: usize) -> usize {
        let stored = match stored {
            Some(stored) if stored.head.is_piece() => return self.growth_of_pieces(stored, change, more),
            small => small.map(|stored| stored.head),
        };
        let after = merge(&mut self.merger, self.table, stored, change.new, change.active, &mut self.merged);
        let (is_cut, length) = after.map_or((false, 0), |row| (is_large(row, self.table), row.as_bytes().len()));
        match stored.map(|row| row.as_bytes().len()) {
            _ if is_cut => added(2 * length + more),
            None if length + more == 0 => 0,
            None => added(length + more),
            Some(before) => replaced(before, length + more),
        }
    }

    fn growth_of_pieces(&mut self, stored: StoredRow<'_>, change: RowChange<'_>, more: usize) -> usize {
        debug_assert!(stored.head.is_piece(), "the row is stored in pieces");
        let edits = self.large.change(self.layout, self.table, Some(stored), change);
        let of_head = if edits.contains_key(&[] as &[u8]) { 0 } else { replaced(0, more) };
        let of_piece = |(key, piece): (&Vec<u8>, &Option<Vec<u8>>)| {
            let Some(piece) = piece else { return 0 };
            if key.is_empty() {
                return replaced(stored.head.as_bytes().len(), piece.len() + more);
            }
            match stored.pieces.get(key) {
                Some(content) => replaced(self.layout.split_content(content).1.len(), piece.len()),
                None => added(piece.len()),
            }
        };
        of_head + edits.iter().map(of_piece).sum::<usize>()
    }
}

fn deletes_rows(update: &PartitionUpdate) -> bool {
    !update.partition_deletion().is_live()
        || update.range_deletion_count() > 0
        || update.rows().any(|row| row.row.has_deletion())
}

/// The bytes of a partition's rows that an update deletes. Returns `enough` if the first rows already amount to that.
fn freed_bytes(memtable: &Arc<TrieMemtable>, table: &Arc<Table>, update: &PartitionUpdate, enough: u64) -> u64 {
    let of_partition = (!update.partition_deletion().is_live()).then(|| (Slice::all(), update.partition_deletion()));
    let of_ranges = update.range_deletions().map(|range| (range.slice, range.deletion));
    let of_rows = update.rows().filter(|row| row.row.has_deletion());
    let of_rows = of_rows.map(|row| (Slice::prefix(row.clustering), row.row.deletion()));
    let (slices, deletions): (Vec<_>, Vec<_>) = of_partition.into_iter().chain(of_ranges).chain(of_rows).unzip();
    // The oldest of the deletions removes everything that lies in any of them.
    let Some(deletion) = deletions.into_iter().min_by_key(|deletion| deletion.marked_for_delete_at) else { return 0 };
    let slices = Slices::new(slices, table.comparator());
    let range = ReadRange { keys: KeyRange::Single(update.key().clone()), slices, reversed: false };
    let mut cursor = memtable.clone().cursor(table, &range);
    let (mut merger, mut left) = (RowMerger::of_all_written(), Vec::new());
    let mut freed = 0;
    if !matches!(cursor.advance_partition(), Ok(true)) {
        return 0;
    }
    for _ in 0..ROWS_LOOKED_AT {
        if freed >= enough || !matches!(cursor.advance(), Ok(true)) {
            break;
        }
        if let Unfiltered::Row(row) = cursor.unfiltered()
            && row.row.deletion().is_live()
            && !merger.merge(table, &[row.row], deletion, &mut left)
        {
            freed += row.row.as_bytes().len() as u64;
        }
        left.clear();
    }
    freed
}
