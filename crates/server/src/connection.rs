//! One client's connection. It turns bytes into requests, and answers into bytes.
//!
//! A connection is one task that works in turns. A request that is complete when it is begun is answered in the same
//! turn. A request that waits for the log joins a queue, whose requests are answered together. Any other request that
//! waits joins the set of running requests, which are answered in any order. A turn ends with one write of all answers
//! that became ready in it.
//!
//! Memory is bounded by back-pressure. A connection is not read while it has too many requests in flight, while its
//! client does not read the answers, or while the node has no memory left for it (`limits.rs`).

use crate::Shared;
use crate::blocking_pool::Line;
use crate::connection_turn::{ConnectionTurn, WEIGHT_OF_LARGE, WEIGHT_OF_MOVED};
use crate::events::Subscription;
use crate::in_flight::{Extra, Finished, InFlight, ReplyTo};
use crate::limits::{Account, FIRST_REQUEST_BYTES_MAX, FREE_BYTES, Place};
use crate::login::LoggingIn;
use crate::paths::without_directories;
use crate::patrol::{Patrol, Seen, Verdict};
use crate::prepared::RecentStatements;
use crate::session::Session;
use crate::startup::{Agreement, negotiate};
use crate::stream::Stream;
use crate::turn::{Begun, Reply, Requests};
use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, StreamExt};
use protocol::response::{write_auth_success, write_authenticate, write_prepared, write_supported, write_void};
use protocol::{
    Body, Compression, DecodeError, Decoder, Encoder, Envelope, ErrorKind, ErrorResponse, Event, EventType, Header,
    Opcode, PreparedMetadata, ProtocolError, Request, ResponseHead, ResultMetadata, Version, executed_statement,
};
use query::{LogHold, LogQueue, QueryHandler, Response, ResponseBody, Turn};
use std::future::{Future, poll_fn};
use std::io;
use std::mem::take;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::{block_in_place, yield_now};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// No further requests are begun while this number of bytes of answers waits for the socket.
const OUTPUT_WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Answers that reach this number of bytes are sent before the turn ends, while they are still in the processor's
/// cache.
const OUTPUT_SENT_BYTES: usize = 128 * 1024;

/// The number of requests of one connection that may wait for a thread before no further request is begun.
const WAITING_PER_CONNECTION_MAX: usize = 128;

/// The answer to a client that asked for an error when it has too many requests in flight. It begins as Cassandra's.
const OVERLOADED: &str = "Request breached limit on requests in flight. Server is currently in an overloaded state and \
                          cannot accept more requests.";

/// The end of Cassandra's text for a request above the limit of requests a second.
const IS_OVERLOADED: &str = "Server is currently in an overloaded state and cannot accept more requests.";

/// The size of an answer that takes milliseconds to encode.
const LARGE_ANSWER_BYTES: usize = 2 * 1024 * 1024;

/// The number of requests in the buffer that are prefetched together. The memory system can load their data at the same
/// time, and the data stays in the cache until the requests are begun.
const REQUESTS_PREFETCHED: usize = 32;

/// A buffer that one large request has grown keeps at most this size.
const READ_BUFFER_KEPT_BYTES: usize = 512 * 1024;

/// The free space that the buffer has for a read. The second size is for connections whose last read took half of the
/// first size or more, so that one read takes all that has arrived.
const READ_SIZES_BYTES: [usize; 2] = [8 * 1024, 128 * 1024];

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
    logging_in: Option<LoggingIn>,
    subscription: Option<(Subscription, Vec<EventType>)>,
    running: FuturesUnordered<InFlight<H::Plan>>,
    /// The requests in flight that wait for the log alone.
    log_queue: LogQueue<InFlight<H::Plan>>,
    /// The timer for the next request in the log's queue that times out. One timer is enough, since few of them time
    /// out.
    late: Option<Pin<Box<Sleep>>>,
    /// The time of this turn, once somebody needed it.
    now: Option<Instant>,
    /// The bytes of all requests in flight.
    running_bytes: usize,
    /// No further requests are read, because the client closed its end or broke the protocol, or the server stops.
    closing: bool,
    paused: bool,
    reads_much: bool,
    /// The memory that it holds.
    account: Account,
    /// Its requests that wait for a thread.
    line: Arc<Line>,
    patrol: Patrol,
    /// Ends when the slot of its last request comes (`request_rate.rs`); no further request is begun before.
    slot: Option<Pin<Box<Sleep>>>,
    /// EXECUTE requests that were begun in this turn and are not counted yet.
    executes: u64,
    idle: Option<Pin<Box<Sleep>>>,
}

