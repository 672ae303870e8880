//! A prepared modification, and the updates that it makes.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::sync::Arc;

use model::{PartitionKey, PartitionUpdateBuilder, RowBuilder, Slice, Table, TableForm, counter_increment};

use super::attributes::Attributes;
use super::change::{Change, Changes, ColumnChanges};
use super::conditions::Condition;
use super::counting;
use super::elements;
use super::existing::ExistingLists;
use super::guarded;
use super::target::{ModificationTarget, Rows};
use super::times::Times;
use super::updates::Updates;
use crate::execution::Execution;
use crate::restrictions::{StatementType, check_combinations};
use crate::terms::{Bound, Term};
use crate::{Consistency, QueryError, consistency};

/// An INSERT, UPDATE or DELETE whose values are terms.
#[derive(Debug)]
pub(super) struct Modification {
    pub table: Arc<Table>,
    pub statement: StatementType,
    pub attributes: Attributes,
    pub target: ModificationTarget,
    pub changes: Changes,
    /// See [`Changes::leading_runs`].
    pub leading_runs: Vec<usize>,
    pub condition: Condition,
    /// Whether the table is virtual.
    pub is_virtual: bool,
    /// Whether clients may not write to the table.
    pub is_read_only: bool,
    /// Whether the written row exists even if it has no values.
    pub writes_liveness: bool,
    /// Whether the one value is missing that a row of a table with COMPACT STORAGE must have.
    pub lacks_value: bool,
    /// Whether the table has counters.
    pub is_counter: bool,
    /// Whether lists must be read before they are written.
    pub reads: bool,
    /// Whether the statement is about static columns, whether it writes one or not.
    pub names_statics: bool,
}

/// The memory that a thread may keep for the next statement, bytes. Rows are seldom larger.
const BUILDER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Keeps its memory between rows and statements.
    static BUILDER: RefCell<RowBuilder> = RefCell::default();
}

/// Refuses a consistency level that is not allowed for a plain write to a table without counters.
pub(super) fn check_level(consistency: Consistency) -> Result<(), QueryError> {
    if consistency.is_serial() {
        return Err(QueryError::invalid("You must use conditional updates for serializable writes"));
    }
    consistency::refuse_node_local(consistency)
}

impl Modification {
    /// Refuses statements that are invalid with any values, before values are checked.
    #[inline]
    pub fn validate(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        // An ordinary write passes with this one test.
        let is_special = self.is_read_only | self.reads | self.is_counter | self.is_virtual | self.condition.is_some();
        match is_special {
            true => self.validate_special(execution),
            false => execution.processor.options().disk_usage.check(execution),
        }
    }

