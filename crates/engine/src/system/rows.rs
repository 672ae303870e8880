//! Rows of system tables by column name.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    BoxCursor, Cell, DeletionTime, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, ReadError, Row,
    RowBuilder, Slice, Table, Unfiltered, UnfilteredCursor, push_component,
};
use types::collection;

/// A change to one partition of a system table.
pub(crate) struct SystemWrite {
    update: PartitionUpdateBuilder,
    timestamp: i64,
    now_seconds: u32,
}

impl SystemWrite {
    /// A change to the partition `key` at `timestamp` (microseconds).
    pub fn new(table: &Arc<Table>, key: &[u8], timestamp: i64) -> Self {
        let update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(key));
        SystemWrite { update, timestamp, now_seconds: (timestamp / 1_000_000) as u32 }
    }

    /// The deletion at the start of a rewrite: everything older than the rows of this write.
    fn before(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp - 1, self.now_seconds)
    }

    /// Deletes the previous content of the partition.
    pub fn clear(&mut self) {
        self.update.delete_partition(self.before());
    }

    /// Deletes the rows whose clustering starts with these values.
    pub fn clear_rows(&mut self, prefix: &[&[u8]]) {
        let deletion = self.before();
        self.update.delete_range(Slice::prefix(&clustering(prefix)), deletion);
    }

    /// Writes a row; columns whose value is `None` stay unset. Non-frozen sets and maps are given in frozen form.
    pub fn row(&mut self, clustering_values: &[&[u8]], values: &[(&str, Option<Vec<u8>>)]) {
        let mut by_index: BTreeMap<usize, &[u8]> = BTreeMap::new();
        let table = self.update.table().clone();
        for (name, value) in values {
            let index = table.regulars().index_of(name);
            if let (Some(index), Some(value)) = (index, value) {
                by_index.insert(index, value);
            }
        }
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        builder.liveness(Liveness::at(self.timestamp));
        for (index, value) in by_index {
            if table.regulars().columns[index].is_complex() {
                builder.complex(index, self.before());
                self.complex_cells(&mut builder, &table.regulars().columns[index].ty, value);
            } else {
                builder.cell(index, &Cell::live(self.timestamp, value));
            }
        }
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        self.update.row(&clustering(clustering_values), &blob);
    }

    /// Sets or removes one entry of a non-frozen map of the partition's only row. The other entries do not change.
    pub fn entry(&mut self, column: &str, key: &[u8], value: Option<&[u8]>) {
        let table = self.update.table().clone();
        let Some(index) = table.regulars().index_of(column) else { return };
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        builder.complex(index, DeletionTime::LIVE);
        let cell = match value {
            Some(value) => Cell::live(self.timestamp, value),
            None => Cell::tombstone(self.timestamp, self.now_seconds),
        };
        builder.complex_cell(&cell.with_path(key));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        self.update.row(&clustering(&[]), &blob);
    }

    fn complex_cells(&self, builder: &mut RowBuilder, ty: &types::CqlType, value: &[u8]) {
        if matches!(ty, types::CqlType::Map { .. }) {
            for (key, value) in collection::entries(value).into_iter().flat_map(|parts| parts.entries()).flatten() {
                builder.complex_cell(&Cell::live(self.timestamp, value).with_path(key));
            }
        } else {
            for element in collection::elements(value).into_iter().flatten().flatten().flatten() {
                builder.complex_cell(&Cell::live(self.timestamp, &[]).with_path(element));
            }
        }
    }

    /// The finished update.
    pub fn build(self) -> PartitionUpdate {
        self.update.build()
    }
}

fn clustering(values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| push_component(Some(value), &mut bytes));
    bytes
}

/// A live row of a system table. Complex columns are given in frozen form.
pub(crate) struct SystemRow {
    values: BTreeMap<Arc<str>, Vec<u8>>,
}

impl SystemRow {
    /// The column's value.
    pub fn get(&self, column: &str) -> Option<&[u8]> {
        self.values.get(column).map(Vec::as_slice)
    }

    /// The column's value as text, empty if there is none.
    pub fn text(&self, column: &str) -> String {
        String::from_utf8_lossy(self.get(column).unwrap_or_default()).into_owned()
    }

    /// The column's value as an int.
    pub fn int(&self, column: &str) -> Option<i32> {
        self.get(column)?.try_into().ok().map(i32::from_be_bytes)
    }

    /// The column's value as a bigint or timestamp.
    pub fn bigint(&self, column: &str) -> Option<i64> {
        self.get(column)?.try_into().ok().map(i64::from_be_bytes)
    }

