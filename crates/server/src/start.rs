//! From a request to work under way: everything that needs no waiting happens here, on the connection's task.

use crate::blocking_pool::Line;
use crate::handler::{BatchEntry, BatchStatement, QueryHandler};
use crate::in_flight::{InFlight, TimeLimit};
use crate::long_text;
use crate::prepared::{Prepared, RecentStatements};
use crate::reply::{Answer, MetadataForm, Reply, error_response};
use crate::session::Session;
use crate::trace::Trace;
use crate::{ServerOptions, Shared};
use bytes::Bytes;
use protocol::{Body, Envelope, ErrorResponse, Header, ProtocolError, Request, Version, flags};
use query::{
    ClientState, Consistency, QueryError, QueryOptions, Response, ResponseBody, Value, Values, WriteType, result_id,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What became of a request.
// As with `Begun`.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Started<H: QueryHandler> {
    /// Nothing is left to do.
    Answered(Reply<H>),
    /// The answer is with the encoder.
    Sent,
    /// The work, not polled yet.
    Working(InFlight<H>),
}

/// Begins a QUERY, PREPARE, EXECUTE or BATCH.
pub(crate) fn start<H: QueryHandler>(
    shared: &Arc<Shared<H>>,
    session: &mut Session,
    statements: &mut RecentStatements<H>,
    envelope: Envelope,
) -> Started<H> {
    let Envelope { header, body } = envelope;
    let trace = (header.flags & flags::TRACING != 0).then(|| Trace::begin(session.client.address));
    let tracing_id = trace.as_ref().map(Trace::id);
    let reply = |session: &mut Session, answer| Reply {
        tracing_id,
        warnings: session.take_warnings(),
        ..Reply::new(header.stream, answer)
    };
    let parsed = match Body::parse(&header, &body) {
        Ok(parsed) => parsed,
        Err(error) => return Started::Answered(reply(session, Err(error.into()))),
    };
    let begun = match parsed.request {
        Request::Query { query, ref options } => begin_query(shared, query, options),
        Request::Execute { id, result_metadata_id, ref options } => {
            let mut begun = begin_execute(shared, session, statements, id, options);
            if let (Ok((Work::Execute(prepared), limit)), None) = (&mut begun, &trace)
                && !limit.blocks()
                && !prepared.is_modification
            {
                match execute_at_once(shared, session, prepared, result_metadata_id, options, &header) {
                    Some(Ok(reply)) => return Started::Answered(reply),
                    Some(Err(HasToWait)) => *limit = limit.clone().waiting(),
                    None => {}
                }
            }
            begun
        }
        Request::Batch(ref batch) => begin_batch(shared, batch),
        Request::Prepare { .. } if long_text::is_long(&parsed.request) => Ok((Work::Prepare, TimeLimit::NONE)),
        Request::Prepare { query, keyspace } => {
            let prepared = prepare(shared, session, query, keyspace);
            let reply = reply(session, prepared.map(Answer::Prepared));
            return match trace {
                Some(trace) => Started::Working(traced_prepare(shared, &session.line, trace, header, body, reply)),
                None => Started::Answered(reply),
            };
        }
        // The connection answers these itself.
        Request::Startup(_) | Request::Options | Request::Register(_) | Request::AuthResponse(_) => {
            Err(ProtocolError::new(format!("Unexpected message {}", header.opcode.name())).into())
        }
    };
    let (work, limit) = match begun {
        Ok((work, limit)) if long_text::is_long(&parsed.request) => (work, limit.of_long_text()),
        Ok(begun) => begun,
        Err(error) => return Started::Answered(reply(session, Err(error))),
    };
    let warnings = session.take_warnings();
    let body = of_its_own(body);
    let size_bytes = body.len();
    let cancelled = Arc::new(AtomicBool::new(false));
    let (shared, client) = (shared.clone(), session.client.clone());
    let task = Task { shared, client, header, body, trace, warnings, cancelled: cancelled.clone() };
    let task = Box::pin(task.run(work));
    let size_bytes = size_bytes + size_of_val(&*task);
    Started::Working(InFlight::new(header.stream, size_bytes, limit, &session.line, task).cancelling(cancelled))
}