    fn validate_special(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        if self.is_read_only {
            let keyspace = &self.table.keyspace;
            return Err(QueryError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
        }
        if self.reads {
            execution.processor.options().guardrails.flags.check_list_read(execution)?;
        }
        execution.processor.options().disk_usage.check(execution)?;
        self.refuse_with_any_values()?;
        if self.is_virtual {
            return Err(self.refuse_virtual());
        }
        if self.condition.is_some() && !execution.options.serial_consistency.is_serial() {
            let message = "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL";
            return Err(QueryError::invalid(message));
        }
        Ok(())
    }

    /// The checks that PREPARE makes too, after those of all parts of the statement.
    pub fn refuse_with_any_values(&self) -> Result<(), QueryError> {
        let refusals = [
            (self.condition.is_some() && self.attributes.has_timestamp(), "timestamp for conditional updates"),
            (self.is_counter && self.attributes.has_timestamp(), "timestamp for counter updates"),
            (self.is_counter && self.attributes.has_time_to_live(), "TTL for counter updates"),
        ];
        if let Some((_, what)) = refusals.iter().find(|(refused, _)| *refused) {
            return Err(QueryError::invalid(format!("Cannot provide custom {what}")));
        }
        Ok(())
    }

    fn refuse_virtual(&self) -> QueryError {
        let table = &self.table;
        QueryError::invalid(match (&self.attributes, self.condition.is_some()) {
            (attributes, _) if attributes.has_timestamp() => {
                "Custom timestamp is not supported by virtual tables".to_owned()
            }
            (attributes, _) if attributes.has_time_to_live() => {
                "Expiring columns are not supported by virtual tables".to_owned()
            }
            (_, true) => "Conditional updates are not supported by virtual tables".to_owned(),
            _ => format!("Modification is not supported by table {}.{}", table.keyspace, table.name),
        })
    }

    /// Refuses a consistency level that is not allowed for this write.
    pub fn check_level(&self, consistency: Consistency) -> Result<(), QueryError> {
        if !self.is_counter {
            return check_level(consistency);
        }
        match consistency {
            Consistency::Any => Err(QueryError::invalid(format!(
                "Consistency level ANY is not yet supported for counter table {}",
                self.table.name
            ))),
            level if level.is_serial() => {
                Err(QueryError::invalid("Counter operations are inherently non-serializable"))
            }
            _ => Ok(()),
        }
    }

    /// Adds the changes of the statement to `updates`. `timestamp` is used if the statement has none, microseconds.
    pub fn add_to(&self, updates: &mut Updates, timestamp: i64, execution: &Execution<'_>) -> Result<(), QueryError> {
        BUILDER.with_borrow_mut(|builder| {
            let outcome = self.write(updates, timestamp, execution, builder);
            if builder.kept_bytes() > BUILDER_BYTES_MAX {
                *builder = RowBuilder::default();
            }
            outcome
        })
    }

    fn write(
        &self,
        updates: &mut Updates,
        timestamp: i64,
        execution: &Execution<'_>,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        if let ModificationTarget::Row(row) = &self.target {
            let (key, clustering) = (row.key(execution)?, row.clustering(execution)?);
            self.check_read_level(execution)?;
            let times = self.attributes.times(timestamp, &self.table, execution)?;
            let writer = Writer { modification: self, times, execution, written_bytes: Cell::new(0) };
            return writer.write(&key, self.target.has_clustering().then_some(&clustering), updates, builder);
        }
        let (keys, rows) = (self.target.keys(execution)?, self.target.rows(execution)?);
        if rows.is_none() {
            return Ok(());
        }
        check_combinations(keys.len().saturating_mul(rows.count()))?;
        self.check_read_level(execution)?;
        let times = self.attributes.times(timestamp, &self.table, execution)?;
        let writer = Writer { modification: self, times, execution, written_bytes: Cell::new(0) };
        keys.iter().try_for_each(|key| writer.write_rows(key, &rows, updates, builder))
    }

    fn check_read_level(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        if self.reads { ExistingLists::check_level(execution.options.consistency) } else { Ok(()) }
    }
}

/// One execution of a statement.
struct Writer<'e> {
    modification: &'e Modification,
    times: Times,
    execution: &'e Execution<'e>,
    /// The bytes of the rows, which INs multiply.
    written_bytes: Cell<usize>,
}

/// The largest size of all rows of one statement, whose values INs multiply.
const WRITTEN_BYTES_MAX: usize = 128 << 20;

