//! One client's connection: bytes to requests, requests to work, work to answers, answers to bytes.
//!
//! One task does all of it. Work that is ready when first polled is answered at once, in the same turn; work that waits
//! joins the set of those under way and answers whenever it is done, in any order; what waits for the log joins a
//! queue, and is answered in bunches. A turn ends with one write of everything that became ready in it.
//!
//! Nothing grows without bound: a connection with too many requests under way, or whose client does not read its
//! answers, is not read until that changes.

use crate::Shared;
use crate::awaiting::Awaiting;
use crate::events::Subscription;
use crate::handler::QueryHandler;
use crate::in_flight::{Finished, InFlight};
use crate::known::start_known;
use crate::look_ahead::look_ahead;
use crate::prepared::RecentStatements;
use crate::reply::{Answer, Reply};
use crate::session::Session;
use crate::start::{Started, start};
use crate::startup::{Agreement, negotiate};
use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, StreamExt};
use protocol::response::{write_auth_success, write_supported, write_void};
use protocol::{
    Body, Compression, DecodeError, Decoder, Encoder, Envelope, ErrorKind, ErrorResponse, Event, EventType, Opcode,
    ProtocolError, Request, ResponseHead, Version, flags,
};
use query::{LogHold, ResponseBody};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

/// Answers that may wait for the socket before no further work is taken on.
const OUTPUT_WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Answers that are sent before the turn ends: while they are still in the processor's cache.
const OUTPUT_SENT_BYTES: usize = 128 * 1024;

/// Requests begun in one turn; then other connections have theirs.
const REQUESTS_PER_TURN: usize = 256;

/// What a buffer may keep that one large request grew.
const READ_BUFFER_KEPT_BYTES: usize = 512 * 1024;

/// Room made for a read. The second size is for connections whose last read took half of the first or more: what has
/// arrived is read, and answered, in one go, not in one that fills a small room and another.
const READ_SIZES_BYTES: [usize; 2] = [8 * 1024, 128 * 1024];

/// One client's connection.
pub(crate) struct Connection<H: QueryHandler> {
    shared: Arc<Shared<H>>,
    socket: TcpStream,
    decoder: Decoder,
    encoder: Encoder,
    session: Session,
    statements: RecentStatements<H>,
    /// What STARTUP agreed on; none before it.
    agreement: Option<Agreement>,
    subscription: Option<(Subscription, Vec<EventType>)>,
    running: FuturesUnordered<InFlight<H>>,
    /// The others under way: they wait for the log alone.
    awaiting: Awaiting<H>,
    /// Of both.
    running_bytes: usize,
    /// No more requests are read: the client closed its end, broke the protocol, or the server stops.
    closing: bool,
    paused: bool,
    reads_much: bool,
    /// Requests for statements used before that were begun in this turn and not counted yet.
    known_begun: u64,
    idle: Option<Pin<Box<Sleep>>>,
}

impl<H: QueryHandler> Connection<H> {
    pub(crate) fn new(shared: Arc<Shared<H>>, socket: TcpStream, peer: SocketAddr, id: u32) -> Connection<H> {
        let idle = shared.options.idle_timeout.map(|timeout| Box::pin(sleep(timeout)));
        Connection {
            decoder: Decoder::new(shared.options.frame_size_bytes_max, id),
            encoder: Encoder::new(Version::V5),
            session: Session::new(peer),
            statements: RecentStatements::new(),
            agreement: None,
            subscription: None,
            running: FuturesUnordered::new(),
            awaiting: Awaiting::new(),
            running_bytes: 0,
            closing: false,
            paused: false,
            reads_much: false,
            known_begun: 0,
            idle,
            shared,
            socket,
        }
    }

