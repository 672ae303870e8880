//! Counters: the increments of statements, and the totals that are written in their place.
//!
//! A statement first becomes a mutation whose cells hold increments. Then, under the locks of its partitions, the
//! node's totals are read, and each increment is replaced by the total after it. So the log and the tables hold only
//! totals, and replaying one twice does no harm.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::CachedCounters;
use model::{
    Cell, ColumnData, ColumnId, Mutation, NodeCount, PartitionUpdate, PartitionUpdateBuilder, Row, RowBuilder, Slice,
    Slices, Table, counter_total,
};

use super::change::Change;
use super::reading::{ReadPart, read_rows};
use crate::QueryError;
use crate::execution::Execution;
use crate::terms::Bound;

/// The increment of a counter, negative for a subtraction; `None` if the value is unset.
pub(super) fn increment(change: &Change, execution: &Execution<'_>) -> Result<Option<i64>, QueryError> {
    let (term, is_negative) = match change {
        Change::Increment(term) => (term, false),
        Change::Decrement(term) => (term, true),
        _ => return Err(QueryError::server("a counter among other changes")),
    };
    let value = match term.bind(execution)? {
        Bound::Null => return Err(QueryError::invalid("Invalid null value for counter increment")),
        Bound::Unset => return Ok(None),
        Bound::Bytes(value) => value.as_ref().try_into().map(i64::from_be_bytes),
    };
    let value = value.map_err(|_| QueryError::invalid("Invalid empty value for counter increment"))?;
    if !is_negative {
        return Ok(Some(value));
    }
    let negated = value.checked_neg().ok_or_else(|| {
        QueryError::invalid(format!(
            "The negation of {value} overflows supported counter precision (signed 8 bytes integer)"
        ))
    });
    negated.map(Some)
}

/// The mutation with totals in the place of increments. The locks of its partitions must be held until it is visible.
pub(crate) fn counted(mutation: Option<Mutation>, execution: &Execution<'_>) -> Result<Option<Mutation>, QueryError> {
    let Some(mutation) = mutation else { return Ok(None) };
    let updates = mutation.into_updates().into_iter().map(|update| {
        let table = update.table().clone();
        match Totals::read(&update, &table, execution)? {
            Some(totals) => Ok(totals.replace_in(&update)),
            None => Ok(update),
        }
    });
    Ok(Some(Mutation::new(updates.collect::<Result<_, QueryError>>()?)))
}

/// The node's total of each counter of a row, by the index of the column, and the timestamp of its cell, microseconds.
type RowTotals = BTreeMap<usize, (NodeCount, i64)>;

/// The node's totals of a partition's counters that have increments.
struct Totals {
    statics: RowTotals,
    /// By clustering, in the order of the increments.
    rows: Vec<(Vec<u8>, RowTotals)>,
    node: [u8; 16],
    now_micros: i64,
    now_seconds: u32,
}

impl Totals {
    /// Reads the totals that the increments of this update need; `None` if it has none.
    fn read(
        update: &PartitionUpdate,
        table: &Arc<Table>,
        execution: &Execution<'_>,
    ) -> Result<Option<Totals>, QueryError> {
        let counts = |row: Row<'_>| row.columns(table).any(|(_, data)| is_increment(&data));
        let rows: Vec<_> = update.rows().filter(|row| counts(row.row)).map(|row| row.clustering.to_vec()).collect();
        if rows.is_empty() && !update.static_row().is_some_and(counts) {
            return Ok(None);
        }
        let engine = execution.processor.engine();
        // The cache knows nothing of writes in flight.
        let mut cached = match execution.turn().unsettled {
            None => engine.cached_counters(table, update.key()),
            Some(_) => None,
        };
        let mut totals = Totals {
            statics: RowTotals::new(),
            rows: Vec::with_capacity(rows.len()),
            node: *engine.host_id().as_bytes(),
            now_micros: execution.now_micros,
            now_seconds: execution.now_seconds,
        };
        if cached.as_mut().is_some_and(|cached| totals.find_all(update, cached)) {
            return Ok(Some(totals));
        }
        let slices = match rows.is_empty() {
            true => Slices::none(),
            false => Slices::new(rows.iter().map(|row| Slice::prefix(row)).collect(), table.comparator()),
        };
        read_rows(table, update.key(), slices, execution, &mut |found| {
            match found {
                ReadPart::Deletion(_) => {}
                ReadPart::Statics(row) => totals.statics = totals.of_row(row, table),
                ReadPart::Row(clustering, row) => totals.rows.push((clustering.to_vec(), totals.of_row(row, table))),
            }
            true
        })?;
        if let Some(cached) = &mut cached {
            totals.keep_in(cached, update);
        }
        Ok(Some(totals))
    }

