//! A request under way, with its time limit.

use crate::handler::QueryHandler;
use crate::reply::{Reply, error_response};
use crate::start::written;
use query::{
    BegunModification, Consistency, ErrorKind, QueryError, Response, ResponseBody, WriteType, without_waiting,
};
use std::future::{Future, pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Sleep, sleep};

/// So much work may wait for devices at a time, each on a thread of its own; more waits for its turn, without a thread.
/// Far fewer than the runtime has, which needs some for scans too.
const WAITING_MAX: usize = 64;

static WAITING: Semaphore = Semaphore::const_new(WAITING_MAX);

type Task<H> = Pin<Box<dyn Future<Output = Reply<H>> + Send>>;

/// What a request's work is.
// As with `Begun`.
#[allow(clippy::large_enum_variant)]
enum Work<H: QueryHandler> {
    /// Whatever it takes.
    Task(Task<H>),
    /// The log.
    Write(BegunModification),
}

impl<H: QueryHandler> Work<H> {
    fn poll(&mut self, stream: i16, cx: &mut Context<'_>) -> Poll<Finished<H>> {
        match self {
            Work::Task(task) => task.as_mut().poll(cx).map(Finished::Reply),
            Work::Write(write) => Pin::new(write).poll(cx).map(|response| match response {
                Ok(Response { body: ResponseBody::Void, warnings }) if warnings.is_empty() => Finished::Void(stream),
                response => Finished::Reply(written(stream, response)),
            }),
        }
    }
}

/// What came of it.
// As with `Begun`: what most work ends with is not moved.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Finished<H: QueryHandler> {
    /// An answer without rows and warnings, to the request of this stream.
    Void(i16),
    Reply(Reply<H>),
}

/// Work that will become a reply: its own, or a timeout. Work that is too late is given up.
pub(crate) struct InFlight<H: QueryHandler> {
    pub(crate) stream: i16,
    /// What the request counts against the connection's limit.
    pub(crate) size_bytes: usize,
    work: Option<Work<H>>,
    limit: TimeLimit,
    /// Set when the work was found waiting; work that never waits needs no timer.
    timer: Option<Pin<Box<Sleep>>>,
    cancellation: Option<Cancellation>,
}

/// Sets the flag of a request when it is dropped. The thread that carries out the request reads the flag and ends a
/// read whose client no longer waits.
struct Cancellation(Arc<AtomicBool>);

impl Drop for Cancellation {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long a request may take, and what its client gets when it takes longer.
#[derive(Clone, Debug)]
pub(crate) struct TimeLimit {
    duration: Option<Duration>,
    kind: ErrorKind,
    place: Place,
}

/// Where work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// With all else of its connection: it holds its thread for a moment only.
    Here,
    /// There too, while the runtime has another thread take over the other connections.
    HereForLong,
    /// On a thread of its own: it was found to wait for a device.
    WhereItMayWait,
    /// In a task of its own. It may hold its thread for long (a scan), or wait for other work of its connection (a drop
    /// of a table does, for the writes to it).
    Apart,
}

impl TimeLimit {
    pub(crate) const NONE: TimeLimit = TimeLimit { duration: None, kind: ErrorKind::Server, place: Place::HereForLong };
    pub(crate) const OF_SCHEMA_CHANGES: TimeLimit = TimeLimit { place: Place::Apart, ..TimeLimit::NONE };

    pub(crate) fn read(duration: Duration, consistency: Consistency) -> TimeLimit {
        let kind = ErrorKind::ReadTimeout { consistency, received: 0, block_for: 1, data_present: false };
        TimeLimit { duration: Some(duration), kind, place: Place::Here }
    }

    /// Says whether the work may hold its thread for long.
    pub(crate) fn blocking(self, blocks: bool) -> TimeLimit {
        TimeLimit { place: if blocks { Place::Apart } else { Place::Here }, ..self }
    }

    /// The same for work that was found to wait for a device.
    pub(crate) fn waiting(self) -> TimeLimit {
        TimeLimit { place: Place::WhereItMayWait, ..self }
    }

    pub(crate) fn write(duration: Duration, consistency: Consistency, write_type: WriteType) -> TimeLimit {
        let kind = ErrorKind::WriteTimeout { consistency, received: 0, block_for: 1, write_type, contentions: 0 };
        TimeLimit { duration: Some(duration), kind, place: Place::Here }
    }

    pub(crate) fn truncate(duration: Duration) -> TimeLimit {
        TimeLimit { duration: Some(duration), kind: ErrorKind::Truncate, place: Place::Apart }
    }

