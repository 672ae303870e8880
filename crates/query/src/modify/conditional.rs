//! Conditional modifications, alone or in a batch: what they read, whether they apply, what they write, and the answer.
//!
//! All of this happens under the lock of the partition. All conditions see the state before the modification.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::{
    Cell, Column, ColumnData, ColumnKind, DeletionTime, Liveness, Mutation, PartitionKey, PartitionUpdate,
    PartitionUpdateBuilder, Row, RowBuilder, Slice, Slices, Table,
};
use protocol::{BatchKind, ResultColumns};
use types::collection;

use super::applied::{answer, applied_cell, applied_spec};
use super::check_alive;
use super::conditions::{BoundCondition, Condition};
use super::plan::Modification;
use super::reading::{ReadPart, newest_of, read_rows};
use super::target::Rows;
use super::terms;
use super::updates::Updates;
use crate::execution::Execution;
use crate::list_paths::AppendedPaths;
use crate::names::column_spec;
use crate::restrictions::StatementType;
use crate::row_view::{RowView, Source, split_key};
use crate::selection::RowParts;
use crate::{QueryError, ResponseBody, consistency};

/// A modification and its execution, which has its values.
pub(super) type Part<'p> = (&'p Modification, &'p Execution<'p>);

/// How far in the future a stored timestamp may be for a conditional write to be later than it, microseconds.
///
/// This covers clients whose clocks are ahead, and a node whose clock was set back. What was written with a timestamp
/// beyond it hides the conditional write, as it hides all other writes.
const AHEAD_MAX_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// The condition on one row.
enum RowCondition<'c> {
    Exists,
    NotExists,
    Columns(Vec<BoundCondition<'c>>),
}

/// A clustering, in the order of its table.
struct OrderedClustering {
    clustering: Vec<u8>,
    table: Arc<Table>,
}

impl Ord for OrderedClustering {
    fn cmp(&self, other: &OrderedClustering) -> Ordering {
        self.table.comparator().compare(&self.clustering, &other.clustering)
    }
}

