//! Deleted ranges as a partition stores them, each at its start, and the borders that they make.

use std::ops::Bound;

use memtrie::{Bounds, Cursor, Direction, Tail};
use model::DeletionTime;
use types::vint;

use crate::branch::BranchRange;
use crate::layout::{Layout, RANGE_BRANCH};

/// A deleted range, as it is stored at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletedRange<'c> {
    pub deletion: DeletionTime,
    /// The serialized prefixes of its bounds, where their positions do not give them back.
    pub start_kept: Option<&'c [u8]>,
    pub end_kept: Option<&'c [u8]>,
    /// How many leading bytes the end's position shares with the start's, and the rest of it.
    shared: usize,
    rest: &'c [u8],
}

const MICROS_PER_SECOND: i64 = 1_000_000;

impl<'c> DeletedRange<'c> {
    /// The range between two bounds, each a position and a prefix.
    pub fn new(start: (&'c [u8], &'c [u8]), end: (&'c [u8], &'c [u8]), deletion: DeletionTime) -> DeletedRange<'c> {
        debug_assert!(start.0 < end.0, "a range from {:02x?} to {:02x?}", start.0, end.0);
        debug_assert!(!deletion.is_live(), "a range deletes something");
        let shared = start.0.iter().zip(end.0).take_while(|(start, end)| start == end).count();
        let rest = &end.0[shared..];
        DeletedRange { deletion, start_kept: Some(start.1), end_kept: Some(end.1), shared, rest }
    }

    /// Decodes what `write` encoded.
    pub fn read(layout: &Layout, content: &'c [u8]) -> DeletedRange<'c> {
        let (start_kept, mut rest) = layout.split_content(content);
        let at = rest.split_first_chunk().map_or(0, |(at, tail)| {
            rest = tail;
            i64::from_be_bytes(*at)
        });
        let seconds = at.div_euclid(MICROS_PER_SECOND).wrapping_add(vint::read_svint(&mut rest).unwrap_or(0));
        debug_assert!(u32::try_from(seconds).is_ok(), "a range deleted at second {seconds}");
        let (end_kept, mut rest) = layout.split_content(rest);
        let shared = vint::read_uvint(&mut rest).unwrap_or(0) as usize;
        DeletedRange { deletion: DeletionTime::new(at, seconds as u32), start_kept, end_kept, shared, rest }
    }

    /// Appends its stored form.
    pub fn write(&self, layout: &Layout, out: &mut Vec<u8>) {
        let DeletionTime { marked_for_delete_at, local_deletion_time } = self.deletion;
        let content_start = out.len();
        layout.push_content_head(self.start_kept.unwrap_or_default(), out);
        out.extend_from_slice(&marked_for_delete_at.to_be_bytes());
        // This is usually the second that contains the timestamp, or the one beside it.
        let second = marked_for_delete_at.div_euclid(MICROS_PER_SECOND);
        vint::write_svint(i64::from(local_deletion_time) - second, out);
        layout.push_content_head(self.end_kept.unwrap_or_default(), out);
        vint::write_uvint(self.shared as u64, out);
        out.extend_from_slice(self.rest);
        let written = &out[content_start..];
        debug_assert_eq!(DeletedRange::read(layout, written).deletion, self.deletion, "reading inverts writing");
    }

    /// The position of its end.
    pub fn end(&self, start: &[u8]) -> Vec<u8> {
        debug_assert!(self.shared <= start.len(), "{} bytes shared with {start:02x?}", self.shared);
        let shared = start.get(..self.shared).unwrap_or(start);
        [shared, self.rest].concat()
    }
}

/// The deletion of the last range that begins before a position (or at it, if `inclusive`), if it does not end before
/// there. This is the deletion in force just before the position, or just after it. `ranges` iterates backward from
/// there; its keys have `lead` bytes before positions.
fn in_force(mut ranges: Cursor<'_>, layout: &Layout, lead: usize, position: &[u8], inclusive: bool) -> DeletionTime {
    if !ranges.advance() {
        return DeletionTime::LIVE;
    }
    let range = DeletedRange::read(layout, ranges.content());
    let end = range.end(ranges.key().get(lead..).unwrap_or_default());
    let goes_on = if inclusive { end.as_slice() > position } else { end.as_slice() >= position };
    if goes_on { range.deletion } else { DeletionTime::LIVE }
}

/// The range deletion in force just before a position, or just after it if `inclusive`, in the partition of a tail.
pub(crate) fn deletion_at(tail: Tail<'_>, layout: &Layout, position: &[u8], inclusive: bool) -> DeletionTime {
    let key = [&[RANGE_BRANCH], position].concat();
    let end = if inclusive { Bound::Included(key.as_slice()) } else { Bound::Excluded(key.as_slice()) };
    let ranges = tail.cursor(Bounds { start: Bound::Included(&[RANGE_BRANCH]), end }, Direction::Reverse);
    in_force(ranges, layout, 1, position, inclusive)
}

/// A position where the range deletion in force changes.
pub(crate) struct Border<'c> {
    pub position: Vec<u8>,
    /// The serialized prefix, where the position does not give it back.
    pub kept: Option<&'c [u8]>,
    pub before: DeletionTime,
    pub after: DeletionTime,
}

