//! A read of one partition reads its sources newest first, and ends before sources that are too old to matter.
//!
//! The effect of a source on the partition is known after its cursor has entered the partition, so each source is
//! entered before the next one is opened. Two things end the search before an SSTable, whose statistics give its latest
//! timestamp: a partition deletion that is not older, and (for the answer to a read of one row) a row that has every
//! column, all of them newer. The latter may leave out deletions, which other replicas may need.

use std::sync::Arc;

use model::{
    BoxCursor, ColumnData, DeletionTime, KeyRange, PartitionHead, ReadError, ReadRange, Row, Table, Unfiltered,
    UnfilteredCursor,
};

/// A cursor that has been moved ahead of its reader.
struct Ahead {
    cursor: BoxCursor<'static>,
    /// The result of the first `advance_partition`, until the reader requests it.
    entered: Option<bool>,
    /// The result of the first `advance`, until the reader requests it.
    advanced: Option<bool>,
}

impl UnfilteredCursor for Ahead {
    fn table(&self) -> &Arc<Table> {
        self.cursor.table()
    }

    fn expect_rows(&mut self, rows: usize) {
        self.cursor.expect_rows(rows);
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        match self.entered.take() {
            Some(found) => Ok(found),
            None => {
                self.advanced = None;
                self.cursor.advance_partition()
            }
        }
    }

    fn partition(&self) -> PartitionHead<'_> {
        self.cursor.partition()
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        match self.advanced.take() {
            Some(found) => Ok(found),
            None => self.cursor.advance(),
        }
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        self.cursor.unfiltered()
    }

    fn max_timestamp(&self) -> i64 {
        self.cursor.max_timestamp()
    }

    fn pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        self.cursor.pass_to(prefix, weight)
    }
}

/// Whether reads of the range are of one partition, and so read the newest sources first.
pub(crate) fn applies(range: &ReadRange) -> bool {
    matches!(range.keys, KeyRange::Single(_))
}

/// The effect of the sources so far on the following ones.
pub(crate) struct NewestFirst {
    /// Whether a complete row ends the search.
    ends_at_complete_row: bool,
    /// Nothing written at or before this time (microseconds) is alive.
    deleted_until: i64,
    /// Nothing written before this time (microseconds) is part of the one row.
    complete_since: i64,
}

impl NewestFirst {
    /// The state before the first source of a read of one partition.
    pub fn new() -> NewestFirst {
        NewestFirst { ends_at_complete_row: false, deleted_until: i64::MIN, complete_since: i64::MIN }
    }

    /// Lets a complete row end the search if at most one row is selected. Called before the first source.
    pub fn end_at_complete_row(&mut self, table: &Table, range: &ReadRange) {
        debug_assert!(self.complete_since == i64::MIN && self.deleted_until == i64::MIN, "no source was entered");
        // The newest cell of a counter may have fewer shards than all cells together.
        let adds_up = |column: &model::Column| column.is_complex() || column.ty == types::CqlType::Counter;
        let is_simple = !table.has_statics() && !table.regulars().columns.iter().any(|column| adds_up(column));
        self.ends_at_complete_row = is_simple && is_one_row(table, range);
    }

    /// Whether a source with no timestamp above `max_timestamp` can be left out.
    pub fn ends_before(&self, max_timestamp: i64) -> bool {
        self.deleted_until >= max_timestamp || self.complete_since > max_timestamp
    }

    /// Enters a source and records its effect.
    pub fn enter(&mut self, cursor: BoxCursor<'static>) -> Result<BoxCursor<'static>, ReadError> {
        let mut ahead = Ahead { cursor, entered: None, advanced: None };
        let entered = ahead.cursor.advance_partition()?;
        ahead.entered = Some(entered);
        if !entered {
            return Ok(Box::new(ahead));
        }
        let deletion = ahead.cursor.partition().deletion;
        if !deletion.is_live() {
            self.deleted_until = self.deleted_until.max(deletion.marked_for_delete_at);
        }
        if self.ends_at_complete_row {
            let advanced = ahead.cursor.advance()?;
            ahead.advanced = Some(advanced);
            if advanced && let Unfiltered::Row(row) = ahead.cursor.unfiltered() {
                let since = complete_since(row.row, ahead.cursor.table());
                self.complete_since = self.complete_since.max(since.unwrap_or(i64::MIN));
            }
        }
        Ok(Box::new(ahead))
    }
}

/// Whether the slices select one row by its whole clustering.
fn is_one_row(table: &Table, range: &ReadRange) -> bool {
    if table.clustering().is_empty() {
        return true;
    }
    match range.slices.as_slice() {
        [slice] => {
            slice.start.prefix == slice.end.prefix
                && slice.start.side == model::Side::Before
                && slice.end.side == model::Side::After
                && model::Clusterings(&slice.start.prefix).count() == table.clustering().len()
        }
        _ => false,
    }
}

/// The time before which nothing can add to a row: the row is live and has every column, and this is the oldest of
/// their timestamps.
fn complete_since(row: Row<'_>, table: &Table) -> Option<i64> {
    let liveness = row.liveness();
    if liveness.is_empty() {
        return None;
    }
    let mut oldest = liveness.timestamp;
    let mut columns = 0;
    for (_, data) in row.columns(table) {
        let ColumnData::Simple(cell) = data else { return None };
        oldest = oldest.min(cell.timestamp);
        columns += 1;
    }
    (columns == table.regulars().columns.len()).then_some(oldest)
}
