//! The state after a crash, a stop or a fault in the middle of truncations, drops and flushes.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use blockio::{Disk, Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{Keyspace, Mutation, Table, TableBuilder, TableId};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{insert, insertion, open_with, rows, small_options};
use crate::gated_disk::GatedDisk;

fn open(disk: &SimulatedDisk) -> Arc<Engine> {
    open_with(&small_options(disk))
}

fn table(name: &str, id: Uuid) -> Arc<Table> {
    let builder = TableBuilder::new("ks", name, TableId(id)).partition_key("k", CqlType::Int);
    Arc::new(builder.clustering("c", CqlType::Int, false).regular("v", CqlType::Text).build())
}

/// Makes `tables` the only tables of the keyspace.
fn set_tables(engine: &Engine, tables: &[&Arc<Table>], durable_writes: bool) -> Result<(), EngineError> {
    let mut keyspace = Keyspace::new("ks", Default::default(), durable_writes);
    keyspace.tables.extend(tables.iter().map(|table| (table.name.clone(), Arc::clone(table))));
    engine.set_keyspace(keyspace)
}

fn create<const N: usize>(engine: &Engine, names: [&str; N]) -> [Arc<Table>; N] {
    let tables = names.map(|name| table(name, Uuid::new_v4()));
    set_tables(engine, &tables.iter().collect::<Vec<_>>(), true).unwrap();
    tables
}

/// One mutation that inserts the row into all tables.
fn batch(tables: &[&Arc<Table>], key: i32, row: i32) -> Mutation {
    Mutation::new(tables.iter().map(|table| insertion(table, key, row, "batch", 10).updates()[0].clone()).collect())
}

fn directory_of(table: &Table) -> PathBuf {
    Path::new("/node/data/ks").join(format!("{}-{}", table.name, table.id.0.simple()))
}

#[test]
fn a_write_concurrent_with_a_truncation_is_gone_or_kept_now_and_after_a_restart() {
    for round in 0..6 {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.commitlog.sync = SyncMode::Periodic { period: Duration::from_millis(10) };
        let engine = open_with(&options);
        let [t] = create(&engine, ["t"]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (engine, t, stop) = (&engine, &t, &stop);
                scope.spawn(move || {
                    let rows = (0..).take_while(|_| !stop.load(Ordering::Relaxed));
                    rows.for_each(|row| insert(engine, t, writer, row, "x", 10));
                });
            }
            (0..200).for_each(|_| engine.truncate(&t).unwrap());
            stop.store(true, Ordering::Relaxed);
        });
        let before = rows(&engine, &t);
        drop(engine);
        let engine = open_with(&options);
        assert_eq!(rows(&engine, &t), before, "round {round}");
    }
}

#[test]
fn a_batch_whose_client_hangs_up_during_a_shutdown_is_whole_after_the_restart() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [a, b] = create(&engine, ["a", "b"]);
    // One of the tables has something to flush, and the other has not.
    insert(&engine, &a, 0, 0, "before", 10);
    let mutation = batch(&[&a, &b], 1, 1);
    std::thread::scope(|scope| {
        let mut write = Box::pin(engine.write(&mutation));
        let polled = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let stopping = scope.spawn(|| engine.shutdown().unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(polled.is_ready() || !stopping.is_finished(), "writes under way are waited for");
        drop(write);
    });
    assert!(matches!(block_on(engine.write(&mutation)), Err(EngineError::ClosedForWrites(_))));
    drop(engine);
    let engine = open(&disk);
    assert_eq!(engine.replay_summary(), Default::default());
    assert_eq!(rows(&engine, &a).len(), 2);
    assert_eq!(rows(&engine, &b).len(), 1);
}

/// Tries each case with a fault after 0, 1, 2... operations of the disk, until `is_past` returns that the fault came
/// after the last operation.
fn at_every_step<C: Copy>(cases: impl Iterator<Item = C>, mut is_past: impl FnMut(u64, C) -> bool) {
    for case in cases {
        let steps = (0..).find(|skip| is_past(*skip, case));
        assert!(steps > Some(20), "the act has steps: {steps:?}");
    }
}

