//! Power cuts at every step of an upgrade. The other node's directory never changes. Ours gets all of its tables or
//! none, so that the next attempt succeeds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use engine::{Engine, EngineError, block_on};
use model::{Cell, DeletionTime, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, RowBuilder, Table};

use crate::big::{COUNT, VERSIONS, create_wide, is_wide, put, put_wide};
use crate::fixture::{create_table, insert, open_with, rows, small_options};

const SOURCE: &str = "/cassandra/data";

/// The data directory of a stopped node in Cassandra's layout: one table of two SSTables. The disk contains nothing
/// else, except perhaps a node of ours.
struct Source {
    disk: SimulatedDisk,
    /// Whether a node has the table's rows.
    has_rows: fn(&Engine, &Arc<Table>) -> bool,
}

fn bti() -> Source {
    let create = |engine: &Engine| {
        let table = create_table(engine);
        for row in 0..2 {
            insert(engine, &table, 1, row, "theirs", 10);
            engine.flush(&table).unwrap();
        }
        table
    };
    let (disk, _) = exported(create);
    Source { disk, has_rows: |engine, table| rows(engine, table) == [0, 1].map(|row| (1, row, "theirs".into())) }
}

fn big(version: &str) -> Source {
    let (disk, table) = exported(create_wide);
    put_wide(version, &disk, &Path::new(SOURCE).join("ks").join(format!("t-{}", table.id.0.simple())));
    Source { disk, has_rows: is_wide }
}

fn exported(create: impl FnOnce(&Engine) -> Arc<Table>) -> (SimulatedDisk, Arc<Table>) {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create(&engine);
    disk.create_dir_all(Path::new("/cassandra")).unwrap();
    engine.export(Path::new(SOURCE)).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    disk.remove_dir_all(Path::new("/node")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    (disk, table)
}

/// All files below a directory, with their contents.
fn files(disk: &SimulatedDisk, directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in disk.list(directory).unwrap() {
        let path = directory.join(&entry.name);
        if entry.is_dir {
            found.extend(files(disk, &path));
        } else {
            let file = disk.open(&path, OpenOptions::read()).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            found.push((path, bytes));
        }
    }
    found
}

fn adopted(engine: &Engine) -> Option<Arc<Table>> {
    engine.schema().table("ks", "t").cloned()
}

/// Returns whether the power cut after `step` operations came before the end. If our node then lacks the tables, they
/// are adopted again. If our node is new, the operations of its first start are counted too.
fn cut(source: &Source, step: u64, is_new: bool) -> bool {
    let disk = source.disk.crash_image(step);
    let upgrade = || -> Result<(), EngineError> {
        if is_new {
            disk.inject(Fault::PowerCut, step);
        }
        let engine = Engine::open(small_options(&disk))?;
        if !is_new {
            disk.inject(Fault::PowerCut, step);
        }
        engine.adopt(&[SOURCE.into()]).map(|_| ())
    };
    let is_done = upgrade().is_ok();
    let image = disk.crash_image(step * 7);
    let data = Path::new(SOURCE);
    assert!(files(&image, data) == files(&source.disk, data), "cut after {step} operations");
    let engine = Engine::open(small_options(&image)).unwrap();
    if adopted(&engine).is_none() {
        assert!(!is_done);
        engine.adopt(&[SOURCE.into()]).unwrap();
    }
    let table = adopted(&engine).unwrap();
    assert!((source.has_rows)(&engine, &table), "cut after {step} operations");
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, COUNT, "cut after {step} operations");
    !is_done
}

/// Writes a role that is a member of the role `group`.
fn write_role(engine: &Engine, name: &str, hash: &str) {
    let table = engine.schema().table("system_auth", "roles").unwrap().clone();
    let place = |column: &str| table.regulars().index_of(column).unwrap();
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(Liveness::at(10));
    row.cell(place("can_login"), &Cell::live(10, &[1]));
    row.cell(place("is_superuser"), &Cell::live(10, &[0]));
    row.cell(place("salted_hash"), &Cell::live(10, hash.as_bytes()));
    row.complex(place("member_of"), DeletionTime::LIVE);
    row.complex_cell(&Cell::live(10, &[]).with_path(b"group"));
    let mut bytes = Vec::new();
    row.finish(&mut bytes);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(name.as_bytes()));
    update.row(&[], &bytes);
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

/// A serialized set with the data center `dc9`.
const DATA_CENTERS: &[u8] = b"\0\0\0\x01\0\0\0\x03dc9";

