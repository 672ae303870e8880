//! Modifications that read before they write: conditional ones, and those that name elements of lists by index or by
//! value. They run under the locks of their partitions, which the engine keeps.
//!
//! All tables share the locks, so a statement holds few of them at a time: [`PARTITIONS_LOCKED_MAX`]. As in Cassandra,
//! the increments of one statement or batch are counted partition by partition; no atomicity is promised beyond one. So
//! those of more partitions are counted in parts, and lists in more partitions are read without the locks, as Cassandra
//! always reads them; both happen on a thread of the blocking pool. A condition is on one partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use engine::{Derive, Derived, EngineError, Turn};
use model::{Mutation, PartitionUpdate, TableId};
use protocol::{BatchKind, MetadataForm};
use types::Token;

use super::batch::Parts;
use super::outcome::PendingWork;
use super::request::OwnedRequest;
use super::{Columns, Outcome, Pending, Request, Statement};
use crate::execution::{Control, Execution};
use crate::modify;
use crate::prepared::{Class, Prepared, Work};
use crate::processor::noted;
use crate::response::set_form;
use crate::{ErrorKind, Lease, Processor, QueryError, Response, ResponseBody, Value};

/// The statement of a modification, or the parts of a batch.
pub(super) enum Modification {
    Statement(Arc<Prepared>),
    Batch(BatchKind, Arc<Parts>),
}

/// The most partitions whose locks one statement holds at a time. There are 4,096 locks.
const PARTITIONS_LOCKED_MAX: usize = 128;

/// Whether a modification of these partitions goes to the blocking pool. There each client has a few threads, so few
/// modifications of one client wait for the locks of many partitions, and no connection's thread makes their updates.
pub(super) fn needs_blocking_pool(partitions: &[(TableId, Token)]) -> bool {
    partitions.len() > PARTITIONS_LOCKED_MAX
}

/// A limit for the memory of an update besides its bytes: its key, its struct and the overhead of the allocator.
const UPDATE_BYTES: usize = 128;

/// A modification that owns all that its execution needs.
struct DerivedModification {
    processor: Arc<Processor>,
    modification: Modification,
    request: OwnedRequest,
    partitions: Vec<(TableId, Token)>,
    form: MetadataForm,
    /// When its client gets a timeout.
    deadline: Option<Instant>,
    /// Set when nobody waits for the answer any more.
    is_over: AtomicBool,
}

/// Ends the reads of a modification when it is dropped.
struct EndReads(Arc<DerivedModification>);

impl Drop for EndReads {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// The result that is derived from a modification of counters.
#[derive(Clone, Copy)]
enum Stage {
    /// The totals, which are written.
    Totals,
    /// The increments alone, for which nothing is read.
    Increments,
}

/// The increments of a modification of counters, which are made before any lock is taken.
struct Increments(Arc<DerivedModification>);

/// The part of the increments that is counted at a time.
struct CounterPart {
    whole: Arc<DerivedModification>,
    increments: Mutation,
}

/// The error of a modification.
enum Failure {
    Engine(EngineError),
    Query(QueryError),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Failure::Engine(error)
    }
}

impl From<Failure> for QueryError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Engine(error) => error.into(),
            Failure::Query(error) => error,
        }
    }
}

impl Processor {
    /// Begins a modification that reads before it writes. `partitions` are those that it reads.
    pub(super) fn begin_derived(
        self: &Arc<Self>,
        modification: Modification,
        partitions: Vec<(TableId, Token)>,
        (request, values): (&Request<'_>, &[Value<'_>]),
        columns: Columns<'_>,
        class: Class,
        control: Control<'_>,
    ) -> Outcome {
        let limit = self.time_limit(class, request.options);
        let may_block = control.turn.may_block;
        let of_limit = || limit.duration().filter(|_| !may_block).map(|limit| Instant::now() + limit);
        // As in Cassandra, only the answer to a QUERY lacks its columns if the client asks for that.
        let skip = matches!(columns, Columns::Asked) && request.options.skip_metadata;
        let derived = Arc::new(DerivedModification {
            processor: Arc::clone(self),
            modification,
            request: OwnedRequest::new(request, values),
            partitions,
            form: MetadataForm { skip, changed_id: None },
            deadline: control.deadline.or_else(of_limit),
            is_over: AtomicBool::new(false),
        });
        let engine = Arc::clone(self.engine());
        let reads = EndReads(Arc::clone(&derived));
        let future = async move {
            let written = derived.write(may_block).await;
            drop(reads);
            written.map_err(|failure| match failure.into() {
                // A read ended at the deadline.
                QueryError { kind: ErrorKind::ReadTimeout { .. }, .. } => limit.error(),
                error => noted(error, &engine),
            })
        };
        let pending = Pending::new(PendingWork::Future(Box::pin(future)), Vec::new(), limit);
        match may_block {
            true => Outcome::done(pending.wait_until(control.deadline)),
            false => Outcome::Pending(Box::new(pending)),
        }
    }
}

