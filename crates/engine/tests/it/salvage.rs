//! A start that salvages a log in which the record of a partly flushed schema change is damaged. It starts with all
//! complete definitions.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use blockio::{BLOCK_SIZE, Disk, OpenOptions, SimulatedDisk};
use engine::{Engine, EngineError, EngineOptions};
use model::{Keyspace, Table, TableBuilder, TableId};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{columns, create_table, insert, open_with, rows, small_options, stored_columns};

const LOG: &str = "/node/commitlog/commitlog.log";
/// The tables to which a CREATE TABLE writes.
const CHANGED: [(&str, &str); 4] = [
    ("system_schema", "keyspaces"),
    ("system_schema", "tables"),
    ("system_schema", "columns"),
    ("system", "table_layouts"),
];

/// Executes a schema change, flushes those tables for which `flushed` has a bit, and damages the record of the change,
/// which contains `name`. Later records are sound.
fn half_lost(
    disk: &SimulatedDisk,
    flushed: usize,
    name: &str,
    change: impl FnOnce(&mut Keyspace),
) -> (SimulatedDisk, Arc<Table>) {
    let engine = open_with(&small_options(disk));
    let sound = create_table(&engine);
    insert(&engine, &sound, 1, 1, "before", 10);
    engine.flush_all().unwrap();
    let changed = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        change(Arc::make_mut(keyspaces.get_mut("ks").unwrap()));
        Ok(())
    });
    changed.unwrap();
    for (index, (keyspace, table)) in CHANGED.into_iter().enumerate() {
        if flushed & 1 << index != 0 {
            let table = engine.schema().table(keyspace, table).unwrap().clone();
            engine.flush(&table).unwrap();
        }
    }
    // These records are in later blocks, whose horizon shows that the earlier blocks were on the device.
    (0..3).for_each(|row| insert(&engine, &sound, 2, row, &"after".repeat(1000), 10));
    let image = disk.crash_image(1);
    drop(engine);
    damage(&image, name);
    (image, sound)
}

/// Flips a bit at the first place of the name in the log.
fn damage(disk: &SimulatedDisk, name: &str) {
    let file = disk.open(Path::new(LOG), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let at = bytes.windows(name.len()).position(|window| window == name.as_bytes());
    disk.flip_bit(Path::new(LOG), at.expect("the log has it") as u64, 3).unwrap();
}

/// The state of the log's bookkeeping.
fn bookkeeping(disk: &SimulatedDisk) -> Vec<u8> {
    let mut bytes = vec![0; 4 * BLOCK_SIZE];
    disk.open(Path::new(LOG), OpenOptions::read()).unwrap().read_exact_at(&mut bytes, 2 * BLOCK_SIZE as u64).unwrap();
    bytes
}

/// The device lost the write by which a segment's bookkeeping withdraws its promise to have no record of the schema. So
/// the start does not look for one there, and finds only the flushed part of a definition.
#[test]
fn a_definition_that_the_bookkeeping_hides_is_damage_of_the_log_and_salvaged_whole() {
    let disk = SimulatedDisk::new();
    open_with(&small_options(&disk)).shutdown().unwrap();
    let engine = open_with(&small_options(&disk));
    let before = bookkeeping(&disk);
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "kept", 10);
    engine.flush(engine.schema().table("system_schema", "tables").unwrap()).unwrap();
    let image = disk.crash_image(1);
    drop(engine);
    assert_ne!(before, bookkeeping(&image), "the promise was withdrawn");
    image.open(Path::new(LOG), OpenOptions::write()).unwrap().write_at(&before, 2 * BLOCK_SIZE as u64).unwrap();

    for opens_damaged in [false, true] {
        let options = EngineOptions { opens_damaged, ..small_options(&image) };
        let refused = Engine::open(options).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(LOG) && refused.contains("--commitlog-salvage"), "{refused}");
    }
    let engine = Engine::open(salvaging(&image)).unwrap();
    assert_eq!(rows(&engine, &table), [(1, 1, "kept".into())]);
}

