//! A branch of the trie as a trie of its own.

use crate::contents::Contents;
use crate::cursor::Cursor;
use crate::node::{self, NodePosition, View, view};
use crate::ranges::Ranges;
use crate::raw::memory::Memory;
use crate::terms::{Bounds, Direction};

/// The subtree at one key, under a pin or a writer: the key's content and everything below it. Keys are relative to it.
///
/// A later [`crate::Writer::apply`] at this key, or above it, is not visible: all gets and cursors show one version of
/// the subtree. Later single puts below may or may not be visible. A later one may be visible without an earlier one,
/// unless the writer calls [`crate::Writer::is_read_below`] before each.
#[derive(Clone, Copy)]
pub struct Tail<'a> {
    memory: Option<Memory<'a>>,
    root: NodePosition,
}

impl<'a> Tail<'a> {
    pub(crate) fn new(memory: Option<Memory<'a>>, root: NodePosition) -> Tail<'a> {
        Tail { memory, root }
    }

    /// The branch at `key` below `root`.
    pub(crate) fn find(memory: Option<Memory<'a>>, root: NodePosition, key: &[u8]) -> Tail<'a> {
        let root = memory.map_or(NodePosition::NONE, |memory| walk(memory, root, key));
        Tail { memory, root }
    }

    pub(crate) fn memory(&self) -> Option<Memory<'a>> {
        self.memory
    }

    pub(crate) fn root(&self) -> NodePosition {
        self.root
    }

    /// Whether the branch is empty.
    pub fn is_empty(&self) -> bool {
        self.root.ptr.is_none()
    }

    /// The content of `key`; an empty key is the branch's own key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        node::get(self.memory?, self.root, key)
    }

    /// The key and the content of the branch, if it is a single leaf. This costs less than a cursor.
    #[inline]
    pub fn leaf(&self) -> Option<(&'a [u8], &'a [u8])> {
        match view(self.memory?, self.root) {
            View::Leaf { tail, content } => Some((tail, content)),
            View::None | View::Chain { .. } | View::Prefix { .. } | View::Few | View::Many => None,
        }
    }

    /// A cursor over the keys within `bounds`.
    pub fn cursor<'b>(&self, bounds: Bounds<'b>, direction: Direction) -> Cursor<'b>
    where
        'a: 'b,
    {
        Cursor::new(self.memory, self.root, bounds, direction)
    }

    /// The contents in order of their keys. This is faster than with keys, which are not built.
    pub fn contents(&self, direction: Direction) -> Contents<'a> {
        Contents::new(self.memory, self.root, direction)
    }

    /// A cursor over the keys within any of `ranges`, which ascend and do not overlap.
    pub fn ranges<'b>(&self, ranges: &[Bounds<'b>], direction: Direction) -> Ranges<'b>
    where
        'a: 'b,
    {
        Ranges::new(self.cursor(Bounds::ALL, direction), ranges, direction)
    }

    /// The branch at `key` below this one.
    pub fn tail(&self, key: &[u8]) -> Tail<'a> {
        Tail::find(self.memory, self.root, key)
    }
}

/// The place at `key`; none if no key starts with it.
pub(crate) fn walk(memory: Memory<'_>, mut place: NodePosition, mut key: &[u8]) -> NodePosition {
    while let Some((&character, rest)) = key.split_first() {
        place = match view(memory, place) {
            View::None => return NodePosition::NONE,
            View::Leaf { tail, .. } => {
                return if tail.starts_with(key) { place.further(key.len()) } else { NodePosition::NONE };
            }
            View::Chain { steps, next } => {
                if let Some(rest) = key.strip_prefix(steps) {
                    key = rest;
                    next
                } else if steps.starts_with(key) {
                    return place.further(key.len());
                } else {
                    return NodePosition::NONE;
                }
            }
            View::Prefix { child, .. } => NodePosition::of(child),
            View::Few | View::Many => {
                key = rest;
                NodePosition::of(node::child(memory, place.ptr, character))
            }
        };
    }
    place
}
