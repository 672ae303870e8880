//! The error for a text that is not a statement.

use std::fmt;

/// A text that is not valid CQL. The client sees the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Cassandra's message, as `line 1:7 no viable alternative at input 'FROM' (SELECT [FROM]...)`.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}
