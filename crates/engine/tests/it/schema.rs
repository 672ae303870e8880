//! The schema lives in the engine's own tables.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blockio::{Disk, Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineError, block_on};
use model::{Cell, Mutation, PartitionKey, PartitionUpdateBuilder, RowBuilder, Table, TableBuilder, TableId};
use testkit::TemporaryDirectory;
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{
    columns, create_table, delete_rows, insert, insertion, open, open_with, options, rows, small_options,
    stored_columns,
};

#[test]
fn a_table_takes_writes_and_gives_them_back() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "one", 10);
    insert(&engine, &table, 1, 2, "two", 10);
    insert(&engine, &table, 1, 1, "older", 9);
    assert_eq!(rows(&engine, &table), [(1, 1, "one".into()), (1, 2, "two".into())]);
}

#[test]
fn schema_and_rows_survive_a_crash_and_a_clean_stop() {
    let directory = TemporaryDirectory::create();
    let (table, expected) = {
        let engine = open(&directory);
        let table = create_table(&engine);
        for row in 0..50 {
            insert(&engine, &table, row % 5, row, &format!("value {row}"), 10);
        }
        delete_rows(&engine, &table, 1, 1, 11);
        let expected = rows(&engine, &table);
        assert_eq!(expected.len(), 49);
        (table, expected)
        // The engine is dropped without a shutdown, so the log has everything.
    };
    let engine = open(&directory);
    assert_eq!(engine.schema().table("ks", "t").map(|found| found.id), Some(table.id));
    assert_eq!(rows(&engine, &table), expected);
    assert!(engine.replay_summary().replayed > 50);
    insert(&engine, &table, 9, 9, "after", 20);
    engine.shutdown().unwrap();
    drop(engine);

    let engine = open(&directory);
    assert_eq!(engine.replay_summary(), Default::default(), "nothing is left to replay after a clean stop");
    assert_eq!(rows(&engine, &table).len(), expected.len() + 1);
    let found = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!(*found, *table, "the stored schema is the schema");
}

#[test]
fn flushes_and_memtables_are_read_as_one() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "flushed", 10);
    insert(&engine, &table, 1, 2, "to be deleted", 10);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 1, 3, "newer", 10);
    delete_rows(&engine, &table, 1, 2, 11);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 1, 1, "overwritten", 12);
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 2);
    assert_eq!(rows(&engine, &table), [(1, 1, "overwritten".into()), (1, 3, "newer".into())]);
}

#[test]
fn a_truncated_table_stays_empty_after_a_crash() {
    let directory = TemporaryDirectory::create();
    let table = {
        let engine = open(&directory);
        let table = create_table(&engine);
        insert(&engine, &table, 1, 1, "flushed", 10);
        engine.flush(&table).unwrap();
        insert(&engine, &table, 1, 2, "in memory", 10);
        engine.truncate(&table).unwrap();
        assert_eq!(rows(&engine, &table), []);
        insert(&engine, &table, 1, 3, "after", 10);
        table
    };
    let engine = open(&directory);
    assert_eq!(rows(&engine, &table), [(1, 3, "after".into())]);
}

/// The flushed SSTable is newer than the schema at the beginning of the log.
#[test]
fn a_flushed_column_survives_a_crash_before_its_schema_is_flushed() {
    let directory = TemporaryDirectory::create();
    let altered = {
        let engine = open(&directory);
        let table = create_table(&engine);
        let altered = Arc::new(table.to_builder().regular("u", CqlType::Text).build());
        let changed = altered.clone();
        let add = engine.change_schema::<_, engine::EngineError>(|_, keyspaces| {
            let keyspace = keyspaces.get_mut("ks").unwrap();
            Arc::make_mut(keyspace).tables.insert(changed.name.clone(), changed);
            Ok(())
        });
        add.unwrap();
        insert(&engine, &altered, 1, 1, "in the new column", 10);
        engine.flush(&altered).unwrap();
        altered
    };
    let engine = open(&directory);
    assert_eq!(rows(&engine, &altered), [(1, 1, "in the new column".into())]);
}

