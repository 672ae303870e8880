//! The paths of list cells. They are timeuuids, so a list has the order in which it was written.

use std::sync::atomic::{AtomicI64, Ordering};

use types::timeuuid;

/// 2010-01-01 in 100 ns intervals since 1970. As in Cassandra, the time of a prepended element is as far before this
/// date as the current time is after it.
const REFERENCE_TICKS: i64 = 1_262_304_000_000 * 10_000;

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
    fn paths_decrease_between_calls_and_increase_within_one() {
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
