//! Partition keys and their order.

use std::cmp::Ordering;
use std::sync::Arc;

use types::{Token, murmur3};

/// A serialized partition key with its token: Cassandra's decorated key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    token: Token,
    bytes: Arc<[u8]>,
}

impl PartitionKey {
    /// Decorates serialized key bytes: one column's value, or for several per column `u16 length, value, 0x00`.
    pub fn new(bytes: &[u8]) -> Self {
        PartitionKey { token: murmur3::token(bytes), bytes: bytes.into() }
    }

    /// A key whose token is known already (read from an index that stores it).
    pub fn with_token(token: Token, bytes: &[u8]) -> Self {
        PartitionKey { token, bytes: bytes.into() }
    }

    /// Makes it the key of these bytes, in the memory that it has where nobody shares that and they are as many.
    pub(crate) fn replace(&mut self, bytes: &[u8]) {
        match Arc::get_mut(&mut self.bytes).filter(|own| own.len() == bytes.len()) {
            Some(own) => {
                own.copy_from_slice(bytes);
                self.token = murmur3::token(bytes);
            }
            None => *self = PartitionKey::new(bytes),
        }
    }

    /// The Murmur3 token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The serialized key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values of `columns` columns: the key itself, or the parts of a composite one; of damaged bytes fewer.
    pub fn parts(&self, columns: usize) -> Vec<&[u8]> {
        if columns == 1 {
            return vec![&self.bytes];
        }
        let mut rest = &*self.bytes;
        let mut parts = Vec::with_capacity(columns);
        while let Some((length, tail)) = rest.split_first_chunk::<2>() {
            let Some((part, tail)) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { break };
            parts.push(part);
            rest = tail.get(1..).unwrap_or_default();
        }
        parts
    }
}

impl PartialOrd for PartitionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PartitionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.token.cmp(&other.token).then_with(|| self.bytes.cmp(&other.bytes))
    }
}
