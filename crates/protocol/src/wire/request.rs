//! Requests, as views of an envelope's body.

use crate::message::{BatchEntry, BatchKind, BatchStatement, QueryOptions, Values};
use crate::wire::header::flags;
use crate::wire::reader::Reader;
use crate::{Consistency, Header, Opcode, ProtocolError, Value, Version};

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

/// The flags of a statement's options.
mod option_flags {
    pub(super) const VALUES: u32 = 0x01;
    pub(super) const SKIP_METADATA: u32 = 0x02;
    pub(super) const PAGE_SIZE: u32 = 0x04;
    pub(super) const PAGING_STATE: u32 = 0x08;
    pub(super) const SERIAL_CONSISTENCY: u32 = 0x10;
    pub(super) const TIMESTAMP: u32 = 0x20;
    pub(super) const NAMES: u32 = 0x40;
    pub(super) const KEYSPACE: u32 = 0x80;
    pub(super) const NOW_IN_SECONDS: u32 = 0x100;
}

impl<'a> QueryOptions<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, version: Version) -> Result<QueryOptions<'a>, ProtocolError> {
        let consistency = reader.consistency()?;
        let flags = if version >= Version::V5 { reader.int()? as u32 } else { u32::from(reader.byte()?) };
        let has = |bit| flags & bit != 0;
        let values = match has(option_flags::VALUES) {
            true => Values::Encoded(EncodedValues::read(reader, version, has(option_flags::NAMES))?),
            false => Values::NONE,
        };
        Ok(QueryOptions {
            consistency,
            values,
            skip_metadata: has(option_flags::SKIP_METADATA),
            page_size: has(option_flags::PAGE_SIZE).then(|| reader.int()).transpose()?,
            paging_state: if has(option_flags::PAGING_STATE) { reader.bytes()? } else { None },
            serial_consistency: if has(option_flags::SERIAL_CONSISTENCY) {
                reader.consistency()?
            } else {
                Consistency::Serial
            },
            timestamp: has(option_flags::TIMESTAMP).then(|| read_timestamp(reader)).transpose()?,
            keyspace: has(option_flags::KEYSPACE).then(|| reader.string()).transpose()?,
            now_in_seconds: has(option_flags::NOW_IN_SECONDS).then(|| reader.int()).transpose()?,
        })
    }
}

/// The smallest timestamp means "none" inside Cassandra, so no client may send it.
fn read_timestamp(reader: &mut Reader<'_>) -> Result<i64, ProtocolError> {
    match reader.long()? {
        i64::MIN => Err(ProtocolError::new(format!(
            "Out of bound timestamp, must be in [{}, {}] (got {})",
            i64::MIN + 1,
            i64::MAX,
            i64::MIN
        ))),
        timestamp => Ok(timestamp),
    }
}

/// The values of a statement: checked once, then read in place any number of times.
#[derive(Clone, Copy, Debug)]
pub struct EncodedValues<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
    version: Version,
}

impl<'a> EncodedValues<'a> {
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        version: Version,
        named: bool,
    ) -> Result<EncodedValues<'a>, ProtocolError> {
        let count = reader.short()?;
        let bytes = reader.rest();
        for _ in 0..count {
            if named {
                reader.string()?;
            }
            reader.value(version)?;
        }
        let bytes = &bytes[..bytes.len() - reader.rest().len()];
        Ok(EncodedValues { bytes, count, named, version })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the values have names.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The bytes of unnamed values as they were sent, one value after another; empty if they have names.
    pub fn positional_bytes(&self) -> &'a [u8] {
        if self.named { &[] } else { self.bytes }
    }

    /// Puts values without names into these places, in order, until there are no more values or no more places.
    #[inline]
    pub fn read_into(&self, places: &mut [Value<'a>]) {
        debug_assert!(!self.named, "a name is no value");
        let mut reader = Reader::new(self.bytes);
        for place in places.iter_mut().take(self.len()) {
            // The values were checked when the request was parsed, so that none is missing.
            let Ok(value) = reader.value(self.version) else { return };
            *place = value;
        }
    }

    /// Each value with its name, if they have names.
    pub fn iter(&self) -> NamedValues<'a> {
        let EncodedValues { bytes, count, named, version } = *self;
        NamedValues { reader: Reader::new(bytes), remaining: count, named, version }
    }
}

/// Iterates over values and their names.
#[derive(Clone, Debug)]
pub struct NamedValues<'a> {
    reader: Reader<'a>,
    remaining: u16,
    named: bool,
    version: Version,
}

impl<'a> Iterator for NamedValues<'a> {
    type Item = (Option<&'a str>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let name = if self.named { Some(self.reader.string().ok()?) } else { None };
        Some((name, self.reader.value(self.version).ok()?))
    }

    /// They were checked, so none is missing.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.remaining), Some(usize::from(self.remaining)))
    }
}

impl ExactSizeIterator for NamedValues<'_> {}