/// The body of a request that is kept for long: a small one shares no memory with the requests that arrived with it.
fn of_its_own(body: Bytes) -> Bytes {
    const COPIED_BYTES: usize = 64 * 1024;
    if body.len() < COPIED_BYTES { Bytes::copy_from_slice(&body) } else { body }
}

/// What a request will do, once its bytes are read again by the work that owns them.
enum Work<H: QueryHandler> {
    Query,
    /// Of a long text.
    Prepare,
    Execute(Arc<Prepared<H>>),
    /// The statement of each entry that is prepared.
    Batch(Vec<Option<Arc<Prepared<H>>>>),
}

type Begun<H> = Result<(Work<H>, TimeLimit), ErrorResponse>;

fn begin_query<H: QueryHandler>(shared: &Shared<H>, query: &str, options: &protocol::QueryOptions<'_>) -> Begun<H> {
    check_page_size(options)?;
    shared.metrics.regular_statements_executed.add(1);
    let word = first_word(query);
    let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
    let limit = if is("SELECT") {
        read_limit(&shared.options, may_scan(query), options.consistency)
    } else if is("INSERT") || is("UPDATE") || is("DELETE") {
        TimeLimit::write(shared.options.write_timeout, options.consistency, WriteType::Simple)
    } else if is("BEGIN") {
        TimeLimit::write(shared.options.write_timeout, options.consistency, WriteType::Batch)
    } else if is("TRUNCATE") {
        TimeLimit::truncate(shared.options.truncate_timeout)
    } else if is("CREATE") || is("ALTER") || is("DROP") {
        TimeLimit::OF_SCHEMA_CHANGES
    } else {
        TimeLimit::NONE
    };
    Ok((Work::Query, limit))
}

/// The limit of a read. What may look at many partitions ends itself when its own time is over.
fn read_limit(options: &ServerOptions, scans: bool, consistency: Consistency) -> TimeLimit {
    let duration = if scans { options.read_timeout.max(options.range_timeout) } else { options.read_timeout };
    TimeLimit::read(duration, consistency).blocking(scans)
}

/// The word that a statement begins with, behind comments; empty where it begins with none.
fn first_word(query: &str) -> &str {
    let mut rest = query.trim_start();
    loop {
        let end = if rest.starts_with("--") || rest.starts_with("//") {
            rest.find(['\n', '\r']).map(|at| at + 1)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map(|at| at + 4)
        } else {
            break;
        };
        rest = rest.get(end.unwrap_or(rest.len())..).unwrap_or_default().trim_start();
    }
    rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default()
}

/// Whether a SELECT may look at many partitions, by its text.
fn may_scan(query: &str) -> bool {
    let has = |word: &str| query.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    !has("where") || has("filtering") || has("token")
}

fn begin_execute<H: QueryHandler>(
    shared: &Shared<H>,
    session: &mut Session,
    statements: &mut RecentStatements<H>,
    id: &[u8],
    options: &protocol::QueryOptions<'_>,
) -> Begun<H> {
    let prepared = statements.get(shared, id).ok_or_else(|| ErrorResponse::unprepared(id))?;
    if prepared.keyspace.is_some() && prepared.keyspace != session.client.keyspace {
        session.warn_about_use(&prepared.id, prepared.keyspace.as_deref());
    }
    check_page_size(options)?;
    shared.metrics.prepared_statements_executed.add(1);
    let limit = if prepared.is_modification {
        TimeLimit::write(shared.options.write_timeout, options.consistency, WriteType::Simple)
    } else if prepared.result.is_some() {
        // Without the whole partition key among its markers it may look at many partitions.
        let scans = prepared.partition_key.is_empty();
        read_limit(&shared.options, scans, options.consistency)
    } else {
        // Of what can be prepared these are left, and USE.
        TimeLimit::OF_SCHEMA_CHANGES
    };
    Ok((Work::Execute(prepared), limit))
}

fn begin_batch<H: QueryHandler>(shared: &Shared<H>, batch: &protocol::Batch<'_>) -> Begun<H> {
    let mut prepared = Vec::with_capacity(batch.queries.len());
    for query in &batch.queries {
        prepared.push(match query.statement {
            protocol::BatchStatement::Text(_) => None,
            protocol::BatchStatement::Prepared(id) => {
                let found = shared.prepared.get(&shared.handler, id);
                Some(found.ok_or_else(|| ErrorResponse::unprepared(id))?)
            }
        });
    }
    shared.metrics.batches_executed.add(1);
    let write_type = match batch.kind {
        protocol::BatchKind::Logged => WriteType::Batch,
        protocol::BatchKind::Unlogged => WriteType::UnloggedBatch,
        protocol::BatchKind::Counter => WriteType::Counter,
    };
    let limit = TimeLimit::write(shared.options.write_timeout, batch.options.consistency, write_type);
    Ok((Work::Batch(prepared), limit))
}

