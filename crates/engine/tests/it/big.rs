//! SSTables of Cassandra's older format `big` are imported and rewritten, all of them or none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use engine::Engine;
use model::{KeyRange, Keyspace, ReadRange, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor};
use sstable::{Descriptor, list_tables, verify};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{open_with, small_options};

pub const VERSIONS: [&str; 2] = ["nb", "oa"];
/// The SSTables of the fixture.
pub const COUNT: usize = 2;
const SOURCE: &str = "/foreign/up/wide";

/// The fixture's schema, as `ks.t`.
pub fn create_wide(engine: &Engine) -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(7))).partition_key("p", CqlType::Int);
    let builder = builder.clustering("a", CqlType::Int, true).clustering("b", CqlType::Text, false);
    let builder = builder.static_column("s", CqlType::Text).regular("v", CqlType::Text).regular("w", CqlType::Int);
    let table = Arc::new(builder.drop_column("w", CqlType::Int, 1_800_000_000_000_000).build());
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.insert(table.name.clone(), table.clone());
    engine.set_keyspace(keyspace).unwrap();
    table
}

/// Writes Cassandra's files to a disk.
pub fn put_wide(version: &str, disk: &SimulatedDisk, directory: &Path) {
    disk.create_dir_all(directory).unwrap();
    for entry in std::fs::read_dir(fixture(version)).unwrap() {
        let path = entry.unwrap().path();
        put(disk, &directory.join(path.file_name().unwrap()), &std::fs::read(&path).unwrap());
    }
    directory.ancestors().for_each(|ancestor| disk.sync_dir(ancestor).unwrap());
}

/// Returns whether a node has the right number of live rows in each partition. The second partition was deleted.
pub fn is_wide(engine: &Engine, table: &Arc<Table>) -> bool {
    live_rows(engine, table) == BTreeMap::from([(1, 360), (3, 1)])
}

fn fixture(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sstable/tests/from_cassandra/5.0.8-big").join(version).join("wide")
}

pub fn put(disk: &SimulatedDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenOptions::create()).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
}

