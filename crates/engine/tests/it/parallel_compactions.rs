//! Several merges of one table at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use blockio::SimulatedDisk;
use engine::{Engine, EngineOptions, block_on};
use model::{DeletionTime, Mutation, PartitionKey, PartitionUpdateBuilder, Table, TableOptions};

use crate::fixture::{create_table, delete_rows, insert, insert_expired, rows, set_options, small_options};
use crate::gated_disk::{GIVE_UP, GatedDisk};
use crate::torture::choices::Choices;

/// Two compactors; what they write is held at the gate.
fn options(disk: &SimulatedDisk, gated: &GatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.disk = Arc::new(gated.clone());
    options.concurrent_compactors = 2;
    options
}

fn delete_partition(engine: &Engine, table: &Arc<Table>, key: i32, timestamp: i64) {
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.delete_partition(DeletionTime::new(timestamp, 1));
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GIVE_UP);
        std::thread::yield_now();
    }
}

/// A table of eight SSTables, and two merges of four of them each, held at the gate: the older four have rows that the
/// younger four delete, long before `gc_grace_seconds`.
fn two_merges_under_way() -> (SimulatedDisk, GatedDisk, Arc<Engine>, Arc<Table>) {
    let disk = SimulatedDisk::new();
    let gated = GatedDisk::new(&disk, "-Data.db");
    let engine = Engine::open(options(&disk, &gated)).unwrap();
    let table = create_table(&engine);
    engine.set_autocompaction(&table, false).unwrap();
    for flush in 0..8_i32 {
        let timestamp = 10 + i64::from(flush);
        for key in 0..40 {
            match flush {
                0..4 => insert(&engine, &table, key, flush, "written", timestamp),
                _ if key % 2 == 0 => delete_partition(&engine, &table, key, timestamp),
                _ => insert(&engine, &table, key, flush, "written", timestamp),
            }
        }
        engine.flush(&table).unwrap();
    }
    gated.close();
    engine.set_autocompaction(&table, true).unwrap();
    gated.wait_for(2);
    let stats = engine.compaction_stats();
    let inputs: Vec<_> = stats.active.iter().map(|merge| (&*merge.table, merge.sstables)).collect();
    assert_eq!((inputs, stats.pending), (vec![("t", 4), ("t", 4)], 0));
    (disk, gated, engine, table)
}

#[test]
fn two_merges_of_a_table_go_on_at_the_same_time_and_change_nothing_that_is_read() {
    for first in 0..2 {
        let (disk, gated, engine, table) = two_merges_under_way();
        let before = rows(&engine, &table);
        assert_eq!(before.len(), 20 * 8);
        gated.let_go(first);
        wait_until(|| engine.compaction_stats().completed == 1);
        // One is replaced while the other is in the middle of its inputs.
        assert_eq!(rows(&engine, &table), before);
        assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 5);
        gated.let_go(1 - first);
        wait_until(|| engine.compaction_stats().active.is_empty());
        assert_eq!(engine.compaction_stats().completed, 2);
        assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 2);
        assert_eq!(rows(&engine, &table), before);
        gated.open_for_all();
        engine.compact(&table).unwrap();
        assert_eq!(rows(&engine, &table), before);
        let image = disk.crash_image(first as u64);
        let engine = Engine::open(small_options(&image)).unwrap();
        assert_eq!(rows(&engine, &table), before);
    }
}

#[test]
fn what_needs_the_table_for_itself_stops_all_of_its_merges() {
    for act in ["truncate", "compact", "drop", "shut down"] {
        let (disk, gated, engine, table) = two_merges_under_way();
        let before = rows(&engine, &table);
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| match act {
                "truncate" => engine.truncate(&table),
                "compact" => engine.compact(&table),
                "drop" => engine.set_keyspace(model::Keyspace::new("ks", Default::default(), true)),
                _ => engine.shutdown(),
            });
            gated.open_for_all();
            acting.join().unwrap().unwrap();
        });
        let sstables = engine.table_stats(&table).map_or(0, |stats| stats.sstable_count);
        match act {
            "truncate" => assert_eq!((sstables, rows(&engine, &table)), (0, vec![])),
            "compact" => assert_eq!((sstables, rows(&engine, &table)), (1, before.clone())),
            "drop" => assert!(engine.schema().table("ks", "t").is_none()),
            _ => assert_eq!(rows(&engine, &table), before),
        }
        let image = disk.crash_image(7);
        drop(engine);
        let engine = Engine::open(small_options(&image)).unwrap();
        match (act, engine.schema().table("ks", "t")) {
            ("drop", found) => {
                assert!(found.is_none());
                assert_eq!(blockio::Disk::list(&image, "/node/data/ks".as_ref()).map_or(0, |all| all.len()), 0);
            }
            ("truncate", _) => assert_eq!(rows(&engine, &table), []),
            _ => assert_eq!(rows(&engine, &table), before),
        }
    }
}

#[test]
fn reads_answer_what_was_written_whatever_two_compactors_purge_meanwhile() {
    for seed in 0..12 {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.concurrent_compactors = 2;
        let engine = Engine::open(options).unwrap();
        let table = create_table(&engine);
        // Two SSTables anywhere are a merge.
        let merge_soon = [("class", "UnifiedCompactionStrategy"), ("scaling_parameters", "N")];
        let compaction = merge_soon.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let table =
            set_options(&engine, &table, TableOptions { compaction, gc_grace_seconds: 0, ..TableOptions::default() })
                .unwrap();
        let mut choices = Choices(seed);
        let mut model: BTreeMap<(i32, i32), String> = BTreeMap::new();
        let is_there = |model: &BTreeMap<(i32, i32), String>, engine: &Engine| {
            let expected: Vec<_> = model.iter().map(|((key, row), value)| (*key, *row, value.clone())).collect();
            assert_eq!(rows(engine, &table), expected, "seed {seed}");
        };
        for step in 1..=600_i64 {
            let (key, row) = (choices.below(6) as i32, choices.below(4) as i32);
            match choices.below(20) {
                0..8 => {
                    insert(&engine, &table, key, row, &step.to_string(), step);
                    model.insert((key, row), step.to_string());
                }
                8..10 => {
                    insert_expired(&engine, &table, key, row, step);
                    model.remove(&(key, row));
                }
                10..12 => {
                    delete_rows(&engine, &table, key, row, step);
                    model.remove(&(key, row));
                }
                12 => {
                    delete_partition(&engine, &table, key, step);
                    model.retain(|(of, _), _| *of != key);
                }
                13..18 => engine.flush(&table).unwrap(),
                18 if choices.one_in(8) => engine.compact(&table).unwrap(),
                _ => is_there(&model, &engine),
            }
        }
        is_there(&model, &engine);
        assert!(engine.compaction_stats().completed > 5, "seed {seed}");
        assert!(engine.last_compaction_failure().is_none());
        let image = disk.crash_image(seed);
        drop(engine);
        is_there(&model, &Engine::open(small_options(&image)).unwrap());
    }
}
