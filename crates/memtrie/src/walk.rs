//! A walk through a trie's entries in order, some way ahead of its consumer.
//!
//! A walk records what it passes as items: how the key's path changes, and where the entries are. It reads only nodes,
//! never leaves, which it prefetches: the consumer of the items finds them in the cache.

use crate::node::{self, NodePosition, View, view};
use crate::raw::memory::{Memory, Ptr};

/// An item of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// The path is cut to this many bytes.
    Back { depth: u32 },
    /// The path grows by one byte.
    Step { character: u8 },
    /// The path grows by the steps at this place, a chain.
    Chain { ptr: Ptr, skip: u8 },
    /// An entry: a leaf, reached from the path by the first `count` of these characters; the path stays as it is.
    Leaf { ptr: Ptr, characters: [u8; 2], count: u8 },
    /// An entry: the content at this place, an inner node or a leaf, at the end of the path.
    Entry { ptr: Ptr, skip: u8 },
}

const _: () = assert!(size_of::<Item>() == 8);

impl Item {
    fn chain(place: NodePosition) -> Item {
        Item::Chain { ptr: place.ptr, skip: skip(place) }
    }

    fn entry(place: NodePosition) -> Item {
        Item::Entry { ptr: place.ptr, skip: skip(place) }
    }
}

/// The number of passed bytes. No node has so many steps, and no leaf so long a tail, that this needs more than a byte.
fn skip(place: NodePosition) -> u8 {
    debug_assert!(place.skip <= 0xFF);
    place.skip as u8
}

/// A node on the path that may have more to visit after the current branch.
#[derive(Clone, Copy)]
struct Frame {
    /// The length of the path at the node.
    depth: u32,
    rest: Rest,
}

#[derive(Clone, Copy)]
enum Rest {
    /// The offset of the children in `children` (as first listed, in the walk's direction), and of the next one.
    Children { start: u32, next: u32 },
    /// For a node with many children: those at this character or after it, which were not read yet.
    From { node: Ptr, character: i32 },
    /// Forward: the child of a node whose content was visited.
    Child(Ptr),
    /// Reverse: the content of a node whose children are visited first.
    Content(NodePosition),
}

/// How many children ahead nodes are prefetched, and what is below large nodes, which is much.
const NODES_AHEAD: usize = 20;
const BELOW_LARGE_AHEAD: usize = 1;

/// A walk through everything below one place.
pub(crate) struct Walk {
    reverse: bool,
    /// The length of the path after the last item.
    depth: u32,
    /// See [`Walk::fill`].
    soon: bool,
    frames: Vec<Frame>,
    /// The children of all frames, in order of the frames.
    children: Vec<(u8, Ptr)>,
}

impl Walk {
    /// A new walk, with the memory that most walks need if there is anything to visit.
    pub(crate) fn new(reverse: bool, is_empty: bool) -> Walk {
        let (frames, children) =
            if is_empty { Default::default() } else { (Vec::with_capacity(16), Vec::with_capacity(32)) };
        Walk { reverse, depth: 0, soon: true, frames, children }
    }

    #[inline]
    pub(crate) fn is_reverse(&self) -> bool {
        self.reverse
    }

