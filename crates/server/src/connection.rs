//! One client's connection. It turns bytes into requests, and answers into bytes.
//!
//! A connection is one task that works in turns. A request that is complete when it is begun is answered in the same
//! turn. A request that waits for the log joins a queue, whose requests are answered together. Any other request that
//! waits joins the set of running requests, which are answered in any order. A turn ends with one write of all answers
//! that became ready in it.
//!
//! Memory is bounded by back-pressure. A connection is not read while it has too many requests in flight, while its
//! client does not read the answers, or while the node has no memory left for it (`limits.rs`).

mod admission;
mod answers;
mod control;
mod requests;
mod socket;

use crate::Shared;
use crate::blocking_pool::WorkSource;
use crate::connection_turn::{ConnectionTurn, PollTime, WEIGHT_OF_LARGE, WEIGHT_OF_MOVED, WEIGHT_OF_TURN};
use crate::events::Subscription;
use crate::idle_check::{ConnectionState, IdleCheck, Start, Verdict};
use crate::in_flight::{InFlight, InTurns, finish};
use crate::limits::{Account, ConnectionPermit, FIRST_REQUEST_BYTES_MAX, FREE_BYTES};
use crate::login::PendingLogin;
use crate::prepared::RecentStatements;
use crate::session::Session;
use crate::startup::Agreement;
use crate::stream::Stream;
use futures_util::stream::FuturesUnordered;
use protocol::{Decoder, Encoder, EventType, Version};
use query::{LogHold, LogQueue, QueryHandler, Turn};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep};

/// No further requests are begun while this number of bytes of answers waits for the socket.
const OUTPUT_WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Writes in flight are finished even then, because locks and flushes wait for them, until this number of bytes was
/// added.
const OUTPUT_OF_WRITES_BYTES_MAX: usize = 256 * 1024;

/// Answers that reach this number of bytes are sent before the turn ends, while they are still in the processor's
/// cache.
const OUTPUT_SENT_BYTES: usize = 128 * 1024;

/// One client's connection.
pub(crate) struct Connection<H: QueryHandler> {
    shared: Arc<Shared<H>>,
    stream: Stream,
    decoder: Decoder,
    encoder: Encoder,
    session: Session,
    statements: RecentStatements<H::Plan>,
    /// The result of STARTUP; `None` before it, and before the client has logged in.
    agreement: Option<Agreement>,
    /// The login, if the client has to log in and has not done so.
    pending_login: Option<PendingLogin>,
    subscription: Option<(Subscription, Vec<EventType>)>,
    /// The requests on the blocking pool.
    running: FuturesUnordered<InTurns<H::Plan>>,
    /// The requests in flight that wait for more than the log: for memory, for a lock, for other writes.
    writing: FuturesUnordered<InTurns<H::Plan>>,
    /// The time of a turn in which `running` and `writing` are polled.
    poll_time: Arc<PollTime>,
    /// The requests in flight that wait for the log alone.
    log_queue: LogQueue<InFlight<H::Plan>>,
    /// The timer for the next request in the log's queue that times out. One timer is enough, since few of them time
    /// out.
    late: Option<Pin<Box<Sleep>>>,
    /// The time of this turn, once it was needed.
    now: Option<Instant>,
    /// The bytes of all requests in flight.
    running_bytes: usize,
    /// No further requests are read, because the client closed its end or broke the protocol, or the server stops.
    closing: bool,
    paused: bool,
    reads_much: bool,
    /// The bytes of answers at which no further writes are finished, while the client does not read enough.
    output_bytes_max: Option<usize>,
    /// The memory that it holds.
    account: Account,
    /// The queue of its requests that wait for a thread.
    source: Arc<WorkSource>,
    idle_check: IdleCheck,
    /// Ends when the slot of its last request comes (`request_rate.rs`); no further request is begun before.
    slot: Option<Pin<Box<Sleep>>>,
    /// The number of requests so far that were moved to `running` or `writing`.
    moved_requests: u64,
    /// EXECUTE requests that were begun in this turn and are not counted yet.
    executes: u64,
    /// The bytes of answers that were sent in this turn.
    sent_bytes: usize,
    idle: Option<Pin<Box<Sleep>>>,
}

