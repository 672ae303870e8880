//! A request in flight and its time limit.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt};
use query::{Lease, Pending, TimeLimit};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};

use crate::connection_turn::{BYTES_PER_WEIGHT, PollTime, WEIGHT_OF_LARGE};
use crate::turn::Reply;

/// A future that resolves to the answer of a request, with the memory that the answer takes.
pub(crate) type AnswerFuture<P> = Pin<Box<dyn Future<Output = (Reply<P>, Option<Lease>)> + Send>>;

/// A request in flight. It resolves to its own answer, or to a timeout; a request that times out is cancelled.
pub(crate) struct InFlight<P> {
    reply: ReplyTo,
    /// The bytes that the request counts against the connection's limit.
    pub(crate) size_bytes: usize,
    work: Work<P>,
    /// When the client gets a timeout; known once the request was polled and still waits, or before.
    deadline: Option<Instant>,
    /// The timer is set once the request was polled and still waits. A request that never waits needs no timer.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The parts of an answer besides the answer itself.
#[derive(Debug, Default)]
pub(crate) struct ReplyTo {
    pub(crate) stream: i16,
    /// Few answers have any.
    pub(crate) extra: Option<Box<Extra>>,
}

/// The parts of an answer that few answers have.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Warnings for the client, in addition to those of the answer.
    pub(crate) warnings: Vec<String>,
    /// The id of the trace, if the request is traced.
    pub(crate) tracing_id: Option<[u8; 16]>,
}

impl ReplyTo {
    /// An answer on this stream without warnings and trace.
    pub(crate) fn plain(stream: i16) -> ReplyTo {
        ReplyTo { stream, extra: None }
    }

    /// An answer on this stream with warnings and the id of a trace.
    pub(crate) fn new(stream: i16, warnings: Vec<String>, tracing_id: Option<[u8; 16]>) -> ReplyTo {
        let is_plain = warnings.is_empty() && tracing_id.is_none();
        ReplyTo { stream, extra: (!is_plain).then(|| Box::new(Extra { warnings, tracing_id })) }
    }
}

enum Work<P> {
    /// The connection polls it in its turns.
    Pending(Box<Pending>),
    /// It runs on the blocking pool.
    Blocking(Box<Blocking<P>>),
    /// The request is answered.
    Over,
}

/// A request on the blocking pool.
pub(crate) struct Blocking<P> {
    pub(crate) answer: AnswerFuture<P>,
    pub(crate) limit: TimeLimit,
    pub(crate) deadline: Option<Instant>,
}

/// A request that is complete, with its answer.
pub(crate) struct Finished<P> {
    pub(crate) to: ReplyTo,
    pub(crate) size_bytes: usize,
    pub(crate) reply: Reply<P>,
    /// The memory of the answer, which is part of what its client may take. It is held until the answer is encoded.
    pub(crate) memory: Option<Lease>,
}

impl<P> InFlight<P> {
    /// A request that waits for the log or for memory.
    pub(crate) fn pending(reply: ReplyTo, size_bytes: usize, pending: Box<Pending>) -> InFlight<P> {
        InFlight { reply, size_bytes, work: Work::Pending(pending), deadline: None, timer: None }
    }

    /// A request on the blocking pool.
    pub(crate) fn blocking(reply: ReplyTo, size_bytes: usize, blocking: Blocking<P>) -> InFlight<P> {
        let deadline = blocking.deadline;
        InFlight { reply, size_bytes, work: Work::Blocking(Box::new(blocking)), deadline, timer: None }
    }

    /// The pending request, unless the request runs on the blocking pool.
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

    /// When the client gets a timeout; `None` if it never does. The limit begins at the `now` of the first call, so a
    /// statement that waits several times has it once.
    pub(crate) fn deadline(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if self.deadline.is_none() {
            self.deadline = self.limit().duration().map(|limit| now() + limit);
        }
        self.deadline
    }

    /// Whether the answer has no warnings and no trace.
    pub(crate) fn is_plain(&self) -> bool {
        self.reply.extra.is_none()
    }

    pub(crate) fn stream(&self) -> i16 {
        self.reply.stream
    }

    /// The weight of what the next poll may do.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        match self.as_pending() {
            Some(pending) => pending.write_bytes().map_or(WEIGHT_OF_LARGE, |bytes| bytes / BYTES_PER_WEIGHT),
            None => WEIGHT_OF_LARGE,
        }
    }

    /// Polls the request, but not its timer.
    pub(crate) fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<(Reply<P>, Option<Lease>)> {
        match &mut self.work {
            Work::Pending(pending) => pending.poll(context).map(|response| (Reply::Response(response), None)),
            Work::Blocking(blocking) => blocking.answer.as_mut().poll(context),
            Work::Over => Poll::Pending,
        }
    }

    /// Ends the request with this answer.
    pub(crate) fn finished(&mut self, (reply, memory): (Reply<P>, Option<Lease>)) -> Finished<P> {
        self.work = Work::Over;
        Finished { to: std::mem::take(&mut self.reply), size_bytes: self.size_bytes, reply, memory }
    }

    /// Ends the request with a timeout.
    pub(crate) fn time_out(&mut self) -> Finished<P> {
        // The engine finishes a write whose record is in the log. A write that still waits for memory or for room in
        // the log has no effect.
        let error = self.limit().error();
        self.finished((Reply::Response(Err(error)), None))
    }
}

impl<P> Future for InFlight<P> {
    type Output = Finished<P>;

    /// Polls the request first and then its timer.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished<P>> {
        if let Poll::Ready(answer) = self.poll_work(context) {
            return Poll::Ready(self.finished(answer));
        }
        let Some(deadline) = self.deadline(Instant::now) else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.time_out())
    }
}

/// A request in flight that its connection polls in turns. When the time of a turn is over, it wakes the connection,
/// and is polled in the next turn.
pub(crate) struct InTurns<P> {
    pub(crate) work: InFlight<P>,
    pub(crate) time: Arc<PollTime>,
}

impl<P> Future for InTurns<P> {
    type Output = Finished<P>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished<P>> {
        if self.time.is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.work).poll(context)
    }
}

/// Polls these requests to their ends, in turns, without their connection.
pub(crate) async fn finish<P>(mut requests: FuturesUnordered<InTurns<P>>, time: Arc<PollTime>) {
    poll_fn(|context| {
        time.begin();
        loop {
            match requests.poll_next_unpin(context) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if time.is_over() => {
                    // The runtime looks at sockets before it polls this task again.
                    let _ = pin!(yield_now()).poll(context);
                    return Poll::Pending;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(2);

    #[test]
    fn the_limit_of_a_request_that_waits_again_and_again_begins_once() {
        let limit = TimeLimit::truncate(LIMIT);
        let pending = Box::new(Pending::of_future(limit, std::future::pending()));
        let mut waiting = InFlight::<()>::pending(ReplyTo::plain(1), 0, pending);
        let began = Instant::now();
        for waits in 0..5 {
            let now = began + waits * Duration::from_secs(1);
            assert_eq!(waiting.deadline(|| now), Some(began + LIMIT), "after {waits} waits");
        }
    }

    #[test]
    fn a_request_on_the_pool_keeps_the_deadline_with_which_it_was_begun() {
        let deadline = Some(Instant::now());
        let blocking =
            Blocking { answer: Box::pin(std::future::pending()), limit: TimeLimit::truncate(LIMIT), deadline };
        let mut running = InFlight::<()>::blocking(ReplyTo::plain(1), 0, blocking);
        assert_eq!(running.deadline(Instant::now), deadline);
    }
}
