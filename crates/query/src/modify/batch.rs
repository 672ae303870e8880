//! BATCH in CQL and in the protocol.

use cql::ast::{self, Batch, Modification as RawModification, Statement};
use model::{Mutation, TableId};
use protocol::BatchKind;
use types::Token;

use super::attributes::Attributes;
use super::batch_size;
use super::conditional;
use super::counting;
use super::terms;
use super::updates::Updates;
use super::{ModificationPlan, check_alive, prepare as prepare_modification};
use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::{QueryError, ResponseBody, Value};

/// A prepared CQL batch.
#[derive(Debug)]
pub(crate) struct BatchPlan {
    kind: BatchKind,
    attributes: Attributes,
    statements: Vec<ModificationPlan>,
}

/// Prepares a CQL batch.
pub(crate) fn prepare_batch(batch: Batch, preparing: &mut Preparing<'_>) -> Result<BatchPlan, QueryError> {
    let mut statements = Vec::with_capacity(batch.statements.len());
    for statement in batch.statements {
        let statement = match statement {
            RawModification::Insert(insert) => Statement::Insert(insert),
            RawModification::InsertJson(insert) => Statement::InsertJson(insert),
            RawModification::Update(update) => Statement::Update(update),
            RawModification::Delete(delete) => Statement::Delete(delete),
        };
        statements.push(prepare_modification(statement, preparing)?);
    }
    let attributes = Attributes::prepare(&batch.attributes, "[batch]", "[batch]", preparing)?;
    let kind = match batch.kind {
        ast::BatchKind::Logged => BatchKind::Logged,
        ast::BatchKind::Unlogged => BatchKind::Unlogged,
        ast::BatchKind::Counter => BatchKind::Counter,
    };
    let all: Vec<&ModificationPlan> = statements.iter().collect();
    validate(kind, &attributes, &all)?;
    Ok(BatchPlan { kind, attributes, statements })
}

impl BatchPlan {
    pub fn kind(&self) -> BatchKind {
        self.kind
    }

    /// Whether one of its statements has an IF clause.
    pub fn is_conditional(&self) -> bool {
        self.statements.iter().any(ModificationPlan::is_conditional)
    }

    /// Whether its statements change counters.
    pub fn is_counter(&self) -> bool {
        self.statements.iter().any(ModificationPlan::is_counter)
    }

    /// Whether one of its statements reads before it writes.
    pub fn derives(&self) -> bool {
        self.statements.iter().any(ModificationPlan::derives)
    }

    /// The partitions that it reads before it writes.
    pub fn partitions(&self, execution: &Execution<'_>) -> Result<Vec<(TableId, Token)>, QueryError> {
        let statements: Vec<_> = self.statements.iter().map(|statement| (statement, execution)).collect();
        partitions_of(&statements)
    }

    /// Reads, and makes the mutation and the answer.
    pub fn derive(&self, execution: &Execution<'_>) -> Result<(Option<Mutation>, ResponseBody), QueryError> {
        let statements: Vec<_> = self.statements.iter().map(|statement| (statement, execution)).collect();
        derive(self.kind, &self.attributes, &statements, execution)
    }

    pub fn statements(&self) -> &[ModificationPlan] {
        &self.statements
    }