fn prepare<H: QueryHandler>(
    shared: &Shared<H>,
    session: &mut Session,
    query: &str,
    keyspace: Option<&str>,
) -> Result<Arc<Prepared<H>>, ErrorResponse> {
    let (prepared, keyspace) = find_or_prepare(shared, &session.client, query, keyspace)?;
    if prepared.keyspace.is_some() {
        session.warn_about_use(&prepared.id, keyspace.as_deref());
    }
    session.warn(&prepared.warnings);
    Ok(prepared)
}

/// A prepared statement, and the keyspace of names that say none.
type Found<H> = (Arc<Prepared<H>>, Option<Arc<str>>);

/// What a PREPARE asks for.
fn find_or_prepare<H: QueryHandler>(
    shared: &Shared<H>,
    client: &ClientState,
    query: &str,
    keyspace: Option<&str>,
) -> Result<Found<H>, ErrorResponse> {
    shared.handler.check_keyspace(keyspace).map_err(error_response)?;
    let keyspace = keyspace.map(Arc::from).or_else(|| client.keyspace.clone());
    let prepared = shared.prepared.prepare(&shared.handler, query, keyspace.as_ref()).map_err(error_response)?;
    Ok((prepared, keyspace))
}

/// The answer to a PREPARE, once its trace is written.
fn traced_prepare<H: QueryHandler>(
    shared: &Arc<Shared<H>>,
    line: &Arc<Line>,
    trace: Trace,
    header: Header,
    body: Bytes,
    reply: Reply<H>,
) -> InFlight<H> {
    let (shared, size_bytes) = (shared.clone(), body.len());
    let work = async move {
        trace.record(&shared, &header, &body, None).await;
        reply
    };
    InFlight::new(header.stream, size_bytes, TimeLimit::NONE, line, Box::pin(work))
}

fn check_page_size(options: &protocol::QueryOptions<'_>) -> Result<(), ErrorResponse> {
    if options.page_size == Some(0) {
        return Err(ProtocolError::new("The page size cannot be 0").into());
    }
    Ok(())
}

/// A request that owns all it needs, so that it can outlive its connection.
struct Task<H: QueryHandler> {
    shared: Arc<Shared<H>>,
    client: Arc<ClientState>,
    header: Header,
    body: Bytes,
    trace: Option<Trace>,
    warnings: Vec<String>,
    /// Set when nobody waits for the reply any more.
    cancelled: Arc<AtomicBool>,
}

impl<H: QueryHandler> Task<H> {
    async fn run(mut self, work: Work<H>) -> Reply<H> {
        let mut warned = Vec::new();
        let mut answer = self.execute(&work, &mut warned).await;
        add_warnings(&mut answer, &mut self.warnings, warned);
        let mut tracing_id = None;
        if let Some(trace) = &self.trace {
            tracing_id = Some(trace.id());
            let prepared = match &work {
                Work::Execute(prepared) => Some(&**prepared),
                _ => None,
            };
            trace.record(&self.shared, &self.header, &self.body, prepared).await;
        }
        let mut reply = Reply { tracing_id, warnings: self.warnings, ..Reply::new(self.header.stream, answer) };
        reply.hold(&self.client);
        reply
    }

    fn query_options<'a>(&'a self, options: &protocol::QueryOptions<'a>, bound: &'a Bound<'a>) -> QueryOptions<'a> {
        let options = query_options(options, bound, self.header.version, self.trace.as_ref());
        QueryOptions { cancelled: Some(&self.cancelled), ..options }
    }