impl<H: QueryHandler> Connection<H> {
    pub(crate) fn new(
        shared: Arc<Shared<H>>,
        stream: Stream,
        peer: SocketAddr,
        connected: Instant,
        id: u32,
        place: &Place,
    ) -> Connection<H> {
        let line = Line::new(shared.pools.clone());
        let idle = shared.options.idle_timeout.map(|timeout| Box::pin(sleep(timeout)));
        Connection {
            decoder: Decoder::new(shared.options.frame_size_bytes_max.min(FIRST_REQUEST_BYTES_MAX), id),
            encoder: Encoder::new(Version::V5),
            session: Session::new(peer, place.budget().clone(), line.clone()),
            statements: RecentStatements::new(),
            agreement: None,
            logging_in: None,
            subscription: None,
            running: FuturesUnordered::new(),
            log_queue: LogQueue::new(InFlight::as_pending),
            late: None,
            now: None,
            running_bytes: 0,
            closing: false,
            paused: false,
            reads_much: false,
            account: Account::new(place.budget().clone()),
            line,
            patrol: Patrol::new(connected, shared.options.handshake_timeout),
            slot: None,
            executes: 0,
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
            let mut running = self.running;
            running.extend(self.log_queue.drain());
            tokio::spawn(async move { while running.next().await.is_some() {} });
        }
        outcome
    }

    /// Cancels the requests on the blocking pool, so that no scan outlives its client. A client that closed its end
    /// counts as gone, even if it closed one direction only, as in Cassandra.
    fn give_up_blocking(&mut self) {
        self.running = take(&mut self.running).into_iter().filter(|work| work.as_pending().is_some()).collect();
    }

