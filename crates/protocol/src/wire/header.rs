//! The nine-byte header of an envelope.
//!
//! ```text
//! version (bit 7: response) | flags | stream i16 | opcode | body length u32     big-endian
//! ```

use crate::{ProtocolError, Version};

/// Bits of the header's flags byte.
pub mod flags {
    /// The body is compressed (v3, v4; no meaning in v5, where segments are compressed).
    pub const COMPRESSION: u8 = 0x01;
    /// Request: trace it. Response: the body starts with the trace's id.
    pub const TRACING: u8 = 0x02;
    /// The body starts (after tracing id and warnings) with a bytes map (v4 and later).
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// Response: the body starts (after the tracing id) with a list of warnings (v4 and later).
    pub const WARNING: u8 = 0x08;
    /// The client agrees to a beta version.
    pub const USE_BETA: u8 = 0x10;
}

/// Length of the header in versions 3 and later.
pub(crate) const HEADER_SIZE: usize = 9;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0A,
    Register = 0x0B,
    Event = 0x0C,
    Batch = 0x0D,
    AuthChallenge = 0x0E,
    AuthResponse = 0x0F,
    AuthSuccess = 0x10,
}

impl Opcode {
    /// The opcode of this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            0x00 => Opcode::Error,
            0x01 => Opcode::Startup,
            0x02 => Opcode::Ready,
            0x03 => Opcode::Authenticate,
            0x05 => Opcode::Options,
            0x06 => Opcode::Supported,
            0x07 => Opcode::Query,
            0x08 => Opcode::Result,
            0x09 => Opcode::Prepare,
            0x0A => Opcode::Execute,
            0x0B => Opcode::Register,
            0x0C => Opcode::Event,
            0x0D => Opcode::Batch,
            0x0E => Opcode::AuthChallenge,
            0x0F => Opcode::AuthResponse,
            0x10 => Opcode::AuthSuccess,
            _ => return None,
        })
    }

    /// The name as error texts print it.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Error => "ERROR",
            Opcode::Startup => "STARTUP",
            Opcode::Ready => "READY",
            Opcode::Authenticate => "AUTHENTICATE",
            Opcode::Options => "OPTIONS",
            Opcode::Supported => "SUPPORTED",
            Opcode::Query => "QUERY",
            Opcode::Result => "RESULT",
            Opcode::Prepare => "PREPARE",
            Opcode::Execute => "EXECUTE",
            Opcode::Register => "REGISTER",
            Opcode::Event => "EVENT",
            Opcode::Batch => "BATCH",
            Opcode::AuthChallenge => "AUTH_CHALLENGE",
            Opcode::AuthResponse => "AUTH_RESPONSE",
            Opcode::AuthSuccess => "AUTH_SUCCESS",
        }
    }

    /// True for what a client sends.
    #[inline]
    pub fn is_request(self) -> bool {
        matches!(
            self,
            Opcode::Startup
                | Opcode::Options
                | Opcode::Query
                | Opcode::Prepare
                | Opcode::Execute
                | Opcode::Register
                | Opcode::Batch
                | Opcode::AuthResponse
        )
    }

    /// Cassandra's error about a number that is not the opcode of a request; `None` if it is one. `response` is the
    /// direction bit of the header.
    pub(crate) fn no_request(number: u8, response: bool) -> Option<ProtocolError> {
        let Some(opcode) = Opcode::from_number(number) else {
            return Some(ProtocolError::new(format!("Unknown opcode {number}")));
        };
        let (expected, got) = match response {
            true => ("REQUEST", "RESPONSE"),
            false if !opcode.is_request() => ("RESPONSE", "REQUEST"),
            false => return None,
        };
        let name = opcode.name();
        let message = format!("Wrong protocol direction (expected {expected}, got {got}) for opcode {number} ({name})");
        Some(ProtocolError::new(message))
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol version.
    pub version: Version,
    /// Bits of [`flags`].
    pub flags: u8,
    /// The client's number for the request; the response carries the same.
    pub stream: i16,
    /// The kind of body.
    pub opcode: Opcode,
    /// Length of the body in bytes.
    pub body_size: u32,
}

/// The header's fields before they are checked.
#[derive(Clone, Copy)]
pub(crate) struct RawHeader {
    pub(crate) version: u8,
    pub(crate) flags: u8,
    pub(crate) stream: i16,
    pub(crate) opcode: u8,
    pub(crate) body_size: u32,
}

impl RawHeader {
    /// Splits nine bytes into fields; none when there are fewer.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<RawHeader> {
        let (head, _) = bytes.split_first_chunk::<HEADER_SIZE>()?;
        let [version, flags, s0, s1, opcode, l0, l1, l2, l3] = *head;
        Some(RawHeader {
            version,
            flags,
            stream: i16::from_be_bytes([s0, s1]),
            opcode,
            body_size: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}