impl Derive for DerivedModification {
    type Answer = Response;
    type Error = Failure;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        self.partitions.clone()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<Response>, Failure> {
        self.derive_stage(Stage::Totals, turn)
    }

    fn client(&self) -> u64 {
        self.request.client_number()
    }

    fn would_wait(failure: &Failure) -> bool {
        would_wait(failure)
    }
}

fn would_wait(failure: &Failure) -> bool {
    matches!(failure, Failure::Query(error) if error.need().is_some())
}

impl Derive for Increments {
    type Answer = Response;
    type Error = Failure;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        Vec::new()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<Response>, Failure> {
        self.0.derive_stage(Stage::Increments, turn)
    }

    fn would_wait(failure: &Failure) -> bool {
        would_wait(failure)
    }
}

impl Derive for CounterPart {
    type Answer = ();
    type Error = Failure;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        let updates = self.increments.updates().iter();
        updates.map(|update| (update.table().id, update.key().token())).collect()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<()>, Failure> {
        let DerivedModification { processor, request, .. } = &*self.whole;
        let schema = processor.engine().borrow_schema();
        let counted = request.with(Statement::Text(""), |request, _| {
            let control = self.whole.control(turn);
            let execution = Execution::new(processor, &schema, request.parts(), &[], None, control);
            modify::counted(Some(self.increments.clone()), &execution)
        });
        Ok(Derived { mutation: counted.map_err(Failure::Query)?, answer: () })
    }

    fn would_wait(failure: &Failure) -> bool {
        would_wait(failure)
    }
}

impl DerivedModification {
    /// Writes it, under as many locks as it may hold.
    async fn write(self: &Arc<Self>, may_block: bool) -> Result<Response, Failure> {
        if self.partitions.len() > PARTITIONS_LOCKED_MAX {
            if self.is_divisible() {
                return self.write_in_parts(may_block).await;
            }
            if self.is_counter() {
                return self.count_in_parts().await;
            }
        }
        match self.processor.engine().write_derived(self, may_block).await {
            Err(Failure::Engine(EngineError::MutationTooLarge { .. })) if self.is_divisible() => {
                self.write_in_parts(may_block).await
            }
            written => written,
        }
    }

    fn control<'c>(&'c self, turn: Turn<'c>) -> Control<'c> {
        Control { turn, deadline: self.deadline, cancelled: Some(&self.is_over) }
    }

    fn derive_stage(&self, stage: Stage, turn: Turn<'_>) -> Result<Derived<Response>, Failure> {
        self.request.with(Statement::Text(""), |request, values| self.derive_for(request, values, stage, turn))
    }

