//! Batches that are larger than the largest record of the log.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{KeyRange, Keyspace, Mutation, ReadRange, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{
    create_table, delete_partition, insertion, memory_only, open_with, rows, set_options, small_options,
};

const PARTITIONS: usize = 6;

fn options(disk: &SimulatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.commitlog.sync = SyncMode::Batch;
    options
}

/// A batch of twice the largest record, in partitions that each fit into one.
fn batch(table: &Arc<Table>) -> Mutation {
    let value = "v".repeat(40_000);
    let updates = (0..PARTITIONS).flat_map(|key| insertion(table, key as i32, 0, &value, 10).into_updates());
    Mutation::new(updates.collect())
}

/// The number of kept batches.
fn kept(engine: &Engine) -> usize {
    let schema = engine.schema();
    let table = schema.table("system", "batches").unwrap();
    let mut cursor = engine.read(table, &ReadRange::all_rows(KeyRange::all())).unwrap();
    let mut kept = 0;
    while cursor.advance_partition().unwrap() {
        while cursor.advance().unwrap() {
            kept += usize::from(matches!(cursor.unfiltered(), Unfiltered::Row(row) if row.row.is_live(table, 1000)));
        }
    }
    kept
}

#[test]
fn a_batch_larger_than_a_record_is_written_and_its_pieces_are_gone() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk));
    let table = create_table(&engine);
    let batch = batch(&table);
    assert!(matches!(block_on(engine.write(&batch)), Err(EngineError::MutationTooLarge { .. })));
    block_on(engine.write_batch(&batch)).unwrap();
    assert_eq!((rows(&engine, &table).len(), kept(&engine)), (PARTITIONS, 0));
    let engine = Engine::open(options(&disk.crash_image(1))).unwrap();
    assert_eq!((rows(&engine, &table).len(), kept(&engine)), (PARTITIONS, 0));
}

#[test]
fn a_large_batch_is_whole_or_absent_after_any_power_cut() {
    let mut seen = [false; 2];
    for failing in 0.. {
        let disk = SimulatedDisk::new();
        let engine = open_with(&options(&disk));
        let table = create_table(&engine);
        disk.inject(Fault::Fail, failing);
        let written = block_on(engine.write_batch(&batch(&table)));
        let engine = Engine::open(options(&disk.crash_image(failing))).unwrap();
        let found = rows(&engine, &table).len();
        assert!([0, PARTITIONS].contains(&found), "{found} partitions after a failure of write {failing}");
        assert_eq!(kept(&engine), 0);
        seen[usize::from(found > 0)] |= written.is_err();
        if written.is_ok() {
            assert_eq!(found, PARTITIONS);
            break;
        }
    }
    assert_eq!(seen, [true; 2], "failures before it was kept, and after");
}

/// Both happen in the same millisecond, so that the time does not tell which of them was first.
#[test]
fn a_large_batch_begun_right_after_a_truncation_is_whole_or_absent_after_any_power_cut() {
    let mut unwritten = 0;
    for failing in 0.. {
        let disk = SimulatedDisk::new();
        let engine = open_with(&options(&disk));
        let table = create_table(&engine);
        engine.truncate(&table).unwrap();
        disk.inject(Fault::Fail, failing);
        let written = block_on(engine.write_batch(&batch(&table)));
        let engine = Engine::open(options(&disk.crash_image(failing))).unwrap();
        let found = rows(&engine, &table).len();
        assert!([0, PARTITIONS].contains(&found), "{found} partitions after a failure of write {failing}");
        unwritten += usize::from(found == 0);
        if written.is_ok() {
            break;
        }
    }
    assert!(unwritten > 0, "the first write fails before the batch is kept");
}

