//! Quarantine: a table that cannot be loaded, replayed or flushed is refused by name, all others work, and nothing is
//! lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blockio::{Disk, Fault, SimulatedDisk, SystemDisk};
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{
    Cell, KeyRange, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, ReadRange, RowBuilder, Table,
    TableBuilder, TableId,
};
use testkit::TemporaryDirectory;
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{create_table, insert, insertion, open_with, options, rows, small_options};

/// A node with the table `ks.t` of [`create_table`] and a similar table `other.u`.
pub fn two_tables(options: &EngineOptions) -> (Arc<Engine>, Arc<Table>, Arc<Table>) {
    let engine = open_with(options);
    create_table(&engine);
    let builder = TableBuilder::new("other", "u", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
    let mut keyspace = Keyspace::new("other", Default::default(), true);
    let other = Arc::new(builder.regular("v", CqlType::Text).build());
    keyspace.tables.insert(other.name.clone(), other);
    engine.set_keyspace(keyspace).unwrap();
    let (table, other) = tables(&engine);
    (engine, table, other)
}

fn tables(engine: &Engine) -> (Arc<Table>, Arc<Table>) {
    let schema = engine.schema();
    (schema.table("ks", "t").unwrap().clone(), schema.table("other", "u").unwrap().clone())
}

fn write_what_cannot_be_stored(engine: &Engine, table: &Arc<Table>) {
    block_on(engine.write(&what_cannot_be_stored(table))).unwrap();
}

/// A row without a clustering, which can be neither stored in an SSTable of the table nor replayed.
pub fn what_cannot_be_stored(table: &Arc<Table>) -> Mutation {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(10));
    builder.cell(0, &Cell::live(10, b"bad"));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&9_i32.to_be_bytes()));
    update.row(&[], &blob);
    Mutation::new(vec![update.build()])
}

fn side_files(directory: &TemporaryDirectory) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory.0.join("quarantine")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn table_directory(directory: &TemporaryDirectory, table: &Table) -> PathBuf {
    let name = format!("{}-{}", table.name, table.id.0.simple());
    directory.0.join("data").join(&*table.keyspace).join(name)
}

/// Checks that every request to the table is refused for this reason.
fn assert_refused(engine: &Engine, table: &Arc<Table>, reason: &str) {
    let refused = [
        engine.read(table, &ReadRange::all_rows(KeyRange::all())).map(|_| ()),
        block_on(engine.write(&crate::fixture::insertion(table, 1, 1, "refused", 10))),
        engine.truncate(table),
        engine.flush(table),
        engine.compact(table).map(|_| ()),
        engine.snapshot(table, "tag", "").map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(&error, EngineError::Quarantined { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("Table ks.t is quarantined: ") && text.contains(reason), "{text}");
    }
    let listed = engine.quarantined_tables();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].table == "t" && listed[0].reason.contains(reason), "{listed:?}");
}

fn drop_table(engine: &Engine, keyspace: &str) {
    let dropped = engine.change_schema::<_, EngineError>(|_, keyspaces| Ok(keyspaces.remove(keyspace).is_some()));
    assert!(dropped.unwrap().0);
}

#[test]
fn a_table_that_cannot_be_flushed_is_set_aside_and_all_others_are_served_and_drained() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table, other) = two_tables(&options);
    insert(&engine, &table, 1, 1, "good", 10);
    insert(&engine, &other, 1, 1, "other", 10);
    write_what_cannot_be_stored(&engine, &table);
    let reason = "0 clustering values";
    // The drain names the table, and flushes the other one.
    let error = engine.shutdown().unwrap_err().to_string();
    assert!(error.contains("ks.t") && error.contains(reason) && !error.contains("other.u"), "{error}");
    assert_eq!(side_files(&directory).len(), 1);
    drop(engine);

    let engine = open_with(&options);
    assert_eq!(engine.replay_summary().replayed, 0, "the log was drained");
    let (table, other) = tables(&engine);
    assert_refused(&engine, &table, reason);
    assert_eq!(rows(&engine, &other), [(1, 1, "other".into())]);
    // The cause is in the records themselves: repair names the place, and changes nothing.
    let error = engine.repair_table("ks", "t").unwrap_err().to_string();
    assert!(error.contains("quarantine") && error.contains("offset"), "{error}");
    assert_refused(&engine, &table, reason);

    drop_table(&engine, "ks");
    assert!(engine.quarantined_tables().is_empty() && side_files(&directory).is_empty());
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "anew", 10);
    engine.shutdown().unwrap();
}

