//! Several merges of one table at the same time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use blockio::{Disk, Fault, SimulatedDisk};
use engine::{DiskFailureHook, Engine, EngineOptions, block_on};
use model::{KeyRange, Mutation, ReadRange, Table, TableOptions, UnfilteredCursor};

use crate::fixture::{
    create_table, delete_partition, expired_insertion, insert, insertion, open_with, partition_deletion, row_deletion,
    rows, set_options, small_options,
};
use crate::gated_disk::{GIVE_UP, GatedDisk};
use testkit::Choices;

/// A node with two compactors, whose output waits at the gate.
fn options(disk: &SimulatedDisk, gated: &GatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.disk = Arc::new(gated.clone());
    options.concurrent_compactors = 2;
    options
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GIVE_UP);
        std::thread::sleep(crate::fixture::PAUSE);
    }
}

/// A table of eight SSTables, and two merges of four SSTables each that wait at the gate. The younger four delete rows
/// of the older four, long before `gc_grace_seconds`.
fn two_merges_under_way() -> (SimulatedDisk, GatedDisk, Arc<Engine>, Arc<Table>) {
    let disk = SimulatedDisk::new();
    let gated = GatedDisk::new(&disk, "-Data.db");
    let engine = open_with(&options(&disk, &gated));
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
fn two_merges_of_a_table_run_at_the_same_time_and_change_no_result() {
    for first in 0..2 {
        let (disk, gated, engine, table) = two_merges_under_way();
        let before = rows(&engine, &table);
        assert_eq!(before.len(), 20 * 8);
        gated.let_go(first);
        wait_until(|| engine.compaction_stats().completed == 1);
        // One merge is replaced while the other one is reading its inputs.
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
fn a_flush_does_not_wait_for_merges_and_its_sstable_stays_beside_their_output() {
    let (disk, gated, engine, table) = two_merges_under_way();
    // This is the third merge that creates a Data.db.
    gated.let_go(2);
    insert(&engine, &table, 41, 1, "flushed", 30);
    delete_partition(&engine, &table, 1, 30);
    let before = rows(&engine, &table);
    assert_eq!(before.len(), 20 * 8 + 1 - 8);
    engine.flush(&table).unwrap();
    let stats = engine.compaction_stats();
    assert_eq!((stats.active.len(), stats.completed), (2, 0), "both are held still");
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 9);
    assert_eq!(rows(&engine, &table), before);
    gated.open_for_all();
    wait_until(|| engine.compaction_stats().active.is_empty());
    assert_eq!(engine.compaction_stats().completed, 2);
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 3);
    assert_eq!(rows(&engine, &table), before);
    let engine = Engine::open(small_options(&disk.crash_image(3))).unwrap();
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 3);
    assert_eq!(rows(&engine, &table), before);
}

