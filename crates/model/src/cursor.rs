//! The one cursor over partitions and rows.

use std::sync::Arc;

use crate::{DeletionTime, PartitionKey, ReadError, Row, RowRef, Side, Table};

/// What precedes the rows of a partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionHead<'a> {
    /// The partition's key.
    pub key: &'a PartitionKey,
    /// The deletion of the whole partition, `LIVE` if none.
    pub deletion: DeletionTime,
    /// The static row, if it holds anything.
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

/// A row as an SSTable holds it: alive for ever, not deleted, and with a cell for each regular column that the table
/// has now, each of them simple and no counter, alive for ever and as old as the row.
#[derive(Clone, Copy, Debug)]
pub struct StoredRow<'a> {
    /// The serialized clustering.
    pub clustering: &'a [u8],
    /// Of the row and of all its cells, microseconds.
    pub timestamp: i64,
    /// The cells as Data.db has them, column by column: flags, a length where the type has none, the value.
    pub cells: &'a [u8],
}

/// A position in a sequence of partitions, and of rows and range tombstone markers in each.
///
/// Partitions come in (token, key) order; within one, unfiltereds come in clustering order, or reversed where the
/// cursor was opened so. Nothing is deduplicated against deletions of the same source except as that source promises;
/// markers are well nested: a range that opens closes within the same partition and slice. What is borrowed stays
/// valid until the next call that advances.
pub trait UnfilteredCursor {
    /// The schema that rows are read under.
    fn table(&self) -> &Arc<Table>;

    /// Says, before the first partition, how many rows will be asked for in all, as far as that is known: whoever reads
    /// ahead need not go further. More may be asked for all the same.
    fn expect_rows(&mut self, _rows: usize) {}

    /// Says, before the first partition, that of the regular columns only these will be looked at (ascending indexes in
    /// the table's current set), and of the others only whether they make a row live: whoever reads rows or puts
    /// them together may leave out what says nothing of that. Not for sources that are merged with others.
    fn expect_columns(&mut self, _regulars: &Arc<[usize]>) {}

    /// Says, before the first partition, that the caller takes rows as they are stored: whoever reads them may leave
    /// them so, and then `unfiltered` tells no more of such a row than its clustering, until `decode`.
    fn expect_stored(&mut self) {}

    /// Goes to the next partition, past whatever is left of the current one. False at the end.
    fn advance_partition(&mut self) -> Result<bool, ReadError>;

    /// The current partition. Only after `advance_partition` returned true.
    fn partition(&self) -> PartitionHead<'_>;

    /// Goes to the next row or marker of the current partition. False at its end.
    fn advance(&mut self) -> Result<bool, ReadError>;

    /// The current row or marker. Only after `advance` returned true.
    fn unfiltered(&self) -> Unfiltered<'_>;

    /// The current row, where it was left as it is stored. Only after `advance` returned true.
    fn stored(&self) -> Option<StoredRow<'_>> {
        None
    }

    /// Makes `unfiltered` tell all of the current row, which was left as it is stored perhaps.
    fn decode(&mut self) -> Result<(), ReadError> {
        Ok(())
    }

    /// Nothing that this source holds was written or deleted later (microseconds).
    fn max_timestamp(&self) -> i64 {
        i64::MAX
    }

    /// Passes over what the current partition holds before a position, the current row or marker included, for a caller
    /// to whom none of it matters: by an index where that leads further. A position is a clustering prefix with a
    /// weight: -1 before all that starts with it, 0 the row, 1 after all. A reversed cursor passes over what lies
    /// behind the position. Only after `advance` returned true and where the current row or marker is passed over;
    /// `advance` goes on behind what was.
    ///
    /// The range deletion in force there; none if nothing was passed over.
    fn pass_to(&mut self, _prefix: &[u8], _weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        Ok(None)
    }
}

/// A cursor of any kind.
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
    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        (**self).advance_partition()
    }
    fn partition(&self) -> PartitionHead<'_> {
        (**self).partition()
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
