//! A table's compaction strategy.

use std::collections::{BTreeMap, HashSet};

use sstable::SSTableId;
use types::Token;

use crate::metadata::{COVERAGE_MIN, Pick, TableMetadata};
use crate::options::{OptionError, TimeWindowOptions, UnifiedOptions};
use crate::{MemoryOnlyOptions, memory_only, time_window, unified};

/// A compaction strategy with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// UnifiedCompactionStrategy, which also implements SizeTiered and Leveled definitions.
    Unified(UnifiedOptions),
    /// TimeWindowCompactionStrategy.
    TimeWindow(TimeWindowOptions),
    /// MemoryOnlyStrategy.
    MemoryOnly(MemoryOnlyOptions),
}

impl Strategy {
    /// The strategy of a table's `compaction` option. `SizeTieredCompactionStrategy` with `min_threshold` n becomes
    /// unified with scaling parameter `Tn`, `LeveledCompactionStrategy` with `fanout_size` n becomes `Ln`.
    pub fn from_options(options: &BTreeMap<String, String>) -> Result<Strategy, OptionError> {
        let class = options.get("class").map(String::as_str).unwrap_or_default();
        let simple = class.strip_prefix("org.apache.cassandra.db.compaction.").unwrap_or(class);
        match simple {
            "" | "UnifiedCompactionStrategy" => Ok(Strategy::Unified(UnifiedOptions::from_options(options)?)),
            "TimeWindowCompactionStrategy" => Ok(Strategy::TimeWindow(TimeWindowOptions::from_options(options)?)),
            "SizeTieredCompactionStrategy" => Ok(Strategy::Unified(UnifiedOptions::like_size_tiered(options)?)),
            "LeveledCompactionStrategy" => Ok(Strategy::Unified(UnifiedOptions::like_leveled(options)?)),
            "MemoryOnlyStrategy" => Ok(Strategy::MemoryOnly(MemoryOnlyOptions::from_options(options)?)),
            other => Err(OptionError(format!("Unable to find compaction strategy class '{other}'"))),
        }
    }

    /// The most urgent merge; `None` if there is nothing to do. See [`Strategy::picks`].
    pub fn next(
        &self,
        tables: &[TableMetadata],
        compacting: &HashSet<SSTableId>,
        flush_size_bytes: u64,
    ) -> Option<Pick> {
        self.picks(tables, compacting, flush_size_bytes).into_iter().next()
    }

    /// All merges that could begin besides those whose inputs are `compacting`, the most urgent first; no table is in
    /// two. `flush_size_bytes` is the typical size of a flush, 0 if there was none.
    pub fn picks(&self, tables: &[TableMetadata], compacting: &HashSet<SSTableId>, flush_size_bytes: u64) -> Vec<Pick> {
        let is_free = |table: &TableMetadata| !compacting.contains(&table.id);
        match self {
            Strategy::Unified(options) => {
                let free: Vec<_> = tables.iter().filter(|table| is_free(table)).cloned().collect();
                unified::picks(options, &free, options.flush_size_override.unwrap_or(flush_size_bytes))
            }
            Strategy::TimeWindow(options) => time_window::picks(options, tables, &is_free),
            // Its limit on disk space assumes one merge at a time.
            Strategy::MemoryOnly(_) if !tables.iter().all(is_free) => Vec::new(),
            Strategy::MemoryOnly(_) => memory_only::picks(tables),
        }
    }

    /// The merges that compact a whole table: for unified compaction one for each set of tables that do not overlap the
    /// others, which can stay separate; otherwise one.
    pub fn picks_of_all(&self, tables: &[TableMetadata]) -> Vec<Vec<SSTableId>> {
        match self {
            Strategy::Unified(_) => unified::apart(tables),
            Strategy::TimeWindow(_) | Strategy::MemoryOnly(_) if tables.is_empty() => Vec::new(),
            Strategy::TimeWindow(_) | Strategy::MemoryOnly(_) => {
                vec![tables.iter().map(|table| table.id.clone()).collect()]
            }
        }
    }

