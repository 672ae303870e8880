//! Tokens: the position of a partition on the ring.

use std::fmt;

/// A Murmur3Partitioner token. Partitions are ordered by token (signed), then by the bytes of their keys (unsigned).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl Token {
    /// Before every partition with a non-empty key; the token of the empty key alone.
    pub const MINIMUM: Token = Token(i64::MIN);
    /// The greatest token.
    pub const MAXIMUM: Token = Token(i64::MAX);

    /// The token of a serialized partition key.
    pub fn of_key(key: &[u8]) -> Token {
        crate::murmur3::token(key)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
