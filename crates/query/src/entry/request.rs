//! The requests of clients.

use std::ops::Range;
use std::sync::Arc;

use protocol::{BatchKind, Consistency, QueryOptions, Value, Values, Version};

use crate::execution::RequestParts;
use crate::prepared::{Plan, Prepared};
use crate::{ClientState, TraceLog};

/// A request to execute a statement or a batch.
#[derive(Debug)]
pub struct Request<'r, P = Plan> {
    /// The statement or the batch.
    pub statement: Statement<'r, P>,
    /// The client.
    pub client: &'r Arc<ClientState>,
    /// The values and all other options.
    pub options: &'r QueryOptions<'r>,
    /// The protocol version of the answer.
    pub version: Version,
    /// The log of events, if the request is traced.
    pub trace: Option<&'r Arc<TraceLog>>,
}

/// The statement or the batch of a request.
#[derive(Debug)]
pub enum Statement<'r, P = Plan> {
    /// The text of a QUERY.
    Text(&'r str),
    /// The prepared statement of an EXECUTE.
    Prepared {
        /// The statement.
        statement: &'r Arc<Prepared<P>>,
        /// The id of the result's columns that the client knows (v5).
        client_columns: Option<&'r [u8]>,
    },
    /// The statements of a BATCH.
    Batch {
        /// Logged, unlogged or counter.
        kind: BatchKind,
        /// The statements in order.
        entries: &'r [BatchEntry<'r, P>],
    },
    /// A prepared statement that the server does not have. The request fails, and the client has to prepare it again.
    Unknown {
        /// The id that the client sent.
        id: &'r [u8],
        /// The number of statements before it, if it is part of a BATCH.
        before: Option<usize>,
    },
}

/// A statement of a BATCH and its values.
pub type BatchEntry<'r, P = Plan> = protocol::BatchEntry<'r, Arc<Prepared<P>>>;

impl<'r> Request<'r> {
    /// The parts that an execution needs.
    #[inline]
    pub(super) fn parts(&self) -> RequestParts<'r> {
        RequestParts { client: self.client, options: self.options, trace: self.trace.map(|trace| &**trace) }
    }

    /// Adds an event to the trace, if the request is traced.
    pub(super) fn note(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.note(activity());
        }
    }
}

/// A request that owns its parts, except for its statement.
pub(super) struct OwnedRequest {
    client: Arc<ClientState>,
    version: Version,
    trace: Option<Arc<TraceLog>>,
    values: OwnedValues,
    consistency: Consistency,
    serial_consistency: Consistency,
    skip_metadata: bool,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    timestamp: Option<i64>,
    keyspace: Option<String>,
    now_in_seconds: Option<i32>,
}

impl OwnedRequest {
    /// A copy of a request with these values.
    pub fn new(request: &Request<'_>, values: &[Value<'_>]) -> OwnedRequest {
        let options = request.options;
        OwnedRequest {
            client: Arc::clone(request.client),
            version: request.version,
            trace: request.trace.cloned(),
            values: OwnedValues::new(values),
            consistency: options.consistency,
            serial_consistency: options.serial_consistency,
            skip_metadata: options.skip_metadata,
            page_size: options.page_size,
            paging_state: options.paging_state.map(<[u8]>::to_vec),
            timestamp: options.timestamp,
            keyspace: options.keyspace.map(str::to_owned),
            now_in_seconds: options.now_in_seconds,
        }
    }

    /// The number of the client's connection.
    pub fn client_number(&self) -> u64 {
        self.client.number
    }

    /// Calls a function with the request and its values.
    pub fn with<R>(&self, statement: Statement<'_>, then: impl FnOnce(&Request<'_>, &[Value<'_>]) -> R) -> R {
        let values = self.values.list();
        let options = QueryOptions {
            consistency: self.consistency,
            values: Values::Positional(&values),
            skip_metadata: self.skip_metadata,
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial_consistency,
            timestamp: self.timestamp,
            keyspace: self.keyspace.as_deref(),
            now_in_seconds: self.now_in_seconds,
        };
        let (client, version, trace) = (&self.client, self.version, self.trace.as_ref());
        then(&Request { statement, client, options: &options, version, trace }, &values)
    }
}

/// Copies of values, one after the other.
struct OwnedValues {
    bytes: Vec<u8>,
    values: Vec<OwnedValue>,
}

enum OwnedValue {
    Null,
    Unset,
    Bytes(Range<usize>),
}

impl OwnedValues {
    fn new(values: &[Value<'_>]) -> OwnedValues {
        let mut bytes = Vec::new();
        let own = |value: &Value<'_>| match value {
            Value::Null => OwnedValue::Null,
            Value::Unset => OwnedValue::Unset,
            Value::Bytes(value) => {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                OwnedValue::Bytes(start..bytes.len())
            }
        };
        let values = values.iter().map(own).collect();
        OwnedValues { bytes, values }
    }

    fn list(&self) -> Vec<Value<'_>> {
        let value = |value: &OwnedValue| match value {
            OwnedValue::Null => Value::Null,
            OwnedValue::Unset => Value::Unset,
            OwnedValue::Bytes(range) => Value::Bytes(&self.bytes[range.clone()]),
        };
        self.values.iter().map(value).collect()
    }
}
