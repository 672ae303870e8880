//! The keys that two branches have in common.
//!
//! Both branches are descended together, and only where both continue. If keys are spread evenly, most paths of one
//! branch do not exist in the other after a few bytes, so most leaves of both are never read.

use std::ops::Bound;

use crate::node::{self, NodePosition, View, view};
use crate::raw::memory::{Memory, Ptr};
use crate::tail::{Tail, walk};
use crate::terms::Bounds;

/// The number of positions by which nodes are prefetched ahead.
const POSITIONS_AHEAD: usize = 12;

/// The number of children whose look-up costs about as much as entering a position.
const CHILDREN_PER_STEP: usize = 8;

/// Returns the common keys of two branches, in ascending order and without their contents. It starts before the first
/// key; [`Intersection::advance`] moves to it.
///
/// The branches may belong to different tries. Keys are relative to both.
pub struct Intersection<'a> {
    /// Both tries; `None` if one of them has no memory yet.
    memories: Option<[Memory<'a>; 2]>,
    bounds: Bounds<'a>,
    /// The current key, or the path of the position that was entered last.
    path: Vec<u8>,
    /// A stack of the positions where both branches continue.
    positions: Vec<PathPosition>,
    /// A buffer for the children of a node.
    children: Vec<(u8, Ptr)>,
    /// Whether the path still follows the path to the start.
    is_on_start: bool,
    /// The number of steps that are left.
    steps_left: usize,
}

/// A position on a path that both branches have.
#[derive(Clone, Copy)]
struct PathPosition {
    /// The length of the path, without the character.
    depth: usize,
    /// The last byte of the path, unless the path ends before it.
    character: Option<u8>,
    nodes: [NodePosition; 2],
}

