//! The limit of tables in memory: which writes are refused, which wait, and who is warned.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, EngineOptions, InMemoryNotice, InMemoryNotices, block_on};
use model::{
    Cell, DeletionTime, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, RowBuilder, Slice, Table,
    TableBuilder, TableId, TableOptions,
};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{clustering, create_table, delete_rows, insert, insertion, memory_only, rows, set_options};
use crate::in_memory::{create_in_memory, now_seconds, open, options};

#[test]
fn writes_that_enlarge_a_full_table_are_refused_and_others_succeed() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 1);
    let value = "v".repeat(1000);
    let write = |key: i32, row: i32, value: &str, timestamp| {
        block_on(engine.write(&insertion(&table, key, row, value, timestamp)))
    };
    let mut accepted = 0;
    let refusal = loop {
        match write(accepted, 1, &value, 1) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, EngineError::InMemoryTableFull { .. }), "{refusal}");
    assert!(refusal.to_string().contains("ks.t") && refusal.to_string().contains("size_limit_in_mb 1"), "{refusal}");
    let stats = || engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert!(stats().used_bytes <= stats().limit_bytes && stats().used_bytes > stats().limit_bytes * 9 / 10);
    assert_eq!(stats().refused_writes, 1);
    // Overwrites do not make the table larger.
    for key in 0..accepted {
        write(key, 1, &"w".repeat(1000), 2).unwrap();
    }
    write(0, 1, &"w".repeat(9000), 3).unwrap_err();
    // After a crash, refused writes are absent, acknowledged ones are there, and the table is as full as before.
    let expected = rows(&engine, &table);
    let restarted = Engine::open(options(&disk.crash_image(2))).unwrap();
    let again = restarted.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&restarted, &again), expected);
    block_on(restarted.write(&insertion(&again, accepted, 1, &value, 4))).unwrap_err();
    // Deletions are accepted and free memory.
    for key in 0..accepted / 2 {
        delete_rows(&engine, &table, key, 1, 5);
    }
    let freed = stats().used_bytes;
    assert!(freed < stats().limit_bytes * 2 / 3, "{freed}");
    for key in 0..accepted / 4 {
        write(1_000_000 + key, 1, &value, 6).unwrap();
    }
    assert!(stats().used_bytes <= stats().limit_bytes);
}

/// Unfinished writes have reserved what is left. Another write waits for them, and is not refused as long as it would
/// fit alone.
#[test]
fn a_write_waits_for_reserved_memory_and_is_refused_for_used_memory() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 1);
    let small = |key| insertion(&table, key, 1, "small", 1);
    let begin = |key| engine.begin_write(&engine.borrow_schema(), small(key)).expect("nothing is refused");
    let begun: Vec<_> = (0..10_000).map_while(begin).collect();
    let count = begun.len() as i32;
    assert!((100..5_000).contains(&count), "{count} writes under way reserve all there is");
    let waiting = small(count);
    let mut waiting = pin!(engine.write(&waiting));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    // A batch with two updates of the table does not wait for itself.
    let updates = [small(count + 2), small(count + 3)].into_iter().flat_map(Mutation::into_updates).collect();
    let batch = Mutation::new(updates);
    let mut batch = pin!(engine.write(&batch));
    assert!(batch.as_mut().poll(&mut context).is_pending());
    let woken = std::thread::scope(|scope| {
        let woken = scope.spawn(|| block_on(engine.write(&small(count + 1))));
        begun.into_iter().for_each(|begun| block_on(begun).unwrap());
        woken.join().unwrap()
    });
    woken.unwrap();
    block_on(waiting).unwrap();
    block_on(batch).unwrap();
    let stats = engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert_eq!((rows(&engine, &table).len() as i32, stats.refused_writes), (count + 4, 0));
    assert!(stats.used_bytes < stats.limit_bytes / 2, "what was given back is free");
    // A batch that needs more than the free memory does not wait for itself.
    let large = |key| insertion(&table, key, 2, &"v".repeat(400_000), 1);
    let updates = [large(0), large(1)].into_iter().flat_map(Mutation::into_updates).collect();
    block_on(engine.write(&Mutation::new(updates))).unwrap_err();
    // Writes are refused at most one reservation too early.
    let refused = (count + 4..).find(|key| block_on(engine.write(&small(*key))).is_err()).unwrap();
    let stats = engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert!(refused > count + 4 && stats.limit_bytes - stats.used_bytes < 2048, "{stats:?}");
}

