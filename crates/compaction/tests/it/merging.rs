//! Merges of random tables: a client sees the same, and what may be dropped is dropped.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use compaction::{CompactionError, CompactionInput, Progress, compact, oldest_overlapping_timestamp, shard_boundaries};
use model::{LargeRowLimit, PartitionKey, Table, Unfiltered, UnfilteredCursor};
use sstable::{CommitLogPosition, SSTableId, SSTableReader, list_tables, replace_tables, verify};
use types::Token;
use uuid::Uuid;

use crate::content::{DIR, Generator, merged, open, visible};

/// Merges `inputs` into new tables beside `outside`, in place.
pub fn merge(
    generator: &mut Generator,
    inputs: &[Arc<SSTableReader>],
    outside: &[Arc<SSTableReader>],
    now_seconds: u32,
    boundaries: Vec<Token>,
) -> Vec<Arc<SSTableReader>> {
    let overlaps = |key: &PartitionKey| oldest_overlapping_timestamp(outside.iter().map(|reader| &**reader), key);
    let next_id = &mut generator.next_id;
    let compacted = compact(CompactionInput {
        disk: &generator.disk,
        dir: Path::new(DIR),
        table: &generator.table,
        tables: inputs,
        newer: None,
        kept: None,
        overlaps: &overlaps,
        now_seconds,
        boundaries,
        column_index_size_bytes: 128,
        past_page_cache: true,
        host_id: Uuid::nil(),
        size_watch: None,
        large_rows: LargeRowLimit::None,
        new_id: &mut || {
            *next_id += 1;
            SSTableId::from_sequence(*next_id - 1)
        },
        progress: &mut |_| ControlFlow::Continue(()),
    });
    let obsolete: Vec<_> = inputs.iter().map(|reader| reader.descriptor().clone()).collect();
    let added = replace_tables(&*generator.disk, Path::new(DIR), compacted.unwrap().tables, &obsolete).unwrap();
    added.iter().map(|descriptor| Arc::new(open(&generator.disk, descriptor, &generator.table))).collect()
}

/// Before, between, at and after the times of deletions (1000 to 1099), their grace periods (0, 40, 90) and expirations
/// (1000 to 1399).
const PURGE_TIMES: [u32; 7] = [1000, 1050, 1100, 1250, 1399, 1400, 1500];

#[test]
fn a_client_sees_the_same_before_and_after_a_merge_at_every_purge_time() {
    for seed in 0..60 {
        let gc_grace_seconds = [0, 40, 90][seed as usize % 3];
        for now in PURGE_TIMES {
            let later = [now, now + 1].into_iter().chain(PURGE_TIMES.into_iter().filter(|time| *time > now));
            check_seen(seed, gc_grace_seconds, now, &later.collect::<Vec<_>>());
        }
    }
    // Every second at which something becomes droppable.
    for (seed, gc_grace_seconds) in [(60, 0), (61, 40), (62, 90)] {
        for now in 999..=1491 {
            check_seen(seed, gc_grace_seconds, now, &[now, now + 1, 1500]);
        }
    }
}

/// Merges random SSTables, with or without others beside them: at `times` the same is seen before and after.
fn check_seen(seed: u64, gc_grace_seconds: i32, now: u32, times: &[u32]) {
    let mut generator = Generator::new(seed, gc_grace_seconds);
    let inputs: Vec<_> = (0..2 + seed as usize % 4).map(|_| generator.write()).collect();
    let outside: Vec<_> = (0..seed as usize / 3 % 3).map(|_| generator.write()).collect();
    let before: Vec<_> = inputs.iter().chain(&outside).cloned().collect();
    let table = generator.table.clone();
    let expected: Vec<_> = times.iter().map(|time| visible(&table, &before, *time)).collect();
    let boundaries = shard_boundaries(1 + seed as u32 % 4);
    let merged = merge(&mut generator, &inputs, &outside, now, boundaries.clone());
    for reader in &merged {
        verify(&*generator.disk, reader.descriptor(), &table, true).unwrap();
        assert!(boundaries.iter().all(|b| reader.last_key().token() <= *b || reader.first_key().token() > *b));
    }
    let after: Vec<_> = merged.iter().chain(&outside).cloned().collect();
    for (time, expected) in times.iter().zip(expected) {
        let seen = visible(&table, &after, *time);
        assert_eq!(seen, expected, "seed {seed} grace {gc_grace_seconds} merged at {now}, seen at {time}");
    }
}

/// The number of deletions and expiring or deleted cells in a set of tables.
fn deletions(table: &Arc<Table>, tables: &[Arc<SSTableReader>]) -> usize {
    let mut cursor = merged(table, tables);
    let mut count = 0;
    while cursor.advance_partition().unwrap() {
        count += usize::from(!cursor.partition().deletion.is_live());
        while cursor.advance().unwrap() {
            match cursor.unfiltered() {
                Unfiltered::Marker(_) => count += 1,
                Unfiltered::Row(row) => {
                    count += usize::from(!row.row.deletion().is_live());
                    count += usize::from(row.row.liveness().is_expiring());
                }
            }
        }
    }
    count
}

#[test]
fn old_deletions_are_purged_if_nothing_else_exists() {
    for seed in 100..120 {
        let mut generator = Generator::new(seed, 0);
        let inputs = [generator.write(), generator.write(), generator.write()];
        let table = generator.table.clone();
        assert!(deletions(&table, &inputs) > 0);
        let merged = merge(&mut generator, &inputs, &[], 2000, Vec::new());
        assert_eq!(deletions(&table, &merged), 0, "seed {seed}");
        for reader in &merged {
            assert_eq!(reader.statistics().stats.min_local_deletion_time, u32::MAX, "seed {seed}");
        }
    }
}