impl<H: QueryHandler> Connection<H> {
    pub(crate) fn new(
        shared: Arc<Shared<H>>,
        stream: Stream,
        peer: SocketAddr,
        connected: Instant,
        id: u32,
        place: &ConnectionPermit,
    ) -> Connection<H> {
        let source = WorkSource::new(shared.pools.clone());
        let idle = shared.options.idle_timeout.map(|timeout| Box::pin(sleep(timeout)));
        Connection {
            decoder: Decoder::new(shared.options.frame_size_bytes_max.min(FIRST_REQUEST_BYTES_MAX), id),
            encoder: Encoder::new(Version::V5),
            session: Session::new(peer, place.budget().clone(), source.clone()),
            statements: RecentStatements::new(),
            agreement: None,
            pending_login: None,
            subscription: None,
            running: FuturesUnordered::new(),
            writing: FuturesUnordered::new(),
            poll_time: PollTime::new(),
            log_queue: LogQueue::new(InFlight::as_pending),
            late: None,
            now: None,
            running_bytes: 0,
            closing: false,
            paused: false,
            reads_much: false,
            output_bytes_max: None,
            account: Account::new(place.budget().clone()),
            source,
            idle_check: IdleCheck::new(connected, shared.options.handshake_timeout),
            slot: None,
            moved_requests: 0,
            executes: 0,
            sent_bytes: 0,
            idle,
            shared,
            stream,
        }
    }

