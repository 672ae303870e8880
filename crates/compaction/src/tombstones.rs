//! Compacting a single table to remove its tombstones.

use std::collections::HashSet;

use model::TableOptions;
use sstable::{SSTableId, SSTableReader};

use crate::metadata::TableMetadata;
use crate::options::{TombstoneOptions, flag};

/// Deletions made before this time (seconds) may be dropped. With `only_purge_repaired_tombstones` none may, since
/// nothing is ever repaired here.
pub fn gc_before(options: &TableOptions, now_seconds: u32) -> u32 {
    if flag(&options.compaction, "only_purge_repaired_tombstones") {
        return 0;
    }
    now_seconds.saturating_sub(options.gc_grace_seconds.max(0) as u32)
}

/// A table with what is known about its tombstones.
#[derive(Clone, Debug, PartialEq)]
pub struct TombstoneCandidate {
    /// The table.
    pub metadata: TableMetadata,
    /// The estimated share of its cells that could be dropped now if no other table needed them.
    pub droppable_ratio: f64,
    /// Seconds since it was written; `None` if its id does not contain the time.
    pub age_seconds: Option<u64>,
}

impl TombstoneCandidate {
    /// The candidate from an open table's statistics, for deletions made before `gc_before` (seconds).
    pub fn of(reader: &SSTableReader, now_seconds: u32, gc_before: u32) -> Self {
        let stats = &reader.statistics().stats;
        let cells = stats.estimated_cell_per_partition_count.mean() * reader.partition_count() as f64;
        let droppable = stats.estimated_tombstone_drop_time.sum(gc_before);
        let created = reader.descriptor().id.created_seconds();
        TombstoneCandidate {
            metadata: TableMetadata::of(reader),
            droppable_ratio: if cells > 0.0 { droppable / cells } else { 0.0 },
            age_seconds: created.map(|created| u64::from(now_seconds).saturating_sub(created)),
        }
    }
}

/// The table outside of all merges (`compacting` are their inputs) with the largest droppable share, if any is worth
/// compacting alone: it is old enough not to be tried again and again, has more than the threshold to drop, and no
/// other table has data that its tombstones may still shadow.
pub fn worth_compacting_alone(
    options: &TombstoneOptions,
    tables: &[TombstoneCandidate],
    compacting: &HashSet<SSTableId>,
    memtable_min_timestamp: i64,
) -> Option<SSTableId> {
    if !options.enabled {
        return None;
    }
    let is_due = |table: &&TombstoneCandidate| {
        table.droppable_ratio > options.threshold && table.age_seconds.is_none_or(|age| age >= options.interval_seconds)
    };
    let is_free = |table: &&TombstoneCandidate| {
        let (own, others) = (&table.metadata, tables.iter().map(|other| &other.metadata));
        let overlapping = others.filter(|other| {
            other.id != own.id && other.first_token <= own.last_token && own.first_token <= other.last_token
        });
        let oldest = overlapping.map(|other| other.min_timestamp).min().unwrap_or(i64::MAX);
        options.unchecked || own.max_timestamp < oldest.min(memtable_min_timestamp)
    };
    let is_idle = |table: &&TombstoneCandidate| !compacting.contains(&table.metadata.id);
    let worth = tables.iter().filter(is_idle).filter(is_due).filter(is_free);
    worth.max_by(|a, b| a.droppable_ratio.total_cmp(&b.droppable_ratio)).map(|table| table.metadata.id.clone())
}

#[cfg(test)]
mod tests {
    use types::Token;

    use super::*;

    fn candidate(id: u32, tokens: (i64, i64), timestamps: (i64, i64), droppable_ratio: f64) -> TombstoneCandidate {
        let metadata = TableMetadata {
            id: SSTableId::from_sequence(id),
            first_token: Token(tokens.0),
            last_token: Token(tokens.1),
            size_bytes: 1,
            token_space_coverage: 1.0,
            min_timestamp: timestamps.0,
            max_timestamp: timestamps.1,
            max_local_deletion_time: 7,
        };
        TombstoneCandidate { metadata, droppable_ratio, age_seconds: Some(100_000) }
    }

    #[test]
    fn a_table_is_compacted_alone_if_enough_is_droppable_and_no_other_table_has_older_data() {
        let options = TombstoneOptions { enabled: true, threshold: 0.2, interval_seconds: 86_400, unchecked: false };
        let picked = |options: &TombstoneOptions, tables: &[TombstoneCandidate], memtable| {
            worth_compacting_alone(options, tables, &HashSet::new(), memtable).map(|id| id.to_string())
        };
        let full = candidate(1, (0, 9), (10, 20), 0.5);
        assert_eq!(picked(&options, std::slice::from_ref(&full), i64::MAX).as_deref(), Some("1"));
        assert_eq!(picked(&options, &[candidate(1, (0, 9), (10, 20), 0.2)], i64::MAX), None, "at the threshold");
        let young = TombstoneCandidate { age_seconds: Some(86_399), ..full.clone() };
        assert_eq!(picked(&options, &[young], i64::MAX), None, "written a moment ago");
        assert_eq!(picked(&options, std::slice::from_ref(&full), 20), None, "a memtable may hold what it shadows");
        let older = candidate(2, (5, 15), (0, 5), 0.0);
        assert_eq!(picked(&options, &[full.clone(), older.clone()], i64::MAX), None);
        let unchecked = TombstoneOptions { unchecked: true, ..options };
        assert_eq!(picked(&unchecked, &[full.clone(), older], 0).as_deref(), Some("1"));
        let apart = candidate(3, (10, 15), (0, 5), 0.9);
        let both = [full, apart];
        assert_eq!(picked(&options, &both, i64::MAX).as_deref(), Some("3"), "the larger share first");
        let compacting = HashSet::from([both[1].metadata.id.clone()]);
        let other = worth_compacting_alone(&options, &both, &compacting, i64::MAX);
        assert_eq!(other, Some(both[0].metadata.id.clone()), "the larger one is being compacted");
    }

    #[test]
    fn tables_in_windows_are_compacted_alone_only_with_an_option() {
        let full = candidate(1, (0, 9), (10, 20), 0.5);
        let goes = |pairs: &[(&str, &str)]| {
            let options = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let options = TombstoneOptions::from_options(&options).unwrap();
            worth_compacting_alone(&options, std::slice::from_ref(&full), &HashSet::new(), i64::MAX).is_some()
        };
        let windows = ("class", "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy");
        assert!(goes(&[]));
        assert!(!goes(&[windows]));
        assert!(!goes(&[windows, ("unchecked_tombstone_compaction", "false")]));
        for said in [
            ("unchecked_tombstone_compaction", "true"),
            ("tombstone_compaction_interval", "86400"),
            ("tombstone_threshold", "0.2"),
        ] {
            assert!(goes(&[windows, said]), "{said:?}");
        }
    }
}
