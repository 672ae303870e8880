//! Tables whose stored definitions cannot be read: they are quarantined by name, everything else is served, and nothing
//! of them is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{
    Cell, DeletionTime, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, RowBuilder, Table,
    TableBuilder, TableId, push_component,
};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{Directory, create_table, insert, insertion, open_with, options, rows, small_options};

/// A node with `ks.t`, which has a row in an SSTable and one in the log, and `other.u`, which has one in the log.
fn prepared(options: &EngineOptions) -> (Arc<Engine>, Arc<Table>) {
    let engine = open_with(options);
    let table = create_table(&engine);
    let builder = TableBuilder::new("other", "u", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
    let mut keyspace = Keyspace::new("other", Default::default(), true);
    keyspace.tables.insert("u".into(), Arc::new(builder.regular("v", CqlType::Text).build()));
    engine.set_keyspace(keyspace).unwrap();
    insert(&engine, &table, 1, 1, "flushed", 10);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 2, 1, "logged", 10);
    insert(&engine, &engine.schema().table("other", "u").unwrap().clone(), 1, 1, "other", 10);
    (engine, table)
}

/// Sets a cell of a row of `system_schema`, or deletes it.
fn set_cell(engine: &Engine, table: &str, clustering: &[&str], column: &str, value: Option<&[u8]>) {
    let table = engine.schema().table("system_schema", table).unwrap().clone();
    let now = engine.next_timestamp_micros();
    let mut path = Vec::new();
    clustering.iter().for_each(|value| push_component(Some(value.as_bytes()), &mut path));
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(now));
    let cell = value.map_or(Cell::tombstone(now, 1), |value| Cell::live(now, value));
    builder.cell(table.regulars().index_of(column).unwrap(), &cell);
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table, PartitionKey::new(b"ks"));
    update.row(&path, &blob);
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

fn set_type_of_v(engine: &Engine, name: &str) {
    set_cell(engine, "columns", &["t", "v"], "type", Some(name.as_bytes()));
}

fn files_of(directory: &Directory, table: &Table) -> Vec<(PathBuf, Vec<u8>)> {
    let own = directory.0.join("data/ks").join(format!("t-{}", table.id.0.simple()));
    let Ok(entries) = std::fs::read_dir(own) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    files.sort();
    files
}

fn side_files(directory: &Directory) -> usize {
    std::fs::read_dir(directory.0.join("quarantine")).map_or(0, |entries| entries.count())
}

/// `ks.t` is listed and refused for this reason, and all else is served.
fn assert_quarantined(engine: &Engine, reason: &str) {
    let schema = engine.schema();
    assert!(schema.table("ks", "t").is_none());
    let refusal = Engine::unreadable_table(&schema, "ks", "t").unwrap().to_string();
    assert!(refusal.starts_with("Table ks.t is quarantined: ") && refusal.contains(reason), "{refusal}");
    let listed = engine.quarantined_tables();
    assert!(listed.len() == 1 && listed[0].table == "t" && listed[0].reason.contains(reason), "{listed:?}");
    assert_eq!(rows(engine, schema.table("other", "u").unwrap()), [(1, 1, "other".into())]);
}

#[test]
fn a_table_with_a_type_that_nobody_knows_is_quarantined_with_its_records_until_its_rows_are_mended() {
    let directory = Directory::new();
    let options = options(&directory);
    let (engine, table) = prepared(&options);
    set_type_of_v(&engine, "no_such_type");
    drop(engine);
    let files = files_of(&directory, &table);
    let reason = "the row of column v in system_schema.columns has the unknown type \"no_such_type\"";
    for _ in 0..2 {
        let engine = open_with(&options);
        assert_quarantined(&engine, reason);
        assert_eq!(side_files(&directory), 1, "the log has none of its records any more");
        assert!(engine.repair_table("ks", "t").unwrap_err().to_string().contains(reason));
        assert!(files_of(&directory, &table) == files, "its directory is as it was");
        engine.shutdown().unwrap();
    }
    let engine = open_with(&options);
    set_type_of_v(&engine, "text");
    assert_eq!(engine.repair_table("ks", "t").unwrap(), 2, "what its SSTables cover was not known");
    for _ in 0..2 {
        let table = engine.schema().table("ks", "t").unwrap().clone();
        assert_eq!(rows(&engine, &table), [(1, 1, "flushed".into()), (2, 1, "logged".into())]);
    }
    assert!(engine.quarantined_tables().is_empty() && side_files(&directory) == 0);
    insert(&engine, &table, 3, 1, "anew", 10);
    drop(engine);
    let engine = open_with(&options);
    assert_eq!(rows(&engine, engine.schema().table("ks", "t").unwrap()).len(), 3);
}

