//! Traced requests: an id for the client, and rows in `system_traces` that it can read.

use crate::Shared;
use crate::handler::QueryHandler;
use protocol::{Body, Header, Opcode, Request};
use query::{ClientState, QueryOptions, Value, Values};
use std::net::{IpAddr, SocketAddr};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Node part of the time-based ids made here; its multicast bit says that it is no network card's.
const NODE: [u8; 6] = [0x01, b'e', b's', b'p', b'a', b'l'];

/// Traces are kept for a day, as Cassandra's.
const TTL_SECONDS: u32 = 86_400;

/// A request that is being traced.
#[derive(Debug)]
pub(crate) struct Trace {
    id: Uuid,
    client: Option<SocketAddr>,
    started: Instant,
    started_at: SystemTime,
}

impl Trace {
    pub(crate) fn begin(client: Option<SocketAddr>) -> Trace {
        Trace { id: Uuid::now_v1(&NODE), client, started: Instant::now(), started_at: SystemTime::now() }
    }

    pub(crate) fn id(&self) -> [u8; 16] {
        *self.id.as_bytes()
    }

    /// Writes the session and its one event. Failing to do so costs the trace, not the request.
    pub(crate) async fn record<H: QueryHandler>(&self, shared: &Shared<H>, header: &Header, body: &[u8]) {
        let micros = i32::try_from(self.started.elapsed().as_micros()).unwrap_or(i32::MAX);
        let parameters = parameters(header, body);
        let request = match header.opcode {
            Opcode::Query => "Execute CQL3 query",
            Opcode::Batch => "Execute batch of CQL3 queries",
            _ => "Execute CQL3 prepared query",
        };
        let coordinator = address_bytes(shared.local.ip());
        let client = self.client.map(|address| address_bytes(address.ip()));
        let started_at = self.started_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let port = i32::from(shared.local.port()).to_be_bytes();
        let id = self.id.as_bytes();
        let session = format!(
            "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, duration, \
             parameters, request, started_at) VALUES (?, ?, 'QUERY', ?, ?, ?, {parameters}, ?, ?) USING TTL \
             {TTL_SECONDS}"
        );
        let values = [
            Value::Bytes(id),
            client.as_deref().map_or(Value::Null, Value::Bytes),
            Value::Bytes(&coordinator),
            Value::Bytes(&port),
            Value::Bytes(&micros.to_be_bytes()),
            Value::Bytes(request.as_bytes()),
            Value::Bytes(&started_at.to_be_bytes()),
        ];
        insert(shared, &session, &values).await;
        let event_id = Uuid::now_v1(&NODE);
        let event = format!(
            "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_port, source_elapsed, thread) \
             VALUES (?, ?, 'Request carried out', ?, ?, ?, 'espalier') USING TTL {TTL_SECONDS}"
        );
        let values = [
            Value::Bytes(id),
            Value::Bytes(event_id.as_bytes()),
            Value::Bytes(&coordinator),
            Value::Bytes(&port),
            Value::Bytes(&micros.to_be_bytes()),
        ];
        insert(shared, &event, &values).await;
    }
}

async fn insert<H: QueryHandler>(shared: &Shared<H>, text: &str, values: &[Value<'_>]) {
    let options = QueryOptions { values: Values::Positional(values), ..QueryOptions::default() };
    let outcome = match shared.handler.prepare(text, None) {
        Ok(statement) => shared.handler.execute(&statement, &ClientState::default(), &options).await.map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        tracing::warn!(%error, "trace not written");
    }
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// What the request said, as a CQL map of Cassandra's keys.
fn parameters(header: &Header, body: &[u8]) -> String {
    let (query, options) = match Body::parse(header, body).map(|body| body.request) {
        Ok(Request::Query { query, options }) => (Some(query.to_owned()), options),
        Ok(Request::Execute { options, .. }) => (None, options),
        Ok(Request::Batch(batch)) => (None, batch.options),
        _ => return "{}".to_owned(),
    };
    let mut pairs = vec![format!("'consistency_level': '{}'", options.consistency)];
    pairs.extend(options.page_size.map(|size| format!("'page_size': '{size}'")));
    pairs.extend(query.map(|query| format!("'query': {}", quoted(&query))));
    pairs.push(format!("'serial_consistency_level': '{}'", options.serial_consistency));
    format!("{{{}}}", pairs.join(", "))
}

/// A CQL string literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
