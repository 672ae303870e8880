//! The cursor over nodes: depth, incoming byte and content, parents before children, in either direction.

use crate::node::{self, NodePosition, View, view};
use crate::raw::memory::{Memory, Ptr};
use crate::terms::Direction;

#[derive(Clone, Copy)]
struct Level {
    /// The depth of the node that has these children.
    depth: usize,
    node: NodePosition,
    /// The offset of the children in `children`, if they are few.
    few: Option<usize>,
    /// The next character to visit, as a number that leaves the range of a byte at the end.
    next: i32,
}

/// Walks the nodes of a trie. It starts on the root (depth 0, no incoming byte). A chain of n steps counts as n nodes,
/// and so do the bytes of a leaf's tail.
pub struct NodeCursor<'a> {
    memory: Option<Memory<'a>>,
    reverse: bool,
    depth: usize,
    incoming: Option<u8>,
    /// The current node without its prefix; none if it has no children.
    node: NodePosition,
    content: Option<&'a [u8]>,
    levels: Vec<Level>,
    /// The children of all levels with few, in order of the levels.
    children: Vec<(u8, Ptr)>,
    done: bool,
}

impl<'a> NodeCursor<'a> {
    pub(crate) fn new(memory: Option<Memory<'a>>, direction: Direction) -> NodeCursor<'a> {
        let mut cursor = NodeCursor {
            memory,
            reverse: direction == Direction::Reverse,
            depth: 0,
            incoming: None,
            node: NodePosition::NONE,
            content: None,
            levels: Vec::with_capacity(16),
            children: Vec::with_capacity(32),
            done: memory.is_none(),
        };
        if let Some(memory) = memory {
            cursor.enter(memory, NodePosition::root(memory));
        }
        cursor
    }

    /// The depth of the current node, which is the number of bytes on its path. `None` when the walk is over.
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
        self.content
    }

    /// Moves to the first child; if there is none, to the next node to the side or above. Returns the new depth; `None`
    /// at the end.
    #[inline]
    pub fn advance(&mut self) -> Option<usize> {
        let memory = self.memory?;
        if self.done {
            return None;
        }
        self.open(memory);
        self.next_branch(memory)
    }

    /// Moves to the first later node in the walk that is either at `depth` with an incoming byte at or after `byte` (in
    /// the cursor's direction), or less deep. `depth` is at most one more than the current depth.
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
                self.leave();
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

    /// Makes the node at `place` the current one.
    #[inline]
    fn enter(&mut self, memory: Memory<'a>, place: NodePosition) {
        (self.node, self.content) = match view(memory, place) {
            View::None => (NodePosition::NONE, None),
            View::Leaf { tail: [], content } => (NodePosition::NONE, Some(content)),
            View::Prefix { content, child } => (NodePosition::of(child), Some(content)),
            View::Leaf { .. } | View::Chain { .. } | View::Few | View::Many => (place, None),
        };
        // A prefix may precede a leaf with a tail, but not one without.
        debug_assert!(!matches!(view(memory, self.node), View::Leaf { tail: [], .. }));
    }

    /// Visits the current node's children next.
    #[inline]
    fn open(&mut self, memory: Memory<'a>) {
        if self.node.ptr.is_none() {
            return;
        }
        let few = matches!(view(memory, self.node), View::Few).then(|| {
            let start = self.children.len();
            node::list(memory, self.node.ptr, false, &mut self.children);
            start
        });
        let next = if self.reverse { 0xFF } else { 0 };
        self.levels.push(Level { depth: self.depth, node: self.node, few, next });
    }

    /// Removes the last level.
    fn leave(&mut self) {
        if let Some(Level { few: Some(start), .. }) = self.levels.pop() {
            self.children.truncate(start);
        }
    }

    fn next_branch(&mut self, memory: Memory<'a>) -> Option<usize> {
        while let Some(level) = self.levels.last_mut() {
            let few = level.few.map(|start| &self.children[start..]);
            let found =
                u8::try_from(level.next).ok().and_then(|from| next_child(memory, level.node, few, from, self.reverse));
            let Some((character, child)) = found else {
                self.leave();
                continue;
            };
            self.depth = level.depth + 1;
            self.incoming = Some(character);
            level.next = i32::from(character) + if self.reverse { -1 } else { 1 };
            self.enter(memory, child);
            return Some(self.depth);
        }
        self.done = true;
        (self.node, self.content, self.incoming) = (NodePosition::NONE, None, None);
        None
    }
}

/// The first child at or after `from` in the walk's direction; `few` holds all children if they are few.
fn next_child(
    memory: Memory<'_>,
    place: NodePosition,
    few: Option<&[(u8, Ptr)]>,
    from: u8,
    reverse: bool,
) -> Option<(u8, NodePosition)> {
    let inside = |character: u8| if reverse { character <= from } else { character >= from };
    if let Some(few) = few {
        let mut inside = few.iter().filter(|(character, _)| inside(*character));
        let found = if reverse { inside.next_back() } else { inside.next() };
        return found.map(|&(character, child)| (character, NodePosition::of(child)));
    }
    match view(memory, place) {
        View::Chain { steps: [character], next } => inside(*character).then_some((*character, next)),
        View::Chain { steps: [character, ..], .. } | View::Leaf { tail: [character, ..], .. } => {
            inside(*character).then(|| (*character, place.further(1)))
        }
        View::Many => {
            let (character, child) = node::next_of_many(memory, place.ptr, from, reverse)?;
            Some((character, NodePosition::of(child)))
        }
        _ => None,
    }
}
