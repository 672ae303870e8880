//! Power cuts at every step of an operator's commands: no row is lost, and each command took effect as a whole or not
//! at all. (`promises.rs` tests truncations and drops; `torture` tests random histories.)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, Fault, SimulatedDisk};
use engine::{Engine, EngineError, block_on};
use model::Table;
use sstable::{list_tables, verify};

use crate::fixture::{disk_with_table, insert, insertion, open_with, rows, small_options};

fn reopen(disk: &SimulatedDisk) -> (Arc<Engine>, Arc<Table>) {
    let engine = open_with(&small_options(disk));
    let table = engine.schema().table("ks", "t").unwrap().clone();
    (engine, table)
}

fn directory(table: &Table) -> PathBuf {
    format!("/node/data/ks/t-{}", table.id.0.simple()).into()
}

/// A node with a snapshot of two rows, a later truncation, and after that two SSTables and a row in the log.
fn prepared() -> SimulatedDisk {
    let disk = disk_with_table();
    let (engine, table) = reopen(&disk);
    insert(&engine, &table, 8, 1, "from the snapshot", 10);
    insert(&engine, &table, 9, 1, "from the snapshot", 10);
    engine.snapshot(&table, "old", "schema").unwrap();
    engine.truncate(&table).unwrap();
    for row in 0..2 {
        insert(&engine, &table, 1, row, "flushed", 20);
        engine.flush(&table).unwrap();
    }
    insert(&engine, &table, 1, 2, "logged", 20);
    disk.crash_image(0)
}

/// Cuts the power after 0, 1, 2... operations of `act` and restarts. `check` gets whether `act` was done, the disk, and
/// the keys of the live rows.
fn cut_everywhere(
    act: impl Fn(&Engine, &Table) -> Result<(), EngineError>,
    check: impl Fn(bool, &SimulatedDisk, &Table, &[i32]),
) {
    cut_every(1, act, check);
}

/// Like [`cut_everywhere`], but only after every `every` operations.
fn cut_every(
    stride: usize,
    act: impl Fn(&Engine, &Table) -> Result<(), EngineError>,
    check: impl Fn(bool, &SimulatedDisk, &Table, &[i32]),
) {
    let prepared = prepared();
    for step in (0..).step_by(stride) {
        let disk = prepared.crash_image(step);
        let (engine, table) = reopen(&disk);
        disk.inject(Fault::PowerCut, step);
        let done = act(&engine, &table).is_ok();
        let image = disk.crash_image(step * 7);
        drop(engine);
        let (engine, table) = reopen(&image);
        let keys: Vec<i32> = rows(&engine, &table).into_iter().map(|(key, ..)| key).collect();
        for found in list_tables(&image, &directory(&table)).unwrap() {
            verify(&image, &found, &table, true).unwrap();
        }
        check(done, &image, &table, &keys);
        if done {
            // This cut came after the last operation.
            assert!(step > 10, "the act has steps");
            return;
        }
    }
}

#[test]
fn a_flush_that_is_cut_short_loses_nothing() {
    cut_everywhere(
        |engine, table| {
            block_on(engine.write(&insertion(&Arc::new(table.clone()), 2, 1, "written", 30)))?;
            engine.flush(table)
        },
        |done, _, _, keys| assert!(keys == [1, 1, 1, 2] || !done && keys == [1; 3], "{done} {keys:?}"),
    );
}

/// Kills the process after 0, 1, 2... operations of a flush, which is the table's first (and creates its directory) or
/// a later one. The next start replays the records that no SSTable covers and frees the log. Then the power is cut.
fn kill_everywhere_in_a_flush(is_first: bool) {
    for operation in 0.. {
        let disk = disk_with_table();
        let (engine, table) = reopen(&disk);
        for row in 0..3 {
            insert(&engine, &table, row, 1, "logged", 20);
            if !is_first && row == 0 {
                engine.flush(&table).unwrap();
            }
        }
        disk.inject(Fault::PowerCut, operation);
        let done = engine.flush(&table).is_ok();
        let left = disk.after_process_death();
        drop(engine);
        let (engine, table) = reopen(&left);
        assert_eq!(rows(&engine, &table).len(), 3, "after a kill at operation {operation}");
        engine.flush_all().unwrap();
        for seed in 0..4 {
            let (engine, table) = reopen(&left.crash_image(seed));
            assert_eq!(rows(&engine, &table).len(), 3, "after a kill at operation {operation} and a power cut");
        }
        if done {
            assert!(operation > 10, "a flush has steps");
            return;
        }
    }
}