    fn derive_for(
        &self,
        request: &Request<'_>,
        values: &[Value<'_>],
        stage: Stage,
        turn: Turn<'_>,
    ) -> Result<Derived<Response>, Failure> {
        let processor = &self.processor;
        let control = self.control(turn);
        let schema = processor.engine().borrow_schema();
        let current = |statement: &Arc<Prepared>| match statement.plan.is_current(&schema) {
            true => Ok(Arc::clone(statement)),
            false => processor.renew(statement),
        };
        let execution =
            |values, keyspace| Execution::new(processor, &schema, request.parts(), values, keyspace, control);
        let ((mutation, mut body), warnings) = match &self.modification {
            Modification::Statement(statement) => {
                let statement = current(statement).map_err(Failure::Query)?;
                let mut execution = execution(values, statement.keyspace.as_deref());
                let checked = processor.check_write_levels(&execution);
                let derived = checked.and_then(|()| match (&statement.plan.work, stage) {
                    (Work::Derived(modification), Stage::Totals) => modification.derive(&execution),
                    (Work::Derived(modification), Stage::Increments) => without_rows(modification.mutation(&execution)),
                    (Work::Batch(batch), Stage::Totals) => batch.derive(&execution),
                    (Work::Batch(batch), Stage::Increments) => without_rows(batch.mutation(&execution)),
                    _ => Err(QueryError::server("no modification")),
                });
                beside(derived, execution.take_warnings())?
            }
            Modification::Batch(kind, parts) => {
                let renew = |(statement, place): &(Arc<Prepared>, std::ops::Range<usize>)| {
                    Ok((current(statement)?, &values[place.clone()]))
                };
                let parts: Vec<_> =
                    parts.iter().map(renew).collect::<Result<_, QueryError>>().map_err(Failure::Query)?;
                let statements =
                    parts.iter().map(|(statement, values)| Ok((super::batch::modification(statement)?, *values)));
                let statements: Vec<_> = statements.collect::<Result<_, QueryError>>().map_err(Failure::Query)?;
                let keyspace = request.options.keyspace.or(request.client.keyspace.as_deref());
                let mut execution = execution(&[], keyspace);
                let checked = processor.check_write_levels(&execution);
                let derived = checked.and_then(|()| match stage {
                    Stage::Totals => modify::derive_batch(*kind, &statements, &execution),
                    Stage::Increments => without_rows(modify::batch_mutation(*kind, &statements, &execution)),
                });
                beside(derived, execution.take_warnings())?
            }
        };
        set_form(&mut body, |_| self.form);
        Ok(Derived { mutation, answer: Response { body, warnings } })
    }

    /// Whether it may be written in parts, because no atomicity was promised. Conditional modifications are written as
    /// a whole, and counters only under the locks.
    fn is_divisible(&self) -> bool {
        match &self.modification {
            Modification::Statement(statement) => match &statement.plan.work {
                Work::Derived(modification) => !modification.is_conditional() && !modification.is_counter(),
                Work::Batch(batch) => !batch.is_conditional() && !batch.is_counter(),
                _ => false,
            },
            Modification::Batch(_, parts) => {
                let is_whole = |(statement, _): &(Arc<Prepared>, _)| {
                    super::batch::modification(statement).is_ok_and(|plan| plan.is_conditional() || plan.is_counter())
                };
                !parts.iter().any(is_whole)
            }
        }
    }

    /// Whether it is a modification of counters. Others may not be in a batch with them.
    fn is_counter(&self) -> bool {
        match &self.modification {
            Modification::Statement(statement) => match &statement.plan.work {
                Work::Derived(modification) => modification.is_counter(),
                Work::Batch(batch) => batch.is_counter(),
                _ => false,
            },
            Modification::Batch(_, parts) => parts
                .iter()
                .any(|(statement, _)| super::batch::modification(statement).is_ok_and(|plan| plan.is_counter())),
        }
    }

    /// Counts the increments of some partitions at a time, on a thread that may block ([`needs_blocking_pool`]). An
    /// error leaves those counted that came before.
    async fn count_in_parts(self: &Arc<Self>) -> Result<Response, Failure> {
        const MAY_BLOCK: bool = true;
        let engine = self.processor.engine();
        let increments = Arc::new(Increments(Arc::clone(self)));
        let Derived { mutation, answer } = engine.derive_unlocked(&increments, MAY_BLOCK).await?;
        let updates = mutation.map(Mutation::into_updates).unwrap_or_default();
        // The increments wait for locks and for the log, and they are larger than the keys in the request.
        let _memory = self.take_memory(&updates).map_err(Failure::Query)?;
        for part in updates.chunks(PARTITIONS_LOCKED_MAX) {
            let part = CounterPart { whole: Arc::clone(self), increments: Mutation::new(part.to_vec()) };
            engine.write_derived(&Arc::new(part), MAY_BLOCK).await?;
        }
        Ok(answer)
    }

    /// Takes memory of the client's for these increments, if it is limited.
    fn take_memory(&self, increments: &[PartitionUpdate]) -> Result<Option<Lease>, QueryError> {
        let bytes = increments.iter().map(|update| update.as_bytes().len() + UPDATE_BYTES).sum();
        self.request.with(Statement::Text(""), |request, _| {
            let Some(memory) = &request.client.memory else { return Ok(None) };
            let mut lease = Lease::new(Arc::clone(memory));
            if lease.try_grow(bytes) { Ok(Some(lease)) } else { Err(QueryError::no_memory()) }
        })
    }

    /// Writes a mutation that is larger than a record of the log, or has too many partitions, without the locks: they
    /// cannot be held while a batch is written that repeatedly waits for memory.
    async fn write_in_parts(self: &Arc<Self>, may_block: bool) -> Result<Response, Failure> {
        let engine = self.processor.engine();
        let Derived { mutation, answer } = engine.derive_unlocked(self, may_block).await?;
        let Some(mutation) = mutation else { return Ok(answer) };
        let kind = match &self.modification {
            Modification::Batch(kind, _) => Some(*kind),
            Modification::Statement(statement) => match &statement.plan.work {
                Work::Batch(batch) => Some(batch.kind()),
                _ => None,
            },
        };
        match kind {
            Some(BatchKind::Logged) => engine.write_batch(&mutation).await?,
            _ => engine.write_parts(&mutation).await?,
        }
        Ok(answer)
    }
}

/// The effect of a modification that answers with no rows.
fn without_rows(mutation: Result<Option<Mutation>, QueryError>) -> Result<Effect, QueryError> {
    mutation.map(|mutation| (mutation, ResponseBody::Void))
}

/// The mutation and the answer of a modification.
type Effect = (Option<Mutation>, ResponseBody);

/// The effect with the warnings; an error has them too.
fn beside(effect: Result<Effect, QueryError>, warnings: Vec<String>) -> Result<(Effect, Vec<String>), Failure> {
    match effect {
        Ok(effect) => Ok((effect, warnings)),
        Err(error) => Err(Failure::Query(QueryError { warnings, ..error })),
    }
}
