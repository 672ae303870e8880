//! Requests begun in a connection's turn: from the bytes of a request to its answer, or to a request under way.

use std::sync::Arc;
use std::time::Instant;

use protocol::{
    Batch, Body, Encoder, ErrorKind, ErrorResponse, Header, Opcode, ProtocolError, QueryOptions, Request, ResponseHead,
    flags,
};
use query::{
    Answer, BatchEntry, BatchStatement, MustBlock, Outcome, Prepared, QueryError, QueryHandler, Response, Statement,
    TimeLimit, Turn,
};

use crate::in_flight::{Answering, Blocking, InFlight, ReplyTo};
use crate::prepared::{Md5Id, RecentStatements};
use crate::session::Session;
use crate::trace::Trace;
use crate::{Shared, blocking};

/// What became of a request.
pub(crate) enum Begun<P> {
    /// The answer is with the encoder.
    Written,
    /// The answer is known.
    Answered(ReplyTo, Box<Reply<P>>),
    /// It is under way, and was not polled yet.
    UnderWay(InFlight),
}

impl<P> Begun<P> {
    /// The id of the statement that the client has to prepare again, if that is the answer.
    fn unprepared(&self) -> Option<&[u8]> {
        let Begun::Answered(_, reply) = self else { return None };
        match &**reply {
            Reply::Response(Err(QueryError { kind: ErrorKind::Unprepared { id }, .. })) => Some(id),
            _ => None,
        }
    }
}

/// The answer to a request.
pub(crate) enum Reply<P> {
    /// That of a statement.
    Response(Result<Response, QueryError>),
    /// That of PREPARE.
    Prepared(Md5Id, Arc<Prepared<P>>),
    /// The request could not be understood.
    Error(ErrorResponse),
}

/// What beginning a request changes of its connection.
pub(crate) struct Requests<'t, H: QueryHandler> {
    pub(crate) shared: &'t Arc<Shared<H>>,
    pub(crate) session: &'t mut Session,
    pub(crate) statements: &'t mut RecentStatements<H::Plan>,
    pub(crate) encoder: &'t mut Encoder,
    pub(crate) turn: Turn<'t>,
    /// EXECUTE requests begun and not counted yet.
    pub(crate) executes: &'t mut u64,
}

/// The parts of a request's envelope that its answer or its trace needs.
struct Envelope<'e> {
    header: &'e Header,
    size_bytes: usize,
    trace: Option<Box<Trace>>,
}

impl<H: QueryHandler> Requests<'_, H> {
    /// Begins a QUERY, PREPARE, EXECUTE or BATCH.
    pub(crate) fn begin(mut self, header: &Header, body: &[u8]) -> Begun<H::Plan> {
        let request = match Body::parse(header, body) {
            Ok(parsed) => parsed.request,
            Err(error) => return self.refuse(header.stream, error.into()),
        };
        let trace = (header.flags & flags::TRACING != 0).then(|| Box::new(Trace::begin(self.session.client.address)));
        let envelope = Envelope { header, size_bytes: body.len(), trace };
        match request {
            Request::Execute { id, result_metadata_id, ref options } => {
                *self.executes += 1;
                self.execute(envelope, id, result_metadata_id, options)
            }
            Request::Query { query, ref options } => {
                self.shared.metrics.requests.add(1);
                self.shared.metrics.regular_statements_executed.add(1);
                let trace = envelope.trace.map(|trace| Box::new(trace.of_query(query, options)));
                self.carry_out(Statement::Text(query), options, Envelope { trace, ..envelope })
            }
            Request::Batch(ref batch) => {
                self.shared.metrics.requests.add(1);
                self.batch(envelope, batch)
            }
            Request::Prepare { query, keyspace } => {
                self.shared.metrics.requests.add(1);
                self.prepare(envelope, query, keyspace)
            }
            // The connection answers these itself.
            Request::Startup(_) | Request::Options | Request::Register(_) | Request::AuthResponse(_) => {
                let message = format!("Unexpected message {}", header.opcode.name());
                self.refuse(header.stream, ProtocolError::new(message).into())
            }
        }
    }

    fn refuse(&mut self, stream: i16, error: ErrorResponse) -> Begun<H::Plan> {
        Begun::Answered(ReplyTo::new(stream, self.session.take_warnings(), None), Box::new(Reply::Error(error)))
    }

    fn execute(
        &mut self,
        mut envelope: Envelope<'_>,
        id: &[u8],
        client_columns: Option<&[u8]>,
        options: &QueryOptions<'_>,
    ) -> Begun<H::Plan> {
        let stream = envelope.header.stream;
        let Some(statement) = self.statements.find(&self.shared.prepared, id) else {
            return self.refuse(stream, ErrorResponse::unprepared(id));
        };
        if statement.keyspace.is_some() && statement.keyspace != self.session.client.keyspace {
            self.session.warn_about_use(id, statement.keyspace.as_deref());
        }
        envelope.trace = envelope.trace.map(|trace| Box::new(trace.of_execute(statement, options)));
        let request = Statement::Prepared { statement, client_columns };
        let mut requests =
            Carrying { shared: self.shared, session: self.session, encoder: self.encoder, turn: self.turn };
        let begun = requests.carry_out(request, options, envelope);
        if begun.unprepared().is_some() {
            self.statements.forget(&self.shared.prepared, id);
        }
        begun
    }

    fn batch(&mut self, mut envelope: Envelope<'_>, batch: &Batch<'_>) -> Begun<H::Plan> {
        let mut entries = Vec::with_capacity(batch.queries.len());
        for query in &batch.queries {
            let statement = match query.statement {
                protocol::BatchStatement::Text(text) => BatchStatement::Text(text),
                protocol::BatchStatement::Prepared(id) => match self.statements.find(&self.shared.prepared, id) {
                    Some(statement) => BatchStatement::Prepared(statement.clone()),
                    None => return self.refuse(envelope.header.stream, ErrorResponse::unprepared(id)),
                },
            };
            entries.push(BatchEntry { statement, values: query.values });
        }
        self.shared.metrics.batches_executed.add(1);
        envelope.trace = envelope.trace.map(|trace| Box::new(trace.of_batch(&batch.options)));
        let statement = Statement::Batch { kind: batch.kind, entries: &entries };
        let begun = self.carry_out(statement, &batch.options, envelope);
        if let Some(id) = begun.unprepared() {
            self.statements.forget(&self.shared.prepared, id);
        }
        begun
    }

    fn prepare(&mut self, envelope: Envelope<'_>, text: &str, keyspace: Option<&str>) -> Begun<H::Plan> {
        let named = keyspace;
        let keyspace = named.map(Arc::from).or_else(|| self.session.client.keyspace.clone());
        let prepared = self.shared.prepared.prepare(&*self.shared.handler, text, keyspace.as_ref(), named);
        let reply = match prepared {
            Ok((id, statement)) => {
                self.statements.replaced(&id);
                if statement.keyspace.is_some() {
                    self.session.warn_about_use(&id, keyspace.as_deref());
                }
                self.session.warn(&statement.warnings);
                Reply::Prepared(id, statement)
            }
            Err(error) => Reply::Response(Err(error)),
        };
        let tracing_id = envelope.trace.as_deref().map(Trace::id);
        if let Some(trace) = envelope.trace {
            trace.of_prepare(text).record_in_background(self.shared.clone());
        }
        let to = ReplyTo::new(envelope.header.stream, self.session.take_warnings(), tracing_id);
        Begun::Answered(to, Box::new(reply))
    }

    fn carry_out(
        &mut self,
        statement: Statement<'_, H::Plan>,
        options: &QueryOptions<'_>,
        envelope: Envelope<'_>,
    ) -> Begun<H::Plan> {
        Carrying { shared: self.shared, session: self.session, encoder: self.encoder, turn: self.turn }
            .carry_out(statement, options, envelope)
    }
}

