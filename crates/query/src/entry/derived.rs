//! Modifications that read before they write: conditional ones, and those that name elements of lists by index or by
//! value. They run under the locks of their partitions, which the engine keeps.

use std::sync::Arc;

use cql::ast::BatchKind;
use engine::{Derive, Derived, EngineError, Turn};
use model::{Mutation, TableId};
use protocol::MetadataForm;
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
use crate::{Processor, QueryError, Response, ResponseBody, Value};

/// The modification or the batch.
pub(super) enum Modifying {
    Statement(Arc<Prepared>),
    Batch(BatchKind, Arc<Parts>),
}

/// A modification that owns all that its execution needs.
struct Deriving {
    processor: Arc<Processor>,
    modifying: Modifying,
    request: OwnedRequest,
    partitions: Vec<(TableId, Token)>,
    form: MetadataForm,
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
        modifying: Modifying,
        partitions: Vec<(TableId, Token)>,
        (request, values): (&Request<'_>, &[Value<'_>]),
        columns: Columns<'_>,
        class: Class,
        turn: Turn<'_>,
    ) -> Outcome {
        // As in Cassandra, only the answer to a QUERY lacks its columns if the client asks for that.
        let skip = matches!(columns, Columns::Asked) && request.options.skip_metadata;
        let deriving = Arc::new(Deriving {
            processor: Arc::clone(self),
            modifying,
            request: OwnedRequest::new(request, values),
            partitions,
            form: MetadataForm { skip, changed_id: None },
        });
        let limit = self.time_limit(class, request.options);
        let (engine, may_block) = (Arc::clone(self.engine()), turn.may_block);
        let future = async move {
            let written = match engine.write_derived(&deriving, may_block).await {
                Err(Failure::Engine(EngineError::MutationTooLarge { .. })) if deriving.is_divisible() => {
                    deriving.write_in_parts().await
                }
                written => written,
            };
            written.map_err(|failure| noted(failure.into(), &engine))
        };
        let pending = Pending::new(PendingWork::Future(Box::pin(future)), Vec::new(), limit);
        match may_block {
            true => Outcome::done(pending.wait()),
            false => Outcome::Pending(Box::new(pending)),
        }
    }
}

impl Derive for Deriving {
    type Answer = Response;
    type Error = Failure;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        self.partitions.clone()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<Response>, Failure> {
        self.request.with(Statement::Text(""), |request, values| self.derive_for(request, values, turn))
    }

    fn would_wait(failure: &Failure) -> bool {
        matches!(failure, Failure::Query(error) if error.need().is_some())
    }
}

impl Deriving {
    fn derive_for(
        &self,
        request: &Request<'_>,
        values: &[Value<'_>],
        turn: Turn<'_>,
    ) -> Result<Derived<Response>, Failure> {
        let processor = &self.processor;
        let control = Control { turn: Turn { log_hold: None, ..turn }, deadline: None, cancelled: None };
        let schema = processor.engine().borrow_schema();
        let current = |statement: &Arc<Prepared>| match statement.plan.is_current(&schema) {
            true => Ok(Arc::clone(statement)),
            false => processor.renew(statement),
        };
        let execution =
            |values, keyspace| Execution::new(processor, &schema, request.parts(), values, keyspace, control);
        let ((mutation, mut body), warnings) = match &self.modifying {
            Modifying::Statement(statement) => {
                let statement = current(statement).map_err(Failure::Query)?;
                let mut execution = execution(values, statement.keyspace.as_deref());
                let checked = processor.check_write_levels(&execution);
                let derived = checked.and_then(|()| match &statement.plan.work {
                    Work::Derived(modification) => modification.derive(&execution),
                    Work::Batch(batch) => batch.derive(&execution),
                    _ => Err(QueryError::server("no modification")),
                });
                beside(derived, execution.take_warnings())?
            }
            Modifying::Batch(kind, parts) => {
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
                let derived = checked.and_then(|()| modify::derive_batch(*kind, &statements, &execution));
                beside(derived, execution.take_warnings())?
            }
        };
        set_form(&mut body, |_| self.form);
        Ok(Derived { mutation, answer: Response { body, warnings } })
    }

    /// Whether it may be written in parts, because no atomicity was promised. Conditional modifications are written as
    /// a whole, and counters only under the locks.
    fn is_divisible(&self) -> bool {
        match &self.modifying {
            Modifying::Statement(statement) => match &statement.plan.work {
                Work::Derived(modification) => !modification.is_conditional() && !modification.is_counter(),
                Work::Batch(batch) => !batch.is_conditional() && !batch.is_counter(),
                _ => false,
            },
            Modifying::Batch(_, parts) => {
                let is_whole = |(statement, _): &(Arc<Prepared>, _)| {
                    super::batch::modification(statement).is_ok_and(|plan| plan.is_conditional() || plan.is_counter())
                };
                !parts.iter().any(is_whole)
            }
        }
    }

    /// Writes a mutation that is larger than a record of the log, without the locks: they cannot be held while a batch
    /// is written that repeatedly waits for memory.
    async fn write_in_parts(&self) -> Result<Response, Failure> {
        let Derived { mutation, answer } = self.derive(Turn::BLOCKING)?;
        let Some(mutation) = mutation else { return Ok(answer) };
        let engine = self.processor.engine();
        let kind = match &self.modifying {
            Modifying::Batch(kind, _) => Some(*kind),
            Modifying::Statement(statement) => match &statement.plan.work {
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

/// The mutation and the answer of a modification.
type Effect = (Option<Mutation>, ResponseBody);

/// The effect with the warnings; an error has them too.
fn beside(effect: Result<Effect, QueryError>, warnings: Vec<String>) -> Result<(Effect, Vec<String>), Failure> {
    match effect {
        Ok(effect) => Ok((effect, warnings)),
        Err(error) => Err(Failure::Query(QueryError { warnings, ..error })),
    }
}