#[test]
fn a_table_whose_log_records_cannot_be_read_is_set_aside_by_the_start() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table, other) = two_tables(&options);
    for row in 0..200 {
        insert(&engine, &table, row, 1, "good", 10);
        insert(&engine, &other, row, 1, "other", 10);
    }
    write_what_cannot_be_stored(&engine, &table);
    insert(&engine, &table, 300, 1, "good", 10);
    drop(engine);
    for _ in 0..2 {
        let engine = open_with(&options);
        let (table, other) = tables(&engine);
        assert_refused(&engine, &table, "commit log record ending at");
        assert_eq!(rows(&engine, &other).len(), 200);
        assert_eq!(side_files(&directory).len(), 1, "once they are set aside the log has none of them");
    }
    let bytes = std::fs::read(&side_files(&directory)[0]).unwrap();
    let good = bytes.windows(4).filter(|bytes| bytes == b"good").count();
    assert_eq!(good, 201, "no record is lost");
}

#[test]
fn repair_takes_a_table_back_with_what_was_set_aside() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table, other) = two_tables(&options);
    insert(&engine, &table, 1, 1, "flushed", 10);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 2, 1, "logged", 10);
    insert(&engine, &other, 1, 1, "other", 10);
    drop(engine);
    let files = std::fs::read_dir(table_directory(&directory, &table)).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let statistics = paths.find(|path| path.to_string_lossy().ends_with("Statistics.db")).unwrap();
    let whole = std::fs::read(&statistics).unwrap();
    std::fs::write(&statistics, &whole[..whole.len() / 2]).unwrap();
    let name = statistics.file_name().unwrap().to_string_lossy().into_owned();

    let engine = open_with(&options);
    let (table, other) = tables(&engine);
    assert_refused(&engine, &table, &name);
    assert_eq!(rows(&engine, &other), [(1, 1, "other".into())]);
    assert!(engine.repair_table("ks", "t").unwrap_err().to_string().contains(&name));
    assert!(engine.repair_table("other", "u").is_err(), "it is served");
    engine.shutdown().unwrap();
    drop(engine);

    // The cause is gone, but the table lacks the records that were set aside, so a start does not serve it by itself.
    std::fs::write(&statistics, &whole).unwrap();
    let engine = open_with(&options);
    let (table, _) = tables(&engine);
    assert_refused(&engine, &table, "set aside");
    let side_file = &side_files(&directory)[0];
    let sound = std::fs::read(side_file).unwrap();
    for (at, what) in [(0, "another file"), (11, "version"), (sound.len() / 2, "offset"), (sound.len() - 1, "checksum")]
    {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        std::fs::write(side_file, &damaged).unwrap();
        let error = engine.repair_table("ks", "t").unwrap_err().to_string();
        assert!(error.contains(what), "byte {at}: {error}");
    }
    std::fs::write(side_file, &sound).unwrap();
    // It is unknown which part of the log the damaged SSTable covers, so the record of its row is among them.
    assert_eq!(engine.repair_table("ks", "t").unwrap(), 2);
    let expected = vec![(1, 1, "flushed".to_owned()), (2, 1, "logged".to_owned())];
    assert_eq!(rows(&engine, &table), expected);
    assert!(side_files(&directory).is_empty() && engine.quarantined_tables().is_empty());
    insert(&engine, &table, 3, 1, "anew", 10);
    drop(engine);
    assert_eq!(rows(&open_with(&options), &table).len(), 3);
}