impl PartialOrd for OrderedClustering {
    fn partial_cmp(&self, other: &OrderedClustering) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderedClustering {
    fn eq(&self, other: &OrderedClustering) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedClustering {}

/// The conditions of one or more modifications of a partition.
struct Conditions<'c> {
    table: Arc<Table>,
    key: PartitionKey,
    /// The conditions on rows; `None` is the static row.
    rows: BTreeMap<Option<OrderedClustering>, RowCondition<'c>>,
    /// The columns of the answer if the conditions do not hold, some of them several times; `None` if these are all.
    columns: Option<Vec<Arc<Column>>>,
    /// Whether regular columns are read, or only which rows there are.
    reads_regulars: bool,
    /// Whether all static columns are read, or only those of conditions.
    reads_all_statics: bool,
    is_batch: bool,
}

/// Serialized values by the index of their column.
type Values = Vec<Option<Vec<u8>>>;

/// The rows and static values that were read of a partition.
#[derive(Default)]
struct ReadPartition {
    /// The live rows, in the order of the table.
    rows: Vec<(Vec<u8>, Values)>,
    /// The static row, if it is live.
    statics: Option<Values>,
    /// The newest timestamp of anything that was read, dead or alive; `i64::MIN` if nothing was.
    newest_micros: i64,
}

/// The partition that these modifications change, after the checks that need no lock.
pub(super) fn partition_of(parts: &[Part<'_>], is_batch: bool) -> Result<PartitionKey, QueryError> {
    Ok(Conditions::of(parts, is_batch)?.key)
}

/// The key of the partition that a modification changes.
fn key_of((modification, execution): &Part<'_>, is_batch: bool) -> Result<PartitionKey, QueryError> {
    let mut keys = modification.target.keys(execution)?;
    match keys.pop() {
        Some(key) if keys.is_empty() && !modification.target.has_partition_in() => Ok(key),
        _ if is_batch => Err(QueryError::invalid(
            "Batch with conditions cannot span multiple partitions (you cannot use IN on the partition key)",
        )),
        _ => Err(QueryError::invalid(refuse_in(modification, "partition key"))),
    }
}

fn refuse_in(modification: &Modification, part: &str) -> String {
    let what = match modification.statement {
        StatementType::Delete => "deletions",
        _ => "updates",
    };
    format!("IN on the {part} is not supported with conditional {what}")
}

/// Reads, decides, and makes the mutation and the answer.
pub(super) fn derive(
    parts: &[Part<'_>],
    batch: Option<BatchKind>,
    execution: &Execution<'_>,
) -> Result<(Option<Mutation>, ResponseBody), QueryError> {
    let conditions = Conditions::of(parts, batch.is_some())?;
    check_levels(&conditions.table, execution)?;
    let current = conditions.read(execution)?;
    if !conditions.hold(&current, execution)? {
        return Ok((None, conditions.refusal(&current, execution)));
    }
    let table = &conditions.table;
    let newest_micros = conditions.newest_of_targets(parts, current.newest_micros, execution)?;
    let mutation = write(parts, table, newest_micros, execution)?;
    let columns = ResultColumns::new(vec![applied_spec(table)]);
    Ok((mutation, answer(columns, 1, applied_cell(true))))
}

fn check_levels(table: &Table, execution: &Execution<'_>) -> Result<(), QueryError> {
    let (schema, options) = (execution.schema, execution.options);
    let data_center = &execution.processor.options().node.data_center;
    consistency::validate_commit(options.consistency, schema, &table.keyspace)?;
    consistency::check_read(options.serial_consistency, schema, &table.keyspace, data_center)
}

/// The mutation of modifications whose conditions hold.
fn write(
    parts: &[Part<'_>],
    table: &Table,
    newest_micros: i64,
    execution: &Execution<'_>,
) -> Result<Option<Mutation>, QueryError> {
    let now = execution.processor.engine().next_timestamp_from(execution.now_micros);
    let is_near = newest_micros < now.saturating_add(AHEAD_MAX_MICROS);
    let timestamp = if is_near { now.max(newest_micros.saturating_add(1)) } else { now };
    let paths = AppendedPaths::new(timestamp);
    let mut updates = Updates::default();
    for (modification, execution) in parts {
        modification.add_to(&mut updates, timestamp, &execution.with_list_paths(&paths))?;
    }
    check_alive(&updates, execution)?;
    let Some(mutation) = updates.into_mutation() else { return Ok(None) };
    terms::check(&mutation, execution)?;
    let updates = mutation.into_updates().iter().map(|update| with_timestamp(update, table, timestamp)).collect();
    Ok(Some(Mutation::new(updates)))
}

/// The same update with all cells at this timestamp. Deletions are a microsecond older, so that an insertion in the
/// same batch survives them.
fn with_timestamp(update: &PartitionUpdate, table: &Table, timestamp: i64) -> PartitionUpdate {
    let mut changed = PartitionUpdateBuilder::new(update.table().clone(), update.key().clone());
    let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
    let deletion = |deletion: DeletionTime| match deletion.is_live() {
        true => deletion,
        false => DeletionTime::new(timestamp - 1, deletion.local_deletion_time),
    };
    changed.delete_partition(deletion(update.partition_deletion()));
    if let Some(row) = update.static_row() {
        rewrite(row, table, timestamp, &deletion, &mut builder, &mut blob);
        changed.static_row(&blob);
    }
    for row in update.rows() {
        rewrite(row.row, table, timestamp, &deletion, &mut builder, &mut blob);
        changed.row(row.clustering, &blob);
    }
    for range in update.range_deletions() {
        changed.delete_range(range.slice, deletion(range.deletion));
    }
    changed.build()
}

fn rewrite(
    row: Row<'_>,
    table: &Table,
    timestamp: i64,
    deletion: &impl Fn(DeletionTime) -> DeletionTime,
    builder: &mut RowBuilder,
    blob: &mut Vec<u8>,
) {
    fn at<'c>(timestamp: i64, cell: Cell<'c>) -> Cell<'c> {
        Cell { timestamp: timestamp - i64::from(cell.is_tombstone()), ..cell }
    }
    builder.start(table.columns(row.is_static()), row.is_static());
    let liveness = row.liveness();
    if !liveness.is_empty() {
        builder.liveness(Liveness { timestamp, ..liveness });
    }
    if row.has_deletion() {
        builder.deletion(deletion(row.deletion()));
    }
    for (index, data) in row.columns(table) {
        match data {
            ColumnData::Simple(simple) => builder.cell(index, &at(timestamp, simple)),
            ColumnData::Complex(cells) => {
                builder.complex(index, deletion(cells.deletion));
                cells.for_each(|element| builder.complex_cell(&at(timestamp, element)));
            }
        }
    }
    blob.clear();
    builder.finish(blob);
}

impl<'c> Conditions<'c> {
    fn of(parts: &'c [Part<'c>], is_batch: bool) -> Result<Conditions<'c>, QueryError> {
        let Some(first) = parts.first() else { return Err(QueryError::server("a batch without modifications")) };
        let mut conditions = Conditions {
            table: first.0.table.clone(),
            key: key_of(first, is_batch)?,
            rows: BTreeMap::new(),
            columns: Some(Vec::new()),
            reads_regulars: false,
            reads_all_statics: false,
            is_batch,
        };
        for (place, part) in parts.iter().enumerate() {
            if place > 0 && key_of(part, is_batch)? != conditions.key {
                return Err(QueryError::invalid("Batch with conditions cannot span multiple partitions"));
            }
            conditions.add(part.0, part.1)?;
        }
        Ok(conditions)
    }