    /// Whether fully expired tables may be dropped without checking what they overlap.
    pub fn unsafe_aggressive_expiration(&self) -> bool {
        match self {
            Strategy::Unified(options) => options.unsafe_aggressive_sstable_expiration,
            Strategy::TimeWindow(options) => options.unsafe_aggressive_sstable_expiration,
            Strategy::MemoryOnly(_) => false,
        }
    }

    /// The tokens at which the output of a merge of `tables` is split, ascending; a table ends with its boundary.
    pub fn output_boundaries(&self, tables: &[TableMetadata]) -> Vec<Token> {
        match self {
            Strategy::Unified(options) => {
                let size: f64 = tables.iter().map(|table| table.size_bytes as f64).sum();
                let first = tables.iter().map(|table| table.first_token.0).min().unwrap_or(0);
                let last = tables.iter().map(|table| table.last_token.0).max().unwrap_or(0);
                let coverage = (i128::from(last) - i128::from(first)) as f64 / 2_f64.powi(64);
                let density = size / if coverage < COVERAGE_MIN { 1.0 } else { coverage };
                crate::shard_boundaries(crate::shard_count(options, density))
            }
            Strategy::TimeWindow(_) | Strategy::MemoryOnly(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u32) -> TableMetadata {
        TableMetadata {
            id: SSTableId::from_sequence(id),
            first_token: Token(i64::MIN),
            last_token: Token(i64::MAX),
            size_bytes: 1 << 20,
            token_space_coverage: 1.0,
            min_timestamp: 0,
            max_timestamp: i64::from(id),
            max_local_deletion_time: u32::MAX,
        }
    }

    #[test]
    fn tables_under_compaction_are_not_picked_again() {
        let strategy = |class: &str| {
            let options = [("class", class), ("size_limit_in_mb", "64")];
            let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let options = if class == "MemoryOnlyStrategy" { options.into() } else { [options[0].clone()].into() };
            Strategy::from_options(&options).unwrap()
        };
        // With ten tables: how many each merge takes that begins besides the previous ones.
        for (class, expected) in [
            ("UnifiedCompactionStrategy", vec![4, 4]),
            ("TimeWindowCompactionStrategy", vec![10]),
            ("MemoryOnlyStrategy", vec![10]),
        ] {
            let mut tables: Vec<_> = (1..=10).map(table).collect();
            let (strategy, mut compacting, mut taken) = (strategy(class), HashSet::new(), Vec::new());
            while let Some(pick) = strategy.next(&tables, &compacting, 1 << 20) {
                taken.push(pick.tables.len());
                assert!(pick.tables.into_iter().all(|id| compacting.insert(id)), "{class}: a table in two merges");
            }
            assert_eq!(taken, expected, "{class}");
            tables.extend((11..=14).map(table));
            let later = strategy.next(&tables, &compacting, 1 << 20).map(|pick| pick.tables.len());
            let expected = match class {
                "UnifiedCompactionStrategy" => Some(4),
                "TimeWindowCompactionStrategy" => Some(4),
                // One merge at a time.
                _ => None,
            };
            assert_eq!(later, expected, "{class}");
        }
    }

    /// The strategy of these options.
    fn strategy(options: &[(&str, &str)]) -> Strategy {
        Strategy::from_options(&options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
            .unwrap()
    }

    #[test]
    fn the_size_of_levels_is_that_of_flushes_or_of_the_definition() {
        let mut tables: Vec<_> = (1..=3).map(table).collect();
        tables.push(TableMetadata { size_bytes: 30 << 20, ..table(4) });
        let picked = |strategy: &Strategy, flush_size_bytes| {
            strategy.next(&tables, &HashSet::new(), flush_size_bytes).map(|pick| pick.tables.len())
        };
        // Three of 1 MiB and one of 30 MiB share a level only if flushes are that large.
        assert_eq!([0, 1 << 20, 16 << 20].map(|size| picked(&strategy(&[]), size)), [None, None, Some(4)]);
        let said = strategy(&[("flush_size_override", "16MiB")]);
        assert_eq!(picked(&said, 1 << 20), Some(4));
        let said = strategy(&[("flush_size_override", "1MiB")]);
        assert_eq!(picked(&said, 16 << 20), None);
    }

    #[test]
    fn all_of_a_table_is_merged_in_sets_that_do_not_overlap() {
        let of = |id, first, last| TableMetadata { first_token: Token(first), last_token: Token(last), ..table(id) };
        // 1 and 4 are connected by 3; 5 begins where 2 ends.
        let tables =
            [of(1, 0, 9), of(2, 30, 40), of(3, 5, 20), of(4, 15, 29), of(5, 40, 41), of(6, 42, 50), of(7, -7, -1)];
        let sets = |strategy: &Strategy| -> Vec<Vec<String>> {
            let sets = strategy.picks_of_all(&tables).into_iter();
            sets.map(|ids| ids.iter().map(|id| id.to_string()).collect()).collect()
        };
        assert_eq!(sets(&strategy(&[])), [vec!["7"], vec!["1", "3", "4"], vec!["2", "5"], vec!["6"]]);
        for class in ["TimeWindowCompactionStrategy", "MemoryOnlyStrategy"] {
            let other = strategy(&[("class", class), ("size_limit_in_mb", "64")]);
            assert_eq!(sets(&other).concat().len(), 7, "{class}");
            assert_eq!(sets(&other).len(), 1, "{class}");
            assert!(other.picks_of_all(&[]).is_empty());
        }
        assert!(strategy(&[]).picks_of_all(&[]).is_empty());
    }

    #[test]
    fn output_is_split_into_as_many_shards_as_its_density_calls_for() {
        const MIB: u64 = 1 << 20;
        let whole = (i64::MIN, i64::MAX);
        let of = |size_bytes, (first, last)| TableMetadata {
            first_token: Token(first),
            last_token: Token(last),
            size_bytes,
            ..table(1)
        };
        let count = |strategy: &Strategy, tables: &[TableMetadata]| {
            let boundaries = strategy.output_boundaries(tables);
            assert_eq!(boundaries, crate::shard_boundaries(boundaries.len() as u32 + 1));
            boundaries.len() + 1
        };
        let unified = strategy(&[]);
        for (sizes, expected) in [
            (vec![10, 20], 1),
            (vec![99, 100], 1),
            (vec![100, 101], 2),
            // A power of two that divides the base count.
            (vec![300, 90], 2),
            (vec![300, 101], 4),
            (vec![2048, 2048], 4),
            (vec![8192, 8192], 8),
        ] {
            let tables: Vec<_> = sizes.iter().map(|size| of(size * MIB, whole)).collect();
            assert_eq!(count(&unified, &tables), expected, "{sizes:?}");
        }
        // The same in a quarter of the ring, spanned by two tables, is four times as dense.
        let quarter = [of(51 * MIB, (i64::MIN, i64::MIN / 4 * 3)), of(51 * MIB, (i64::MIN / 4 * 3, i64::MIN / 2))];
        assert_eq!(count(&unified, &quarter), 4);
        assert_eq!(count(&unified, &[of(MIB, (7, 7))]), 1, "one partition says nothing of density");
        assert_eq!(count(&unified, &[]), 1);

        let however_small = strategy(&[("min_sstable_size", "0B"), ("base_shard_count", "6")]);
        assert_eq!(count(&however_small, &[of(1, whole)]), 6);
        let fixed = strategy(&[("sstable_growth", "0"), ("target_sstable_size", "100MiB")]);
        assert_eq!(count(&fixed, &[of(6400 * MIB, whole)]), 64);
        for class in ["TimeWindowCompactionStrategy", "MemoryOnlyStrategy"] {
            let other = strategy(&[("class", class), ("size_limit_in_mb", "64")]);
            assert_eq!(count(&other, &[of(8192 * MIB, whole)]), 1, "{class}");
        }
    }
}
