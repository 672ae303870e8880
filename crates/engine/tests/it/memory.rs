//! Writers that wait for memory do not hold anything that a flush waits for.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, MemtableConfiguration, block_on};
use model::{Keyspace, Mutation, Table, TableBuilder, TableId};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{insert, insertion, rows, small_options};

/// Tables `ks.a`, `ks.b`, ... as in the fixture, with the named memtable.
fn create_tables<const COUNT: usize>(engine: &Engine, memtable: &str) -> [Arc<Table>; COUNT] {
    let tables: [Arc<Table>; COUNT] = std::array::from_fn(|index| {
        let name = char::from(b'a' + index as u8).to_string();
        let builder = TableBuilder::new("ks", &name, TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
        let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Text);
        let mut table = builder.regular("v", CqlType::Text).build();
        table.options.memtable = memtable.into();
        Arc::new(table)
    });
    let mut keyspace = Keyspace::new("ks", Default::default(), true);
    for table in &tables {
        keyspace.tables.insert(table.name.clone(), table.clone());
    }
    engine.set_keyspace(keyspace).unwrap();
    tables
}

type Write<'a> = Pin<&'a mut dyn Future<Output = Result<(), EngineError>>>;

fn poll(
    write: &mut Pin<&mut (impl Future<Output = Result<(), EngineError>> + ?Sized)>,
) -> Poll<Result<(), EngineError>> {
    write.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// The flush's barrier waits for an early write. It does not wait for a late write of the same partition, for which
/// there is no memory. If the late write waited while it held the shard, the early write would wait for it, the flush
/// for the early write, and the late write for the flush (CASSANDRA-21019).
#[test]
fn a_write_that_waits_for_memory_delays_no_write_that_a_flush_waits_for() {
    for memtable in ["trie", "skiplist", "serialized"] {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.memtable_space_bytes = 1 << 20;
        // Only this test starts flushes.
        options.memtable_cleanup_threshold = 0.9;
        let serialized = MemtableConfiguration::ShardedSkipList { shards: Some(1), serialize_writes: true };
        options.memtable_configurations.insert("serialized".into(), Ok(serialized));
        let engine = Engine::open(options).unwrap();
        let [filled, written] = create_tables(&engine, memtable);
        let write = |table, row, bytes: usize| insertion(table, 1, row, &"v".repeat(bytes), 10);
        let all = 1 << 20;
        let room = || all - engine.memtable_bytes() as usize;
        for row in 0.. {
            if room() < all * 3 / 20 {
                break;
            }
            block_on(engine.write(&write(&filled, row, 8 << 10))).unwrap();
        }
        // The early write takes its memory and its place in the log, which cannot be written while the device stalls.
        let engine = &engine;
        let stall = disk.stall();
        let mutation = write(&written, 1, room() / 2);
        let mut early = Box::pin(engine.write(&mutation));
        assert!(poll(&mut early.as_mut()).is_pending(), "it is not durable");
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| engine.flush(&filled));
            while engine.table_stats(&filled).unwrap().pending_flushes == 0 {
                std::thread::sleep(crate::fixture::PAUSE);
            }
            let mutation = write(&written, 2, room() / 2 + 4096);
            let mut late: Write<'_> = pin!(engine.write(&mutation));
            assert!(poll(&mut late).is_pending(), "no memory");
            assert!(!flush.is_finished(), "the early write is not visible yet");
            drop(stall);
            block_on(early).unwrap();
            flush.join().unwrap().unwrap();
            block_on(late).unwrap();
        });
        assert_eq!(rows(engine, &written).len(), 2);
        assert!(engine.table_stats(&filled).unwrap().sstable_count > 0);
    }
}

/// Memory for one write is not given to two.
#[test]
fn memory_is_taken_by_writes_before_they_are_applied() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.memtable_space_bytes = 1 << 20;
    options.memtable_cleanup_threshold = 0.1;
    options.commitlog.segment_size_bytes = 4 << 20;
    options.commitlog.total_space_bytes = 32 << 20;
    let engine = Engine::open(options).unwrap();
    let [table] = create_tables(&engine, "default");
    let mutations: Vec<Mutation> = (0..2).map(|row| insertion(&table, 1, row, &"v".repeat(600 << 10), 10)).collect();
    let mut first: Write<'_> = pin!(engine.write(&mutations[0]));
    let mut second: Write<'_> = pin!(engine.write(&mutations[1]));
    let written = poll(&mut first);
    assert!(poll(&mut second).is_pending());
    // Only the first write is in the log, so the second one never becomes durable. If the log is fast, it may contain
    // the second one too.
    match written {
        Poll::Ready(written) => written.unwrap(),
        Poll::Pending => block_on(first).unwrap(),
    }
    block_on(second).unwrap();
    // Above the threshold, the first table was flushed to free memory.
    assert!(engine.table_stats(&table).unwrap().sstable_count > 0);
    assert_eq!(rows(&engine, &table).len(), 2);
}

