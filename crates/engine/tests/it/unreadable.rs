//! Tables whose stored definitions cannot be read: they are quarantined by name, everything else is served, and nothing
//! of them is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{
    Cell, ColumnData, DeletionTime, KeyRange, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder,
    ReadRange, RowBuilder, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor,
};
use testkit::TemporaryDirectory;
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{create_table, insert, insertion, open_with, options, rows, set_cell, small_options};

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

fn set_type_of_v(engine: &Engine, name: &str) {
    set_cell(engine, "columns", &["t", "v"], "type", Some(name.as_bytes()));
}

fn files_of(directory: &TemporaryDirectory, table: &Table) -> Vec<(PathBuf, Vec<u8>)> {
    let own = directory.0.join("data/ks").join(format!("t-{}", table.id.0.simple()));
    let Ok(entries) = std::fs::read_dir(own) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    files.sort();
    files
}

fn side_files(directory: &TemporaryDirectory) -> usize {
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
fn a_table_with_an_unknown_type_is_quarantined_with_its_records_until_its_schema_rows_are_repaired() {
    let directory = TemporaryDirectory::create();
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
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, _) = prepared(&options);
    set_type_of_v(&engine, "no_such_type");
    drop(engine);
    let engine = open_with(&options);
    set_type_of_v(&engine, "text");
    drop(engine);
    let engine = open_with(&options);
    let refused = engine.read(engine.schema().table("ks", "t").unwrap(), &ReadRange::all_rows(KeyRange::all()));
    assert!(refused.err().unwrap().to_string().contains("no_such_type"), "the side file says why it was set aside");
    engine.repair_table("ks", "t").unwrap();
    assert_eq!(rows(&engine, engine.schema().table("ks", "t").unwrap()).len(), 2);
}

#[test]
fn a_table_without_an_id_is_known_by_its_directory_and_can_be_dropped() {
    let directory = TemporaryDirectory::create();
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
    let directory = TemporaryDirectory::create();
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

/// Why a start is refused, once the threads of an engine that was dropped before have released the directory.
fn refusal_of(options: &EngineOptions) -> String {
    loop {
        match Engine::open(options.clone()).err().unwrap() {
            EngineError::Disk(error) if error.kind() == blockio::DiskErrorKind::Locked => {
                std::thread::sleep(crate::fixture::PAUSE)
            }
            error => return error.to_string(),
        }
    }
}

#[test]
fn a_start_that_refuses_damage_names_the_row() {
    let directory = TemporaryDirectory::create();
    let mut options = options(&directory);
    let (engine, _) = prepared(&options);
    set_type_of_v(&engine, "no_such_type");
    drop(engine);
    options.opens_damaged = false;
    let error = refusal_of(&options);
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

/// Deletes what the table of `system_schema` has of `ks`.
fn delete_rows_of_ks(engine: &Engine, table: &str) {
    let table = engine.schema().table("system_schema", table).unwrap().clone();
    let mut update = PartitionUpdateBuilder::new(table, PartitionKey::new(b"ks"));
    update.delete_partition(DeletionTime::new(engine.next_timestamp_micros(), 1));
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

/// Deletes the layout of the table, or stores what was deleted.
fn set_layout(engine: &Engine, id: TableId, layout: Option<&[u8]>) {
    let table = engine.schema().table("system", "table_layouts").unwrap().clone();
    let now = engine.next_timestamp_micros();
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(id.0.as_bytes()));
    match layout {
        None => update.delete_partition(DeletionTime::new(now, 1)),
        Some(layout) => {
            let mut builder = RowBuilder::default();
            builder.start(table.regulars(), false);
            builder.liveness(Liveness::at(now));
            builder.cell(table.regulars().index_of("layout").unwrap(), &Cell::live(now, layout));
            let mut blob = Vec::new();
            builder.finish(&mut blob);
            update.row(&[], &blob);
        }
    }
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

fn layout_of(engine: &Engine, id: TableId) -> Vec<u8> {
    let table = engine.schema().table("system", "table_layouts").unwrap().clone();
    let range = ReadRange::all_rows(KeyRange::Single(PartitionKey::new(id.0.as_bytes())));
    let mut cursor = engine.read(&table, &range).unwrap();
    assert!(cursor.advance_partition().unwrap() && cursor.advance().unwrap());
    let Unfiltered::Row(row) = cursor.unfiltered() else { panic!("a layout is a row") };
    match row.row.columns(&table).next() {
        Some((_, ColumnData::Simple(cell))) => cell.value.to_vec(),
        _ => panic!("a layout is one cell"),
    }
}

#[test]
fn an_unreadable_type_that_no_table_uses_is_reported() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, _) = prepared(&options);
    assert!(engine.faults().is_empty());
    let list = |text: &str| types::collection::list([text.as_bytes()].into_iter());
    set_cell(&engine, "types", &["u"], "field_names", Some(&list("f")));
    set_cell(&engine, "types", &["u"], "field_types", Some(&list("no_such_type")));
    drop(engine);
    let engine = open_with(&options);
    let faults = engine.faults();
    assert!(faults.len() == 1 && faults[0].contains("type ks.u uses an unknown type"), "{faults:?}");
    assert!(engine.quarantined_tables().is_empty());
}

#[test]
fn a_table_with_two_directories_and_no_id_is_known_by_its_layout() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table) = prepared(&options);
    std::fs::create_dir(directory.0.join("data/ks").join(format!("t-{}", Uuid::new_v4().simple()))).unwrap();
    let id = *table.id.0.as_bytes();
    set_cell(&engine, "tables", &["t"], "id", None);
    drop(engine);
    let engine = open_with(&options);
    assert_quarantined(&engine, "its row in system_schema.tables has no id");
    set_cell(&engine, "tables", &["t"], "id", Some(&id));
    assert_eq!(engine.repair_table("ks", "t").unwrap(), 2);
}

