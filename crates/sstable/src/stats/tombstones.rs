//! TombstoneHistogram: the number of local deletion times in each of at most a hundred bins.

use std::collections::BTreeMap;

use crate::error::Decoded;
use crate::input::Input;

/// Bins in a finished histogram.
const BINS_MAX: usize = 100;
/// Distinct points collected before they are merged into bins.
const SPOOL_MAX: usize = 100_000;
/// Deletion times are rounded up to whole minutes.
const ROUND_SECONDS: u32 = 60;
/// The latest valid deletion time (2106-02-07T06:28:13Z).
const DELETION_TIME_MAX: u32 = u32::MAX - 2;

/// Local deletion times (seconds) and how many of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TombstoneHistogram {
    /// Ascending points in seconds since the epoch, each with its count.
    pub bins: Vec<(u32, u32)>,
}

impl TombstoneHistogram {
    /// Estimated number of tombstones with a deletion time at or before `time` (seconds).
    pub fn sum(&self, time: u32) -> f64 {
        self.bins.iter().take_while(|bin| bin.0 <= time).map(|bin| f64::from(bin.1)).sum()
    }

    /// Reads the form of versions before `oa`: points are doubles, counts are longs.
    pub(super) fn read_nb(input: &mut Input<'_>) -> Decoded<Self> {
        input.u32("tombstone histogram capacity")?;
        let count = input.u32("tombstone histogram size")?;
        let count = input.checked_count(u64::from(count), 16, "tombstone histogram bins")?;
        let mut bins = Vec::with_capacity(count);
        for _ in 0..count {
            let point = input.f64("tombstone histogram point")?;
            let count = input.i64("tombstone histogram count")?;
            bins.push((point.clamp(0.0, f64::from(u32::MAX)) as u32, count.clamp(0, i64::from(u32::MAX)) as u32));
        }
        Ok(TombstoneHistogram { bins })
    }

    pub(super) fn read(input: &mut Input<'_>) -> Decoded<Self> {
        input.u32("tombstone histogram capacity")?;
        let count = input.u32("tombstone histogram size")?;
        let count = input.checked_count(u64::from(count), 12, "tombstone histogram bins")?;
        let mut bins = Vec::with_capacity(count);
        for _ in 0..count {
            let point = input.i64("tombstone histogram point")?;
            bins.push((point.clamp(0, i64::from(u32::MAX)) as u32, input.u32("tombstone histogram count")?));
        }
        Ok(TombstoneHistogram { bins })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let size = (self.bins.len() as i32).to_be_bytes();
        out.extend_from_slice(&size);
        out.extend_from_slice(&size);
        for (point, count) in &self.bins {
            out.extend_from_slice(&i64::from(*point).to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }
}

/// Collects deletion times.
#[derive(Debug, Default)]
pub(crate) struct TombstoneHistogramBuilder {
    points: BTreeMap<u32, u32>,
    /// The point counted last; equal points usually come in runs.
    last: (u32, u32),
}

fn round_up(time: u32) -> u32 {
    let rounded = u64::from(time).div_ceil(u64::from(ROUND_SECONDS)) * u64::from(ROUND_SECONDS);
    rounded.min(u64::from(DELETION_TIME_MAX)) as u32
}

impl TombstoneHistogramBuilder {
    /// Counts one deletion time (seconds).
    pub fn add(&mut self, time: u32) {
        let point = round_up(time);
        if point == self.last.0 {
            self.last.1 = self.last.1.saturating_add(1);
            return;
        }
        self.spill();
        self.last = (point, 1);
    }

    fn spill(&mut self) {
        let (point, count) = std::mem::take(&mut self.last);
        if count == 0 {
            return;
        }
        let total = self.points.entry(point).or_default();
        *total = total.saturating_add(count);
        if self.points.len() > SPOOL_MAX {
            self.merge();
        }
    }

    /// Joins the closest points until few enough are left.
    fn merge(&mut self) {
        let mut bins: Vec<(u32, u32)> = std::mem::take(&mut self.points).into_iter().collect();
        while bins.len() > BINS_MAX {
            // One pass joins neighbours no further apart than the closest pair allows, and at least one pair.
            let excess = bins.len() - BINS_MAX;
            let mut gaps: Vec<u32> = bins.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
            gaps.sort_unstable();
            let limit = gaps[(excess - 1) / 2];
            let mut joined: Vec<(u32, u32)> = Vec::with_capacity(bins.len());
            let mut left = excess;
            let mut fresh = false;
            for bin in bins {
                match joined.last_mut() {
                    Some(last) if left > 0 && !fresh && bin.0 - last.0 <= limit => {
                        *last = join(*last, bin);
                        left -= 1;
                        fresh = true;
                    }
                    _ => {
                        joined.push(bin);
                        fresh = false;
                    }
                }
            }
            bins = joined;
        }
        self.points = bins.into_iter().collect();
    }

    /// The histogram of everything counted.
    pub fn finish(mut self) -> TombstoneHistogram {
        self.spill();
        self.merge();
        TombstoneHistogram { bins: self.points.into_iter().collect() }
    }
}

/// The weighted mean of two bins, rounded up, but never beyond the later one.
fn join(earlier: (u32, u32), later: (u32, u32)) -> (u32, u32) {
    let weight = u64::from(earlier.1) + u64::from(later.1);
    let sum = u128::from(earlier.0) * u128::from(earlier.1) + u128::from(later.0) * u128::from(later.1);
    let mean = (sum / u128::from(weight.max(1))) as u32;
    (round_up(mean.max(earlier.0 + 1)).min(later.0), weight.min(u64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_bins_stay_few() {
        let mut builder = TombstoneHistogramBuilder::default();
        for time in [60, 61, 119, 120, 1] {
            builder.add(time);
        }
        assert_eq!(builder.finish().bins, vec![(60, 2), (120, 3)]);

        let mut builder = TombstoneHistogramBuilder::default();
        for time in 0..250_000_u32 {
            builder.add(time * 97);
        }
        let histogram = builder.finish();
        assert!(histogram.bins.len() <= BINS_MAX && histogram.bins.len() > BINS_MAX / 2);
        assert_eq!(histogram.bins.iter().map(|bin| bin.1).sum::<u32>(), 250_000);
        assert!(histogram.bins.is_sorted());
        assert_eq!(histogram.sum(u32::MAX), 250_000.0);
    }
}
