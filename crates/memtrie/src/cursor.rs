//! The cursor over keys and contents, in either direction, within bounds.
//!
//! It consumes a walk that is some entries ahead, and builds each key from the walk's items. It allocates nothing once
//! its buffers are large enough.

use std::ops::Bound;

use crate::item_queue::ItemQueue;
use crate::node::{self, NodePosition, View, view};
use crate::raw::memory::{Memory, Ptr};
use crate::tail::Tail;
use crate::terms::{Bounds, Direction};
use crate::walk::Item;

/// Yields keys and contents in order. It starts before the first entry; [`Cursor::advance`] moves to it.
pub struct Cursor<'a> {
    memory: Option<Memory<'a>>,
    /// The bound in the direction of movement.
    end: Bound<&'a [u8]>,
    /// Begins with the current key. The bytes after that are meaningless.
    key: Vec<u8>,
    key_bytes: usize,
    /// The length of the path, with which the next key begins unless the walk's next item changes it.
    path_bytes: usize,
    /// Content of the current entry, empty before the first and after the last.
    content: &'a [u8],
    /// The place that has the content.
    at: NodePosition,
    queue: ItemQueue,
    state: State<'a>,
}

#[derive(Clone, Copy)]
enum State<'a> {
    /// Before the first entry: the node to search below, and the bound to start at.
    New(NodePosition, Bound<&'a [u8]>),
    On,
    Done,
}

/// The buffer always has at least this much room after the path, enough for what most leaves add.
const ROOM_BYTES: usize = 48;

