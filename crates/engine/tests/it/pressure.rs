//! Shortage of memory, log or disk: writers wait or are refused, and then continue.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, DiskErrorKind, Fault, SimulatedDisk};
use engine::{Engine, EngineError, block_on};
use model::{Table, TableOptions};

use crate::fixture::{create_table, insert, insertion, open_with, rows, set_options, small_options};

/// Writes from several threads, each with rows of its own.
fn write_in_parallel(engine: &Engine, table: &Arc<Table>, writers: i32, writes: i32, value: &str) {
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || (0..writes).for_each(|row| insert(engine, table, writer, row, value, 10)));
        }
    });
}

#[test]
fn writers_above_the_memory_limit_wait_for_the_flush_that_frees_them() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.memtable_space_bytes = 1 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_table(&engine);
    let value = "v".repeat(4000);
    write_in_parallel(&engine, &table, 6, 150, &value);
    assert_eq!(rows(&engine, &table).len(), 900);
    assert!(engine.table_stats(&table).unwrap().sstable_count > 0, "more was written than memory holds");
    let held: u64 = engine.all_table_stats().iter().map(|stats| stats.memtable_bytes).sum();
    assert_eq!(engine.memtable_bytes(), held, "the pool counts what the memtables hold");
}

#[test]
fn writers_that_fill_the_log_wait_for_the_flushes_that_free_it() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.commitlog.total_space_bytes = 1 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_table(&engine);
    write_in_parallel(&engine, &table, 4, 50, &"v".repeat(20_000));
    assert_eq!(rows(&engine, &table).len(), 200);
}

#[test]
fn writes_that_wait_for_the_log_are_refused_when_flushes_fail() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.commitlog.total_space_bytes = 1 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_table(&engine);
    let value = "v".repeat(20_000);
    // The log's file reaches its largest size.
    write_in_parallel(&engine, &table, 1, 100, &value);
    let space = disk.space(Path::new("/node")).unwrap();
    disk.set_capacity(space.total_bytes - space.free_bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| write_in_parallel(&engine, &table, 2, 100, &value));
        let comments = (0..).map(|number| TableOptions { comment: format!("{number}"), ..table.options.clone() });
        let refused = comments.map(|options| set_options(&engine, &table, options)).find_map(Result::err).unwrap();
        assert!(matches!(&refused, EngineError::Disk(error) if error.kind() == DiskErrorKind::Full), "{refused}");
        let frozen = engine.table_stats(&table).unwrap().pending_flushes;
        assert!(frozen <= 1, "a flush that fails again freezes no more memtables: {frozen}");
        disk.set_capacity(1 << 30);
    });
    assert_eq!(rows(&engine, &table).len(), 200, "writers only waited");
    engine.truncate(&table).unwrap();
}

#[test]
fn a_full_disk_stops_writes_and_keeps_reads_until_there_is_room() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let space = disk.space(Path::new("/node")).unwrap();
    disk.set_capacity(space.total_bytes - space.free_bytes);
    let value = "v".repeat(20_000);
    let mut written = 0;
    let refused = loop {
        match block_on(engine.write(&insertion(&table, 1, written, &value, 10))) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000, "a full disk takes no more");
    };
    assert!(matches!(refused, EngineError::ClosedForWrites(_)), "{refused}");
    assert!(refused.to_string().contains("cannot grow"), "{refused}");
    assert_eq!(rows(&engine, &table).len(), written as usize);
    disk.set_capacity(1 << 30);
    insert(&engine, &table, 1, written, &value, 10);
    drop(engine);
    let engine = open_with(&small_options(&disk));
    assert_eq!(rows(&engine, &table).len(), written as usize + 1);
}

#[test]
fn a_failed_log_write_closes_the_engine_for_writes_and_flushes_but_not_for_reads() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "kept", 10);
    disk.inject(Fault::Fail, 0);
    let write = |row| block_on(engine.write(&insertion(&table, 1, row, "refused", 10)));
    let first = write(2).unwrap_err().to_string();
    let second = write(3).unwrap_err().to_string();
    assert!(first.contains("commitlog.log"), "{first}");
    assert_eq!(first, second, "the first reason stays");
    assert!(matches!(engine.flush(&table), Err(EngineError::ClosedForWrites(_))));
    assert!(matches!(engine.truncate(&table), Err(EngineError::ClosedForWrites(_))));
    assert_eq!(rows(&engine, &table), [(1, 1, "kept".into())]);
    drop(engine);
    let engine = Engine::open(small_options(&disk.crash_image(1))).unwrap();
    assert!(rows(&engine, &table).contains(&(1, 1, "kept".into())));
    insert(&engine, &table, 1, 4, "after", 10);
}

#[test]
fn a_start_that_fails_reports_the_reason_and_releases_its_locks() {
    let original = SimulatedDisk::new();
    let engine = Engine::open(small_options(&original)).unwrap();
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "flushed", 10);
    engine.flush_all().unwrap();
    insert(&engine, &table, 1, 2, "logged", 10);
    drop(engine);
    let mut failed = 0;
    for skip in (0..400).step_by(9) {
        let disk = original.crash_image(skip);
        disk.inject(Fault::Fail, skip);
        if let Err(error) = Engine::open(small_options(&disk)) {
            failed += 1;
            assert!(error.to_string().contains("/node"), "what failed is named: {error}");
        }
        let disk = match Engine::open(small_options(&disk)) {
            Ok(_) => disk,
            // The fault has not happened yet.
            Err(_) => {
                drop(open_with(&small_options(&disk)));
                disk
            }
        };
        // A fault that has not happened yet would hit the reads.
        let engine = Engine::open(small_options(&disk.crash_image(skip))).unwrap();
        assert_eq!(rows(&engine, &table).len(), 2, "after a start that failed at operation {skip}");
    }
    assert!(failed > 10, "most operations of a start matter");
}

#[test]
fn a_table_dropped_during_writes_frees_its_memory_and_its_log() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    for round in 0..4 {
        let table = create_table(&engine);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    for row in 0.. {
                        let write = block_on(engine.write(&insertion(table, writer, row, "in flight", 10)));
                        match write {
                            Ok(()) => {}
                            Err(EngineError::UnknownTable(_)) => return,
                            Err(error) => panic!("round {round}: {error}"),
                        }
                    }
                });
            }
            // The next table with this name replaces it.
            insert(&engine, &table, 9, 9, "first", 10);
            create_table(&engine);
        });
        let held: u64 = engine.all_table_stats().iter().map(|stats| stats.memtable_bytes).sum();
        assert_eq!(engine.memtable_bytes(), held, "dropped memtables count no more");
    }
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open_with(&small_options(&disk));
    assert_eq!(engine.replay_summary(), Default::default());
}
