//! Partition keys and their order.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use types::{Token, murmur3};

/// Keys of up to this many bytes are stored inside [`PartitionKey`]: UUIDs, numbers, most names.
const INLINE_MAX: usize = 30;

/// A serialized partition key with its token: Cassandra's decorated key. It is cheap to make and to clone, because a
/// short key needs no allocation and a long one is shared.
pub struct PartitionKey {
    token: Token,
    bytes: KeyBytes,
}

#[derive(Clone)]
enum KeyBytes {
    Inline { length: u8, bytes: [u8; INLINE_MAX] },
    Shared(Arc<[u8]>),
}

impl KeyBytes {
    #[inline]
    fn new(key: &[u8]) -> KeyBytes {
        let mut bytes = [0; INLINE_MAX];
        match bytes.get_mut(..key.len()) {
            Some(own) => {
                own.copy_from_slice(key);
                KeyBytes::Inline { length: key.len() as u8, bytes }
            }
            None => KeyBytes::Shared(key.into()),
        }
    }
}

impl PartitionKey {
    /// Computes the token of serialized key bytes: the value of a single column, or for each of several columns `u16
    /// length, value, 0x00`.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        PartitionKey::with_token(murmur3::token(bytes), bytes)
    }

    /// A key whose token is already known, because an index stores it.
    #[inline]
    pub fn with_token(token: Token, bytes: &[u8]) -> Self {
        PartitionKey { token, bytes: KeyBytes::new(bytes) }
    }

    /// Replaces the key in place. Reuses its allocation if that has the right length and is not shared.
    #[inline]
    pub fn replace(&mut self, token: Token, bytes: &[u8]) {
        self.token = token;
        let own = match &mut self.bytes {
            KeyBytes::Inline { length, bytes: own } if bytes.len() <= INLINE_MAX => {
                *length = bytes.len() as u8;
                Some(&mut own[..bytes.len()])
            }
            KeyBytes::Shared(own) if own.len() == bytes.len() => Arc::get_mut(own),
            _ => None,
        };
        match own {
            Some(own) => own.copy_from_slice(bytes),
            None => self.bytes = KeyBytes::new(bytes),
        }
    }

    /// The Murmur3 token.
    #[inline]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The serialized key.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::Inline { length, bytes } => &bytes[..usize::from(*length)],
            KeyBytes::Shared(bytes) => bytes,
        }
    }

    /// The values of `columns` columns: the key itself, or the parts of a composite one. Damaged bytes yield fewer
    /// parts.
    pub fn parts(&self, columns: usize) -> Vec<&[u8]> {
        if columns == 1 {
            return vec![self.bytes()];
        }
        let mut rest = self.bytes();
        let mut parts = Vec::with_capacity(columns);
        while let Some((length, tail)) = rest.split_first_chunk::<2>() {
            let Some((part, tail)) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { break };
            parts.push(part);
            rest = tail.get(1..).unwrap_or_default();
        }
        parts
    }
}

impl Clone for PartitionKey {
    #[inline]
    fn clone(&self) -> Self {
        PartitionKey { token: self.token, bytes: self.bytes.clone() }
    }

    /// Copies only the bytes in use of a short key. Where many keys are copied into the same place, this avoids waiting
    /// for the previous copy.
    #[inline]
    fn clone_from(&mut self, other: &Self) {
        match &other.bytes {
            KeyBytes::Inline { .. } => self.replace(other.token, other.bytes()),
            KeyBytes::Shared(bytes) => (self.token, self.bytes) = (other.token, KeyBytes::Shared(bytes.clone())),
        }
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionKey").field("token", &self.token).field("bytes", &self.bytes()).finish()
    }
}

impl PartialEq for PartitionKey {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token && self.bytes() == other.bytes()
    }
}

impl Eq for PartitionKey {}

impl Hash for PartitionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.token.hash(state);
        self.bytes().hash(state);
    }
}

impl PartialOrd for PartitionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PartitionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.token.cmp(&other.token).then_with(|| self.bytes().cmp(other.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_replaces_another_does_not_change_shared_bytes() {
        let keys: Vec<PartitionKey> = [0_usize, 1, 8, 16, 29, 30, 31, 31, 90, 90]
            .iter()
            .zip(0..)
            .map(|(length, i)| PartitionKey::new(&vec![i; *length]))
            .collect();
        for first in &keys {
            for second in &keys {
                let (mut cloned, mut replaced) = (first.clone(), first.clone());
                cloned.clone_from(second);
                replaced.replace(second.token(), second.bytes());
                assert_eq!((&cloned, cloned.bytes(), cloned.token()), (second, second.bytes(), second.token()));
                assert_eq!((&replaced, replaced.bytes(), replaced.token()), (second, second.bytes(), second.token()));
                assert_eq!(first.token(), murmur3::token(first.bytes()));
                // This key has its own allocation.
                let mut alone = PartitionKey::new(first.bytes());
                alone.replace(second.token(), second.bytes());
                assert_eq!((&alone, alone.bytes()), (second, second.bytes()));
            }
        }
    }
}
