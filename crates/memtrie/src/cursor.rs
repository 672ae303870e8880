//! The cursor over keys and contents, in either direction, within bounds.
//!
//! It keeps the nodes with several children on the way to its position, each with what is left of its children; chains and
//! tails are only in the key. Moving allocates nothing once the stack and the key have their size.

use std::ops::Bound;

use crate::node::{self, Place, View, view};
use crate::raw::memory::{Memory, Ptr};
use crate::tail::Tail;
use crate::trie::{Bounds, Direction};

/// A node on the way that may have more to give after the current branch.
#[derive(Clone, Copy)]
struct Frame<'a> {
    /// Length of the key at the node.
    depth: usize,
    node: Place,
    rest: Rest<'a>,
}

#[derive(Clone, Copy)]
enum Rest<'a> {
    /// Children: where in `children` they start (as first seen, in the cursor's direction), and where the next is.
    Few { start: usize, next: usize },
    /// As `Few`, of a node with many: what is ahead is brought near.
    Many { start: usize, next: usize },
    /// Of a node with many those at this character or behind it, which nobody looked at yet.
    From(i32),
    /// Forward: the child of a node whose content was given.
    Child(Ptr),
    /// Reverse: the content of a node whose children are given first.
    Content(&'a [u8]),
}

/// Yields keys and contents in order. Starts before the first; [`Cursor::advance`] goes to it.
pub struct Cursor<'a> {
    memory: Option<Memory<'a>>,
    reverse: bool,
    /// The bound in the direction of movement.
    end: Bound<&'a [u8]>,
    key: Vec<u8>,
    /// Content of the current entry, empty before the first and after the last.
    content: &'a [u8],
    /// The place that has it.
    at: Place,
    frames: Vec<Frame<'a>>,
    /// The children of all frames, each frame's behind those of the frame above.
    children: Vec<(u8, Ptr)>,
    state: State<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State<'a> {
    /// Before the first entry: below which node, and where to start.
    New(Place, Bound<&'a [u8]>),
    On,
    Done,
}