fn live_rows(engine: &Engine, table: &Arc<Table>) -> BTreeMap<i32, usize> {
    let mut cursor = engine.read(table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let mut live = BTreeMap::new();
    while cursor.advance_partition().unwrap() {
        let key = i32::from_be_bytes(cursor.partition().key.bytes().try_into().unwrap());
        while cursor.advance().unwrap() {
            if matches!(cursor.unfiltered(), Unfiltered::Row(row) if row.row.is_live(table, 1000)) {
                *live.entry(key).or_default() += 1;
            }
        }
    }
    live
}

fn reopen(disk: &SimulatedDisk) -> (Arc<Engine>, Arc<Table>) {
    let engine = open_with(&small_options(disk));
    let table = engine.schema().table("ks", "t").unwrap().clone();
    (engine, table)
}

/// A node with the table, and SSTables for it in another directory.
fn prepared(version: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    put_wide(version, &disk, Path::new(SOURCE));
    let engine = open_with(&small_options(&disk));
    create_wide(&engine);
    // Otherwise each start of the many would write the SSTables of the schema.
    engine.shutdown().unwrap();
    disk.crash_image(0)
}

/// Checks that the table's directory contains only sound SSTables. Returns how many there are.
fn sound_sstables(disk: &SimulatedDisk, table: &Arc<Table>) -> usize {
    let directory = PathBuf::from(format!("/node/data/ks/t-{}", table.id.0.simple()));
    if !disk.exists(&directory).unwrap() {
        return 0;
    }
    let sstables = list_tables(disk, &directory).unwrap();
    for sstable in &sstables {
        verify(disk, sstable, table, true).unwrap();
    }
    for entry in disk.list(&directory).unwrap() {
        let id = Descriptor::parse_file_name(&entry.name).map(|(id, _)| id);
        let is_listed = sstables.iter().any(|sstable| Some(&sstable.id) == id.as_ref());
        assert!(is_listed && !entry.name.ends_with(".tmp"), "{}", entry.name);
    }
    sstables.len()
}

#[test]
fn imported_rows_are_visible_at_once_and_after_a_restart_until_a_truncation() {
    for version in VERSIONS {
        let disk = prepared(version);
        let source = disk.list(Path::new(SOURCE)).unwrap();
        let (engine, table) = reopen(&disk);
        assert_eq!(engine.import(&table, Path::new(SOURCE)).unwrap(), COUNT);
        assert!(is_wide(&engine, &table), "{version}");
        let (engine, table) = reopen(&disk.crash_image(1));
        assert!(is_wide(&engine, &table), "{version}");
        engine.compact(&table).unwrap();
        assert!(is_wide(&engine, &table), "{version}");
        engine.truncate(&table).unwrap();
        assert_eq!(live_rows(&engine, &table), BTreeMap::new());
        engine.import(&table, Path::new(SOURCE)).unwrap();
        assert!(is_wide(&engine, &table), "{version}");
        assert_eq!(disk.list(Path::new(SOURCE)).unwrap(), source);
    }
}

#[test]
fn an_sstable_of_format_big_in_a_tables_own_directory_stops_the_start() {
    let disk = prepared("nb");
    let (engine, table) = reopen(&disk);
    engine.shutdown().unwrap();
    drop(engine);
    let own = PathBuf::from(format!("/node/data/ks/t-{}", table.id.0.simple()));
    put_wide("nb", &disk, &own);
    let refused = || Engine::open(small_options(&disk.crash_image(0))).map(drop).unwrap_err().to_string();
    assert!(refused().contains("-big is of the format big: move it"), "{}", refused());
    // An SSTable that lost its TOC.txt is still found,
    let names = disk.list(&own).unwrap().into_iter().map(|entry| entry.name);
    let tocs: Vec<String> = names.filter(|name| name.ends_with("-big-TOC.txt")).collect();
    tocs.iter().for_each(|toc| disk.remove_file(&own.join(toc)).unwrap());
    assert!(refused().contains("-big-TOC.txt is corrupt at offset 0"), "{}", refused());
    // and so is one of an unknown version.
    let disk = prepared("nb");
    disk.create_dir_all(&own).unwrap();
    put(&disk, &own.join("db-7-bti-TOC.txt"), b"");
    own.ancestors().for_each(|ancestor| disk.sync_dir(ancestor).unwrap());
    let refused = Engine::open(small_options(&disk.crash_image(0))).map(drop).unwrap_err().to_string();
    assert!(refused.contains("version db of the format bti"), "{refused}");
    let mut options = small_options(&disk);
    options.opens_damaged = true;
    let engine = open_with(&options);
    assert!(engine.read(&table, &ReadRange::all_rows(KeyRange::all())).is_err(), "an answer is never short");
}

#[test]
fn damage_is_named_and_nothing_is_imported() {
    for version in VERSIONS {
        let disk = prepared(version);
        let (engine, table) = reopen(&disk);
        for entry in std::fs::read_dir(fixture(version)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_of = |components: &[&str]| components.iter().any(|component| name.ends_with(component));
            // Filter.db and Summary.db are not read, and some bytes of the other files have no meaning.
            let is_checked = is_of(&["-Data.db", "-Statistics.db", "-Digest.crc32"]);
            if !is_checked && !is_of(&["-Index.db", "-CompressionInfo.db"]) {
                continue;
            }
            let (bytes, at) = (std::fs::read(&path).unwrap(), Path::new(SOURCE).join(name));
            for byte in (0..bytes.len()).step_by(bytes.len() / 5) {
                let mut damaged = bytes.clone();
                damaged[byte] ^= 1 << (byte % 8);
                for damaged in [&bytes[..byte], &damaged].into_iter().take(1 + usize::from(is_checked)) {
                    put(&disk, &at, damaged);
                    let error = engine.import(&table, Path::new(SOURCE)).unwrap_err().to_string();
                    assert!(error.contains("-big-"), "byte {byte} of {name}: {error}");
                }
            }
            put(&disk, &at, &bytes);
        }
        assert_eq!((sound_sstables(&disk, &table), live_rows(&engine, &table).len()), (0, 0));
        engine.import(&table, Path::new(SOURCE)).unwrap();
        assert!(is_wide(&engine, &table), "{version}");
    }
}

#[test]
fn an_import_that_is_cut_short_brings_all_or_nothing() {
    for (version, stride) in VERSIONS.into_iter().zip([3, 11]) {
        let prepared = prepared(version);
        for step in (0..).step_by(stride) {
            let disk = prepared.crash_image(step);
            let (engine, table) = reopen(&disk);
            disk.inject(Fault::PowerCut, step);
            let done = engine.import(&table, Path::new(SOURCE)).is_ok();
            let image = disk.crash_image(step * 7);
            drop(engine);
            let (engine, table) = reopen(&image);
            let found = sound_sstables(&image, &table);
            assert!(found == COUNT || found == 0 && !done, "{found} of {COUNT} after {step} operations");
            if found == 0 {
                assert_eq!(live_rows(&engine, &table), BTreeMap::new());
                engine.import(&table, Path::new(SOURCE)).unwrap();
            }
            assert!(is_wide(&engine, &table), "{version}, cut after {step} operations");
            if done {
                assert!(step > 100, "an import has steps");
                break;
            }
        }
    }
}

#[test]
fn a_disk_that_fails_or_fills_during_an_import_leaves_nothing_of_it() {
    for fault in [Fault::Full, Fault::FailSync] {
        let prepared = prepared("nb");
        for step in 0.. {
            let disk = prepared.crash_image(step);
            let (engine, table) = reopen(&disk);
            disk.inject(fault, step);
            let imported = engine.import(&table, Path::new(SOURCE));
            if imported.is_ok() {
                assert!(is_wide(&engine, &table) && step > 10, "{fault:?} after {step} operations");
                break;
            }
            assert_eq!(live_rows(&engine, &table), BTreeMap::new(), "{fault:?} after {step} operations");
            // After the decision was durable, the next start completes the import.
            drop(engine);
            let image = disk.crash_image(step);
            let (engine, table) = reopen(&image);
            if sound_sstables(&image, &table) == 0 {
                engine.import(&table, Path::new(SOURCE)).unwrap();
            }
            assert!(is_wide(&engine, &table), "{fault:?} after {step} operations");
        }
    }
}
