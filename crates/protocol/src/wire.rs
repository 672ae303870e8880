//! The bytes of the native protocol: framing, compression, requests and responses.
//!
//! A connection owns one [`Decoder`] (bytes from the socket to complete envelopes) and one [`Encoder`] (envelopes to
//! bytes for the socket). Requests borrow from the envelope; responses are written into the output buffer.

pub(crate) mod compression;
mod crc;
mod decoder;
mod encoder;
mod header;
mod protocol_error;
mod reader;
mod request;
pub mod response;
mod segment;
mod version;
mod writer;

pub use compression::Compression;
pub use decoder::{DecodeError, Decoder, Envelope};
pub use encoder::{Encoder, ResponseHead};
pub use header::{Header, Opcode, flags};
pub use protocol_error::ProtocolError;
pub use request::{
    Batch, Body, CustomPayload, EncodedValues, EventType, NamedValues, Request, Startup, executed_statement,
};
pub use version::{SUPPORTED_VERSIONS, Version};
