//! SizeTieredCompactionStrategy's groups of tables of similar size, which TimeWindowCompactionStrategy uses for its
//! current window.

use crate::metadata::TableMetadata;
use crate::options::SizeTieredOptions;

/// Tables of similar size.
struct Bucket<'t> {
    mean_bytes: u64,
    tables: Vec<&'t TableMetadata>,
}

impl Bucket<'_> {
    fn takes(&self, options: &SizeTieredOptions, size_bytes: u64) -> bool {
        let (size, mean) = (size_bytes as f64, self.mean_bytes as f64);
        let is_similar = size > mean * options.bucket_low && size < mean * options.bucket_high;
        is_similar || size_bytes.max(self.mean_bytes) < options.min_sstable_size
    }
}

/// The smallest tables, as many as one merge takes, of a bucket that needs a merge; of several such buckets, that with
/// the largest tables. Cassandra prefers the bucket that is read most, which is not measured here, and uses this rule
/// for buckets that are read equally. `ascending` is by size.
pub(crate) fn pick<'t>(options: &SizeTieredOptions, ascending: &[&'t TableMetadata]) -> Vec<&'t TableMetadata> {
    let mut buckets = buckets(options, ascending);
    buckets.iter_mut().for_each(|bucket| bucket.truncate(options.max_threshold));
    let due = buckets.into_iter().filter(|bucket| bucket.len() >= options.min_threshold);
    let mean = |bucket: &Vec<&TableMetadata>| {
        bucket.iter().map(|table| u128::from(table.size_bytes)).sum::<u128>() / bucket.len().max(1) as u128
    };
    due.max_by_key(mean).unwrap_or_default()
}

fn buckets<'t>(options: &SizeTieredOptions, ascending: &[&'t TableMetadata]) -> Vec<Vec<&'t TableMetadata>> {
    let mut buckets: Vec<Bucket<'t>> = Vec::new();
    for table in ascending {
        let size_bytes = table.size_bytes;
        match buckets.iter_mut().find(|bucket| bucket.takes(options, size_bytes)) {
            Some(bucket) => {
                let count = bucket.tables.len() as u64;
                bucket.mean_bytes = (bucket.mean_bytes.saturating_mul(count)).saturating_add(size_bytes) / (count + 1);
                bucket.tables.push(table);
            }
            None => buckets.push(Bucket { mean_bytes: size_bytes, tables: vec![table] }),
        }
    }
    buckets.into_iter().map(|bucket| bucket.tables).collect()
}

#[cfg(test)]
mod tests {
    use sstable::SSTableId;
    use types::Token;

    use super::*;

    fn table(id: u32, size_bytes: u64) -> TableMetadata {
        TableMetadata {
            id: SSTableId::from_sequence(id),
            first_token: Token(0),
            last_token: Token(1),
            size_bytes,
            token_space_coverage: 1.0,
            min_timestamp: 0,
            max_timestamp: 0,
            max_local_deletion_time: u32::MAX,
        }
    }

    fn options(set: &[(&str, &str)]) -> SizeTieredOptions {
        SizeTieredOptions::from_options(&set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()).unwrap()
    }

    /// The sizes of the tables picked from tables of these sizes.
    fn picked(set: &[(&str, &str)], sizes: &[u64]) -> Vec<u64> {
        let tables: Vec<_> = sizes.iter().enumerate().map(|(id, size)| table(id as u32, *size)).collect();
        pick(&options(set), &tables.iter().collect::<Vec<_>>()).into_iter().map(|table| table.size_bytes).collect()
    }

    const MIB: u64 = 1 << 20;
    /// No table is small.
    const NONE_SMALL: (&str, &str) = ("min_sstable_size", "0");

    #[test]
    fn tables_are_alike_within_the_bounds_of_their_mean() {
        // 149 is less than 1.5 times 100, but 187 is too far from the mean of both, 124.
        assert_eq!(picked(&[NONE_SMALL, ("min_threshold", "2")], &[100, 149, 187]), [100, 149]);
        assert_eq!(
            picked(&[NONE_SMALL, ("min_threshold", "3")], &[100, 149, 186]),
            [] as [u64; 0],
            "186 is 1.5 times 124"
        );
        assert_eq!(picked(&[NONE_SMALL, ("min_threshold", "3")], &[100, 149, 185]), [100, 149, 185]);
        let wide = [NONE_SMALL, ("min_threshold", "3"), ("bucket_high", "10.5")];
        assert_eq!(picked(&wide, &[100, 900, 5000]), [100, 900, 5000]);
        let narrow = [NONE_SMALL, ("min_threshold", "2"), ("bucket_high", "1.2")];
        assert_eq!(picked(&narrow, &[100, 121]), [] as [u64; 0]);
        // Only what is larger than twice the mean is alike.
        let above = [NONE_SMALL, ("min_threshold", "2"), ("bucket_low", "2"), ("bucket_high", "4")];
        assert_eq!(picked(&above, &[100, 150]), [] as [u64; 0]);
        assert_eq!(picked(&above, &[100, 150, 300]), [100, 300]);
    }

    #[test]
    fn small_tables_are_alike() {
        let sizes = [1, MIB, 20 * MIB, 49 * MIB];
        assert_eq!(picked(&[], &sizes), sizes);
        assert_eq!(picked(&[], &[1, MIB, 20 * MIB, 50 * MIB]), [] as [u64; 0], "50 MiB are not small");
        assert_eq!(picked(&[("min_sstable_size", "1048576")], &sizes), [] as [u64; 0]);
    }

    #[test]
    fn a_merge_takes_no_fewer_than_the_least_and_no_more_than_the_most() {
        assert_eq!(picked(&[], &[7; 3]), [] as [u64; 0]);
        assert_eq!(picked(&[], &[7; 4]), [7; 4]);
        assert_eq!(picked(&[], &[7; 40]), [7; 32]);
        assert_eq!(picked(&[("max_threshold", "6")], &[1, 2, 3, 4, 5, 6, 7]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(picked(&[("min_threshold", "8"), ("max_threshold", "8")], &[7; 7]), [] as [u64; 0]);
    }

    #[test]
    fn of_several_buckets_that_of_the_largest_tables_comes_first() {
        let sizes: Vec<u64> = [100; 5].into_iter().chain([1000; 4]).chain([9000; 3]).collect();
        assert_eq!(picked(&[NONE_SMALL], &sizes), [1000; 4]);
    }
}