    /// Finds the totals of all increments in the counter cache, or returns false.
    fn find_all(&mut self, update: &PartitionUpdate, cached: &mut CachedCounters<'_>) -> bool {
        let is_complete = for_each_increment(update, &mut |clustering, index, column| {
            let Some(count) = cached.get(clustering.unwrap_or_default(), column) else { return false };
            // It is in the cache already, with the timestamp that counts there.
            let found = (count, i64::MIN);
            match clustering {
                None => drop(self.statics.insert(index, found)),
                Some(clustering) if self.rows.last().is_some_and(|(last, _)| last == clustering) => {
                    self.rows.last_mut().map(|(_, totals)| totals.insert(index, found));
                }
                Some(clustering) => self.rows.push((clustering.to_vec(), RowTotals::from([(index, found)]))),
            }
            true
        });
        if !is_complete {
            self.statics.clear();
            self.rows.clear();
        }
        is_complete
    }

    /// Puts the totals of the counters that have increments into the counter cache.
    fn keep_in(&self, cached: &mut CachedCounters<'_>, update: &PartitionUpdate) {
        for_each_increment(update, &mut |clustering, index, column| {
            let totals = clustering.map_or(Some(&self.statics), |clustering| self.row(clustering, update.table()));
            if let Some((count, timestamp)) = totals.and_then(|totals| totals.get(&index)) {
                cached.put(clustering.unwrap_or_default(), column, *count, *timestamp);
            }
            true
        });
    }

    fn row(&self, clustering: &[u8], table: &Table) -> Option<&RowTotals> {
        let comparator = table.comparator();
        let place = self.rows.binary_search_by(|(known, _)| comparator.compare(known, clustering));
        place.ok().map(|place| &self.rows[place].1)
    }

    /// Deleted counters start again at 0.
    fn of_row(&self, row: Row<'_>, table: &Table) -> RowTotals {
        let total = |(index, data)| match data {
            ColumnData::Simple(cell) if cell.is_live(self.now_seconds) => {
                Some((index, (NodeCount::of(cell.value, self.node)?, cell.timestamp)))
            }
            _ => None,
        };
        row.columns(table).filter_map(total).collect()
    }

    fn replace_in(&self, update: &PartitionUpdate) -> PartitionUpdate {
        let table = update.table();
        let none = RowTotals::new();
        let mut changed = PartitionUpdateBuilder::new(table.clone(), update.key().clone());
        let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
        changed.delete_partition(update.partition_deletion());
        if let Some(row) = update.static_row() {
            self.replace_in_row(row, &self.statics, table, &mut builder, &mut blob);
            changed.static_row(&blob);
        }
        for row in update.rows() {
            let before = self.row(row.clustering, table).unwrap_or(&none);
            self.replace_in_row(row.row, before, table, &mut builder, &mut blob);
            changed.row(row.clustering, &blob);
        }
        for range in update.range_deletions() {
            changed.delete_range(range.slice, range.deletion);
        }
        changed.build()
    }

    fn replace_in_row(
        &self,
        row: Row<'_>,
        before: &RowTotals,
        table: &Table,
        builder: &mut RowBuilder,
        blob: &mut Vec<u8>,
    ) {
        builder.start(table.columns(row.is_static()), row.is_static());
        if row.has_deletion() {
            builder.deletion(row.deletion());
        }
        for (index, data) in row.columns(table) {
            let ColumnData::Simple(cell) = data else { continue };
            if !is_increment(&data) {
                builder.cell(index, &cell);
                continue;
            }
            let before = before.get(&index).map(|(count, _)| *count).unwrap_or_default();
            let total = before.plus(counter_total(cell.value), self.now_micros).to_context(self.node);
            builder.cell(index, &Cell { value: &total, ..cell });
        }
        blob.clear();
        builder.finish(blob);
    }
}

/// Takes an increment: the clustering of its row, or `None` of a static counter, and the index and the id of the
/// column. Returns false to end.
type TakeIncrement<'t> = dyn FnMut(Option<&[u8]>, usize, ColumnId) -> bool + 't;

/// Passes the increments of an update to `take` until that returns false. Returns whether it took all.
fn for_each_increment(update: &PartitionUpdate, take: &mut TakeIncrement<'_>) -> bool {
    let table = update.table();
    let mut of_row = |clustering: Option<&[u8]>, row: Row<'_>| {
        let columns = table.columns(row.is_static());
        let mut increments = row.columns(table).filter(|(_, data)| is_increment(data));
        increments.all(|(index, _)| take(clustering, index, columns.columns[index].id))
    };
    update.static_row().is_none_or(|row| of_row(None, row))
        && update.rows().all(|row| of_row(Some(row.clustering), row.row))
}

/// Whether this cell of a new mutation is an increment. The others are deletions.
fn is_increment(data: &ColumnData<'_>) -> bool {
    matches!(data, ColumnData::Simple(cell) if !cell.is_tombstone())
}
