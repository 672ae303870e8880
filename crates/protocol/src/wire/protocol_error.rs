//! The only error of this crate: the peer violated the protocol.

use std::fmt;

/// A violation of the protocol by the peer; the text is what Cassandra answers (error code 0x000A).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// The text for the client.
    pub message: String,
}

impl ProtocolError {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> ProtocolError {
        ProtocolError { message: message.into() }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProtocolError {}