    /// Whether the work may hold its thread for long.
    pub(crate) fn blocks(&self) -> bool {
        self.place != Place::Here
    }

    fn error(&self) -> QueryError {
        let message = match self.kind {
            ErrorKind::Truncate => "Truncate timed out - received only 0 responses",
            _ => "Operation timed out - received only 0 responses.",
        };
        QueryError::new(self.kind.clone(), message)
    }
}

impl<H: QueryHandler> InFlight<H> {
    pub(crate) fn new(stream: i16, size_bytes: usize, limit: TimeLimit, task: Task<H>) -> InFlight<H> {
        let task = match limit.place {
            Place::Here | Place::HereForLong => task,
            Place::Apart => Box::pin(apart(task)),
            Place::WhereItMayWait => Box::pin(where_it_may_wait(task)),
        };
        InFlight { stream, size_bytes, work: Some(Work::Task(task)), limit, timer: None, cancellation: None }
    }

    /// The same, with a flag that is set when nobody waits for the work any more.
    pub(crate) fn cancelling(self, flag: Arc<AtomicBool>) -> InFlight<H> {
        InFlight { cancellation: Some(Cancellation(flag)), ..self }
    }

    /// Sets the request's flag, because its client no longer waits: a read ends soon, a modification is still finished.
    pub(crate) fn cancel(&mut self) {
        self.cancellation = None;
    }

    /// A modification that was begun.
    pub(crate) fn of_write(stream: i16, size_bytes: usize, limit: TimeLimit, write: BegunModification) -> InFlight<H> {
        InFlight { stream, size_bytes, work: Some(Work::Write(write)), limit, timer: None, cancellation: None }
    }

    /// The modification that was begun, if it is one.
    pub(crate) fn modification(&self) -> Option<&BegunModification> {
        match &self.work {
            Some(Work::Write(write)) => Some(write),
            _ => None,
        }
    }

    /// How long it may take.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.limit.duration
    }

    /// Polls the work, and nothing that limits its time.
    pub(crate) fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Finished<H>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let (outcome, has_to_wait) = match self.limit.place {
            Place::HereForLong => (tokio::task::block_in_place(|| work.poll(self.stream, cx)), false),
            Place::Here | Place::WhereItMayWait | Place::Apart => without_waiting(|| work.poll(self.stream, cx)),
        };
        if has_to_wait && let Some(Work::Task(task)) = self.work.take() {
            self.work = Some(Work::Task(Box::pin(where_it_may_wait(task))));
            return self.poll_work(cx);
        }
        if outcome.is_ready() {
            self.work = None;
        }
        outcome
    }

    /// Polls the work, and only then the clock.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<Finished<H>> {
        if let Poll::Ready(finished) = self.poll_work(cx) {
            return Poll::Ready(finished);
        }
        let Some(duration) = self.limit.duration else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(duration)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(Finished::Reply(self.time_out()))
    }

    /// The answer when it took too long.
    pub(crate) fn time_out(&mut self) -> Reply<H> {
        // The engine finishes a write whose record is in the log; one that still waits for memory or for room in the
        // log never gets there.
        self.work = None;
        self.cancellation = None;
        Reply::new(self.stream, Err(error_response(self.limit.error())))
    }
}

/// Does work that may hold its thread for long in a task of its own: the clock runs meanwhile, and the connection's
/// other work goes on. It is done to its end even if nobody waits any more.
async fn apart<H: QueryHandler>(mut work: Task<H>) -> Reply<H> {
    let task = tokio::spawn(poll_fn(move |cx| tokio::task::block_in_place(|| work.as_mut().poll(cx))));
    reply_of(task.await).await
}

/// Does work that has to wait for a device on a thread of its own: none of those that serve connections stands still
/// with the device.
async fn where_it_may_wait<H: QueryHandler>(work: Task<H>) -> Reply<H> {
    let turn = WAITING.acquire().await;
    let runtime = Handle::current();
    let task = spawn_blocking(move || {
        let reply = runtime.block_on(work);
        drop(turn);
        reply
    });
    reply_of(task.await).await
}

/// The reply of a task, or its panic.
async fn reply_of<H: QueryHandler>(outcome: Result<Reply<H>, JoinError>) -> Reply<H> {
    match outcome.map_err(JoinError::try_into_panic) {
        Ok(reply) => reply,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime is shutting down, and all that wait with it.
        Err(Err(_)) => pending().await,
    }
}

impl<H: QueryHandler> Future for InFlight<H> {
    /// The size that the request no longer counts for, and what came of it.
    type Output = (usize, Finished<H>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_finished(cx).map(|finished| (self.size_bytes, finished))
    }
}
