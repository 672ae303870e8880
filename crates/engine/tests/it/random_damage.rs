//! Damage of any file of a node: the start serves all other tables, or refuses and names the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use engine::Engine;
use model::{KeyRange, ReadRange, Table, TableBuilder, TableId, UnfilteredCursor};
use testkit::{Random, seeds};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{create_table, insert, open_with, rows, small_options};

const KEYS: i32 = 4;
const ROWS: i32 = 30;

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    FlippedBits,
    Cut,
    Deleted,
    Zeros,
    /// It has the bytes of another file of another kind.
    Swapped,
}

const DAMAGES: [Damage; 5] = [Damage::FlippedBits, Damage::Cut, Damage::Deleted, Damage::Zeros, Damage::Swapped];

/// A stopped node with rows in `ks.t` and `other.u`.
fn prepared() -> (SimulatedDisk, [Arc<Table>; 2]) {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.column_index_size_bytes = 256;
    let engine = open_with(&options);
    let table = create_table(&engine);
    let builder = TableBuilder::new("other", "u", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
    let mut keyspace = model::Keyspace::new("other", Default::default(), true);
    keyspace.tables.insert("u".into(), Arc::new(builder.regular("v", CqlType::Text).build()));
    engine.set_keyspace(keyspace).unwrap();
    let other = engine.schema().table("other", "u").unwrap().clone();
    for table in [&table, &other] {
        for row in 0..KEYS * ROWS {
            insert(&engine, table, row % KEYS, row, "a value of some length", 10);
        }
    }
    engine.shutdown().unwrap();
    drop(engine);
    (disk, [table, other])
}

fn files_below(disk: &SimulatedDisk, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in disk.list(directory).unwrap() {
        let path = directory.join(&entry.name);
        if entry.is_dir { files_below(disk, &path, found) } else { found.push(path) }
    }
}

fn content(disk: &SimulatedDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn replace(disk: &SimulatedDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenOptions::write()).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
}

/// The last part of a file's name: the component of an SSTable.
fn kind(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().rsplit('-').next().unwrap_or_default().to_owned()
}

fn do_damage(disk: &SimulatedDisk, files: &[PathBuf], path: &Path, damage: Damage, random: &mut Random) {
    let mut bytes = content(disk, path);
    let length = bytes.len();
    match damage {
        Damage::Deleted => return disk.remove_file(path).unwrap(),
        _ if length == 0 => return,
        Damage::FlippedBits => {
            for _ in 0..=random.below(4) {
                bytes[random.below(length)] ^= 1 << random.below(8);
            }
        }
        Damage::Cut => bytes.truncate(random.below(length)),
        Damage::Zeros => {
            let start = if random.one_in(2) { 0 } else { random.below(length) };
            bytes[start..].fill(0);
        }
        Damage::Swapped => {
            let others: Vec<_> = files.iter().filter(|other| kind(other) != kind(path)).collect();
            bytes = content(disk, others[random.below(others.len())]);
        }
    }
    replace(disk, path, &bytes);
}

/// How many rows a table shows, or why it cannot be read.
fn count(engine: &Engine, table: &Arc<Table>) -> Result<i32, String> {
    let range = ReadRange::all_rows(KeyRange::all());
    let mut cursor = engine.read(table, &range).map_err(|error| error.to_string())?;
    let mut found = 0;
    while cursor.advance_partition().map_err(|error| error.to_string())? {
        while cursor.advance().map_err(|error| error.to_string())? {
            found += 1;
        }
    }
    Ok(found)
}

/// Checks a table: all of it is there, or it says what is wrong. `is_hit` says whether its own file is damaged.
fn check(engine: &Engine, old: &Table, is_hit: bool, case: &str) {
    let schema = engine.schema();
    let Some(table) = schema.table(&old.keyspace, &old.name) else {
        let refusal = Engine::unreadable_table(&schema, &old.keyspace, &old.name);
        assert!(refusal.is_some(), "{case}: {} is gone", old.name);
        return;
    };
    match count(engine, table) {
        Ok(found) => assert_eq!(found, KEYS * ROWS, "{case}: rows of {}", old.name),
        Err(reason) => assert!(is_hit, "{case}: {} says {reason}", old.name),
    }
    if !is_hit {
        insert(engine, table, 100, 1, "anew", 20);
        assert_eq!(rows(engine, table).len() as i32, KEYS * ROWS + 1, "{case}");
    }
}

#[test]
fn damage_of_any_file_is_reported_and_affects_no_other_table() {
    let (whole, tables) = prepared();
    let mut files = Vec::new();
    files_below(&whole, Path::new("/node"), &mut files);
    let (mut served, mut refused) = (0, 0);
    for seed in seeds(0..1) {
        let random = &mut Random(seed);
        for path in &files {
            for damage in DAMAGES {
                let disk = whole.crash_image(0);
                let case = format!("seed {seed}, {damage:?} of {}", path.display());
                do_damage(&disk, &files, path, damage, random);
                let mut options = small_options(&disk);
                options.opens_damaged = true;
                let text = path.to_string_lossy();
                let of_table = |table: &Table| text.contains(&*table.id.0.simple().to_string());
                match Engine::open(options) {
                    Ok(engine) => {
                        served += 1;
                        tables.iter().for_each(|table| check(&engine, table, of_table(table), &case));
                        let _ = engine.shutdown();
                    }
                    Err(error) => {
                        refused += 1;
                        let error = error.to_string();
                        let is_of_user = tables.iter().any(|table| of_table(table));
                        assert!(!is_of_user, "{case}: a table of a user stops the start: {error}");
                        let name = path.file_name().unwrap().to_string_lossy();
                        assert!(error.contains(&*name), "{case}: the file is not named: {error}");
                    }
                }
            }
        }
    }
    println!("{served} starts served, {refused} refused, {} files", files.len());
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}
