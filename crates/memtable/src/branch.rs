//! Cursors over one branch of a partition: its rows, the deletions of rows, its deleted ranges.

use std::ops::Bound;

use memtrie::{Bounds, Cursor, Direction, Tail};

use crate::layout::Layout;

/// A key range within one branch of a partition.
pub(crate) struct BranchRange {
    low: Vec<u8>,
    high: Vec<u8>,
}

impl BranchRange {
    /// Between two positions, neither included, in reading order.
    pub fn new(branch: &[u8], from: &[u8], to: &[u8], reversed: bool) -> BranchRange {
        let (low, high) = if reversed { (to, from) } else { (from, to) };
        debug_assert!(low <= high, "a branch is read from {low:02x?} to {high:02x?}");
        BranchRange { low: [branch, low].concat(), high: [branch, high].concat() }
    }

    pub fn bounds(&self) -> Bounds<'_> {
        Bounds { start: Bound::Excluded(&self.low), end: Bound::Excluded(&self.high) }
    }
}

/// A trie cursor over a branch, which stands on the branch's next entry or is at its end.
pub(crate) struct Branch<'c> {
    pub cursor: Cursor<'c>,
    lead: usize,
    has_entry: bool,
}

impl<'c> Branch<'c> {
    pub fn new(tail: Tail<'c>, range: &'c BranchRange, lead: usize, direction: Direction) -> Branch<'c> {
        let mut cursor = tail.cursor(range.bounds(), direction);
        let has_entry = cursor.advance();
        Branch { cursor, lead, has_entry }
    }

    pub fn position(&self) -> Option<&[u8]> {
        debug_assert!(!self.has_entry || self.cursor.key().len() >= self.lead, "a key begins with its branch");
        if self.has_entry { self.cursor.key().get(self.lead..) } else { None }
    }

    pub fn advance(&mut self) {
        debug_assert!(self.has_entry, "the branch has ended");
        self.has_entry = self.cursor.advance();
    }

    /// A cursor over the rows of a partition. It stands on rows only, not on the pieces of one.
    pub fn of_rows(tail: Tail<'c>, range: &'c BranchRange, direction: Direction, layout: &Layout) -> Branch<'c> {
        let mut branch = Branch::new(tail, range, 0, direction);
        branch.leave_pieces(layout, direction);
        branch
    }

    /// Moves to the next row.
    pub fn advance_row(&mut self, layout: &Layout, direction: Direction) {
        debug_assert!(self.has_entry, "the branch has ended");
        if direction == Direction::Forward && layout.is_piece(self.cursor.content()) {
            let behind = after_row(self.cursor.key());
            self.has_entry = self.cursor.skip_to(&behind);
        } else {
            self.advance();
            self.leave_pieces(layout, direction);
        }
    }

    /// In reverse order a row's pieces come before the row.
    fn leave_pieces(&mut self, layout: &Layout, direction: Direction) {
        if self.has_entry && direction == Direction::Reverse && layout.is_piece(self.cursor.content()) {
            let position = self.cursor.key()[..layout.position_length(self.cursor.key())].to_vec();
            self.has_entry = self.cursor.skip_to(&position);
        }
    }
}

/// The least key after a row and its pieces.
pub(crate) fn after_row(key: &[u8]) -> Vec<u8> {
    let mut behind = key.to_vec();
    after_partition(&mut behind);
    debug_assert!(!behind.starts_with(key) && behind.as_slice() > key, "the keys of the row are skipped");
    behind
}

/// Moves a partition's path past all that is below it.
pub(crate) fn after_partition(path: &mut [u8]) {
    debug_assert!(path.last().is_some_and(|last| *last < u8::MAX), "no path comes behind {path:02x?}");
    if let Some(last) = path.last_mut() {
        *last += 1;
    }
}