/// Writes 20 times the log's size at least, and for `ESPALIER_STUCK_TABLE_SECONDS`, while a table whose directory
/// cannot be made holds a record in the oldest segment.
#[test]
fn a_table_that_never_flushes_again_keeps_no_other_from_the_log() {
    let directory = TemporaryDirectory::create();
    let mut options = options(&directory);
    options.disk = Arc::new(SystemDisk::new());
    let (engine, table, other) = two_tables(&options);
    let obstacle = table_directory(&directory, &table);
    std::fs::create_dir_all(obstacle.parent().unwrap()).unwrap();
    std::fs::write(&obstacle, b"not a directory").unwrap();
    insert(&engine, &table, 1, 1, "kept", 10);
    let (value, limit_bytes) = ("v".repeat(32 << 10), options.commitlog.total_space_bytes);
    let seconds = std::env::var("ESPALIER_STUCK_TABLE_SECONDS").map_or(0, |seconds| seconds.parse().unwrap());
    let (began, least) = (Instant::now(), 20 * limit_bytes / (32 << 10));
    for row in 0.. {
        insert(&engine, &other, (row % 50) as i32, 1, &value, 10);
        assert!(engine.log_metrics().total_size_bytes <= limit_bytes, "the log grew past its limit");
        let loaded = row >= least && began.elapsed() >= Duration::from_secs(seconds);
        if loaded && !engine.quarantined_tables().is_empty() {
            break;
        }
    }
    assert_refused(&engine, &table, &table.id.0.simple().to_string());
    assert_eq!(rows(&engine, &other).len(), 50);
    std::fs::remove_file(&obstacle).unwrap();
    assert_eq!(engine.repair_table("ks", "t").unwrap(), 1);
    assert_eq!(rows(&engine, &table), [(1, 1, "kept".into())]);
    engine.shutdown().unwrap();
}

#[test]
fn a_flush_that_fails_once_is_tried_again_and_quarantines_nothing() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.commitlog.total_space_bytes = 4 * u64::from(options.commitlog.segment_size_bytes);
    let (engine, table, other) = two_tables(&options);
    insert(&engine, &table, 1, 1, "kept", 10);
    disk.inject_into("/data/ks/", Fault::Fail, 0);
    // The log has few segments until the table is flushed, which fails once.
    for row in 0..1000 {
        insert(&engine, &other, row % 50, 1, &"v".repeat(8 << 10), 10);
    }
    assert!(engine.quarantined_tables().is_empty());
    assert_eq!(rows(&engine, &table), [(1, 1, "kept".into())]);
    assert!(disk.list(Path::new("/node/data/ks")).unwrap().iter().any(|entry| entry.name.starts_with("t-")));
    engine.shutdown().unwrap();
}

#[test]
fn a_quarantine_that_fails_leaves_no_rows_behind_that_a_repair_would_bring_back() {
    for skip in 0..8 {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.opens_damaged = true;
        let (engine, table, _) = two_tables(&options);
        insert(&engine, &table, 1, 1, "old", 10);
        write_what_cannot_be_stored(&engine, &table);
        disk.inject_into("/quarantine", Fault::Fail, skip);
        let flushed = engine.flush(&table).unwrap_err();
        if matches!(flushed, EngineError::Quarantined { .. }) {
            assert!(skip > 0, "the fault was met");
            return;
        }
        engine.truncate(&table).unwrap();
        insert(&engine, &table, 1, 2, "new", 20);
        engine.flush(&table).unwrap();
        drop(engine);
        let engine = open_with(&options);
        assert_eq!(engine.quarantined_tables(), [], "fault {skip}");
        let (table, _) = tables(&engine);
        assert_eq!(rows(&engine, &table), [(1, 2, "new".into())], "fault {skip}");
    }
    panic!("more operations than were made to fail");
}

#[test]
fn a_table_that_cannot_be_flushed_gives_back_the_memory_that_others_wait_for() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    // The log always has enough segments.
    options.commitlog.total_space_bytes = 64 << 20;
    options.memtable_space_bytes = 2 << 20;
    let (engine, table, other) = two_tables(&options);
    disk.refuse_changes(Some("/data/ks/"));
    let mut refused = None;
    for row in 0..2000 {
        refused = block_on(engine.write(&insertion(&table, row, 1, &"v".repeat(4 << 10), 10))).err();
        if refused.is_some() {
            break;
        }
    }
    assert!(matches!(refused, Some(EngineError::Quarantined { .. })), "{refused:?}");
    insert(&engine, &other, 1, 1, "other", 10);
    disk.refuse_changes(None);
    assert!(engine.repair_table("ks", "t").unwrap() > 100);
    assert!(rows(&engine, &table).len() > 100);
    engine.shutdown().unwrap();
}

