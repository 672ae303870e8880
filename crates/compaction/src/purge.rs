//! Dropping what is deleted for good.
//!
//! A deletion may be dropped once it is older than `gc_grace_seconds` and nothing outside of the merge, in memory or in
//! another table, can be older than it and have data that it shadows. An expired cell becomes a tombstone with the time
//! of its expiration, to which the same rule applies.

use std::cell::Cell as Slot;
use std::sync::Arc;

use model::{
    Cell, ColumnData, DeletionTime, Liveness, Marker, PartitionHead, PartitionKey, ReadError, Row, RowBuilder, RowRef,
    StoredRow, Table, Unfiltered, UnfilteredCursor,
};
use sstable::SSTableReader;

/// Everything else that may have data of a partition being merged: the memtables and the tables outside of the merge,
/// at the time of the call (a memtable may be flushed during a merge).
pub trait Overlaps {
    /// The least timestamp (microseconds) of anything outside of the merge that may belong to the partition; `i64::MAX`
    /// if there is nothing.
    fn oldest_timestamp(&self, key: &PartitionKey) -> i64;
}

impl<F: Fn(&PartitionKey) -> i64> Overlaps for F {
    fn oldest_timestamp(&self, key: &PartitionKey) -> i64 {
        self(key)
    }
}

/// The least timestamp of the tables that may hold the partition, for implementations of [`Overlaps`].
pub fn oldest_overlapping_timestamp<'a>(
    tables: impl IntoIterator<Item = &'a SSTableReader>,
    key: &PartitionKey,
) -> i64 {
    let keys = model::KeyRange::Single(key.clone());
    let may_hold = tables.into_iter().filter(|table| table.may_contain(&keys));
    may_hold.map(|table| table.statistics().stats.min_timestamp).min().unwrap_or(i64::MAX)
}

/// Decides what may be dropped.
struct Purger<'a> {
    now_seconds: u32,
    /// Deletions made before this time (seconds) may be dropped.
    gc_before: u32,
    overlaps: &'a dyn Overlaps,
    /// The current partition's key, set once it has something that could be dropped. Most have nothing.
    key: Option<PartitionKey>,
    /// The result for the current partition, once it was requested.
    oldest: Slot<Option<i64>>,
}

impl Purger<'_> {
    fn may_go(&self, timestamp: i64, local_deletion_time: u32) -> bool {
        local_deletion_time < self.gc_before && timestamp < self.oldest_timestamp()
    }

    fn oldest_timestamp(&self) -> i64 {
        if let Some(oldest) = self.oldest.get() {
            return oldest;
        }
        let oldest = self.key.as_ref().map_or(i64::MIN, |key| self.overlaps.oldest_timestamp(key));
        self.oldest.set(Some(oldest));
        oldest
    }

    /// The part of a deletion that is still needed.
    fn deletion(&self, deletion: DeletionTime) -> DeletionTime {
        let goes = !deletion.is_live() && self.may_go(deletion.marked_for_delete_at, deletion.local_deletion_time);
        if goes { DeletionTime::LIVE } else { deletion }
    }

    fn liveness(&self, liveness: Liveness) -> Liveness {
        let ended = !liveness.is_empty() && !liveness.is_live(self.now_seconds);
        if ended && self.may_go(liveness.timestamp, liveness.expiration) { Liveness::EMPTY } else { liveness }
    }

    fn cell<'c>(&self, cell: Cell<'c>) -> Option<Cell<'c>> {
        if cell.is_live(self.now_seconds) {
            return Some(cell);
        }
        if self.may_go(cell.timestamp, cell.local_deletion_time) {
            return None;
        }
        if !cell.is_expiring() {
            return Some(cell);
        }
        let written = cell.local_deletion_time.saturating_sub(cell.ttl.max(0) as u32);
        let tombstone = Cell::tombstone(cell.timestamp, written).with_path(cell.path);
        if self.may_go(tombstone.timestamp, tombstone.local_deletion_time) { None } else { Some(tombstone) }
    }

    /// Whether a row is not empty, and nothing of it can be dropped or changed.
    fn leaves_alone(&self, row: Row<'_>, table: &Table) -> bool {
        row.plain(table).is_some() || self.leaves_all_of(row, table)
    }

    fn leaves_all_of(&self, row: Row<'_>, table: &Table) -> bool {
        !row.is_empty(table)
            && row.liveness().expiration == model::NO_DELETION_TIME
            && row.deletion().is_live()
            && row.kept_columns(table).all(|(_, data)| match data {
                ColumnData::Simple(cell) => cell.local_deletion_time == model::NO_DELETION_TIME,
                ColumnData::Complex(mut cells) => {
                    cells.deletion.is_live() && cells.all(|cell| cell.local_deletion_time == model::NO_DELETION_TIME)
                }
            })
    }

    /// Writes the needed part of a row to `out`. Returns false if there is none.
    fn row(&self, row: Row<'_>, table: &Table, builder: &mut RowBuilder, out: &mut Vec<u8>) -> bool {
        let is_static = row.is_static();
        builder.start(table.columns(is_static), is_static);
        builder.liveness(self.liveness(row.liveness()));
        builder.deletion(self.deletion(row.deletion()));
        for (index, data) in row.kept_columns(table) {
            match data {
                ColumnData::Simple(cell) => {
                    if let Some(cell) = self.cell(cell) {
                        builder.cell(index, &cell);
                    }
                }
                ColumnData::Complex(cells) => {
                    builder.complex(index, self.deletion(cells.deletion));
                    for cell in cells.filter_map(|cell| self.cell(cell)) {
                        builder.complex_cell(&cell);
                    }
                }
            }
        }
        out.clear();
        if builder.is_empty() {
            return false;
        }
        builder.finish(out);
        true
    }
}

