//! The outcomes of a request that was begun.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Instant;

use engine::PendingWrite;

use super::TimeLimit;
use crate::processor::with_warnings;
use crate::{Need, QueryError, Response};

/// The outcome of a request that was begun. Its contents are boxed, because moving them several times costs more than
/// an allocation.
pub enum Outcome {
    /// The request is done.
    Done(Answer),
    /// The request waits for the log or for memory.
    Pending(Box<Pending>),
    /// The request has had no effect yet, and has to run on the blocking pool.
    MustBlock(Box<MustBlock>),
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The body of its RESULT was appended to the output. There are no warnings.
    Written,
    /// The answer was not written yet.
    Response(Box<Result<Response, QueryError>>),
}

impl Outcome {
    /// A request that is done, with its answer.
    pub fn done(response: Result<Response, QueryError>) -> Outcome {
        Outcome::Done(Answer::Response(Box::new(response)))
    }

    pub(super) fn failed(error: QueryError) -> Outcome {
        Outcome::done(Err(error))
    }

    /// The answer to a request that was begun without an output on a thread that may block.
    pub fn into_response(self) -> Result<Response, QueryError> {
        match self {
            Outcome::Done(Answer::Response(response)) => *response,
            Outcome::Done(Answer::Written) => Err(QueryError::server("an answer was written to no output")),
            Outcome::Pending(pending) => pending.wait(),
            Outcome::MustBlock(work) => work.run(None),
        }
    }
}

/// A request that waits for the log or for memory. It needs the bytes of its frame no longer. If it is dropped before
/// it is ready, a write that is in the log is finished in the background, and any other write has no effect.
#[must_use = "it is answered when it is ready"]
pub struct Pending {
    work: PendingWork,
    warnings: Vec<String>,
    limit: TimeLimit,
}

#[allow(clippy::large_enum_variant, reason = "a `Pending` is boxed already")]
pub(super) enum PendingWork {
    Write(PendingWrite),
    Future(Pin<Box<dyn Future<Output = Result<Response, QueryError>> + Send>>),
}

impl Pending {
    pub(super) fn new(work: PendingWork, warnings: Vec<String>, limit: TimeLimit) -> Pending {
        Pending { work, warnings, limit }
    }

    /// A request that a future answers.
    pub fn of_future(
        limit: TimeLimit,
        future: impl Future<Output = Result<Response, QueryError>> + Send + 'static,
    ) -> Pending {
        Pending::new(PendingWork::Future(Box::pin(future)), Vec::new(), limit)
    }

    /// The time limit.
    pub fn limit(&self) -> &TimeLimit {
        &self.limit
    }

    /// The size of the mutation that it writes, bytes; `None` if it may do more than to write one.
    #[inline]
    pub fn write_bytes(&self) -> Option<usize> {
        match &self.work {
            PendingWork::Write(write) => Some(write.size_bytes()),
            PendingWork::Future(_) => None,
        }
    }

    /// Polls it. If it is still pending and waits for the log alone, the thread's batch of wake-ups, if it holds one,
    /// says for which position ([`engine::LogHold::take_awaited`]), and `context` is not woken; otherwise it is.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Response, QueryError>> {
        match &mut self.work {
            PendingWork::Write(write) => {
                let Poll::Ready(written) = Pin::new(&mut *write).poll(context) else { return Poll::Pending };
                let warnings = std::mem::take(&mut self.warnings);
                Poll::Ready(match (written, write.engine()) {
                    (Ok(()), _) => Ok(Response::void(warnings)),
                    (Err(error), Some(engine)) => with_warnings(Err(error.into()), warnings, engine),
                    (Err(error), None) => Err(QueryError { warnings, ..error.into() }),
                })
            }
            PendingWork::Future(future) => {
                let Poll::Ready(mut response) = future.as_mut().poll(context) else { return Poll::Pending };
                let warnings = match &mut response {
                    Ok(response) => &mut response.warnings,
                    Err(error) => &mut error.warnings,
                };
                warnings.append(&mut self.warnings);
                Poll::Ready(response)
            }
        }
    }

    /// Waits for the answer on this thread.
    pub fn wait(self) -> Result<Response, QueryError> {
        self.wait_until(None)
    }

    /// Waits for the answer on this thread, until the deadline at most. Then the request is dropped, and the answer is
    /// a timeout.
    pub(super) fn wait_until(mut self, deadline: Option<Instant>) -> Result<Response, QueryError> {
        let limit = self.limit;
        let answer = std::future::poll_fn(move |context| self.poll(context));
        engine::block_on_until(answer, deadline).unwrap_or_else(|| Err(limit.error()))
    }

    /// Prefetches the memory that these requests will read. Call it for eight requests or more whose records are
    /// settled, right before they are polled.
    pub(super) fn prefetch<'p>(pending: impl Iterator<Item = &'p Pending>) {
        PendingWrite::prefetch(pending.filter_map(|pending| match &pending.work {
            PendingWork::Write(write) => Some(write),
            PendingWork::Future(_) => None,
        }));
    }
}

type Run = dyn FnOnce(Option<Instant>, &AtomicBool) -> Result<Response, QueryError> + Send;

/// A request for the blocking pool. It owns all that it needs.
pub struct MustBlock {
    run: Box<Run>,
    limit: TimeLimit,
    need: Need,
    cancelled: Arc<AtomicBool>,
}

impl MustBlock {
    /// A request that `run` executes. Its arguments are the deadline, at which the client gets a timeout, and a flag
    /// that is set when nobody waits for the answer any more.
    pub fn new(
        limit: TimeLimit,
        need: Need,
        run: impl FnOnce(Option<Instant>, &AtomicBool) -> Result<Response, QueryError> + Send + 'static,
    ) -> MustBlock {
        MustBlock { run: Box::new(run), limit, need, cancelled: Arc::default() }
    }

    /// The time limit.
    pub fn limit(&self) -> &TimeLimit {
        &self.limit
    }

    /// The reason why the request needs another thread.
    pub fn need(&self) -> Need {
        self.need
    }

    /// The flag to set when nobody waits for the answer any more. A scan then ends soon. A request that has not begun
    /// need not be run.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    /// Executes the request on this thread.
    pub fn run(self, deadline: Option<Instant>) -> Result<Response, QueryError> {
        (self.run)(deadline, &self.cancelled)
    }

    /// Executes the request on this thread as a part of another one, which has this flag.
    pub(crate) fn run_with(self, deadline: Option<Instant>, cancelled: &AtomicBool) -> Result<Response, QueryError> {
        (self.run)(deadline, cancelled)
    }
}
