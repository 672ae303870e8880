//! BATCH requests. The statements, each with its own values, are written as one mutation.

use std::ops::Range;
use std::sync::Arc;

use engine::{BorrowedSchema, Turn};
use protocol::{BatchKind, BatchStatement, Value, WriteType};

use super::derived::{Modification, needs_blocking_pool};
use super::request::OwnedRequest;
use super::values::BoundValues;
use super::{BatchEntry, Columns, HasToBlock, MustBlock, Outcome, Request, Statement};
use crate::execution::{Control, Execution};
use crate::modify::{self, ModificationPlan};
use crate::prepared::{Class, Prepared, Work};
use crate::processor::with_warnings;
use crate::{Need, Processor, QueryError};

/// The statements of a batch in prepared form, each with the range of its values among the values of the batch.
pub(crate) type Parts = Vec<(Arc<Prepared>, Range<usize>)>;

/// A batch whose statements could not all be prepared.
struct Unprepared {
    /// The number of statements that were prepared before.
    count: usize,
    error: QueryError,
}

impl Processor {
    pub(super) fn begin_batch(
        self: &Arc<Self>,
        kind: BatchKind,
        entries: &[BatchEntry<'_>],
        request: &Request<'_>,
        control: Control<'_>,
    ) -> Outcome {
        let mut values = Vec::new();
        match self.prepare_parts(entries, request, &mut values) {
            Ok(parts) => {
                let parts = Arc::new(parts);
                let begin = || self.begin_parts(kind, &parts, &values, request, control);
                match self.request_logs().of(request.client) {
                    None => begin(),
                    Some(logs) => {
                        let watch = logs.of_batch(&parts, entries, request);
                        watch.over(begin())
                    }
                }
            }
            Err(Unprepared { count, error }) => {
                if let Some(auditor) = self.request_logs().of(request.client).and_then(|logs| logs.auditor) {
                    auditor.unprepared_batch(entries, count, request, &error);
                }
                Outcome::failed(error)
            }
        }
    }

    fn prepare_parts<'v>(
        &self,
        entries: &'v [BatchEntry<'v>],
        request: &Request<'_>,
        values: &mut Vec<Value<'v>>,
    ) -> Result<Parts, Unprepared> {
        let failed = |count| move |error| Unprepared { count, error };
        self.check_keyspace(request.options.keyspace).map_err(failed(0))?;
        let keyspace = request.options.keyspace.or(request.client.keyspace.as_deref());
        let mut parts = Parts::with_capacity(entries.len());
        for entry in entries {
            let part = self.prepare_part(entry, keyspace, values).map_err(failed(parts.len()))?;
            parts.push(part);
        }
        // As in Cassandra, the other mistakes of all statements come before this one.
        parts.iter().try_for_each(|(statement, _)| modification(statement).map(|_| ())).map_err(failed(parts.len()))?;
        Ok(parts)
    }

    /// Prepares a statement of a batch, and adds its values to those of the batch. Cassandra does not trace this.
    fn prepare_part<'v>(
        &self,
        entry: &'v BatchEntry<'v>,
        keyspace: Option<&str>,
        values: &mut Vec<Value<'v>>,
    ) -> Result<(Arc<Prepared>, Range<usize>), QueryError> {
        let statement = match &entry.statement {
            BatchStatement::Text(text) => Arc::new(self.prepare_checked(text, keyspace)?),
            BatchStatement::Prepared(known) if self.is_current(known) => known.clone(),
            BatchStatement::Prepared(known) => self.renew(known)?,
        };
        let bound = BoundValues::of(&entry.values, &statement.variables);
        let (expected, got) = (statement.variables.len(), bound.as_slice().len());
        if expected != got {
            let message = format!("There were {expected} markers(?) in CQL but {got} bound variables");
            return Err(QueryError::invalid(message));
        }
        let start = values.len();
        values.extend_from_slice(bound.as_slice());
        Ok((statement, start..values.len()))
    }

    fn begin_parts(
        self: &Arc<Self>,
        kind: BatchKind,
        parts: &Arc<Parts>,
        values: &[Value<'_>],
        request: &Request<'_>,
        control: Control<'_>,
    ) -> Outcome {
        if request.trace.is_some() && !control.turn.may_block {
            return self.must_block_batch(Need::Processor, kind, parts, values, request);
        }
        let schema = self.engine().borrow_schema();
        if parts.iter().all(|(statement, _)| statement.plan.is_current(&schema)) {
            return self.begin_current_parts(kind, parts, values, request, control, &schema);
        }
        drop(schema);
        // The schema has changed since they were prepared: the batch may have waited for a thread.
        let renew = |(statement, place): &(Arc<Prepared>, Range<usize>)| match self.is_current(statement) {
            true => Ok((Arc::clone(statement), place.clone())),
            false => Ok((self.renew(statement)?, place.clone())),
        };
        match parts.iter().map(renew).collect::<Result<Parts, QueryError>>() {
            Ok(newer) => {
                let schema = self.engine().borrow_schema();
                self.begin_current_parts(kind, &Arc::new(newer), values, request, control, &schema)
            }
            Err(error) => Outcome::failed(error),
        }
    }

    fn begin_current_parts(
        self: &Arc<Self>,
        kind: BatchKind,
        parts: &Arc<Parts>,
        values: &[Value<'_>],
        request: &Request<'_>,
        control: Control<'_>,
        schema: &BorrowedSchema,
    ) -> Outcome {
        let keyspace = request.options.keyspace.or(request.client.keyspace.as_deref());
        let statements: Result<Vec<_>, QueryError> =
            parts.iter().map(|(statement, place)| Ok((modification(statement)?, &values[place.clone()]))).collect();
        let statements = match statements {
            Ok(statements) => statements,
            Err(error) => return Outcome::failed(error),
        };
        if self.auth().has_logins()
            && let Err(error) =
                parts.iter().try_for_each(|(statement, _)| self.check_permissions(statement, request.client))
        {
            return Outcome::failed(error);
        }
        let execution = &mut Execution::new(self, schema, request.parts(), &[], keyspace, control);
        match modify::batch_partitions(kind, &statements, execution) {
            Ok(partitions) if partitions.is_empty() => {}
            Ok(partitions) if !control.turn.may_block && needs_blocking_pool(&partitions) => {
                return self.must_block_batch(Need::Processor, kind, parts, values, request);
            }
            Ok(partitions) => {
                let is_conditional = statements.iter().any(|(modification, _)| modification.is_conditional());
                let class = if is_conditional { Class::Write(WriteType::Cas) } else { Class::of_batch(kind) };
                let modification = Modification::Batch(kind, Arc::clone(parts));
                return self.begin_derived(
                    modification,
                    partitions,
                    (request, values),
                    Columns::Prepared(None),
                    class,
                    control,
                );
            }
            Err(error) => {
                if let Some(need) = error.need() {
                    return self.must_block_batch(need, kind, parts, values, request);
                }
                return Outcome::done(with_warnings(Err(error), execution.take_warnings(), self.engine()));
            }
        }
        let written = |execution: &Execution<'_>| modify::batch_mutation(kind, &statements, execution);
        let outcome = self.begin_write(written, Some(kind), Class::of_batch(kind), execution, None);
        outcome.unwrap_or_else(|HasToBlock(need)| self.must_block_batch(need, kind, parts, values, request))
    }

    /// The batch as a request for the blocking pool.
    fn must_block_batch(
        self: &Arc<Self>,
        need: Need,
        kind: BatchKind,
        parts: &Arc<Parts>,
        values: &[Value<'_>],
        request: &Request<'_>,
    ) -> Outcome {
        let (processor, parts, owned) = (Arc::clone(self), Arc::clone(parts), OwnedRequest::new(request, values));
        let limit = self.time_limit(Class::of_batch(kind), request.options);
        Outcome::MustBlock(Box::new(MustBlock::new(limit, need, move |deadline, cancelled| {
            let control = Control { turn: Turn::BLOCKING, deadline, cancelled: Some(cancelled) };
            owned.with(Statement::Text(""), |request, values| {
                processor.begin_parts(kind, &parts, values, request, control).into_response()
            })
        })))
    }
}

/// The modification of a statement in a batch. Other statements are refused.
pub(crate) fn modification(statement: &Prepared) -> Result<&ModificationPlan, QueryError> {
    match &statement.plan.work {
        Work::Modification(modification) | Work::Derived(modification) => Ok(modification),
        _ => Err(QueryError::invalid(
            "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
        )),
    }
}
