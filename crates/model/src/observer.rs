//! Observing changes of rows.

use crate::{PartitionKey, Row, Table};

/// Observes every row that applying a mutation changes, for secondary indexes and Cassandra's plugin interface.
///
/// It is called on the writing thread, during the write of the partition: it must be quick and must not read the same
/// table.
pub trait RowObserver {
    /// The row at `clustering` (serialized; empty for the static row and in tables without clustering) was `before`
    /// in the memtable and is `after` now. `None` stands for no row.
    fn row_changed(
        &mut self,
        table: &Table,
        key: &PartitionKey,
        clustering: &[u8],
        before: Option<Row<'_>>,
        after: Option<Row<'_>>,
    );
}