impl Writer<'_> {
    /// Writes one of several rows.
    fn write_one_of_many(
        &self,
        key: &PartitionKey,
        clustering: Option<&Vec<u8>>,
        updates: &mut Updates,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        self.execution.work(1)?;
        self.write(key, clustering, updates, builder)?;
        if self.written_bytes.get() > WRITTEN_BYTES_MAX {
            let message = format!("The rows that the statement writes have more than {WRITTEN_BYTES_MAX} bytes");
            return Err(QueryError::invalid(message));
        }
        Ok(())
    }

    fn write_rows(
        &self,
        key: &PartitionKey,
        rows: &Rows,
        updates: &mut Updates,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        match rows {
            Rows::Partition => self.write_one_of_many(key, None, updates, builder),
            Rows::Clusterings(clusterings) => clusterings
                .iter()
                .try_for_each(|clustering| self.write_one_of_many(key, Some(clustering), updates, builder)),
            Rows::Slices(_) if !self.modification.changes.is_empty() => Err(no_columns_of_ranges()),
            Rows::Slices(slices) => {
                for slice in slices.as_slice() {
                    self.delete_range(key, slice.clone(), updates);
                }
                Ok(())
            }
        }
    }

    fn delete_range(&self, key: &PartitionKey, slice: Slice, updates: &mut Updates) {
        updates.partition(&self.modification.table, key).delete_range(slice, self.times.deletion());
    }

    /// Writes the changes of one row, or those of the partition if there is no clustering.
    fn write(
        &self,
        key: &PartitionKey,
        clustering: Option<&Vec<u8>>,
        updates: &mut Updates,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        let Modification { table, statement, changes, .. } = self.modification;
        // The partition is named even if nothing is written: Cassandra sends an empty update to the replicas.
        let partition = updates.partition(table, key);
        let has_row = clustering.is_some() || table.clustering().is_empty();
        let clustering = clustering.map(Vec::as_slice).unwrap_or_default();
        if table.form() == TableForm::Dense && clustering.len() == EMPTY_VALUE.len() {
            return Err(empty_clustering(table));
        }
        let deletes = *statement == StatementType::Delete;
        if deletes && changes.is_empty() {
            return self.delete(clustering, partition, builder);
        }
        if deletes && !has_row && !changes.regulars.is_empty() {
            return Err(no_columns_of_ranges());
        }
        guarded::check(changes, self.execution)?;
        changes.check_vectors(self.execution)?;
        if has_row {
            builder.start(table.regulars(), false);
            let mut columns = changes.regulars.as_slice();
            if self.modification.writes_liveness {
                builder.liveness(self.times.liveness());
                columns = self.write_values(columns, builder);
            }
            self.write_columns(columns, key, Some(clustering), builder)?;
            if !builder.is_empty() {
                self.add_row(partition, clustering, builder);
            } else if self.modification.lacks_value {
                return Err(no_compact_value(table));
            }
        }
        if !changes.statics.is_empty() {
            builder.start(table.statics(), true);
            self.write_columns(&changes.statics, key, None, builder)?;
            if !builder.is_empty() {
                let mut blob = Vec::with_capacity(builder.size_bytes());
                builder.finish(&mut blob);
                self.count_written(blob.len());
                partition.static_row(&blob);
            }
        }
        Ok(())
    }

    /// Deletes a row, or the partition if there is no clustering.
    fn delete(
        &self,
        clustering: &[u8],
        partition: &mut PartitionUpdateBuilder,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        if clustering.is_empty() {
            if !self.times.deletion().has_whole_form() {
                return Err(negative_deletion(self.times.timestamp));
            }
            partition.delete_partition(self.times.deletion());
            return Ok(());
        }
        let table = &self.modification.table;
        builder.start(table.regulars(), false);
        match table.compact_value().and_then(|value| table.regulars().index_of(&value.name)) {
            // As in Cassandra, such a row is deleted by deleting the one cell that it may have.
            Some(index) => builder.cell(index, &self.times.tombstone()),
            None => builder.deletion(self.times.deletion()),
        }
        self.add_row(partition, clustering, builder);
        Ok(())
    }

    /// Adds the row that is complete in the builder.
    fn add_row(&self, update: &mut PartitionUpdateBuilder, clustering: &[u8], builder: &mut RowBuilder) {
        let size_bytes = builder.size_bytes();
        self.count_written(size_bytes);
        update.row_with(clustering, size_bytes, |out| builder.finish(out));
    }

    fn count_written(&self, row_bytes: usize) {
        self.written_bytes.set(self.written_bytes.get().saturating_add(row_bytes));
    }

    /// Writes the first columns of the table, up to the first whose marker has no value that passes the quick check.
    /// Returns the other columns.
    fn write_values<'c>(&self, columns: &'c [ColumnChanges], builder: &mut RowBuilder) -> &'c [ColumnChanges] {
        let Ok(count) = builder.slots_of_row(|slots| {
            let mut written = 0;
            for &count in &self.modification.leading_runs {
                let run = columns.get(written..written + count).unwrap_or_default();
                let done = self.write_run(run, slots);
                written += done;
                if done < count {
                    break;
                }
            }
            Ok::<_, Infallible>(written)
        });
        &columns[count..]
    }

    /// Writes columns whose markers directly follow each other. Texts that were sent in the form of a row are copied at
    /// once. Returns the number of written columns.
    fn write_run(&self, run: &[ColumnChanges], slots: &mut Vec<u8>) -> usize {
        let first = run.first().and_then(|column| column.marker);
        if run.len() > 1
            && let Some(sent) = first.and_then(|marker| marker.sent_texts(run.len(), self.execution))
        {
            slots.extend_from_slice(sent);
            return run.len();
        }
        let write = |column: &ColumnChanges| {
            let value = column.marker?.value(self.execution)?;
            slots.extend_from_slice(&(value.len() as i32).to_be_bytes());
            slots.extend_from_slice(value);
            Some(())
        };
        run.iter().map_while(write).count()
    }

    fn write_columns(
        &self,
        columns: &[ColumnChanges],
        key: &PartitionKey,
        clustering: Option<&[u8]>,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        let existing = match self.modification.reads {
            true => ExistingLists::read(&self.modification.table, key, clustering, columns, self.execution)?,
            false => ExistingLists::default(),
        };
        let written = columns.iter().try_for_each(|column| self.write_column(column, &existing, builder));
        written.map_err(|error| self.first_error(columns, clustering.is_none(), &existing).unwrap_or(error))
    }

    fn write_column(
        &self,
        column: &ColumnChanges,
        existing: &ExistingLists,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        if let Some(value) = column.marker.and_then(|marker| marker.value(self.execution)) {
            builder.cell(column.index, &self.times.cell(value));
        } else if column.column.is_complex() {
            let list = existing.list(column.index);
            elements::write(column, list, &self.times, self.execution, builder)?;
        } else if let Some(change) = column.changes.last() {
            self.write_simple(column, change, builder)?;
        }
        Ok(())
    }

    /// The error of the first invalid column in the order of the statement, because rows are built in the order of the
    /// table.
    fn first_error(&self, columns: &[ColumnChanges], is_static: bool, existing: &ExistingLists) -> Option<QueryError> {
        let mut columns: Vec<&ColumnChanges> = columns.iter().collect();
        columns.sort_unstable_by_key(|column| column.place);
        let mut builder = RowBuilder::default();
        columns.into_iter().find_map(|column| {
            builder.start(self.modification.table.columns(is_static), is_static);
            self.write_column(column, existing, &mut builder).err()
        })
    }

    /// Writes a column that is one cell. `change` is the last of its changes.
    fn write_simple(
        &self,
        column: &ColumnChanges,
        change: &Change,
        builder: &mut RowBuilder,
    ) -> Result<(), QueryError> {
        match change {
            Change::Set(term) => self.set(column.index, term, builder),
            Change::Increment(_) | Change::Decrement(_) => self.count(column, builder),
            Change::Delete => {
                builder.cell(column.index, &self.times.tombstone());
                Ok(())
            }
            _ => Err(QueryError::server("a change of elements of a column without any")),
        }
    }

    fn set(&self, index: usize, term: &Term, builder: &mut RowBuilder) -> Result<(), QueryError> {
        match term.bind(self.execution)? {
            Bound::Bytes(value) => builder.cell(index, &self.times.cell(&value)),
            Bound::Null => builder.cell(index, &self.times.tombstone()),
            Bound::Unset => {}
        }
        Ok(())
    }

    /// Writes the counter's increment.
    fn count(&self, column: &ColumnChanges, builder: &mut RowBuilder) -> Result<(), QueryError> {
        let mut sum: Option<i64> = None;
        for change in &column.changes {
            let increment = counting::increment(change, self.execution)?;
            sum = increment.map(|increment| sum.unwrap_or(0).wrapping_add(increment)).or(sum);
        }
        if let Some(sum) = sum {
            builder.cell(column.index, &self.times.cell(&counter_increment(sum)));
        }
        Ok(())
    }
}

/// Cassandra accepts such a deletion and then cannot read the SSTable that it wrote.
fn negative_deletion(timestamp: i64) -> QueryError {
    QueryError::invalid(format!(
        "A partition cannot be deleted with a negative timestamp ({timestamp}), which SSTables cannot hold; delete its rows instead"
    ))
}

/// A clustering of one empty value, as it is serialized: its length.
const EMPTY_VALUE: [u8; 4] = [0; 4];

fn empty_clustering(table: &Table) -> QueryError {
    let name = table.clustering().first().map_or("", |column| &column.name);
    QueryError::invalid(format!("Invalid empty or null value for column {name}"))
}

fn no_compact_value(table: &Table) -> QueryError {
    let name = table.compact_value().map_or("", |column| &column.name);
    QueryError::invalid(format!("Column {name} is mandatory for this COMPACT STORAGE table"))
}

fn no_columns_of_ranges() -> QueryError {
    QueryError::invalid("Range deletions are not supported for specific columns")
}
