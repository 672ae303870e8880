//! Traced requests. The client gets an id, and reads the trace from `system_traces`.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::{ColumnSpec, QueryOptions, Value, Values, Version};
use query::{
    ClientState, KeptForms, Lease, Outcome, Prepared, QueryError, QueryHandler, Request, Statement, TraceLog, Turn,
    without_passwords,
};
use uuid::{Timestamp, Uuid};

use crate::Shared;
use crate::blocking_pool::Overloaded;
use crate::limits::FREE_BYTES;

/// The node part of the time-based ids made here. Its multicast bit says that it is not the address of a network card.
const NODE: [u8; 6] = [0x01, b'e', b's', b'p', b'a', b'l'];

/// The time from the start of the Gregorian calendar to that of 1970, in units of 100 ns.
const GREGORIAN_TO_UNIX_TICKS: u64 = 0x01B2_1DD2_1381_4000;

/// Traces are kept for a day, as in Cassandra.
const TTL_SECONDS: u32 = 86_400;

/// Bound values are cut to this number of characters, as in Cassandra.
const SHOWN_VALUE_CHARACTERS: usize = 1000;

/// The trace of a request that is in flight.
#[derive(Debug)]
pub(crate) struct Trace {
    id: Uuid,
    client: Option<SocketAddr>,
    log: Arc<TraceLog>,
    started_at: SystemTime,
    /// The kind of the request, in Cassandra's words.
    request: &'static str,
    /// The parameters of the request, as a CQL map with Cassandra's keys.
    parameters: String,
    /// The memory of a long text, held until the trace is written.
    memory: Option<Lease>,
}

impl Trace {
    pub(crate) fn begin(client: &ClientState) -> Trace {
        Trace {
            id: Uuid::now_v1(&NODE),
            client: client.address,
            memory: client.memory.clone().map(Lease::new),
            log: Arc::new(TraceLog::begin()),
            started_at: SystemTime::now(),
            request: "",
            parameters: "{}".to_owned(),
        }
    }

    /// The trace of a QUERY.
    pub(crate) fn of_query(self, text: &str, options: &QueryOptions<'_>) -> Trace {
        Trace {
            request: "Execute CQL3 query",
            parameters: parameters(Some(&without_passwords(text)), Vec::new(), options),
            ..self
        }
    }

    /// The trace of an EXECUTE.
    pub(crate) fn of_execute<P>(self, statement: &Prepared<P>, options: &QueryOptions<'_>) -> Trace {
        let text = without_passwords(&statement.text);
        let bound = match &text {
            Cow::Borrowed(_) => bound_values(&statement.variables, options),
            // They may be hashes of passwords.
            Cow::Owned(_) => Vec::new(),
        };
        let parameters = parameters(Some(&text), bound, options);
        Trace { request: "Execute CQL3 prepared query", parameters, ..self }
    }

    /// The trace of a BATCH.
    pub(crate) fn of_batch(self, options: &QueryOptions<'_>) -> Trace {
        Trace { request: "Execute batch of CQL3 queries", parameters: parameters(None, Vec::new(), options), ..self }
    }

    /// The trace of a PREPARE.
    pub(crate) fn of_prepare(self, text: &str) -> Trace {
        Trace {
            request: "Preparing CQL3 query",
            parameters: format!("{{'query': {}}}", quoted(&without_passwords(text))),
            ..self
        }
    }

    pub(crate) fn id(&self) -> [u8; 16] {
        *self.id.as_bytes()
    }

    /// The log to which the query layer adds events.
    pub(crate) fn log(&self) -> &Arc<TraceLog> {
        &self.log
    }

    /// Writes the session and its events in the background, since a client gets its answer before its trace. The trace
    /// is lost, but not the request, if that fails, if too many traces wait, or if its client has no memory left for a
    /// long text.
    pub(crate) fn record<H: QueryHandler>(mut self, shared: &Arc<Shared<H>>) {
        // The text is held three times: here, in an event, and in the statement that inserts it.
        let held_bytes = 3 * self.parameters.len();
        let has_memory =
            held_bytes <= FREE_BYTES || self.memory.as_mut().is_none_or(|memory| memory.try_grow(held_bytes));
        let writer = shared.clone();
        let started = match has_memory {
            true => shared.pools.traces.run(&shared.trace_source, async move { self.write(&writer) }),
            false => Err(Overloaded),
        };
        match started {
            Ok(written) => drop(tokio::spawn(written)),
            Err(Overloaded) => shared.notices.traces.log(|left_out| {
                tracing::warn!("trace not written: too many traces wait, or its client's memory is short{left_out}");
            }),
        }
    }

    /// The session is written last, since clients read the events once the session is there.
    fn write<H: QueryHandler>(&self, shared: &Shared<H>) {
        let mut started = Vec::new();
        self.insert_events(shared, &mut started);
        self.insert_session(shared, &mut started);
        for outcome in started {
            if let Err(error) = outcome.and_then(Outcome::into_response) {
                shared.notices.traces.log(|left_out| tracing::warn!(%error, "trace not written{left_out}"));
            }
        }
    }

