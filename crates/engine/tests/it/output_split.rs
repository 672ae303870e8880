//! The output of a merge is split at the shard boundaries of the table's strategy.

use std::sync::Arc;
use std::time::Instant;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use compaction::shard_boundaries;
use engine::Engine;
use model::{Table, TableOptions};
use sstable::{BlockCache, Component, SSTableReader, list_tables};

use crate::fixture::{create_table, insert, open_with, rows, set_options, small_options};
use crate::gated_disk::GIVE_UP;

const SHARDS: u32 = 4;

/// A table in which any two SSTables are merged, however small the output.
fn create_sharded_table(engine: &Engine) -> Arc<Table> {
    let sharded = [
        ("class", "UnifiedCompactionStrategy"),
        ("scaling_parameters", "N"),
        ("min_sstable_size", "0B"),
        ("base_shard_count", "4"),
    ];
    let compaction = sharded.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    set_options(engine, &create_table(engine), TableOptions { compaction, ..TableOptions::default() }).unwrap()
}

/// The shard of each SSTable of the table, in order.
fn shards_of(disk: &SimulatedDisk, table: &Arc<Table>) -> Vec<usize> {
    let directory = format!("/node/data/ks/t-{}", table.id.0.simple());
    let boundaries = shard_boundaries(SHARDS);
    let shard = |token| boundaries.partition_point(|boundary| *boundary < token);
    let tables = list_tables(disk, directory.as_ref()).unwrap();
    let mut shards: Vec<usize> = Vec::new();
    for descriptor in &tables {
        let reader = SSTableReader::open(disk, descriptor, table, &BlockCache::new(1 << 20)).unwrap();
        let [first, last] = [reader.first_key(), reader.last_key()].map(|key| shard(key.token()));
        assert_eq!(first, last, "{descriptor} crosses a boundary");
        shards.push(first);
    }
    shards.sort_unstable();
    shards
}

fn flush_twice(engine: &Engine, table: &Arc<Table>) {
    for flush in 0..2 {
        (0..60).for_each(|key| insert(engine, table, key, flush, "value", 10));
        engine.flush(table).unwrap();
    }
}

#[test]
fn a_requested_compaction_writes_an_sstable_per_shard() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_sharded_table(&engine);
    flush_twice(&engine, &table);
    // SSTables that are already split stay split.
    for _ in 0..2 {
        engine.compact(&table).unwrap();
        assert_eq!(shards_of(&disk, &table), [0, 1, 2, 3]);
        assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 4);
        assert_eq!(rows(&engine, &table).len(), 120);
    }
    // With default options the table is too small to be split, but SSTables that do not overlap are merged separately.
    let table = set_options(&engine, &table, TableOptions::default()).unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(shards_of(&disk, &table), [0, 1, 2, 3]);
    assert_eq!(engine.compaction_stats().completed, 1 + 4 + 4);
    flush_twice(&engine, &table);
    engine.compact(&table).unwrap();
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
    assert_eq!(rows(&engine, &table).len(), 120);
}

#[test]
fn a_damaged_sstable_does_not_block_merges_of_sstables_that_it_does_not_overlap() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_sharded_table(&engine);
    flush_twice(&engine, &table);
    engine.compact(&table).unwrap();
    let directory = format!("/node/data/ks/t-{}", table.id.0.simple());
    let before = list_tables(&disk, directory.as_ref()).unwrap();
    let data = disk.open(&before[1].path(Component::Data), OpenOptions::write()).unwrap();
    data.write_at(&[!0; 8], data.len().unwrap() / 2).unwrap();
    let error = engine.compact(&table).unwrap_err().to_string();
    assert!(error.contains(&before[1].file_name(Component::Data)), "{error}");
    let after = list_tables(&disk, directory.as_ref()).unwrap();
    let kept: Vec<_> = before.iter().filter(|table| after.contains(table)).collect();
    assert_eq!((after.len(), kept), (4, vec![&before[1]]), "the others are merged, and this one stays");
}

#[test]
fn a_merge_in_the_background_writes_an_sstable_per_shard() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.concurrent_compactors = 1;
    let engine = open_with(&options);
    let table = create_sharded_table(&engine);
    flush_twice(&engine, &table);
    let began = Instant::now();
    while engine.table_stats(&table).unwrap().sstable_count != 4 {
        assert!(began.elapsed() < GIVE_UP);
        std::thread::sleep(crate::fixture::PAUSE);
    }
    assert_eq!(shards_of(&disk, &table), [0, 1, 2, 3]);
    assert_eq!(rows(&engine, &table).len(), 120);
}
