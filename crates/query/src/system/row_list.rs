//! Rows in a list, as a source of rows.

use std::sync::Arc;

use model::{
    Cell, DeletionTime, Liveness, PartitionHead, PartitionKey, ReadError, ReadRange, Row, RowBuilder, RowRef, Table,
    Unfiltered, UnfilteredCursor, push_component,
};

/// Collects the rows of a virtual table.
pub(super) struct RowList {
    table: Arc<Table>,
    timestamp: i64,
    /// Key, serialized clustering, row.
    rows: Vec<(PartitionKey, Vec<u8>, Vec<u8>)>,
}

impl RowList {
    /// An empty list. Added rows have the write time `timestamp` (microseconds).
    pub fn new(table: &Arc<Table>, timestamp: i64) -> Self {
        RowList { table: table.clone(), timestamp, rows: Vec::new() }
    }

    /// Adds a row: the partition key, the clustering columns in order, and other columns by name.
    pub fn add(&mut self, key: &[u8], clustering: &[&[u8]], values: &[(&str, Option<Vec<u8>>)]) {
        let set = self.table.regulars();
        let mut by_index: Vec<(usize, &[u8])> =
            values.iter().filter_map(|(name, value)| Some((set.index_of(name)?, value.as_deref()?))).collect();
        by_index.sort_by_key(|(index, _)| *index);
        let mut builder = RowBuilder::default();
        builder.start(set, false);
        builder.liveness(Liveness::at(self.timestamp));
        for (index, value) in by_index {
            builder.cell(index, &Cell::live(self.timestamp, value));
        }
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        let mut serialized = Vec::new();
        clustering.iter().for_each(|value| push_component(Some(value), &mut serialized));
        self.rows.push((PartitionKey::new(key), serialized, blob));
    }

    /// A cursor over the rows within `range`.
    pub fn into_cursor(mut self, range: &ReadRange) -> RowListCursor {
        let table = self.table;
        let comparator = table.comparator();
        self.rows.retain(|(key, clustering, _)| {
            range.keys.contains(key) && (range.slices.is_all() || range.slices.contains(clustering, comparator))
        });
        self.rows.sort_by(|(left_key, left, _), (right_key, right, _)| {
            let order = comparator.compare(left, right);
            left_key.cmp(right_key).then(if range.reversed { order.reverse() } else { order })
        });
        RowListCursor { rows: self.rows, table, next: 0, partition: None }
    }
}

/// A cursor over listed rows.
pub(super) struct RowListCursor {
    table: Arc<Table>,
    rows: Vec<(PartitionKey, Vec<u8>, Vec<u8>)>,
    /// The position after the current row.
    next: usize,
    partition: Option<PartitionKey>,
}

impl UnfilteredCursor for RowListCursor {
    fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        while self.rows.get(self.next).is_some_and(|(key, ..)| self.partition.as_ref() == Some(key)) {
            self.next += 1;
        }
        self.partition = self.rows.get(self.next).map(|(key, ..)| key.clone());
        Ok(self.partition.is_some())
    }

    fn partition(&self) -> PartitionHead<'_> {
        let key = self.partition.as_ref().expect("partition() follows advance_partition() == true");
        PartitionHead { key, deletion: DeletionTime::LIVE, static_row: None }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        let is_inside = self.rows.get(self.next).is_some_and(|(key, ..)| self.partition.as_ref() == Some(key));
        self.next += usize::from(is_inside);
        Ok(is_inside)
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        let (_, clustering, blob) = &self.rows[self.next - 1];
        Unfiltered::Row(RowRef { clustering, row: Row::new(blob) })
    }
}
