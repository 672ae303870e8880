//! The paths of list cells. They are timeuuids, so a list has the order in which it was written.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use types::timeuuid;

/// 2010-01-01 in 100 ns intervals since 1970. As in Cassandra, the time of a prepended element is as far before this
/// date as the current time is after it.
const REFERENCE_TICKS: i64 = 1_262_304_000_000 * 10_000;

/// The paths of the elements that a conditional modification appends to lists: the time of all is its timestamp, so
/// that they follow what was there before.
#[derive(Debug)]
pub(crate) struct AppendedPaths {
    timestamp_micros: i64,
    count: AtomicU64,
}

impl AppendedPaths {
    /// The paths of a modification with this timestamp.
    pub fn new(timestamp_micros: i64) -> AppendedPaths {
        AppendedPaths { timestamp_micros, count: AtomicU64::new(0) }
    }

    /// The path after all that this returned before.
    pub fn next(&self) -> [u8; 16] {
        // Paths of the same time are ordered by their last bytes as signed numbers.
        const SIGNS: u64 = 0x8080_8080_8080_8080;
        let low = self.count.fetch_add(1, Ordering::Relaxed) ^ SIGNS;
        timeuuid::from_unix_ticks(self.timestamp_micros.saturating_mul(10), low)
    }
}

/// Creates the paths of prepended elements. Their times only decrease.
#[derive(Debug)]
pub(crate) struct PrependedPaths {
    low: u64,
    /// The earliest time so far, in 100 ns intervals since 1970.
    first_ticks: AtomicI64,
}

impl PrependedPaths {
    /// Creates paths that end like the timeuuids of this clock sequence and node.
    pub fn new(clock_sequence: u16, node: u64) -> PrependedPaths {
        PrependedPaths { low: timeuuid::low_half(clock_sequence, node), first_ticks: AtomicI64::new(i64::MAX) }
    }

    /// Paths for `count` elements in the order of the list, before all earlier paths.
    pub fn next(&self, now_micros: i64, count: usize) -> impl Iterator<Item = [u8; 16]> + use<> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let mirrored = (2 * REFERENCE_TICKS).saturating_sub(now_micros.saturating_mul(10));
        let before = |first: i64| mirrored.min(first).saturating_sub(count);
        let mut first = self.first_ticks.load(Ordering::Relaxed);
        while let Err(found) =
            self.first_ticks.compare_exchange_weak(first, before(first), Ordering::Relaxed, Ordering::Relaxed)
        {
            first = found;
        }
        let (start, low) = (before(first), self.low);
        (0..count).map(move |place| timeuuid::from_unix_ticks(start.saturating_add(place), low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::CqlType;

    #[test]
    fn appended_paths_ascend_and_follow_those_of_earlier_timestamps() {
        let (earlier, later) = (AppendedPaths::new(1_700_000_000_000_000), AppendedPaths::new(1_700_000_000_000_001));
        let paths: Vec<_> = (0..1000).map(|_| earlier.next()).chain((0..1000).map(|_| later.next())).collect();
        assert!(paths.windows(2).all(|pair| CqlType::Timeuuid.compare(&pair[0], &pair[1]).is_lt()));
        assert!(paths.iter().all(|path| CqlType::Timeuuid.validate(path).is_ok()));
    }

    #[test]
    fn paths_go_back_from_call_to_call_and_forward_within_one() {
        let paths = PrependedPaths::new(1, 2);
        let mut earliest = timeuuid::min_for_millis(1_262_304_000_000);
        for now_micros in [1_700_000_000_000_000, 1_700_000_000_000_000, 1_600_000_000_000_000] {
            let made: Vec<[u8; 16]> = paths.next(now_micros, 3).collect();
            assert!(made.windows(2).all(|pair| CqlType::Timeuuid.compare(&pair[0], &pair[1]).is_lt()));
            assert!(CqlType::Timeuuid.compare(&made[2], &earliest).is_lt());
            earliest = made[0];
        }
    }
}
