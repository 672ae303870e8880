//! Converting the contents of a cursor to updates.

use std::sync::Arc;

use model::{
    ClusteringBound, DeletionTime, PartitionUpdate, PartitionUpdateBuilder, ReadError, Slice, Table, Unfiltered,
    UnfilteredCursor,
};

/// An update is passed on once it has this many bytes of rows.
const UPDATE_BYTES: usize = 32 << 10;

/// A deleted range whose end was not reached yet.
struct OpenRange {
    start: ClusteringBound,
    deletion: DeletionTime,
}

/// Passes on everything that `cursor` (forward) has left, as updates of `table`. Empty partitions are left out.
pub fn for_each_update<E: From<ReadError>>(
    cursor: &mut dyn UnfilteredCursor,
    table: &Arc<Table>,
    mut take: impl FnMut(PartitionUpdate) -> Result<(), E>,
) -> Result<(), E> {
    while cursor.advance_partition()? {
        let head = cursor.partition();
        let key = head.key.clone();
        let mut update = PartitionUpdateBuilder::new(table.clone(), key.clone());
        if !head.deletion.is_live() {
            update.delete_partition(head.deletion);
        }
        if let Some(row) = head.static_row {
            update.static_row(row.as_bytes());
        }
        let (mut open, mut bytes): (Option<OpenRange>, usize) = (None, 0);
        while cursor.advance()? {
            match cursor.unfiltered() {
                Unfiltered::Row(row) => {
                    update.row(row.clustering, row.row.as_bytes());
                    bytes += row.clustering.len() + row.row.as_bytes().len();
                }
                Unfiltered::Marker(marker) => {
                    let bound = ClusteringBound::new(marker.prefix.to_vec(), marker.side);
                    if let Some(range) = open.take() {
                        update.delete_range(Slice { start: range.start, end: bound.clone() }, range.deletion);
                    }
                    if !marker.after.is_live() {
                        open = Some(OpenRange { start: bound, deletion: marker.after });
                    }
                }
            }
            if bytes >= UPDATE_BYTES {
                let next = PartitionUpdateBuilder::new(table.clone(), key.clone());
                take(std::mem::replace(&mut update, next).build())?;
                bytes = 0;
            }
        }
        if !update.is_empty() {
            take(update.build())?;
        }
    }
    Ok(())
}