#[test]
fn a_drop_that_is_cut_short_is_finished_by_the_next_start_and_snapshots_stay() {
    let prepared = SimulatedDisk::new();
    let engine = open(&prepared);
    let [dropped, kept] = create(&engine, ["dropped", "kept"]);
    for row in 0..2 {
        block_on(engine.write(&batch(&[&dropped, &kept], 1, row))).unwrap();
        engine.flush(&dropped).unwrap();
    }
    let snapshot = engine.snapshot(&kept, "kept", "").unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let (mut finished, mut undone, mut done_by_start) = (0, 0, 0);
    let acts: [&[&Arc<Table>]; 2] = [&[&kept], &[]];
    let cases = [Fault::PowerCut, Fault::Fail].into_iter().flat_map(|fault| acts.map(|left| (fault, left)));
    at_every_step(cases, |skip, (fault, left)| {
        let disk = prepared.crash_image(skip);
        let engine = open(&disk);
        let before = disk.operations();
        disk.inject(fault, skip);
        let result = set_tables(&engine, left, true);
        let is_past = result.is_ok() && disk.operations() - before <= skip;
        let image = disk.crash_image(skip * 7);
        drop(engine);
        let left_over = image.exists(&directory_of(&dropped)).unwrap();
        let engine = open(&image);
        let is_there = engine.schema().table("ks", "dropped").is_some();
        assert!(result.is_err() || !is_there);
        finished += u32::from(result.is_ok());
        undone += u32::from(is_there);
        done_by_start += u32::from(left_over && !is_there);
        if is_there {
            assert_eq!(rows(&engine, &dropped).len(), 2, "not dropped after {skip} operations");
        } else {
            assert!(!image.exists(&directory_of(&dropped)).unwrap(), "left after {skip} operations and {fault:?}");
        }
        // The directory stays because of its snapshot.
        assert_eq!(image.list(&snapshot).unwrap(), prepared.list(&snapshot).unwrap());
        let files = image.list(&directory_of(&kept)).unwrap().len();
        assert_eq!(files > 1, engine.schema().table("ks", "kept").is_some());
        is_past
    });
    assert!(finished >= 4 && undone > 0 && done_by_start > 5, "{finished} {undone} {done_by_start}");
}

#[test]
fn a_table_with_the_id_of_a_dropped_one_gets_none_of_its_rows() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [old] = create(&engine, ["t"]);
    insert(&engine, &old, 1, 1, "flushed", 10);
    engine.flush(&old).unwrap();
    insert(&engine, &old, 1, 2, "logged", 10);
    set_tables(&engine, &[], true).unwrap();
    let builder = TableBuilder::new("ks", "t", old.id).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).regular("other", CqlType::Int);
    let new = Arc::new(builder.regular("v", CqlType::Text).build());
    set_tables(&engine, &[&new], true).unwrap();
    let new = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&engine, &new), []);
    drop(engine);
    let engine = open(&disk.crash_image(3));
    let new = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&engine, &new), []);
}

#[test]
fn truncations_write_no_sstable_and_survive_a_crash() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [t, u] = create(&engine, ["t", "u"]);
    std::thread::scope(|scope| {
        for table in [&t, &u] {
            let engine = &engine;
            scope.spawn(move || {
                for row in 0..50 {
                    insert(engine, table, 1, row, "truncated", 10);
                    engine.truncate(table).unwrap();
                }
            });
        }
    });
    insert(&engine, &t, 2, 1, "kept", 10);
    let local = engine.schema().table("system", "local").unwrap().clone();
    assert!(engine.table_stats(&local).unwrap().sstable_count <= 1);
    let image = disk.crash_image(5);
    drop(engine);
    let engine = open(&image);
    assert_eq!(rows(&engine, &t), [(2, 1, "kept".into())]);
    assert_eq!(rows(&engine, &u), []);
}

