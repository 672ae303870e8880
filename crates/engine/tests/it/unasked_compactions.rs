//! Compactors examine tables that were not flushed.

use std::time::{Duration, Instant};

use blockio::SimulatedDisk;
use engine::{Engine, EngineOptions};
use model::{Table, TableOptions};

use crate::fixture::{create_table, delete_partition, insert, open_with, rows, set_options, small_options};
use crate::gated_disk::GIVE_UP;

/// A node with one compactor, which examines all tables at this interval.
fn options(disk: &SimulatedDisk, check_interval: Duration) -> EngineOptions {
    EngineOptions { concurrent_compactors: 1, compaction_check_interval: check_interval, ..small_options(disk) }
}

/// No test lasts this long.
const NEVER_AGAIN: Duration = Duration::from_secs(100_000);

fn unified(parameters: &[(&str, &str)]) -> TableOptions {
    let pairs = [("class", "UnifiedCompactionStrategy")].iter().chain(parameters);
    let compaction = pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    TableOptions { compaction, ..TableOptions::default() }
}

fn flush_rows(engine: &Engine, table: &std::sync::Arc<Table>, count: i32) {
    for row in 0..count {
        insert(engine, table, 1, row, "value", 10);
        engine.flush(table).unwrap();
    }
}

fn wait_for_sstables(engine: &Engine, table: &Table, count: usize) {
    let began = Instant::now();
    while engine.table_stats(table).unwrap().sstable_count != count {
        assert!(began.elapsed() < GIVE_UP, "nobody looked");
        std::thread::sleep(crate::fixture::PAUSE);
    }
}

#[test]
fn sstables_are_merged_after_a_start() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    flush_rows(&engine, &table, 4);
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 4, "this one has no compactor");
    let engine = open_with(&options(&disk.crash_image(1), NEVER_AGAIN));
    let table = engine.schema().table("ks", "t").unwrap().clone();
    wait_for_sstables(&engine, &table, 1);
    assert_eq!(rows(&engine, &table).len(), 4);
}

#[test]
fn a_change_of_the_strategy_starts_merges_at_once() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk, NEVER_AGAIN));
    let table = create_table(&engine);
    flush_rows(&engine, &table, 2);
    // A change of other options causes no merge: the strategy does not merge two SSTables.
    let table = set_options(&engine, &table, TableOptions { gc_grace_seconds: 7, ..TableOptions::default() }).unwrap();
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 2);
    let table = set_options(&engine, &table, unified(&[("scaling_parameters", "N")])).unwrap();
    wait_for_sstables(&engine, &table, 1);
    assert_eq!(rows(&engine, &table).len(), 2);
}

#[test]
fn an_sstable_is_merged_without_a_flush_when_its_time_has_come() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk, Duration::from_millis(5)));
    let table = create_table(&engine);
    // An SSTable may be merged by itself one second after it was written.
    let table = set_options(&engine, &table, unified(&[("tombstone_compaction_interval", "1")])).unwrap();
    insert(&engine, &table, 0, 1, "stays", 10);
    // These were deleted in 1970, long before gc_grace_seconds.
    (1..12).for_each(|key| delete_partition(&engine, &table, key, 10));
    engine.flush(&table).unwrap();
    let began = Instant::now();
    while engine.table_stats(&table).unwrap().sstable_partition_count != 1 {
        assert!(began.elapsed() < GIVE_UP, "nobody looked");
        std::thread::sleep(crate::fixture::PAUSE);
    }
    assert_eq!(rows(&engine, &table), [(0, 1, "stays".into())]);
}