#[test]
fn deletions_stay_within_gc_grace() {
    let mut generator = Generator::new(5, 100_000);
    let inputs = [generator.write(), generator.write()];
    let table = generator.table.clone();
    let before = deletions(&table, &inputs);
    let merged = merge(&mut generator, &inputs, &[], 2000, Vec::new());
    assert_eq!(deletions(&table, &merged), before);
}

#[test]
fn old_deletions_stay_if_only_repaired_ones_may_be_purged() {
    let mut generator = Generator::new(5, 0);
    let inputs = [generator.write(), generator.write()];
    let mut table = generator.table.clone();
    let before = deletions(&table, &inputs);
    let only_repaired = ("only_purge_repaired_tombstones".to_owned(), "true".to_owned());
    Arc::make_mut(&mut table).options.compaction.extend([only_repaired]);
    generator.table = table.clone();
    let merged = merge(&mut generator, &inputs, &[], 2000, Vec::new());
    assert_eq!(deletions(&table, &merged), before);
}

#[test]
fn merging_in_any_grouping_gives_the_same_rows() {
    for seed in 200..215 {
        let mut generator = Generator::new(seed, 1_000_000);
        let inputs: Vec<_> = (0..4).map(|_| generator.write()).collect();
        let table = generator.table.clone();
        let expected = visible(&table, &inputs, 1050);
        let first = merge(&mut generator, &inputs[..2], &inputs[2..], 900, Vec::new());
        let second = merge(&mut generator, &inputs[2..], &first, 900, shard_boundaries(2));
        let both: Vec<_> = first.into_iter().chain(second).collect();
        assert_eq!(visible(&table, &both, 1050), expected);
        let last = merge(&mut generator, &both, &[], 900, Vec::new());
        assert_eq!(visible(&table, &last, 1050), expected);
        assert_eq!(list_tables(&*generator.disk, Path::new(DIR)).unwrap().len(), last.len());
    }
}

#[test]
fn log_intervals_of_our_own_inputs_outlive_their_merges_and_others_do_not() {
    let at = |segment, offset| CommitLogPosition { segment, offset };
    let (own, other) = (Uuid::nil(), Uuid::from_u128(7));
    let mut generator = Generator::new(11, 0);
    let written = [
        (own, vec![(at(1, 0), at(1, 100))]),
        // Adjacent to the one before, then overlapping.
        (own, vec![(at(1, 100), at(1, 200)), (at(3, 5), at(3, 9))]),
        (own, vec![(at(1, 150), at(2, 7))]),
        (other, vec![(at(2, 0), at(2, 90)), (at(9, 0), at(9, 9))]),
    ];
    let inputs = written.map(|(host, intervals)| generator.write_of(Some(host), intervals));
    let foreign = generator.write_of(Some(other), vec![(at(8, 0), at(8, 8))]);
    let unknown = generator.write_of(None, vec![(at(8, 0), at(8, 8))]);
    let expected = [(at(1, 0), at(2, 7)), (at(3, 5), at(3, 9))];
    let check = |tables: &[Arc<SSTableReader>], expected: &[(CommitLogPosition, CommitLogPosition)]| {
        assert!(!tables.is_empty());
        for table in tables {
            let stats = &table.statistics().stats;
            assert_eq!((stats.originating_host_id, &*stats.commit_log_intervals), (Some(own), expected));
        }
    };
    // Each part of the output may be the only remainder of any input.
    let merged = merge(&mut generator, &inputs, &[], 900, shard_boundaries(2));
    assert_eq!(merged.len(), 2);
    check(&merged, &expected);
    let foreign = merge(&mut generator, &[foreign, unknown], &merged, 900, Vec::new());
    check(&foreign, &[]);
    let all: Vec<_> = merged.into_iter().chain(foreign).collect();
    check(&merge(&mut generator, &all, &[], 900, Vec::new()), &expected);
}

#[test]
fn a_stopped_merge_leaves_its_inputs_and_nothing_else() {
    let generator = &mut Generator::new(9, 0);
    let inputs: Vec<_> = (0..3).map(|_| generator.write()).collect();
    let names = |disk: &dyn Disk| disk.list(Path::new(DIR)).unwrap();
    let before = names(&*generator.disk);
    let overlaps = |_: &PartitionKey| i64::MAX;
    let mut reported = Vec::new();
    let result = compact(CompactionInput {
        disk: &generator.disk,
        dir: Path::new(DIR),
        table: &generator.table,
        tables: &inputs,
        newer: None,
        kept: None,
        overlaps: &overlaps,
        now_seconds: 1100,
        boundaries: Vec::new(),
        column_index_size_bytes: 128,
        past_page_cache: true,
        host_id: Uuid::nil(),
        size_watch: None,
        large_rows: LargeRowLimit::None,
        new_id: &mut || SSTableId::from_sequence(99),
        progress: &mut |progress: Progress| {
            reported.push(progress);
            ControlFlow::Break(())
        },
    });
    assert!(matches!(result, Err(CompactionError::Stopped)));
    assert_eq!(reported, [Progress::default()], "before anything is written, which it may never be");
    assert_eq!(names(&*generator.disk), before);
}
