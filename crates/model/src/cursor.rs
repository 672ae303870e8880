//! The cursor interface over partitions and rows.

use std::sync::Arc;

use crate::{DeletionTime, LargeRowLimit, PartitionKey, ReadError, Row, RowRef, Side, Table};

/// The data before the rows of a partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionHead<'a> {
    /// The partition's key.
    pub key: &'a PartitionKey,
    /// The deletion of the whole partition, `LIVE` if none.
    pub deletion: DeletionTime,
    /// The static row, if it has any content.
    pub static_row: Option<Row<'a>>,
}

/// A border of deleted ranges. Direction-neutral: `before` holds for the rows that sort before it, `after` for those
/// that sort after it, whichever way the cursor moves. At least one of them is not `LIVE`, and they differ.
#[derive(Clone, Copy, Debug)]
pub struct Marker<'a> {
    /// Serialized clustering prefix.
    pub prefix: &'a [u8],
    /// The side of the prefix.
    pub side: Side,
    /// The range deletion in force before this position.
    pub before: DeletionTime,
    /// The range deletion in force after this position.
    pub after: DeletionTime,
}

/// A row or a border of a deleted range.
#[derive(Clone, Copy, Debug)]
pub enum Unfiltered<'a> {
    /// A row.
    Row(RowRef<'a>),
    /// A border of a deleted range.
    Marker(Marker<'a>),
}

/// A row in the form in which an SSTable stores it. It never expires and is not deleted. It has a cell for each regular
/// column that the table has now, all of them simple and no counters, which never expire and are as old as the row.
#[derive(Clone, Copy, Debug)]
pub struct StoredRow<'a> {
    /// The serialized clustering.
    pub clustering: &'a [u8],
    /// The timestamp of the row and of all its cells, microseconds.
    pub timestamp: i64,
    /// The cells as Data.db has them, column by column: flags, a length if the type has no fixed one, the value.
    pub cells: &'a [u8],
}

/// A position in a sequence of partitions, and of rows and range tombstone markers in each.
///
/// Partitions come in (token, key) order. Within one, unfiltereds come in clustering order, or in reverse if the cursor
/// was opened so. A source removes what its own deletions delete only as far as it promises to. Markers are well
/// nested: a range that opens closes within the same partition and slice. Borrowed data stays valid until the next call
/// that advances.
pub trait UnfilteredCursor {
    /// The schema under which rows are read.
    fn table(&self) -> &Arc<Table>;

    /// A hint before the first partition: how many rows will be asked for in all, as far as that is known. A source
    /// need not prefetch more. The caller may still ask for more.
    fn expect_rows(&mut self, _rows: usize) {}

    /// A hint before the first partition: the caller uses only these regular columns (ascending indexes in the table's
    /// current set). Of the others it only needs whether they make a row live, so a source may leave out everything
    /// else. Not for sources that are merged with others.
    fn expect_columns(&mut self, _regulars: &Arc<[usize]>) {}

    /// A hint before the first partition: the caller accepts rows in stored form. A source may then leave them in that
    /// form; `unfiltered` gives only the clustering of such a row, until `decode`.
    fn expect_stored(&mut self) {}

    /// A request before the first partition: after this number of steps that lead to no row or marker, `advance` fails
    /// with [`ReadError::Paused`], so that the caller can look at its limits. The next call continues there.
    fn pause_after(&mut self, _steps: u32) {}

    /// A request before the first partition: large rows are copied within this limit.
    fn limit_large_rows(&mut self, _limit: LargeRowLimit) {}

    /// Moves to the next partition, skipping what is left of the current one. Returns false at the end.
    fn advance_partition(&mut self) -> Result<bool, ReadError>;

    /// The current partition. Only after `advance_partition` returned true.
    fn partition(&self) -> PartitionHead<'_>;

    /// The position of the current partition in the uncompressed data, if the cursor reads a single file. Only after
    /// `advance_partition` returned true.
    fn data_position(&self) -> Option<u64> {
        None
    }

    /// Moves to the next row or marker of the current partition. Returns false at its end.
    fn advance(&mut self) -> Result<bool, ReadError>;

    /// The current row or marker. Only after `advance` returned true.
    fn unfiltered(&self) -> Unfiltered<'_>;

    /// The current row, if it is in stored form. Only after `advance` returned true.
    fn stored(&self) -> Option<StoredRow<'_>> {
        None
    }

    /// Decodes the current row if it is in stored form, so that `unfiltered` gives all of it.
    fn decode(&mut self) -> Result<(), ReadError> {
        Ok(())
    }

    /// An upper bound of the timestamps of everything in this source, microseconds.
    fn max_timestamp(&self) -> i64 {
        i64::MAX
    }

    /// Skips everything in the current partition before a position, including the current row or marker, for a caller
    /// that does not need any of it. It uses an index where that helps. A position is a clustering prefix with a
    /// weight: -1 is before everything that starts with the prefix, 0 is the row itself, 1 is after everything. A
    /// reversed cursor skips what lies after the position. Call it only after `advance` returned true and if the
    /// current row or marker is to be skipped; `advance` continues after the skipped part.
    ///
    /// Returns the range deletion in force there, or `None` if nothing was skipped.
    fn pass_to(&mut self, _prefix: &[u8], _weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        Ok(None)
    }
}

/// A boxed cursor of any kind.
pub type BoxCursor<'a> = Box<dyn UnfilteredCursor + Send + 'a>;

impl<C: UnfilteredCursor + ?Sized> UnfilteredCursor for Box<C> {
    fn table(&self) -> &Arc<Table> {
        (**self).table()
    }
    fn expect_rows(&mut self, rows: usize) {
        (**self).expect_rows(rows);
    }
    fn expect_columns(&mut self, regulars: &Arc<[usize]>) {
        (**self).expect_columns(regulars);
    }
    fn expect_stored(&mut self) {
        (**self).expect_stored();
    }
    fn pause_after(&mut self, steps: u32) {
        (**self).pause_after(steps);
    }
    fn limit_large_rows(&mut self, limit: LargeRowLimit) {
        (**self).limit_large_rows(limit);
    }
    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        (**self).advance_partition()
    }
    fn partition(&self) -> PartitionHead<'_> {
        (**self).partition()
    }
    fn data_position(&self) -> Option<u64> {
        (**self).data_position()
    }
    fn advance(&mut self) -> Result<bool, ReadError> {
        (**self).advance()
    }
    fn unfiltered(&self) -> Unfiltered<'_> {
        (**self).unfiltered()
    }
    fn stored(&self) -> Option<StoredRow<'_>> {
        (**self).stored()
    }
    fn decode(&mut self) -> Result<(), ReadError> {
        (**self).decode()
    }
    fn max_timestamp(&self) -> i64 {
        (**self).max_timestamp()
    }
    fn pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        (**self).pass_to(prefix, weight)
    }
}
