//! INSERT, UPDATE, DELETE, BATCH and TRUNCATE.
//!
//! A statement is prepared into a [`plan::Modification`]: terms for the key, and per column what is done to it.
//! Carrying it out gives the terms bytes and writes row blobs straight from them; all partitions of a statement, and of
//! a batch, go to the engine as one mutation.

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

/// An INSERT, UPDATE or DELETE ready to be carried out.
#[derive(Debug)]
pub(crate) struct ModificationPlan(Kind);

#[derive(Debug)]
enum Kind {
    Terms(Box<Modification>),
    /// What it writes is known once its document is.
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
    /// What it writes, if that may be written; `None` for nothing.
    pub fn mutation(&self, execution: &Execution<'_>) -> Result<Option<Mutation>, QueryError> {
        self.resolve(execution, |modification| mutation_of(modification, execution))
    }

    /// Does something with the modification that this is in this execution.
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

    fn table(&self) -> &Table {
        match &self.0 {
            Kind::Terms(modification) => &modification.table,
            Kind::Document(document) => &document.start.table,
        }
    }

    fn is_counter(&self) -> bool {
        plan::is_counter(self.table())
    }

    fn is_conditional(&self) -> bool {
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

/// What a modification writes; `None` if nothing.
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

/// Why a conditional modification is not carried out: what is wrong with it, if anything is.
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

/// The write of a traced request.
pub(crate) struct Traced<'t> {
    trace: &'t TraceLog,
    tables: Vec<Arc<str>>,
}

impl<'t> Traced<'t> {
    /// Notes what happens before a mutation is written.
    pub fn begin(mutation: &Mutation, trace: &'t TraceLog, schema: &Schema) -> Traced<'t> {
        trace.note("Determining replicas for mutation");
        let is_logged = |keyspace: &str| schema.keyspace(keyspace).is_none_or(|keyspace| keyspace.durable_writes);
        if mutation.updates().iter().any(|update| is_logged(&update.table().keyspace)) {
            trace.note("Appending to commitlog");
        }
        Traced { trace, tables: mutation.updates().iter().map(|update| update.table().name.clone()).collect() }
    }

    /// Notes what has happened when it is written.
    pub fn end(&self) {
        self.tables.iter().for_each(|table| self.trace.note(format!("Adding to {table} memtable")));
    }
}

/// Whether as many replicas of each keyspace are alive as the request's consistency level wants.
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