/// Allows a role a single data center.
fn write_data_center(engine: &Engine, role: &str) {
    let table = engine.schema().table("system_auth", "network_permissions").unwrap().clone();
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.cell(table.regulars().index_of("dcs").unwrap(), &Cell::live(10, DATA_CENTERS));
    let mut bytes = Vec::new();
    row.finish(&mut bytes);
    let mut update = PartitionUpdateBuilder::new(table, PartitionKey::new(format!("roles/{role}").as_bytes()));
    update.row(&[], &bytes);
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

/// The keys of the partitions with rows, and all bytes of the cells, of a table of `system_auth`.
fn cell_bytes(engine: &Engine, table: &str) -> Vec<u8> {
    use model::{ColumnData, KeyRange, ReadRange, Unfiltered, UnfilteredCursor};
    let table = engine.schema().table("system_auth", table).unwrap().clone();
    let mut cursor = engine.read(&table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let mut bytes = Vec::new();
    while cursor.advance_partition().unwrap() {
        // A deleted partition has no rows.
        let mut key = cursor.partition().key.bytes().to_vec();
        while cursor.advance().unwrap() {
            let Unfiltered::Row(row) = cursor.unfiltered() else { continue };
            bytes.append(&mut key);
            for (_, data) in row.row.columns(&table) {
                match data {
                    ColumnData::Simple(cell) => bytes.extend_from_slice(cell.value),
                    ColumnData::Complex(cells) => cells.for_each(|cell| bytes.extend_from_slice(cell.path)),
                }
            }
        }
    }
    bytes
}

/// A disk with the data directory of a stopped node that has a table and the role `theirs`.
fn with_roles() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let tables =
        ["roles", "network_permissions"].map(|name| engine.schema().table("system_auth", name).unwrap().clone());
    write_role(&engine, "theirs", "$2a$hash");
    write_data_center(&engine, "theirs");
    tables.iter().for_each(|table| engine.flush(table).unwrap());
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "theirs", 10);
    engine.flush(&table).unwrap();
    disk.create_dir_all(Path::new("/cassandra")).unwrap();
    engine.export(Path::new(SOURCE)).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    for table in tables {
        let name = format!("{}-{}", table.name, table.id.0.simple());
        let target = Path::new(SOURCE).join("system_auth").join(&name);
        disk.create_dir_all(&target).unwrap();
        let is_of_table = |path: &Path| path.parent().unwrap().ends_with(&name);
        for (path, bytes) in files(&disk, Path::new("/node")).into_iter().filter(|(path, _)| is_of_table(path)) {
            put(&disk, &target.join(path.file_name().unwrap()), &bytes);
        }
        target.ancestors().for_each(|ancestor| disk.sync_dir(ancestor).unwrap());
    }
    disk.remove_dir_all(Path::new("/node")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

#[test]
fn the_roles_of_an_adopted_node_keep_passwords_and_places_unless_there_are_roles_already() {
    let disk = with_roles();
    for own in [None, Some("ours")] {
        let image = disk.crash_image(0);
        let engine = open_with(&small_options(&image));
        own.iter().for_each(|name| write_role(&engine, name, "$2a$own"));
        engine.adopt(&[SOURCE.into()]).unwrap();
        assert!(adopted(&engine).is_some());
        let expected = own.map_or("theirs\x01\x00group$2a$hash", |_| "ours\x01\x00group$2a$own");
        let found = cell_bytes(&engine, "roles");
        let sorted = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.sort_unstable();
            bytes
        };
        assert_eq!(sorted(&found), sorted(expected.as_bytes()), "{}", String::from_utf8_lossy(&found));
        let expected = own.map_or([b"roles/theirs", DATA_CENTERS].concat(), |_| Vec::new());
        assert_eq!(cell_bytes(&engine, "network_permissions"), expected);
    }
}

#[test]
fn an_adoption_that_fails_leaves_no_roles_behind_and_can_be_repeated() {
    let disk = with_roles();
    let mut failures = 0;
    for step in 0.. {
        let image = disk.crash_image(0);
        let engine = open_with(&small_options(&image));
        // The directories of the user's keyspace: the log, which a deletion needs, is elsewhere.
        image.inject_into("/node/data/ks/", Fault::Fail, step);
        if engine.adopt(&[SOURCE.into()]).is_ok() {
            break;
        }
        failures += 1;
        for table in ["roles", "network_permissions"] {
            let left = cell_bytes(&engine, table);
            assert!(left.is_empty(), "step {step}: {table} has {}", String::from_utf8_lossy(&left));
        }
        engine.adopt(&[SOURCE.into()]).unwrap();
        assert!(adopted(&engine).is_some());
        assert!(!cell_bytes(&engine, "roles").is_empty(), "step {step}");
    }
    assert!(failures > 3, "{failures}");
}

/// The same source, after a first start of our node.
fn started(source: Source) -> Source {
    let disk = source.disk.crash_image(0);
    Engine::open(small_options(&disk)).unwrap().shutdown().unwrap();
    Source { disk, ..source }
}

#[test]
fn an_upgrade_that_is_cut_short_does_not_change_the_source_and_can_be_repeated() {
    let started = started(bti());
    // The last operation is the write of the schema.
    let cut_short = (0..).take_while(|step| cut(&started, *step, false)).count();
    assert!(cut_short > 50, "{cut_short}");
    // A node that was never started is started first.
    let source = bti();
    let cut_short = (0..).take_while(|step| cut(&source, step * 61, true)).count();
    assert!(cut_short > 5, "{cut_short}");
}

#[test]
fn an_upgrade_from_the_format_big_that_is_cut_short_does_not_change_the_source_and_can_be_repeated() {
    for (version, stride) in VERSIONS.into_iter().zip([5, 13]) {
        let started = started(big(version));
        let cut_short = (0..).take_while(|step| cut(&started, step * stride, false)).count();
        assert!(cut_short > 5, "{cut_short}");
    }
}
