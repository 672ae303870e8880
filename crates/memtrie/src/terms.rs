//! The terms of the API: layouts, limits, ranges of keys, changes, and the one error. It knows no other module.

use std::fmt;
use std::ops::Bound;

/// How nodes are laid out; `FORMAT.md` describes both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// The layout of *Trie Memtables in Cassandra*: blocks of 32 bytes.
    Paper,
    /// Nodes that grow up to a flat one, and leaves that contain the tail of their key.
    Adaptive,
}

/// The layout and the limits of a trie. Address space is reserved at the first write; memory is used as content
/// arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrieOptions {
    /// The layout; by default the adaptive one.
    pub layout: Layout,
    /// The most bytes of nodes (the structure); at most and by default 2 GiB.
    pub blocks_bytes_max: usize,
    /// The most bytes of contents, with their lengths and rounding; at most and by default 16 GiB.
    pub blobs_bytes_max: usize,
}

impl Default for TrieOptions {
    fn default() -> TrieOptions {
        TrieOptions { layout: Layout::Adaptive, blocks_bytes_max: 2 << 30, blobs_bytes_max: 16 << 30 }
    }
}

/// The memory of a trie, in bytes. `used + reusable <= reserved`; the difference was committed for nodes of the paper's
/// layout and never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The blocks and contents of which the trie consists now.
    pub used: usize,
    /// Replaced or removed blocks and contents, and gaps: what later writes can use without growing.
    pub reusable: usize,
    /// The memory held: whole pages that were used and not returned to the system since. Pages that the arenas grew by
    /// and never touched do not count, because they take no memory. Only the untouched pages for nodes of the paper's
    /// layout count; they are at most 8 MiB.
    pub reserved: usize,
}

/// The range of keys a cursor covers.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// Where the range starts.
    pub start: Bound<&'a [u8]>,
    /// Where the range ends.
    pub end: Bound<&'a [u8]>,
}

impl Bounds<'static> {
    /// All keys.
    pub const ALL: Bounds<'static> = Bounds { start: Bound::Unbounded, end: Bound::Unbounded };
}

impl<'a> Bounds<'a> {
    /// Keys between `start` and `end`, both included.
    pub fn inclusive(start: &'a [u8], end: &'a [u8]) -> Bounds<'a> {
        Bounds { start: Bound::Included(start), end: Bound::Included(end) }
    }
}

/// The order in which a cursor visits keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending.
    Forward,
    /// Descending.
    Reverse,
}

/// The change to a key's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upsert {
    /// The content stays as it is.
    Keep,
    /// The content becomes what was written to the scratch buffer.
    Replace,
    /// The key is removed.
    Remove,
}

/// One change of [`Writer::apply`](crate::Writer::apply).
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The key's bytes after the prefix.
    pub suffix: &'a [u8],
    /// The new content; `None` removes the key.
    pub content: Option<&'a [u8]>,
}

/// A shard's memory limit is reached, or the system has no more memory. The trie is as it was before the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrieFull;

impl fmt::Display for TrieFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the trie's memory limit is reached")
    }
}

impl std::error::Error for TrieFull {}