impl<'a> Intersection<'a> {
    /// The common keys within `bounds`. It ends early after about this number of steps (at least one). A step is a
    /// position that it enters, or some children that it looks up; steps on the way to the start do not count. Then
    /// [`rest`](Self::rest) is the start of the next intersection.
    pub fn new(one: &Tail<'a>, other: &Tail<'a>, bounds: Bounds<'a>, steps_max: usize) -> Intersection<'a> {
        let (path, mut positions) = (Vec::with_capacity(48), Vec::with_capacity(64));
        let memories = one.memory().zip(other.memory()).map(<[Memory<'a>; 2]>::from);
        if memories.is_some() {
            positions.push(PathPosition { depth: 0, character: None, nodes: [one.root(), other.root()] });
        }
        let children = Vec::new();
        Intersection { memories, bounds, path, positions, children, is_on_start: true, steps_left: steps_max.max(1) }
    }

    /// The current key, after [`advance`](Self::advance) has returned true.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.path
    }

    /// Moves to the next key. Returns false if there is none, or if the permitted steps are used up.
    pub fn advance(&mut self) -> bool {
        let Some(memories) = self.memories else { return false };
        while self.steps_left > 0
            && let Some(position) = self.positions.pop()
        {
            if let Some(ahead) = self.positions.len().checked_sub(POSITIONS_AHEAD) {
                prefetch(memories, &self.positions[ahead]);
            }
            self.path.truncate(position.depth);
            self.path.extend(position.character);
            self.count_step();
            if self.enter(memories, position.nodes) && self.is_inside() {
                return true;
            }
        }
        false
    }

    /// The inclusive start of the next intersection, if this one has ended because its steps are used up. `None` if
    /// there are no more keys.
    pub fn rest(mut self) -> Option<Vec<u8>> {
        let PathPosition { depth, character, .. } = self.positions.pop()?;
        self.path.truncate(depth);
        // Without a character the path is a key that was visited already. The keys below it are longer.
        self.path.push(character.unwrap_or(0));
        Some(self.path)
    }

    /// Steps on the way to the start do not count, so that every intersection gets further than the one before.
    fn count_step(&mut self) {
        if self.is_on_start {
            self.is_on_start = match self.bounds.start {
                Bound::Included(start) | Bound::Excluded(start) => start.starts_with(&self.path),
                Bound::Unbounded => false,
            };
        }
        self.steps_left -= usize::from(!self.is_on_start);
    }

    /// Follows both branches from these positions, at the end of the path, to a common key or to nodes that both have
    /// several children. The positions below are pushed to the stack. Returns whether the path is a common key.
    fn enter(&mut self, memories: [Memory<'a>; 2], mut nodes: [NodePosition; 2]) -> bool {
        loop {
            nodes = match [view(memories[0], nodes[0]), view(memories[1], nodes[1])] {
                [View::None, _] | [_, View::None] => return false,
                [View::Leaf { tail, .. }, _] => return self.enter_leaf(tail, memories[1], nodes[1]),
                [_, View::Leaf { tail, .. }] => return self.enter_leaf(tail, memories[0], nodes[0]),
                [View::Chain { steps, next }, _] => {
                    self.path.extend_from_slice(steps);
                    [next, walk(memories[1], nodes[1], steps)]
                }
                [_, View::Chain { steps, next }] => {
                    self.path.extend_from_slice(steps);
                    [walk(memories[0], nodes[0], steps), next]
                }
                [View::Prefix { child, .. }, View::Prefix { child: other, .. }] => {
                    let nodes = [NodePosition::of(child), NodePosition::of(other)];
                    self.positions.push(PathPosition { depth: self.path.len(), character: None, nodes });
                    return true;
                }
                [View::Prefix { child, .. }, _] => [NodePosition::of(child), nodes[1]],
                [_, View::Prefix { child, .. }] => [nodes[0], NodePosition::of(child)],
                // If one has few children, these are looked up in the other.
                [View::Many, View::Few] => {
                    self.push_children::<1>(memories, nodes);
                    return false;
                }
                [View::Few | View::Many, View::Few | View::Many] => {
                    self.push_children::<0>(memories, nodes);
                    return false;
                }
            }
        }
    }

    /// One branch has only this rest of a key here.
    fn enter_leaf(&mut self, tail: &[u8], other: Memory<'a>, node: NodePosition) -> bool {
        self.path.extend_from_slice(tail);
        node::get(other, node, tail).is_some()
    }

    /// Adds the common children of two nodes that have several. Those of the node of one branch (`LISTED`) are looked
    /// up in the other.
    fn push_children<const LISTED: usize>(&mut self, memories: [Memory<'a>; 2], nodes: [NodePosition; 2]) {
        let other = 1 - LISTED;
        let Some((from, to)) = self.characters_inside() else { return };
        let (start, depth) = (self.positions.len(), self.path.len());
        self.children.clear();
        node::list(memories[LISTED], nodes[LISTED].ptr, true, &mut self.children);
        for &(character, child) in self.children.iter().filter(|(character, _)| (from..=to).contains(character)) {
            let found = node::child(memories[other], nodes[other].ptr, character);
            if !found.is_none() {
                let mut nodes = [NodePosition::of(child); 2];
                nodes[other] = NodePosition::of(found);
                self.positions.push(PathPosition { depth, character: Some(character), nodes });
            }
        }
        if !self.is_on_start {
            self.steps_left = self.steps_left.saturating_sub(self.children.len() / CHILDREN_PER_STEP);
        }
        let added = &self.positions[start..];
        added.iter().rev().take(POSITIONS_AHEAD).for_each(|position| prefetch(memories, position));
    }

    /// The bytes that can follow the path within the bounds; `None` if there are none.
    fn characters_inside(&self) -> Option<(u8, u8)> {
        let path = self.path.as_slice();
        let from = match self.bounds.start {
            Bound::Included(start) | Bound::Excluded(start) => match start.strip_prefix(path) {
                Some(rest) => rest.first().copied().unwrap_or(0),
                None if path < start => return None,
                None => 0,
            },
            Bound::Unbounded => 0,
        };
        let to = match self.bounds.end {
            Bound::Included(end) | Bound::Excluded(end) => match end.strip_prefix(path) {
                Some(rest) => *rest.first()?,
                None if path > end => return None,
                None => 0xFF,
            },
            Bound::Unbounded => 0xFF,
        };
        Some((from, to))
    }

    /// Whether the key is within the bounds.
    fn is_inside(&self) -> bool {
        let key = self.path.as_slice();
        let is_started = match self.bounds.start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        is_started
            && match self.bounds.end {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            }
    }
}

#[inline]
fn prefetch(memories: [Memory<'_>; 2], position: &PathPosition) {
    node::prefetch(memories[0], position.nodes[0].ptr);
    node::prefetch(memories[1], position.nodes[1].ptr);
}