    /// One turn of the connection, which does everything that needs no waiting.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut connection_turn = ConnectionTurn::begin();
        let is_large = AtomicBool::new(false);
        self.now = None;
        loop {
            let hold = self.shared.handler.hold_log(cx.waker());
            let turn = Turn { may_block: false, log_hold: hold.as_ref(), is_large: Some(&is_large) };
            let mut progress = self.collect_settled(turn, cx) | self.collect_finished(cx) | self.collect_events(cx);
            progress |= self.logging_in.is_some() && self.collect_login(cx);
            let mut prefetched = 0;
            while !connection_turn.is_over() && self.may_begin() && self.slot_has_come(cx) {
                if prefetched == 0 {
                    prefetched = self.prefetch();
                }
                prefetched -= 1;
                let running = self.running.len();
                let size_bytes = match self.begin_next(turn, cx) {
                    Ok(Some(size_bytes)) => size_bytes,
                    Ok(None) => break,
                    Err(error) => {
                        self.refuse(error);
                        0
                    }
                };
                let weight = match is_large.swap(false, Ordering::Relaxed) {
                    true => WEIGHT_OF_LARGE,
                    false if self.running.len() > running => WEIGHT_OF_MOVED,
                    false => 0,
                };
                connection_turn.count(size_bytes, weight);
                progress = true;
                if self.encoder.pending_bytes() >= OUTPUT_SENT_BYTES {
                    self.write(cx)?;
                }
            }
            drop(hold);
            if connection_turn.requests() > 0 {
                self.patrol.begun();
            }
            self.count_executes();
            progress |= self.write(cx)?;
            if self.closing && self.under_way() == 0 && self.encoder.pending_bytes() == 0 {
                return self.stream.poll_end(cx);
            }
            if connection_turn.is_over() {
                self.settle();
                // The runtime then looks at sockets before it polls this task again. A task that only wakes itself is
                // polled up to 61 times in between.
                let _ = pin!(yield_now()).poll(cx);
                return Poll::Pending;
            }
            if !self.may_begin() {
                self.account.stop_waiting();
            } else if self.slot.is_none() && !self.checks_login() && self.has_room(cx) {
                progress |= self.read(cx)?;
            }
            if !progress {
                self.settle();
                return self.rest(cx);
            }
        }
    }

    /// What it holds: of requests that arrive, requests under way, and answers.
    fn held_bytes(&self) -> usize {
        self.decoder.held_bytes() + self.running_bytes + self.encoder.pending_bytes()
    }

    /// Whether the limits let it read more; if not it is woken when they may. A client that asked for that has its
    /// requests refused instead.
    fn has_room(&mut self, cx: &Context<'_>) -> bool {
        let missing = self.decoder.missing_bytes();
        if self.account.poll_room(self.held_bytes() + missing, cx).is_ready() {
            if missing > 0 {
                self.decoder.make_room();
            }
            return true;
        }
        let throws = self.throws_on_overload();
        if throws && missing > FREE_BYTES && self.decoder.refuse_arriving(ErrorKind::Overloaded, OVERLOADED) {
            self.shared.metrics.requests_discarded.add(1);
        }
        if !throws && !std::mem::replace(&mut self.paused, true) {
            self.shared.metrics.connections_paused.add(1);
        }
        throws
    }

    fn throws_on_overload(&self) -> bool {
        self.agreement.as_ref().is_some_and(|agreement| agreement.throw_on_overload)
    }

    /// Counts the memory that it holds now, and has work that waits for a thread wait longer while answers do not get
    /// through.
    fn settle(&mut self) {
        self.account.settle(self.held_bytes(), self.decoder.missing_bytes());
        let is_clogged = self.encoder.pending_bytes() >= OUTPUT_WAITING_BYTES_MAX;
        if self.line.set_clogged(is_clogged) && !is_clogged {
            self.shared.pools.poke();
        }
    }

    /// Nothing to do until something happens. Ends a connection that is in the way of others, or idle for too long.
    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffers_bytes = self.decoder.buffer().capacity() + self.encoder.capacity_bytes();
        let holds_much = buffers_bytes.max(self.held_bytes()) > FREE_BYTES;
        if holds_much || self.agreement.is_none() {
            let seen = Seen {
                has_started: self.agreement.is_some(),
                is_missing_some: self.decoder.missing_bytes() > 0,
                is_sending: self.encoder.pending_bytes() > 0,
                is_in_the_way: self.account.is_in_the_way(),
            };
            while let Poll::Ready(verdict) = self.patrol.poll(&seen, cx) {
                match verdict {
                    Verdict::Shrink => {
                        self.decoder.shrink();
                        self.encoder.shrink();
                    }
                    Verdict::Close(reason) => {
                        self.shared.metrics.connections_closed.add(1);
                        tracing::info!(client = ?self.session.client.address, "closing connection: {reason}");
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        self.poll_idle(cx)
    }

    /// The number of requests in flight.
    fn under_way(&self) -> usize {
        self.running.len() + self.log_queue.len()
    }

    /// Whether another request may be begun.
    fn may_begin(&mut self) -> bool {
        let options = &self.shared.options;
        let busy = self.under_way() >= options.requests_in_flight_max
            || self.line.waiting() >= WAITING_PER_CONNECTION_MAX
            || self.encoder.pending_bytes() >= OUTPUT_WAITING_BYTES_MAX;
        let throws = self.throws_on_overload() && self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX;
        if busy && !throws && !std::mem::replace(&mut self.paused, true) {
            self.shared.metrics.connections_paused.add(1);
        }
        self.paused &= busy;
        !self.closing && (!busy || throws)
    }

    /// Whether the client asked for an error when there is too much under way, and there is.
    fn overloaded(&self) -> bool {
        self.under_way() >= self.shared.options.requests_in_flight_max
            || self.line.waiting() >= WAITING_PER_CONNECTION_MAX
            || (self.account.lacks_room() && self.throws_on_overload())
    }

    /// Whether a request may be begun, by the limit on requests a second. If not, the task is woken when it may.
    fn slot_has_come(&mut self, cx: &mut Context<'_>) -> bool {
        let has_come = self.slot.as_mut().is_none_or(|slot| slot.as_mut().poll(cx).is_ready());
        if has_come {
            self.slot = None;
        }
        has_come
    }

    /// Why a request has to be refused, if it has. Takes the request's slot of the limit on requests a second.
    fn refusal(&mut self) -> Option<String> {
        if self.overloaded() {
            return Some(OVERLOADED.to_owned());
        }
        let rate = self.shared.request_rate.as_ref()?;
        if self.throws_on_overload() {
            return (!rate.try_reserve()).then(|| {
                let max = rate.requests_per_second();
                format!("Request breached global limit of {max} requests/second. {IS_OVERLOADED}")
            });
        }
        let wait = rate.reserve();
        if !wait.is_zero() {
            self.slot = Some(Box::pin(sleep(wait)));
            self.shared.metrics.connections_paused.add(1);
        }
        None
    }

    fn collect_settled(&mut self, turn: Turn<'_>, cx: &mut Context<'_>) -> bool {
        let Some(hold) = turn.log_hold.filter(|_| !self.log_queue.is_empty()) else { return false };
        let mut progress = false;
        while self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            if let Some(work) = self.log_queue.next_settled(hold, cx) {
                self.poll_work(work, turn, cx);
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
    fn next_late(&mut self, cx: &mut Context<'_>) -> Option<InFlight<H::Plan>> {
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

    fn collect_finished(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(cx) else { break };
            self.answer_finished(finished);
            progress = true;
        }
        progress
    }

    fn collect_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            let Some((subscription, types)) = &mut self.subscription else { break };
            let Poll::Ready(Some(event)) = subscription.poll(cx) else { break };
            if types.contains(&event.event_type()) {
                let version = self.encoder.version();
                let head = ResponseHead::new(-1, Opcode::Event);
                self.encoder.envelope(&head, |out| event.write(out, version));
            }
            progress = true;
        }
        progress
    }

    /// Prefetches the memory that the requests in the buffer will read, as far as they execute statements that the
    /// client has used before. Returns the number of requests that were examined, at least 1. After these, the caller
    /// should prefetch again.
    fn prefetch(&mut self) -> usize {
        if !self.decoder.holds_several() {
            return 1;
        }
        let mut count = 0;
        let (statements, ahead) = (&self.statements, self.decoder.ahead().take(REQUESTS_PREFETCHED));
        self.shared.handler.prefetch(ahead.inspect(|_| count += 1).filter_map(|(header, body)| {
            let statement = statements.known(executed_statement(&header, body)?)?;
            let values = move || match Body::parse(&header, body).ok()?.request {
                Request::Execute { options, .. } => Some(options.values),
                _ => None,
            };
            Some((&**statement, values))
        }));
        count.max(1)
    }

    /// Begins the next request. A request that lies in the buffer as a whole is read in place, and any other from a
    /// copy. Returns the bytes of its body, or `None` if there is no request.
    fn begin_next(&mut self, turn: Turn<'_>, cx: &mut Context<'_>) -> Result<Option<usize>, DecodeError> {
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
            let begun = requests.begin(&mut self.statements, &header, body);
            self.decoder.pass(&header);
            // Most requests are complete here, so the larger states are not moved before they are needed.
            if !matches!(begun, Begun::Written) {
                self.take_on(begun, turn, cx);
            }
            return Ok(Some(size_bytes));
        }
        if self.checks_login() {
            return Ok(None);
        }
        let Some(envelope) = self.decoder.next_envelope()? else { return Ok(None) };
        let size_bytes = envelope.body.len();
        self.accept(envelope, turn, cx);
        Ok(Some(size_bytes))
    }

    /// Accepts a request that did not lie in the buffer as a whole, or that concerns the connection itself.
    fn accept(&mut self, envelope: Envelope, turn: Turn<'_>, cx: &mut Context<'_>) {
        let Envelope { header, body } = envelope;
        let (stream, opcode) = (header.stream, header.opcode);
        if is_for_statements(opcode) && self.agreement.is_some() {
            return self.begin(&header, &body, turn, cx);
        }
        self.shared.metrics.requests.add(1);
        if self.logging_in.is_some() {
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

    fn begin(&mut self, header: &Header, body: &[u8], turn: Turn<'_>, cx: &mut Context<'_>) {
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
        let begun = requests.begin(&mut self.statements, header, body);
        self.take_on(begun, turn, cx);
    }

    fn count_executes(&mut self) {
        let begun = take(&mut self.executes);
        if begun > 0 {
            self.shared.metrics.requests.add(begun);
            self.shared.metrics.prepared_statements_executed.add(begun);
        }
    }

    fn take_on(&mut self, begun: Begun<H::Plan>, turn: Turn<'_>, cx: &mut Context<'_>) {
        match begun {
            Begun::Written => {}
            Begun::Answered(to, reply) => self.answer(to, *reply),
            Begun::UnderWay(work) => {
                self.running_bytes += work.size_bytes;
                self.poll_work(work, turn, cx);
            }
        }
    }

    /// Polls a request in flight. If it still waits, it goes to the log's queue or to the running requests.
    fn poll_work(&mut self, mut work: InFlight<H::Plan>, turn: Turn<'_>, cx: &mut Context<'_>) {
        match work.poll_work(turn, cx) {
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
            Poll::Pending => match turn.log_hold.and_then(LogHold::take_awaited) {
                Some(awaited) => {
                    let now = *self.now.get_or_insert_with(Instant::now);
                    let deadline = work.time_limit().map(|limit| (now + limit).into_std());
                    self.log_queue.push(awaited, deadline, work);
                }
                None => self.running.push(work),
            },
        }
    }

    /// Answers a message that concerns the connection itself.
    fn answer_control(&mut self, stream: i16, version: Version, request: Request<'_>) -> Result<(), ProtocolError> {
        match request {
            Request::Options => {
                let head = ResponseHead::new(stream, Opcode::Supported);
                self.encoder.envelope(&head, |out| write_supported(out, crate::CQL_VERSION));
            }
            Request::Startup(startup) => {
                let agreement = negotiate(&startup, version)?;
                self.started(stream, version, agreement);
            }
            Request::Register(types) => {
                let (_, registered) =
                    self.subscription.get_or_insert_with(|| (self.shared.events.subscribe(), Vec::new()));
                for event_type in types {
                    if !registered.contains(&event_type) {
                        registered.push(event_type);
                    }
                }
                self.encoder.envelope(&ResponseHead::new(stream, Opcode::Ready), |_| {});
            }
            // A role is for the whole connection.
            Request::AuthResponse(_) if self.session.client.user.is_some() => {
                return Err(ProtocolError::new("Unexpected message AUTH_RESPONSE, the client has logged in"));
            }
            Request::AuthResponse(_) => {
                // Every client is accepted.
                let head = ResponseHead::new(stream, Opcode::AuthSuccess);
                self.encoder.envelope(&head, |out| write_auth_success(out, None));
            }
            Request::Query { .. } | Request::Prepare { .. } | Request::Execute { .. } | Request::Batch(_) => {}
        }
        Ok(())
    }

    fn started(&mut self, stream: i16, version: Version, agreement: Agreement) {
        let authenticator = self.shared.handler.authenticator();
        let head = ResponseHead::new(stream, authenticator.map_or(Opcode::Ready, |_| Opcode::Authenticate));
        let answer = |out: &mut Vec<u8>| authenticator.iter().for_each(|class| write_authenticate(out, class));
        let compression = agreement.compression;
        tracing::debug!(
            client = ?self.session.client.address,
            driver = agreement.driver_name.as_deref().unwrap_or("unknown"),
            driver_version = agreement.driver_version.as_deref().unwrap_or("unknown"),
            %version,
            ?compression,
            "connection started"
        );
        self.decoder.set_limit(self.shared.options.frame_size_bytes_max);
        self.decoder.started(version, compression);
        if version == Version::V5 {
            // This answer is the last envelope outside of segments.
            self.encoder.envelope(&head, answer);
            self.encoder.start_segments(compression == Some(Compression::Lz4));
        } else {
            self.encoder.set_compression(compression);
            self.encoder.envelope(&head, answer);
        }
        match authenticator {
            None => self.agreement = Some(agreement),
            Some(_) => self.logging_in = Some(LoggingIn::new(agreement)),
        }
    }

    /// Whether the client's login is being checked. Nothing else is begun or read meanwhile.
    fn checks_login(&self) -> bool {
        self.logging_in.as_ref().is_some_and(LoggingIn::is_checking)
    }

    /// Accepts a message of a client that has to log in.
    fn accept_login(&mut self, header: &Header, body: &[u8]) {
        let Some(logging_in) = &mut self.logging_in else { return };
        if header.opcode != Opcode::AuthResponse {
            let message = format!("Unexpected message {}, expecting SASL_RESPONSE", header.opcode.name());
            return self.protocol_error(header.stream, message);
        }
        match Body::parse(header, body) {
            Ok(Body { request: Request::AuthResponse(token), .. }) => {
                let certificate = self.stream.client_certificate();
                logging_in.check(header.stream, token, self.session.client.address, certificate, &self.shared);
            }
            Ok(_) => {}
            Err(error) => self.protocol_error(header.stream, error.message),
        }
    }

    /// Answers a login that was checked. After a failure the client may try again.
    fn collect_login(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(logging_in) = &mut self.logging_in else { return false };
        let Poll::Ready((stream, outcome)) = logging_in.poll(cx) else { return false };
        match outcome {
            Ok(login) => {
                self.agreement = self.logging_in.take().map(|logging_in| logging_in.agreement);
                self.session.set_user(login);
                let head = ResponseHead::new(stream, Opcode::AuthSuccess);
                self.encoder.envelope(&head, |out| write_auth_success(out, None));
            }
            Err(error) => {
                tracing::info!(client = ?self.session.client.address, "login refused: {}", error.message);
                self.answer_error(stream, ErrorResponse { kind: error.kind, message: error.message });
            }
        }
        true
    }

    fn answer_finished(&mut self, finished: Finished<H::Plan>) {
        let Finished { to, size_bytes, reply, memory } = finished;
        self.running_bytes -= size_bytes;
        self.answer(to, reply);
        drop(memory);
    }

    fn answer_error(&mut self, stream: i16, error: ErrorResponse) {
        self.answer(ReplyTo { stream, ..ReplyTo::default() }, Reply::Error(error));
    }

    /// Writes a reply, and applies its effects on this and other connections.
    fn answer(&mut self, to: ReplyTo, reply: Reply<H::Plan>) {
        let version = self.encoder.version();
        let ReplyTo { stream, extra } = to;
        let Extra { mut warnings, tracing_id } = extra.map(|extra| *extra).unwrap_or_default();
        let response = match reply {
            Reply::Response(Ok(response)) => Ok(response),
            // The warnings of the statement come first. The error's cause is not sent.
            Reply::Response(Err(mut error)) => {
                error.warnings.append(&mut warnings);
                warnings = error.warnings;
                Err(ErrorResponse { kind: error.kind, message: error.message })
            }
            Reply::Error(error) => Err(error),
            Reply::Prepared(id, statement) => {
                self.statements.replaced(&id);
                warnings.extend_from_slice(&statement.warnings);
                let head = ResponseHead { stream, opcode: Opcode::Result, tracing_id, warnings: &warnings };
                let (markers, places) = (&statement.variables, &statement.partition_key_bind_indexes);
                let markers = PreparedMetadata { markers, partition_key: places };
                let result = statement.result_metadata.as_deref();
                let result = result.map(|columns| ResultMetadata { columns, ..ResultMetadata::default() });
                return self.encoder.envelope(&head, |out| {
                    write_prepared(out, version, &id, statement.result_id(), &markers, result.as_ref());
                });
            }
        };
        match response {
            Ok(mut response) => {
                self.note_response(&response);
                response.warnings.append(&mut warnings);
                let head = ResponseHead { stream, opcode: Opcode::Result, tracing_id, warnings: &response.warnings };
                let is_large =
                    matches!(&response.body, ResponseBody::Rows(rows) if rows.cells.len() > LARGE_ANSWER_BYTES);
                // The cells of a large answer take a while. Another thread serves this thread's other connections
                // meanwhile.
                match is_large {
                    true => block_in_place(|| self.encoder.envelope(&head, |out| response.body.write(out, version))),
                    false => self.encoder.envelope(&head, |out| response.body.write(out, version)),
                }
            }
            Err(mut error) => {
                self.note_error(&error);
                if error.kind == ErrorKind::Server {
                    error.message = without_directories(&error.message);
                }
                let head = ResponseHead { stream, opcode: Opcode::Error, tracing_id, warnings: &warnings };
                self.encoder.envelope(&head, |out| error.write(out, version));
            }
        }
    }

    fn note_response(&mut self, response: &Response) {
        match &response.body {
            ResponseBody::SetKeyspace(keyspace) => self.session.set_keyspace(keyspace.clone()),
            ResponseBody::SchemaChange { change, contained } => {
                for part in contained.iter().chain([change]) {
                    self.shared.events.publish(Event::Schema(part.clone()));
                }
            }
            ResponseBody::Void | ResponseBody::Rows(_) => {}
        }
    }

    fn note_error(&self, error: &ErrorResponse) {
        match error {
            ErrorResponse { kind: ErrorKind::WriteTimeout { .. } | ErrorKind::ReadTimeout { .. }, .. } => {
                self.shared.metrics.timeouts.add(1);
            }
            ErrorResponse { kind: ErrorKind::Server, message } => {
                tracing::error!(client = ?self.session.client.address, %message, "request failed");
            }
            _ => {}
        }
    }

    fn protocol_error(&mut self, stream: i16, message: String) {
        self.shared.metrics.protocol_errors.add(1);
        tracing::debug!(client = ?self.session.client.address, %message, "protocol error");
        self.answer_error(stream, ErrorResponse::new(ErrorKind::Protocol, message));
    }

    /// Answers an envelope that could not be read. A fatal error ends the connection after the answer.
    fn refuse(&mut self, error: DecodeError) {
        self.shared.metrics.protocol_errors.add(1);
        tracing::debug!(client = ?self.session.client.address, message = %error.message, "bad envelope");
        self.closing |= error.fatal;
        if self.agreement.is_some() || self.logging_in.is_some() {
            return self.answer_error(error.stream, error.into());
        }
        match (error.version, Version::from_number(error.version)) {
            (version @ (1 | 2), _) => self.encoder.old_error(version, &error.message),
            (_, Some(version)) => {
                self.encoder.set_version(version);
                self.answer_error(error.stream, error.into());
            }
            (version, None) => self.encoder.foreign_error(version, &error.message),
        }
    }

    /// Sends the answers that are ready. True if the kernel took some bytes.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.encoder.flush();
        let mut progress = false;
        while !self.encoder.output().is_empty() {
            let Poll::Ready(count) = self.stream.poll_write(self.encoder.output(), cx)? else { break };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.encoder.sent(count);
            self.patrol.sent(count);
            self.shared.metrics.bytes_sent.add(count as u64);
            self.shared.metrics.socket_writes.add(1);
            progress = true;
        }
        // If it has to wait, the task is woken.
        let _ = self.stream.poll_flush(cx)?;
        Ok(progress)
    }

    /// Reads the bytes that have arrived. True if there were any, or if the input has ended.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let buffer = self.decoder.buffer();
        if buffer.is_empty() && buffer.capacity() > READ_BUFFER_KEPT_BYTES {
            *buffer = BytesMut::new();
        }
        let reads_much = self.reads_much && !self.account.is_short();
        let room = READ_SIZES_BYTES[usize::from(reads_much)];
        if buffer.capacity() - buffer.len() < room / 2 {
            buffer.reserve(room);
        }
        // Unlike `try_read`, this call knows that a read that left free space has emptied the socket. That saves a
        // call.
        let Poll::Ready(count) = pin!(self.stream.read_buf(buffer)).poll(cx)? else { return Ok(false) };
        if count == 0 {
            self.closing = true;
            self.give_up_blocking();
        }
        self.patrol.received();
        self.reads_much = count >= READ_SIZES_BYTES[0] / 2;
        self.shared.metrics.bytes_received.add(count as u64);
        self.restart_idle_timer();
        Ok(true)
    }

    fn restart_idle_timer(&mut self) {
        if let (Some(timer), Some(timeout)) = (&mut self.idle, self.shared.options.idle_timeout) {
            timer.as_mut().reset(Instant::now() + timeout);
        }
    }

    /// Waits for input, but not longer than a client may be idle.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.idle {
            Some(timer) if self.running.is_empty() && self.log_queue.is_empty() => timer.as_mut().poll(cx).map(|()| {
                tracing::info!(client = ?self.session.client.address, "closing idle connection");
                Ok(())
            }),
            _ => Poll::Pending,
        }
    }
}

/// Whether requests of this kind concern statements. All others concern the connection itself.
fn is_for_statements(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch)
}
