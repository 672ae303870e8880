//! Requests that concern statements: beginning them, and taking on those that have to wait. The `hold` is the batch of
//! wake-ups of the log that this turn's appends join, if there is one.

use super::{Connection, OUTPUT_OF_WRITES_BYTES_MAX, OUTPUT_WAITING_BYTES_MAX};
use crate::connection_turn::ConnectionTurn;
use crate::in_flight::{InFlight, InTurns};
use crate::turn::{Reply, Requests, Started};
use bytes::Bytes;
use futures_util::stream::StreamExt;
use protocol::response::write_void;
use protocol::{
    Body, DecodeError, Envelope, ErrorKind, ErrorResponse, Header, Opcode, Request, ResponseHead, executed_statement,
};
use query::{LogHold, QueryHandler, Response, ResponseBody, Turn};
use std::future::Future;
use std::iter;
use std::mem::take;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, sleep_until};

/// The number of requests in the buffer that are prefetched together. The memory system can load their data at the same
/// time, and the data stays in the cache until the requests are begun.
const REQUESTS_PREFETCHED: usize = 32;

impl<H: QueryHandler> Connection<H> {
    /// Prefetches the memory that the requests in the buffer will read. Only requests that execute statements which the
    /// client has used before are prefetched. Returns the number of requests that were examined, at least 1. After
    /// these, the caller should prefetch again.
    pub(super) fn prefetch(&mut self) -> usize {
        if !self.decoder.holds_several() {
            return 1;
        }
        let mut count = 0;
        let (statements, mut ahead) = (&self.statements, self.decoder.ahead().take(REQUESTS_PREFETCHED));
        // One closure: the compiler calls the stages of a longer chain of iterators one by one.
        self.shared.handler.prefetch(iter::from_fn(|| {
            loop {
                let (header, body) = ahead.next()?;
                count += 1;
                let Some(statement) = executed_statement(&header, body).and_then(|id| statements.known(id)) else {
                    continue;
                };
                let values = move || match Body::parse(&header, body).ok()?.request {
                    Request::Execute { options, .. } => Some(options.values),
                    _ => None,
                };
                return Some((&**statement, values));
            }
        }));
        count.max(1)
    }