#[test]
fn the_records_of_a_table_that_the_schema_lost_wait_until_it_has_the_table_again() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table) = prepared(&options);
    let layout = layout_of(&engine, table.id);
    std::fs::create_dir(directory.0.join("data/ks").join(format!("t-{}", Uuid::new_v4().simple()))).unwrap();
    set_cell(&engine, "tables", &["t"], "id", None);
    set_layout(&engine, table.id, None);
    drop(engine);
    for _ in 0..2 {
        // Nobody knows which of the two directories it is, nor whose the records are.
        let engine = open_with(&options);
        assert_quarantined(&engine, "its row in system_schema.tables has no id");
        let side_file = format!("{}-1.records", table.id.0.simple());
        let faults = engine.faults();
        assert!(faults.len() == 1 && faults[0].contains(&side_file), "{faults:?}");
        assert_eq!(side_files(&directory), 1);
        engine.shutdown().unwrap();
    }
    let engine = open_with(&options);
    set_cell(&engine, "tables", &["t"], "id", Some(table.id.0.as_bytes()));
    set_layout(&engine, table.id, Some(&layout));
    assert_eq!(engine.repair_table("ks", "t").unwrap(), 2);
    let table = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&engine, &table), [(1, 1, "flushed".into()), (2, 1, "logged".into())]);
    drop(engine);
    let engine = open_with(&options);
    assert!(engine.faults().is_empty() && side_files(&directory) == 0);
    assert_eq!(rows(&engine, &table).len(), 2);
}

#[test]
fn a_table_of_which_the_schema_has_its_columns_or_its_layout_only_is_quarantined_by_name() {
    for (lost, reason) in [
        (&["tables"][..], "system_schema.tables has none"),
        (&["tables", "columns"], "the schema has no row of it but its layout"),
        (&["tables", "columns", "keyspaces"], "the schema has no row of it but its layout"),
    ] {
        let directory = TemporaryDirectory::create();
        let options = options(&directory);
        let (engine, _) = prepared(&options);
        lost.iter().for_each(|table| delete_rows_of_ks(&engine, table));
        drop(engine);
        let engine = open_with(&options);
        assert_quarantined(&engine, reason);
        assert_eq!(side_files(&directory), 1);
    }
}

#[test]
fn records_of_tables_that_were_dropped_are_not_set_aside() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, _) = prepared(&options);
    let dropped = engine.change_schema::<_, EngineError>(|_, keyspaces| Ok(keyspaces.remove("ks").is_some()));
    assert!(dropped.unwrap().0);
    drop(engine);
    let engine = open_with(&options);
    assert_ne!(engine.replay_summary().of_dropped_tables, 0);
    assert!(engine.faults().is_empty() && side_files(&directory) == 0);
}

/// A component of the only SSTable of `system_schema.columns`.
fn schema_component(directory: &TemporaryDirectory, name: &str) -> PathBuf {
    let keyspace = std::fs::read_dir(directory.0.join("data/system_schema")).unwrap();
    let is_columns = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("columns-");
    let columns = keyspace.map(|entry| entry.unwrap().path()).find(is_columns).unwrap();
    let mut files = std::fs::read_dir(columns).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(name)).unwrap()
}

/// A node with `ks.t` and `other.u` whose schema is in SSTables, and nothing in the log.
fn drained(options: &EngineOptions) {
    let (engine, _) = prepared(options);
    engine.shutdown().unwrap();
    engine.schema().keyspaces["system_schema"].tables.values().for_each(|table| _ = engine.flush(table));
}

