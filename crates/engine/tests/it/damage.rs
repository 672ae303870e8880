//! SSTables that cannot be opened or read: which requests fail, and what continues to work.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use engine::{DiskFailureHook, DiskFailureKind, Engine, EngineError, EngineOptions};
use model::{KeyRange, PartitionKey, ReadRange, Slice, Slices, Table, UnfilteredCursor};
use testkit::TemporaryDirectory;

use crate::fixture::{clustering, create_table, insert, open_with, options, rows, small_options};

type Reported = Arc<Mutex<Vec<(DiskFailureKind, String)>>>;

fn component(directory: &TemporaryDirectory, name: &str) -> PathBuf {
    let tables = std::fs::read_dir(directory.0.join("data/ks")).unwrap();
    let files = tables.flat_map(|table| std::fs::read_dir(table.unwrap().path()).unwrap());
    let mut paths = files.map(|file| file.unwrap().path());
    paths.find(|path| path.to_string_lossy().ends_with(name)).unwrap()
}

fn reporting(directory: &TemporaryDirectory) -> (EngineOptions, Reported) {
    let reported = Reported::default();
    let hook_reports = reported.clone();
    let mut options = options(directory);
    options.on_disk_failure = Some(DiskFailureHook::new(move |kind, text| {
        hook_reports.lock().unwrap().push((kind, text.to_owned()));
    }));
    (options, reported)
}

/// A stopped node with one SSTable of a user's table.
fn filled(directory: &TemporaryDirectory) {
    let engine = Engine::open(options(directory)).unwrap();
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "one", 10);
    engine.shutdown().unwrap();
}

#[test]
fn an_sstable_that_cannot_be_opened_stops_the_start_or_its_table() {
    let directory = TemporaryDirectory::create();
    filled(&directory);
    let statistics = component(&directory, "Statistics.db");
    let whole = std::fs::read(&statistics).unwrap();
    std::fs::write(&statistics, &whole[..whole.len() / 2]).unwrap();
    let name = statistics.file_name().unwrap().to_string_lossy().into_owned();

    let (mut options, reported) = reporting(&directory);
    options.opens_damaged = false;
    let refused = Engine::open(options.clone()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains(&name), "{refused}");
    assert!(
        reported
            .lock()
            .unwrap()
            .iter()
            .any(|(kind, text)| *kind == DiskFailureKind::Corruption && text.contains(&name))
    );

    options.opens_damaged = true;
    let engine = Engine::open(options).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let says_why = |result: Result<(), EngineError>| assert!(result.unwrap_err().to_string().contains(&name));
    says_why(engine.read(&table, &ReadRange::all_rows(KeyRange::all())).map(|_| ()));
    says_why(engine.truncate(&table));
    says_why(engine.compact(&table));
    says_why(engine.snapshot(&table, "tag", "").map(|_| ()));
    engine.shutdown().unwrap();
    drop(engine);

    std::fs::write(&statistics, &whole).unwrap();
    let engine = crate::fixture::open(&directory);
    assert_eq!(rows(&engine, &table), [(1, 1, "one".into())]);
}

/// The number of rows that a read finds, or why they cannot be read.
fn try_rows(engine: &Engine, table: &Arc<Table>, range: &ReadRange) -> Result<usize, String> {
    let mut cursor = engine.read(table, range).map_err(|error| error.to_string())?;
    let mut found = 0;
    while cursor.advance_partition().map_err(|error| error.to_string())? {
        while cursor.advance().map_err(|error| error.to_string())? {
            found += 1;
        }
    }
    Ok(found)
}