/// The second bound, in reading order, of the current range.
struct Second<'c> {
    position: Vec<u8>,
    kept: Option<&'c [u8]>,
    deletion: DeletionTime,
}

/// The borders of a partition's deleted ranges between two positions, in reading order. It stands on a border, or is at
/// its end.
pub(crate) struct Borders<'c> {
    layout: &'c Layout,
    ranges: Cursor<'c>,
    has_range: bool,
    direction: Direction,
    /// Where it ends.
    to: &'c [u8],
    second: Option<Second<'c>>,
    current: Option<Border<'c>>,
}

/// The keys of the ranges that can overlap the interval between two positions, neither included, in reading order.
pub(crate) fn between(from: &[u8], to: &[u8], direction: Direction) -> BranchRange {
    match direction {
        Direction::Forward => BranchRange::new(&[RANGE_BRANCH], from, to, false),
        // A range that ends there may begin anywhere before.
        Direction::Reverse => BranchRange::new(&[RANGE_BRANCH], from, &[], true),
    }
}

impl<'c> Borders<'c> {
    /// `keys` is the result of `between` for the same positions.
    pub fn new(
        tail: Tail<'c>,
        layout: &'c Layout,
        (from, to): (&'c [u8], &'c [u8]),
        keys: &'c BranchRange,
        direction: Direction,
    ) -> Borders<'c> {
        let mut ranges = tail.cursor(keys.bounds(), direction);
        let has_range = ranges.advance();
        let mut borders = Borders { layout, ranges, has_range, direction, to, second: None, current: None };
        borders.enter(tail, from);
        borders.advance();
        borders
    }

    /// Starts with the range that contains the first position, if any.
    fn enter(&mut self, tail: Tail<'c>, from: &[u8]) {
        match self.direction {
            Direction::Forward => {
                let key = [&[RANGE_BRANCH], from].concat();
                let bounds = Bounds { start: Bound::Included(&[RANGE_BRANCH]), end: Bound::Included(&key) };
                let mut before = tail.cursor(bounds, Direction::Reverse);
                if before.advance() {
                    let range = DeletedRange::read(self.layout, tail.get(before.key()).unwrap_or_default());
                    let position = range.end(&before.key()[1..]);
                    let second = Second { position, kept: range.end_kept, deletion: range.deletion };
                    self.second = Some(second).filter(|end| end.position.as_slice() > from);
                }
            }
            Direction::Reverse => {
                if self.has_range && self.range().end(self.start()).as_slice() >= from {
                    self.take_range();
                }
            }
        }
    }

    fn range(&self) -> DeletedRange<'c> {
        DeletedRange::read(self.layout, self.ranges.content())
    }

    /// The start of the range that the cursor stands on.
    fn start(&self) -> &[u8] {
        self.ranges.key().get(1..).unwrap_or_default()
    }

    /// Moves to the next range and stores the second bound of this one, which is still to be yielded.
    fn take_range(&mut self) {
        debug_assert!(self.has_range, "the ranges have ended");
        let DeletedRange { deletion, start_kept, end_kept, .. } = self.range();
        self.second = Some(match self.direction {
            Direction::Forward => Second { position: self.range().end(self.start()), kept: end_kept, deletion },
            Direction::Reverse => Second { position: self.start().to_vec(), kept: start_kept, deletion },
        });
        self.has_range = self.ranges.advance();
    }

    pub fn current(&self) -> Option<&Border<'c>> {
        self.current.as_ref()
    }

    pub fn position(&self) -> Option<&[u8]> {
        self.current.as_ref().map(|border| border.position.as_slice())
    }

    /// Moves to the next border: the first bound of a range, the second bound of the previous range, or both.
    pub fn advance(&mut self) {
        let range = self.has_range.then(|| self.range());
        let first = range.map(|range| match self.direction {
            Direction::Forward => (self.start().to_vec(), range.start_kept),
            Direction::Reverse => (range.end(self.start()), range.end_kept),
        });
        let second = self.second.take();
        let is_after_second = |first: &(Vec<u8>, _)| match (&second, self.direction) {
            (Some(second), Direction::Forward) => first.0 > second.position,
            (Some(second), Direction::Reverse) => first.0 < second.position,
            (None, _) => false,
        };
        let first = first.filter(|first| !is_after_second(first));
        let [earlier, later] = [
            second.as_ref().map_or(DeletionTime::LIVE, |second| second.deletion),
            range.filter(|_| first.is_some()).map_or(DeletionTime::LIVE, |range| range.deletion),
        ];
        if first.is_some() {
            self.take_range();
        }
        let place = first.or(second.map(|second| (second.position, second.kept)));
        let (before, after) = match self.direction {
            Direction::Forward => (earlier, later),
            Direction::Reverse => (later, earlier),
        };
        let is_before_end = |position: &[u8]| match self.direction {
            Direction::Forward => position < self.to,
            Direction::Reverse => position > self.to,
        };
        let place = place.filter(|(position, _)| is_before_end(position));
        self.current = place.map(|(position, kept)| Border { position, kept, before, after });
        debug_assert!(
            self.current.as_ref().is_none_or(|border| !border.before.is_live() || !border.after.is_live()),
            "a range begins or ends at a border",
        );
    }
}
