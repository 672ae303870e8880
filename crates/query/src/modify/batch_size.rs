//! The size of a batch, as Cassandra computes it, and the warning or error for a large one.

use std::collections::BTreeSet;

use model::{Clusterings, ColumnData, Mutation, PartitionUpdate, Row, Table};
use protocol::BatchKind;

use crate::QueryError;
use crate::execution::Execution;

/// The timestamp, the TTL and the local deletion time.
const CELL_BYTES: u64 = 8 + 4 + 8;
const DELETION_BYTES: u64 = 12;
/// The timestamp of the liveness, and the deletion with its flag.
const ROW_BYTES: u64 = 8 + DELETION_BYTES + 1;
const LIVENESS_TTL_BYTES: u64 = 4 + 8;
const PARTITION_DELETION_BYTES: u64 = 8;
const RANGE_BYTES: u64 = 8 + 4;
const RANGES_BYTES: u64 = 4;

/// Refuses a batch over several partitions that is too large, and warns about one that is large. Also warns about an
/// unlogged batch over many partitions.
pub(super) fn check(kind: BatchKind, mutation: &Mutation, execution: &Execution<'_>) -> Result<(), QueryError> {
    let updates = mutation.updates();
    let partitions: BTreeSet<_> = updates.iter().map(|update| (&*update.table().keyspace, update.key())).collect();
    if partitions.len() < 2 {
        return Ok(());
    }
    let options = execution.processor.options();
    let tables: BTreeSet<String> = updates.iter().map(|update| qualified(update.table())).collect();
    let names = || tables.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let size: u64 = updates.iter().map(update_size).sum();
    let threshold = options.batch_size_warn_threshold_bytes;
    if size > threshold {
        if size > options.batch_size_fail_threshold_bytes {
            return Err(QueryError::invalid("Batch too large"));
        }
        let (names, over) = (names(), size - threshold);
        execution.warn(format!(
            "Batch for [{names}] is of size {size}, exceeding specified threshold of {threshold} by {over}."
        ));
    }
    let keys: BTreeSet<_> = updates.iter().map(PartitionUpdate::key).collect();
    if kind != BatchKind::Logged && keys.len() > options.unlogged_batch_across_partitions_warn_threshold {
        let (count, plural, names) = (keys.len(), if tables.len() == 1 { "" } else { "s" }, names());
        execution.warn(format!(
            "Unlogged batch covering {count} partitions detected against table{plural} [{names}]. You should use a \
             logged batch for atomicity, or asynchronous writes for performance."
        ));
    }
    Ok(())
}

fn qualified(table: &Table) -> String {
    format!("{}.{}", table.keyspace, table.name)
}

fn update_size(update: &PartitionUpdate) -> u64 {
    let table = update.table();
    let rows: u64 = update.rows().map(|row| clustering_size(row.clustering) + row_size(row.row, table)).sum();
    let static_row = update.static_row().map_or(ROW_BYTES, |row| row_size(row, table));
    let bounds = |slice: &model::Slice| clustering_size(&slice.start.prefix) + clustering_size(&slice.end.prefix);
    let ranges: u64 = update.range_deletions().map(|range| RANGE_BYTES + bounds(&range.slice)).sum();
    let ranges = if update.range_deletion_count() > 0 { RANGES_BYTES + ranges } else { 0 };
    rows + static_row + PARTITION_DELETION_BYTES + ranges
}

fn clustering_size(clustering: &[u8]) -> u64 {
    Clusterings(clustering).flatten().map(|value| value.len() as u64).sum()
}

fn row_size(row: Row<'_>, table: &Table) -> u64 {
    let liveness = if row.liveness().is_expiring() { LIVENESS_TTL_BYTES } else { 0 };
    let columns: u64 = row
        .columns(table)
        .map(|(_, data)| match data {
            ColumnData::Simple(cell) => CELL_BYTES + cell.value.len() as u64,
            ColumnData::Complex(cells) => {
                let cell = |cell: model::Cell<'_>| CELL_BYTES + (cell.value.len() + cell.path.len()) as u64;
                DELETION_BYTES + cells.map(cell).sum::<u64>()
            }
        })
        .sum();
    ROW_BYTES + liveness + columns
}