#[test]
fn a_second_engine_on_the_directory_is_refused() {
    let directory = TemporaryDirectory::create();
    let _engine = open(&directory);
    let error = engine::Engine::open(options(&directory)).err().unwrap();
    assert!(error.to_string().contains("process"), "{error}");
}

#[test]
fn a_dropped_table_is_gone_and_its_name_can_be_used_again() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let old = create_table(&engine);
    insert(&engine, &old, 1, 1, "old", 10);
    let new = create_table(&engine);
    assert!(engine.read(&old, &model::ReadRange::all_rows(model::KeyRange::all())).is_err());
    assert_eq!(rows(&engine, &new), []);
    drop(engine);
    assert_eq!(rows(&open(&directory), &new), []);
}

/// A statement that was resolved before a drop does not reach the table that has the id now.
#[test]
fn statements_resolved_before_a_drop_do_not_reach_a_new_table_with_the_same_id() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let old = create_table(&engine);
    insert(&engine, &old, 1, 1, "old", 10);
    let (schema, late) = (engine.borrow_schema(), insertion(&old, 1, 2, "late", 10));
    for table in [None, Some(Arc::new(old.to_builder().build()))] {
        let change = engine.change_schema::<_, EngineError>(|_, keyspaces| {
            let tables = &mut Arc::make_mut(keyspaces.get_mut("ks").unwrap()).tables;
            tables.remove("t");
            tables.extend(table.map(|table| ("t".into(), table)));
            Ok(())
        });
        change.unwrap();
    }
    let is_gone = |outcome: Result<(), EngineError>| matches!(outcome, Err(EngineError::UnknownTable(_)));
    assert!(is_gone(block_on(engine.write(&late))));
    assert!(is_gone(engine.begin_write(&schema, late.clone()).map(drop)), "by the schema of before");
    assert!(is_gone(engine.begin_write(&engine.borrow_schema(), late).map(drop)), "by that of now");
    assert!(is_gone(engine.read(&old, &model::ReadRange::all_rows(model::KeyRange::all())).map(drop)));

    let new = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!((&*new, rows(&engine, &new)), (&*old, vec![]), "the same but in time");
    let altered = Arc::new(new.to_builder().regular("w", CqlType::Int).build());
    let alter = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        Arc::make_mut(keyspaces.get_mut("ks").unwrap()).tables.insert("t".into(), altered.clone());
        Ok(())
    });
    alter.unwrap();
    insert(&engine, &new, 1, 3, "resolved before it was altered", 10);
    assert_eq!(rows(&engine, &altered).len(), 1);
}

#[test]
fn compaction_leaves_one_table_with_the_same_rows() {
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let table = create_table(&engine);
    // A compaction in the background could purge the deletions, which are old enough, while older rows are still
    // written.
    engine.set_autocompaction(&table, false).unwrap();
    for round in 0..6 {
        for row in 0..20 {
            insert(&engine, &table, row % 3, row, &format!("{round}.{row}"), 10 + i64::from(round));
        }
        delete_rows(&engine, &table, 0, round, 100);
        engine.flush(&table).unwrap();
    }
    let expected = rows(&engine, &table);
    engine.compact(&table).unwrap();
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
    assert_eq!(rows(&engine, &table), expected);
    drop(engine);
    let engine = open(&directory);
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
    assert_eq!(rows(&engine, &table), expected);
}

