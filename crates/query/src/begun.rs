//! A modification that was begun and waits for the log alone: none of the request has to outlive its beginning.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use engine::{BegunWrite, Engine, EngineError};

use crate::execution::Execution;
use crate::prepared::Plan;
use crate::processor::with_warnings;
use crate::{ClientState, Prepared, Processor, QueryError, QueryOptions, Response, ResponseBody, Values};

/// What became of a modification that was begun.
// What waits is kept by value: to box it would be the allocation that its one update does without.
#[allow(clippy::large_enum_variant)]
pub enum Begun {
    /// It is done: an answer without rows, with these warnings.
    Done(Vec<String>),
    /// It waits for the log.
    Waiting(BegunModification),
}

/// Resolves to the answer. Dropped before, the write is finished all the same.
#[must_use = "it is answered when it is ready"]
pub struct BegunModification {
    /// Or why the engine refused it.
    write: Result<BegunWrite, (Arc<Engine>, EngineError)>,
    warnings: Vec<String>,
}

impl Processor {
    /// Begins a prepared INSERT, UPDATE or DELETE: its record is in the log when this returns. `None` where it would
    /// have to wait for more than the log, writes nothing or is invalid, if it is not current any more, and for
    /// everything else, without any effect: [`Processor::execute`] carries it out, or says why not.
    pub fn begin(&self, prepared: &Prepared, client: &ClientState, options: &QueryOptions<'_>) -> Option<Begun> {
        let (Plan::Modification(modification), Values::Positional(values)) = (&prepared.plan, options.values) else {
            return None;
        };
        if options.trace.is_some() || prepared.variables.len() != values.len() {
            return None;
        }
        let schema = self.engine().borrow_schema();
        if !prepared.is_current(&schema) {
            return None;
        }
        let execution = Execution::new(self, client, options, values, prepared.keyspace.as_deref(), &schema);
        let (mutation, _) = engine::without_waiting(|| modification.mutation(&execution));
        let mutation = mutation.ok()??;
        let warnings = execution.into_warnings();
        // What waits is large: it is moved only if it does.
        let write = match self.engine().begin_write(&schema, mutation) {
            Ok(Some(write)) if write.is_done() => return Some(Begun::Done(warnings)),
            Ok(Some(write)) => Ok(write),
            Ok(None) => return None,
            Err(refusal) => Err((Arc::clone(self.engine()), refusal)),
        };
        Some(Begun::Waiting(BegunModification { write, warnings }))
    }
}

impl BegunModification {
    /// Has memtables bring near what these will look at first, as [`BegunWrite::prefetch`] does.
    pub fn prefetch<'m>(modifications: impl Iterator<Item = &'m BegunModification>) {
        BegunWrite::prefetch(modifications.filter_map(|modification| modification.write.as_ref().ok()));
    }
}

impl Future for BegunModification {
    type Output = Result<Response, QueryError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (written, engine) = match &mut this.write {
            Ok(write) => match Pin::new(&mut *write).poll(context) {
                Poll::Ready(written) => (written, write.engine()),
                Poll::Pending => return Poll::Pending,
            },
            // What the engine refused is counted there; it is not asked again.
            Err((engine, refusal)) => (Err(refusal.clone()), Some(&**engine)),
        };
        let body = written.map(|()| ResponseBody::Void).map_err(QueryError::from);
        let warnings = std::mem::take(&mut this.warnings);
        Poll::Ready(match engine {
            Some(engine) => with_warnings(body, warnings, engine),
            None => body.map(|body| Response { body, warnings }),
        })
    }
}
