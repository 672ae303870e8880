//! The beginning of a request in a connection's turn. It leads from the bytes of the request to its answer, or to a
//! request in flight.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use protocol::{
    Batch, Body, Encoder, ErrorKind, ErrorResponse, Header, Opcode, ProtocolError, QueryOptions, Request, ResponseHead,
    flags,
};
use query::{
    Answer, BatchEntry, BatchStatement, MustBlock, Outcome, Prepared, QueryError, QueryHandler, Response, Statement,
    TimeLimit, Turn,
};

use crate::in_flight::{AnswerFuture, Blocking, InFlight, ReplyTo};
use crate::long_request::{Long, LongRequest};
use crate::prepared::{Md5Id, RecentStatements};
use crate::session::Session;
use crate::trace::Trace;
use crate::{Shared, blocking};

/// The state of a request that was begun.
pub(crate) enum Started<P> {
    /// The encoder has the answer.
    Written,
    /// The answer is known.
    Answered(ReplyTo, Box<Reply<P>>),
    /// The request is in flight, and was not polled yet.
    InFlight(InFlight<P>),
}

impl<P> Started<P> {
    /// The id of the statement, if the answer tells the client to prepare it again.
    fn unprepared(&self) -> Option<&[u8]> {
        let Started::Answered(_, reply) = self else { return None };
        match &**reply {
            Reply::Response(Err(QueryError { kind: ErrorKind::Unprepared { id }, .. })) => Some(id),
            _ => None,
        }
    }
}

/// The answer to a request.
pub(crate) enum Reply<P> {
    /// The answer to a statement.
    Response(Result<Response, QueryError>),
    /// The answer to PREPARE.
    Prepared(Md5Id, Arc<Prepared<P>>),
    /// The request is invalid.
    Error(ErrorResponse),
}

/// The parts of a connection that the beginning of a request may change, except for the statements that it knows.
pub(crate) struct Requests<'t, H: QueryHandler> {
    pub(crate) shared: &'t Arc<Shared<H>>,
    pub(crate) session: &'t mut Session,
    pub(crate) encoder: &'t mut Encoder,
    pub(crate) turn: Turn<'t>,
    /// EXECUTE requests that were begun and are not counted yet.
    pub(crate) executes: &'t mut u64,
}

/// The parts of a request's envelope that its answer needs.
#[derive(Clone, Copy)]
struct Envelope<'e> {
    header: &'e Header,
    size_bytes: usize,
}

impl Envelope<'_> {
    fn is_traced(&self) -> bool {
        self.header.flags & flags::TRACING != 0
    }
}

