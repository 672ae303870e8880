//! Cassandra's native protocol, versions 3, 4 and 5: bytes in, bytes out.
//!
//! Nothing here opens a socket or knows a statement. A connection owns one [`Decoder`] (bytes from the socket to
//! complete envelopes) and one [`Encoder`] (envelopes to bytes for the socket). Both are plain state machines that
//! know the framing in force: bare envelopes, optionally compressed one by one (v3, v4, and every version up to the
//! answer to STARTUP), or v5's checksummed segments.
//!
//! A request body is parsed into a [`Request`], whose strings and bind values borrow from the envelope. A response
//! body is written by the functions of [`response`] straight into the output buffer.
//!
//! Bytes that come from a peer never panic: whatever is malformed is a [`ProtocolError`] carrying the text that
//! Cassandra sends for it.
#![forbid(unsafe_code)]

mod compression;
mod consistency;
mod crc;
mod decoder;
mod encoder;
mod error;
mod exercise;
mod header;
mod reader;
mod request;
mod segment;
mod version;
mod writer;

pub mod response;

pub use compression::Compression;
pub use consistency::Consistency;
pub use decoder::{DecodeError, Decoder, Envelope};
pub use encoder::{Encoder, ResponseHead};
pub use error::ProtocolError;
#[doc(hidden)]
pub use exercise::exercise;
pub use header::{Header, Opcode, flags};
pub use request::{
    Batch, BatchKind, BatchQuery, BatchStatement, BindValue, Body, CustomPayload, EventType, NamedValues, QueryOptions,
    Request, Startup, Values,
};
pub use response::{
    ColumnSpec, ErrorKind, ErrorResponse, Event, PreparedMetadata, ResultColumns, ResultMetadata, RowsWriter,
    SchemaChange, WriteType,
};
pub use version::{SUPPORTED_VERSIONS, Version};

/// Largest envelope accepted by default: `native_transport_max_frame_size`. Counts the header of a bare envelope, and not that of
/// one in segments, as in Cassandra.
pub const MAX_FRAME_SIZE_BYTES: usize = 16 * 1024 * 1024;
