//! The cursor over nodes: depth, incoming byte, content; parents before children, in either direction.

use crate::node::{CHILD_WORD, ChainBytes, Kind, SparseWord, kind, prefix, split_next};
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::trie::Direction;

#[derive(Clone, Copy)]
struct Level {
    /// Depth of the node whose children these are.
    depth: usize,
    node: Ptr,
    /// Next character to give, as a number that leaves a byte's range when done.
    next: i32,
}

/// Walks the nodes of a trie. Starts on the root (depth 0, no incoming byte). A chain of n steps is n nodes.
pub struct NodeCursor<'a> {
    memory: Option<Memory<'a>>,
    reverse: bool,
    depth: usize,
    incoming: Option<u8>,
    /// The current node, its prefix taken off; a leaf or none has no children.
    node: Ptr,
    content: Ptr,
    levels: Vec<Level>,
    done: bool,
}

impl<'a> NodeCursor<'a> {
    pub(crate) fn new(memory: Option<Memory<'a>>, direction: Direction) -> NodeCursor<'a> {
        let mut cursor = NodeCursor {
            memory,
            reverse: direction == Direction::Reverse,
            depth: 0,
            incoming: None,
            node: Ptr::NONE,
            content: Ptr::NONE,
            levels: Vec::with_capacity(16),
            done: memory.is_none(),
        };
        if let Some(memory) = memory {
            cursor.enter(memory, memory.load(Slot::ROOT));
        }
        cursor
    }

    /// Depth of the current node: bytes on the way from the root. `None` when the walk is over.
    #[inline]
    pub fn depth(&self) -> Option<usize> {
        (!self.done).then_some(self.depth)
    }

    /// The byte that leads to the current node from its parent; `None` at the root.
    #[inline]
    pub fn incoming(&self) -> Option<u8> {
        self.incoming
    }

    /// The current node's content.
    #[inline]
    pub fn content(&self) -> Option<&'a [u8]> {
        if self.content.is_none() { None } else { self.memory.map(|memory| memory.blob(self.content)) }
    }

    /// Goes to the first child, or if there is none to the next node to the side or above. The new depth; `None` at the end.
    #[inline]
    pub fn advance(&mut self) -> Option<usize> {
        let memory = self.memory?;
        if self.done {
            return None;
        }
        self.open(memory);
        self.next_branch(memory)
    }

    /// As `advance`, but follows a chain to its end, or to the first content, giving the bytes passed over (not the last one) to `receive`.
    pub fn advance_multiple(&mut self, mut receive: impl FnMut(u8)) -> Option<usize> {
        let memory = self.memory?;
        if self.done || self.node.is_none() || self.node.is_leaf() || kind(self.node) != Kind::Chain {
            return self.advance();
        }
        let bytes = ChainBytes::load(memory, self.node);
        let steps = bytes.steps(self.node);
        self.depth += steps.len();
        for &step in &steps[..steps.len() - 1] {
            receive(step);
        }
        self.incoming = steps.last().copied();
        self.enter(memory, memory.load(self.node.slot(CHILD_WORD)));
        Some(self.depth)
    }

    /// Leaves out the current node's children.
    pub fn skip_children(&mut self) -> Option<usize> {
        let memory = self.memory?;
        if self.done { None } else { self.next_branch(memory) }
    }

    /// Goes to the first node that comes after the current one in the walk and is either at `depth` with an incoming byte at or
    /// after `byte` (in the cursor's direction), or less deep. `depth` is at most one more than the current depth.
    pub fn skip_to(&mut self, depth: usize, byte: u8) -> Option<usize> {
        let memory = self.memory?;
        if self.done {
            return None;
        }
        debug_assert!(depth > 0 && depth <= self.depth + 1);
        if depth == self.depth + 1 {
            self.open(memory);
        }
        while let Some(level) = self.levels.last_mut() {
            if level.depth + 1 > depth {
                self.levels.pop();
                continue;
            }
            if level.depth + 1 == depth {
                let byte = i32::from(byte);
                level.next = if self.reverse { level.next.min(byte) } else { level.next.max(byte) };
            }
            break;
        }
        self.next_branch(memory)
    }

    /// Makes `ptr` the current node.
    #[inline]
    fn enter(&mut self, memory: Memory<'a>, ptr: Ptr) {
        (self.node, self.content) = if ptr.is_none() || ptr.is_leaf() {
            (Ptr::NONE, ptr)
        } else if kind(ptr) == Kind::Prefix {
            let prefix = prefix(memory, ptr);
            (prefix.child, prefix.content)
        } else {
            (ptr, Ptr::NONE)
        };
    }

    /// Puts the current node's children before all others.
    #[inline]
    fn open(&mut self, _memory: Memory<'a>) {
        if !self.node.is_none() {
            let next = if self.reverse { 0xFF } else { 0 };
            self.levels.push(Level { depth: self.depth, node: self.node, next });
        }
    }

    fn next_branch(&mut self, memory: Memory<'a>) -> Option<usize> {
        while let Some(level) = self.levels.last_mut() {
            let found =
                u8::try_from(level.next).ok().and_then(|from| next_child(memory, level.node, from, self.reverse));
            let Some((character, child)) = found else {
                self.levels.pop();
                continue;
            };
            self.depth = level.depth + 1;
            self.incoming = Some(character);
            level.next = i32::from(character) + if self.reverse { -1 } else { 1 };
            self.enter(memory, child);
            return Some(self.depth);
        }
        self.done = true;
        (self.node, self.content, self.incoming) = (Ptr::NONE, Ptr::NONE, None);
        None
    }
}

/// The first child at or after `from` in the walk's direction.
fn next_child(memory: Memory<'_>, node: Ptr, from: u8, reverse: bool) -> Option<(u8, Ptr)> {
    let inside = |character: u8| if reverse { character <= from } else { character >= from };
    match kind(node) {
        Kind::Chain => {
            let bytes = ChainBytes::load(memory, node);
            let steps = bytes.steps(node);
            let character = *steps.first()?;
            let child =
                if steps.len() > 1 { node.with_kind(node.kind() + 1) } else { memory.load(node.slot(CHILD_WORD)) };
            inside(character).then_some((character, child))
        }
        Kind::Sparse => {
            let word = SparseWord::load(memory, node);
            let mut inside = word.places().filter(|&place| inside(word.character(place)));
            let place = if reverse { inside.last() } else { inside.next() }?;
            Some((word.character(place), memory.load(node.slot(place))))
        }
        Kind::Split => split_next(memory, node, from, reverse),
        Kind::Prefix => None,
    }
}