#[test]
fn a_start_without_a_part_of_the_schema_names_the_place_and_the_way_out() {
    for component in ["-Data.db", "-Statistics.db", "-Partitions.db", "-CompressionInfo.db"] {
        let directory = TemporaryDirectory::create();
        let options = options(&directory);
        drained(&options);
        let path = schema_component(&directory, component);
        let sound = std::fs::read(&path).unwrap();
        let mut damaged = sound.clone();
        match component {
            "-Data.db" => damaged[sound.len() / 2] ^= 1,
            _ => damaged.truncate(sound.len() / 2),
        }
        std::fs::write(&path, &damaged).unwrap();
        let error = refusal_of(&options);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for part in [&name, "system_schema.columns", "--read-only", "sstable salvage"] {
            assert!(error.contains(part), "{component}: {part} is not in {error}");
        }
        let mut to_look = options.clone();
        (to_look.read_only, to_look.opens_damaged) = (true, false);
        let engine = open_with(&to_look);
        let faults = engine.faults();
        assert!(faults.iter().any(|fault| fault.contains(&name)), "{faults:?}");
        if component == "-Partitions.db" {
            // All rows are sound: only the index is not.
            assert!(engine.quarantined_tables().is_empty());
            assert_eq!(rows(&engine, engine.schema().table("ks", "t").unwrap()).len(), 2);
        } else {
            let listed = engine.quarantined_tables();
            // Of Data.db all chunks but the damaged one are sound.
            let least = if component == "-Data.db" { 1 } else { 2 };
            assert!(listed.len() >= least, "{listed:?}");
            assert!(listed.iter().all(|table| table.reason.contains("system_schema.columns")), "{listed:?}");
        }
        drop(engine);
        std::fs::write(&path, &sound).unwrap();
        let engine = open_with(&options);
        assert!(engine.quarantined_tables().is_empty() && engine.faults().is_empty());
    }
}

#[test]
fn a_damaged_table_of_kept_batches_is_quarantined_and_all_else_is_served() {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table) = prepared(&options);
    let batches = engine.schema().table("system", "batches").unwrap().clone();
    let mut update = PartitionUpdateBuilder::new(batches.clone(), PartitionKey::new(Uuid::new_v4().as_bytes()));
    update.delete_partition(DeletionTime::new(10, 1));
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let own = directory.0.join("data/system").join(format!("batches-{}", batches.id.0.simple()));
    let files = std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
    let data = files.into_iter().find(|path| path.to_string_lossy().ends_with("-Data.db")).unwrap();
    let sound = std::fs::read(&data).unwrap();
    let mut damaged = sound.clone();
    damaged[sound.len() / 2] ^= 1;
    std::fs::write(&data, &damaged).unwrap();
    let engine = open_with(&options);
    let listed = engine.quarantined_tables();
    assert!(listed.len() == 1 && listed[0].table == "batches", "{listed:?}");
    assert_eq!(rows(&engine, &table).len(), 2);
    std::fs::write(&data, &sound).unwrap();
    engine.repair_table("system", "batches").unwrap();
    assert!(engine.quarantined_tables().is_empty());
}

#[test]
fn a_stored_batch_that_cannot_be_read_is_reported_and_stays() {
    a_kept_batch_of_version(1);
    a_kept_batch_of_version(2);
    a_kept_batch_of_version(3);
}

fn a_kept_batch_of_version(version: i32) {
    let directory = TemporaryDirectory::create();
    let options = options(&directory);
    let (engine, table) = prepared(&options);
    let batches = engine.schema().table("system", "batches").unwrap().clone();
    let id = Uuid::new_v1(uuid::Timestamp::from_gregorian_time(1, 0), &[1; 6]);
    let mut builder = RowBuilder::default();
    builder.start(batches.regulars(), false);
    builder.liveness(Liveness::at(10));
    let mut cells = [("mutations", b"no record".to_vec()), ("version", version.to_be_bytes().to_vec())]
        .map(|(name, value)| (batches.regulars().index_of(name).unwrap(), value));
    cells.sort();
    for (index, value) in cells {
        match batches.regulars().columns[index].is_complex() {
            true => {
                builder.complex(index, DeletionTime::LIVE);
                builder.complex_cell(&Cell::live(10, &value).with_path(id.as_bytes()));
            }
            false => builder.cell(index, &Cell::live(10, &value)),
        }
    }
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(batches, PartitionKey::new(id.as_bytes()));
    update.row(&[], &blob);
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    drop(engine);
    for _ in 0..2 {
        let engine = open_with(&options);
        let faults = engine.faults();
        assert!(faults.len() == 1 && faults[0].contains(&id.to_string()), "{faults:?}");
        assert_eq!(rows(&engine, &table).len(), 2);
        engine.shutdown().unwrap();
    }
}
