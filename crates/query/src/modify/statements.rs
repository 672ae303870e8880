//! Preparing INSERT, UPDATE and DELETE.

use std::collections::HashSet;
use std::sync::Arc;

use cql::ast::{self, Conditions, Delete, Identifier, Insert, Operator, Relation, Update, WhereClause};
use model::{Column, ColumnKind, Table};

use super::attributes::Attributes;
use super::change::{Change, Changes, prepare_deletion, prepare_operation, prepare_value};
use super::conditions::{self, Condition};
use super::plan::Modification;
use super::target::ModificationTarget;
use crate::QueryError;
use crate::names::{column_spec, find_column};
use crate::preparing::Preparing;
use crate::restrictions::{Reading, StatementType};
use crate::terms::Term;

/// The common parts of all statements.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub table: Arc<Table>,
    pub attributes: Attributes,
    pub condition: Condition,
    pub is_virtual: bool,
}

impl Start {
    pub fn prepare(
        table: &ast::QualifiedName,
        attributes: &ast::Attributes,
        conditions: &Conditions,
        preparing: &mut Preparing<'_>,
    ) -> Result<Start, QueryError> {
        let table = preparing.table(table)?;
        let is_virtual = preparing.virtual_tables.contains(&table);
        let attributes = Attributes::prepare(attributes, &table.keyspace, &table.name, preparing)?;
        let condition = conditions::prepare(conditions, &table, attributes.has_timestamp(), preparing)?;
        Ok(Start { table, attributes, condition, is_virtual })
    }

    /// Combines the parts after the last checks.
    pub fn finish(
        self,
        statement: StatementType,
        changes: Changes,
        target: ModificationTarget,
    ) -> Result<Modification, QueryError> {
        let Start { table, attributes, condition, is_virtual } = self;
        let changes = changes.in_order();
        if condition.is_some() && table.is_counter() {
            return Err(QueryError::invalid("Conditional updates are not supported on counter tables"));
        }
        if condition.is_some() && attributes.has_timestamp() {
            return Err(QueryError::invalid("Cannot provide custom timestamp for conditional updates"));
        }
        Ok(Modification {
            is_read_only: engine::system::is_local_system_keyspace(&table.keyspace),
            is_counter: table.is_counter(),
            writes_liveness: statement == StatementType::Insert && !table.form().is_compact(),
            lacks_value: false,
            reads: changes.requires_read(),
            names_statics: !changes.statics.is_empty(),
            leading_runs: changes.leading_runs(),
            table,
            statement,
            attributes,
            target,
            changes,
            condition,
            is_virtual,
        })
    }

    /// Checks and prepares the WHERE clause of UPDATE or DELETE.
    fn target(
        &self,
        clause: &WhereClause,
        statement: StatementType,
        changes: &Changes,
        preparing: &mut Preparing<'_>,
    ) -> Result<ModificationTarget, QueryError> {
        if !clause.expressions.is_empty() {
            return Err(QueryError::invalid(
                "Custom index expressions cannot be used in WHERE clauses for UPDATE or DELETE statements",
            ));
        }
        let only_statics = changes.only_statics() && !self.condition.asks_regulars();
        let reading = Reading { statement, only_statics, allow_filtering: false };
        ModificationTarget::prepare(clause, &self.table, reading, preparing)
    }
}

fn is_key(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering)
}

/// Refuses INSERT into a table of counters.
pub(super) fn refuse_counters(table: &Table) -> Result<(), QueryError> {
    if table.is_counter() {
        let message = "INSERT statements are not allowed on counter tables, use UPDATE instead";
        return Err(QueryError::invalid(message));
    }
    Ok(())
}

/// Prepares `INSERT INTO table (columns) VALUES (values)`.
pub(super) fn insert(insert: &Insert, preparing: &mut Preparing<'_>) -> Result<Modification, QueryError> {
    let conditions = if insert.if_not_exists { Conditions::NotExists } else { Conditions::None };
    let start = Start::prepare(&insert.table, &insert.attributes, &conditions, preparing)?;
    refuse_counters(&start.table)?;
    let refuse = |message: &str| Err(QueryError::invalid(message));
    if insert.columns.is_empty() {
        return refuse("No columns provided to INSERT");
    }
    if insert.columns.len() != insert.values.len() {
        return refuse("Unmatched column names/values");
    }
    let mut names = HashSet::with_capacity(insert.columns.len());
    if !insert.columns.iter().all(|name| names.insert(name.as_str())) {
        return refuse("The column names contains duplicates");
    }
    let values = insert.columns.iter().zip(&insert.values);
    insert_values(start, values, preparing)
}

