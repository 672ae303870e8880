//! Reading a partition before it is written.

use std::sync::Arc;

use model::{
    ColumnData, DeletionTime, KeyRange, PartitionKey, ReadError, ReadRange, Row, Slices, Table, Unfiltered,
    UnfilteredCursor,
};

use crate::QueryError;
use crate::budget::{STEPS_PER_CHECK, steps_of_bytes};
use crate::execution::Execution;

/// A part of a partition that is read.
pub(super) enum ReadPart<'r> {
    Deletion(DeletionTime),
    Statics(Row<'r>),
    Row(&'r [u8], Row<'r>),
}

/// The newest timestamp of this part, dead or alive.
pub(super) fn newest_of(found: &ReadPart<'_>, table: &Table) -> i64 {
    let (ReadPart::Statics(row) | ReadPart::Row(_, row)) = found else {
        let ReadPart::Deletion(deletion) = found else { return i64::MIN };
        return deletion.marked_for_delete_at;
    };
    let of_row = row.liveness().timestamp.max(row.deletion().marked_for_delete_at);
    row.columns(table).fold(of_row, |newest, (_, data)| match data {
        ColumnData::Simple(cell) => newest.max(cell.timestamp),
        ColumnData::Complex(cells) => {
            let newest = newest.max(cells.deletion.marked_for_delete_at);
            cells.fold(newest, |newest, cell| newest.max(cell.timestamp))
        }
    })
}

/// Passes these parts of a partition to `take`, until that returns false.
pub(super) fn read_rows(
    table: &Arc<Table>,
    key: &PartitionKey,
    slices: Slices,
    execution: &Execution<'_>,
    take: &mut dyn FnMut(ReadPart<'_>) -> bool,
) -> Result<(), QueryError> {
    execution.work(1 + slices.as_slice().len() as u64)?;
    let range = ReadRange { keys: KeyRange::Single(key.clone()), slices, reversed: false };
    let mut cursor = execution.processor.read(table, &range, execution.now_seconds, execution.turn())?;
    cursor.pause_after(STEPS_PER_CHECK as u32);
    if !cursor.advance_partition()? {
        return Ok(());
    }
    let head = cursor.partition();
    take(ReadPart::Deletion(head.deletion));
    head.static_row.map(|row| take(ReadPart::Statics(row)));
    loop {
        match cursor.advance() {
            Err(ReadError::Paused) => {
                execution.work(STEPS_PER_CHECK)?;
                continue;
            }
            Err(error) => return Err(error.into()),
            Ok(false) => return Ok(()),
            Ok(true) => {}
        }
        let goes_on = match cursor.unfiltered() {
            Unfiltered::Marker(marker) => {
                take(ReadPart::Deletion(marker.before)) && take(ReadPart::Deletion(marker.after))
            }
            Unfiltered::Row(row) => {
                let row_bytes = row.row.as_bytes().len();
                execution.work(steps_of_bytes(row_bytes))?;
                execution.charge(row_bytes)?;
                take(ReadPart::Row(row.clustering, row.row))
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}