#[test]
fn an_error_names_table_component_and_offset_of_damage_and_no_row_is_wrong() {
    let whole = SimulatedDisk::new();
    let mut options = small_options(&whole);
    options.column_index_size_bytes = 256;
    let engine = Engine::open(options).unwrap();
    let table = create_table(&engine);
    for row in 0..300 {
        insert(&engine, &table, row / 30, row, &"value".repeat(9), 10);
    }
    engine.shutdown().unwrap();
    drop(engine);
    let directory = PathBuf::from(format!("/node/data/ks/t-{}", table.id.0.simple()));
    for name in whole.list(&directory).unwrap().into_iter().map(|entry| entry.name) {
        let path = directory.join(&name);
        let length = whole.open(&path, OpenOptions::read()).unwrap().len().unwrap();
        let mut reported = BTreeSet::new();
        // The damage: a flipped bit at places all over the component, a missing last byte, and a missing component.
        let flips = (0..12).map(|part| (length - 1) * part / 11).map(Some);
        for (case, flip) in flips.chain([None, None]).enumerate() {
            let disk = whole.crash_image(0);
            match flip {
                Some(offset) => disk.flip_bit(&path, offset, (case % 8) as u8).unwrap(),
                None => {
                    let mut bytes = vec![0; length as usize];
                    disk.open(&path, OpenOptions::read()).unwrap().read_at(&mut bytes, 0).unwrap();
                    disk.remove_file(&path).unwrap();
                    if case == 12 {
                        let file = disk.open(&path, OpenOptions::create()).unwrap();
                        file.write_at(&bytes[..bytes.len() - 1], 0).unwrap();
                    }
                }
            }
            let mut options = small_options(&disk);
            options.opens_damaged = true;
            let engine = Engine::open(options).unwrap();
            let table = engine.schema().table("ks", "t").unwrap().clone();
            let slices = Slices::new(vec![Slice::prefix(&clustering(285))], table.comparator());
            let keys = KeyRange::Single(PartitionKey::new(&9_i32.to_be_bytes()));
            let one_row = ReadRange { keys, slices, reversed: false };
            for (range, expected) in [(ReadRange::all_rows(KeyRange::all()), 300), (one_row, 1)] {
                match try_rows(&engine, &table, &range) {
                    Ok(found) => assert_eq!(found, expected, "{name} {case}"),
                    Err(error) => {
                        assert!(error.contains("table ks.t: "), "{name} {case}: {error}");
                        assert!(error.contains("-bti-") && error.contains(" at offset "), "{name} {case}: {error}");
                        reported.extend(error.contains(&name).then_some(case));
                    }
                }
            }
        }
        // Of these components, only a missing TOC.txt is noticed.
        let is_read = !["Digest.crc32", "TOC.txt"].iter().any(|other| name.ends_with(other));
        assert!(!is_read || reported.len() > 12, "{name}: {reported:?}");
        assert!(!name.ends_with("TOC.txt") || reported.contains(&13), "{reported:?}");
    }
}

#[test]
fn damage_in_one_place_affects_no_other_rows() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    // The rows fill four chunks of data.
    for key in 0..60 {
        insert(&engine, &table, key, 1, &"value".repeat(200), 10);
    }
    engine.shutdown().unwrap();
    drop(engine);
    let directory = PathBuf::from(format!("/node/data/ks/t-{}", table.id.0.simple()));
    let data = disk.list(&directory).unwrap().into_iter().find(|entry| entry.name.ends_with("Data.db")).unwrap();
    let path = directory.join(data.name);
    let middle = disk.open(&path, OpenOptions::read()).unwrap().len().unwrap() / 2;
    disk.flip_bit(&path, middle, 3).unwrap();
    let engine = open_with(&small_options(&disk));
    let failed = (0..60).filter(|key: &i32| {
        let keys = KeyRange::Single(PartitionKey::new(&key.to_be_bytes()));
        match try_rows(&engine, &table, &ReadRange::all_rows(keys)) {
            Ok(found) => {
                assert_eq!(found, 1);
                false
            }
            Err(error) => {
                assert!(error.contains("table ks.t: "), "{error}");
                true
            }
        }
    });
    let failed = failed.count();
    assert!((1..30).contains(&failed), "{failed}");
}

#[test]
fn a_merge_reports_damage_and_keeps_its_inputs() {
    let directory = TemporaryDirectory::create();
    filled(&directory);
    let data = component(&directory, "Data.db");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&data, &bytes).unwrap();

    let (options, reported) = reporting(&directory);
    let engine = Engine::open(options).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let error = engine.compact(&table).unwrap_err().to_string();
    assert!(error.contains("table ks.t: ") && error.contains("Data.db"), "{error}");
    assert_eq!(reported.lock().unwrap().len(), 1);
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
    let mut cursor = engine.read(&table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let error = loop {
        match cursor.advance_partition() {
            Err(error) => break error,
            Ok(found) => assert!(found, "the damage was not seen"),
        }
    };
    assert_eq!(DiskFailureKind::of_read(&error), Some(DiskFailureKind::Corruption));
}

#[test]
fn a_flush_without_a_descriptor_is_no_failure_of_the_disk_and_is_tried_again() {
    let disk = SimulatedDisk::new();
    let reported = Reported::default();
    let hook_reports = reported.clone();
    let mut options = small_options(&disk);
    options.on_disk_failure = Some(DiskFailureHook::new(move |kind, text| {
        hook_reports.lock().unwrap().push((kind, text.to_owned()));
    }));
    let engine = open_with(&options);
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "one", 10);
    disk.inject_into("Data.db", Fault::OutOfDescriptors, 0);
    let refused = engine.flush(&table).unwrap_err().to_string();
    assert!(refused.contains("Too many open files"), "{refused}");
    assert!(reported.lock().unwrap().is_empty(), "{:?}", reported.lock().unwrap());
    engine.flush(&table).unwrap();
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
    assert_eq!(rows(&engine, &table).len(), 1);
}