    /// Serves the client until it leaves or breaks the protocol, or until `stop` becomes true. At the end, requests
    /// that wait for the log are still answered, and requests on the blocking pool are cancelled.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let mut stop = pin!(stop.wait_for(|stop| *stop));
        let outcome = poll_fn(|cx| {
            if !self.closing && stop.as_mut().poll(cx).is_ready() {
                self.closing = true;
                self.give_up_blocking();
            }
            self.turn(cx)
        })
        .await;
        self.give_up_blocking();
        if self.under_way() > 0 {
            // The client is gone, but its writes in flight are finished.
            let (mut writing, time) = (self.writing, self.poll_time);
            writing.extend(self.log_queue.drain().map(|work| InTurns { work, time: Arc::clone(&time) }));
            tokio::spawn(finish(writing, time));
        }
        outcome
    }

    /// One turn of the connection, which does everything that needs no waiting.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut connection_turn = ConnectionTurn::begin();
        let is_large = AtomicBool::new(false);
        self.now = None;
        self.sent_bytes = 0;
        loop {
            let hold = self.shared.handler.hold_log(cx.waker());
            let turn = Turn { is_large: Some(&is_large), ..Turn::NON_BLOCKING };
            let mut progress = self.collect_settled(hold.as_ref(), &mut connection_turn, cx);
            progress |= self.collect_finished(&mut connection_turn, cx) | self.collect_events(cx);
            progress |= self.pending_login.is_some() && self.collect_login(cx);
            progress |= self.begin_requests(turn, hold.as_ref(), &is_large, &mut connection_turn, cx)?;
            drop(hold);
            if connection_turn.requests() > 0 {
                self.idle_check.request_started();
            }
            self.count_executes();
            progress |= self.write(cx)?;
            if self.closing && self.under_way() == 0 && self.encoder.pending_bytes() == 0 {
                return self.stream.poll_end(cx);
            }
            if connection_turn.is_over() || self.has_more_to_send() {
                self.update_account();
                // The runtime then looks at sockets before it polls this task again. A task that only wakes itself is
                // polled up to 61 times in between.
                let _ = pin!(yield_now()).poll(cx);
                return Poll::Pending;
            }
            if !self.may_begin() {
                self.account.stop_waiting();
            } else if self.slot.is_none()
                && !self.checks_login()
                && self.has_room(cx)
                && let Some(count) = self.read(cx)?
            {
                connection_turn.count_read(count);
                progress = true;
            }
            if !progress {
                self.update_account();
                return self.rest(cx);
            }
        }
    }

    /// Begins requests until the turn is over. Returns whether it has begun any. The turn sets `is_large` for requests
    /// that do far more work than others.
    #[inline(always)]
    fn begin_requests(
        &mut self,
        turn: Turn<'_>,
        hold: Option<&LogHold>,
        is_large: &AtomicBool,
        connection_turn: &mut ConnectionTurn,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let (mut progress, mut prefetched) = (false, 0);
        while !connection_turn.is_over() && self.may_begin() && self.slot_has_come(cx) {
            if prefetched == 0 {
                prefetched = self.prefetch();
            }
            prefetched -= 1;
            let moved_requests = self.moved_requests;
            let size_bytes = match self.begin_next(turn, hold, cx) {
                Ok(Some(size_bytes)) => size_bytes,
                Ok(None) => break,
                Err(error) => {
                    self.refuse(error);
                    0
                }
            };
            // Only this thread sets the flag, so it needs no exchange.
            let weight = match (is_large.load(Ordering::Relaxed), self.moved_requests > moved_requests) {
                (true, true) => WEIGHT_OF_TURN,
                (true, false) => WEIGHT_OF_LARGE,
                (false, true) => WEIGHT_OF_MOVED,
                (false, false) => 0,
            };
            is_large.store(false, Ordering::Relaxed);
            connection_turn.count(size_bytes, weight);
            progress = true;
            if self.encoder.pending_bytes() >= OUTPUT_SENT_BYTES {
                self.write(cx)?;
            }
        }
        Ok(progress)
    }

    /// The memory that it holds for requests that arrive, requests in flight, and answers, in bytes.
    fn held_bytes(&self) -> usize {
        self.decoder.held_bytes() + self.running_bytes + self.encoder.held_bytes()
    }

    /// Updates the account of its memory. While the client does not read its answers, none of its work that waits for a
    /// thread begins.
    fn update_account(&mut self) {
        self.account.update(self.held_bytes(), self.decoder.missing_bytes());
        let is_paused = self.encoder.pending_bytes() >= OUTPUT_WAITING_BYTES_MAX;
        if self.source.set_paused(is_paused) && !is_paused {
            self.shared.pools.wake();
        }
    }

    /// The stage of the connection's start.
    fn start(&self) -> Start {
        match &self.pending_login {
            _ if self.agreement.is_some() => Start::Done,
            None => Start::AwaitsStartup,
            Some(pending_login) if pending_login.is_checking() => Start::ChecksLogin,
            Some(_) => Start::AwaitsLogin,
        }
    }

    /// Waits for the next event. Ends the connection if it delays others, or is idle for too long.
    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffers_bytes = self.decoder.buffer().capacity() + self.encoder.capacity_bytes();
        let holds_much = buffers_bytes.max(self.held_bytes()) > FREE_BYTES;
        if holds_much || self.agreement.is_none() {
            let state = ConnectionState {
                start: self.start(),
                is_missing_some: self.decoder.missing_bytes() > 0,
                is_sending: self.encoder.pending_bytes() > 0,
                blocks_others: self.account.blocks_others(),
                keeps_writes: !self.writing.is_empty() && !self.may_finish_writes(),
            };
            while let Poll::Ready(verdict) = self.idle_check.poll(&state, cx) {
                match verdict {
                    Verdict::Shrink => {
                        self.decoder.shrink();
                        self.encoder.shrink();
                    }
                    Verdict::Close(reason) => {
                        self.shared.metrics.connections_closed.add(1);
                        let client = self.session.client.address;
                        self.shared.notices.closings.log(|left_out| {
                            tracing::info!(?client, "closing connection: {reason}{left_out}");
                        });
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        self.poll_idle(cx)
    }
}