/// Writes a row on another node, and copies its SSTable into the table's directory.
fn put_by_hand(disk: &SimulatedDisk, table: &Arc<Table>, row: i32) {
    let mut options = small_options(disk);
    let moved = |path: &Path| Path::new("/other").join(path.strip_prefix("/node").unwrap());
    options.directory = moved(&options.directory);
    options.commitlog.directory = moved(&options.commitlog.directory);
    let other = open_with(&options);
    set_tables(&other, &[table], true).unwrap();
    insert(&other, table, 1, row, "copied", 10);
    other.flush(table).unwrap();
    let (own, theirs) = (directory_of(table), moved(&directory_of(table)));
    let files = disk.list(&theirs).unwrap().into_iter().filter(|entry| !entry.is_dir);
    files.for_each(|file| disk.hard_link(&theirs.join(&file.name), &own.join(&file.name)).unwrap());
    disk.sync_dir(&own).unwrap();
}

#[test]
fn a_truncation_that_is_cut_short_is_complete_or_without_effect() {
    let prepared = SimulatedDisk::new();
    let engine = open(&prepared);
    let [t] = create(&engine, ["t"]);
    // Otherwise each start of the many would write the SSTables of the schema.
    engine.flush_all().unwrap();
    for row in 0..3 {
        insert(&engine, &t, 1, row, "flushed", 10);
        engine.flush(&t).unwrap();
    }
    insert(&engine, &t, 1, 3, "logged", 10);
    drop(engine);
    put_by_hand(&prepared, &t, 4);
    let prepared = prepared.crash_image(0);
    let (mut whole, mut none) = (0, 0);
    at_every_step([Fault::PowerCut, Fault::Fail].into_iter(), |skip, fault| {
        let disk = prepared.crash_image(skip);
        let engine = open(&disk);
        let before = disk.operations();
        disk.inject(fault, skip);
        let result = engine.truncate(&t);
        let is_past = result.is_ok() && disk.operations() - before <= skip;
        let image = disk.crash_image(skip * 11);
        drop(engine);
        let found = rows(&open(&image), &t).len();
        match found {
            0 => whole += 1,
            5 => none += 1,
            part => panic!("{part} of 5 rows after {skip} operations and {fault:?}"),
        }
        assert!(result.is_err() || found == 0);
        is_past
    });
    assert!(whole > 5 && none > 0, "{whole} {none}");
}

#[test]
fn rows_that_a_truncation_could_not_delete_do_not_return_after_later_ones() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [t] = create(&engine, ["t"]);
    insert(&engine, &t, 1, 1, "truncated", 10);
    engine.flush(&t).unwrap();
    disk.refuse_changes(Some("/ks/t-"));
    assert!(engine.truncate(&t).is_err(), "its files are still there");
    assert_eq!(rows(&engine, &t), []);
    // The truncation is durable, and this truncation has nothing left to delete.
    engine.truncate(&t).unwrap();
    insert(&engine, &t, 2, 1, "kept", 10);
    // A start that also fails to delete them serves the table without them.
    for _ in 0..2 {
        let disk = disk.after_process_death();
        disk.refuse_changes(Some("/ks/t-"));
        assert_eq!(rows(&open(&disk), &t), [(2, 1, "kept".into())]);
    }
    drop(engine);
    disk.refuse_changes(None);
    let engine = open(&disk);
    assert_eq!(rows(&engine, &t), [(2, 1, "kept".into())]);
    drop(engine);
    let engine = open(&disk.crash_image(7));
    assert_eq!(rows(&engine, &t), [(2, 1, "kept".into())]);
}

#[test]
fn undeletable_files_of_a_dropped_table_do_not_stop_a_start() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [t, u] = create(&engine, ["t", "u"]);
    for table in [&t, &u] {
        insert(&engine, table, 1, 1, "flushed", 10);
        engine.flush(table).unwrap();
    }
    disk.refuse_changes(Some("/ks/t-"));
    set_tables(&engine, &[&u], true).unwrap_err();
    drop(engine);
    let engine = open(&disk);
    assert_eq!(rows(&engine, &u), [(1, 1, "flushed".into())]);
    assert!(disk.exists(&directory_of(&t)).unwrap());
    drop(engine);
    disk.refuse_changes(None);
    drop(open(&disk));
    assert!(!disk.exists(&directory_of(&t)).unwrap(), "the drop is finished once it can be");
}