    /// The column's value as a double.
    pub fn double(&self, column: &str) -> Option<f64> {
        self.get(column)?.try_into().ok().map(f64::from_be_bytes)
    }

    /// The column's value as a boolean.
    pub fn boolean(&self, column: &str) -> Option<bool> {
        self.get(column)?.first().map(|byte| *byte != 0)
    }

    /// The column's value as a UUID.
    pub fn uuid(&self, column: &str) -> Option<uuid::Uuid> {
        uuid::Uuid::from_slice(self.get(column)?).ok()
    }

    /// The column's value as a map of text to bytes.
    pub fn map(&self, column: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = self.get(column).and_then(|value| collection::entries(value).ok());
        entries
            .into_iter()
            .flat_map(|parts| parts.entries())
            .flatten()
            .map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), value.to_vec()))
            .collect()
    }

    /// The column's value as a map of texts.
    pub fn text_map(&self, column: &str) -> BTreeMap<String, String> {
        self.map(column).into_iter().map(|(key, value)| (key, String::from_utf8_lossy(&value).into_owned())).collect()
    }

    /// The column's value as a list of texts.
    pub fn texts(&self, column: &str) -> Vec<String> {
        let elements = self.get(column).and_then(|value| collection::elements(value).ok());
        let bytes = elements.into_iter().flatten().flatten().flatten();
        bytes.map(|element| String::from_utf8_lossy(element).into_owned()).collect()
    }
}

/// Reads all live rows at `now_seconds`.
pub(crate) fn read_rows(mut cursor: BoxCursor<'_>, now_seconds: u32) -> Result<Vec<SystemRow>, ReadError> {
    let table = cursor.table().clone();
    let mut rows = Vec::new();
    while cursor.advance_partition()? {
        let key = cursor.partition().key.bytes().to_vec();
        while cursor.advance()? {
            if let Unfiltered::Row(row) = cursor.unfiltered()
                && row.row.is_live(&table, now_seconds)
            {
                rows.push(read_row(&table, &key, row.clustering, row.row, now_seconds));
            }
        }
    }
    Ok(rows)
}

/// The rows that an update of a system table writes, as they will be read.
pub(crate) fn rows_of(update: &PartitionUpdate) -> Vec<SystemRow> {
    let (table, key) = (update.table(), update.key().bytes());
    update.rows().map(|row| read_row(table, key, row.clustering, row.row, 0)).collect()
}

fn read_row(table: &Table, key: &[u8], clustering: &[u8], row: Row<'_>, now_seconds: u32) -> SystemRow {
    let mut values = BTreeMap::new();
    if let [column] = table.partition_key() {
        values.insert(column.name.clone(), key.to_vec());
    }
    for (column, value) in table.clustering().iter().zip(model::Clusterings(clustering)) {
        values.insert(column.name.clone(), value.unwrap_or_default().to_vec());
    }
    read_columns(table, row, now_seconds, &mut values);
    SystemRow { values }
}

/// The greatest timestamp of a cell, microseconds; `i64::MIN` if there is none.
pub(crate) fn newest_timestamp(mut cursor: BoxCursor<'_>) -> Result<i64, ReadError> {
    let table = cursor.table().clone();
    let mut newest = i64::MIN;
    while cursor.advance_partition()? {
        while cursor.advance()? {
            let Unfiltered::Row(row) = cursor.unfiltered() else { continue };
            for (_, data) in row.row.columns(&table) {
                let of_column = match data {
                    model::ColumnData::Simple(cell) => Some(cell.timestamp),
                    model::ColumnData::Complex(cells) => cells.map(|cell| cell.timestamp).max(),
                };
                newest = newest.max(of_column.unwrap_or(newest));
            }
        }
    }
    Ok(newest)
}

fn read_columns(table: &Table, row: Row<'_>, now_seconds: u32, values: &mut BTreeMap<Arc<str>, Vec<u8>>) {
    for (index, data) in row.columns(table) {
        let column = &table.regulars().columns[index];
        let value = match data {
            model::ColumnData::Simple(cell) if cell.is_live(now_seconds) => cell.value.to_vec(),
            model::ColumnData::Simple(_) => continue,
            model::ColumnData::Complex(cells) => {
                let live: Vec<_> = cells.filter(|cell| cell.is_live(now_seconds)).collect();
                match column.ty {
                    types::CqlType::Map { .. } => collection::map(live.iter().map(|cell| (cell.path, cell.value))),
                    types::CqlType::Set { .. } => collection::list(live.iter().map(|cell| cell.path)),
                    _ => collection::list(live.iter().map(|cell| cell.value)),
                }
            }
        };
        values.insert(column.name.clone(), value);
    }
}
