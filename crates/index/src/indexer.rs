//! The entries of rows: from an update that is applied to a memtable, and from a cursor over an SSTable.

use std::sync::Arc;

use bytecomp::separator::{EXCLUDED, TERMINATOR};
use bytecomp::{ClusteringColumnType, encode_decorated_key, encode_serialized_clustering};
use model::{Clusterings, Column, ColumnData, ColumnKind, PartitionKey, PartitionUpdate, Row, RowRef, Table};

use crate::entry::{clustering_types, push_term};

/// Makes the entries of one column's index. Thread-safe.
///
/// A regular or clustering column has an entry for each row, a static column or one of the partition key an entry for
/// each partition. Cells that are deletions have none. Expired cells have one, because an indexer has no clock.
#[derive(Debug)]
pub struct Indexer {
    column: Arc<Column>,
    key_columns: usize,
    clustering: Vec<ClusteringColumnType>,
}

impl Indexer {
    /// For a column of the table, which must be no counter and no collection that is not frozen.
    pub fn new(table: &Table, column: &Arc<Column>) -> Indexer {
        debug_assert!(!column.is_complex(), "a column with cells of its own has no single value");
        Indexer {
            column: column.clone(),
            key_columns: table.partition_key().len(),
            clustering: clustering_types(table),
        }
    }

    /// The column.
    pub fn column(&self) -> &Arc<Column> {
        &self.column
    }

    /// The types of the clustering, with which the places of candidates are decoded.
    pub fn clustering(&self) -> &[ClusteringColumnType] {
        &self.clustering
    }

    /// Passes the entries of an update to `put`, with the lengths of their terms. `entry` is a buffer.
    pub fn of_update(&self, update: &PartitionUpdate, entry: &mut Vec<u8>, mut put: impl FnMut(&[u8], usize)) {
        let (table, key) = (update.table(), update.key());
        match self.column.kind {
            ColumnKind::PartitionKey | ColumnKind::Static => {
                if update.row_count() > 0 || update.static_row().is_some() {
                    self.of_partition(table, key, update.static_row(), entry, put);
                }
            }
            ColumnKind::Clustering | ColumnKind::Regular => {
                update.rows().for_each(|row| self.of_row(table, key, row, entry, &mut put));
            }
        }
    }

    /// Passes the entry of a partition to `put`, if it has one. The static row was written under `table` or an older
    /// version of it.
    pub fn of_partition(
        &self,
        table: &Table,
        key: &PartitionKey,
        static_row: Option<Row<'_>>,
        entry: &mut Vec<u8>,
        mut put: impl FnMut(&[u8], usize),
    ) {
        let value = match self.column.kind {
            ColumnKind::PartitionKey => key.parts(self.key_columns).get(self.column.position as usize).copied(),
            ColumnKind::Static => static_row.and_then(|row| self.value(table, row)),
            ColumnKind::Clustering | ColumnKind::Regular => None,
        };
        let Some(value) = value else { return };
        let term_length = self.begin(value, key, entry);
        entry.push(EXCLUDED);
        put(entry, term_length);
    }

    /// Passes the entry of a row to `put`, if it has one.
    pub fn of_row(
        &self,
        table: &Table,
        key: &PartitionKey,
        row: RowRef<'_>,
        entry: &mut Vec<u8>,
        mut put: impl FnMut(&[u8], usize),
    ) {
        let value = match self.column.kind {
            // Whatever was not a deletion when it was written was alive at the epoch.
            ColumnKind::Clustering if row.row.is_live(table, 0) => {
                Clusterings(row.clustering).nth(self.column.position as usize).flatten()
            }
            ColumnKind::Regular => self.value(table, row.row),
            _ => None,
        };
        let Some(value) = value else { return };
        let term_length = self.begin(value, key, entry);
        encode_serialized_clustering(&self.clustering, row.clustering, TERMINATOR, entry);
        put(entry, term_length);
    }

    /// The value of the column in a row, if it has one.
    fn value<'r>(&self, table: &Table, row: Row<'r>) -> Option<&'r [u8]> {
        let columns = &table.columns(self.column.kind == ColumnKind::Static).columns;
        let (_, data) =
            row.columns(table).find(|(index, _)| columns.get(*index).is_some_and(|own| own.id == self.column.id))?;
        match data {
            ColumnData::Simple(cell) => (!cell.is_tombstone()).then_some(cell.value),
            ColumnData::Complex(_) => None,
        }
    }

    /// Writes the term and the partition's position; the length of the term.
    fn begin(&self, value: &[u8], key: &PartitionKey, entry: &mut Vec<u8>) -> usize {
        entry.clear();
        push_term(&self.column.ty, value, entry);
        let term_length = entry.len();
        encode_decorated_key(key.token(), key.bytes(), entry);
        term_length
    }
}