#[test]
fn the_largest_memtable_is_flushed_first() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.memtable_space_bytes = 4 << 20;
    options.memtable_cleanup_threshold = 0.25;
    let engine = Engine::open(options).unwrap();
    let [large, small, least] = create_tables(&engine, "default");
    let write = |table, row| block_on(engine.write(&insertion(table, 1, row, &"v".repeat(10_000), 10))).unwrap();
    (0..10).for_each(|row| write(&small, row));
    write(&least, 0);
    for row in 0.. {
        if engine.table_stats(&large).unwrap().sstable_count > 0 {
            break;
        }
        assert!(row < 10_000, "nothing is flushed");
        write(&large, row);
    }
    for table in [&small, &least] {
        assert_eq!(engine.table_stats(table).unwrap().sstable_count, 0, "{}", table.name);
    }
}

#[test]
fn a_table_gets_the_memtable_that_it_names() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.memtable_shards = 3;
    let engine = Engine::open(options.clone()).unwrap();
    let shards = |table: &Arc<Table>| engine.table_stats(table).unwrap().memtable_puts.len();
    let [table] = create_tables(&engine, "skiplist");
    assert_eq!(shards(&table), 1, "a list is not sharded");
    block_on(engine.write(&insertion(&table, 1, 1, "v", 10))).unwrap();
    let puts = engine.table_stats(&table).unwrap().memtable_puts;
    assert_eq!((puts[0].uncontended, puts[0].contended), (1, 0));
    // The changed name applies to the next memtable.
    let mut altered = Table::clone(&table);
    altered.options.memtable = "default".into();
    let mut keyspace = Keyspace::new("ks", Default::default(), true);
    keyspace.tables.insert(altered.name.clone(), Arc::new(altered));
    engine.set_keyspace(keyspace).unwrap();
    while shards(&table) < 3 {
        std::thread::sleep(crate::fixture::PAUSE);
    }
    assert_eq!(rows(&engine, &table).len(), 1);
    let counted: u64 = engine.table_stats(&table).unwrap().memtable_puts.iter().map(|puts| puts.uncontended).sum();
    assert_eq!(counted, 1, "counts outlive their memtable");
    // A name that is no longer configured means the default.
    let [other] = create_tables(&engine, "gone");
    assert_eq!(shards(&other), 3);
}

/// A third table fills the memory that two flushed tables have left. Together with it they would exceed the memtables'
/// space.
#[test]
fn the_memory_of_a_flushed_memtable_is_reused_within_the_memtables_space() {
    const SPACE: u64 = 32 << 20;
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.memtable_space_bytes = SPACE;
    options.memtable_cleanup_threshold = 0.9;
    options.memtable_shards = 1;
    options.commitlog.segment_size_bytes = 4 << 20;
    options.commitlog.total_space_bytes = 128 << 20;
    let engine = Engine::open(options).unwrap();
    let tables: [Arc<Table>; 3] = create_tables(&engine, "trie");
    let fill = |table: &Arc<Table>, round: i32| {
        let value = char::from(b'a' + round as u8).to_string().repeat(100_000);
        (0..120).for_each(|row| insert(&engine, table, 1, row, &value, 10));
    };
    assert_eq!(engine.spare_memtable_bytes(), 0);
    let mut most = 0;
    for round in 0..3 {
        let table = &tables[round as usize];
        let before = engine.spare_memtable_bytes();
        fill(table, round);
        let filled = engine.spare_memtable_bytes();
        assert!(round == 0 || filled + (6 << 20) <= before, "{before} before, {filled} after");
        let held: u64 = engine.all_table_stats().iter().map(|stats| stats.memtable_committed_bytes).sum();
        assert!(filled + held <= SPACE, "{filled} spare beside {held}");
        engine.flush(table).unwrap();
        most = most.max(engine.spare_memtable_bytes());
        assert_eq!(rows(&engine, table).len(), 120);
    }
    assert!((10 << 20..=SPACE).contains(&most), "{most}");
}
