//! What an update adds to memory: the most it can, without looking, and whether it adds anything, by looking.

use model::{DeletionTime, PartitionUpdate, Row, RowMerger};

use super::ResidentTable;
use crate::layout::{Header, partition_path};
use crate::shard::newer_of;

/// What a new key adds at most to the structure by itself: a chain is cut in three, and a leaf is written anew ...
const KEY_BYTES_MAX: usize = 384;
/// ... and where it hangs on a node that is there, that may become a flat one.
const NODE_GROWTH_BYTES_MAX: usize = 1024 - 256;
/// What of a cell's times may come to be said apart from the row's, bytes.
const CELL_TIMES_BYTES: usize = 2;
/// The same for cells that are written.
const WRITTEN_TIMES_BYTES: usize = 24;

/// The most bytes that applying `update` can add.
pub fn growth_max(update: &PartitionUpdate) -> u64 {
    let table = update.table();
    // Each row may add itself and its deletion, each range itself and what goes on behind it of one that it cuts; there is a header.
    let row_deletions = update.rows().filter(|row| !row.row.deletion().is_live()).count();
    let keys = 1 + update.row_count() + row_deletions + 2 * update.range_deletion_count();
    // If the header is new, so are all nodes below it.
    let nodes = (keys - 1).max(1);
    let rows = update.row_count() + usize::from(update.static_row().is_some());
    let columns = table.regulars().columns.len().max(table.statics().columns.len());
    let written: usize = update.rows().map(|row| row.row.written_columns(table).count()).sum();
    let times = rows * columns * CELL_TIMES_BYTES + (written + rows) * WRITTEN_TIMES_BYTES;
    let structure = keys * (KEY_BYTES_MAX + 2 * update.key().bytes().len()) + nodes * NODE_GROWTH_BYTES_MAX;
    (structure + 2 * update.as_bytes().len() + times) as u64
}

impl ResidentTable {
    /// Whether applying `update` would add anything now: a key, or bytes to a row. Updates that delete ranges or partitions do.
    pub fn grows(&self, update: &PartitionUpdate) -> bool {
        if !update.partition_deletion().is_live() || update.range_deletion_count() > 0 {
            return true;
        }
        let part = self.0.part_of(update.key().token());
        let memtable = &part.memtable;
        let (layout, shard) = (memtable.layout(), &memtable.shards()[0]);
        let table = newer_of(update.table(), &shard.table());
        let mut path = Vec::new();
        partition_path(update.key(), &mut path);
        let mut merger = RowMerger::of_all_written();
        let mut merged = Vec::new();
        let mut grows = |existing: Option<Row<'_>>, new: Row<'_>, deletion: DeletionTime| {
            // A large row in pieces may be cut anew.
            let Some(existing) = existing.filter(|row| !row.is_piece()) else { return true };
            merged.clear();
            merger.merge(&table, &[existing, new], deletion, &mut merged);
            merged.len() > existing.as_bytes().len()
        };
        let pin = shard.trie.pin();
        let Some(header) = pin.get(&path).map(Header::read) else { return true };
        let single = if layout.has_clustering() { None } else { update.rows().next().map(|row| row.row) };
        if let Some(new) = update.static_row().or(single)
            && grows(header.row, new, header.deletion)
        {
            return true;
        }
        layout.has_clustering()
            && update.rows().any(|row| {
                let mut key = path.clone();
                layout.push_row(row.clustering, &mut key);
                let existing = pin.get(&key).map(|content| Row::new(layout.split_content(content).1));
                !row.row.deletion().is_live() || grows(existing, row.row, header.deletion)
            })
    }
}