#[test]
fn tables_that_cannot_fit_are_refused() {
    let disk = SimulatedDisk::new();
    let engine = Engine::open(EngineOptions { max_memory_to_lock_bytes: 3 << 20, ..options(&disk) }).unwrap();
    let table = create_table(&engine);
    let error = set_options(&engine, &table, memory_only(4)).unwrap_err().to_string();
    assert!(error.contains("4 MB") && error.contains("max_memory_to_lock of 3 MB"), "{error}");
    assert_eq!(engine.schema().table("ks", "t").unwrap().options, TableOptions::default());
    let value = "v".repeat(10_000);
    (0..150).for_each(|key| insert(&engine, &table, key, 1, &value, 1));
    let error = set_options(&engine, &table, memory_only(1)).unwrap_err().to_string();
    assert!(error.contains("size_limit_in_mb is 1, but table ks.t holds"), "{error}");
    let table = set_options(&engine, &table, memory_only(2)).unwrap();
    assert_eq!(rows(&engine, &table).len(), 150);
    set_options(&engine, &table, memory_only(1)).unwrap_err();
}

/// The table grows monotonically: there is one warning, in time.
#[test]
fn warnings_are_given_at_80_and_at_95_percent() {
    let disk = SimulatedDisk::new();
    let reported: Arc<Mutex<Vec<u64>>> = Arc::default();
    let notices = InMemoryNotices(Arc::new({
        let reported = reported.clone();
        move |notice: &InMemoryNotice| reported.lock().unwrap().push(notice.percent)
    }));
    let engine = Engine::open(EngineOptions { in_memory_notices: Some(notices), ..options(&disk) }).unwrap();
    let table = create_in_memory(&engine, 1);
    let fill = |timestamp| {
        let write = |key| block_on(engine.write(&insertion(&table, key, 1, &"v".repeat(5000), timestamp)));
        (0..).find(|key| write(*key).is_err()).unwrap()
    };
    let keys = fill(1);
    assert_eq!(*reported.lock().unwrap(), [80, 95]);
    let warnings = || {
        let stats = engine.table_stats(&table).unwrap().in_memory.unwrap();
        (stats.warnings, stats.warned_percent)
    };
    assert_eq!(warnings(), ([1, 1], 95));
    (0..keys / 2).for_each(|key| delete_rows(&engine, &table, key, 1, 2));
    assert_eq!(warnings(), ([1, 1], 0));
    fill(3);
    assert_eq!(warnings(), ([2, 2], 95));
    assert_eq!(*reported.lock().unwrap(), [80, 95, 80, 95], "again after it was calm");
}

/// A deletion with the current time, so that it is not purged during the test.
fn deletion(table: &Arc<Table>, key: i32, delete: impl FnOnce(&mut PartitionUpdateBuilder, DeletionTime)) -> Mutation {
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    delete(&mut update, DeletionTime::new(5, now_seconds()));
    Mutation::new(vec![update.build()])
}

/// This includes deletions that free no memory, until the reserve for deletions is used up.
#[test]
fn deletions_may_take_a_twentieth_more_than_the_limit() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 1);
    let write = |key: i32| block_on(engine.write(&insertion(&table, key, 1, &"v".repeat(500), 1)));
    let full = (0..).find(|key| write(*key).is_err()).unwrap();
    let stats = || engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert!(stats().used_bytes <= stats().limit_bytes);
    // These deletions are of rows that do not exist.
    let delete = |key: i32| {
        block_on(engine.write(&deletion(&table, key, |update, when| {
            update.delete_range(Slice::prefix(&clustering(1)), when);
        })))
    };
    let last = (full..).find(|key| delete(*key).is_err()).unwrap();
    let (used, limit) = (stats().used_bytes, stats().limit_bytes);
    assert!(used > limit + limit / 25 && used <= limit + limit / 20, "{} deletions, {used} of {limit}", last - full);
    write(0).unwrap();
    write(last).unwrap_err();
    assert_eq!(stats().refused_writes, 3);
    assert_eq!(rows(&engine, &table).len() as i32, full);
}