    fn add(&mut self, modification: &'c Modification, execution: &Execution<'_>) -> Result<(), QueryError> {
        let Modification { table, target, condition, .. } = modification;
        if target.has_clustering_in() {
            return Err(QueryError::invalid(refuse_in(modification, "clustering key columns")));
        }
        let rows = target.rows(execution)?;
        if !condition.is_some() {
            return Ok(());
        }
        // As in Cassandra, the answer depends on what the statements with conditions write.
        self.reads_regulars |= table.clustering().is_empty() || target.has_clustering();
        self.reads_all_statics |= modification.names_statics;
        let clustering = match rows {
            Rows::Partition => table.clustering().is_empty().then(Vec::new),
            Rows::Clusterings(clusterings) => clusterings.into_iter().next(),
            Rows::Slices(_) => return Err(QueryError::server("a condition on a range of rows")),
        };
        match condition {
            Condition::None => Ok(()),
            Condition::Exists => self.add_existence(clustering, RowCondition::Exists),
            Condition::NotExists => self.add_existence(clustering, RowCondition::NotExists),
            Condition::Columns(_) => {
                for kind in [ColumnKind::Regular, ColumnKind::Static] {
                    let mut bound = Vec::new();
                    for column in condition.columns().iter().filter(|condition| condition.column.kind == kind) {
                        bound.push(column.bind(execution)?);
                        self.columns.iter_mut().for_each(|columns| columns.push(column.column.clone()));
                    }
                    if !bound.is_empty() {
                        let place = if kind == ColumnKind::Static { None } else { clustering.clone() };
                        self.add_columns(place, bound)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// A row; the static row if there is no clustering.
    fn place(&self, clustering: Option<Vec<u8>>) -> Option<OrderedClustering> {
        clustering.map(|clustering| OrderedClustering { clustering, table: self.table.clone() })
    }

    fn add_existence(&mut self, clustering: Option<Vec<u8>>, condition: RowCondition<'c>) -> Result<(), QueryError> {
        self.columns = None;
        let place = self.place(clustering);
        let known = match self.rows.entry(place) {
            Entry::Occupied(known) => known,
            Entry::Vacant(place) => {
                place.insert(condition);
                return Ok(());
            }
        };
        let negation = if matches!(condition, RowCondition::NotExists) { "NOT " } else { "" };
        match (known.get(), &condition) {
            (RowCondition::Exists, RowCondition::Exists) | (RowCondition::NotExists, RowCondition::NotExists) => Ok(()),
            (RowCondition::Columns(_), _) => {
                let message = format!("Cannot mix IF conditions and IF {negation}EXISTS for the same row");
                Err(QueryError::invalid(message))
            }
            _ => Err(QueryError::invalid("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row")),
        }
    }

    fn add_columns(
        &mut self,
        clustering: Option<Vec<u8>>,
        mut bound: Vec<BoundCondition<'c>>,
    ) -> Result<(), QueryError> {
        let place = self.place(clustering);
        let known = self.rows.entry(place).or_insert_with(|| RowCondition::Columns(Vec::new()));
        let RowCondition::Columns(known) = known else {
            return Err(QueryError::invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row"));
        };
        known.append(&mut bound);
        Ok(())
    }

    /// The clusterings with conditions, in ascending order.
    fn clusterings(&self) -> impl Iterator<Item = (&[u8], &RowCondition<'c>)> {
        self.rows.iter().filter_map(|(place, condition)| Some((&*place.as_ref()?.clustering, condition)))
    }

    /// The static columns that conditions name.
    fn named_statics(&self) -> HashSet<&str> {
        let Some(RowCondition::Columns(columns)) = self.rows.get(&None) else { return HashSet::new() };
        columns.iter().map(|bound| &*bound.condition.column.name).collect()
    }

    /// Reads the rows of the conditions. If there are conditions on the static row alone, the first live row is read:
    /// a partition without static content is not one that does not exist.
    fn read(&self, execution: &Execution<'_>) -> Result<ReadPartition, QueryError> {
        let slices: Vec<Slice> = self.clusterings().map(|(clustering, _)| Slice::prefix(clustering)).collect();
        let (reads_all, named_statics) = (slices.is_empty(), self.named_statics());
        let slices = if slices.is_empty() { Slices::all() } else { Slices::new(slices, self.table.comparator()) };
        let mut current = ReadPartition { newest_micros: i64::MIN, ..ReadPartition::default() };
        let (table, now) = (&*self.table, execution.now_seconds);
        read_rows(&self.table, &self.key, slices, execution, &mut |found| {
            current.newest_micros = current.newest_micros.max(newest_of(&found, table));
            match found {
                ReadPart::Deletion(_) => {}
                ReadPart::Statics(row) => {
                    let mut values = values_of(row, table, now);
                    for (value, column) in values.iter_mut().zip(&table.statics().columns) {
                        *value =
                            value.take().filter(|_| self.reads_all_statics || named_statics.contains(&*column.name));
                    }
                    current.statics = values.iter().any(Option::is_some).then_some(values);
                }
                ReadPart::Row(clustering, row) => {
                    let is_live = match self.reads_regulars {
                        true => row.is_live(table, now),
                        false => row.liveness().is_live(now),
                    };
                    if is_live {
                        let values = if self.reads_regulars { values_of(row, table, now) } else { Values::new() };
                        current.rows.push((clustering.to_vec(), values));
                        return !reads_all;
                    }
                }
            }
            true
        })?;
        Ok(current)
    }

    fn hold(&self, current: &ReadPartition, execution: &Execution<'_>) -> Result<bool, QueryError> {
        if let Some(condition) = self.rows.get(&None)
            && !condition.holds(current.statics.as_ref(), &self.table, execution)?
        {
            return Ok(false);
        }
        // Both are in the order of the table.
        let (mut found, comparator) = (current.rows.iter().peekable(), self.table.comparator());
        for (clustering, condition) in self.clusterings() {
            while found.next_if(|(known, _)| comparator.compare(known, clustering).is_lt()).is_some() {}
            let row = found.next_if(|(known, _)| comparator.compare(known, clustering).is_eq());
            if !condition.holds(row.map(|(_, values)| values), &self.table, execution)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The newest timestamp, also of the rows that are written and were not read for a condition.
    fn newest_of_targets(
        &self,
        parts: &[Part<'_>],
        mut newest_micros: i64,
        execution: &Execution<'_>,
    ) -> Result<i64, QueryError> {
        let mut others = Vec::new();
        for (modification, execution) in parts {
            if let Rows::Clusterings(clusterings) = modification.target.rows(execution)? {
                let places = clusterings.into_iter().map(|clustering| self.place(Some(clustering)));
                let unknown = places.filter(|place| !self.rows.contains_key(place)).flatten();
                others.extend(unknown.map(|place| Slice::prefix(&place.clustering)));
            }
        }
        if !others.is_empty() {
            let slices = Slices::new(others, self.table.comparator());
            read_rows(&self.table, &self.key, slices, execution, &mut |found| {
                newest_micros = newest_micros.max(newest_of(&found, &self.table));
                true
            })?;
        }
        Ok(newest_micros)
    }

    /// The answer if the conditions do not hold: what was read.
    fn refusal(&self, current: &ReadPartition, execution: &Execution<'_>) -> ResponseBody {
        let table = &self.table;
        let none = Values::new();
        let statics = current.statics.as_ref().unwrap_or(&none);
        let mut rows: Vec<(Option<&[u8]>, &Values)> =
            current.rows.iter().map(|(clustering, values)| (Some(clustering.as_slice()), values)).collect();
        if rows.is_empty() && current.statics.is_some() {
            rows.push((None, &none));
        }
        if rows.is_empty() {
            return answer(ResultColumns::new(vec![applied_spec(table)]), 1, applied_cell(false));
        }
        let columns = match &self.columns {
            None => table.named_columns(),
            Some(columns) => {
                let mut all = Vec::new();
                if self.is_batch {
                    all.extend(table.partition_key().iter().chain(table.clustering()).cloned());
                }
                all.extend(columns.iter().cloned());
                let mut known = HashSet::new();
                all.retain(|column| known.insert(column.id));
                all
            }
        };
        let mut key = Vec::new();
        split_key(table, self.key.bytes(), &mut key);
        let mut cells = Vec::new();
        for (clustering, regulars) in &rows {
            cells.extend_from_slice(&applied_cell(false));
            let clustering: Vec<Option<&[u8]>> =
                clustering.map(|all| model::Clusterings(all).collect()).unwrap_or_default();
            let view = RowView {
                key: &key,
                clustering: &clustering,
                statics: &[],
                regulars: &[],
                now_seconds: execution.now_seconds,
            };
            for column in &columns {
                let value = |values: &Values, index: usize| values.get(index).cloned().flatten();
                match Source::of(table, column) {
                    Source::Static(index) => collection::write_part(value(statics, index).as_deref(), &mut cells),
                    Source::Regular(index) => collection::write_part(value(regulars, index).as_deref(), &mut cells),
                    of_key => collection::write_part(view.value(of_key, &column.ty).as_deref(), &mut cells),
                }
            }
        }
        let specs = columns.iter().map(|column| column_spec(table, column));
        let specs = std::iter::once(applied_spec(table)).chain(specs).collect();
        answer(ResultColumns::new(specs), rows.len(), cells)
    }
}

impl RowCondition<'_> {
    fn holds(&self, row: Option<&Values>, table: &Table, execution: &Execution<'_>) -> Result<bool, QueryError> {
        let columns = match self {
            RowCondition::Exists => return Ok(row.is_some()),
            RowCondition::NotExists => return Ok(row.is_none()),
            RowCondition::Columns(columns) => columns,
        };
        let parts = RowParts::default();
        for bound in columns {
            let column = &bound.condition.column;
            let index = table.columns(column.kind == ColumnKind::Static).index_of(&column.name);
            let value = row.zip(index).and_then(|(values, index)| values.get(index)?.as_deref());
            if !bound.holds(value, &parts, Source::of(table, column), execution)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The values that clients see of a row.
fn values_of(row: Row<'_>, table: &Table, now_seconds: u32) -> Values {
    let is_static = row.is_static();
    let columns = &table.columns(is_static).columns;
    let mut values = vec![None; columns.len()];
    for (index, data) in row.columns(table) {
        if let (Some(slot), Some(column)) = (values.get_mut(index), columns.get(index)) {
            let slots = [Some(data)];
            let (statics, regulars) = if is_static { (&slots[..], &[][..]) } else { (&[][..], &slots[..]) };
            let view = RowView { key: &[], clustering: &[], statics, regulars, now_seconds };
            let source = if is_static { Source::Static(0) } else { Source::Regular(0) };
            *slot = view.value(source, &column.ty).map(|value| value.into_owned());
        }
    }
    values
}