    /// Carries the request out. What the client is to be warned of besides a failure goes into `warned`.
    async fn execute(&self, work: &Work<H>, warned: &mut Vec<String>) -> Result<Answer<H>, ErrorResponse> {
        // Parsed once already, so this cannot fail; parsing again is what lets the work own its bytes.
        let body = Body::parse(&self.header, &self.body)?;
        let handler = &*self.shared.handler;
        let _memory = long_text::hold(&body.request, &self.client)?;
        match (body.request, work) {
            (Request::Prepare { query, keyspace }, Work::Prepare) => {
                let (prepared, _) = find_or_prepare(&self.shared, &self.client, query, keyspace)?;
                warned.extend_from_slice(&prepared.warnings);
                Ok(Answer::Prepared(prepared))
            }
            (Request::Query { query, options }, Work::Query) => {
                let bound = Bound::new(&options.values);
                let query_options = self.query_options(&options, &bound);
                let response = handler.query(query, &self.client, &query_options).await;
                let skip = options.skip_metadata;
                answer(response, warned, |_| MetadataForm::of_rows(skip))
            }
            (Request::Execute { result_metadata_id, options, .. }, Work::Execute(prepared)) => {
                let bound = Bound::new(&options.values);
                let query_options = self.query_options(&options, &bound);
                let response = handler.execute(&prepared.statement, &self.client, &query_options).await;
                answer(response, warned, |response| {
                    metadata_form(prepared, result_metadata_id, options.skip_metadata, response)
                })
            }
            (Request::Batch(batch), Work::Batch(prepared)) => {
                let entries: Vec<_> = batch.queries.iter().zip(prepared).map(batch_entry::<H>).collect();
                let bound = Bound::Positional(Vec::new());
                let options = self.query_options(&batch.options, &bound);
                let response = handler.batch(batch.kind, &entries, &self.client, &options).await;
                answer(response, warned, |_| MetadataForm::of_rows(false))
            }
            (request, _) => Err(ProtocolError::new(format!("Unexpected request {request:?}")).into()),
        }
    }
}

/// A statement that would have had to wait for a device; it had no effect.
struct HasToWait;

/// Carries out a prepared statement that needs no waiting: nothing of the request has to outlive this call.
fn execute_at_once<H: QueryHandler>(
    shared: &Shared<H>,
    session: &mut Session,
    prepared: &Arc<Prepared<H>>,
    result_metadata_id: Option<&[u8]>,
    options: &protocol::QueryOptions<'_>,
    header: &Header,
) -> Option<Result<Reply<H>, HasToWait>> {
    let bound = Bound::new(&options.values);
    let query_options = query_options(options, &bound, header.version, None);
    let response = shared.handler.execute_at_once(&prepared.statement, &session.client, &query_options)?;
    if matches!(&response, Err(error) if error.would_wait()) {
        return Some(Err(HasToWait));
    }
    let mut warned = Vec::new();
    let mut answer = answer(response, &mut warned, |response| {
        metadata_form(prepared, result_metadata_id, options.skip_metadata, response)
    });
    let mut warnings = session.take_warnings();
    add_warnings(&mut answer, &mut warnings, warned);
    Some(Ok(Reply { warnings, ..Reply::new(header.stream, answer) }))
}

/// The answer to a modification that was begun.
pub(crate) fn written<H: QueryHandler>(stream: i16, response: Result<Response, QueryError>) -> Reply<H> {
    let mut warnings = Vec::new();
    let answer = answer(response, &mut warnings, |_| MetadataForm::of_rows(false));
    Reply { warnings, ..Reply::new(stream, answer) }
}

/// Puts what the statement `warned` of before the other warnings; those of a result go with it.
fn add_warnings<H: QueryHandler>(
    answer: &mut Result<Answer<H>, ErrorResponse>,
    warnings: &mut Vec<String>,
    warned: Vec<String>,
) {
    warnings.splice(0..0, warned);
    if let (Ok(Answer::Result { response, .. }), false) = (answer, warnings.is_empty()) {
        response.warnings.append(warnings);
    }
}

fn answer<H: QueryHandler>(
    response: Result<Response, QueryError>,
    warned: &mut Vec<String>,
    form: impl FnOnce(&Response) -> MetadataForm,
) -> Result<Answer<H>, ErrorResponse> {
    let response = response.map_err(|mut error| {
        warned.append(&mut error.warnings);
        error_response(error)
    })?;
    let metadata = form(&response);
    Ok(Answer::Result { response, metadata })
}

