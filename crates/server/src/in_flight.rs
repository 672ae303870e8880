//! A request under way, with its time limit.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use query::{Pending, QueryError, Response, TimeLimit, Turn};
use tokio::time::{Sleep, sleep, sleep_until};

/// A future that answers a request.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Response, QueryError>> + Send>>;

/// A request that becomes an answer: its own, or that it took too long. One that is too late is given up.
pub(crate) struct InFlight {
    reply: ReplyTo,
    /// What it counts against the connection's limit.
    pub(crate) size_bytes: usize,
    work: Work,
    /// Set when it was found waiting; a request that never waits needs no timer.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What goes into the answer to a request beside the answer itself.
#[derive(Debug, Default)]
pub(crate) struct ReplyTo {
    pub(crate) stream: i16,
    /// Of a few.
    pub(crate) extra: Option<Box<Extra>>,
}

/// What goes into few answers.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// For the client to log, beside the answer's own warnings.
    pub(crate) warnings: Vec<String>,
    /// Of a request that is traced.
    pub(crate) tracing_id: Option<[u8; 16]>,
}

impl ReplyTo {
    /// The answer to a request of this stream, with nothing beside it.
    pub(crate) fn plain(stream: i16) -> ReplyTo {
        ReplyTo { stream, extra: None }
    }

    /// An answer with these warnings, if there are any, and this id, if there is one.
    pub(crate) fn new(stream: i16, warnings: Vec<String>, tracing_id: Option<[u8; 16]>) -> ReplyTo {
        let is_plain = warnings.is_empty() && tracing_id.is_none();
        ReplyTo { stream, extra: (!is_plain).then(|| Box::new(Extra { warnings, tracing_id })) }
    }
}

enum Work {
    /// It is polled with the connection's turn.
    Pending(Box<Pending>),
    /// It runs on a thread that may wait.
    Blocking(Box<Blocking>),
    /// It is answered.
    Over,
}

/// A request that runs on a thread that may wait.
pub(crate) struct Blocking {
    pub(crate) answering: Answering,
    pub(crate) limit: TimeLimit,
    pub(crate) deadline: Option<Instant>,
}

/// What became of a request.
pub(crate) struct Finished {
    pub(crate) reply: ReplyTo,
    pub(crate) size_bytes: usize,
    pub(crate) response: Result<Response, QueryError>,
}

impl InFlight {
    /// A request that waits for the log or for memory.
    pub(crate) fn pending(reply: ReplyTo, size_bytes: usize, pending: Box<Pending>) -> InFlight {
        InFlight { reply, size_bytes, work: Work::Pending(pending), timer: None }
    }

    /// A request that runs on a thread that may wait.
    pub(crate) fn blocking(reply: ReplyTo, size_bytes: usize, blocking: Blocking) -> InFlight {
        InFlight { reply, size_bytes, work: Work::Blocking(Box::new(blocking)), timer: None }
    }

    /// The pending request that it is, if it is one.
    pub(crate) fn as_pending(&self) -> Option<&Pending> {
        match &self.work {
            Work::Pending(pending) => Some(pending),
            Work::Blocking(_) | Work::Over => None,
        }
    }

    fn limit(&self) -> TimeLimit {
        match &self.work {
            Work::Pending(pending) => *pending.limit(),
            Work::Blocking(blocking) => blocking.limit,
            Work::Over => TimeLimit::NONE,
        }
    }

    /// How long it may take from now on.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.limit().duration()
    }

    /// Whether its client needs nothing beside the answer itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.reply.extra.is_none()
    }

    pub(crate) fn stream(&self) -> i16 {
        self.reply.stream
    }

    /// Polls the work, and nothing that limits its time.
    pub(crate) fn poll_work(
        &mut self,
        turn: Turn<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response, QueryError>> {
        match &mut self.work {
            Work::Pending(pending) => pending.poll(turn, context),
            Work::Blocking(blocking) => blocking.answering.as_mut().poll(context),
            Work::Over => Poll::Pending,
        }
    }

    /// What became of it.
    pub(crate) fn finished(&mut self, response: Result<Response, QueryError>) -> Finished {
        self.work = Work::Over;
        Finished { reply: std::mem::take(&mut self.reply), size_bytes: self.size_bytes, response }
    }

    /// Gives it up, because it took too long.
    pub(crate) fn time_out(&mut self) -> Finished {
        // The engine finishes a write whose record is in the log; one that still waits for memory or for room in the
        // log never gets there.
        let error = self.limit().error();
        self.finished(Err(error))
    }
}

impl Future for InFlight {
    type Output = Finished;

    /// Polls the work, and only then the clock.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        if let Poll::Ready(response) = self.poll_work(Turn::NON_BLOCKING, context) {
            return Poll::Ready(self.finished(response));
        }
        let Some(duration) = self.time_limit() else { return Poll::Pending };
        let deadline = match &self.work {
            Work::Blocking(blocking) => blocking.deadline,
            Work::Pending(_) | Work::Over => None,
        };
        let timer = self.timer.get_or_insert_with(|| match deadline {
            Some(deadline) => Box::pin(sleep_until(deadline.into())),
            None => Box::pin(sleep(duration)),
        });
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.time_out())
    }
}
