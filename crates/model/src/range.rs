//! The partitions and rows that a read covers.

use types::Token;

use crate::{PartitionKey, Slices};

/// One end of a range of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyBound {
    /// No limit.
    Unbounded,
    /// A token. If inclusive, all keys of that token are within the range.
    Token {
        /// The token.
        token: Token,
        /// Whether keys of the token itself are in the range.
        inclusive: bool,
    },
    /// A key.
    Key {
        /// The key.
        key: PartitionKey,
        /// Whether the key itself is in the range.
        inclusive: bool,
    },
}

/// The partitions of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRange {
    /// One partition.
    Single(PartitionKey),
    /// All partitions between two bounds, in token order.
    Range {
        /// The lower bound.
        start: KeyBound,
        /// The upper bound.
        end: KeyBound,
    },
}

impl KeyRange {
    /// Every partition.
    pub fn all() -> Self {
        KeyRange::Range { start: KeyBound::Unbounded, end: KeyBound::Unbounded }
    }

    /// Whether `key` is within.
    pub fn contains(&self, key: &PartitionKey) -> bool {
        match self {
            KeyRange::Single(single) => single == key,
            KeyRange::Range { start, end } => !self.is_before(start, key) && !self.is_after(end, key),
        }
    }

    fn is_before(&self, start: &KeyBound, key: &PartitionKey) -> bool {
        match start {
            KeyBound::Unbounded => false,
            KeyBound::Token { token, inclusive } => key.token() < *token || (key.token() == *token && !inclusive),
            KeyBound::Key { key: bound, inclusive } => key < bound || (key == bound && !inclusive),
        }
    }

    fn is_after(&self, end: &KeyBound, key: &PartitionKey) -> bool {
        match end {
            KeyBound::Unbounded => false,
            KeyBound::Token { token, inclusive } => key.token() > *token || (key.token() == *token && !inclusive),
            KeyBound::Key { key: bound, inclusive } => key > bound || (key == bound && !inclusive),
        }
    }
}

/// The part of a table that a read requests of every source: partitions, and the same slices of rows within each.
#[derive(Clone, Debug)]
pub struct ReadRange {
    /// The partitions.
    pub keys: KeyRange,
    /// The rows of each partition. The static row and the partition's deletion are always included.
    pub slices: Slices,
    /// Whether rows come in reversed clustering order (partitions always come in token order).
    pub reversed: bool,
}

impl ReadRange {
    /// All rows of the given partitions, forward.
    pub fn all_rows(keys: KeyRange) -> Self {
        ReadRange { keys, slices: Slices::all(), reversed: false }
    }
}
