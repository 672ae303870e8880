//! The only error of this crate.

use std::borrow::Cow;
use std::fmt;

/// A value that is not valid for its type; Cassandra sends this text to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarshalError(Cow<'static, str>);

impl MarshalError {
    /// An error with the given text.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        MarshalError(message.into())
    }

    /// The text, as a client sees it.
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MarshalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MarshalError {}