    fn insert_session<H: QueryHandler>(&self, shared: &Shared<H>, started: &mut Vec<Result<Outcome, QueryError>>) {
        let duration = micros(self.log.elapsed());
        let Trace { request, parameters, .. } = self;
        let coordinator = address_bytes(shared.local.ip());
        let client = self.client.map(|address| address_bytes(address.ip()));
        let started_at = self.since_epoch().as_millis() as i64;
        let port = i32::from(shared.local.port()).to_be_bytes();
        let text = format!(
            "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, duration, \
             parameters, request, started_at) VALUES (?, ?, 'QUERY', ?, ?, ?, {parameters}, ?, ?) USING TTL \
             {TTL_SECONDS}"
        );
        let values = [
            Value::Bytes(self.id.as_bytes()),
            client.as_deref().map_or(Value::Null, Value::Bytes),
            Value::Bytes(&coordinator),
            Value::Bytes(&port),
            Value::Bytes(&duration),
            Value::Bytes(request.as_bytes()),
            Value::Bytes(&started_at.to_be_bytes()),
        ];
        started.push(begin_insert(shared, &text, &values));
    }

    fn insert_events<H: QueryHandler>(&self, shared: &Shared<H>, started: &mut Vec<Result<Outcome, QueryError>>) {
        let text = format!(
            "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_port, source_elapsed, thread) \
             VALUES (?, ?, ?, ?, ?, ?, 'espalier') USING TTL {TTL_SECONDS}"
        );
        let source = address_bytes(shared.local.ip());
        let port = i32::from(shared.local.port()).to_be_bytes();
        for (place, event) in self.log.events().iter().enumerate() {
            let event_id = event_id(self.since_epoch() + event.elapsed, place);
            let values = [
                Value::Bytes(self.id.as_bytes()),
                Value::Bytes(event_id.as_bytes()),
                Value::Bytes(event.activity.as_bytes()),
                Value::Bytes(&source),
                Value::Bytes(&port),
                Value::Bytes(&micros(event.elapsed)),
            ];
            started.push(begin_insert(shared, &text, &values));
        }
    }

    fn since_epoch(&self) -> Duration {
        self.started_at.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The id of an event at a time. Events of the same moment get different ids in their order.
fn event_id(since_epoch: Duration, place: usize) -> Uuid {
    let ticks = GREGORIAN_TO_UNIX_TICKS + (since_epoch.as_nanos() / 100) as u64 + place as u64;
    Uuid::new_v1(Timestamp::from_gregorian_time(ticks, 0), &NODE)
}

fn micros(elapsed: Duration) -> [u8; 4] {
    i32::try_from(elapsed.as_micros()).unwrap_or(i32::MAX).to_be_bytes()
}

/// Begins a write; the log makes those that are begun together durable together.
fn begin_insert<H: QueryHandler>(shared: &Shared<H>, text: &str, values: &[Value<'_>]) -> Result<Outcome, QueryError> {
    let options = QueryOptions { values: Values::Positional(values), ..QueryOptions::default() };
    let client = Arc::default();
    let statement = shared.handler.prepare(&client, text, None, KeptForms::NOTHING)?;
    let statement = Statement::Prepared { statement: &statement, client_columns: None };
    let request = Request { statement, client: &client, options: &options, version: Version::V5, trace: None };
    Ok(shared.handler.begin(&request, Turn::NON_BLOCKING, None))
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn parameters(text: Option<&str>, bound: Vec<String>, options: &QueryOptions<'_>) -> String {
    let mut pairs = bound;
    pairs.push(format!("'consistency_level': '{}'", options.consistency));
    pairs.extend(options.page_size.map(|size| format!("'page_size': '{size}'")));
    pairs.extend(text.map(|text| format!("'query': {}", quoted(text))));
    pairs.push(format!("'serial_consistency_level': '{}'", options.serial_consistency));
    format!("{{{}}}", pairs.join(", "))
}

/// The values of a prepared statement's markers, as literals.
fn bound_values(markers: &[ColumnSpec], options: &QueryOptions<'_>) -> Vec<String> {
    let pair = |(place, (marker, (_, value))): (usize, (&ColumnSpec, (Option<&str>, Value<'_>)))| {
        let text = match value {
            Value::Bytes(bytes) => marker.ty.to_cql_literal(bytes),
            Value::Null | Value::Unset => "null".to_owned(),
        };
        let mut shown: String = text.chars().take(SHOWN_VALUE_CHARACTERS).collect();
        if shown.len() < text.len() {
            shown.push_str("...'");
        }
        format!("{}: {}", quoted(&format!("bound_var_{place}_{}", marker.name)), quoted(&shown))
    };
    markers.iter().zip(options.values.iter()).enumerate().map(pair).collect()
}

/// A CQL string literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
