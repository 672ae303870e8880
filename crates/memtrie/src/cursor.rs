//! The cursor over keys and contents, in either direction, within bounds.
//!
//! It keeps the nodes with several children on the way to its position, each with what is left of its children; chains
//! are only in the key. Moving allocates nothing once the stack and the key have their size.

use std::ops::Bound;

use crate::node::{CHILD_WORD, ChainBytes, Kind, SparseWord, kind, prefix, split_child, split_next, split_slot};
use crate::raw::memory::{Memory, Ptr};
use crate::tail::Tail;
use crate::trie::{Bounds, Direction};

/// A node on the way that may have more to give after the current branch.
#[derive(Clone, Copy)]
struct Frame {
    /// Length of the key at the node.
    depth: usize,
    node: Ptr,
    rest: Rest,
}

#[derive(Clone, Copy)]
enum Rest {
    /// Sparse: the word as first seen, and the places of the children not visited yet (see `pending_places`).
    Sparse(SparseWord, u32),
    /// Split: the next character to look at; beyond a byte's range when done.
    Split(i32),
    /// Forward: the child of a node whose content was given.
    Child(Ptr),
    /// Reverse: the content (a leaf pointer) of a node whose children are given first.
    Content(Ptr),
}

/// Yields keys and contents in order. Starts before the first; [`Cursor::advance`] goes to it.
pub struct Cursor<'a> {
    memory: Option<Memory<'a>>,
    reverse: bool,
    /// The bound in the direction of movement.
    end: Bound<&'a [u8]>,
    key: Vec<u8>,
    /// Content of the current entry, none before the first and after the last.
    leaf: Ptr,
    /// The node that has it.
    at: Ptr,
    frames: Vec<Frame>,
    state: State<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State<'a> {
    /// Before the first entry: below which node, and where to start.
    New(Ptr, Bound<&'a [u8]>),
    On,
    Done,
}

