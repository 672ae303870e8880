//! Requests, as views of an envelope's body.

mod options;
mod values;

pub use values::{EncodedValues, NamedValues};

use crate::message::{BatchEntry, BatchKind, BatchStatement, QueryOptions, Values};
use crate::wire::header::flags;
use crate::wire::reader::Reader;
use crate::{Header, Opcode, ProtocolError, Version};

/// Keys and values that a client sends for a server's plug-ins.
pub type CustomPayload<'a> = Vec<(&'a str, Option<&'a [u8]>)>;

/// A request body: the message, and what may precede it.
#[derive(Clone, Debug)]
pub struct Body<'a> {
    /// Keys and values of the custom payload; empty when there is none.
    pub custom_payload: CustomPayload<'a>,
    /// The message.
    pub request: Request<'a>,
}

/// A message from a client.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    /// Begins the connection's dialogue.
    Startup(Startup<'a>),
    /// Asks what the server supports.
    Options,
    /// A statement as text.
    Query {
        /// The statement.
        query: &'a str,
        /// Values and other options.
        options: QueryOptions<'a>,
    },
    /// A statement to be prepared.
    Prepare {
        /// The statement.
        query: &'a str,
        /// The keyspace for unqualified names (v5), instead of the connection's.
        keyspace: Option<&'a str>,
    },
    /// Executes a prepared statement.
    Execute {
        /// Id from the Prepared result.
        id: &'a [u8],
        /// Id of the result metadata that the client holds (v5).
        result_metadata_id: Option<&'a [u8]>,
        /// Values and other options.
        options: QueryOptions<'a>,
    },
    /// Several statements at once.
    Batch(Batch<'a>),
    /// Asks for events.
    Register(Vec<EventType>),
    /// A step of authentication; the token may be null.
    AuthResponse(Option<&'a [u8]>),
}

/// STARTUP's options; names are compared without regard to case.
#[derive(Clone, Debug, Default)]
pub struct Startup<'a> {
    /// Pairs as sent.
    pub options: Vec<(&'a str, &'a str)>,
}

impl<'a> Startup<'a> {
    /// The value of an option. As in a map, the last of several wins.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.options.iter().rev().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

/// A BATCH message.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Logged, unlogged or counter.
    pub kind: BatchKind,
    /// The statements in order; prepared ones by their ids.
    pub queries: Vec<BatchEntry<'a, &'a [u8]>>,
    /// Consistency, timestamp and other options; page size and paging state are meaningless here.
    pub options: QueryOptions<'a>,
}

/// The events that a client may register for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum EventType {
    TopologyChange,
    StatusChange,
    SchemaChange,
    TraceComplete,
}

impl EventType {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            EventType::TopologyChange => "TOPOLOGY_CHANGE",
            EventType::StatusChange => "STATUS_CHANGE",
            EventType::SchemaChange => "SCHEMA_CHANGE",
            EventType::TraceComplete => "TRACE_COMPLETE",
        }
    }

    fn from_name(name: &str) -> Result<EventType, ProtocolError> {
        Ok(match name.to_uppercase().as_str() {
            "TOPOLOGY_CHANGE" => EventType::TopologyChange,
            "STATUS_CHANGE" => EventType::StatusChange,
            "SCHEMA_CHANGE" => EventType::SchemaChange,
            "TRACE_COMPLETE" => EventType::TraceComplete,
            _ => return Err(ProtocolError::new(format!("Invalid value '{name}' for Type"))),
        })
    }
}

impl<'a> Body<'a> {
    /// Parses the (uncompressed) body of an envelope with this header. Bytes after the message are ignored, as
    /// Cassandra ignores them.
    pub fn parse(header: &Header, body: &'a [u8]) -> Result<Body<'a>, ProtocolError> {
        let mut reader = Reader::new(body);
        let custom_payload = read_custom_payload(header, &mut reader)?;
        let request = read_request(header, &mut reader)?;
        Ok(Body { custom_payload, request })
    }
}

/// The id of the statement that an EXECUTE without a custom payload names, and nothing else of its body. `None` for all
/// other requests.
#[inline]
pub fn executed_statement<'a>(header: &Header, body: &'a [u8]) -> Option<&'a [u8]> {
    let is_plain = header.opcode == Opcode::Execute && header.flags & flags::CUSTOM_PAYLOAD == 0;
    is_plain.then(|| Reader::new(body).short_bytes().ok()).flatten()
}

fn read_custom_payload<'a>(header: &Header, reader: &mut Reader<'a>) -> Result<CustomPayload<'a>, ProtocolError> {
    if header.flags & flags::CUSTOM_PAYLOAD == 0 {
        return Ok(Vec::new());
    }
    if header.version < Version::V4 {
        return Err(ProtocolError::new("Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4"));
    }
    let count = reader.short()?;
    (0..count).map(|_| Ok((reader.string()?, reader.bytes()?))).collect()
}

fn read_request<'a>(header: &Header, reader: &mut Reader<'a>) -> Result<Request<'a>, ProtocolError> {
    let version = header.version;
    Ok(match header.opcode {
        Opcode::Startup => {
            let count = reader.short()?;
            let options = (0..count).map(|_| Ok((reader.string()?, reader.string()?)));
            Request::Startup(Startup { options: options.collect::<Result<_, ProtocolError>>()? })
        }
        Opcode::Options => Request::Options,
        Opcode::Query => Request::Query { query: reader.long_string()?, options: QueryOptions::read(reader, version)? },
        Opcode::Prepare => {
            let query = reader.long_string()?;
            let with_keyspace = version >= Version::V5 && reader.int()? & 1 != 0;
            Request::Prepare { query, keyspace: with_keyspace.then(|| reader.string()).transpose()? }
        }
        Opcode::Execute => Request::Execute {
            id: reader.short_bytes()?,
            result_metadata_id: (version >= Version::V5).then(|| reader.short_bytes()).transpose()?,
            options: QueryOptions::read(reader, version)?,
        },
        Opcode::Batch => Request::Batch(read_batch(reader, version)?),
        Opcode::Register => {
            let count = reader.short()?;
            let types = (0..count).map(|_| EventType::from_name(reader.string()?));
            Request::Register(types.collect::<Result<_, _>>()?)
        }
        Opcode::AuthResponse => Request::AuthResponse(reader.bytes()?),
        // The decoder only lets requests through.
        other => return Err(ProtocolError::new(format!("Unexpected message {}", other.name()))),
    })
}

fn read_batch<'a>(reader: &mut Reader<'a>, version: Version) -> Result<Batch<'a>, ProtocolError> {
    let kind = match reader.byte()? {
        0 => BatchKind::Logged,
        1 => BatchKind::Unlogged,
        2 => BatchKind::Counter,
        other => return Err(ProtocolError::new(format!("Invalid BATCH message type {}", other as i8))),
    };
    let count = reader.short()?;
    let mut queries = Vec::with_capacity(usize::from(count).min(1024));
    for _ in 0..count {
        let statement = match reader.byte()? {
            0 => BatchStatement::Text(reader.long_string()?),
            1 => BatchStatement::Prepared(reader.short_bytes()?),
            other => {
                return Err(ProtocolError::new(format!(
                    "Invalid query kind in BATCH messages. Must be 0 or 1 but got {}",
                    other as i8
                )));
            }
        };
        let values = Values::Encoded(EncodedValues::read(reader, version, false)?);
        queries.push(BatchEntry { statement, values });
    }
    Ok(Batch { kind, queries, options: QueryOptions::read(reader, version)? })
}