/// A start finishes a batch that was refused half-way. It does not write into a table that was truncated since, or that
/// was dropped and created again.
#[test]
fn a_start_does_not_restore_rows_that_were_truncated_or_dropped_after_a_refused_batch() {
    let mut tried = 0;
    // The disk fills up somewhere between the record of the batch and its updates, and the log cannot grow.
    for room_bytes in (0..1 << 20).step_by(128 << 10) {
        let disk = SimulatedDisk::new();
        let engine = open_with(&options(&disk));
        let table = create_table(&engine);
        let space = disk.space(Path::new("/")).unwrap();
        disk.set_capacity(space.total_bytes - space.free_bytes + room_bytes);
        if block_on(engine.write_batch(&batch(&table))).is_ok() || kept(&engine) == 0 {
            continue;
        }
        disk.set_capacity(u64::MAX);
        let found_by_a_start = || {
            let engine = Engine::open(options(&disk.crash_image(room_bytes))).unwrap();
            let table = engine.schema().table(&table.keyspace, &table.name).unwrap().clone();
            assert_eq!(kept(&engine), 0);
            rows(&engine, &table).len()
        };
        if found_by_a_start() == 0 {
            continue;
        }
        tried += 1;
        assert_eq!(found_by_a_start(), PARTITIONS);
        engine.truncate(&table).unwrap();
        assert_eq!((rows(&engine, &table).len(), kept(&engine)), (0, 1));
        assert_eq!(found_by_a_start(), 0, "truncated");
        let keyspace = engine.schema().keyspace("ks").unwrap().clone();
        engine.set_keyspace(Keyspace::new("ks", BTreeMap::new(), true)).unwrap();
        engine.set_keyspace((*keyspace).clone()).unwrap();
        assert_eq!((found_by_a_start(), kept(&engine)), (0, 1), "made anew, of the same id");
    }
    assert!(tried > 0);
}

#[test]
fn a_large_batch_whose_future_is_dropped_is_whole_or_absent() {
    for polls in 1..12 {
        let disk = SimulatedDisk::new();
        let engine = open_with(&options(&disk));
        let table = create_table(&engine);
        let mutation = batch(&table);
        {
            let mut write = pin!(engine.write_batch(&mutation));
            for _ in 0..polls {
                // A finished future must not be polled again.
                if write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        // Waits until the thread that finishes the batch drops its reference to the engine.
        while Arc::strong_count(&engine) > 1 {
            std::thread::sleep(crate::fixture::PAUSE);
        }
        let found = rows(&engine, &table).len();
        assert!([0, PARTITIONS].contains(&found), "{found} partitions after {polls} polls");
        assert_eq!(kept(&engine), 0);
    }
}

#[test]
fn a_batch_with_a_part_too_large_for_a_record_is_refused_before_anything_is_written() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk));
    let table = create_table(&engine);
    let mut updates = batch(&table).into_updates();
    updates.extend(insertion(&table, 9, 0, &"v".repeat(140_000), 10).into_updates());
    let refused = block_on(engine.write_batch(&Mutation::new(updates)));
    assert!(matches!(refused, Err(EngineError::MutationTooLarge { size_bytes, .. }) if size_bytes < 150_000));
    assert_eq!((rows(&engine, &table).len(), kept(&engine)), (0, 0));
}

/// If a part of it were written, all of it would be there after the next start.
#[test]
fn a_batch_without_room_in_a_table_in_memory_is_refused_as_a_whole() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk));
    let table = create_table(&engine);
    let table = set_options(&engine, &table, memory_only(1)).unwrap();
    // There is room for a part of the batch only.
    let others = (100..117).map(|key| insertion(&table, key, 0, &"v".repeat(50_000), 10));
    let others = others.take_while(|mutation| block_on(engine.write(mutation)).is_ok()).count();
    let used_bytes = || engine.table_stats(&table).unwrap().in_memory.unwrap().used_bytes;
    let used_before = used_bytes();
    assert!(used_before < (1 << 20) - 100_000, "{used_before} bytes");
    let refused = block_on(engine.write_batch(&batch(&table)));
    assert!(matches!(refused, Err(EngineError::InMemoryTableFull { .. })), "{refused:?}");
    assert_eq!((rows(&engine, &table).len(), kept(&engine), used_bytes()), (others, 0, used_before));
    let restarted = Engine::open(options(&disk.crash_image(1))).unwrap();
    let again = restarted.schema().table("ks", "t").unwrap().clone();
    assert_eq!((rows(&restarted, &again).len(), kept(&restarted)), (others, 0));
    // The reservation was returned, and deletions make room.
    (100..106).for_each(|key| delete_partition(&engine, &table, key, 20));
    block_on(engine.write_batch(&batch(&table))).unwrap();
    assert_eq!((rows(&engine, &table).len(), kept(&engine)), (others - 6 + PARTITIONS, 0));
}

