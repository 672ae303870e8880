//! How many SSTables the output of a merge is split into, and where.

use types::Token;

use crate::options::UnifiedOptions;

/// The most that a shard is split, beyond the base count.
const SPLIT_MAX: f64 = (1 << 20) as f64;

/// Number of shards for data of a density (bytes per whole token space): the base count, fewer where SSTables would
/// become smaller than the least size, more where they would become larger than the target.
pub fn shard_count(options: &UnifiedOptions, density: f64) -> u32 {
    let base = options.base_shard_count.max(1);
    if options.min_sstable_size > 0 {
        let count = density / options.min_sstable_size as f64;
        if count < f64::from(base) || count.is_nan() {
            // A power of two that divides the base count, so that boundaries stay those of higher levels.
            let fitting = 1 << (count.max(1.0) as u32).ilog2();
            let divisor = base & base.wrapping_neg();
            return divisor.min(fitting);
        }
    }
    let times_target = density / (options.target_sstable_size as f64 * f64::from(base));
    if options.sstable_growth >= 1.0 || times_target <= 1.0 || times_target.is_nan() {
        return base;
    }
    let power = (times_target.log2() * (1.0 - options.sstable_growth)).round();
    let split = power.exp2().min(SPLIT_MAX) as u32;
    base.saturating_mul(split)
}

/// The last tokens of all shards but the last one, when the whole token space is divided into `count` equal shards.
pub fn shard_boundaries(count: u32) -> Vec<Token> {
    let step = (1_u128 << 64) / u128::from(count.max(1));
    (1..u128::from(count)).map(|index| Token((i128::from(i64::MIN) + (step * index) as i128) as i64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_density() {
        let options = UnifiedOptions::default();
        let gib = (1_u64 << 30) as f64;
        let counts = [0.001, 0.15, 0.25, 0.5, 1.0, 4.0, 8.0, 16.0, 64.0].map(|size| shard_count(&options, size * gib));
        assert_eq!(counts, [1, 1, 2, 4, 4, 4, 8, 8, 32]);
        let fixed = UnifiedOptions { sstable_growth: 0.0, ..options };
        assert_eq!(shard_count(&fixed, 64.0 * gib), 64);
    }

    #[test]
    fn boundaries_divide_the_ring_evenly() {
        assert!(shard_boundaries(1).is_empty());
        assert_eq!(shard_boundaries(2), [Token(0)]);
        assert_eq!(shard_boundaries(4), [Token(i64::MIN / 2), Token(0), Token(1 << 62)]);
    }
}