/// `ks.wide (k int PRIMARY KEY, v0 text, v1 text, ...)` in memory.
fn create_wide(engine: &Engine, columns: usize, size_limit_mb: u32) -> Arc<Table> {
    let builder = TableBuilder::new("ks", "wide", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let builder = (0..columns).fold(builder, |builder, column| builder.regular(&format!("v{column}"), CqlType::Text));
    let table = Arc::new(builder.options(memory_only(size_limit_mb)).build());
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.insert(table.name.clone(), table.clone());
    engine.set_keyspace(keyspace).unwrap();
    engine.schema().table("ks", "wide").unwrap().clone()
}

/// A row with these columns.
fn wide_row(table: &Arc<Table>, key: i32, columns: Range<usize>, value: &[u8], timestamp: i64) -> Mutation {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(Liveness::at(timestamp));
    columns.for_each(|column| row.cell(column, &Cell::live(timestamp, value)));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.row(&[], &blob);
    Mutation::new(vec![update.build()])
}

/// Rows in pieces behave as other rows.
#[test]
fn a_full_table_takes_overwrites_of_large_rows_and_their_deletion() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_wide(&engine, 100, 1);
    let write = |key: i32, columns: Range<usize>, value: &[u8], timestamp| {
        block_on(engine.write(&wide_row(&table, key, columns, value, timestamp)))
    };
    let count = (0..).find(|key| write(*key, 0..100, &[b'v'; 60], 1).is_err()).unwrap();
    let stats = || engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert!((100..160).contains(&count), "{count} rows of 6 KB in 1 MB");
    for key in 0..count {
        write(key, 0..100, &[b'w'; 60], 2).unwrap();
    }
    write(0, 0..100, &[b'w'; 300], 3).unwrap_err();
    let (used, refused) = (stats().used_bytes, stats().refused_writes);
    assert!(used <= stats().limit_bytes, "{used}");
    assert_eq!(refused, 2);
    // Rows that do not exist are deleted until the reserve for deletions is used up.
    let delete = |key: i32| {
        let mutation = deletion(&table, key, |update, when| update.delete_partition(when));
        block_on(engine.write(&mutation))
    };
    (count..).find(|key| delete(*key).is_err()).unwrap();
    assert!(stats().used_bytes > stats().limit_bytes);
    for key in 0..20 {
        delete(key).unwrap();
    }
    assert!(stats().used_bytes < used);
    write(0, 0..100, &[b'x'; 60], 6).unwrap();
}

/// An INSERT of one column makes the row newer. All other cells must then store their own older timestamp, which takes
/// nine bytes each.
#[test]
fn a_limit_holds_when_one_column_enlarges_all_others() {
    // The lengths leave a different rest of the limit each time.
    for length in 1..6 {
        let disk = SimulatedDisk::new();
        let engine = open(&disk);
        let table = create_wide(&engine, 300, 1);
        let write = |key: i32, columns: Range<usize>, timestamp| {
            block_on(engine.write(&wide_row(&table, key, columns, &b"value"[..length], timestamp)))
        };
        let count = (0..).find(|key| write(*key, 0..300, 1).is_err()).unwrap();
        let refused = (0..count).filter(|key| write(*key, 50..51, 2).is_err()).count() as i32;
        let stats = engine.table_stats(&table).unwrap().in_memory.unwrap();
        assert!(stats.used_bytes <= stats.limit_bytes && refused >= count - 10, "{refused} of {count}, {stats:?}");
    }
}
