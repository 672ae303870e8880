//! Full memtables: the next memtable replaces a full one, and a skip list is used where another trie would be full too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::SyncMode;
use engine::{Engine, EngineError, EngineOptions, MemtableConfiguration, TrieOptions, block_on};
use model::{Keyspace, Mutation, Table};

use crate::fixture::{create_table, insert, insertion, open_with, rows, small_options};

const BLOBS_BYTES_MAX: usize = 64 << 10;
/// Larger than a whole memtable, and smaller than the largest record of the log.
const TOO_LARGE: usize = 100_000;

/// Memtables of one shard with room for about 130 rows.
fn with_small_memtables(disk: &SimulatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    let limits = TrieOptions { blobs_bytes_max: BLOBS_BYTES_MAX, ..TrieOptions::default() };
    let configuration = MemtableConfiguration::Trie { shards: None, options: limits };
    options.memtable_configurations = [("default".to_owned(), Ok(configuration))].into();
    options
}

fn value(row: i32) -> String {
    format!("{row:0400}")
}

#[test]
fn parallel_writes_fill_many_memtables_and_a_crash_keeps_all_that_was_acknowledged() {
    const WRITERS: i32 = 4;
    const WRITES: i32 = 400;
    let disk = SimulatedDisk::new();
    let engine = Engine::open(with_small_memtables(&disk)).unwrap();
    let table = create_table(&engine);
    let acknowledged: Vec<AtomicI32> = (0..WRITERS).map(|_| AtomicI32::new(0)).collect();
    let so_far = || acknowledged.iter().map(|rows| rows.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let (failed, mut images) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        for (writer, done) in (0..).zip(&acknowledged) {
            let (engine, table, failed) = (&engine, &table, &failed);
            scope.spawn(move || {
                for row in 0..WRITES {
                    let write = block_on(engine.write(&insertion(table, writer, row, &value(row), 10)));
                    failed.fetch_or(write.is_err(), Ordering::SeqCst);
                    write.unwrap();
                    done.store(row + 1, Ordering::SeqCst);
                }
            });
        }
        for quarter in 1..4 {
            while so_far().iter().sum::<i32>() < WRITERS * WRITES * quarter / 4 && !failed.load(Ordering::SeqCst) {
                std::thread::sleep(crate::fixture::PAUSE);
            }
            let acknowledged = so_far();
            images.push((disk.crash_image(quarter as u64), acknowledged));
        }
    });
    images.push((disk.crash_image(4), so_far()));
    assert_eq!(rows(&engine, &table).len() as i32, WRITERS * WRITES);
    engine.flush_all().unwrap();
    // Each full memtable was flushed to an SSTable of its own.
    let memtables = engine.table_stats(&table).unwrap().sstable_count;
    assert!(memtables > 8, "{memtables}");
    for (image, acknowledged) in images {
        let engine = Engine::open(with_small_memtables(&image)).unwrap();
        let found = rows(&engine, &table);
        for (writer, rows) in (0..).zip(acknowledged) {
            for row in 0..rows {
                assert!(found.contains(&(writer, row, value(row))), "row {row} of writer {writer}");
            }
        }
    }
}

#[test]
fn a_start_replays_into_as_many_memtables_as_it_takes() {
    const ROWS: i32 = 1500;
    let disk = SimulatedDisk::new();
    let engine = Engine::open(small_options(&disk)).unwrap();
    let table = create_table(&engine);
    (0..ROWS).for_each(|row| insert(&engine, &table, 1, row, &value(row), 10));
    assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 0, "all of it is in the log only");
    let image = disk.crash_image(1);
    for options in [with_small_memtables(&image), small_options(&image)] {
        let engine = open_with(&options);
        assert_eq!(rows(&engine, &table), (0..ROWS).map(|row| (1, row, value(row))).collect::<Vec<_>>());
        engine.flush_all().unwrap();
        let memtables = engine.table_stats(&table).unwrap().sstable_count;
        assert!(memtables > 8, "{memtables}");
    }
}

/// A row that is too large even for an empty memtable.
fn too_large(table: &Arc<Table>, row: i32) -> Mutation {
    insertion(table, 1, row, &"v".repeat(TOO_LARGE), 10)
}

/// A way to write.
type Write = fn(&Arc<Engine>, Mutation) -> Result<(), EngineError>;

fn begin(engine: &Arc<Engine>, mutation: Mutation) -> Result<(), EngineError> {
    block_on(engine.begin_write(&engine.borrow_schema(), mutation)?.unwrap())
}

#[test]
fn a_write_for_which_no_trie_has_room_is_taken_by_a_skip_list_and_survives() {
    let periodic = SyncMode::Periodic { period: Duration::from_secs(3600) };
    let ways: [(SyncMode, Write); 4] = [
        (SyncMode::Batch, |engine, mutation| block_on(engine.write(&mutation))),
        (SyncMode::Batch, begin),
        (periodic, |engine, mutation| block_on(engine.write(&mutation))),
        (periodic, begin),
    ];
    for (sync, write) in ways {
        let disk = SimulatedDisk::new();
        let mut options = with_small_memtables(&disk);
        options.commitlog.sync = sync;
        let engine = Engine::open(options).unwrap();
        let table = create_table(&engine);
        insert(&engine, &table, 1, 1, "before", 10);
        let small = insertion(&table, 2, 2, "beside", 10);
        let both = [small, too_large(&table, 3)].map(|mutation| mutation.updates()[0].clone());
        write(&engine, Mutation::new(both.to_vec())).unwrap();
        write(&engine, insertion(&table, 1, 4, "later", 10)).unwrap();
        let expected = [(1, 1, 6), (1, 3, TOO_LARGE), (1, 4, 5), (2, 2, 6)];
        let found = |engine: &Arc<Engine>| {
            let rows = rows(engine, &table).into_iter().map(|(key, row, value)| (key, row, value.len()));
            let mut rows: Vec<_> = rows.collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(found(&engine), expected, "in memory");
        engine.flush_all().unwrap();
        assert_eq!(found(&engine), expected, "in SSTables");
        drop(engine);
        let engine = Engine::open(with_small_memtables(&disk.crash_image(1))).unwrap();
        if sync == SyncMode::Batch {
            assert_eq!(found(&engine), expected, "after a power cut");
        }
    }
}

#[test]
fn a_start_replays_a_record_for_which_no_trie_has_room() {
    let disk = SimulatedDisk::new();
    let engine = Engine::open(with_small_memtables(&disk)).unwrap();
    let table = create_table(&engine);
    block_on(engine.write(&too_large(&table, 3))).unwrap();
    let engine = Engine::open(with_small_memtables(&disk.crash_image(1))).unwrap();
    assert_eq!(rows(&engine, &table), [(1, 3, "v".repeat(TOO_LARGE))]);
}

#[test]
fn a_write_that_is_not_logged_and_for_which_no_trie_has_room_is_taken_by_a_skip_list() {
    let disk = SimulatedDisk::new();
    let engine = Engine::open(with_small_memtables(&disk)).unwrap();
    let table = create_table(&engine);
    let mut keyspace = Keyspace::new("ks", Default::default(), false);
    keyspace.tables.insert(table.name.clone(), table.clone());
    engine.set_keyspace(keyspace).unwrap();
    for (number, write) in [begin as Write, |engine, mutation| block_on(engine.write(&mutation))].iter().enumerate() {
        write(&engine, too_large(&table, number as i32)).unwrap();
    }
    engine.flush_all().unwrap();
    assert_eq!(rows(&engine, &table).len(), 2);
}
