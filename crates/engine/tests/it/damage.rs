//! SSTables that cannot be opened or read: who is told, and what goes on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use engine::{DiskFailureHook, DiskFailureKind, Engine, EngineError, EngineOptions};
use model::{KeyRange, ReadRange, UnfilteredCursor};

use crate::fixture::{Directory, create_table, insert, options, rows};

type Told = Arc<Mutex<Vec<(DiskFailureKind, String)>>>;

fn component(directory: &Directory, name: &str) -> PathBuf {
    let tables = std::fs::read_dir(directory.0.join("data/ks")).unwrap();
    let files = tables.flat_map(|table| std::fs::read_dir(table.unwrap().path()).unwrap());
    let mut paths = files.map(|file| file.unwrap().path());
    paths.find(|path| path.to_string_lossy().ends_with(name)).unwrap()
}

fn telling(directory: &Directory) -> (EngineOptions, Told) {
    let told = Told::default();
    let heard = told.clone();
    let mut options = options(directory);
    options.on_disk_failure = Some(DiskFailureHook::new(move |kind, text| {
        heard.lock().unwrap().push((kind, text.to_owned()));
    }));
    (options, told)
}

/// A stopped node with one SSTable, of a table of the schema.
fn filled(directory: &Directory) {
    let engine = Engine::open(options(directory)).unwrap();
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "one", 10);
    engine.shutdown().unwrap();
}

#[test]
fn an_sstable_that_cannot_be_opened_stops_the_start_or_its_table() {
    let directory = Directory::new();
    filled(&directory);
    let statistics = component(&directory, "Statistics.db");
    let whole = std::fs::read(&statistics).unwrap();
    std::fs::write(&statistics, &whole[..whole.len() / 2]).unwrap();
    let name = statistics.file_name().unwrap().to_string_lossy().into_owned();

    let (mut options, told) = telling(&directory);
    let refused = Engine::open(options.clone()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains(&name), "{refused}");
    assert!(
        told.lock().unwrap().iter().any(|(kind, text)| *kind == DiskFailureKind::Corruption && text.contains(&name))
    );

    options.opens_damaged = true;
    let engine = Engine::open(options).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let says_why = |result: Result<(), EngineError>| assert!(result.unwrap_err().to_string().contains(&name));
    says_why(engine.read(&table, &ReadRange::all_rows(KeyRange::all())).map(|_| ()));
    says_why(engine.truncate(&table));
    says_why(engine.compact(&table));
    says_why(engine.snapshot(&table, "tag", "").map(|_| ()));
    insert(&engine, &table, 2, 1, "two", 10);
    engine.shutdown().unwrap();
    drop(engine);

    std::fs::write(&statistics, &whole).unwrap();
    let engine = crate::fixture::open(&directory);
    assert_eq!(rows(&engine, &table), [(1, 1, "one".into()), (2, 1, "two".into())]);
}

#[test]
fn a_merge_that_meets_damage_tells_and_leaves_its_inputs() {
    let directory = Directory::new();
    filled(&directory);
    let data = component(&directory, "Data.db");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&data, &bytes).unwrap();

    let (options, told) = telling(&directory);
    let engine = Engine::open(options).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    assert!(engine.compact(&table).unwrap_err().to_string().contains("Data.db"));
    assert_eq!(told.lock().unwrap().len(), 1);
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