#[test]
fn a_tables_first_flush_that_is_killed_loses_nothing_to_a_later_power_cut() {
    kill_everywhere_in_a_flush(true);
}

#[test]
fn a_flush_that_is_killed_loses_nothing_to_a_later_power_cut() {
    kill_everywhere_in_a_flush(false);
}

#[test]
fn a_compaction_that_is_cut_short_loses_nothing() {
    cut_everywhere(
        |engine, table| engine.compact(table),
        |done, disk, table, keys| {
            assert_eq!(keys, [1; 3]);
            let tables = list_tables(disk, &directory(table)).unwrap().len();
            assert!(if done { tables == 1 } else { (1..=3).contains(&tables) }, "{done} {tables}");
        },
    );
}

fn snapshots(disk: &SimulatedDisk, table: &Table) -> Vec<String> {
    let entries = disk.list(&directory(table).join("snapshots")).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_snapshot_that_is_cut_short_is_whole_or_not_there() {
    cut_everywhere(
        |engine, table| engine.snapshot(table, "new", "schema").map(|_| ()),
        |done, disk, table, keys| {
            assert_eq!(keys, [1; 3]);
            let found = snapshots(disk, table);
            assert!(found == ["new", "old"] || !done && found == ["old"], "{done} {found:?}");
            if found.len() == 2 {
                let snapshot = directory(table).join("snapshots/new");
                let is_there = |name: &str| disk.exists(&snapshot.join(name)).unwrap();
                assert!(is_there("manifest.json") && is_there("schema.cql"));
                let linked = list_tables(disk, &snapshot).unwrap();
                assert_eq!(linked.len(), 3);
                linked.iter().for_each(|linked| assert!(verify(disk, linked, &Arc::new(table.clone()), true).is_ok()));
            }
        },
    );
}

#[test]
fn an_import_that_is_cut_short_brings_all_of_an_sstable_or_nothing() {
    cut_everywhere(
        |engine, table| engine.import(table, &directory(table).join("snapshots/old")).map(|_| ()),
        |done, _, _, keys| {
            let all = [1, 1, 1, 8, 9];
            assert!(keys == all || !done && keys == [1; 3], "{done} {keys:?}");
        },
    );
}

#[test]
fn a_refresh_that_is_cut_short_loses_nothing() {
    let prepared = prepared();
    for step in 0.. {
        let disk = prepared.crash_image(step);
        let (engine, table) = reopen(&disk);
        let own = directory(&table);
        let snapshot = own.join("snapshots/old");
        for file in disk.list(&snapshot).unwrap().into_iter().filter(|entry| entry.name.starts_with("da-")) {
            disk.hard_link(&snapshot.join(&file.name), &own.join(&file.name)).unwrap();
        }
        disk.sync_dir(&own).unwrap();
        disk.inject(Fault::PowerCut, step);
        let done = engine.refresh(&table).is_ok();
        let image = disk.crash_image(step * 7);
        drop(engine);
        let (engine, table) = reopen(&image);
        let keys: Vec<i32> = rows(&engine, &table).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(keys, [1, 1, 1, 8, 9], "after {step} operations");
        let (restored, found) = (list_tables(&image, &snapshot).unwrap(), list_tables(&image, &own).unwrap());
        assert!(!done || !found.iter().any(|found| found.id == restored[0].id), "{found:?}");
        if done {
            assert!(step > 10, "a refresh has steps");
            return;
        }
    }
}

#[test]
fn an_export_that_is_cut_short_leaves_nothing_in_the_tables_directories() {
    cut_every(
        17,
        |engine, _| engine.export(Path::new("/exported")).map(|_| ()),
        |done, disk, table, keys| {
            assert_eq!(keys, [1; 3]);
            assert_eq!(snapshots(disk, table), ["old"]);
            assert!(!done || disk.exists(Path::new("/exported/ks")).unwrap());
        },
    );
}