fn salvaging(disk: &SimulatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.commitlog.salvage = true;
    options
}

fn made(name: &str) -> Arc<Table> {
    let builder = TableBuilder::new("ks", name, TableId(Uuid::from_u128(7))).partition_key("k", CqlType::Int);
    Arc::new(builder.regular("v", CqlType::Text).build())
}

fn copies(disk: &SimulatedDisk) -> BTreeSet<String> {
    let names = disk.list(Path::new("/node/commitlog")).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.starts_with("commitlog.damaged-")).collect()
}

/// Tries every combination of flushed tables after a CREATE TABLE.
#[test]
fn a_table_of_which_the_log_lost_a_part_is_left_out_and_reported_and_the_others_are_restored() {
    for flushed in 0..1 << CHANGED.len() {
        let table = made("halfknown");
        let (disk, sound) = half_lost(&SimulatedDisk::new(), flushed, "halfknown", |keyspace| {
            keyspace.tables.insert(table.name.clone(), Arc::clone(&table));
        });
        let refused = Engine::open(small_options(&disk)).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(LOG) && refused.contains("--commitlog-salvage"), "{refused}");

        let engine = open_with(&salvaging(&disk));
        // These tables contain its row, its columns and their layout.
        let (is_named, is_whole) = (flushed & 0b10 != 0, flushed & 0b1110 == 0b1110);
        assert_eq!(engine.schema().table("ks", "halfknown").is_some(), is_whole, "{flushed:b}");
        let reported: Vec<String> = engine.schema_damage().iter().map(ToString::to_string).collect();
        assert_eq!(reported.len(), usize::from(is_named && !is_whole), "{flushed:b}: {reported:?}");
        assert!(reported.iter().all(|damage| damage.contains("table ks.halfknown: system")), "{reported:?}");
        assert!(!engine.log_report().gaps.is_empty() && !copies(&disk).is_empty());
        let there = rows(&engine, &sound);
        assert!(there.contains(&(1, 1, "before".into())) && there.contains(&(2, 2, "after".repeat(1000))), "{there:?}");
        assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"), "{flushed:b}");

        // The damage is repaired: the next start finds none, and the name is free.
        let known = columns(&engine, "ks");
        drop(engine);
        let engine = open_with(&small_options(&disk));
        assert_eq!((columns(&engine, "ks"), stored_columns(&engine, "ks").unwrap()), (known.clone(), known));
        if !is_whole {
            let mut keyspace = Keyspace::clone(engine.schema().keyspace("ks").unwrap());
            keyspace.tables.insert(table.name.clone(), Arc::clone(&table));
            engine.set_keyspace(keyspace).unwrap();
            insert(&engine, &sound, 3, 3, "later", 10);
        }
        assert!(engine.schema().table("ks", "halfknown").is_some());
    }
}

/// Tries every combination of flushed tables after an ALTER TABLE that adds a column. The table exists, with or without
/// the column.
#[test]
fn a_table_whose_change_was_partly_lost_is_restored_as_far_as_it_is_known() {
    for flushed in 0..1 << CHANGED.len() {
        let (disk, sound) = half_lost(&SimulatedDisk::new(), flushed, "halfknown", |keyspace| {
            let altered = keyspace.tables["t"].to_builder().regular("halfknown", CqlType::Int).build();
            keyspace.tables.insert("t".into(), Arc::new(altered));
        });
        let engine = open_with(&salvaging(&disk));
        let table = engine.schema().table("ks", "t").unwrap().clone();
        assert_eq!(table.column("halfknown").is_some(), flushed & 0b1000 != 0, "{flushed:b}");
        // The rows of its columns and its layout were flushed, or neither: they agree.
        let agree = (flushed & 0b0100 != 0) == (flushed & 0b1000 != 0);
        let reported: Vec<String> = engine.schema_damage().iter().map(ToString::to_string).collect();
        assert_eq!(reported.len(), usize::from(!agree), "{flushed:b}: {reported:?}");
        assert!(reported.iter().all(|damage| damage.contains("column halfknown")), "{reported:?}");
        assert!(rows(&engine, &table).contains(&(1, 1, "before".into())) && table.id == sound.id);
        assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"), "{flushed:b}");
    }
}