/// Otherwise others would take its room, and the table would outgrow its limit.
#[test]
fn a_batch_keeps_its_reservation_in_a_table_in_memory_until_it_is_written() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk));
    let table = create_table(&engine);
    let table = set_options(&engine, &table, memory_only(1)).unwrap();
    let others = |count: i32| (100..100 + count).map(|key| insertion(&table, key, 0, &"v".repeat(50_000), 10));
    // Beside these rows there is room for the batch, and not for another row.
    for other in others(13) {
        block_on(engine.write(&other)).unwrap();
    }
    let mutation = batch(&table);
    let mut written = pin!(engine.write_batch(&mutation));
    let context = &mut Context::from_waker(Waker::noop());
    let stall = disk.stall();
    assert!(written.as_mut().poll(context).is_pending(), "what is kept of it is not durable yet");
    drop(stall);
    // Others take the room that is free, and then wait for what the batch has reserved.
    for key in 200..210 {
        let other = insertion(&table, key, 0, &"v".repeat(50_000), 10);
        let mut other = pin!(engine.write(&other));
        let mut polls = (0..50).map(|_| {
            std::thread::sleep(crate::fixture::PAUSE);
            other.as_mut().poll(context)
        });
        if polls.all(|polled| polled.is_pending()) {
            break;
        }
    }
    block_on(written).unwrap();
    assert_eq!(kept(&engine), 0);
    let stats = engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert!(stats.used_bytes <= stats.limit_bytes, "{stats:?}");
}

/// A node with `ks.t` and a table like it, `other.u`.
fn two_tables(options: &EngineOptions) -> (Arc<Engine>, Arc<Table>, Arc<Table>) {
    let engine = open_with(options);
    let table = create_table(&engine);
    let builder = TableBuilder::new("other", "u", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
    let mut keyspace = Keyspace::new("other", BTreeMap::new(), true);
    keyspace.tables.insert("u".into(), Arc::new(builder.regular("v", CqlType::Text).build()));
    engine.set_keyspace(keyspace).unwrap();
    let other = engine.schema().table("other", "u").unwrap().clone();
    (engine, table, other)
}

fn count_of(byte: u8, disk: &SimulatedDisk, path: &Path) -> usize {
    let file = disk.open(path, OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.iter().filter(|other| **other == byte).count()
}

#[test]
fn a_table_that_is_quarantined_amid_a_large_batch_keeps_no_other_from_its_part() {
    // Which part the quarantine comes before is a matter of luck.
    const PARTS: usize = 24;
    let mut amid = 0;
    for polls in (1..400).map(|attempt| 1 + attempt % 20) {
        if amid > 0 {
            break;
        }
        let disk = SimulatedDisk::new();
        let mut options = options(&disk);
        options.opens_damaged = true;
        let (engine, table, other) = two_tables(&options);
        // It cannot be flushed, and only a drain or a flush finds that.
        let wrong = crate::quarantine::what_cannot_be_stored(&table);
        block_on(engine.write(&wrong)).unwrap();
        let value = "v".repeat(40_000);
        let part = |key: i32| {
            let table = if key % 2 == 0 { &table } else { &other };
            insertion(table, key, 5, &value, 20).into_updates()
        };
        let mutation = Mutation::new((0..PARTS as i32).flat_map(part).collect());
        let mut write = Box::pin(engine.write_batch(&mutation));
        let mut result = None;
        for _ in 0..polls {
            if let Poll::Ready(ready) = write.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                result = Some(ready);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_kept = kept(&engine) == 1;
        // The flush waits for writes that are under way.
        let result = std::thread::scope(|scope| {
            let flush = scope.spawn(|| engine.flush(&table).unwrap_err());
            let result = result.unwrap_or_else(|| block_on(write));
            flush.join().unwrap();
            result
        });
        // The thread that finishes the batch holds the engine until then.
        while Arc::strong_count(&engine) > 1 {
            std::thread::sleep(crate::fixture::PAUSE);
        }
        match result {
            Ok(()) => continue,
            Err(EngineError::Quarantined { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let of_other = rows(&engine, &other).len();
        assert!(of_other == 0 || of_other == PARTS / 2, "whole or not at all: {of_other} after {polls} polls");
        assert_eq!(kept(&engine), 0, "after {polls} polls");
        let side_file = engine.quarantined_tables()[0].side_files.clone();
        let set_aside: usize = side_file.iter().map(|path| count_of(b'v', &disk, path)).sum();
        if of_other > 0 {
            assert!(set_aside >= PARTS / 2 * value.len(), "{set_aside} bytes after {polls} polls");
            amid += usize::from(is_kept);
        }
    }
    assert!(amid > 0);
}