/// Links the files of an SSTable from a snapshot into its table's directory, as an operator does to restore it.
fn put_back(disk: &SimulatedDisk, table: &Table, snapshot: &Path) {
    let own = directory_of(table);
    let files = disk.list(snapshot).unwrap().into_iter().filter(|entry| entry.name.starts_with("da-"));
    files.for_each(|file| disk.hard_link(&snapshot.join(&file.name), &own.join(&file.name)).unwrap());
    disk.sync_dir(&own).unwrap();
}

#[test]
fn rows_restored_from_a_snapshot_after_a_truncation_stay() {
    // The truncation is finished before the node stops, or by the next start.
    for cut in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
        let disk = SimulatedDisk::new();
        let engine = open(&disk);
        let [t] = create(&engine, ["t"]);
        insert(&engine, &t, 1, 1, "from the snapshot", 10);
        let snapshot = engine.snapshot(&t, "s", "").unwrap();
        insert(&engine, &t, 1, 2, "truncated", 10);
        engine.flush(&t).unwrap();
        let probe = disk.crash_image(0);
        let operations = {
            let engine = open(&probe);
            let before = probe.operations();
            engine.truncate(&t).unwrap();
            probe.operations() - before
        };
        assert!(operations > 8, "{operations}");
        if let Some(cut) = cut {
            disk.inject(Fault::PowerCut, operations - 5 + cut);
        }
        let truncated = engine.truncate(&t);
        assert!(cut.is_some() || truncated.is_ok());
        let disk = disk.crash_image(1);
        drop(engine);
        let engine = open(&disk);
        assert_eq!(rows(&engine, &t), [], "cut {cut:?}");
        insert(&engine, &t, 1, 3, "new", 10);
        engine.shutdown().unwrap();
        drop(engine);
        put_back(&disk, &t, &snapshot);
        for start in 0..2 {
            let engine = open(&disk);
            assert_eq!(rows(&engine, &t).len(), 2, "cut {cut:?}, start {start}");
            engine.shutdown().unwrap();
        }
        // The next truncation removes it.
        let engine = open(&disk);
        engine.truncate(&t).unwrap();
        drop(engine);
        assert_eq!(rows(&open(&disk), &t), []);
    }
}

/// A node with a clock that the test sets, and a log of few segments, all of which a start reads.
fn small_options_by(clock: &Arc<AtomicI64>, disk: &SimulatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.commitlog.total_space_bytes = 2 << 20;
    let clock = Arc::clone(clock);
    options.commitlog.clock = Arc::new(move || clock.load(Ordering::Relaxed));
    options
}

/// A node that had an SSTable and a truncation and was stopped at 5000 on its clock, and that now starts at 10.
fn stopped_before_the_clock_stepped_back() -> (SimulatedDisk, Arc<AtomicI64>, [Arc<Table>; 2]) {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicI64::new(5000)));
    let engine = open_with(&small_options_by(&clock, &disk));
    let [flushed, truncated] = create(&engine, ["flushed", "truncated"]);
    block_on(engine.write(&batch(&[&flushed, &truncated], 1, 1))).unwrap();
    engine.flush(&flushed).unwrap();
    engine.truncate(&truncated).unwrap();
    engine.shutdown().unwrap();
    clock.store(10, Ordering::Relaxed);
    (disk, clock, [flushed, truncated])
}