#[test]
fn exclusive_operations_on_a_table_stop_all_of_its_merges() {
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

/// Rows by key and clustering.
type Model = BTreeMap<(i32, i32), String>;

fn is_there(model: &Model, engine: &Engine, table: &Arc<Table>) -> bool {
    rows(engine, table) == model.iter().map(|((key, row), value)| (*key, *row, value.clone())).collect::<Vec<_>>()
}

/// A table in which any two SSTables are merged, and any deletion may be purged.
fn create_merging_table(engine: &Engine) -> Arc<Table> {
    let merge_soon = [("class", "UnifiedCompactionStrategy"), ("scaling_parameters", "N")];
    let compaction = merge_soon.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let options = TableOptions { compaction, gc_grace_seconds: 0, ..TableOptions::default() };
    set_options(engine, &create_table(engine), options).unwrap()
}

/// Chooses one write and applies it to the model.
fn choose_write(choices: &mut Choices, table: &Arc<Table>, model: &mut Model, step: i64) -> Mutation {
    let (key, row) = (choices.below(6) as i32, choices.below(4) as i32);
    match choices.below(13) {
        0..8 => {
            model.insert((key, row), step.to_string());
            insertion(table, key, row, &step.to_string(), step)
        }
        8..10 => {
            model.remove(&(key, row));
            expired_insertion(table, key, row, step)
        }
        10..12 => {
            model.remove(&(key, row));
            row_deletion(table, key, row, step)
        }
        _ => {
            model.retain(|(of, _), _| *of != key);
            partition_deletion(table, key, step)
        }
    }
}

#[test]
fn reads_return_all_rows_while_two_compactors_purge() {
    let (mut merges, mut cuts) = (0, 0);
    for seed in 0..24 {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.concurrent_compactors = 2;
        let engine = Engine::open(options).unwrap();
        let table = create_merging_table(&engine);
        let mut choices = Choices(seed);
        if seed % 2 == 1 {
            disk.inject(Fault::PowerCut, choices.below(6000));
        }
        // The acknowledged state, and the state with the last write included.
        let (mut model, mut next) = (Model::new(), Model::new());
        for step in 1..=400_i64 {
            let done = match choices.below(20) {
                0..13 => block_on(engine.write(&choose_write(&mut choices, &table, &mut next, step))),
                13..18 => engine.flush(&table),
                18 if choices.one_in(8) => engine.compact(&table),
                _ => {
                    assert!(seed % 2 == 1 || is_there(&model, &engine, &table), "seed {seed}, step {step}");
                    Ok(())
                }
            };
            if done.is_err() {
                assert!(seed % 2 == 1);
                cuts += 1;
                break;
            }
            model.clone_from(&next);
        }
        merges += engine.compaction_stats().completed;
        let image = disk.crash_image(seed);
        drop(engine);
        let engine = Engine::open(small_options(&image)).unwrap();
        let is_whole = is_there(&model, &engine, &table) || is_there(&next, &engine, &table);
        assert!(is_whole, "seed {seed}: {:?} for {model:?}", rows(&engine, &table));
    }
    // On a busy machine there are hardly more merges than the requested ones.
    assert!(merges >= 12 && cuts > 3, "{merges} {cuts}");
}

/// A table of five SSTables whose oldest one has a flipped bit, the name of that SSTable, and the number of damage
/// reports by the engine. Nothing is merged before the options of the table change.
fn damaged_in_one() -> (Arc<Engine>, Arc<Table>, String, Arc<AtomicUsize>) {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let compaction = [("class", "UnifiedCompactionStrategy"), ("enabled", "false")];
    let compaction = compaction.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let table = create_table(&engine);
    let table = set_options(&engine, &table, TableOptions { compaction, ..TableOptions::default() }).unwrap();
    for flush in 0..5 {
        (0..4).for_each(|key| insert(&engine, &table, key, flush, "written", 10 + i64::from(flush)));
        engine.flush(&table).unwrap();
    }
    engine.shutdown().unwrap();
    drop(engine);
    let directory = format!("/node/data/ks/t-{}", table.id.0.simple());
    let names = disk.list(directory.as_ref()).unwrap().into_iter().map(|entry| entry.name);
    let oldest = names.filter(|name| name.ends_with("-Data.db")).min().unwrap();
    disk.flip_bit(&Path::new(&directory).join(&oldest), 3, 0).unwrap();
    let mut options = small_options(&disk);
    options.concurrent_compactors = 2;
    let reported = Arc::new(AtomicUsize::new(0));
    let count = reported.clone();
    options.on_disk_failure = Some(DiskFailureHook::new(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    (Engine::open(options).unwrap(), table, oldest, reported)
}

#[test]
fn a_damaged_sstable_is_left_alone_and_the_others_are_merged() {
    let (engine, table, oldest, reported) = damaged_in_one();
    set_options(&engine, &table, TableOptions::default()).unwrap();
    wait_until(|| engine.table_stats(&table).unwrap().sstable_count == 2);
    assert!(reported.load(Ordering::SeqCst) > 0, "a merge met it");
    let error = engine.compact(&table).unwrap_err().to_string();
    assert!(error.contains("table ks.t: ") && error.contains(&oldest), "{error}");
}

#[test]
fn a_merge_avoids_damage_that_a_read_found() {
    let (engine, table, oldest, reported) = damaged_in_one();
    let mut cursor = engine.read(&table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let error = loop {
        match cursor.advance_partition().and_then(|found| Ok((found, cursor.advance()?))) {
            Err(error) => break error.to_string(),
            Ok((found, _)) => assert!(found, "the damage was not seen"),
        }
    };
    assert!(error.contains(&oldest), "{error}");
    set_options(&engine, &table, TableOptions::default()).unwrap();
    wait_until(|| engine.table_stats(&table).unwrap().sstable_count == 2);
    assert_eq!(reported.load(Ordering::SeqCst), 0, "no merge met the damage");
}
