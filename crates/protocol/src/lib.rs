//! Cassandra's native protocol, versions 3, 4 and 5: bytes in, bytes out.
//!
//! [`message`] is the vocabulary, which the query layer uses too; the rest encodes and decodes it. Nothing here opens a
//! socket or knows a statement. A connection owns one [`Decoder`] (bytes from the socket to complete envelopes) and one
//! [`Encoder`] (envelopes to bytes for the socket). Both are plain state machines that know the framing in force: bare
//! envelopes, optionally compressed one by one (v3, v4, and every version up to the answer to STARTUP), or v5's
//! checksummed segments.
//!
//! A request body is parsed into a [`Request`], whose strings and bind values borrow from the envelope. The functions
//! of [`response`] write a response body straight into the output buffer.
//!
//! Bytes from a peer never cause a panic: malformed input is a [`ProtocolError`] with the text that Cassandra sends for
//! it.
#![forbid(unsafe_code)]

pub mod message;
mod wire;

pub use message::{
    BatchEntry, BatchKind, BatchStatement, ChangeKind, ColumnSpec, Consistency, ErrorKind, ErrorResponse, Event,
    FailureReason, MetadataForm, QueryOptions, ResponseBody, Rows, SchemaChange, SchemaTarget, Value, ValueIterator,
    Values, WriteType,
};
pub use wire::response::{self, PreparedMetadata, ResultColumns, ResultMetadata, RowsWriter};
pub use wire::{
    Batch, Body, Compression, CustomPayload, DecodeError, Decoder, EncodedValues, Encoder, Envelope, EventType, Header,
    NamedValues, Opcode, ProtocolError, Request, ResponseHead, SUPPORTED_VERSIONS, Startup, Version,
    executed_statement, flags,
};

/// The largest envelope accepted by default (`native_transport_max_frame_size`), in bytes. As in Cassandra, this
/// includes the header of a bare envelope, but not that of an envelope in segments.
pub const MAX_FRAME_SIZE_BYTES: usize = 16 * 1024 * 1024;