impl<'a> Cursor<'a> {
    /// A cursor over what is below `root`; keys are relative to it.
    pub(crate) fn new(
        memory: Option<Memory<'a>>,
        root: NodePosition,
        bounds: Bounds<'a>,
        direction: Direction,
    ) -> Cursor<'a> {
        let (start, end) =
            if direction == Direction::Reverse { (bounds.end, bounds.start) } else { (bounds.start, bounds.end) };
        Cursor {
            memory,
            end,
            key: if root.ptr.is_none() { Vec::new() } else { vec![0; 2 * ROOM_BYTES] },
            key_bytes: 0,
            path_bytes: 0,
            content: &[],
            at: NodePosition::NONE,
            queue: ItemQueue::new(direction, root.ptr.is_none()),
            state: State::New(root, start),
        }
    }

    /// True before the first entry.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, State::New(..))
    }

    /// The current key. Empty before the first entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.get(..self.key_bytes).unwrap_or_default()
    }

    /// The current content.
    #[inline]
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// The subtree at the current key, as it was when the cursor moved there.
    pub fn tail(&self) -> Tail<'a> {
        Tail::new(self.memory, self.at)
    }

    /// Moves to the next entry. Returns false if there is none.
    #[inline]
    pub fn advance(&mut self) -> bool {
        let Some(memory) = self.memory else { return false };
        // This is the most frequent step.
        if let Some((leaf, characters, count)) = self.queue.next_near_leaf() {
            self.enter_leaf(memory, leaf, characters, count);
            return matches!(self.end, Bound::Unbounded) || self.finish(true);
        }
        self.advance_anyhow(memory)
    }

    #[inline(never)]
    fn advance_anyhow(&mut self, memory: Memory<'a>) -> bool {
        if !matches!(self.state, State::On) && !self.start(memory) {
            return false;
        }
        let found = self.next_item(memory);
        self.finish(found)
    }

    /// Moves forward (in the cursor's direction) to the first entry at `target` or after it, or stays if it is there
    /// already. Returns false if there is none.
    pub fn skip_to(&mut self, target: &[u8]) -> bool {
        let Some(memory) = self.memory else { return false };
        let found = match self.state {
            State::Done => return false,
            State::New(root, start) => {
                self.state = State::On;
                match start {
                    Bound::Included(start) if self.is_before(target, start) => {
                        self.queue.seek(memory, root, start, true);
                    }
                    Bound::Excluded(start) if self.is_before(target, start) || target == start => {
                        self.queue.seek(memory, root, start, false);
                    }
                    _ => self.queue.seek(memory, root, target, true),
                }
                self.next_item(memory)
            }
            State::On if !self.is_before(self.key(), target) => return true,
            State::On => {
                self.pass_taken(memory, target) || {
                    let path = self.key.get(..self.path_bytes).unwrap_or_default();
                    let common = path.iter().zip(target).take_while(|(a, b)| a == b).count();
                    self.queue.skip_to(memory, target, common);
                    self.next_item(memory)
                }
            }
        };
        self.finish(found)
    }

    /// Starts before the first requested entry. Returns false if nothing is left.
    #[cold]
    fn start(&mut self, memory: Memory<'a>) -> bool {
        let State::New(root, start) = self.state else { return false };
        self.state = State::On;
        match start {
            Bound::Unbounded => self.queue.start(memory, root),
            Bound::Included(target) => self.queue.seek(memory, root, target, true),
            Bound::Excluded(target) => self.queue.seek(memory, root, target, false),
        }
        true
    }

    /// Moves to the next entry, of any kind.
    fn next_item(&mut self, memory: Memory<'a>) -> bool {
        loop {
            match self.queue.next(memory) {
                Some(Item::Leaf { ptr, characters, count }) => {
                    self.enter_leaf(memory, ptr, characters, count);
                    return true;
                }
                Some(Item::Step { character }) => self.step(character),
                Some(item) if self.take(memory, item) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// Passes those items before `target` that were already taken from the walk. Returns true if it is then at an entry
    /// at `target` or after it.
    fn pass_taken(&mut self, memory: Memory<'a>, target: &[u8]) -> bool {
        while let Some(item) = self.queue.next_taken() {
            if let Item::Leaf { characters, count, .. } = item {
                self.make_room();
                let known = self.path_bytes + usize::from(count);
                self.key[self.path_bytes..known].copy_from_slice(&characters[..usize::from(count)]);
                // For most leaves no more has to be compared.
                let known = &self.key[..known];
                if !target.starts_with(known) && self.is_before(known, target) {
                    continue;
                }
            }
            if self.take(memory, item) && !self.is_before(self.key(), target) {
                return true;
            }
        }
        false
    }

    /// Applies an item. Returns true if it is an entry.
    #[inline(never)]
    fn take(&mut self, memory: Memory<'a>, item: Item) -> bool {
        match item {
            Item::Back { depth } => self.path_bytes = depth as usize,
            Item::Step { character } => self.step(character),
            Item::Chain { ptr, skip } => {
                if let View::Chain { steps, .. } = view(memory, NodePosition { ptr, skip: u32::from(skip) }) {
                    self.add_to_path(steps);
                }
            }
            Item::Leaf { ptr, characters, count } => {
                self.enter_leaf(memory, ptr, characters, count);
                return true;
            }
            Item::Entry { ptr, skip } => {
                self.enter_entry(memory, NodePosition { ptr, skip: u32::from(skip) });
                return true;
            }
        }
        false
    }

    #[inline]
    fn step(&mut self, character: u8) {
        match self.key.get_mut(self.path_bytes) {
            Some(byte) => *byte = character,
            None => self.key.push(character),
        }
        self.path_bytes += 1;
        self.make_room();
    }

    fn add_to_path(&mut self, steps: &[u8]) {
        self.key.truncate(self.path_bytes);
        self.key.extend_from_slice(steps);
        self.path_bytes = self.key.len();
        self.make_room();
    }

    /// Makes room after the path.
    #[inline]
    fn make_room(&mut self) {
        if self.key.len() < self.path_bytes + ROOM_BYTES {
            self.key.resize(self.path_bytes + 2 * ROOM_BYTES, 0);
        }
    }

    /// Moves to the leaf that is some characters below the path.
    #[inline]
    fn enter_leaf(&mut self, memory: Memory<'a>, leaf: Ptr, characters: [u8; 2], count: u8) {
        let (tail, content) = node::leaf(memory, leaf);
        let at = usize::from(count);
        let room = self.key.get_mut(self.path_bytes..).and_then(|room| room.first_chunk_mut::<ROOM_BYTES>());
        if !room.is_some_and(|room| write_end(room, characters, at, tail)) {
            self.write_long_end(&characters[..at], tail);
        }
        self.key_bytes = self.path_bytes + at + tail.len();
        (self.content, self.at) = (content, NodePosition::of(leaf).further(tail.len()));
    }

    /// Writes the key's end after the path, whatever its length.
    #[inline(never)]
    fn write_long_end(&mut self, characters: &[u8], tail: &[u8]) {
        self.key.truncate(self.path_bytes);
        self.key.extend_from_slice(characters);
        self.key.extend_from_slice(tail);
        self.make_room();
    }

    /// Moves to the content at a place at the end of the path.
    fn enter_entry(&mut self, memory: Memory<'a>, place: NodePosition) {
        let (tail, content) = match view(memory, place) {
            View::Leaf { tail, content } => (tail, content),
            View::Prefix { content, .. } => (&[][..], content),
            // The walk only yields places with content.
            View::None | View::Chain { .. } | View::Few | View::Many => (&[][..], &[][..]),
        };
        self.write_long_end(&[], tail);
        self.key_bytes = self.path_bytes + tail.len();
        (self.content, self.at) = (content, if place.ptr.is_leaf() { place.further(tail.len()) } else { place });
    }

    /// Whether `a` comes before `b` in the cursor's direction.
    #[inline]
    fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.queue.is_reverse() { a > b } else { a < b }
    }

    #[inline(never)]
    fn finish(&mut self, found: bool) -> bool {
        let inside = found
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => !self.is_before(end, self.key()),
                Bound::Excluded(end) => self.is_before(self.key(), end),
            };
        if !inside {
            self.end();
        }
        inside
    }

    #[cold]
    fn end(&mut self) {
        self.state = State::Done;
        (self.content, self.at) = (&[], NodePosition::NONE);
        (self.key_bytes, self.path_bytes) = (0, 0);
        self.queue.end();
    }
}

/// Writes characters and tail after the path, if they fit. A copy of unknown length would be a call; two overlapping
/// copies of known lengths are not.
#[inline]
fn write_end(room: &mut [u8; ROOM_BYTES], characters: [u8; 2], at: usize, tail: &[u8]) -> bool {
    room[..2].copy_from_slice(&characters);
    let Some(room) = room.get_mut(at..at + tail.len()) else { return false };
    if let (Some(first), Some(last)) = (tail.first_chunk::<16>(), tail.last_chunk::<16>())
        && tail.len() <= 32
    {
        room[..16].copy_from_slice(first);
        room[tail.len() - 16..].copy_from_slice(last);
    } else if let (Some(first), Some(last)) = (tail.first_chunk::<8>(), tail.last_chunk::<8>())
        && tail.len() <= 16
    {
        room[..8].copy_from_slice(first);
        room[tail.len() - 8..].copy_from_slice(last);
    } else {
        room.copy_from_slice(tail);
    }
    true
}