/// What carrying out a statement changes of its connection: not the statements that it knows.
struct Carrying<'t, H: QueryHandler> {
    shared: &'t Arc<Shared<H>>,
    session: &'t mut Session,
    encoder: &'t mut Encoder,
    turn: Turn<'t>,
}

impl<H: QueryHandler> Carrying<'_, H> {
    fn carry_out(
        &mut self,
        statement: Statement<'_, H::Plan>,
        options: &QueryOptions<'_>,
        envelope: Envelope<'_>,
    ) -> Begun<H::Plan> {
        let Envelope { header, size_bytes, trace } = envelope;
        let request = query::Request {
            statement,
            client: &self.session.client,
            options,
            version: header.version,
            trace: trace.as_deref().map(Trace::log),
        };
        let (handler, turn) = (&self.shared.handler, self.turn);
        let mut outcome = None;
        // The head of the answer says whether there are warnings: an answer that has some is written when it is known.
        if trace.is_none() && !self.session.has_warnings() {
            let head = ResponseHead::new(header.stream, Opcode::Result);
            let is_written = self.encoder.try_envelope(&head, |out| {
                let outcome = outcome.insert(handler.begin(&request, turn, Some(out)));
                matches!(outcome, Outcome::Done(Answer::Written))
            });
            if is_written {
                return Begun::Written;
            }
        }
        let outcome = outcome.unwrap_or_else(|| handler.begin(&request, turn, None));
        let reply = match (&trace, self.session.has_warnings()) {
            (None, false) => ReplyTo { stream: header.stream, extra: None },
            (trace, _) => ReplyTo::new(header.stream, self.session.take_warnings(), trace.as_deref().map(Trace::id)),
        };
        match outcome {
            Outcome::Done(Answer::Written) => Begun::Written,
            Outcome::Done(Answer::Response(response)) => {
                if let Some(trace) = trace {
                    trace.record_in_background(self.shared.clone());
                }
                Begun::Answered(reply, Box::new(Reply::Response(*response)))
            }
            Outcome::Pending(pending) => Begun::UnderWay(InFlight::pending(reply, size_bytes, pending)),
            Outcome::MustBlock(work) => Begun::UnderWay(self.run_blocking(*work, trace, reply, size_bytes)),
        }
    }

    fn run_blocking(&self, work: MustBlock, trace: Option<Box<Trace>>, reply: ReplyTo, size_bytes: usize) -> InFlight {
        let limit: TimeLimit = *work.limit();
        let deadline = limit.duration().map(|duration| Instant::now() + duration);
        let answering: Answering = match trace {
            None => Box::pin(blocking::run(work, deadline)),
            Some(trace) => {
                let shared = self.shared.clone();
                Box::pin(async move {
                    let response = blocking::run(work, deadline).await;
                    trace.record(shared).await;
                    response
                })
            }
        };
        InFlight::blocking(reply, size_bytes, Blocking { answering, limit, deadline })
    }
}
