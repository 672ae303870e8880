//! Tables that live in memory: reads look at no file, whatever happened before; nothing is lost; no more is taken than may be.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, EngineOptions, InMemoryNotice, InMemoryNotices, block_on};
use model::{
    Cell, DeletionTime, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, RowBuilder, Table, TableOptions,
};

use crate::fixture::{
    clustering, create_table, delete_rows, insert, insertion, memory_only, rows, rows_at, set_options, small_options,
};

/// A node whose cache holds no page of an SSTable.
fn options(disk: &SimulatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.cache_bytes = 0;
    options
}

fn open(disk: &SimulatedDisk) -> Arc<Engine> {
    Engine::open(options(disk)).unwrap()
}

fn create_in_memory(engine: &Engine, size_limit_mb: u32) -> Arc<Table> {
    let table = create_table(engine);
    set_options(engine, &table, memory_only(size_limit_mb)).unwrap()
}

/// The rows, and how often reading them went to the disk.
fn read(engine: &Engine, disk: &SimulatedDisk, table: &Arc<Table>) -> (Vec<(i32, i32, String)>, u64) {
    let before = disk.operations();
    let rows = rows(engine, table);
    (rows, disk.operations() - before)
}

#[test]
fn reads_look_at_no_file_whatever_was_overwritten_deleted_and_flushed() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    let mut expected = Vec::new();
    for round in 0..5 {
        expected.clear();
        for key in 0..20 {
            insert(&engine, &table, key, 1, &format!("{round}"), i64::from(round) * 10);
            insert(&engine, &table, key, 2, "deleted", i64::from(round) * 10);
            delete_rows(&engine, &table, key, 2, i64::from(round) * 10 + 1);
            expected.push((key, 1, round.to_string()));
        }
        engine.flush(&table).unwrap();
        assert_eq!(read(&engine, &disk, &table), (expected.clone(), 0));
        assert!(engine.is_in_memory(&table));
    }
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 5);
    insert(&engine, &table, 3, 2, "late and older than the deletion", 5);
    assert_eq!(read(&engine, &disk, &table), (expected.clone(), 0));
    engine.compact(&table).unwrap();
    assert_eq!(read(&engine, &disk, &table), (expected.clone(), 0));
    // The same table out of memory: so the count is one of reads.
    let table = set_options(&engine, &table, TableOptions::default()).unwrap();
    engine.flush(&table).unwrap();
    let (found, operations) = read(&engine, &disk, &table);
    assert!(found == expected && operations > 0 && !engine.is_in_memory(&table));
    assert_eq!(engine.table_stats(&table).unwrap().in_memory, None, "nothing is resident any more");
}

#[test]
fn an_imported_deletion_shadows_what_is_resident_however_old_it_is() {
    let disk = SimulatedDisk::new();
    let mut other_node = options(&disk);
    other_node.directory = "/elsewhere".into();
    other_node.commitlog.directory = "/elsewhere/commitlog".into();
    let elsewhere = Engine::open(other_node).unwrap();
    let source = create_table(&elsewhere);
    // Deleted one second after the epoch: any purge would drop it.
    delete_rows(&elsewhere, &source, 1, 1, 20);
    let snapshot = elsewhere.snapshot(&source, "deletion", "").unwrap();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    insert(&engine, &table, 1, 1, "older", 10);
    insert(&engine, &table, 1, 2, "other", 10);
    assert_eq!(engine.import(&table, &snapshot).unwrap(), 1);
    assert_eq!(read(&engine, &disk, &table), (vec![(1, 2, "other".into())], 0));
    assert!(engine.is_in_memory(&table));
}

#[test]
fn what_is_in_sstables_and_in_the_log_is_in_memory_after_a_start() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    for key in 0..100 {
        insert(&engine, &table, key, 1, "flushed", 10);
        insert(&engine, &table, key, 2, "deleted", 10);
    }
    engine.flush(&table).unwrap();
    for key in 0..50 {
        delete_rows(&engine, &table, key, 2, 20);
        insert(&engine, &table, key, 3, "logged", 20);
    }
    let expected = rows(&engine, &table);
    assert_eq!(expected.len(), 200);
    for power_cut in [true, false] {
        let disk = if power_cut { disk.crash_image(7) } else { disk.clone() };
        if !power_cut {
            engine.shutdown().unwrap();
        }
        let engine = Engine::open(options(&disk.crash_image(1))).unwrap();
        let table = engine.schema().table("ks", "t").unwrap().clone();
        assert!(engine.is_in_memory(&table));
        assert_eq!(rows(&engine, &table), expected);
    }
}