impl<H: QueryHandler> Requests<'_, H> {
    /// Begins a QUERY, PREPARE, EXECUTE or BATCH. `owned` gives the body to a request that outlives the turn.
    pub(crate) fn begin(
        &mut self,
        statements: &mut RecentStatements<H::Plan>,
        header: &Header,
        body: &[u8],
        owned: &dyn Fn() -> Bytes,
    ) -> Started<H::Plan> {
        // It is read in its place, because a move costs more than a copy of a rare error.
        let parsed = Body::parse(header, body);
        let parsed = match &parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.refuse(header.stream, error.clone().into()),
        };
        let envelope = Envelope { header, size_bytes: body.len() };
        if let Some(long) = Long::of(&parsed.request, body.len()) {
            return self.begin_long(statements, envelope, &parsed.request, long, owned());
        }
        match &parsed.request {
            Request::Execute { id, result_metadata_id, options } => {
                *self.executes += 1;
                self.execute(statements, envelope, id, *result_metadata_id, options)
            }
            Request::Query { query, options } => {
                self.shared.metrics.requests.add(1);
                self.shared.metrics.regular_statements_executed.add(1);
                self.begin_statement(Statement::Text(query), options, envelope, |trace| trace.of_query(query, options))
            }
            Request::Batch(batch) => {
                self.shared.metrics.requests.add(1);
                self.batch(statements, envelope, batch)
            }
            Request::Prepare { query, keyspace } => {
                self.shared.metrics.requests.add(1);
                self.prepare(envelope, query, *keyspace)
            }
            // The connection answers these itself.
            Request::Startup(_) | Request::Options | Request::Register(_) | Request::AuthResponse(_) => {
                let message = format!("Unexpected message {}", header.opcode.name());
                self.refuse(header.stream, ProtocolError::new(message).into())
            }
        }
    }

    fn refuse(&mut self, stream: i16, error: ErrorResponse) -> Started<H::Plan> {
        Started::Answered(ReplyTo::new(stream, self.session.take_warnings(), None), Box::new(Reply::Error(error)))
    }

    /// Begins a request whose prepared statement is not known, which fails. As in Cassandra, it is not traced.
    #[cold]
    fn begin_unknown(
        &mut self,
        id: &[u8],
        before: Option<usize>,
        options: &QueryOptions<'_>,
        envelope: Envelope<'_>,
    ) -> Started<H::Plan> {
        let Header { version, stream, .. } = *envelope.header;
        let (statement, client) = (Statement::Unknown { id, before }, &self.session.client);
        let request = query::Request { statement, client, options, version, trace: None };
        let outcome = self.shared.handler.begin(&request, self.turn, None);
        let reply = ReplyTo::new(stream, self.session.take_warnings(), None);
        self.started(outcome, reply, envelope.size_bytes, None)
    }

    #[inline]
    fn execute(
        &mut self,
        statements: &mut RecentStatements<H::Plan>,
        envelope: Envelope<'_>,
        id: &[u8],
        client_columns: Option<&[u8]>,
        options: &QueryOptions<'_>,
    ) -> Started<H::Plan> {
        let Some(statement) = statements.find(&self.shared.prepared, id) else {
            return self.begin_unknown(id, None, options, envelope);
        };
        if statement.keyspace.is_some() && statement.keyspace != self.session.client.keyspace {
            self.session.warn_about_use(id, statement.keyspace.as_deref());
        }
        let request = Statement::Prepared { statement, client_columns };
        let started = self.begin_statement(request, options, envelope, |trace| trace.of_execute(statement, options));
        if started.unprepared().is_some() {
            statements.forget(&self.shared.prepared, id);
        }
        started
    }

    fn batch(
        &mut self,
        statements: &mut RecentStatements<H::Plan>,
        envelope: Envelope<'_>,
        batch: &Batch<'_>,
    ) -> Started<H::Plan> {
        let mut entries = Vec::with_capacity(batch.queries.len());
        for query in &batch.queries {
            let statement = match query.statement {
                BatchStatement::Text(text) => BatchStatement::Text(text),
                BatchStatement::Prepared(id) => match statements.find(&self.shared.prepared, id) {
                    Some(statement) => BatchStatement::Prepared(statement.clone()),
                    None => return self.begin_unknown(id, Some(entries.len()), &batch.options, envelope),
                },
            };
            entries.push(BatchEntry { statement, values: query.values });
        }
        self.shared.metrics.batches_executed.add(1);
        let statement = Statement::Batch { kind: batch.kind, entries: &entries };
        let started = self.begin_statement(statement, &batch.options, envelope, |trace| trace.of_batch(&batch.options));
        if let Some(id) = started.unprepared() {
            statements.forget(&self.shared.prepared, id);
        }
        started
    }

    fn prepare(&mut self, envelope: Envelope<'_>, text: &str, named: Option<&str>) -> Started<H::Plan> {
        let trace = envelope.is_traced().then(|| Trace::begin(&self.session.client));
        let prepared = self.shared.prepared.prepare(&*self.shared.handler, &self.session.client, text, named);
        let reply = match prepared {
            Ok((id, statement)) => {
                if statement.keyspace.is_some() {
                    self.session.warn_about_use(&id, statement.keyspace.as_deref());
                }
                Reply::Prepared(id, statement)
            }
            Err(error) => Reply::Response(Err(error)),
        };
        let tracing_id = trace.as_ref().map(Trace::id);
        if let Some(trace) = trace {
            trace.of_prepare(text).record(self.shared);
        }
        let to = ReplyTo::new(envelope.header.stream, self.session.take_warnings(), tracing_id);
        Started::Answered(to, Box::new(reply))
    }

    /// Begins a statement. If its answer is known at once and needs no warnings, the query layer writes it straight to
    /// the encoder.
    #[inline]
    fn begin_statement(
        &mut self,
        statement: Statement<'_, H::Plan>,
        options: &QueryOptions<'_>,
        envelope: Envelope<'_>,
        describe: impl FnOnce(Trace) -> Trace,
    ) -> Started<H::Plan> {
        // The head of an answer says whether there are warnings, so an answer that has some is written once it is
        // known.
        if envelope.is_traced() || self.session.has_warnings() {
            return self.begin_noted(statement, options, envelope, describe);
        }
        let Envelope { header, size_bytes } = envelope;
        let client = &self.session.client;
        let request = query::Request { statement, client, options, version: header.version, trace: None };
        let head = ResponseHead::new(header.stream, Opcode::Result);
        let (handler, turn) = (&self.shared.handler, self.turn);
        let written = self.encoder.try_envelope(&head, |out| match handler.begin(&request, turn, Some(out)) {
            Outcome::Done(Answer::Written) => Ok(()),
            outcome => Err(outcome),
        });
        match written {
            Ok(()) => Started::Written,
            Err(outcome) => self.started(outcome, ReplyTo::plain(header.stream), size_bytes, None),
        }
    }

    /// Begins a statement whose answer has more than the answer itself: the warnings of the session, the id of a trace.
    #[cold]
    fn begin_noted(
        &mut self,
        statement: Statement<'_, H::Plan>,
        options: &QueryOptions<'_>,
        envelope: Envelope<'_>,
        describe: impl FnOnce(Trace) -> Trace,
    ) -> Started<H::Plan> {
        let trace = envelope.is_traced().then(|| describe(Trace::begin(&self.session.client)));
        let Header { version, stream, .. } = *envelope.header;
        let (client, log) = (&self.session.client, trace.as_ref().map(Trace::log));
        let request = query::Request { statement, client, options, version, trace: log };
        let outcome = self.shared.handler.begin(&request, self.turn, None);
        let tracing_id = trace.as_ref().map(Trace::id);
        let reply = ReplyTo::new(stream, self.session.take_warnings(), tracing_id);
        self.started(outcome, reply, envelope.size_bytes, trace)
    }

    fn started(&self, outcome: Outcome, reply: ReplyTo, size_bytes: usize, trace: Option<Trace>) -> Started<H::Plan> {
        match outcome {
            Outcome::Done(Answer::Written) => Started::Written,
            Outcome::Done(Answer::Response(response)) => {
                if let Some(trace) = trace {
                    trace.record(self.shared);
                }
                Started::Answered(reply, Box::new(Reply::Response(*response)))
            }
            Outcome::Pending(pending) => Started::InFlight(InFlight::pending(reply, size_bytes, pending)),
            Outcome::MustBlock(work) => Started::InFlight(self.run_blocking(*work, trace, reply, size_bytes)),
        }
    }

    /// Begins a request that takes long to read: on a blocking pool, because nothing of it may be read here.
    #[cold]
    fn begin_long(
        &mut self,
        statements: &mut RecentStatements<H::Plan>,
        envelope: Envelope<'_>,
        request: &Request<'_>,
        long: Long,
        body: Bytes,
    ) -> Started<H::Plan> {
        self.shared.metrics.requests.add(1);
        let mut prepared = Vec::new();
        if let Request::Execute { id, options, .. } = request {
            let Some(statement) = statements.find(&self.shared.prepared, id) else {
                return self.begin_unknown(id, None, options, envelope);
            };
            if statement.keyspace.is_some() && statement.keyspace != self.session.client.keyspace {
                self.session.warn_about_use(id, statement.keyspace.as_deref());
            }
            prepared.push(Some(statement.clone()));
        }
        if let Request::Batch(batch) = request {
            for query in &batch.queries {
                prepared.push(match query.statement {
                    BatchStatement::Text(_) => None,
                    BatchStatement::Prepared(id) => match statements.find(&self.shared.prepared, id) {
                        Some(statement) => Some(statement.clone()),
                        None => return self.begin_unknown(id, Some(prepared.len()), &batch.options, envelope),
                    },
                });
            }
        }
        let trace = envelope.is_traced().then(|| Trace::begin(&self.session.client));
        let trace = trace.map(|trace| trace_of_long(trace, request, &prepared));
        match request {
            Request::Query { .. } => self.shared.metrics.regular_statements_executed.add(1),
            Request::Execute { .. } => self.shared.metrics.prepared_statements_executed.add(1),
            Request::Batch(_) => self.shared.metrics.batches_executed.add(1),
            _ => {}
        }
        let body_bytes = body.len();
        let long = LongRequest {
            long,
            shared: self.shared.clone(),
            client: self.session.client.clone(),
            source: self.session.source.clone(),
            header: *envelope.header,
            body,
            prepared,
            trace: trace.as_ref().map(|trace| trace.log().clone()),
        };
        let to = ReplyTo::new(envelope.header.stream, self.session.take_warnings(), trace.as_ref().map(Trace::id));
        let shared = self.shared.clone();
        let answer: AnswerFuture<H::Plan> = Box::pin(async move {
            let answer = long.answer().await;
            if let Some(trace) = trace {
                trace.record(&shared);
            }
            answer
        });
        // A statement's own limit begins once the statement is read.
        let limit = TimeLimit::NONE;
        let size_bytes = body_bytes + size_of_val(&*answer);
        Started::InFlight(InFlight::blocking(to, size_bytes, Blocking { answer, limit, deadline: None }))
    }

    fn run_blocking(
        &self,
        work: MustBlock,
        trace: Option<Trace>,
        reply: ReplyTo,
        size_bytes: usize,
    ) -> InFlight<H::Plan> {
        let limit: TimeLimit = *work.limit();
        let deadline = limit.duration().map(|duration| Instant::now() + duration);
        let (shared, client, source) = (self.shared.clone(), self.session.client.clone(), self.session.source.clone());
        let answer: AnswerFuture<H::Plan> = Box::pin(async move {
            let (response, memory) = blocking::run(source, client, work, deadline).await;
            if let Some(trace) = trace {
                trace.record(&shared);
            }
            (Reply::Response(response), memory)
        });
        let size_bytes = size_bytes + size_of_val(&*answer);
        InFlight::blocking(reply, size_bytes, Blocking { answer, limit, deadline })
    }
}

/// The trace of a request that takes long to read, with the request in it.
fn trace_of_long<P>(trace: Trace, request: &Request<'_>, prepared: &[Option<Arc<Prepared<P>>>]) -> Trace {
    match request {
        Request::Query { query, options } => trace.of_query(query, options),
        Request::Batch(batch) => trace.of_batch(&batch.options),
        Request::Prepare { query, .. } => trace.of_prepare(query),
        Request::Execute { options, .. } => match prepared.first() {
            Some(Some(statement)) => trace.of_execute(statement, options),
            _ => trace,
        },
        _ => trace,
    }
}
