//! A branch of the trie as a trie of its own.

use crate::cursor::Cursor;
use crate::node::{self, CHILD_WORD, ChainBytes, Kind, SparseWord, kind, prefix, split_child};
use crate::raw::memory::{Memory, Ptr};
use crate::trie::{Bounds, Direction};

/// What is at and below one key, under a pin or a writer. Keys are what comes after it.
///
/// Everything that [`crate::Writer::apply`] publishes at this key's prefix later, or above it, is not seen; it shows one
/// version of that, however many gets and cursors are made. Single puts below may or may not be seen.
#[derive(Clone, Copy)]
pub struct Tail<'a> {
    memory: Option<Memory<'a>>,
    root: Ptr,
}

impl<'a> Tail<'a> {
    pub(crate) fn new(memory: Option<Memory<'a>>, root: Ptr) -> Tail<'a> {
        Tail { memory, root }
    }

    /// The branch at `key` below `root`.
    pub(crate) fn find(memory: Option<Memory<'a>>, root: Ptr, key: &[u8]) -> Tail<'a> {
        let root = memory.map_or(Ptr::NONE, |memory| walk(memory, root, key));
        Tail { memory, root }
    }

    /// True if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The content of `key`; of the branch's own key if that is empty.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        node::get(self.memory?, self.root, key)
    }

    /// Goes through the keys within `bounds`.
    pub fn cursor<'b>(&self, bounds: Bounds<'b>, direction: Direction) -> Cursor<'b>
    where
        'a: 'b,
    {
        Cursor::new(self.memory, self.root, bounds, direction)
    }

    /// The branch at `key` below this one.
    pub fn tail(&self, key: &[u8]) -> Tail<'a> {
        Tail::find(self.memory, self.root, key)
    }
}

/// The node at `key`, none if no key starts so.
fn walk(memory: Memory<'_>, mut ptr: Ptr, mut key: &[u8]) -> Ptr {
    while let Some((&character, rest)) = key.split_first() {
        if ptr.is_none() || ptr.is_leaf() {
            return Ptr::NONE;
        }
        match kind(ptr) {
            Kind::Chain => {
                let bytes = ChainBytes::load(memory, ptr);
                let steps = bytes.steps(ptr);
                if let Some(rest) = key.strip_prefix(steps) {
                    key = rest;
                    ptr = memory.load(ptr.slot(CHILD_WORD));
                } else if steps.starts_with(key) {
                    return ptr.with_kind(ptr.kind() + key.len() as u32);
                } else {
                    return Ptr::NONE;
                }
            }
            Kind::Sparse => {
                let Some(place) = SparseWord::load(memory, ptr).find(character) else { return Ptr::NONE };
                ptr = memory.load(ptr.slot(place));
                key = rest;
            }
            Kind::Split => {
                ptr = split_child(memory, ptr, character);
                key = rest;
            }
            Kind::Prefix => ptr = prefix(memory, ptr).child,
        }
    }
    ptr
}
