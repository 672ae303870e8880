//! A cursor restricted to a set of ranges.

use std::ops::Bound;

use crate::cursor::Cursor;
use crate::terms::{Bounds, Direction};

/// The entries of a cursor that lie in any of some ranges. It skips what is between two ranges instead of walking it.
pub struct Ranges<'a> {
    cursor: Cursor<'a>,
    /// The ranges still to be visited, in the cursor's direction.
    ranges: std::vec::IntoIter<Bounds<'a>>,
    /// The range that the cursor is in, or was last in.
    current: Option<Bounds<'a>>,
    reverse: bool,
    done: bool,
}

impl<'a> Ranges<'a> {
    /// Restricts `cursor`, which is before its first entry and moves in `direction`. Its own bounds still apply.
    /// `ranges` ascend and do not overlap.
    pub(crate) fn new(cursor: Cursor<'a>, ranges: &[Bounds<'a>], direction: Direction) -> Ranges<'a> {
        let reverse = direction == Direction::Reverse;
        let mut ranges = ranges.to_vec();
        if reverse {
            ranges.reverse();
        }
        Ranges { cursor, ranges: ranges.into_iter(), current: None, reverse, done: false }
    }

    /// The current key. Empty before the first entry and after the last.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.done { &[] } else { self.cursor.key() }
    }

    /// The current content.
    #[inline]
    pub fn content(&self) -> &'a [u8] {
        if self.done { &[] } else { self.cursor.content() }
    }

    /// Moves to the next entry in a range. Returns false if there is none.
    pub fn advance(&mut self) -> bool {
        let found = match self.current {
            _ if self.done => false,
            Some(_) => self.cursor.advance(),
            None => self.enter_next(),
        };
        self.move_into_range(found)
    }

    /// Moves forward (in the cursor's direction) to the first entry in a range at `target` or after it, or stays if it
    /// is there already. Returns false if there is none.
    pub fn skip_to(&mut self, target: &[u8]) -> bool {
        let entered = !self.done && (self.current.is_some() || self.enter_next());
        let found = entered && self.cursor.skip_to(target);
        self.move_into_range(found)
    }

    /// Moves from the entry that was `found` to the first one in a range.
    fn move_into_range(&mut self, mut found: bool) -> bool {
        while found && !self.is_within() {
            found = self.enter_next();
        }
        self.done = !found;
        found
    }

    /// Moves to the first entry of the next range, or after it.
    fn enter_next(&mut self) -> bool {
        let Some(range) = self.ranges.next() else { return false };
        self.current = Some(range);
        match if self.reverse { range.end } else { range.start } {
            // Moves to the first entry if the cursor is before it; otherwise the cursor stays.
            Bound::Unbounded if self.cursor.is_new() => self.cursor.advance(),
            Bound::Unbounded => true,
            Bound::Included(first) => self.cursor.skip_to(first),
            Bound::Excluded(first) => {
                self.cursor.skip_to(first) && (self.cursor.key() != first || self.cursor.advance())
            }
        }
    }

    /// Whether the cursor's entry is before the current range's end.
    fn is_within(&self) -> bool {
        let Some(range) = self.current else { return false };
        let key = self.cursor.key();
        match if self.reverse { range.start } else { range.end } {
            Bound::Unbounded => true,
            Bound::Included(end) if key == end => true,
            Bound::Included(end) | Bound::Excluded(end) => {
                if self.reverse {
                    key > end
                } else {
                    key < end
                }
            }
        }
    }
}