    /// Whether nothing is left.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.depth = 0;
        self.frames.clear();
        self.children.clear();
    }

    /// Continues until there are at least `wanted` more entries; fewer only at the end. If they are consumed `soon`,
    /// they are prefetched as soon as their node is read.
    pub(crate) fn fill(&mut self, memory: Memory<'_>, items: &mut Vec<Item>, wanted: usize, soon: bool) {
        self.soon = soon;
        let mut given = 0;
        while given < wanted
            && let Some(&Frame { depth, rest }) = self.frames.last()
        {
            self.go_back(depth, items);
            given += match rest {
                Rest::Children { next, .. } => self.take_children(memory, items, next as usize, wanted - given),
                Rest::From { node, character } => self.list_from(memory, node, character),
                Rest::Child(child) => {
                    self.frames.pop();
                    self.descend(memory, NodePosition::of(child), items)
                }
                Rest::Content(place) => {
                    self.frames.pop();
                    items.push(Item::entry(place));
                    1
                }
            };
        }
    }

    /// Visits the last frame's children from `next` on, until there are `wanted` entries or one is not a leaf. Returns
    /// the number of entries.
    fn take_children(&mut self, memory: Memory<'_>, items: &mut Vec<Item>, mut next: usize, wanted: usize) -> usize {
        let mut given = 0;
        while given < wanted {
            let Some(&(character, child)) = self.children.get(next) else {
                self.leave();
                return given;
            };
            if let Some(&(_, ahead)) = self.children.get(next + NODES_AHEAD) {
                node::prefetch_node(memory, ahead);
            }
            next += 1;
            if child.is_leaf() {
                memory.prefetch_blob(child);
                items.push(Item::Leaf { ptr: child, characters: [character, 0], count: 1 });
                given += 1;
            } else if let Some(leaves) = node::small_of_leaves(memory, child, self.reverse) {
                for &(second, leaf) in leaves.as_slice() {
                    memory.prefetch_blob(leaf);
                    items.push(Item::Leaf { ptr: leaf, characters: [character, second], count: 2 });
                }
                given += leaves.as_slice().len();
            } else {
                self.set_next(next);
                items.push(Item::Step { character });
                self.depth += 1;
                if let Some(&(_, beside)) = self.children.get(next) {
                    node::prefetch_flat(memory, beside);
                }
                if let Some(&(_, large)) = self.children.get(next + BELOW_LARGE_AHEAD) {
                    node::prefetch_below_large(memory, large);
                }
                return given + self.descend(memory, NodePosition::of(child), items);
            }
        }
        self.set_next(next);
        given
    }

    #[inline]
    fn set_next(&mut self, to: usize) {
        if let Some(Frame { rest: Rest::Children { next, .. }, .. }) = self.frames.last_mut() {
            *next = to as u32;
        }
    }

    /// Cuts the path to `depth`.
    #[inline]
    fn go_back(&mut self, depth: u32, items: &mut Vec<Item>) {
        if self.depth != depth {
            items.push(Item::Back { depth });
            self.depth = depth;
        }
    }

    /// Removes the last frame.
    #[inline]
    fn leave(&mut self) {
        if let Some(Frame { rest: Rest::Children { start, .. }, .. }) = self.frames.pop() {
            self.children.truncate(start as usize);
        }
    }

    /// Descends from `place` to the next entry, or to the next node with several children. Returns the number of
    /// entries.
    pub(crate) fn descend(&mut self, memory: Memory<'_>, mut place: NodePosition, items: &mut Vec<Item>) -> usize {
        loop {
            if place.ptr.is_leaf() {
                memory.prefetch_blob(place.ptr);
                items.push(Item::entry(place));
                return 1;
            }
            match view(memory, place) {
                View::None | View::Leaf { .. } => return 0,
                View::Chain { steps, next } => {
                    self.follow(place, steps.len(), items);
                    place = next;
                }
                View::Prefix { child, .. } if self.reverse => {
                    self.frames.push(Frame { depth: self.depth, rest: Rest::Content(place) });
                    place = NodePosition::of(child);
                }
                View::Prefix { child, .. } => {
                    self.frames.push(Frame { depth: self.depth, rest: Rest::Child(child) });
                    items.push(Item::entry(place));
                    return 1;
                }
                View::Few | View::Many => {
                    let start = self.list_children(memory, place.ptr);
                    self.enter(memory, start, start);
                    return 0;
                }
            }
        }
    }

    fn follow(&mut self, chain: NodePosition, steps: usize, items: &mut Vec<Item>) {
        items.push(Item::chain(chain));
        self.depth += steps as u32;
    }

    /// Appends a node's children to `children` in the walk's direction. Returns their offset.
    #[inline]
    fn list_children(&mut self, memory: Memory<'_>, node: Ptr) -> usize {
        let start = self.children.len();
        node::list(memory, node, self.reverse, &mut self.children);
        start
    }

    /// Adds a frame for the children listed from `start` on, of which those from `next` on are still to be visited.
    fn enter(&mut self, memory: Memory<'_>, start: usize, next: usize) {
        let coming = self.children.get(next..).unwrap_or_default();
        let first = coming.iter().take(NODES_AHEAD);
        if self.soon {
            first.for_each(|&(_, child)| node::prefetch(memory, child));
        } else {
            first.for_each(|&(_, child)| node::prefetch_node(memory, child));
        }
        let rest = Rest::Children { start: start as u32, next: next as u32 };
        self.frames.push(Frame { depth: self.depth, rest });
    }

    /// Lists the children of the last frame's node. Yields no entries.
    fn list_from(&mut self, memory: Memory<'_>, node: Ptr, character: i32) -> usize {
        self.frames.pop();
        let start = self.list_children(memory, node);
        let next = match u8::try_from(character) {
            Ok(character) => start + self.before(&self.children[start..], character),
            Err(_) => self.children.len(),
        };
        self.enter(memory, start, next);
        0
    }

    /// Moves to the first entry at or after `target` (or strictly after it) in the walk's direction, below `place`,
    /// where the path ends. Returns the number of entries: if it is 0, the next item is the first.
    pub(crate) fn seek(
        &mut self,
        memory: Memory<'_>,
        mut place: NodePosition,
        mut target: &[u8],
        inclusive: bool,
        items: &mut Vec<Item>,
    ) -> usize {
        loop {
            let Some((&character, rest)) = target.split_first() else {
                return self.seek_here(memory, place, inclusive, items);
            };
            let depth = self.depth;
            match view(memory, place) {
                View::None => return 0,
                View::Leaf { tail, .. } => {
                    let reached = if tail == target { inclusive } else { (tail < target) == self.reverse };
                    return if reached { self.descend(memory, place, items) } else { 0 };
                }
                View::Chain { steps, next } => {
                    let Some(rest) = target.strip_prefix(steps) else {
                        let whole_branch = (steps < target) == self.reverse;
                        return if whole_branch { self.descend(memory, place, items) } else { 0 };
                    };
                    self.follow(place, steps.len(), items);
                    target = rest;
                    place = next;
                }
                View::Prefix { child, .. } => {
                    if self.reverse {
                        self.frames.push(Frame { depth, rest: Rest::Content(place) });
                    }
                    place = NodePosition::of(child);
                }
                View::Few => {
                    let start = self.list_children(memory, place.ptr);
                    let (child, next) = self.child_in_list(start, character);
                    let rest_of_node = Rest::Children { start: start as u32, next: next as u32 };
                    self.frames.push(Frame { depth, rest: rest_of_node });
                    let Some(child) = child else { return 0 };
                    place = self.step(character, child, items);
                    target = rest;
                }
                View::Many => {
                    let after = i32::from(character) + if self.reverse { -1 } else { 1 };
                    self.frames.push(Frame { depth, rest: Rest::From { node: place.ptr, character: after } });
                    place = self.step(character, node::child(memory, place.ptr, character), items);
                    target = rest;
                }
            }
        }
    }

    fn step(&mut self, character: u8, child: Ptr, items: &mut Vec<Item>) -> NodePosition {
        items.push(Item::Step { character });
        self.depth += 1;
        NodePosition::of(child)
    }

    /// The end of `seek`, where the target's path is the walk's.
    fn seek_here(&mut self, memory: Memory<'_>, place: NodePosition, inclusive: bool, items: &mut Vec<Item>) -> usize {
        let (has_content, below) = match view(memory, place) {
            View::None => return 0,
            View::Leaf { tail: [], .. } => (true, Ptr::NONE),
            View::Prefix { child, .. } => (true, child),
            _ => (false, Ptr::NONE),
        };
        if self.reverse {
            // Everything below has a longer key, which comes before the target in reverse order.
            let found = has_content && inclusive;
            items.extend(found.then(|| Item::entry(place)));
            return usize::from(found);
        }
        let place = if inclusive || !has_content { place } else { NodePosition::of(below) };
        self.descend(memory, place, items)
    }

    /// Moves to the first entry at or after `target`, which is after everything visited and shares `common` bytes with
    /// the path. Returns the number of entries: if it is 0, the next item is the first.
    pub(crate) fn skip_to(&mut self, memory: Memory<'_>, target: &[u8], common: usize, items: &mut Vec<Item>) -> usize {
        while let Some(frame) = self.frames.last()
            && frame.depth as usize > common
        {
            self.leave();
        }
        // A frame's children before the current branch were visited; those at or after the target are in its rest.
        let Some(frame) = self.frames.last().copied() else { return 0 };
        self.go_back(frame.depth, items);
        self.seek_in_frame(memory, frame, &target[frame.depth as usize..], items)
    }

    /// Moves from a node on the path to the first entry at or after `target`, which starts at the node.
    fn seek_in_frame(&mut self, memory: Memory<'_>, frame: Frame, target: &[u8], items: &mut Vec<Item>) -> usize {
        let Some((&character, rest)) = target.split_first() else {
            // In reverse, all children come before the target; the node's own content does not.
            if matches!(frame.rest, Rest::Children { .. } | Rest::From { .. }) {
                self.leave();
            }
            return 0;
        };
        let child = match frame.rest {
            Rest::Content(_) => return 0,
            Rest::Child(child) => {
                self.frames.pop();
                return self.seek(memory, NodePosition::of(child), target, true, items);
            }
            Rest::Children { next, .. } => {
                let (child, next) = self.child_in_list(next as usize, character);
                self.set_next(next);
                child
            }
            Rest::From { node, character: from } => {
                let character = i32::from(character);
                let passed = if self.reverse { from < character } else { from > character };
                if passed {
                    return 0;
                }
                let after = character + if self.reverse { -1 } else { 1 };
                self.frames.pop();
                self.frames.push(Frame { rest: Rest::From { node, character: after }, ..frame });
                Some(node::child(memory, node, character as u8))
            }
        };
        let Some(child) = child else { return 0 };
        let place = self.step(character, child, items);
        self.seek(memory, place, rest, true, items)
    }

    /// Searches the last frame's children from `next` on. Returns the child for `character`, and the offset of those
    /// after it.
    fn child_in_list(&self, next: usize, character: u8) -> (Option<Ptr>, usize) {
        let next = next + self.before(self.children.get(next..).unwrap_or_default(), character);
        match self.children.get(next) {
            Some(&(other, child)) if other == character => (Some(child), next + 1),
            _ => (None, next),
        }
    }

    /// How many of these children the walk visits before `character`.
    fn before(&self, children: &[(u8, Ptr)], character: u8) -> usize {
        children.partition_point(|&(other, _)| if self.reverse { other > character } else { other < character })
    }
}