/// Writes a row and crashes. Everything must be there.
fn check_acknowledged(
    options: &EngineOptions,
    disk: &SimulatedDisk,
    [flushed, truncated]: [&Arc<Table>; 2],
    case: &str,
) {
    let image = |seed| {
        let image = disk.crash_image(seed);
        (EngineOptions { disk: Arc::new(image.clone()), ..options.clone() }, image)
    };
    let (options, disk) = image(1);
    let engine = open_with(&options);
    block_on(engine.write(&batch(&[flushed, truncated], 2, 2))).unwrap();
    let crashed = EngineOptions { disk: Arc::new(disk.crash_image(2)), ..options.clone() };
    // The earlier truncation does not apply to flushed SSTables either.
    engine.flush_all().unwrap();
    let flushed_too = EngineOptions { disk: Arc::new(disk.crash_image(3)), ..options };
    drop(engine);
    for options in [crashed, flushed_too] {
        let engine = open_with(&options);
        assert_eq!([rows(&engine, flushed).len(), rows(&engine, truncated).len()], [2, 1], "{case}");
    }
}

#[test]
fn a_clock_that_steps_back_covers_no_record_of_a_log_of_another_layout() {
    let (prepared, clock, [flushed, truncated]) = stopped_before_the_clock_stepped_back();
    let mut cuts = 0;
    for skip in 0..40 {
        let disk = prepared.crash_image(skip);
        let mut options = small_options_by(&clock, &disk);
        options.commitlog.segment_size_bytes *= 2;
        disk.inject(Fault::PowerCut, skip);
        cuts += u32::from(Engine::open(options.clone()).is_err());
        check_acknowledged(&options, &disk, [&flushed, &truncated], &format!("cut after {skip} operations"));
    }
    assert!(cuts > 20, "{cuts}");
}

#[test]
fn a_clock_that_steps_back_covers_no_record_of_a_new_log() {
    let (disk, clock, [flushed, truncated]) = stopped_before_the_clock_stepped_back();
    disk.remove_file(Path::new("/node/commitlog/commitlog.log")).unwrap();
    disk.sync_dir(Path::new("/node/commitlog")).unwrap();
    let options = small_options_by(&clock, &disk);
    check_acknowledged(&options, &disk, [&flushed, &truncated], "no log");
}

/// A node refuses the log of another node, even if it has no log yet.
#[test]
fn a_log_of_another_node_is_refused() {
    let disk = SimulatedDisk::new();
    let own = small_options(&disk);
    let engine = open_with(&own);
    let [t] = create(&engine, ["t"]);
    insert(&engine, &t, 1, 1, "kept", 10);
    drop(engine);
    let mut other = EngineOptions { directory: "/other".into(), ..own.clone() };
    let refusal = |options: &EngineOptions| loop {
        match Engine::open(options.clone()) {
            Err(EngineError::Disk(error)) if error.kind() == blockio::DiskErrorKind::Locked => {
                std::thread::sleep(crate::fixture::PAUSE);
            }
            opened => break opened.err().expect("a refusal").to_string(),
        }
    };
    for _ in 0..2 {
        let reported = refusal(&other);
        assert!(
            reported.contains("/node/commitlog/commitlog.log") && reported.contains("belongs to host"),
            "{reported}"
        );
    }
    other.commitlog.directory = "/other/commitlog".into();
    drop(open_with(&other));
    other.commitlog.directory = own.commitlog.directory.clone();
    assert!(refusal(&other).contains("belongs to host"));
    // An older build kept no host id: the log is the node's own.
    let kept = Path::new("/node/host-id");
    disk.remove_file(kept).unwrap();
    let engine = open_with(&own);
    assert_eq!(rows(&engine, &t).len(), 1);
    drop(engine);
    let file = disk.open(kept, blockio::OpenOptions::write()).unwrap();
    file.write_at(b"?", 3).unwrap();
    assert!(refusal(&own).contains("/node/host-id does not hold the host id"));
}

/// The first start of a node, or a start that finds no log, is cut short. The next start never refuses the node's own
/// log.
#[test]
fn a_power_cut_while_a_log_is_created_does_not_stop_the_next_start() {
    let stopped = SimulatedDisk::new();
    open(&stopped).shutdown().unwrap();
    stopped.remove_file(Path::new("/node/commitlog/commitlog.log")).unwrap();
    stopped.sync_dir(Path::new("/node/commitlog")).unwrap();
    let mut cuts = 0;
    for (skip, prepared) in (0..60).flat_map(|skip| [(skip, SimulatedDisk::new()), (skip, stopped.crash_image(skip))]) {
        prepared.inject(Fault::PowerCut, skip);
        cuts += u32::from(Engine::open(small_options(&prepared)).is_err());
        let disk = prepared.crash_image(skip);
        let engine = open(&disk);
        let [t] = create(&engine, ["t"]);
        insert(&engine, &t, 1, 1, "kept", 10);
        let image = disk.crash_image(1);
        drop(engine);
        assert_eq!(rows(&open(&image), &t).len(), 1, "cut after {skip} operations");
    }
    assert!(cuts > 60, "{cuts}");
}