impl<'a> Cursor<'a> {
    /// Over what is below `root`; keys are relative to it.
    pub(crate) fn new(memory: Option<Memory<'a>>, root: Ptr, bounds: Bounds<'a>, direction: Direction) -> Cursor<'a> {
        let reverse = direction == Direction::Reverse;
        let (start, end) = if reverse { (bounds.end, bounds.start) } else { (bounds.start, bounds.end) };
        let state = if memory.is_some() { State::New(root, start) } else { State::Done };
        let (key, frames) = (Vec::with_capacity(64), Vec::with_capacity(16));
        Cursor { memory, reverse, end, key, leaf: Ptr::NONE, at: Ptr::NONE, frames, state }
    }

    /// The current key. Empty before the first entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current content.
    #[inline]
    pub fn content(&self) -> &'a [u8] {
        match self.memory {
            Some(memory) if !self.leaf.is_none() => memory.blob(self.leaf),
            _ => &[],
        }
    }

    /// What is at and below the current key, as it was when the cursor came here.
    pub fn tail(&self) -> Tail<'a> {
        Tail::new(self.memory, self.at)
    }

    /// Goes to the next entry. False if there is none.
    #[inline]
    pub fn advance(&mut self) -> bool {
        let Some(memory) = self.memory else { return false };
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
                    Bound::Included(start) if self.before(target, start) => self.seek(memory, root, start, true),
                    Bound::Excluded(start) if self.before(target, start) || target == start => {
                        self.seek(memory, root, start, false)
                    }
                    _ => self.seek(memory, root, target, true),
                };
                return self.finish(found);
            }
            State::On => {}
        }
        if !self.before(&self.key, target) {
            return true;
        }
        let common = self.key.iter().zip(target).take_while(|(a, b)| a == b).count();
        while let Some(frame) = self.frames.last() {
            if frame.depth <= common {
                break;
            }
            self.frames.pop();
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
    fn before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.reverse { a > b } else { a < b }
    }

    #[inline]
    fn finish(&mut self, found: bool) -> bool {
        let inside = found
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => !self.before(end, &self.key),
                Bound::Excluded(end) => self.before(&self.key, end),
            };
        if !inside {
            self.state = State::Done;
            (self.leaf, self.at) = (Ptr::NONE, Ptr::NONE);
            self.frames.clear();
            self.key.clear();
        }
        inside
    }

    /// Takes the next branch of the last node that has one.
    #[inline]
    fn next(&mut self, memory: Memory<'a>) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            let depth = frame.depth;
            let branch = match &mut frame.rest {
                Rest::Sparse(word, pending) => {
                    pop_place(pending).map(|place| (word.character(place), memory.load(frame.node.slot(place))))
                }
                Rest::Split(from) => {
                    let next =
                        u8::try_from(*from).ok().and_then(|from| split_next(memory, frame.node, from, self.reverse));
                    if let Some((character, _)) = next {
                        look_ahead_in_split(memory, frame.node, character, *from, self.reverse);
                        *from = i32::from(character) + if self.reverse { -1 } else { 1 };
                    }
                    next
                }
                Rest::Child(child) => {
                    let child = *child;
                    self.frames.pop();
                    self.key.truncate(depth);
                    if self.descend(memory, child) {
                        return true;
                    }
                    continue;
                }
                Rest::Content(leaf) => {
                    self.leaf = *leaf;
                    self.at = frame.node;
                    self.key.truncate(depth);
                    self.frames.pop();
                    return true;
                }
            };
            let Some((character, child)) = branch else {
                self.frames.pop();
                continue;
            };
            self.key.truncate(depth);
            self.key.push(character);
            if self.descend(memory, child) {
                return true;
            }
        }
        false
    }

    /// Goes to the first entry at or below `ptr` in the cursor's direction. False (with nothing entered) if there is none.
    #[inline]
    fn descend(&mut self, memory: Memory<'a>, mut ptr: Ptr) -> bool {
        loop {
            if ptr.is_leaf() {
                (self.leaf, self.at) = (ptr, ptr);
                return true;
            }
            if ptr.is_none() {
                return false;
            }
            let depth = self.key.len();
            match kind(ptr) {
                Kind::Chain => {
                    self.key.extend_from_slice(ChainBytes::load(memory, ptr).steps(ptr));
                    ptr = memory.load(ptr.slot(CHILD_WORD));
                }
                Kind::Prefix => {
                    let prefix = prefix(memory, ptr);
                    if !self.reverse {
                        self.frames.push(Frame { depth, node: ptr, rest: Rest::Child(prefix.child) });
                        (self.leaf, self.at) = (prefix.content, ptr);
                        return true;
                    }
                    self.frames.push(Frame { depth, node: ptr, rest: Rest::Content(prefix.content) });
                    ptr = prefix.child;
                }
                Kind::Sparse => {
                    let word = SparseWord::load(memory, ptr);
                    let mut pending = pending_places(word, self.reverse);
                    let Some(place) = pop_place(&mut pending) else { return false };
                    (0..word.count()).for_each(|place| memory.prefetch(memory.load(ptr.slot(place))));
                    self.frames.push(Frame { depth, node: ptr, rest: Rest::Sparse(word, pending) });
                    self.key.push(word.character(place));
                    ptr = memory.load(ptr.slot(place));
                }
                Kind::Split => {
                    let (from, step) = if self.reverse { (0xFF, -1) } else { (0, 1) };
                    let Some((character, child)) = split_next(memory, ptr, from, self.reverse) else { return false };
                    let rest = Rest::Split(i32::from(character) + step);
                    self.frames.push(Frame { depth, node: ptr, rest });
                    self.key.push(character);
                    ptr = child;
                }
            }
        }
    }

    /// Goes to the first entry at or after `target` (or strictly after) in the cursor's direction, below `ptr`, whose path is
    /// in the key; if there is none there, to the next one after.
    fn seek(&mut self, memory: Memory<'a>, mut ptr: Ptr, mut target: &[u8], inclusive: bool) -> bool {
        loop {
            let Some((&character, rest)) = target.split_first() else {
                return self.seek_here(memory, ptr, inclusive);
            };
            if ptr.is_none() {
                return self.next(memory);
            }
            if ptr.is_leaf() {
                // Its key is a proper prefix of the target: before it in ascending order.
                (self.leaf, self.at) = (ptr, ptr);
                return self.reverse || self.next(memory);
            }
            let depth = self.key.len();
            match kind(ptr) {
                Kind::Chain => {
                    let bytes = ChainBytes::load(memory, ptr);
                    let steps = bytes.steps(ptr);
                    let Some(rest) = target.strip_prefix(steps) else {
                        let whole_branch = if self.reverse { steps < target } else { steps > target };
                        return whole_branch && self.descend(memory, ptr) || self.next(memory);
                    };
                    self.key.extend_from_slice(steps);
                    target = rest;
                    ptr = memory.load(ptr.slot(CHILD_WORD));
                }
                Kind::Prefix => {
                    let prefix = prefix(memory, ptr);
                    if self.reverse {
                        self.frames.push(Frame { depth, node: ptr, rest: Rest::Content(prefix.content) });
                    }
                    ptr = prefix.child;
                }
                Kind::Sparse => {
                    let word = SparseWord::load(memory, ptr);
                    let (place, pending) = self.pending_from(word, pending_places(word, self.reverse), character);
                    self.frames.push(Frame { depth, node: ptr, rest: Rest::Sparse(word, pending) });
                    let Some(place) = place else { return self.next(memory) };
                    self.key.push(character);
                    target = rest;
                    ptr = memory.load(ptr.slot(place));
                }
                Kind::Split => {
                    let after = Rest::Split(i32::from(character) + if self.reverse { -1 } else { 1 });
                    self.frames.push(Frame { depth, node: ptr, rest: after });
                    self.key.push(character);
                    target = rest;
                    ptr = split_child(memory, ptr, character);
                }
            }
        }
    }

    /// The end of `seek`: the target's path is the key.
    fn seek_here(&mut self, memory: Memory<'a>, ptr: Ptr, inclusive: bool) -> bool {
        let content = if ptr.is_none() {
            return self.next(memory);
        } else if ptr.is_leaf() {
            ptr
        } else if kind(ptr) == Kind::Prefix {
            prefix(memory, ptr).content
        } else {
            Ptr::NONE
        };
        if self.reverse {
            // Everything below has a longer key, which comes after the target.
            (self.leaf, self.at) = (content, ptr);
            return inclusive && !content.is_none() || self.next(memory);
        }
        if inclusive || content.is_none() {
            return self.descend(memory, ptr) || self.next(memory);
        }
        let below = if ptr.is_leaf() { Ptr::NONE } else { prefix(memory, ptr).child };
        self.descend(memory, below) || self.next(memory)
    }

    /// From a node on the way on: to the first entry at or after `target`, which starts at the node.
    fn seek_in_frame(&mut self, memory: Memory<'a>, frame: Frame, target: &[u8]) -> bool {
        let Some((&character, rest)) = target.split_first() else {
            // In reverse, all children come after the target; the node's own content does not.
            if matches!(frame.rest, Rest::Sparse(..) | Rest::Split(_)) {
                self.frames.pop();
            }
            return self.next(memory);
        };
        let child = match frame.rest {
            Rest::Content(_) => return self.next(memory),
            Rest::Child(child) => {
                self.frames.pop();
                return self.seek(memory, child, target, true);
            }
            Rest::Sparse(word, pending) => {
                let (place, pending) = self.pending_from(word, pending, character);
                self.replace_rest(Rest::Sparse(word, pending));
                place.map(|place| memory.load(frame.node.slot(place)))
            }
            Rest::Split(from) => {
                let character = i32::from(character);
                let passed = if self.reverse { from < character } else { from > character };
                if passed {
                    return self.next(memory);
                }
                self.replace_rest(Rest::Split(character + if self.reverse { -1 } else { 1 }));
                Some(split_child(memory, frame.node, character as u8))
            }
        };
        let Some(child) = child else { return self.next(memory) };
        self.key.push(character);
        self.seek(memory, child, rest, true)
    }

    fn replace_rest(&mut self, rest: Rest) {
        if let Some(frame) = self.frames.last_mut() {
            frame.rest = rest;
        }
    }

    /// Drops the places whose characters come before `character`; if the next is that of `character`, takes it out.
    fn pending_from(&self, word: SparseWord, mut pending: u32, character: u8) -> (Option<u32>, u32) {
        while pending != 0 {
            let next = word.character((pending & 0xF) - 1);
            if next == character {
                return (pop_place(&mut pending), pending);
            }
            let before = if self.reverse { next > character } else { next < character };
            if !before {
                break;
            }
            pending >>= 4;
        }
        (None, pending)
    }
}