#[test]
fn a_start_serves_a_table_that_cannot_be_flushed_from_the_log() {
    let disk = SimulatedDisk::new();
    let options = small_options(&disk);
    let (engine, table, other) = two_tables(&options);
    insert(&engine, &table, 1, 1, "logged", 10);
    insert(&engine, &other, 1, 1, "other", 10);
    drop(engine);
    disk.refuse_changes(Some("/data/ks/"));
    for life in 0..2 {
        let engine = open_with(&options);
        let (table, other) = tables(&engine);
        assert_eq!(rows(&engine, &table).len(), 1 + life);
        assert_eq!(rows(&engine, &other), [(1, 1, "other".into())]);
        insert(&engine, &table, 2 + life as i32, 1, "later", 10);
    }
    disk.refuse_changes(None);
    let engine = open_with(&options);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open_with(&options);
    assert_eq!(engine.replay_summary().replayed, 0, "the flush covers what three lives logged");
    assert_eq!(rows(&engine, &tables(&engine).0).len(), 3);
}

#[test]
fn a_data_file_without_its_other_components_is_set_aside_and_named() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table, _) = two_tables(&options);
    insert(&engine, &table, 1, 1, "good", 10);
    engine.shutdown().unwrap();
    drop(engine);
    let own = table_directory(&directory, &table);
    std::fs::write(own.join("da-1-bti-Data.db"), b"left over").unwrap();
    let engine = open_with(&options);
    let moved = own.join("leftovers/da-1-bti-Data.db");
    assert_eq!(engine.leftovers(), std::slice::from_ref(&moved));
    assert_eq!(std::fs::read(&moved).unwrap(), b"left over");
    assert_eq!(rows(&engine, &table), [(1, 1, "good".into())]);
    assert!(engine.quarantined_tables().is_empty());
}

/// Every file under a directory, with its bytes and when it was last changed.
fn files_below(directory: &std::path::Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files_below(&entry)),
            false => {
                let changed = std::fs::metadata(&entry).unwrap().modified().unwrap();
                found.push((entry.clone(), std::fs::read(&entry).unwrap(), changed));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_start_to_read_only_changes_no_file_and_refuses_writes() {
    let directory = TemporaryDirectory::create();
    let mut options = options(&directory);
    let (engine, table, other) = two_tables(&options);
    insert(&engine, &table, 1, 1, "flushed", 10);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 2, 1, "logged", 10);
    insert(&engine, &other, 1, 1, "other", 10);
    write_what_cannot_be_stored(&engine, &other);
    drop(engine);
    std::fs::write(table_directory(&directory, &table).join("da-1-bti-Data.db"), b"left over").unwrap();
    let before = files_below(&directory.0);

    options.read_only = true;
    for _ in 0..2 {
        let engine = open_with(&options);
        let (table, _) = tables(&engine);
        assert_eq!(rows(&engine, &table).len(), 2, "from an SSTable and the log");
        assert_eq!(engine.quarantined_tables().len(), 1);
        let refused = [
            block_on(engine.write(&crate::fixture::insertion(&table, 3, 1, "refused", 10))),
            engine.begin_write(&engine.borrow_schema(), insertion(&table, 3, 1, "refused", 10)).map(|_| ()),
            engine.truncate(&table),
            engine.snapshot(&table, "tag", "").map(|_| ()),
            crate::fixture::set_options(&engine, &table, crate::fixture::memory_only(1)).map(|_| ()),
            engine.repair_table("other", "u").map(|_| ()),
        ];
        for refused in refused {
            let text = refused.unwrap_err().to_string();
            assert_eq!(text, "the node takes no writes: it was started with --read-only");
        }
        engine.flush_all().unwrap();
        engine.shutdown().unwrap();
    }
    assert!(before == files_below(&directory.0), "nothing on the disk has changed");
    options.read_only = false;
    assert_eq!(rows(&open_with(&options), &table).len(), 2);
}
