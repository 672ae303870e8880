//! Tables that live in memory: reads use no file, whatever happened before; nothing is lost; unneeded memory is freed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use blockio::{Disk, Fault, SimulatedDisk};
use engine::{Engine, EngineOptions, block_on};
use model::{
    Cell, ClusteringBound, ColumnData, DeletionTime, KeyRange, Liveness, Mutation, PartitionKey,
    PartitionUpdateBuilder, ReadRange, RowBuilder, Side, Slice, Slices, Table, TableOptions, Unfiltered,
    UnfilteredCursor,
};

use testkit::{Random, seeds};

use crate::fixture::{
    clustering, create_table, delete_rows, insert, memory_only, open_with, rows, rows_at, set_options, small_options,
};

/// A node whose cache holds no page of an SSTable.
pub fn options(disk: &SimulatedDisk) -> EngineOptions {
    let mut options = small_options(disk);
    options.cache_bytes = 0;
    options
}

pub fn open(disk: &SimulatedDisk) -> Arc<Engine> {
    open_with(&options(disk))
}

pub fn create_in_memory(engine: &Engine, size_limit_mb: u32) -> Arc<Table> {
    let table = create_table(engine);
    set_options(engine, &table, memory_only(size_limit_mb)).unwrap()
}

/// The rows, and the number of disk operations that the read needed.
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
    // The same read of the table on disk uses the disk, so the counter works.
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
    // The deletion is dated one second after the epoch, so any purge would remove it.
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
fn rows_of_sstables_and_of_the_log_are_in_memory_after_a_start() {
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

/// The load reads in large pieces, past the cache.
#[test]
fn a_load_reads_ahead_and_leaves_the_cache_to_others() {
    let disk = SimulatedDisk::new();
    let mut options = options(&disk);
    options.cache_bytes = 8 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_table(&engine);
    let mut random = Random(1);
    for timestamp in 0..3 {
        for key in 0..700 {
            // The value is incompressible.
            let value: String = (0..2_000).map(|_| char::from(b'!' + random.below(90) as u8)).collect();
            insert(&engine, &table, key, 1, &value, timestamp);
        }
        engine.flush(&table).unwrap();
    }
    let data_bytes = engine.table_stats(&table).unwrap().disk_bytes;
    let (operations, cache_bytes) = (disk.operations(), engine.cache_bytes());
    let table = set_options(&engine, &table, memory_only(64)).unwrap();
    let operations = disk.operations() - operations;
    assert!(engine.is_in_memory(&table) && rows(&engine, &table).len() == 700);
    // Pieces of 16 KiB would take 250 operations.
    assert!(operations < 150, "{operations} operations for {data_bytes} bytes");
    let cached = engine.cache_bytes() - cache_bytes;
    assert!(cached < data_bytes / 4, "{cached} bytes of blocks");
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

/// Nobody asks for the flush, and the table stays in memory.
#[test]
fn changes_are_on_the_disk_once_the_flush_period_is_over() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    let options = TableOptions { memtable_flush_period_in_ms: 20, ..memory_only(64) };
    let table = set_options(&engine, &table, options).unwrap();
    for round in 0..2 {
        insert(&engine, &table, round, 1, "flushed in time", 1);
        while engine.table_stats(&table).unwrap().sstable_count <= round as usize {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    assert!(engine.is_in_memory(&table));
    assert_eq!(rows(&engine, &table).len(), 2);
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

/// A table that cannot be loaded takes no memory. It is read from the disk, and loaded when the disk can be read again.
#[test]
fn a_table_that_cannot_be_loaded_is_read_from_the_disk_and_takes_no_memory() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    (0..500).for_each(|key| insert(&engine, &table, key, 1, &"v".repeat(1000), 1));
    engine.flush(&table).unwrap();
    (500..510).for_each(|key| insert(&engine, &table, key, 1, "in a memtable", 1));
    let expected = rows(&engine, &table);
    // The table moves into memory on another node, which finds a damaged SSTable, and later a sound one.
    let damaged = disk.crash_image(1);
    drop(engine);
    let engine = Engine::open(options(&damaged)).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let data = data_file(&damaged);
    damaged.flip_bit(&data, 1_000, 3).unwrap();
    let table = set_options(&engine, &table, memory_only(64)).unwrap();
    assert!(!engine.is_in_memory(&table) && engine.last_load_failure().is_some());
    let stats = engine.table_stats(&table).unwrap().in_memory.unwrap();
    assert_eq!((stats.is_complete, stats.used_bytes), (false, 0));
    assert!(stats.committed_bytes < 1 << 20, "{} bytes", stats.committed_bytes);
    insert(&engine, &table, 600, 1, "written meanwhile", 1);
    assert_eq!(engine.table_stats(&table).unwrap().in_memory.unwrap().used_bytes, 0);
    damaged.flip_bit(&data, 1_000, 3).unwrap();
    let mut expected = expected;
    expected.push((600, 1, "written meanwhile".into()));
    assert_eq!(rows(&engine, &table), expected);
    let comment = TableOptions { comment: "try again".into(), ..memory_only(64) };
    let table = set_options(&engine, &table, comment).unwrap();
    assert_eq!(read(&engine, &damaged, &table), (expected, 0));
    assert!(engine.is_in_memory(&table));
}

/// The only Data.db.
fn data_file(disk: &SimulatedDisk) -> PathBuf {
    let keyspace = Path::new("/node/data/ks");
    let directory = keyspace.join(&disk.list(keyspace).unwrap()[0].name);
    let files = disk.list(&directory).unwrap();
    directory.join(&files.iter().find(|file| file.name.ends_with("Data.db")).unwrap().name)
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

pub fn now_seconds() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as u32
}

fn used_bytes(engine: &Engine, table: &Table) -> u64 {
    engine.table_stats(table).unwrap().in_memory.unwrap().used_bytes
}

/// From the guidance page on overwrites: neither memory nor reads depend on their number.
#[test]
fn overwrites_take_no_more_memory_than_the_first_write() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_in_memory(&engine, 64);
    const PARTITIONS: i32 = 700;
    let mut after_first = 0;
    for round in 0..12 {
        // Steps of 241, which is coprime to 700, reach every partition in a scattered order.
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

/// The SSTables are only for the next start, so there need not be more of them than merges handle.
#[test]
fn a_table_that_is_not_merged_is_not_flushed_for_its_size() {
    let disk = SimulatedDisk::new();
    let mut options = options(&disk);
    // The log is never so full that it asks for a flush.
    options.commitlog.total_space_bytes = 256 << 20;
    options.in_memory_flush_bytes_min = 1 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_in_memory(&engine, 64);
    let (value, mut now) = ("x".repeat(10_000), 0);
    let mut overwrite = |rounds: i64| {
        for _ in 0..rounds {
            now += 1;
            (0..200).for_each(|key| insert(&engine, &table, key, 1, &value, now));
        }
    };
    overwrite(20);
    let sstables = || engine.table_stats(&table).unwrap().sstable_count;
    assert!(sstables() <= 3, "{} SSTables of twenty times the data", sstables());
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(sstables(), 1);
    overwrite(3);
    while sstables() == 1 {
        std::thread::sleep(std::time::Duration::from_millis(1)); // until it is flushed again for its size
    }
    assert_eq!(rows(&engine, &table).len(), 200);
}

/// As for a table on the disk, the content of a memtable is not written over and over.
#[test]
fn a_small_table_is_flushed_no_more_often_than_one_on_the_disk() {
    let disk = SimulatedDisk::new();
    let mut options = options(&disk);
    options.commitlog.total_space_bytes = 256 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_in_memory(&engine, 64);
    let value = "x".repeat(10_000);
    for round in 0..20 {
        (0..200).for_each(|key| insert(&engine, &table, key, 1, &value, round));
    }
    let stats = engine.flush_stats();
    assert_eq!((stats.pending, stats.active, engine.table_stats(&table).unwrap().sstable_count), (0, 0, 0));
}

/// Bytes that do not compress.
fn noise(random: &mut Random, length: usize) -> String {
    (0..length).map(|_| char::from(b'!' + random.below(90) as u8)).collect()
}

/// The flushed SSTable and the obsolete ones are never on the disk beside their merge.
#[test]
fn a_flush_of_a_small_table_writes_all_of_it_into_one_sstable() {
    const ROWS: i32 = 200;
    let disk = SimulatedDisk::new();
    let mut options = options(&disk);
    options.in_memory_rewritten_bytes_max = 64 << 20;
    let engine = Engine::open(options.clone()).unwrap();
    let table = create_in_memory(&engine, 64);
    let stats = || engine.table_stats(&table).unwrap();
    let (random, mut data_bytes) = (&mut Random(1), 0);
    for round in 0..5 {
        (0..ROWS).for_each(|key| insert(&engine, &table, key, 1, &noise(random, 5_000), round));
        // There is room for the current content once more, and a little: for two SSTables, and not for a third.
        let space = disk.space(Path::new("/node")).unwrap();
        disk.set_capacity(
            space.total_bytes - space.free_bytes + data_bytes * 5 / 4 + (4 << 20) * u64::from(round == 0),
        );
        engine.flush(&table).unwrap();
        disk.set_capacity(u64::MAX);
        assert_eq!(stats().sstable_count, 1, "round {round}");
        data_bytes = stats().disk_bytes;
        assert!((1_000_000..1_100_000).contains(&data_bytes), "{data_bytes} bytes");
    }
    let (found, operations) = read(&engine, &disk, &table);
    assert_eq!((found.len() as i32, operations, engine.is_in_memory(&table)), (ROWS, 0, true));
    let restarted = Engine::open(EngineOptions { disk: Arc::new(disk.crash_image(1)), ..options.clone() }).unwrap();
    let again = restarted.schema().table("ks", "t").unwrap().clone();
    assert!(rows(&restarted, &again) == found);
    // These were deleted long ago: a deletion that shadows nothing any more is removed together with the deleted rows.
    (0..ROWS / 2).for_each(|key| delete_rows(&engine, &table, key, 1, 10));
    engine.flush(&table).unwrap();
    assert!(stats().sstable_count == 1 && stats().disk_bytes < data_bytes * 11 / 20, "{} bytes", stats().disk_bytes);
    // If nothing is left, the records of the flush are still not replayed.
    (0..ROWS).for_each(|key| delete_rows(&engine, &table, key, 1, 20));
    engine.flush(&table).unwrap();
    let restarted = Engine::open(EngineOptions { disk: Arc::new(disk.crash_image(2)), ..options }).unwrap();
    let again = restarted.schema().table("ks", "t").unwrap().clone();
    assert_eq!(rows(&restarted, &again), []);
}

/// After a power cut at any point of the flush, all written rows are there.
#[test]
fn a_power_cut_in_a_flush_that_writes_all_loses_nothing() {
    for failing in (0..).step_by(2) {
        let disk = SimulatedDisk::new();
        let mut options = options(&disk);
        options.in_memory_rewritten_bytes_max = 64 << 20;
        let engine = Engine::open(options.clone()).unwrap();
        let table = create_in_memory(&engine, 64);
        (0..10).for_each(|key| insert(&engine, &table, key, 1, "first", 1));
        engine.flush(&table).unwrap();
        (5..15).for_each(|key| insert(&engine, &table, key, 1, "second", 2));
        delete_rows(&engine, &table, 0, 1, 3);
        let expected = rows(&engine, &table);
        disk.inject(Fault::PowerCut, failing);
        let is_done = engine.flush(&table).is_ok();
        let restarted = Engine::open(EngineOptions { disk: Arc::new(disk.crash_image(failing)), ..options }).unwrap();
        let again = restarted.schema().table("ks", "t").unwrap().clone();
        assert_eq!(rows(&restarted, &again), expected, "operation {failing}");
        if is_done {
            assert_eq!(engine.table_stats(&table).unwrap().sstable_count, 1);
            assert!(failing > 20, "{failing} operations");
            break;
        }
    }
}

/// Unneeded segments of the log are reused, and the table stays in memory.
#[test]
fn a_full_log_flushes_the_table_and_keeps_it_in_memory() {
    let disk = SimulatedDisk::new();
    let mut options = options(&disk);
    options.commitlog.total_space_bytes = 1 << 20;
    let engine = Engine::open(options).unwrap();
    let table = create_in_memory(&engine, 64);
    let value = "v".repeat(20_000);
    (0..200).for_each(|round| insert(&engine, &table, round % 10, 1, &value, i64::from(round)));
    assert!(engine.table_stats(&table).unwrap().sstable_count > 0, "four times what the log holds was written");
    // The last of the flushes for the log may still run.
    engine.flush_all().unwrap();
    let (found, operations) = read(&engine, &disk, &table);
    assert_eq!((found.len(), operations, engine.is_in_memory(&table)), (10, 0, true));
}

/// Rows of a range without expiring ones, as clustering, timestamp and value.
fn rows_within(engine: &Engine, table: &Arc<Table>, range: &ReadRange) -> Vec<(Vec<u8>, i64, Vec<u8>)> {
    let mut cursor = engine.read(table, range).unwrap();
    let mut found = Vec::new();
    while cursor.advance_partition().unwrap() {
        while cursor.advance().unwrap() {
            if let Unfiltered::Row(row) = cursor.unfiltered()
                && let Some((_, ColumnData::Simple(cell))) = row.row.columns(table).next()
            {
                found.push((row.clustering.to_vec(), cell.timestamp, cell.value.to_vec()));
            }
        }
    }
    found
}

/// A table in memory beside the same table on the disk: writes of any age, deletions of all kinds, flushes, merges and
/// starts.
#[test]
fn reads_of_any_history_find_all_rows_without_a_file() {
    for seed in seeds(0..4) {
        let random = &mut Random(seed);
        let mut disks = [(); 2].map(|()| SimulatedDisk::new());
        let options = |disk: &SimulatedDisk| {
            let mut options = options(disk);
            options.in_memory_rewritten_bytes_max = if seed % 2 == 0 { 64 << 20 } else { 0 };
            options
        };
        let mut engines = disks.each_ref().map(|disk| Engine::open(options(disk)).unwrap());
        let mut tables = engines.each_ref().map(|engine| create_table(engine));
        let schema = |engine: &Arc<Engine>| engine.schema().table("ks", "t").unwrap().clone();
        tables[0] = set_options(&engines[0], &tables[0], memory_only(64)).unwrap();
        for _ in 0..250 {
            let (choice, key, row) = (random.below(40), random.below(4) as i32, random.below(8) as i32);
            let timestamp = random.below(100) as i64;
            let value = noise(random, [3, 40, 6_000][choice % 3]);
            let now = now_seconds();
            for (engine, table) in engines.iter().zip(&tables) {
                let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
                match choice {
                    0 => engine.flush(table).unwrap(),
                    1 => engine.compact(table).unwrap(),
                    2..5 => update.delete_range(Slice::prefix(&clustering(row)), DeletionTime::new(timestamp, now)),
                    5..7 => update.delete_partition(DeletionTime::new(timestamp, now)),
                    7 => {
                        let slice = Slice {
                            start: ClusteringBound::new(clustering(row), Side::After),
                            end: ClusteringBound::new(clustering(row + 3), Side::Before),
                        };
                        update.delete_range(slice, DeletionTime::new(timestamp, now));
                    }
                    _ => insert(engine, table, key, row, &value, timestamp),
                }
                if !update.is_empty() {
                    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
                }
            }
            if choice == 39 {
                disks = disks.each_ref().map(|disk| disk.crash_image(seed));
                engines = disks.each_ref().map(|disk| Engine::open(options(disk)).unwrap());
                tables = engines.each_ref().map(schema);
            }
            let slice = Slice {
                start: ClusteringBound::new(clustering(row), Side::Before),
                end: ClusteringBound::new(clustering(row + random.below(5) as i32), Side::After),
            };
            let slices = Slices::new(vec![slice], tables[0].comparator());
            let keys = KeyRange::Single(PartitionKey::new(&key.to_be_bytes()));
            let ranges = [
                ReadRange::all_rows(KeyRange::all()),
                ReadRange { keys: keys.clone(), slices, reversed: random.one_in(2) },
                ReadRange { keys, slices: Slices::all(), reversed: true },
            ];
            for range in ranges {
                let before = disks[0].reads();
                let found = rows_within(&engines[0], &tables[0], &range);
                assert_eq!(disks[0].reads(), before, "seed {seed}: {range:?}");
                assert!(found == rows_within(&engines[1], &tables[1], &range), "seed {seed}: {range:?}");
            }
        }
        assert!(engines[0].is_in_memory(&tables[0]));
    }
}

/// From the guidance page on heavy deletes: deleted rows are freed at once, and their tombstones in the end.
#[test]
fn deletions_free_memory_at_once_and_their_tombstones_later() {
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
    // Some rows are deleted, and the rows between them stay.
    (0..50).for_each(|row| insert(&engine, &table, 1, row, &"v".repeat(200), 3_000_000));
    let full = used_bytes(&engine, &table);
    (0..49).for_each(|row| delete_rows(&engine, &table, 1, row, 4_000_000));
    assert!(used_bytes(&engine, &table) < full);
    engine.purge_resident(now_seconds());
    assert!(used_bytes(&engine, &table) < full / 10, "{} of {full}", used_bytes(&engine, &table));
    assert_eq!(rows(&engine, &table).len(), 1);
}

/// Nothing is ever repaired here, so such a table keeps its deletions, as SSTables do.
#[test]
fn tombstones_stay_where_only_repaired_ones_may_be_purged() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    let mut options = memory_only(64);
    options.compaction.insert("only_purge_repaired_tombstones".to_owned(), "true".to_owned());
    let table = set_options(&engine, &table, options).unwrap();
    delete_rows(&engine, &table, 1, 1, 5);
    let before = used_bytes(&engine, &table);
    engine.purge_resident(now_seconds() + table.options.gc_grace_seconds as u32 + 1000);
    assert_eq!(used_bytes(&engine, &table), before);
    insert(&engine, &table, 1, 1, "older", 4);
    assert_eq!(rows(&engine, &table), []);
}

/// From the guidance page on TTLs: expired rows are freed without a read, and shadow older ones until
/// `gc_grace_seconds`.
#[test]
fn expired_rows_free_their_memory() {
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

/// Partitions of a few rows, of which several are walked at a time, and one that needs several steps of the walk.
#[test]
fn rows_that_are_purged_during_writes_read_as_on_the_disk() {
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
                let mut random = Random(writer as u64);
                let mut below = |bound: i32| random.below(bound as usize) as i32;
                for step in 0..6000 {
                    let timestamp = 2 + step;
                    let (key, row) = match below(8) {
                        0 if writer == 0 => (0, below(LARGE_ROWS + 100)),
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

#[test]
fn a_table_that_goes_to_the_disk_and_back_into_memory_leaves_no_memtable_unflushed() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_table(&engine);
    let mut altered = set_options(&engine, &table, memory_only(1)).unwrap();
    for options in [TableOptions::default(), memory_only(1)] {
        altered = set_options(&engine, &altered, options).unwrap();
    }
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let given_up = std::time::Instant::now() + crate::gated_disk::GIVE_UP;
    while engine.table_stats(&table).unwrap().pending_flushes > 0 {
        assert!(std::time::Instant::now() < given_up, "nothing flushes it");
        std::thread::sleep(crate::fixture::PAUSE);
    }
}