#[test]
fn a_table_goes_into_memory_and_out_of_it_while_it_is_written_and_read() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let mut table = create_table(&engine);
    let (done, written) = (AtomicBool::new(false), AtomicBool::new(false));
    const KEYS: i32 = 400;
    for key in 0..KEYS {
        insert(&engine, &table, key, 0, "before", 1);
    }
    std::thread::scope(|scope| {
        let (before, seen) = (table.clone(), table.clone());
        let (engine, done, written) = (&engine, &done, &written);
        scope.spawn(move || {
            for key in 0..KEYS {
                insert(engine, &before, key, 1, "meanwhile", 2);
            }
            written.store(true, Ordering::Release);
        });
        scope.spawn(move || {
            let mut count = 0;
            while !done.load(Ordering::Acquire) {
                let found = rows(engine, &seen).len();
                assert!(found >= count, "{found} rows, and {count} before");
                count = found;
            }
        });
        let mut moves = 0;
        while !written.load(Ordering::Acquire) || moves < 4 {
            let goes_in = moves % 2 == 0;
            let options = if goes_in { memory_only(64) } else { TableOptions::default() };
            table = set_options(engine, &table, options).unwrap();
            assert!(!goes_in || engine.is_in_memory(&table));
            engine.flush(&table).unwrap();
            moves += 1;
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(rows(&engine, &table).len(), 2 * KEYS as usize);
}

#[test]
fn a_truncated_table_in_memory_is_empty_and_stays_so() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    insert(&engine, &table, 1, 1, "old", 1);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 1, 2, "old", 1);
    engine.truncate(&table).unwrap();
    assert_eq!(read(&engine, &disk, &table), (vec![], 0));
    insert(&engine, &table, 1, 3, "new", 2);
    let expected = vec![(1, 3, "new".to_string())];
    assert_eq!(read(&engine, &disk, &table), (expected.clone(), 0));
    let engine = Engine::open(options(&disk.crash_image(3))).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&engine, &table), expected);
}

#[test]
fn writes_that_grow_a_full_table_are_refused_and_others_go_through() {
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
    // Overwrites do not grow it.
    for key in 0..accepted {
        write(key, 1, &"w".repeat(1000), 2).unwrap();
    }
    write(0, 1, &"w".repeat(1001), 3).unwrap_err();
    // What was refused is not there after a crash, what was acknowledged is, and the table is as full as before.
    let expected = rows(&engine, &table);
    let restarted = Engine::open(options(&disk.crash_image(2))).unwrap();
    let again = restarted.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&restarted, &again), expected);
    block_on(restarted.write(&insertion(&again, accepted, 1, &value, 4))).unwrap_err();
    // Deletions go through, and make room.
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

/// A row that expires.
fn expiring(table: &Arc<Table>, key: i32, value: &str, timestamp: i64, ttl: i32, expiration: u32) -> Mutation {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness { timestamp, ttl, expiration });
    builder.cell(0, &Cell::expiring(timestamp, ttl, expiration, value.as_bytes()));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.row(&clustering(1), &blob);
    Mutation::new(vec![update.build()])
}

fn now_seconds() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as u32
}

fn used_bytes(engine: &Engine, table: &Table) -> u64 {
    engine.table_stats(table).unwrap().in_memory.unwrap().used_bytes
}

/// The guidance page on overwrites: neither memory nor reads know how many there were.
#[test]
fn overwrites_take_no_more_memory_than_the_first_write() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    const PARTITIONS: i32 = 700;
    let mut after_first = 0;
    for round in 0..12 {
        // Steps of 241, which has no factor in common with 700: every partition, in no order.
        for step in 0..PARTITIONS {
            insert(&engine, &table, step * 241 % PARTITIONS, 1, &format!("{:0>100}", step % 9), i64::from(round));
        }
        if round == 0 {
            after_first = used_bytes(&engine, &table);
        }
        if round % 3 == 0 {
            engine.flush(&table).unwrap();
        }
    }
    let (found, operations) = read(&engine, &disk, &table);
    assert_eq!((found.len() as i32, operations), (PARTITIONS, 0));
    assert!(
        used_bytes(&engine, &table) <= after_first * 101 / 100,
        "{} after {after_first}",
        used_bytes(&engine, &table)
    );
}

/// The page on heavy deletes: what is deleted is free at once, and at last the tombstones are.
#[test]
fn deletes_give_memory_back_at_once_and_their_tombstones_later() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    let empty = used_bytes(&engine, &table);
    for key in 0..20 {
        (0..50).for_each(|row| insert(&engine, &table, key, row, &"v".repeat(200), 1));
    }
    let full = used_bytes(&engine, &table) - empty;
    let now = now_seconds();
    for key in 0..20_i32 {
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
        update.delete_partition(DeletionTime::new(2, now));
        block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
    }
    let deleted = used_bytes(&engine, &table) - empty;
    assert!(deleted < 20 * 120 && deleted < full / 50, "{deleted} of {full} bytes for 20 tombstones");
    insert(&engine, &table, 3, 7, "late", 1);
    engine.purge_resident(now + 1000);
    assert_eq!(rows(&engine, &table), [], "shadowed until gc_grace_seconds");
    engine.purge_resident(now + table.options.gc_grace_seconds as u32 + 1000);
    assert!(used_bytes(&engine, &table) <= empty + 100, "{} bytes", used_bytes(&engine, &table) - empty);
    // Deletions of rows among others that stay.
    (0..50).for_each(|row| insert(&engine, &table, 1, row, &"v".repeat(200), 3_000_000));
    let full = used_bytes(&engine, &table);
    (0..49).for_each(|row| delete_rows(&engine, &table, 1, row, 4_000_000));
    assert!(used_bytes(&engine, &table) < full);
    engine.purge_resident(now_seconds());
    assert!(used_bytes(&engine, &table) < full / 10, "{} of {full}", used_bytes(&engine, &table));
    assert_eq!(rows(&engine, &table).len(), 1);
}