/// The places of a sparse node's children in the order of a direction, as hexadecimal digits `place + 1`, the next lowest.
#[inline]
fn pending_places(word: SparseWord, reverse: bool) -> u32 {
    let mut order = word.order();
    let mut pending = 0;
    for index in 0..word.count() {
        let digit = order % 6 + 1;
        order /= 6;
        pending = if reverse { pending << 4 | digit } else { pending | digit << (4 * index) };
    }
    pending
}

#[inline]
fn pop_place(pending: &mut u32) -> Option<u32> {
    let digit = *pending & 0xF;
    *pending >>= 4;
    digit.checked_sub(1)
}

/// Brings near what the next branch will need: its content, if only a chain leads there. The chain itself is on its way already.
#[inline]
fn look_ahead(memory: Memory<'_>, ptr: Ptr) {
    if ptr.is_none() {
        return;
    }
    if !ptr.is_leaf() && kind(ptr) == Kind::Chain {
        let child = memory.load(ptr.slot(CHILD_WORD));
        if child.is_leaf() {
            memory.prefetch(child);
        }
    } else {
        memory.prefetch(ptr);
    }
}

/// As `look_ahead`, for the child after `character`. On coming to a middle block, brings its tail blocks near; on coming to a
/// tail block, the children of the next one. `from` is where the search for `character` began.
#[inline]
fn look_ahead_in_split(memory: Memory<'_>, node: Ptr, character: u8, from: i32, reverse: bool) {
    let step = if reverse { -1 } else { 1 };
    let (here, before) = (i32::from(character), from - step);
    if here >> 3 != before >> 3 {
        let middle = memory.load(split_slot(node, character));
        let tails = (0..8).map(|word| memory.load(middle.slot(word)));
        if here >> 6 != before >> 6 {
            tails.clone().filter(|tail| !tail.is_none()).for_each(|tail| memory.prefetch(tail));
        }
        let next = usize::try_from((here >> 3 & 7) + step).unwrap_or(8);
        let mut tails = tails;
        if let Some(tail) = tails.nth(next).filter(|tail| !tail.is_none()) {
            let children = (0..8).map(|word| memory.load(tail.slot(word)));
            children.filter(|child| !child.is_none()).for_each(|child| memory.prefetch(child));
        }
    }
    if let Ok(after) = u8::try_from(here + step)
        && let Some((_, child)) = split_next(memory, node, after, reverse)
    {
        look_ahead(memory, child);
    }
}
