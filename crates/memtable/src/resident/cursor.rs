//! A cursor over parts, one after another.

use std::sync::Arc;

use model::{BoxCursor, LargeRowLimit, PartitionHead, ReadError, ReadRange, Table, Unfiltered, UnfilteredCursor};

use super::part::Part;
use crate::Memtable;

/// A cursor over parts, which are in order of their tokens, as their partitions are.
pub(super) struct PartsCursor {
    table: Arc<Table>,
    range: ReadRange,
    /// The parts that were not entered yet.
    parts: std::vec::IntoIter<Arc<Part>>,
    current: Option<BoxCursor<'static>>,
    /// How many rows the reader said it will ask for.
    rows_expected: Option<usize>,
    columns_expected: Option<Arc<[usize]>>,
    large_rows: LargeRowLimit,
}

impl PartsCursor {
    pub fn new(parts: Vec<Arc<Part>>, table: &Arc<Table>, range: &ReadRange) -> PartsCursor {
        debug_assert!(parts.is_sorted_by(|one, next| one.first < next.first), "parts are in order of their tokens");
        let parts = parts.into_iter();
        PartsCursor {
            table: table.clone(),
            range: range.clone(),
            parts,
            current: None,
            rows_expected: None,
            columns_expected: None,
            large_rows: LargeRowLimit::None,
        }
    }

    fn current(&self) -> &BoxCursor<'static> {
        self.current.as_ref().expect("there is a partition")
    }

    /// Whether the parts that were not entered yet begin behind the current partition; for assertions.
    fn is_before_next_part(&self) -> bool {
        self.parts.as_slice().first().is_none_or(|next| self.partition().key.token() < next.first)
    }
}

impl UnfilteredCursor for PartsCursor {
    fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn expect_rows(&mut self, rows: usize) {
        self.rows_expected = Some(rows);
    }

    fn expect_columns(&mut self, regulars: &Arc<[usize]>) {
        self.columns_expected = Some(regulars.clone());
    }

    fn limit_large_rows(&mut self, limit: LargeRowLimit) {
        self.large_rows = limit;
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        loop {
            if let Some(current) = &mut self.current
                && current.advance_partition()?
            {
                debug_assert!(self.is_before_next_part(), "partitions are in order of their tokens");
                return Ok(true);
            }
            let Some(part) = self.parts.next() else { return Ok(false) };
            let mut cursor = part.memtable.clone().cursor(&self.table, &self.range);
            self.rows_expected.iter().for_each(|rows| cursor.expect_rows(*rows));
            self.columns_expected.iter().for_each(|columns| cursor.expect_columns(columns));
            cursor.limit_large_rows(self.large_rows.clone());
            self.current = Some(cursor);
        }
    }

    fn partition(&self) -> PartitionHead<'_> {
        self.current().partition()
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        self.current.as_mut().map_or(Ok(false), |current| current.advance())
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        self.current().unfiltered()
    }
}