    /// Serves the client until it goes, breaks the protocol, or `stop` becomes true; then what is under way is still
    /// answered.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let mut stop = pin!(stop.wait_for(|stop| *stop));
        let outcome = poll_fn(|cx| {
            if !self.closing && stop.as_mut().poll(cx).is_ready() {
                self.closing = true;
            }
            self.turn(cx)
        })
        .await;
        if self.under_way() > 0 {
            // The client is gone: its reads end, but writes that were begun are finished.
            self.cancel_reads();
            let mut running = self.running;
            running.extend(self.awaiting.drain());
            tokio::spawn(async move { while running.next().await.is_some() {} });
        }
        outcome
    }

    /// One turn: everything that can be done without waiting.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut begun = 0;
        self.awaiting.begin_turn();
        loop {
            let held = self.shared.handler.bunch(cx.waker());
            let bunch = held.as_ref();
            let mut progress = self.collect_settled(bunch, cx) | self.collect_replies(cx) | self.collect_events(cx);
            let mut looked_ahead = 0;
            while begun < REQUESTS_PER_TURN && self.may_begin() {
                if looked_ahead == 0 {
                    looked_ahead = look_ahead(&*self.shared.handler, &self.statements, &self.decoder);
                }
                looked_ahead -= 1;
                if !self.begin_known(bunch, cx) {
                    match self.decoder.next_envelope() {
                        Ok(Some(envelope)) => self.accept(envelope, bunch, cx),
                        Ok(None) => break,
                        Err(error) => self.refuse(error),
                    }
                }
                begun += 1;
                progress = true;
                if self.encoder.pending_bytes() >= OUTPUT_SENT_BYTES {
                    self.write(cx)?;
                }
            }
            drop(held);
            self.count_known();
            progress |= self.write(cx)?;
            if self.closing && self.under_way() == 0 && self.encoder.pending_bytes() == 0 {
                return Poll::Ready(Ok(()));
            }
            if begun >= REQUESTS_PER_TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.may_begin() {
                progress |= self.read(cx)?;
            }
            if !progress {
                return self.poll_idle(cx);
            }
        }
    }

    /// How many requests are under way.
    fn under_way(&self) -> usize {
        self.running.len() + self.awaiting.len()
    }

    /// Whether another request may be taken on.
    fn may_begin(&mut self) -> bool {
        let options = &self.shared.options;
        let busy = self.under_way() >= options.requests_in_flight_max
            || self.running_bytes >= options.request_bytes_in_flight_max
            || self.encoder.pending_bytes() >= OUTPUT_WAITING_BYTES_MAX;
        let throws = self.agreement.as_ref().is_some_and(|agreement| agreement.throw_on_overload)
            && self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX;
        if busy && !throws && !std::mem::replace(&mut self.paused, true) {
            self.shared.metrics.connections_paused.add(1);
        }
        self.paused &= busy;
        !self.closing && (!busy || throws)
    }

    /// Whether the client asked for an error when there is too much under way, and there is.
    fn overloaded(&self) -> bool {
        let options = &self.shared.options;
        self.under_way() >= options.requests_in_flight_max || self.running_bytes >= options.request_bytes_in_flight_max
    }

    fn collect_settled(&mut self, bunch: Option<&LogHold>, cx: &mut Context<'_>) -> bool {
        let Some(bunch) = bunch.filter(|_| !self.awaiting.is_empty()) else { return false };
        let mut progress = false;
        while self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            if let Some(work) = self.awaiting.next_settled(bunch, cx) {
                self.carry_on(work, Some(bunch), cx);
            } else if let Some(mut late) = self.awaiting.next_late(cx) {
                self.running_bytes -= late.size_bytes;
                self.answer(late.time_out());
            } else {
                break;
            }
            progress = true;
        }
        progress
    }

    fn collect_replies(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            let Poll::Ready(Some((size_bytes, finished))) = self.running.poll_next_unpin(cx) else { break };
            self.running_bytes -= size_bytes;
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

    /// One request: answered here and now if it can be.
    fn accept(&mut self, envelope: Envelope, bunch: Option<&LogHold>, cx: &mut Context<'_>) {
        self.shared.metrics.requests.add(1);
        let (stream, opcode) = (envelope.header.stream, envelope.header.opcode);
        if self.agreement.is_none() {
            self.encoder.set_version(envelope.header.version);
            if !matches!(opcode, Opcode::Startup | Opcode::Options) {
                let name = opcode.name();
                return self.protocol_error(stream, format!("Unexpected message {name}, expecting STARTUP or OPTIONS"));
            }
        }
        match opcode {
            Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch => self.begin(envelope, bunch, cx),
            Opcode::Startup if self.agreement.is_some() => {
                self.protocol_error(stream, "Unexpected message STARTUP, the connection is already initialized".into());
            }
            _ => {
                let outcome = match Body::parse(&envelope.header, &envelope.body) {
                    Ok(body) => self.converse(stream, envelope.header.version, body.request),
                    Err(error) => Err(error),
                };
                if let Err(error) = outcome {
                    self.protocol_error(stream, error.message);
                }
            }
        }
    }

    fn begin(&mut self, envelope: Envelope, bunch: Option<&LogHold>, cx: &mut Context<'_>) {
        let stream = envelope.header.stream;
        if self.overloaded() {
            self.shared.metrics.requests_discarded.add(1);
            let message = "Request breached limit on requests in flight. Server is currently in an overloaded state and \
                           cannot accept more requests.";
            return self.answer(Reply::new(stream, Err(ErrorResponse::new(ErrorKind::Overloaded, message))));
        }
        // What came compressed was not to be seen in the buffer, and neither was what begins a segment.
        let was_hidden = envelope.header.flags & flags::COMPRESSION != 0 || envelope.header.version == Version::V5;
        let known = was_hidden.then(|| {
            let request = (&envelope.header, &envelope.body[..]);
            start_known(&self.shared, &self.session, &self.statements, &mut self.encoder, request)
        });
        let begin = || start(&self.shared, &mut self.session, &mut self.statements, envelope);
        let started = match known.flatten() {
            Some(started) => {
                self.shared.metrics.prepared_statements_executed.add(1);
                started
            }
            None => begin(),
        };
        self.go_on_with(started, bunch, cx);
    }

    /// Begins the next request if it is for a statement that the client has used before: where it lies in the buffer.
    /// False, without any effect, for all others.
    fn begin_known(&mut self, bunch: Option<&LogHold>, cx: &mut Context<'_>) -> bool {
        if self.agreement.is_none() || self.overloaded() {
            return false;
        }
        let Some((header, body)) = self.decoder.peek() else { return false };
        let request = (&header, body);
        let started = start_known(&self.shared, &self.session, &self.statements, &mut self.encoder, request);
        // Looked at where it is: what most requests end with is not worth moving all that others need.
        if started.is_none() {
            return false;
        }
        self.decoder.pass(&header);
        self.known_begun += 1;
        if matches!(started, Some(Started::Sent)) {
            return true;
        }
        if let Some(started) = started {
            self.go_on_with(started, bunch, cx);
        }
        true
    }

    fn count_known(&mut self) {
        let begun = std::mem::take(&mut self.known_begun);
        if begun > 0 {
            self.shared.metrics.requests.add(begun);
            self.shared.metrics.prepared_statements_executed.add(begun);
        }
    }

    fn go_on_with(&mut self, started: Started<H>, bunch: Option<&LogHold>, cx: &mut Context<'_>) {
        match started {
            Started::Sent => {}
            Started::Answered(reply) => self.answer(reply),
            Started::Working(work) => {
                self.running_bytes += work.size_bytes;
                self.carry_on(work, bunch, cx);
            }
        }
    }

    /// Polls work, and puts it where it is polled again.
    fn carry_on(&mut self, mut work: InFlight<H>, bunch: Option<&LogHold>, cx: &mut Context<'_>) {
        match work.poll_work(cx) {
            Poll::Ready(finished) => {
                self.running_bytes -= work.size_bytes;
                self.answer_finished(finished);
            }
            Poll::Pending => match bunch.and_then(LogHold::take_awaited) {
                Some(awaited) => self.awaiting.push(awaited, work),
                None => self.running.push(work),
            },
        }
    }

    /// The messages that concern the connection itself.
    fn converse(&mut self, stream: i16, version: Version, request: Request<'_>) -> Result<(), ProtocolError> {
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
                match &mut self.subscription {
                    Some((_, registered)) => registered.extend(types),
                    None => self.subscription = Some((self.shared.events.subscribe(), types)),
                }
                self.encoder.envelope(&ResponseHead::new(stream, Opcode::Ready), |_| {});
            }
            Request::AuthResponse(_) => {
                // Everyone is let in, whatever they say.
                let head = ResponseHead::new(stream, Opcode::AuthSuccess);
                self.encoder.envelope(&head, |out| write_auth_success(out, None));
            }
            Request::Query { .. } | Request::Prepare { .. } | Request::Execute { .. } | Request::Batch(_) => {}
        }
        Ok(())
    }

    fn started(&mut self, stream: i16, version: Version, agreement: Agreement) {
        let ready = ResponseHead::new(stream, Opcode::Ready);
        let compression = agreement.compression;
        tracing::debug!(
            client = ?self.session.client.address,
            driver = agreement.driver_name.as_deref().unwrap_or("unknown"),
            driver_version = agreement.driver_version.as_deref().unwrap_or("unknown"),
            %version,
            ?compression,
            "connection started"
        );
        self.decoder.started(version, compression);
        if version == Version::V5 {
            // The answer itself is the last bare envelope.
            self.encoder.envelope(&ready, |_| {});
            self.encoder.start_segments(compression == Some(Compression::Lz4));
        } else {
            self.encoder.set_compression(compression);
            self.encoder.envelope(&ready, |_| {});
        }
        self.agreement = Some(agreement);
    }

    fn answer_finished(&mut self, finished: Finished<H>) {
        match finished {
            Finished::Void(stream) => self.encoder.envelope(&ResponseHead::new(stream, Opcode::Result), write_void),
            Finished::Reply(reply) => self.answer(reply),
        }
    }

    /// Writes a reply, and does what it means for the connection and for others.
    fn answer(&mut self, reply: Reply<H>) {
        match &reply.answer {
            Ok(Answer::Result { response, .. }) => match &response.body {
                ResponseBody::SetKeyspace(keyspace) => self.session.set_keyspace(keyspace.clone()),
                ResponseBody::SchemaChange { change, contained } => {
                    for part in contained.iter().chain([change]) {
                        self.shared.events.publish(Event::Schema(part.clone()));
                    }
                }
                ResponseBody::Void | ResponseBody::Rows(_) => {}
            },
            Err(ErrorResponse { kind: ErrorKind::WriteTimeout { .. } | ErrorKind::ReadTimeout { .. }, .. }) => {
                self.shared.metrics.timeouts.add(1);
            }
            Err(ErrorResponse { kind: ErrorKind::Server, message }) => {
                tracing::error!(client = ?self.session.client.address, %message, "request failed");
            }
            Ok(Answer::Prepared(_)) | Err(_) => {}
        }
        reply.encode(&mut self.encoder);
    }

    fn protocol_error(&mut self, stream: i16, message: String) {
        self.shared.metrics.protocol_errors.add(1);
        tracing::debug!(client = ?self.session.client.address, %message, "protocol error");
        self.answer(Reply::new(stream, Err(ErrorResponse::new(ErrorKind::Protocol, message))));
    }

    /// Answers an envelope that could not be read; fatal errors end the connection after their answer.
    fn refuse(&mut self, error: DecodeError) {
        self.shared.metrics.protocol_errors.add(1);
        tracing::debug!(client = ?self.session.client.address, message = %error.message, "bad envelope");
        self.closing |= error.fatal;
        if self.agreement.is_some() {
            return self.answer(Reply::new(error.stream, Err(error.into())));
        }
        match (error.version, Version::from_number(error.version)) {
            (version @ (1 | 2), _) => self.encoder.old_error(version, &error.message),
            (_, Some(version)) => {
                self.encoder.set_version(version);
                self.answer(Reply::new(error.stream, Err(error.into())));
            }
            (version, None) => self.encoder.foreign_error(version, &error.message),
        }
    }

    /// Sends what is ready. True when the kernel took something.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.encoder.flush();
        let mut progress = false;
        while !self.encoder.output().is_empty() {
            if self.socket.poll_write_ready(cx)?.is_pending() {
                break;
            }
            match self.socket.try_write(self.encoder.output()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.encoder.sent(count);
                    self.shared.metrics.bytes_sent.add(count as u64);
                    self.shared.metrics.socket_writes.add(1);
                    progress = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(progress)
    }

    /// Reads what has arrived. True when there was something, the end included.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let buffer = self.decoder.buffer();
        if buffer.is_empty() && buffer.capacity() > READ_BUFFER_KEPT_BYTES {
            *buffer = BytesMut::new();
        }
        let room = READ_SIZES_BYTES[usize::from(self.reads_much)];
        if buffer.capacity() - buffer.len() < room / 2 {
            buffer.reserve(room);
        }
        // Unlike `try_read`, this knows that a read which left room has emptied the socket, and saves the next call.
        let Poll::Ready(count) = pin!(self.socket.read_buf(buffer)).poll(cx)? else { return Ok(false) };
        if count == 0 {
            self.closing = true;
            self.cancel_reads();
        }
        self.reads_much = count >= READ_SIZES_BYTES[0] / 2;
        self.shared.metrics.bytes_received.add(count as u64);
        self.restart_idle_timer();
        Ok(true)
    }

    /// Cancels the reads in flight, so that no scan outlives its client. A client that closed its end counts as gone,
    /// even if it closed one direction only, as in Cassandra.
    fn cancel_reads(&mut self) {
        self.running.iter_mut().for_each(InFlight::cancel);
    }

    fn restart_idle_timer(&mut self) {
        if let (Some(timer), Some(timeout)) = (&mut self.idle, self.shared.options.idle_timeout) {
            timer.as_mut().reset(Instant::now() + timeout);
        }
    }

    /// Nothing to do: waits, but not longer than an idle client may.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.idle {
            Some(timer) if self.running.is_empty() && self.awaiting.is_empty() => timer.as_mut().poll(cx).map(|()| {
                tracing::info!(client = ?self.session.client.address, "closing idle connection");
                Ok(())
            }),
            _ => Poll::Pending,
        }
    }
}