/// The form in which the columns accompany rows. A v5 client says which columns it has; an older client is believed
/// where the statement has always had the same columns.
fn metadata_form<H: QueryHandler>(
    prepared: &Prepared<H>,
    client_id: Option<&[u8]>,
    skip: bool,
    response: &Response,
) -> MetadataForm {
    let ResponseBody::Rows(rows) = &response.body else { return MetadataForm::of_rows(false) };
    if prepared.is_modification {
        // The answer to a condition: its columns depend on the outcome.
        return MetadataForm::of_rows(false);
    }
    let id = match prepared.result {
        Some(_) => prepared.result_id,
        // Rows that PREPARE could not foresee.
        None => result_id(rows.metadata.specs()),
    };
    match client_id {
        Some(client_id) if client_id != id => MetadataForm { skip: false, changed_id: Some(id) },
        None if prepared.result.is_none() => MetadataForm::of_rows(false),
        _ => MetadataForm { skip, changed_id: None },
    }
}

fn batch_entry<'a, H: QueryHandler>(
    (query, prepared): (&protocol::BatchQuery<'a>, &Option<Arc<Prepared<H>>>),
) -> BatchEntry<'a, H::Statement> {
    let statement = match (prepared, query.statement) {
        (Some(prepared), _) => BatchStatement::Prepared(prepared.statement.clone()),
        (None, protocol::BatchStatement::Text(text)) => BatchStatement::Text(text),
        // Every id has its statement; an empty text is a syntax error, should one not.
        (None, protocol::BatchStatement::Prepared(_)) => BatchStatement::Text(""),
    };
    BatchEntry { statement, values: query.values.iter().map(|(_, value)| value).collect() }
}

/// The values of a request in the query layer's terms.
pub(crate) enum Bound<'a> {
    /// So many of the first.
    Few([Value<'a>; FEW_VALUES], usize),
    Positional(Vec<Value<'a>>),
    Named(Vec<(&'a str, Value<'a>)>),
}

/// So many values need no memory of their own.
const FEW_VALUES: usize = 8;

impl<'a> Bound<'a> {
    pub(crate) fn new(values: &protocol::Values<'a>) -> Bound<'a> {
        if values.is_named() {
            let named = values.iter().filter_map(|(name, value)| Some((name?, value)));
            return Bound::Named(named.collect());
        }
        let converted = values.iter().map(|(_, value)| value);
        if values.len() > FEW_VALUES {
            return Bound::Positional(converted.collect());
        }
        let (mut few, mut count) = ([Value::Null; FEW_VALUES], 0);
        for (place, value) in few.iter_mut().zip(converted) {
            *place = value;
            count += 1;
        }
        Bound::Few(few, count)
    }

    fn values(&self) -> Values<'_> {
        match self {
            Bound::Few(values, count) => Values::Positional(&values[..*count]),
            Bound::Positional(values) => Values::Positional(values),
            Bound::Named(values) => Values::Named(values),
        }
    }
}

pub(crate) fn query_options<'a>(
    options: &protocol::QueryOptions<'a>,
    bound: &'a Bound<'a>,
    version: Version,
    trace: Option<&'a Trace>,
) -> QueryOptions<'a> {
    QueryOptions {
        consistency: options.consistency,
        serial_consistency: options.serial_consistency,
        values: bound.values(),
        value_bytes: options.values.positional_bytes(),
        page_size: options.page_size,
        paging_state: options.paging_state,
        timestamp: options.timestamp,
        now_in_seconds: options.now_in_seconds,
        keyspace: options.keyspace,
        protocol_version: version.number(),
        skip_metadata: options.skip_metadata,
        trace: trace.map(Trace::log),
        cancelled: None,
    }
}

#[cfg(test)]
mod tests {
    use super::first_word;

    #[test]
    fn a_statement_begins_behind_its_comments() {
        for (query, word) in [
            ("SELECT*FROM t", "SELECT"),
            (" \n drop table t", "drop"),
            ("-- gone\nDROP TABLE t", "DROP"),
            ("// gone\r /* and /* gone */ -- x\n\tCREATE TABLE t", "CREATE"),
            ("/*/ still */DROP", "DROP"),
            ("/* never ends", ""),
            ("-- never ends", ""),
            ("", ""),
            ("'text' SELECT", ""),
        ] {
            assert_eq!(first_word(query), word, "{query}");
        }
    }
}