#[test]
fn a_keyspace_without_durable_writes_is_not_in_the_log_and_keeps_what_was_flushed() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let t = table("t", Uuid::new_v4());
    set_tables(&engine, &[&t], false).unwrap();
    insert(&engine, &t, 1, 1, "truncated", 10);
    engine.truncate(&t).unwrap();
    insert(&engine, &t, 1, 2, "flushed", 10);
    engine.flush(&t).unwrap();
    insert(&engine, &t, 1, 3, "lost", 10);
    assert_eq!(rows(&engine, &t).len(), 2);
    let image = disk.crash_image(1);
    drop(engine);
    assert_eq!(rows(&open(&image), &t), [(1, 2, "flushed".into())]);
}

#[test]
fn a_stop_without_time_leaves_logged_tables_in_the_log_and_flushes_the_others() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [logged, unlogged] = ["logged", "unlogged"].map(|name| table(name, Uuid::new_v4()));
    set_tables(&engine, &[&logged, &unlogged], true).unwrap();
    let mut keyspace = Keyspace::new("other", Default::default(), false);
    let other = TableBuilder::new("other", "t", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let other = Arc::new(other.clustering("c", CqlType::Int, false).regular("v", CqlType::Text).build());
    keyspace.tables.insert(other.name.clone(), other.clone());
    engine.set_keyspace(keyspace).unwrap();
    insert(&engine, &logged, 1, 1, "logged", 10);
    insert(&engine, &other, 1, 2, "never logged", 10);
    // The keyspace is logged again: the row before stays out of the log.
    set_tables(&engine, &[&logged, &unlogged], false).unwrap();
    insert(&engine, &unlogged, 1, 3, "once not logged", 10);
    set_tables(&engine, &[&logged, &unlogged], true).unwrap();
    let left = engine.shutdown_within(Duration::ZERO).unwrap();
    assert!(left > 0);
    assert!(block_on(engine.write(&insertion(&logged, 1, 4, "too late", 10))).is_err());
    let image = disk.crash_image(1);
    drop(engine);
    let engine = open(&image);
    assert!(engine.replay_summary().replayed > 0);
    assert_eq!(rows(&engine, &logged), [(1, 1, "logged".into())]);
    assert_eq!(rows(&engine, &other), [(1, 2, "never logged".into())]);
    assert_eq!(rows(&engine, &unlogged), [(1, 3, "once not logged".into())]);
    engine.shutdown().unwrap();
    drop(engine);
    assert_eq!(open(&image).replay_summary().replayed, 0, "a drain leaves nothing");
}

#[test]
fn a_stop_gives_up_a_flush_that_is_under_way_and_loses_nothing() {
    let disk = SimulatedDisk::new();
    let gated = GatedDisk::new(&disk, "-Data.db");
    let options = EngineOptions { disk: Arc::new(gated.clone()), ..small_options(&disk) };
    let engine = open_with(&options);
    let [t] = create(&engine, ["t"]);
    (0..50).for_each(|row| insert(&engine, &t, 1, row, "kept", 10));
    gated.close();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| engine.flush(&t));
        gated.wait_for(1);
        let stop = scope.spawn(|| engine.shutdown_within(Duration::ZERO));
        // Writes are refused once the stop has begun.
        while block_on(engine.write(&insertion(&t, 2, 1, "meanwhile", 10))).is_ok() {}
        gated.open_for_all();
        assert!(matches!(flush.join().unwrap(), Err(EngineError::OutOfTime)));
        assert!(stop.join().unwrap().unwrap() > 0);
    });
    assert_eq!(disk.list(&directory_of(&t)).unwrap().len(), 0, "no part of an SSTable is left");
    let before = rows(&engine, &t);
    drop(engine);
    assert_eq!(rows(&open(&disk), &t), before);
}

