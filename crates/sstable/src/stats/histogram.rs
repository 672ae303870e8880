//! EstimatedHistogram: counts of values in buckets that grow by a fifth.

use crate::error::Decoded;
use crate::input::Input;

/// Buckets of the partition size histogram.
pub(crate) const PARTITION_SIZE_BUCKETS: usize = 155;
/// Buckets of the cells-per-partition histogram.
pub(crate) const CELL_COUNT_BUCKETS: usize = 118;

/// Counts of values. Bucket `i` counts those above `offsets[i-1]` up to `offsets[i]`; the last bucket counts those
/// above all offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimatedHistogram {
    /// Upper ends of the buckets, inclusive.
    pub offsets: Vec<i64>,
    /// One count per offset, and one for values above the last.
    pub counts: Vec<i64>,
}

impl EstimatedHistogram {
    /// An empty histogram of Cassandra's standard bucket sizes.
    pub fn new(buckets: usize) -> Self {
        let mut offsets = Vec::with_capacity(buckets);
        let mut offset = 1_i64;
        for _ in 0..buckets {
            offsets.push(offset);
            offset = ((offset as f64 * 1.2).round() as i64).max(offset + 1);
        }
        EstimatedHistogram { counts: vec![0; offsets.len() + 1], offsets }
    }

    /// Counts one value. `near` is the bucket of the previous one, zero at first; consecutive values are often similar.
    pub fn add(&mut self, value: i64, near: &mut usize) {
        let is_above = |bucket: usize| self.offsets.get(bucket).is_some_and(|end| *end < value);
        if is_above(*near) || *near > 0 && !is_above(*near - 1) {
            *near = self.offsets.partition_point(|offset| *offset < value);
        }
        self.counts[*near] += 1;
    }

    /// Values counted.
    pub fn count(&self) -> i64 {
        self.counts.iter().fold(0, |sum: i64, count| sum.saturating_add(*count))
    }

    /// The mean of the values, with each taken as its bucket's upper end.
    pub fn mean(&self) -> f64 {
        let count = self.count();
        if count == 0 {
            return 0.0;
        }
        let sum: f64 =
            self.counts.iter().zip(&self.offsets).map(|(count, offset)| *count as f64 * *offset as f64).sum();
        sum / count as f64
    }

    /// The smallest bucket end that at least this share (0 to 1) of the values lies at or below.
    pub fn percentile(&self, share: f64) -> i64 {
        let wanted = (self.count() as f64 * share).floor() as i64;
        let mut seen = 0_i64;
        for (count, offset) in self.counts.iter().zip(&self.offsets) {
            seen = seen.saturating_add(*count);
            if seen > 0 && seen >= wanted {
                return *offset;
            }
        }
        self.offsets.last().copied().unwrap_or(0)
    }

    pub(super) fn read(input: &mut Input<'_>) -> Decoded<Self> {
        let count = input.u32("histogram size")?;
        let count = input.checked_count(u64::from(count), 16, "histogram buckets")?;
        let mut histogram = EstimatedHistogram { offsets: Vec::new(), counts: Vec::with_capacity(count) };
        for index in 0..count {
            let offset = input.i64("histogram offset")?;
            if index > 0 || count == 1 {
                histogram.offsets.push(offset);
            }
            histogram.counts.push(input.i64("histogram count")?);
        }
        Ok(histogram)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.counts.len() as i32).to_be_bytes());
        for (index, count) in self.counts.iter().enumerate() {
            let offset = self.offsets.get(index.saturating_sub(1)).copied().unwrap_or(0);
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cassandras() {
        let histogram = EstimatedHistogram::new(PARTITION_SIZE_BUCKETS);
        assert_eq!(histogram.offsets[..16], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35]);
        assert_eq!(histogram.counts.len(), 156);
    }

    #[test]
    fn values_land_at_or_below_their_bucket_end() {
        let mut histogram = EstimatedHistogram::new(20);
        let mut near = 0;
        for value in [0, 1, 2, 9, 10, 11, 1_000_000] {
            histogram.add(value, &mut near);
        }
        assert_eq!(histogram.counts[0], 2);
        assert_eq!(histogram.counts[8], 2);
        assert_eq!(histogram.counts[9], 1);
        assert_eq!(histogram.counts[20], 1);
        let mut bytes = Vec::new();
        histogram.write(&mut bytes);
        assert_eq!(EstimatedHistogram::read(&mut Input::new("t", 0, &bytes)).unwrap(), histogram);
    }

    #[test]
    fn a_value_is_counted_in_its_bucket_wherever_the_one_before_was() {
        let offsets = EstimatedHistogram::new(20).offsets;
        let values = offsets.iter().flat_map(|end| [end - 1, *end, end + 1]).chain([-3, i64::MIN, i64::MAX]);
        for value in values {
            let bucket = offsets.iter().position(|end| value <= *end).unwrap_or(offsets.len());
            for mut near in 0..=offsets.len() {
                let mut histogram = EstimatedHistogram::new(20);
                histogram.add(value, &mut near);
                assert_eq!((near, histogram.counts[bucket], histogram.count()), (bucket, 1, 1), "{value}");
            }
        }
    }
}