#[test]
fn rows_that_are_mended_while_the_node_is_down_leave_the_table_to_repair() {
    let directory = Directory::new();
    let options = options(&directory);
    let (engine, _) = prepared(&options);
    set_type_of_v(&engine, "no_such_type");
    drop(engine);
    let engine = open_with(&options);
    set_type_of_v(&engine, "text");
    drop(engine);
    let engine = open_with(&options);
    let refused =
        engine.read(engine.schema().table("ks", "t").unwrap(), &model::ReadRange::all_rows(model::KeyRange::all()));
    assert!(refused.err().unwrap().to_string().contains("no_such_type"), "the side file says why it was set aside");
    engine.repair_table("ks", "t").unwrap();
    assert_eq!(rows(&engine, engine.schema().table("ks", "t").unwrap()).len(), 2);
}

#[test]
fn a_table_without_an_id_is_known_by_its_directory_and_can_be_dropped() {
    let directory = Directory::new();
    let options = options(&directory);
    let (engine, table) = prepared(&options);
    set_cell(&engine, "tables", &["t"], "id", None);
    drop(engine);
    let engine = open_with(&options);
    assert_quarantined(&engine, "its row in system_schema.tables has no id");
    assert_eq!(side_files(&directory), 1);
    let dropped = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        Ok(Arc::make_mut(keyspaces.get_mut("ks").unwrap()).unreadable.remove("t").is_some())
    });
    assert!(dropped.unwrap().0);
    assert!(engine.quarantined_tables().is_empty() && side_files(&directory) == 0);
    assert!(files_of(&directory, &table).is_empty());
    drop(engine);
    let engine = open_with(&options);
    assert!(engine.quarantined_tables().is_empty(), "nothing of it is stored any more");
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "anew", 10);
    assert_eq!(rows(&engine, &table), [(1, 1, "anew".into())]);
}

#[test]
fn the_tables_of_a_keyspace_without_a_row_are_quarantined() {
    let directory = Directory::new();
    let options = options(&directory);
    let (engine, _) = prepared(&options);
    let keyspaces = engine.schema().table("system_schema", "keyspaces").unwrap().clone();
    let mut update = PartitionUpdateBuilder::new(keyspaces, PartitionKey::new(b"ks"));
    update.delete_partition(DeletionTime::new(engine.next_timestamp_micros(), 1));
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    drop(engine);
    let engine = open_with(&options);
    assert_quarantined(&engine, "system_schema.keyspaces has no row of keyspace ks");
    assert_eq!(side_files(&directory), 1);
    let dropped = engine.change_schema::<_, EngineError>(|_, keyspaces| Ok(keyspaces.remove("ks").is_some()));
    assert!(dropped.unwrap().0 && side_files(&directory) == 0);
}

#[test]
fn a_start_that_is_to_open_nothing_damaged_names_the_row() {
    let directory = Directory::new();
    let mut options = options(&directory);
    let (engine, _) = prepared(&options);
    set_type_of_v(&engine, "no_such_type");
    drop(engine);
    options.opens_damaged = false;
    let error = Engine::open(options).err().unwrap().to_string();
    assert!(error.contains("ks.t") && error.contains("no_such_type"), "{error}");
}

/// Somewhere between the batch's own place and its updates the disk is full: the next start finishes it.
#[test]
fn a_batch_that_is_finished_by_a_start_has_its_part_of_a_quarantined_table_set_aside() {
    let mut finished = 0;
    for room_bytes in (0..1 << 20).step_by(128 << 10) {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.opens_damaged = true;
        let (engine, table) = prepared(&options);
        let other = engine.schema().table("other", "u").unwrap().clone();
        set_type_of_v(&engine, "no_such_type");
        let value = "v".repeat(40_000);
        let of_key = |key| [&table, &other].map(|table| insertion(table, key, 5, &value, 20).updates()[0].clone());
        let space = disk.space(Path::new("/")).unwrap();
        disk.set_capacity(space.total_bytes - space.free_bytes + room_bytes);
        let batch = Mutation::new((10..13).flat_map(of_key).collect());
        if block_on(engine.write_batch(&batch)).is_ok() {
            continue;
        }
        disk.set_capacity(u64::MAX);
        options.disk = Arc::new(disk.crash_image(room_bytes));
        drop(engine);
        let engine = open_with(&options);
        let of_other = rows(&engine, &other).len() - 1;
        set_type_of_v(&engine, "text");
        engine.repair_table("ks", "t").unwrap();
        let of_table = rows(&engine, engine.schema().table("ks", "t").unwrap()).len() - 2;
        assert_eq!(of_table, of_other, "the batch is there whole or not at all");
        finished += of_other;
    }
    assert!(finished > 0);
}