#[test]
fn a_write_whose_future_is_dropped_is_complete_or_absent_and_blocks_no_flush() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    let directory = TemporaryDirectory::create();
    let engine = open(&directory);
    let table = create_table(&engine);
    for row in 0..200 {
        let mutation = crate::fixture::insertion(&table, 1, row, "abandoned", 10);
        let mut write = Box::pin(engine.write(&mutation));
        let polled = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending | Poll::Ready(Ok(()))));
    }
    engine.flush(&table).unwrap();
    insert(&engine, &table, 2, 0, "after", 10);
    // Everything that was logged before this write is durable now, and a second flush waits until all of it is visible.
    engine.flush(&table).unwrap();
    let before = rows(&engine, &table);
    assert_eq!(before.len(), 201);
    drop(engine);
    assert_eq!(rows(&open(&directory), &table), before);
}

/// The schema's tables are flushed one by one, and a crash may come between any two flushes.
#[test]
fn a_schema_of_which_one_table_was_flushed_is_whole_after_a_crash() {
    let names = ["keyspaces", "tables", "columns", "dropped_columns", "types", "table_layouts", "local"];
    for name in names {
        let directory = TemporaryDirectory::create();
        let (old, new) = {
            let engine = open(&directory);
            let old = create_table(&engine);
            insert(&engine, &old, 1, 1, "old", 10);
            let new = create_table(&engine);
            insert(&engine, &new, 1, 1, "new", 10);
            let schema = engine.schema();
            let found = schema.table("system_schema", name).or_else(|| schema.table("system", name));
            engine.flush(found.unwrap()).unwrap();
            (old, new)
        };
        let engine = open(&directory);
        let found = engine.schema().table("ks", "t").cloned();
        assert_eq!(found.as_deref(), Some(&*new), "{name} flushed");
        assert_eq!(rows(&engine, &new), [(1, 1, "new".into())], "{name} flushed");
        assert!(engine.read(&old, &model::ReadRange::all_rows(model::KeyRange::all())).is_err());
    }
}

/// Cells of a dropped column with a dropped type are still skipped correctly in old rows.
#[test]
fn rows_with_collections_of_a_dropped_type_survive_a_crash() {
    let directory = TemporaryDirectory::create();
    let change = |engine: &engine::Engine, change: &dyn Fn(&mut model::Keyspace)| {
        let changed = engine.change_schema::<_, engine::EngineError>(|_, keyspaces| {
            change(Arc::make_mut(keyspaces.get_mut("ks").unwrap()));
            Ok(())
        });
        changed.unwrap();
    };
    let last = {
        let engine = open(&directory);
        let table = create_table(&engine);
        let fields = vec![("f".into(), CqlType::Int)];
        let user = Arc::new(types::UserType::new("ks".into(), "u".into(), fields));
        let element = Arc::new(CqlType::Udt { definition: user.clone(), frozen: true });
        let with = table.to_builder().regular("l", CqlType::List { element, frozen: false }).build();
        let with =
            Arc::new(with.to_builder().regular("w", CqlType::Udt { definition: user.clone(), frozen: false }).build());
        change(&engine, &|keyspace| {
            keyspace.types.insert(user.name.clone(), user.clone());
            keyspace.tables.insert(with.name.clone(), with.clone());
        });
        let mut row = model::RowBuilder::default();
        row.start(with.regulars(), false);
        row.liveness(model::Liveness::at(10));
        for (index, column) in with.regulars().columns.iter().enumerate() {
            if column.is_complex() {
                row.complex(index, model::DeletionTime::LIVE);
                let path: &[u8] = if &*column.name == "w" { &[0, 0] } else { &[1; 16] };
                row.complex_cell(&model::Cell::live(10, &[0, 0, 0, 4, 0, 0, 0, 7]).with_path(path));
            } else {
                row.cell(index, &model::Cell::live(10, b"value"));
            }
        }
        let mut blob = Vec::new();
        row.finish(&mut blob);
        let mut update = model::PartitionUpdateBuilder::new(with.clone(), model::PartitionKey::new(&[0, 0, 0, 1]));
        update.row(&crate::fixture::clustering(1), &blob);
        engine::block_on(engine.write(&model::Mutation::new(vec![update.build()]))).unwrap();
        let without = with.to_builder().drop_column("l", CqlType::Blob, 20).drop_column("w", CqlType::Blob, 20).build();
        let without = Arc::new(without);
        change(&engine, &|keyspace| {
            keyspace.tables.insert(without.name.clone(), without.clone());
            keyspace.types.clear();
        });
        without
    };
    let engine = open(&directory);
    assert_eq!(rows(&engine, &last), [(1, 1, "value".into())]);
    engine.flush(&last).unwrap();
    assert_eq!(rows(&engine, &last), [(1, 1, "value".into())]);
}

