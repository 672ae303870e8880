//! The content of lists before a statement changes them by index or by value.

use std::sync::Arc;

use model::{ColumnData, KeyRange, PartitionKey, ReadRange, Row, Slice, Slices, Table, Unfiltered, UnfilteredCursor};

use super::change::{Change, ColumnChanges};
use crate::budget::steps_of_bytes;
use crate::execution::Execution;
use crate::{Consistency, QueryError, consistency};

/// A live cell of a list.
#[derive(Clone, Debug)]
pub(super) struct ListCell {
    /// The timeuuid that determines its place.
    pub place: [u8; 16],
    pub value: Vec<u8>,
}

/// The lists of one row, by ascending index of the column.
#[derive(Debug, Default)]
pub(super) struct ExistingLists(Vec<(usize, Vec<ListCell>)>);

impl ExistingLists {
    /// The live cells of the column, in list order.
    pub fn list(&self, index: usize) -> &[ListCell] {
        let place = self.0.binary_search_by_key(&index, |(known, _)| *known);
        place.map(|place| self.0[place].1.as_slice()).unwrap_or_default()
    }

    /// Refuses a consistency level that is not allowed for a statement with such changes, even if there is no row to
    /// read.
    pub fn check_level(level: Consistency) -> Result<(), QueryError> {
        match level {
            Consistency::Any => {
                Err(QueryError::invalid("Write operation require a read but consistency ANY is not supported on reads"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the lists on which the changes depend: those of the row with this clustering, or of the static row
    /// (`None`).
    pub fn read(
        table: &Arc<Table>,
        key: &PartitionKey,
        clustering: Option<&[u8]>,
        changes: &[ColumnChanges],
        execution: &Execution<'_>,
    ) -> Result<ExistingLists, QueryError> {
        let asks = |column: &&ColumnChanges| column.changes.iter().any(Change::requires_read);
        let indexes: Vec<usize> = changes.iter().filter(asks).map(|column| column.index).collect();
        if indexes.is_empty() {
            return Ok(ExistingLists::default());
        }
        let data_center = &execution.processor.options().node.data_center;
        consistency::check_read(execution.options.consistency, execution.schema, &table.keyspace, data_center)?;
        let slices = match clustering {
            Some(clustering) => Slices::new(vec![Slice::prefix(clustering)], table.comparator()),
            None => Slices::none(),
        };
        execution.work(1)?;
        let range = ReadRange { keys: KeyRange::Single(key.clone()), slices, reversed: false };
        let mut cursor = execution.processor.read(table, &range, execution.now_seconds, execution.turn)?;
        if !cursor.advance_partition()? {
            return Ok(ExistingLists::default());
        }
        if clustering.is_none() {
            let row = cursor.partition().static_row;
            return Ok(row.map_or_else(ExistingLists::default, |row| Self::of_row(row, table, &indexes, execution)));
        }
        while cursor.advance()? {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                let row_bytes = row.row.as_bytes().len();
                execution.work(steps_of_bytes(row_bytes))?;
                execution.charge(row_bytes)?;
                return Ok(Self::of_row(row.row, table, &indexes, execution));
            }
        }
        Ok(ExistingLists::default())
    }

    fn of_row(row: Row<'_>, table: &Table, indexes: &[usize], execution: &Execution<'_>) -> ExistingLists {
        let mut lists = Vec::with_capacity(indexes.len());
        let is_asked = |(index, _): &(usize, ColumnData<'_>)| indexes.binary_search(index).is_ok();
        for (index, data) in row.columns(table).filter(is_asked) {
            let ColumnData::Complex(cells) = data else { continue };
            let live = cells.filter(|cell| cell.is_live(execution.now_seconds));
            let list = live
                .filter_map(|cell| Some(ListCell { place: cell.path.try_into().ok()?, value: cell.value.to_vec() }));
            lists.push((index, list.collect()));
        }
        ExistingLists(lists)
    }
}
