//! What comes next on a walk, taken some entries ahead.

use crate::node::Place;
use crate::raw::memory::{Memory, Ptr};
use crate::trie::Direction;
use crate::walk::{Item, Walk};

/// So many entries at once are taken from the walk, when at most so many items are left: what is asked for is then here
/// when it is looked at, and memory always has something to bring. Few are taken of a walk that has given few, since
/// most who look for something want few.
const ENTRIES_AT_ONCE: usize = 24;
const ITEMS_LEFT: usize = 12;

/// The items of a walk, in order.
pub(crate) struct Coming {
    walk: Walk,
    items: Vec<Item>,
    /// The next item.
    next: usize,
    /// When it is that one's turn, more are taken.
    more_at: usize,
    /// About so many entries were taken since the start or the last skip.
    given: usize,
}

impl Coming {
    pub(crate) fn new(direction: Direction, is_empty: bool) -> Coming {
        let walk = Walk::new(direction == Direction::Reverse, is_empty);
        let items = if is_empty { Vec::new() } else { Vec::with_capacity(16) };
        Coming { walk, items, next: 0, more_at: 0, given: 0 }
    }

    #[inline]
    pub(crate) fn is_reverse(&self) -> bool {
        self.walk.is_reverse()
    }

    /// Nothing comes any more.
    pub(crate) fn end(&mut self) {
        self.walk.clear();
        self.items.clear();
        (self.next, self.more_at) = (0, 0);
    }

    /// The next item; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self, memory: Memory<'_>) -> Option<Item> {
        if self.next >= self.more_at {
            self.take_more(memory);
        }
        let item = self.items.get(self.next).copied();
        self.next += 1;
        item
    }

    /// The next item, if it was taken already and is an entry of the most frequent kind.
    #[inline]
    pub(crate) fn next_near_leaf(&mut self) -> Option<(Ptr, [u8; 2], u8)> {
        if self.next >= self.more_at {
            return None;
        }
        let Some(&Item::Leaf { ptr, characters, count }) = self.items.get(self.next) else { return None };
        self.next += 1;
        Some((ptr, characters, count))
    }

    /// The next item if it was taken already.
    pub(crate) fn next_taken(&mut self) -> Option<Item> {
        let item = self.items.get(self.next).copied();
        self.next += 1;
        item
    }

    #[inline(never)]
    fn take_more(&mut self, memory: Memory<'_>) {
        self.drop_passed();
        if !self.walk.is_done() {
            let at_once = (self.given / 2).clamp(1, ENTRIES_AT_ONCE);
            self.walk.fill(memory, &mut self.items, at_once, at_once < ENTRIES_AT_ONCE);
            self.given += at_once;
        }
        let left = if self.walk.is_done() { 0 } else { ITEMS_LEFT.min(self.given / 4) };
        self.more_at = self.items.len().saturating_sub(left);
    }

    fn drop_passed(&mut self) {
        let passed = self.next.min(self.items.len());
        self.items.copy_within(passed.., 0);
        self.items.truncate(self.items.len() - passed);
        self.next = 0;
    }

    /// Starts with the first entry below `place`.
    pub(crate) fn start(&mut self, memory: Memory<'_>, place: Place) {
        self.walk.descend(memory, place, &mut self.items);
        self.more_at = self.items.len();
    }

    /// Starts with the first entry at or after `target`, or after it, below `place`.
    pub(crate) fn seek(&mut self, memory: Memory<'_>, place: Place, target: &[u8], inclusive: bool) {
        self.walk.seek(memory, place, target, inclusive, &mut self.items);
        self.more_at = self.items.len();
    }

    /// Goes on with the first entry at or after `target`, when all that was taken was looked at and came before that.
    /// The path shares `common` bytes with the target.
    pub(crate) fn skip_to(&mut self, memory: Memory<'_>, target: &[u8], common: usize) {
        self.drop_passed();
        self.walk.skip_to(memory, target, common, &mut self.items);
        (self.more_at, self.given) = (self.items.len(), 0);
    }
}