enum CurrentItem {
    None,
    /// The source's current item.
    Source,
    /// The row in `row`, with the source's clustering.
    Row,
    /// The source's marker with other deletions.
    Marker {
        before: DeletionTime,
        after: DeletionTime,
    },
}

/// Drops what is deleted for good from rows that contain all data of the table, so that nothing else can be older.
pub struct RowPurge {
    now_seconds: u32,
    gc_before: u32,
    builder: RowBuilder,
}

impl RowPurge {
    /// Drops deletions made before `gc_before` (seconds). What has expired by `now_seconds` becomes a tombstone.
    pub fn new(now_seconds: u32, gc_before: u32) -> Self {
        RowPurge { now_seconds, gc_before, builder: RowBuilder::default() }
    }

    fn purger(&self) -> Purger<'static> {
        let oldest = Slot::new(Some(i64::MAX));
        let RowPurge { now_seconds, gc_before, .. } = *self;
        Purger { now_seconds, gc_before, overlaps: &|_: &PartitionKey| i64::MAX, key: None, oldest }
    }

    /// The part of a deletion that is still needed.
    pub fn deletion(&self, deletion: DeletionTime) -> DeletionTime {
        self.purger().deletion(deletion)
    }

    /// Whether a row is not empty, and nothing of it can be dropped or changed, now or later.
    pub fn leaves_alone(&self, row: Row<'_>, table: &Table) -> bool {
        self.purger().leaves_alone(row, table)
    }

    /// Writes the needed part of a row to `out`. Returns false if there is none.
    pub fn row(&mut self, row: Row<'_>, table: &Table, out: &mut Vec<u8>) -> bool {
        let purger = self.purger();
        purger.row(row, table, &mut self.builder, out)
    }
}

/// Passes on the items of another cursor without what is deleted for good. Partitions may become empty.
pub struct PurgeCursor<'a, C> {
    source: C,
    purger: Purger<'a>,
    builder: RowBuilder,
    static_row: Vec<u8>,
    has_static_row: bool,
    row: Vec<u8>,
    current: CurrentItem,
}

impl<'a, C: UnfilteredCursor> PurgeCursor<'a, C> {
    /// Drops deletions made before `gc_before` (seconds) and what has expired by `now_seconds`, where `overlaps` allows
    /// it.
    pub fn new(source: C, now_seconds: u32, gc_before: u32, overlaps: &'a dyn Overlaps) -> Self {
        PurgeCursor {
            source,
            purger: Purger { now_seconds, gc_before, overlaps, key: None, oldest: Slot::new(None) },
            builder: RowBuilder::default(),
            static_row: Vec::new(),
            has_static_row: false,
            row: Vec::new(),
            current: CurrentItem::None,
        }
    }
}

impl<C: UnfilteredCursor> UnfilteredCursor for PurgeCursor<'_, C> {
    fn table(&self) -> &Arc<Table> {
        self.source.table()
    }

    fn expect_stored(&mut self) {
        self.source.expect_stored();
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        self.current = CurrentItem::None;
        if !self.source.advance_partition()? {
            return Ok(false);
        }
        let head = self.source.partition();
        self.purger.key = None;
        self.purger.oldest.set(None);
        if !head.deletion.is_live() || head.static_row.is_some() {
            self.purger.key = Some(head.key.clone());
        }
        self.has_static_row = match head.static_row {
            Some(row) => self.purger.row(row, self.source.table(), &mut self.builder, &mut self.static_row),
            None => false,
        };
        Ok(true)
    }

    fn partition(&self) -> PartitionHead<'_> {
        let head = self.source.partition();
        PartitionHead {
            key: head.key,
            deletion: self.purger.deletion(head.deletion),
            static_row: self.has_static_row.then(|| Row::new(&self.static_row)),
        }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        loop {
            self.current = CurrentItem::None;
            if !self.source.advance()? {
                return Ok(false);
            }
            if self.source.stored().is_some() {
                // Nothing of it is deleted or expires.
                self.current = CurrentItem::Source;
                return Ok(true);
            }
            if self.purger.key.is_none() {
                self.purger.key = Some(self.source.partition().key.clone());
            }
            match self.source.unfiltered() {
                Unfiltered::Row(RowRef { row, .. }) => {
                    if self.purger.leaves_alone(row, self.source.table()) {
                        self.current = CurrentItem::Source;
                        return Ok(true);
                    }
                    if self.purger.row(row, self.source.table(), &mut self.builder, &mut self.row) {
                        self.current = CurrentItem::Row;
                        return Ok(true);
                    }
                }
                Unfiltered::Marker(marker) => {
                    let (before, after) = (self.purger.deletion(marker.before), self.purger.deletion(marker.after));
                    if before != after {
                        self.current = CurrentItem::Marker { before, after };
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn stored(&self) -> Option<StoredRow<'_>> {
        matches!(self.current, CurrentItem::Source).then(|| self.source.stored()).flatten()
    }

    fn decode(&mut self) -> Result<(), ReadError> {
        self.source.decode()
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        match (&self.current, self.source.unfiltered()) {
            (CurrentItem::Row, Unfiltered::Row(row)) => Unfiltered::Row(RowRef { row: Row::new(&self.row), ..row }),
            (CurrentItem::Marker { before, after }, Unfiltered::Marker(marker)) => {
                Unfiltered::Marker(Marker { before: *before, after: *after, ..marker })
            }
            (_, own) => own,
        }
    }
}