    /// The mutation of the batch, after all checks; `None` if it writes nothing.
    pub fn mutation(&self, execution: &Execution<'_>) -> Result<Option<Mutation>, QueryError> {
        let statements: Vec<(&ModificationPlan, &Execution<'_>)> =
            self.statements.iter().map(|statement| (statement, execution)).collect();
        mutation_of(self.kind, &self.attributes, &statements, execution)
    }
}

/// The mutation of a protocol batch, whose modifications each have their own values; `None` if it writes nothing.
pub(crate) fn batch_mutation(
    kind: BatchKind,
    statements: &[(&ModificationPlan, &[Value<'_>])],
    execution: &Execution<'_>,
) -> Result<Option<Mutation>, QueryError> {
    let attributes = Attributes::default();
    let plans: Vec<&ModificationPlan> = statements.iter().map(|(plan, _)| *plan).collect();
    validate(kind, &attributes, &plans)?;
    let executions: Vec<Execution<'_>> = statements.iter().map(|(_, values)| execution.with_values(values)).collect();
    let statements: Vec<(&ModificationPlan, &Execution<'_>)> = plans.into_iter().zip(&executions).collect();
    mutation_of(kind, &attributes, &statements, execution)
}

/// The partitions that a protocol batch reads before it writes; none if it reads nothing.
pub(crate) fn batch_partitions(
    kind: BatchKind,
    statements: &[(&ModificationPlan, &[Value<'_>])],
    execution: &Execution<'_>,
) -> Result<Vec<(TableId, Token)>, QueryError> {
    let plans: Vec<&ModificationPlan> = statements.iter().map(|(plan, _)| *plan).collect();
    if !plans.iter().any(|plan| plan.derives()) {
        return Ok(Vec::new());
    }
    validate(kind, &Attributes::default(), &plans)?;
    let executions: Vec<Execution<'_>> = statements.iter().map(|(_, values)| execution.with_values(values)).collect();
    let statements: Vec<(&ModificationPlan, &Execution<'_>)> = plans.into_iter().zip(&executions).collect();
    partitions_of(&statements)
}

/// Reads, and makes the mutation and the answer of a protocol batch.
pub(crate) fn derive_batch(
    kind: BatchKind,
    statements: &[(&ModificationPlan, &[Value<'_>])],
    execution: &Execution<'_>,
) -> Result<(Option<Mutation>, ResponseBody), QueryError> {
    let executions: Vec<Execution<'_>> = statements.iter().map(|(_, values)| execution.with_values(values)).collect();
    let plans = statements.iter().map(|(plan, _)| *plan);
    let statements: Vec<(&ModificationPlan, &Execution<'_>)> = plans.zip(&executions).collect();
    derive(kind, &Attributes::default(), &statements, execution)
}

/// The partitions that statements read before they write.
fn partitions_of(statements: &[(&ModificationPlan, &Execution<'_>)]) -> Result<Vec<(TableId, Token)>, QueryError> {
    if statements.iter().any(|(statement, _)| statement.is_conditional()) {
        return with_parts(statements, |parts| {
            parts.iter().try_for_each(|(modification, execution)| modification.validate(execution))?;
            let key = conditional::partition_of(parts, true)?;
            Ok(parts.iter().take(1).map(|(modification, _)| (modification.table.id, key.token())).collect())
        });
    }
    // All statements are checked before the values of any.
    statements.iter().try_for_each(|(statement, _)| statement.refuse_with_any_values())?;
    let mut partitions = Vec::new();
    for (statement, execution) in statements.iter().filter(|(statement, _)| statement.derives()) {
        partitions.extend(statement.partitions(true, execution)?);
    }
    Ok(partitions)
}

/// Calls `then` with the modifications of all statements.
fn with_parts<R>(
    statements: &[(&ModificationPlan, &Execution<'_>)],
    then: impl FnOnce(&[conditional::Part<'_>]) -> Result<R, QueryError>,
) -> Result<R, QueryError> {
    let resolved: Result<Vec<_>, QueryError> =
        statements.iter().map(|(plan, execution)| plan.resolved(execution)).collect();
    let resolved = resolved?;
    let parts = resolved.iter().zip(statements).map(|(modification, (_, execution))| (&**modification, *execution));
    then(&parts.collect::<Vec<_>>())
}

fn derive(
    kind: BatchKind,
    attributes: &Attributes,
    statements: &[(&ModificationPlan, &Execution<'_>)],
    execution: &Execution<'_>,
) -> Result<(Option<Mutation>, ResponseBody), QueryError> {
    if statements.iter().any(|(statement, _)| statement.is_conditional()) {
        return with_parts(statements, |parts| conditional::derive(parts, Some(kind), execution));
    }
    let mutation = mutation_of(kind, attributes, statements, execution)?;
    let counts = statements.iter().any(|(statement, _)| statement.is_counter());
    Ok((if counts { counting::counted(mutation, execution)? } else { mutation }, ResponseBody::Void))
}

/// Refuses batches whose statements may not be combined.
fn validate(kind: BatchKind, attributes: &Attributes, statements: &[&ModificationPlan]) -> Result<(), QueryError> {
    let refuse = |message: &str| Err(QueryError::invalid(message));
    let is_conditional = statements.iter().any(|statement| statement.is_conditional());
    let counters = statements.iter().filter(|statement| statement.is_counter()).count();
    let (has_counters, has_others) = (counters > 0, counters < statements.len());
    if attributes.has_time_to_live() {
        return refuse("Global TTL on the BATCH statement is not supported.");
    }
    if attributes.has_timestamp() {
        if is_conditional {
            return refuse("Cannot provide custom timestamp for conditional BATCH");
        }
        if kind == BatchKind::Counter {
            return refuse("Cannot provide custom timestamp for counter BATCH");
        }
        if statements.iter().any(|statement| statement.has_timestamp()) {
            return refuse("Timestamp must be set either on BATCH or individual statements");
        }
        if has_counters {
            return refuse("Cannot provide custom timestamp for a BATCH containing counters");
        }
    }
    if kind == BatchKind::Counter && has_others {
        return refuse("Cannot include non-counter statement in a counter batch");
    }
    if has_counters && has_others {
        return refuse("Counter and non-counter mutations cannot exist in the same batch");
    }
    if kind == BatchKind::Logged && has_counters {
        return refuse("Cannot include a counter statement in a logged batch");
    }
    validate_virtual(kind, is_conditional, statements)?;
    if is_conditional && statements.windows(2).any(|pair| pair[0].table().id != pair[1].table().id) {
        return refuse("Batch with conditions cannot span multiple tables");
    }
    Ok(())
}

fn validate_virtual(kind: BatchKind, is_conditional: bool, statements: &[&ModificationPlan]) -> Result<(), QueryError> {
    let count = statements.iter().filter(|statement| statement.is_virtual()).count();
    let message = match count {
        0 => return Ok(()),
        _ if kind == BatchKind::Logged => "Cannot include a virtual table statement in a logged batch",
        count if count < statements.len() => "Mutations for virtual and regular tables cannot exist in the same batch",
        _ if is_conditional => "Conditional BATCH statements cannot include mutations for virtual tables",
        _ => return Ok(()),
    };
    Err(QueryError::invalid(message))
}

fn mutation_of(
    kind: BatchKind,
    attributes: &Attributes,
    statements: &[(&ModificationPlan, &Execution<'_>)],
    execution: &Execution<'_>,
) -> Result<Option<Mutation>, QueryError> {
    let mut updates = Updates::default();
    let default = execution.timestamp_micros();
    for (place, (statement, execution)) in statements.iter().enumerate() {
        statement.resolve(execution, |modification| {
            modification.validate(execution)?;
            let timestamp = attributes.timestamp(default, execution)?;
            let added = modification.add_to(&mut updates, timestamp, execution);
            added.map_err(|error| wrong_key(&statements[place..]).unwrap_or(error))
        })?;
    }
    let alive = check_alive(&updates, execution);
    let Some(mutation) = updates.into_mutation() else { return alive.map(|()| None) };
    terms::check(&mutation, execution)?;
    batch_size::check(kind, &mutation, execution)?;
    alive?;
    Ok(Some(mutation))
}

/// The error of the first invalid partition key in these statements. Cassandra builds the keys of all statements before
/// it checks anything else.
fn wrong_key(statements: &[(&ModificationPlan, &Execution<'_>)]) -> Option<QueryError> {
    let keys = |(statement, execution): &(&ModificationPlan, &Execution<'_>)| {
        statement.resolve(execution, |modification| modification.target.keys(execution).map(drop)).err()
    };
    statements.iter().find_map(keys)
}