/// The last frame of the log is that of a CREATE TABLE, some of whose parts were flushed. A bit of the frame is wrong.
/// Nothing in the log shows that the frame was ever on the device. The SSTables do.
#[test]
fn a_damaged_last_frame_is_damage_of_the_log_if_a_part_of_it_was_flushed() {
    for flushed in 0..1 << CHANGED.len() {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        let sound = create_table(&engine);
        insert(&engine, &sound, 1, 1, "before", 10);
        engine.flush_all().unwrap();
        let table = made("halfknown");
        let changed = engine.change_schema::<_, EngineError>(|_, keyspaces| {
            let keyspace = Arc::make_mut(keyspaces.get_mut("ks").unwrap());
            keyspace.tables.insert(table.name.clone(), Arc::clone(&table));
            Ok(())
        });
        changed.unwrap();
        for (index, (keyspace, table)) in CHANGED.into_iter().enumerate() {
            if flushed & 1 << index != 0 {
                engine.flush(engine.schema().table(keyspace, table).unwrap()).unwrap();
            }
        }
        let image = disk.crash_image(1);
        drop(engine);
        damage(&image, "halfknown");
        if flushed == 0 {
            // The change is gone as a whole, as if it had been cut short.
            let engine = open_with(&small_options(&image));
            assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"));
            continue;
        }
        for opens_damaged in [false, true] {
            let refused =
                Engine::open(EngineOptions { opens_damaged, ..small_options(&image) }).map(|_| ()).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(LOG) && refused.contains("--commitlog-salvage"), "{flushed:b}: {refused}");
            assert!(refused.contains("expected block"), "{flushed:b}: {refused}");
        }
        let engine = open_with(&salvaging(&image));
        assert!(!engine.log_report().gaps.is_empty() && !copies(&image).is_empty());
        assert_eq!(rows(&engine, &sound), [(1, 1, "before".into())]);
        assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"), "{flushed:b}");
    }
}

/// The row of a new keyspace is lost, and those of its table are not.
#[test]
fn remains_of_a_keyspace_that_the_log_lost_are_reported_and_deleted() {
    let (disk, _) = half_lost(&SimulatedDisk::new(), 0, "unrelated", |keyspace| {
        keyspace.tables.insert("unrelated".into(), made("unrelated"));
    });
    let engine = open_with(&salvaging(&disk));
    let mut lost = Keyspace::new("lostkeyspace", Default::default(), true);
    let builder = TableBuilder::new("lostkeyspace", "t", TableId(Uuid::from_u128(8))).partition_key("k", CqlType::Int);
    lost.tables.insert("t".into(), Arc::new(builder.build()));
    engine.set_keyspace(lost).unwrap();
    for table in ["tables", "columns"] {
        let table = engine.schema().table("system_schema", table).unwrap().clone();
        engine.flush(&table).unwrap();
    }
    let sound = engine.schema().table("ks", "t").unwrap().clone();
    (0..3).for_each(|row| insert(&engine, &sound, 2, row, &"after".repeat(1000), 10));
    let image = disk.crash_image(2);
    drop(engine);
    damage(&image, "lostkeyspace");
    let engine = open_with(&salvaging(&image));
    let reported: Vec<String> = engine.schema_damage().iter().map(ToString::to_string).collect();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].contains("keyspace lostkeyspace: only parts of it"), "{reported:?}");
    assert!(stored_columns(&engine, "lostkeyspace").unwrap().is_empty());
}