/// Prepares an INSERT of these values.
pub(super) fn insert_values<'a>(
    start: Start,
    values: impl Iterator<Item = (&'a Identifier, &'a ast::Term)>,
    preparing: &mut Preparing<'_>,
) -> Result<Modification, QueryError> {
    let mut clause = WhereClause::default();
    let mut changes = Changes::default();
    let mut has_clustering = false;
    for (name, value) in values {
        let column = find_column(&start.table, name)?;
        has_clustering |= column.kind == ColumnKind::Clustering;
        if is_key(&column) {
            clause.relations.push(Relation::SingleColumn {
                column: name.clone(),
                operator: Operator::Eq,
                value: value.clone(),
            });
        } else {
            let change = prepare_value(value, &column_spec(&start.table, &column), preparing)?;
            changes.push(&start.table, &column, change)?;
        }
    }
    let lacks_value =
        start.table.form().is_dense() && changes.is_empty() && !write_empty_value(&start.table, &mut changes)?;
    let only_statics = !has_clustering && changes.only_statics();
    let reading = Reading { statement: StatementType::Insert, only_statics, allow_filtering: false };
    let target = ModificationTarget::prepare(&clause, &start.table, reading, preparing)?;
    let modification = start.finish(StatementType::Insert, changes, target)?;
    Ok(Modification { lacks_value, ..modification })
}

/// Writes the hidden column of a table with COMPACT STORAGE that has no column outside its primary key. Whether the
/// table is such a one.
fn write_empty_value(table: &Table, changes: &mut Changes) -> Result<bool, QueryError> {
    let Some(column) = table.compact_value().filter(|column| table.is_hidden(column)) else { return Ok(false) };
    changes.push(table, column, Change::Set(Term::Value(Some(Box::default()))))?;
    Ok(true)
}

/// Prepares an UPDATE.
pub(super) fn update(update: &Update, preparing: &mut Preparing<'_>) -> Result<Modification, QueryError> {
    let start = Start::prepare(&update.table, &update.attributes, &update.conditions, preparing)?;
    let mut changes = Changes::default();
    for (name, operation) in &update.operations {
        let column = find_column(&start.table, name)?;
        if is_key(&column) {
            return Err(QueryError::invalid(format!("PRIMARY KEY part {} found in SET part", column.name)));
        }
        let change = prepare_operation(operation, &column, &start.table, preparing)?;
        changes.push(&start.table, &column, change)?;
    }
    let target = start.target(&update.where_clause, StatementType::Update, &changes, preparing)?;
    start.finish(StatementType::Update, changes, target)
}

/// Prepares a DELETE.
pub(super) fn delete(delete: &Delete, preparing: &mut Preparing<'_>) -> Result<Modification, QueryError> {
    let start = Start::prepare(&delete.table, &delete.attributes, &delete.conditions, preparing)?;
    let mut changes = Changes::default();
    for deletion in &delete.deletions {
        let column = find_column(&start.table, deletion.column())?;
        if is_key(&column) {
            return Err(QueryError::invalid(format!(
                "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
                column.name
            )));
        }
        let change = prepare_deletion(deletion, &column, &start.table, preparing)?;
        changes.push(&start.table, &column, change)?;
    }
    let target = start.target(&delete.where_clause, StatementType::Delete, &changes, preparing)?;
    let deletes_regulars = changes.is_empty() || !changes.regulars.is_empty();
    let asks_regulars = start.condition.asks_regulars();
    let (is_conditional, gives_rows) = (start.condition.is_some(), target.gives_rows(&start.table));
    let modification = start.finish(StatementType::Delete, changes, target)?;
    if is_conditional && !gives_rows {
        refuse_conditional_range(deletes_regulars, asks_regulars)?;
    }
    Ok(modification)
}

fn refuse_conditional_range(deletes_regulars: bool, asks_regulars: bool) -> Result<(), QueryError> {
    let why = match (deletes_regulars, asks_regulars) {
        (true, _) => "delete non static columns",
        (false, true) => "use IF condition on non static columns",
        (false, false) => return Ok(()),
    };
    Err(QueryError::invalid(format!(
        "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to {why}"
    )))
}