/// The page on TTLs: what expired is freed without being read, and shadows what is older until `gc_grace_seconds`.
#[test]
fn expired_rows_give_their_memory_back() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    let now = now_seconds();
    insert(&engine, &table, 5000, 1, "stays", 10);
    let empty = used_bytes(&engine, &table);
    let value = "v".repeat(500);
    for key in 0..1000 {
        block_on(engine.write(&expiring(&table, key, &value, 10, 100, now + 100))).unwrap();
    }
    let full = used_bytes(&engine, &table) - empty;
    engine.purge_resident(now + 50);
    assert_eq!(used_bytes(&engine, &table) - empty, full, "nothing has expired yet");
    engine.purge_resident(now + 100);
    let expired = used_bytes(&engine, &table) - empty;
    assert!(expired < full / 4, "{expired} of {full} bytes");
    insert(&engine, &table, 7, 1, "older", 9);
    assert_eq!(rows_at(&engine, &table, now + 100), [(5000, 1, "stays".to_string())]);
    engine.purge_resident(now + 200 + table.options.gc_grace_seconds as u32);
    assert!(used_bytes(&engine, &table) <= empty + 100, "{} bytes", used_bytes(&engine, &table) - empty);
    assert_eq!(rows(&engine, &table), [(5000, 1, "stays".to_string())]);
}

/// Partitions of a few rows, which are walked several at a time, and one that takes several stretches.
#[test]
fn what_is_purged_while_it_is_written_reads_as_the_disk_does() {
    const LARGE_ROWS: i32 = 9000;
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    let expired = now_seconds() + 100;
    (0..LARGE_ROWS).for_each(|row| insert(&engine, &table, 0, row, "large", 1));
    (1..400).for_each(|key| insert(&engine, &table, key, 0, "first", 1));
    let writing = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        let (engine, table, writing) = (&engine, &table, &writing);
        for writer in 0..2 {
            scope.spawn(move || {
                // A linear congruential sequence, seeded; its high bits.
                let mut state = writer as u64;
                let mut below = |bound: u64| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 33) as i32 % bound as i32
                };
                for step in 0..6000 {
                    let timestamp = 2 + step;
                    let (key, row) = match below(8) {
                        0 if writer == 0 => (0, below(LARGE_ROWS as u64 + 100)),
                        _ => (2 * below(199) + 1 + writer, below(20)),
                    };
                    match below(4) {
                        0 => delete_rows(engine, table, key, row, timestamp),
                        1 => block_on(engine.write(&expiring(table, key, "short", timestamp, 100, expired))).unwrap(),
                        _ => insert(engine, table, key, row, &format!("{step}"), timestamp),
                    }
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        scope.spawn(move || {
            while writing.load(Ordering::Acquire) > 0 {
                engine.purge_resident(expired);
            }
        });
    });
    engine.purge_resident(expired);
    assert!(engine.is_in_memory(&table));
    let found = rows_at(&engine, &table, expired);
    let table = set_options(&engine, &table, TableOptions::default()).unwrap();
    assert!(!engine.is_in_memory(&table));
    let expected = rows_at(&engine, &table, expired);
    assert!(found.len() > LARGE_ROWS as usize / 2);
    assert!(found == expected, "{} rows, {} on disk", found.len(), expected.len());
}

/// The page on monotonic growth: somebody is told in time, once.
#[test]
fn whoever_wants_to_know_is_told_at_80_and_at_95_percent() {
    let disk = SimulatedDisk::new();
    let told: Arc<Mutex<Vec<u64>>> = Arc::default();
    let notices = InMemoryNotices(Arc::new({
        let told = told.clone();
        move |notice: &InMemoryNotice| told.lock().unwrap().push(notice.percent)
    }));
    let engine = Engine::open(EngineOptions { in_memory_notices: Some(notices), ..options(&disk) }).unwrap();
    let table = create_in_memory(&engine, 1);
    let fill = |timestamp| {
        let write = |key| block_on(engine.write(&insertion(&table, key, 1, &"v".repeat(5000), timestamp)));
        (0..).find(|key| write(*key).is_err()).unwrap()
    };
    let keys = fill(1);
    assert_eq!(*told.lock().unwrap(), [80, 95]);
    (0..keys / 2).for_each(|key| delete_rows(&engine, &table, key, 1, 2));
    fill(3);
    assert_eq!(*told.lock().unwrap(), [80, 95, 80, 95], "again after it was calm");
}
