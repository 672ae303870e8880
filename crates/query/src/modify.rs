//! INSERT, UPDATE, DELETE, BATCH and TRUNCATE.
//!
//! A statement is prepared into a [`plan::Modification`], which has the terms of the key and the changes of each
//! column. Executing it binds the terms and writes row blobs directly from their bytes. All partitions of a statement,
//! or of a batch, become one mutation of the engine.

mod attributes;
mod batch;
mod batch_size;
mod change;
mod conditions;
mod elements;
mod existing;
mod json;
mod list;
mod list_paths;
mod plan;
mod statements;
mod target;
mod times;
mod truncate;
mod updates;

use std::sync::Arc;

use cql::ast::Statement;
use model::{Mutation, Schema, Table};

use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::restrictions::StatementType;
use crate::{QueryError, TraceLog, consistency};

pub(crate) use batch::{BatchPlan, batch_mutation, prepare_batch};
pub(crate) use json::unreadable as unreadable_json;
pub(crate) use list_paths::PrependedPaths;
pub(crate) use truncate::truncate;

use json::{InsertDocument, MarkerDocument};
use plan::Modification;
use updates::Updates;

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub(crate) struct ModificationPlan(Kind);

#[derive(Debug)]
enum Kind {
    Terms(Box<Modification>),
    /// An INSERT JSON whose document is bound at execution. Only the document determines the changes.
    Document(Box<MarkerDocument>),
}

/// Prepares an INSERT, UPDATE or DELETE.
pub(crate) fn prepare(statement: Statement, preparing: &mut Preparing<'_>) -> Result<ModificationPlan, QueryError> {
    let modification = match &statement {
        Statement::Insert(insert) => statements::insert(insert, preparing)?,
        Statement::Update(update) => statements::update(update, preparing)?,
        Statement::Delete(delete) => statements::delete(delete, preparing)?,
        Statement::InsertJson(insert) => match json::prepare(insert, preparing)? {
            InsertDocument::Known(modification) => *modification,
            InsertDocument::Marker(document) => return Ok(ModificationPlan(Kind::Document(document))),
        },
        _ => return Err(QueryError::server("no modification")),
    };
    Ok(ModificationPlan(Kind::Terms(Box::new(modification))))
}

impl ModificationPlan {
    /// The mutation of the statement, after all checks; `None` if it writes nothing.
    pub fn mutation(&self, execution: &Execution<'_>) -> Result<Option<Mutation>, QueryError> {
        self.resolve(execution, |modification| mutation_of(modification, execution))
    }

    /// Calls `then` with the modification of this execution.
    fn resolve<R>(
        &self,
        execution: &Execution<'_>,
        then: impl FnOnce(&Modification) -> Result<R, QueryError>,
    ) -> Result<R, QueryError> {
        match &self.0 {
            Kind::Terms(modification) => then(modification),
            Kind::Document(document) => then(&document.resolve(execution)?),
        }
    }

    pub fn table(&self) -> &Table {
        match &self.0 {
            Kind::Terms(modification) => &modification.table,
            Kind::Document(document) => &document.start.table,
        }
    }

    fn is_counter(&self) -> bool {
        plan::is_counter(self.table())
    }

    pub fn is_conditional(&self) -> bool {
        match &self.0 {
            Kind::Terms(modification) => modification.condition.is_some(),
            Kind::Document(document) => document.start.condition.is_some(),
        }
    }

    fn is_virtual(&self) -> bool {
        match &self.0 {
            Kind::Terms(modification) => modification.is_virtual,
            Kind::Document(document) => document.start.is_virtual,
        }
    }

    fn has_timestamp(&self) -> bool {
        match &self.0 {
            Kind::Terms(modification) => modification.attributes.has_timestamp(),
            Kind::Document(document) => document.start.attributes.has_timestamp(),
        }
    }
}

/// The mutation of a modification; `None` if it writes nothing.
fn mutation_of(modification: &Modification, execution: &Execution<'_>) -> Result<Option<Mutation>, QueryError> {
    modification.validate(execution)?;
    if modification.condition.is_some() {
        return Err(refuse_conditional(modification, execution));
    }
    modification.check_level(execution.options.consistency)?;
    let mut updates = Updates::default();
    modification.add_to(&mut updates, execution.timestamp_micros(), execution)?;
    check_alive(&updates, execution)?;
    Ok(updates.into_mutation())
}

/// The error of a conditional modification: another mistake in it if there is one, and otherwise that conditions are
/// not supported.
fn refuse_conditional(modification: &Modification, execution: &Execution<'_>) -> QueryError {
    let what = match modification.statement {
        StatementType::Delete => "deletions",
        _ => "updates",
    };
    let on = |part: &str| QueryError::invalid(format!("IN on the {part} is not supported with conditional {what}"));
    match modification.target.keys(execution) {
        Err(error) => return error,
        Ok(keys) if keys.len() > 1 => return on("partition key"),
        Ok(_) => {}
    }
    if modification.target.has_clustering_in() {
        return on("clustering key columns");
    }
    let wrong = modification.add_to(&mut Updates::default(), execution.timestamp_micros(), execution).err();
    wrong.unwrap_or_else(conditions::not_supported)
}

/// The trace of a write.
pub(crate) struct Traced<'t> {
    trace: &'t TraceLog,
    tables: Vec<Arc<str>>,
}

impl<'t> Traced<'t> {
    /// Adds the events that precede the write.
    pub fn begin(mutation: &Mutation, trace: &'t TraceLog, schema: &Schema) -> Traced<'t> {
        trace.note("Determining replicas for mutation");
        let is_logged = |keyspace: &str| schema.keyspace(keyspace).is_none_or(|keyspace| keyspace.durable_writes);
        if mutation.updates().iter().any(|update| is_logged(&update.table().keyspace)) {
            trace.note("Appending to commitlog");
        }
        Traced { trace, tables: mutation.updates().iter().map(|update| update.table().name.clone()).collect() }
    }

    /// Adds the events of a complete write.
    pub fn end(&self) {
        self.tables.iter().for_each(|table| self.trace.note(format!("Adding to {table} memtable")));
    }
}

/// Checks that each keyspace has as many live replicas as the request's consistency level needs.
fn check_alive(updates: &Updates, execution: &Execution<'_>) -> Result<(), QueryError> {
    let data_center = &execution.processor.options().node.data_center;
    let mut checked = None;
    for table in updates.tables() {
        let keyspace = &*table.keyspace;
        if checked.replace(keyspace) != Some(keyspace) {
            consistency::check_alive(execution.options.consistency, execution.schema, keyspace, data_center)?;
        }
    }
    Ok(())
}