    /// Begins the next request. A request that lies in the buffer as a whole is read in place, and any other from a
    /// copy. Returns the bytes of its body, or `None` if there is no request.
    pub(super) fn begin_next(
        &mut self,
        turn: Turn<'_>,
        hold: Option<&LogHold>,
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, DecodeError> {
        if self.agreement.is_some()
            && self.shared.request_rate.is_none()
            && !self.overloaded()
            && let Some((header, body)) = self.decoder.peek()
            && is_for_statements(header.opcode)
        {
            let mut requests = Requests {
                shared: &self.shared,
                session: &mut self.session,
                encoder: &mut self.encoder,
                turn,
                executes: &mut self.executes,
            };
            let size_bytes = body.len();
            let owned = || Bytes::copy_from_slice(body);
            let started = requests.begin(&mut self.statements, &header, body, &owned);
            self.decoder.pass(&header);
            // Most requests are complete here, so the larger states are not moved before they are needed.
            if !matches!(started, Started::Written) {
                self.track(started, hold, cx);
            }
            return Ok(Some(size_bytes));
        }
        if self.checks_login() {
            return Ok(None);
        }
        let Some(envelope) = self.decoder.next_envelope()? else { return Ok(None) };
        let size_bytes = envelope.body.len();
        self.accept(envelope, turn, hold, cx);
        Ok(Some(size_bytes))
    }

    /// Accepts a request that did not lie in the buffer as a whole, or that concerns the connection itself.
    pub(super) fn accept(&mut self, envelope: Envelope, turn: Turn<'_>, hold: Option<&LogHold>, cx: &mut Context<'_>) {
        let Envelope { header, body } = envelope;
        let (stream, opcode) = (header.stream, header.opcode);
        if is_for_statements(opcode) && self.agreement.is_some() {
            return self.begin(&header, &body, turn, hold, cx);
        }
        self.shared.metrics.requests.add(1);
        if self.pending_login.is_some() {
            return self.accept_login(&header, &body);
        }
        if self.agreement.is_none() {
            self.encoder.set_version(header.version);
            if !matches!(opcode, Opcode::Startup | Opcode::Options) {
                let name = opcode.name();
                return self.protocol_error(stream, format!("Unexpected message {name}, expecting STARTUP or OPTIONS"));
            }
        }
        if opcode == Opcode::Startup && self.agreement.is_some() {
            let message = "Unexpected message STARTUP, the connection is already initialized";
            return self.protocol_error(stream, message.into());
        }
        let outcome = match Body::parse(&header, &body) {
            Ok(body) => self.answer_control(stream, header.version, body.request),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.protocol_error(stream, error.message);
        }
    }

    pub(super) fn begin(
        &mut self,
        header: &Header,
        body: &Bytes,
        turn: Turn<'_>,
        hold: Option<&LogHold>,
        cx: &mut Context<'_>,
    ) {
        if let Some(message) = self.refusal() {
            self.shared.metrics.requests.add(1);
            self.shared.metrics.requests_discarded.add(1);
            return self.answer_error(header.stream, ErrorResponse::new(ErrorKind::Overloaded, message));
        }
        let mut requests = Requests {
            shared: &self.shared,
            session: &mut self.session,
            encoder: &mut self.encoder,
            turn,
            executes: &mut self.executes,
        };
        let started = requests.begin(&mut self.statements, header, body, &|| body.clone());
        self.track(started, hold, cx);
    }

    pub(super) fn track(&mut self, started: Started<H::Plan>, hold: Option<&LogHold>, cx: &mut Context<'_>) {
        match started {
            Started::Written => {}
            Started::Answered(to, reply) => self.answer(to, *reply),
            Started::InFlight(work) => {
                self.running_bytes += work.size_bytes;
                self.poll_work(work, hold, cx);
            }
        }
    }

    /// Polls a request in flight. If it still waits, it goes to the log's queue or to the running requests.
    pub(super) fn poll_work(&mut self, mut work: InFlight<H::Plan>, hold: Option<&LogHold>, cx: &mut Context<'_>) {
        match work.poll_work(cx) {
            Poll::Ready((Reply::Response(Ok(Response { body: ResponseBody::Void, warnings })), _))
                if warnings.is_empty() && work.is_plain() =>
            {
                self.running_bytes -= work.size_bytes;
                self.encoder.envelope(&ResponseHead::new(work.stream(), Opcode::Result), write_void);
            }
            Poll::Ready(answer) => {
                let finished = work.finished(answer);
                self.answer_finished(finished);
            }
            Poll::Pending => match hold.and_then(LogHold::take_awaited) {
                Some(awaited) => {
                    let now = &mut self.now;
                    let deadline = work.deadline(|| now.get_or_insert_with(Instant::now).into_std());
                    self.log_queue.push(awaited, deadline, work);
                }
                None => {
                    self.moved_requests += 1;
                    let queue = if work.as_pending().is_some() { &mut self.writing } else { &mut self.running };
                    queue.push(InTurns { work, time: Arc::clone(&self.poll_time) });
                }
            },
        }
    }

    pub(super) fn count_executes(&mut self) {
        let started = take(&mut self.executes);
        if started > 0 {
            self.shared.metrics.requests.add(started);
            self.shared.metrics.prepared_statements_executed.add(started);
        }
    }

    /// Whether writes in flight may be finished, even if the client does not read their answers.
    pub(super) fn may_finish_writes(&mut self) -> bool {
        let pending_bytes = self.encoder.pending_bytes();
        if pending_bytes < OUTPUT_WAITING_BYTES_MAX {
            self.output_bytes_max = None;
            return true;
        }
        pending_bytes < *self.output_bytes_max.get_or_insert(pending_bytes + OUTPUT_OF_WRITES_BYTES_MAX)
    }

    pub(super) fn collect_settled(
        &mut self,
        hold: Option<&LogHold>,
        connection_turn: &mut ConnectionTurn,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(hold) = hold.filter(|_| !self.log_queue.is_empty()) else { return false };
        let mut progress = false;
        while !connection_turn.is_over() && self.may_finish_writes() {
            if let Some(work) = self.log_queue.next_settled(hold, cx) {
                connection_turn.count_polled(work.weight());
                self.poll_work(work, Some(hold), cx);
            } else if let Some(mut late) = self.next_late(cx) {
                self.answer_finished(late.time_out());
            } else {
                break;
            }
            progress = true;
        }
        progress
    }

    /// The next request in the log's queue that has timed out. If it returns `None`, the timer wakes `cx` for the next
    /// request that may time out.
    pub(super) fn next_late(&mut self, cx: &mut Context<'_>) -> Option<InFlight<H::Plan>> {
        loop {
            let deadline = self.log_queue.first_deadline();
            let timer = match &mut self.late {
                Some(timer) => timer,
                timer => timer.insert(Box::pin(sleep_until(deadline?.into()))),
            };
            if self.log_queue.is_empty() || timer.as_mut().poll(cx).is_pending() {
                return None;
            }
            self.late = None;
            if let Some(late) = self.log_queue.take_late(std::time::Instant::now()) {
                return Some(late);
            }
        }
    }

    pub(super) fn collect_finished(&mut self, connection_turn: &mut ConnectionTurn, cx: &mut Context<'_>) -> bool {
        if connection_turn.is_over() || (self.writing.is_empty() && self.running.is_empty()) {
            return false;
        }
        let mut progress = false;
        self.poll_time.begin();
        while !self.writing.is_empty() && self.may_finish_writes() {
            let Poll::Ready(Some(finished)) = self.writing.poll_next_unpin(cx) else { break };
            self.answer_finished(finished);
            progress = true;
        }
        while !self.running.is_empty() && self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(cx) else { break };
            self.answer_finished(finished);
            progress = true;
        }
        if self.poll_time.is_over() {
            connection_turn.end();
        }
        progress
    }

    /// Cancels the requests on the blocking pool, so that no scan outlives its client. A client that closed its end
    /// counts as gone, even if it closed one direction only, as in Cassandra.
    pub(super) fn give_up_blocking(&mut self) {
        self.running.clear();
    }
}

/// Whether requests of this kind concern statements. All others concern the connection itself.
fn is_for_statements(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch)
}