impl<'a> Cursor<'a> {
    /// Over what is below `root`; keys are relative to it.
    pub(crate) fn new(memory: Option<Memory<'a>>, root: Place, bounds: Bounds<'a>, direction: Direction) -> Cursor<'a> {
        let reverse = direction == Direction::Reverse;
        let (start, end) = if reverse { (bounds.end, bounds.start) } else { (bounds.start, bounds.end) };
        let (key, frames, children) = match root.ptr {
            Ptr::NONE => (Vec::new(), Vec::new(), Vec::new()),
            _ => (Vec::with_capacity(64), Vec::with_capacity(16), Vec::with_capacity(32)),
        };
        let state = State::New(root, start);
        Cursor { memory, reverse, end, key, content: &[], at: Place::NONE, frames, children, state }
    }

    /// True before the first entry.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, State::New(..))
    }

    /// The current key. Empty before the first entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current content.
    #[inline]
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// What is at and below the current key, as it was when the cursor came here.
    pub fn tail(&self) -> Tail<'a> {
        Tail::new(self.memory, self.at)
    }

    /// Goes to the next entry. False if there is none.
    #[inline]
    pub fn advance(&mut self) -> bool {
        let Some(memory) = self.memory else { return false };
        if self.next_leaf(memory) {
            return self.finish(true);
        }
        let found = match self.state {
            State::Done => return false,
            State::On => self.next(memory),
            State::New(root, start) => {
                self.state = State::On;
                match start {
                    Bound::Unbounded => self.descend(memory, root) || self.next(memory),
                    Bound::Included(target) => self.seek(memory, root, target, true),
                    Bound::Excluded(target) => self.seek(memory, root, target, false),
                }
            }
        };
        self.finish(found)
    }

    /// Goes forward (in the cursor's direction) to the first entry at `target` or after it; stays where it is if it is
    /// there already. False if there is none.
    pub fn skip_to(&mut self, target: &[u8]) -> bool {
        let Some(memory) = self.memory else { return false };
        match self.state {
            State::Done => return false,
            State::New(root, start) => {
                self.state = State::On;
                let found = match start {
                    Bound::Included(start) if self.is_before(target, start) => self.seek(memory, root, start, true),
                    Bound::Excluded(start) if self.is_before(target, start) || target == start => {
                        self.seek(memory, root, start, false)
                    }
                    _ => self.seek(memory, root, target, true),
                };
                return self.finish(found);
            }
            State::On => {}
        }
        if !self.is_before(&self.key, target) {
            return true;
        }
        let common = self.key.iter().zip(target).take_while(|(a, b)| a == b).count();
        while let Some(frame) = self.frames.last() {
            if frame.depth <= common {
                break;
            }
            self.leave();
        }
        // A frame's children before the current branch are behind us; those at or after the target are in its rest.
        let found = match self.frames.last().copied() {
            Some(frame) => {
                self.key.truncate(frame.depth);
                self.seek_in_frame(memory, frame, &target[frame.depth..])
            }
            None => {
                self.key.clear();
                false
            }
        };
        self.finish(found)
    }

    /// True if `a` comes before `b` in the cursor's direction.
    #[inline]
    fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.reverse { a > b } else { a < b }
    }

    #[inline]
    fn finish(&mut self, found: bool) -> bool {
        let inside = found
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => !self.is_before(end, &self.key),
                Bound::Excluded(end) => self.is_before(&self.key, end),
            };
        if !inside {
            self.state = State::Done;
            (self.content, self.at) = (&[], Place::NONE);
            self.frames.clear();
            self.children.clear();
            self.key.clear();
        }
        inside
    }

    /// Drops the last frame.
    #[inline]
    fn leave(&mut self) {
        if let Some(Frame { rest: Rest::Few { start, .. } | Rest::Many { start, .. }, .. }) = self.frames.pop() {
            self.children.truncate(start);
        }
    }

    /// Goes to the entry at `place`.
    #[inline]
    fn give(&mut self, place: Place, content: &'a [u8]) -> bool {
        (self.content, self.at) = (content, place);
        true
    }

    /// The most frequent step: to a leaf beside the one where the cursor is.
    #[inline]
    fn next_leaf(&mut self, memory: Memory<'a>) -> bool {
        let Some(Frame { depth, rest: Rest::Few { next, .. }, .. }) = self.frames.last_mut() else { return false };
        let Some(&(character, child)) = self.children.get(*next).filter(|(_, child)| child.is_leaf()) else {
            return false;
        };
        *next += 1;
        self.key.truncate(*depth);
        self.give_leaf(memory, character, child)
    }

    /// Goes to the leaf that is a step below the key.
    #[inline]
    fn give_leaf(&mut self, memory: Memory<'a>, character: u8, leaf: Ptr) -> bool {
        let (tail, content) = node::leaf(memory, leaf);
        self.key.push(character);
        self.key.extend_from_slice(tail);
        self.give(Place::of(leaf).further(tail.len()), content)
    }

    /// Takes the next branch of the last node that has one.
    fn next(&mut self, memory: Memory<'a>) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            let Frame { depth, node, .. } = *frame;
            let branch = match &mut frame.rest {
                Rest::Few { next, .. } => {
                    let branch = self.children.get(*next).copied();
                    *next += 1;
                    branch
                }
                Rest::Many { next, .. } => {
                    look_ahead(memory, &self.children, *next);
                    let branch = self.children.get(*next).copied();
                    *next += 1;
                    branch
                }
                Rest::From(from) => {
                    let from = *from;
                    let start = self.list_children(memory, node.ptr);
                    let next = match u8::try_from(from) {
                        Ok(from) => start + self.before(&self.children[start..], from),
                        Err(_) => self.children.len(),
                    };
                    self.replace_rest(Rest::Many { start, next });
                    bring_near(memory, &self.children[next..]);
                    continue;
                }
                Rest::Child(child) => {
                    let child = *child;
                    self.frames.pop();
                    self.key.truncate(depth);
                    if self.descend(memory, Place::of(child)) {
                        return true;
                    }
                    continue;
                }
                Rest::Content(content) => {
                    let content = *content;
                    self.key.truncate(depth);
                    self.frames.pop();
                    return self.give(node, content);
                }
            };
            let Some((character, child)) = branch else {
                self.leave();
                continue;
            };
            self.key.truncate(depth);
            if child.is_leaf() {
                return self.give_leaf(memory, character, child);
            }
            self.key.push(character);
            if self.descend(memory, Place::of(child)) {
                return true;
            }
        }
        false
    }

    /// Goes to the first entry at or below `place` in the cursor's direction. False (with nothing entered) if there is none.
    fn descend(&mut self, memory: Memory<'a>, mut place: Place) -> bool {
        loop {
            let depth = self.key.len();
            let node = place;
            match view(memory, place) {
                View::None => return false,
                View::Leaf { tail, content } => {
                    self.key.extend_from_slice(tail);
                    return self.give(place.further(tail.len()), content);
                }
                View::Chain { steps, next } => {
                    self.key.extend_from_slice(steps);
                    place = next;
                }
                View::Prefix { content, child } => {
                    if !self.reverse {
                        self.frames.push(Frame { depth, node, rest: Rest::Child(child) });
                        return self.give(place, content);
                    }
                    self.frames.push(Frame { depth, node, rest: Rest::Content(content) });
                    place = Place::of(child);
                }
                View::Few => {
                    let start = self.list_children(memory, node.ptr);
                    let Some(&(character, child)) = self.children.get(start) else { return false };
                    // What is below a node with many is near already.
                    if !matches!(self.frames.last(), Some(Frame { rest: Rest::Many { .. }, .. })) {
                        self.children[start..].iter().for_each(|&(_, child)| node::prefetch(memory, child));
                    }
                    self.frames.push(Frame { depth, node, rest: Rest::Few { start, next: start + 1 } });
                    self.key.push(character);
                    place = Place::of(child);
                }
                View::Many => {
                    let start = self.list_children(memory, node.ptr);
                    let Some(&(character, child)) = self.children.get(start) else { return false };
                    bring_near(memory, &self.children[start..]);
                    self.frames.push(Frame { depth, node, rest: Rest::Many { start, next: start + 1 } });
                    self.key.push(character);
                    place = Place::of(child);
                }
            }
        }
    }

    /// Appends a node's children to `children` in the cursor's direction: where they start.
    #[inline]
    fn list_children(&mut self, memory: Memory<'a>, node: Ptr) -> usize {
        let start = self.children.len();
        node::list(memory, node, self.reverse, &mut self.children);
        start
    }

    /// Goes to the first entry at or after `target` (or strictly after) in the cursor's direction, below `place`, whose path is
    /// in the key; if there is none there, to the next one after.
    fn seek(&mut self, memory: Memory<'a>, mut place: Place, mut target: &[u8], inclusive: bool) -> bool {
        loop {
            let Some((&character, rest)) = target.split_first() else {
                return self.seek_here(memory, place, inclusive);
            };
            let depth = self.key.len();
            let node = place;
            match view(memory, place) {
                View::None => return self.next(memory),
                View::Leaf { tail, .. } => {
                    let reached = match self.reverse {
                        _ if tail == target => inclusive,
                        true => tail < target,
                        false => tail > target,
                    };
                    return reached && self.descend(memory, place) || self.next(memory);
                }
                View::Chain { steps, next } => {
                    let Some(rest) = target.strip_prefix(steps) else {
                        let whole_branch = if self.reverse { steps < target } else { steps > target };
                        return whole_branch && self.descend(memory, place) || self.next(memory);
                    };
                    self.key.extend_from_slice(steps);
                    target = rest;
                    place = next;
                }
                View::Prefix { content, child } => {
                    if self.reverse {
                        self.frames.push(Frame { depth, node, rest: Rest::Content(content) });
                    }
                    place = Place::of(child);
                }
                View::Few => {
                    let start = self.list_children(memory, node.ptr);
                    let (child, next) = self.child_in_list(start, character);
                    self.frames.push(Frame { depth, node, rest: Rest::Few { start, next } });
                    let Some(child) = child else { return self.next(memory) };
                    self.key.push(character);
                    target = rest;
                    place = Place::of(child);
                }
                View::Many => {
                    let after = i32::from(character) + if self.reverse { -1 } else { 1 };
                    self.frames.push(Frame { depth, node, rest: Rest::From(after) });
                    self.key.push(character);
                    target = rest;
                    place = Place::of(node::child(memory, node.ptr, character));
                }
            }
        }
    }

    /// The end of `seek`: the target's path is the key.
    fn seek_here(&mut self, memory: Memory<'a>, place: Place, inclusive: bool) -> bool {
        let (content, below) = match view(memory, place) {
            View::None => return self.next(memory),
            View::Leaf { tail: [], content } => (Some(content), Ptr::NONE),
            View::Prefix { content, child } => (Some(content), child),
            _ => (None, Ptr::NONE),
        };
        if self.reverse {
            // Everything below has a longer key, which comes after the target.
            return match content {
                Some(content) if inclusive => self.give(place, content),
                _ => self.next(memory),
            };
        }
        let place = if inclusive || content.is_none() { place } else { Place::of(below) };
        self.descend(memory, place) || self.next(memory)
    }

    /// From a node on the way on: to the first entry at or after `target`, which starts at the node.
    fn seek_in_frame(&mut self, memory: Memory<'a>, frame: Frame<'a>, target: &[u8]) -> bool {
        let Some((&character, rest)) = target.split_first() else {
            // In reverse, all children come after the target; the node's own content does not.
            if matches!(frame.rest, Rest::Few { .. } | Rest::Many { .. } | Rest::From(_)) {
                self.leave();
            }
            return self.next(memory);
        };
        let child = match frame.rest {
            Rest::Content(_) => return self.next(memory),
            Rest::Child(child) => {
                self.frames.pop();
                return self.seek(memory, Place::of(child), target, true);
            }
            Rest::Few { start, next } => {
                let (child, next) = self.child_in_list(next, character);
                self.replace_rest(Rest::Few { start, next });
                child
            }
            Rest::Many { start, next } => {
                let (child, next) = self.child_in_list(next, character);
                self.replace_rest(Rest::Many { start, next });
                child
            }
            Rest::From(from) => {
                let character = i32::from(character);
                let passed = if self.reverse { from < character } else { from > character };
                if passed {
                    return self.next(memory);
                }
                self.replace_rest(Rest::From(character + if self.reverse { -1 } else { 1 }));
                Some(node::child(memory, frame.node.ptr, character as u8))
            }
        };
        let Some(child) = child else { return self.next(memory) };
        self.key.push(character);
        self.seek(memory, Place::of(child), rest, true)
    }

    fn replace_rest(&mut self, rest: Rest<'a>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.rest = rest;
        }
    }

    /// In the last frame's children from `next` on: the child for `character`, and where those after it are.
    fn child_in_list(&self, next: usize, character: u8) -> (Option<Ptr>, usize) {
        let next = next + self.before(self.children.get(next..).unwrap_or_default(), character);
        match self.children.get(next) {
            Some(&(other, child)) if other == character => (Some(child), next + 1),
            _ => (None, next),
        }
    }

    /// How many of these children the cursor comes to before `character`.
    fn before(&self, children: &[(u8, Ptr)], character: u8) -> usize {
        children.partition_point(|&(other, _)| if self.reverse { other > character } else { other < character })
    }
}

/// How many children ahead nodes are brought near, and what they lead to: of large nodes, which lead to much, later.
const NODES_AHEAD: usize = 20;
const LEAVES_AHEAD: usize = 10;
const LEAVES_AHEAD_OF_LARGE: usize = 2;

/// Brings near what comes first of a node's children.
fn bring_near(memory: Memory<'_>, children: &[(u8, Ptr)]) {
    children.iter().take(NODES_AHEAD).for_each(|&(_, child)| node::prefetch(memory, child));
}

/// Brings near what comes some time after the child at `next`.
#[inline]
fn look_ahead(memory: Memory<'_>, children: &[(u8, Ptr)], next: usize) {
    if let Some(&(_, child)) = children.get(next + NODES_AHEAD) {
        node::prefetch(memory, child);
    }
    if let Some(&(_, child)) = children.get(next + LEAVES_AHEAD) {
        node::prefetch_below(memory, child, false);
    }
    if let Some(&(_, child)) = children.get(next + LEAVES_AHEAD_OF_LARGE) {
        node::prefetch_below(memory, child, true);
    }
}
