//! INSERT, UPDATE, DELETE, BATCH and TRUNCATE.
//!
//! A statement is prepared into a [`plan::Modification`], which has the terms of the key and the changes of each
//! column. Executing it binds the terms and writes row blobs directly from their bytes. All partitions of a statement,
//! or of a batch, become one mutation of the engine.

mod applied;
mod attributes;
mod batch;
mod batch_size;
mod change;
mod conditional;
mod conditions;
mod counting;
mod elements;
mod existing;
mod guarded;
mod json;
mod list;
mod plan;
mod reading;
mod statements;
mod target;
mod terms;
mod times;
mod truncate;
mod updates;

use std::ops::Deref;
use std::sync::Arc;

use cql::ast::Statement;
use model::{Mutation, Schema, Table, TableId};
use types::Token;

use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::restrictions::StatementType;
use crate::{QueryError, ResponseBody, TraceLog, consistency};

pub(crate) use attributes::TTL_MAX;
pub(crate) use batch::{BatchPlan, batch_mutation, batch_partitions, derive_batch, prepare_batch};
pub(crate) use counting::counted;
pub(crate) use truncate::truncate;

use json::{InsertDocument, MarkerDocument};
use plan::Modification;
pub(crate) use updates::Updates;

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub(crate) struct ModificationPlan(Kind);

#[derive(Debug)]
enum Kind {
    Terms(Box<Modification>),
    /// An INSERT JSON whose document is bound at execution. Only the document determines the changes.
    Document(Box<MarkerDocument>),
}

/// The modification of an execution.
enum Resolved<'p> {
    Known(&'p Modification),
    /// It was made from a document.
    Made(Box<Modification>),
}

impl Deref for Resolved<'_> {
    type Target = Modification;

    fn deref(&self) -> &Modification {
        match self {
            Resolved::Known(modification) => modification,
            Resolved::Made(modification) => modification,
        }
    }
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
        if matches!(&self.0, Kind::Document(_)) {
            // As in Cassandra, before the document is read. Counters cannot be inserted.
            plan::check_level(execution.options.consistency)?;
        }
        self.resolve(execution, |modification| mutation_of(modification, execution))
    }

    /// Adds its updates to those of other statements of the node's own, after its checks. No limit of a client's batch
    /// applies.
    pub fn add_to(&self, updates: &mut Updates, execution: &Execution<'_>) -> Result<(), QueryError> {
        self.resolve(execution, |modification| {
            modification.validate(execution)?;
            modification.add_to(updates, execution.timestamp_micros(), execution)
        })
    }

    /// Whether it reads before it writes, so that it needs the locks of its partitions.
    pub fn derives(&self) -> bool {
        let reads = |modification: &Modification| modification.reads || modification.is_counter;
        self.is_conditional() || matches!(&self.0, Kind::Terms(modification) if reads(modification))
    }

    /// The partitions that it reads before it writes, after the checks that need no lock. As in Cassandra, the level of
    /// a batch is checked after its values.
    pub fn partitions(&self, in_batch: bool, execution: &Execution<'_>) -> Result<Vec<(TableId, Token)>, QueryError> {
        self.resolve(execution, |modification| {
            modification.validate(execution)?;
            let table = modification.table.id;
            if modification.condition.is_some() {
                let key = conditional::partition_of(&[(modification, execution)], false)?;
                return Ok(vec![(table, key.token())]);
            }
            if !in_batch {
                modification.check_level(execution.options.consistency)?;
            }
            Ok(modification.target.keys(execution)?.iter().map(|key| (table, key.token())).collect())
        })
    }

    /// Reads, and makes the mutation and the answer.
    pub fn derive(&self, execution: &Execution<'_>) -> Result<(Option<Mutation>, ResponseBody), QueryError> {
        self.resolve(execution, |modification| {
            if modification.condition.is_some() {
                modification.validate(execution)?;
                return conditional::derive(&[(modification, execution)], None, execution);
            }
            let mutation = mutation_of(modification, execution)?;
            let mutation = if modification.is_counter { counted(mutation, execution)? } else { mutation };
            Ok((mutation, ResponseBody::Void))
        })
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

    /// The modification of this execution.
    fn resolved(&self, execution: &Execution<'_>) -> Result<Resolved<'_>, QueryError> {
        match &self.0 {
            Kind::Terms(modification) => Ok(Resolved::Known(modification)),
            Kind::Document(document) => document.resolve(execution).map(|made| Resolved::Made(Box::new(made))),
        }
    }

    pub fn table(&self) -> &Table {
        match &self.0 {
            Kind::Terms(modification) => &modification.table,
            Kind::Document(document) => &document.start.table,
        }
    }

    /// Refuses statements that are invalid with any values and for any client, as PREPARE does.
    pub fn refuse_with_any_values(&self) -> Result<(), QueryError> {
        match &self.0 {
            Kind::Terms(modification) => modification.refuse_with_any_values(),
            Kind::Document(_) => Ok(()),
        }
    }

    /// Whether it is a DELETE.
    pub fn is_deletion(&self) -> bool {
        matches!(&self.0, Kind::Terms(modification) if modification.statement == StatementType::Delete)
    }

    /// Whether its table has counters.
    pub fn is_counter(&self) -> bool {
        match &self.0 {
            Kind::Terms(modification) => modification.is_counter,
            // Counters cannot be inserted.
            Kind::Document(_) => false,
        }
    }

    /// Whether it has an IF clause.
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
    modification.check_level(execution.options.consistency)?;
    let mut updates = Updates::default();
    modification.add_to(&mut updates, execution.timestamp_micros(), execution)?;
    check_alive(&updates, execution)?;
    match execution.processor.watches_terms() || !modification.table.indexes().is_empty() {
        false => Ok(updates.into_mutation()),
        true => mutation_of_checked_terms(updates, execution),
    }
}

/// The mutation is checked apart, because most are not, and because moving it costs more than the test.
#[cold]
fn mutation_of_checked_terms(updates: Updates, execution: &Execution<'_>) -> Result<Option<Mutation>, QueryError> {
    let mutation = updates.into_mutation();
    mutation.iter().try_for_each(|mutation| terms::check(mutation, execution))?;
    Ok(mutation)
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
    updates.try_for_each_table(|table| {
        let keyspace = &table.keyspace;
        match checked.replace(keyspace) == Some(keyspace) {
            true => Ok(()),
            false => consistency::check_alive(execution.options.consistency, execution.schema, keyspace, data_center),
        }
    })
}
