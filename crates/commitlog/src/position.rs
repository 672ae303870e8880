//! Positions in the log.

use std::fmt;

/// A position in the log: a segment and a byte offset in it, in the order of the log.
///
/// The position of a record's *end* identifies the record. End positions are distinct and increase in the order of
/// reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The segment's id; later segments have greater ones.
    pub segment: i64,
    /// Bytes from the segment's start.
    pub offset: i32,
}

impl LogPosition {
    /// Before every record.
    pub const NONE: LogPosition = LogPosition { segment: -1, offset: 0 };
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

/// The records whose ends lie after `start`, up to and including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositionInterval {
    /// Exclusive: usually the end of the interval flushed before.
    pub start: LogPosition,
    /// Inclusive.
    pub end: LogPosition,
}

impl PositionInterval {
    /// Whether a record that ends at `position` belongs to it.
    pub fn contains(&self, position: LogPosition) -> bool {
        self.start < position && position <= self.end
    }
}

/// A set of positions, kept as ordered disjoint intervals. Adjacent intervals may be merged into one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    intervals: Vec<PositionInterval>,
}

impl IntervalSet {
    /// Adds an interval and joins it with those that it touches. An empty interval changes nothing.
    pub fn add(&mut self, interval: PositionInterval) {
        if interval.start >= interval.end {
            return;
        }
        let first = self.intervals.partition_point(|i| i.end < interval.start);
        let last = self.intervals.partition_point(|i| i.start <= interval.end);
        let mut joined = interval;
        for touched in self.intervals.get(first..last).unwrap_or_default() {
            joined.start = joined.start.min(touched.start);
            joined.end = joined.end.max(touched.end);
        }
        debug_assert!(first <= last && joined.start < joined.end);
        debug_assert!(
            joined.start <= interval.start && interval.end <= joined.end,
            "the union covers the new interval"
        );
        self.intervals.splice(first..last, [joined]);
        debug_assert!(self.intervals.is_sorted_by(|a, b| a.end < b.start), "intervals are disjoint and in order");
    }

    /// Whether a record that ends at `position` is in the set.
    pub fn contains(&self, position: LogPosition) -> bool {
        let at = self.intervals.partition_point(|i| i.end < position);
        self.intervals.get(at).is_some_and(|i| i.contains(position))
    }

    /// Whether a single interval of the set contains all records that end from `first` to `last`, both included.
    pub fn covers(&self, first: LogPosition, last: LogPosition) -> bool {
        let at = self.intervals.partition_point(|i| i.end < last);
        self.intervals.get(at).is_some_and(|i| i.contains(first) && i.contains(last))
    }

    /// The intervals, in order.
    pub fn intervals(&self) -> &[PositionInterval] {
        &self.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i32) -> LogPosition {
        LogPosition { segment: 7, offset }
    }

    fn interval(start: i32, end: i32) -> PositionInterval {
        PositionInterval { start: at(start), end: at(end) }
    }

    #[test]
    fn intervals_join_in_any_order() {
        let pieces = [(0, 10), (10, 20), (20, 30), (25, 40), (50, 60)];
        // All orders of five pieces, enumerated with the factorial number system.
        for mut code in 0..120usize {
            let mut left = pieces.to_vec();
            let mut set = IntervalSet::default();
            while !left.is_empty() {
                let (start, end) = left.remove(code % left.len());
                code /= left.len() + 1;
                set.add(interval(start, end));
            }
            assert_eq!(set.intervals(), [interval(0, 40), interval(50, 60)]);
            for position in 0..70 {
                let expected = pieces.iter().any(|(s, e)| *s < position && position <= *e);
                assert_eq!(set.contains(at(position)), expected, "{position}");
            }
            assert!(set.covers(at(1), at(40)) && !set.covers(at(0), at(40)) && !set.covers(at(40), at(51)));
        }
    }

    #[test]
    fn an_empty_interval_is_nothing() {
        let mut set = IntervalSet::default();
        set.add(interval(5, 5));
        assert_eq!(set, IntervalSet::default());
    }

    #[test]
    fn segments_come_before_offsets() {
        assert!(LogPosition { segment: 1, offset: 9 } < LogPosition { segment: 2, offset: 0 });
        assert!(LogPosition::NONE < LogPosition { segment: 0, offset: 0 });
    }
}
