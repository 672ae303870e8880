//! The next items of a walk, taken some entries ahead so that their memory can be prefetched.

use crate::node::NodePosition;
use crate::raw::memory::{Memory, Ptr};
use crate::terms::Direction;
use crate::walk::{Item, Walk};

/// How many entries are taken from the walk at once, when at most `ITEMS_LEFT` items remain. What was prefetched has
/// then arrived when it is read, and memory always has requests in flight. Fewer are taken at the start of a walk,
/// since most look-ups need few.
const ENTRIES_AT_ONCE: usize = 24;
const ITEMS_LEFT: usize = 12;

/// The items of a walk, in order.
pub(crate) struct ItemQueue {
    walk: Walk,
    items: Vec<Item>,
    /// The next item.
    next: usize,
    /// The item at which more are taken.
    more_at: usize,
    /// The approximate number of entries taken since the start or the last skip.
    given: usize,
}

impl ItemQueue {
    pub(crate) fn new(direction: Direction, is_empty: bool) -> ItemQueue {
        let walk = Walk::new(direction == Direction::Reverse, is_empty);
        let items = if is_empty { Vec::new() } else { Vec::with_capacity(16) };
        ItemQueue { walk, items, next: 0, more_at: 0, given: 0 }
    }

    #[inline]
    pub(crate) fn is_reverse(&self) -> bool {
        self.walk.is_reverse()
    }

    /// Ends the walk.
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

    /// The next item, if it was already taken and is an entry of the most frequent kind.
    #[inline]
    pub(crate) fn next_near_leaf(&mut self) -> Option<(Ptr, [u8; 2], u8)> {
        if self.next >= self.more_at {
            return None;
        }
        let Some(&Item::Leaf { ptr, characters, count }) = self.items.get(self.next) else { return None };
        self.next += 1;
        Some((ptr, characters, count))
    }

    /// The next item, if it was already taken.
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
    pub(crate) fn start(&mut self, memory: Memory<'_>, place: NodePosition) {
        self.walk.descend(memory, place, &mut self.items);
        self.more_at = self.items.len();
    }

    /// Starts with the first entry at or after `target` (or strictly after it), below `place`.
    pub(crate) fn seek(&mut self, memory: Memory<'_>, place: NodePosition, target: &[u8], inclusive: bool) {
        self.walk.seek(memory, place, target, inclusive, &mut self.items);
        self.more_at = self.items.len();
    }

    /// Continues with the first entry at or after `target`, when all taken items were consumed and lie before it. The
    /// path and the target share `common` bytes.
    pub(crate) fn skip_to(&mut self, memory: Memory<'_>, target: &[u8], common: usize) {
        self.drop_passed();
        self.walk.skip_to(memory, target, common, &mut self.items);
        (self.more_at, self.given) = (self.items.len(), 0);
    }
}