/// CREATE or ALTER TABLE.
fn put_table(engine: &Engine, table: Table) -> Result<(), EngineError> {
    let changed = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        Arc::make_mut(keyspaces.get_mut("ks").unwrap()).tables.insert(table.name.clone(), Arc::new(table));
        Ok(())
    });
    changed.map(|_| ())
}

/// With `periodic` a write does not wait for the log. A schema change does, and is not visible before.
#[test]
fn a_change_of_the_schema_that_a_failing_log_refuses_is_not_shown() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.commitlog.sync = SyncMode::Periodic { period: Duration::from_secs(3600) };
    let engine = open_with(&options);
    let table = create_table(&engine);
    disk.inject(Fault::FailSync, 0);
    let refused = put_table(&engine, table.to_builder().regular("refused", CqlType::Int).build()).unwrap_err();
    assert!(matches!(refused, EngineError::ClosedForWrites(_)), "{refused}");
    let shown = stored_columns(&engine, "ks").unwrap();
    assert_eq!((shown.len(), &shown), (4, &columns(&engine, "ks")));
}

/// An operation of a CREATE TABLE fails, each in turn. Clients see the schema as it is, then and after the next CREATE.
#[test]
fn a_table_that_cannot_be_opened_is_not_stored() {
    let mut refused = 0;
    for failing in 0.. {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        create_table(&engine);
        let id = Uuid::from_u128(7);
        let made = |column: &str| {
            let builder = TableBuilder::new("ks", "made", TableId(id)).partition_key("k", CqlType::Int);
            builder.regular(column, CqlType::Text).build()
        };
        // A directory of another origin exists already.
        disk.create_dir_all(&Path::new("/node/data/ks").join(format!("made-{}", id.simple()))).unwrap();
        disk.inject(Fault::Fail, failing);
        let first = put_table(&engine, made("first"));
        assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"), "operation {failing}");
        if first.is_ok() {
            break;
        }
        refused += 1;
        if engine.log_closed().is_none() {
            put_table(&engine, made("second")).unwrap();
            assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"));
        }
    }
    assert!(refused > 1, "operations of a CREATE matter");
}

/// This includes changes that were replayed and are not in an SSTable yet.
#[test]
fn changes_of_the_schema_are_newer_than_those_before_though_the_clock_was_set_back() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.memtable_space_bytes = 4 << 20;
    let engine = open_with(&options);
    let table = create_table(&engine);
    // The rows take more than a start flushes before it serves requests.
    (0..10).for_each(|row| insert(&engine, &table, 1, row, &"v".repeat(20_000), 10));
    let local = engine.schema().table("system", "local").unwrap().clone();
    let ahead = engine.next_timestamp_micros() + 3_600_000_000;
    let mut row = RowBuilder::default();
    row.start(local.regulars(), false);
    let version = engine.schema().version;
    row.cell(local.regulars().index_of("schema_version").unwrap(), &Cell::live(ahead, version.as_bytes()));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(local, PartitionKey::new(b"local"));
    update.row(&[], &blob);
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    options.disk = Arc::new(disk.crash_image(1));
    let engine = Engine::open(options).unwrap();
    assert_eq!(engine.schema().version, version);
    assert!(engine.next_timestamp_micros() > ahead);
}