#[test]
fn a_failed_flush_is_reported_and_the_next_one_writes_everything() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let [t] = create(&engine, ["t"]);
    let used = |disk: &SimulatedDisk| {
        disk.space(Path::new("/node")).map(|space| space.total_bytes - space.free_bytes).unwrap()
    };
    for row in 0..5 {
        insert(&engine, &t, 1, row, &"kept".repeat(1000), 10);
        // There is room for a part of the table only.
        disk.set_capacity(used(&disk) + 1000 * row as u64);
        let error = engine.flush(&t).unwrap_err();
        assert!(error.to_string().contains("/node/data/ks/t-"), "{error}");
        assert_eq!(rows(&engine, &t).len(), row as usize + 1, "reads go on");
        disk.set_capacity(1 << 30);
    }
    engine.flush(&t).unwrap();
    assert_eq!(engine.table_stats(&t).unwrap().memtable_partition_count, 0);
    let count = rows(&engine, &t).len();
    let image = disk.crash_image(2);
    drop(engine);
    assert_eq!(rows(&open(&image), &t).len(), count);
}

/// A start replays into memory and is then ready. Flushes in the background free the log. If the node is killed before,
/// during or after them, the next start finds the same rows, and nothing that was truncated or dropped.
#[test]
fn replayed_records_stay_in_the_log_until_they_are_flushed() {
    let disk = SimulatedDisk::new();
    // The replayed records take a large part of the memory, and are not flushed before the node is ready.
    let open =
        |disk: &SimulatedDisk| open_with(&EngineOptions { memtable_space_bytes: 1 << 20, ..small_options(disk) });
    let engine = open(&disk);
    let [flushed, truncated, dropped, kept] = create(&engine, ["flushed", "truncated", "dropped", "kept"]);
    for row in 0..200 {
        block_on(engine.write(&batch(&[&flushed, &truncated, &dropped, &kept], row % 7, row))).unwrap();
        match row {
            100 => engine.flush(&flushed).unwrap(),
            120 => engine.truncate(&truncated).unwrap(),
            150 => engine.flush(&kept).unwrap(),
            _ => {}
        }
    }
    set_tables(&engine, &[&flushed, &truncated, &kept], true).unwrap();
    let all = |engine: &Engine| [rows(engine, &flushed), rows(engine, &truncated), rows(engine, &kept)];
    let before = all(&engine);
    assert_eq!([200, 79, 200], [before[0].len(), before[1].len(), before[2].len()]);
    drop(engine);
    for seed in 0..12 {
        let image = disk.crash_image(seed);
        let engine = open(&image);
        assert!(engine.replay_summary().replayed > 0);
        assert!(engine.replay_summary().of_dropped_tables > 0, "the log has records of the table that is gone");
        let flushes = engine.flush_stats();
        assert!(flushes.pending as u64 + flushes.active as u64 + flushes.completed > 0, "in the background");
        assert_eq!(all(&engine), before, "seed {seed}");
        insert(&engine, &kept, 99, seed as i32, "after", 20);
        if seed % 3 == 1 {
            engine.truncate(&truncated).unwrap();
        }
        // A flush may be running or not.
        let image = image.crash_image(seed * 31);
        drop(engine);
        let engine = open(&image);
        assert_eq!(rows(&engine, &kept).len(), 201, "seed {seed}");
        assert_eq!(rows(&engine, &truncated).len(), if seed % 3 == 1 { 0 } else { 79 }, "seed {seed}");
        let after = all(&engine);
        engine.flush_all().unwrap();
        let image = image.crash_image(seed * 37);
        drop(engine);
        let engine = open(&image);
        assert_eq!(engine.replay_summary().replayed, 0, "all of it is in SSTables");
        assert_eq!(all(&engine), after, "seed {seed}");
    }
}
