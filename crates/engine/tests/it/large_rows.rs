//! Copies of large rows take memory of where the reader says, before they are made, and give it back. Work in the
//! background counts its copies too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, Turn};
use model::{
    Cell, KeyRange, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, ReadError, ReadRange, RowBuilder,
    RowMemory, Table, UnfilteredCursor,
};

use crate::fixture::{clustering, create_table, insert, open_with, rows as rows_of, small_options};

const VALUE_BYTES: usize = 600 << 10;

/// Memory with a limit.
#[derive(Debug)]
struct Limited {
    limit: usize,
    taken: AtomicUsize,
    most: AtomicUsize,
}

impl Limited {
    fn new(limit: usize) -> Arc<Limited> {
        Arc::new(Limited { limit, taken: AtomicUsize::new(0), most: AtomicUsize::new(0) })
    }
}

impl RowMemory for Limited {
    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| Some(taken + bytes).filter(|taken| *taken <= self.limit);
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        before.is_ok_and(|before| self.most.fetch_max(before + bytes, Ordering::Relaxed) < usize::MAX)
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The number of rows that a read of everything finds.
fn rows(engine: &Engine, table: &Arc<Table>, turn: Turn<'_>) -> Result<usize, EngineError> {
    let mut cursor = engine.read_at(table, &ReadRange::all_rows(KeyRange::all()), 1000, turn)?;
    let mut count = 0;
    while cursor.advance_partition()? {
        while cursor.advance()? {
            count += 1;
        }
    }
    Ok(count)
}

/// The greatest memory of a read. A read with a little less fails, and gives back everything.
fn taken(engine: &Engine, table: &Arc<Table>) -> usize {
    let ample = Limited::new(usize::MAX);
    let memory: Arc<dyn RowMemory> = ample.clone();
    let turn = Turn { row_memory: Some(&memory), ..Turn::BLOCKING };
    assert_eq!(rows(engine, table, turn).unwrap(), 2);
    assert_eq!(ample.taken.load(Ordering::Relaxed), 0, "it is given back");
    let most = ample.most.load(Ordering::Relaxed);

    let short = Limited::new(most - 1);
    let memory: Arc<dyn RowMemory> = short.clone();
    let turn = Turn { row_memory: Some(&memory), ..Turn::BLOCKING };
    match rows(engine, table, turn) {
        Err(EngineError::Read(error)) => assert!(matches!(*error, ReadError::NoRoom), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(short.taken.load(Ordering::Relaxed), 0, "it is given back after a failure too");
    most
}

/// A thread that may not wait leaves large rows to others.
fn refuses(engine: &Engine, table: &Arc<Table>) {
    match rows(engine, table, Turn::NON_BLOCKING) {
        Err(EngineError::Read(error)) => assert!(matches!(*error, ReadError::LargeRow), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_takes_memory_for_each_copy_of_a_large_row() {
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.commitlog.segment_size_bytes = 4 << 20;
    options.commitlog.total_space_bytes = 32 << 20;
    let engine = open_with(&options);
    let table = create_table(&engine);
    let write = |timestamp| {
        (0..2).for_each(|key| insert(&engine, &table, key, 1, &"v".repeat(VALUE_BYTES), timestamp));
    };
    write(1);
    refuses(&engine, &table);
    let of_memtable = taken(&engine, &table);
    assert!(of_memtable >= VALUE_BYTES);
    engine.flush(&table).unwrap();
    let of_sstable = taken(&engine, &table);
    assert!(of_sstable >= 2 * VALUE_BYTES);
    write(2);
    engine.flush(&table).unwrap();
    let of_two = taken(&engine, &table);
    assert!(of_two >= of_sstable + 2 * VALUE_BYTES, "both versions are in memory, and the merged row");
    refuses(&engine, &table);
    assert_eq!(rows(&engine, &table, Turn::BLOCKING).unwrap(), 2, "without a memory there is no limit");
}

/// Writes a row whose cell is newer than the row, so that compactions cannot take it over in its stored form.
fn update(engine: &Engine, table: &Arc<Table>, row: i32, value: &str, timestamp: i64) {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(timestamp));
    builder.cell(0, &Cell::live(timestamp + 1, value.as_bytes()));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
    update.row(&clustering(row), &blob);
    engine::block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

/// A text of this length that does not compress.
fn text(length: usize, seed: u64) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + (state >> 33) as u8 % 95)
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn flushes_and_compactions_count_their_copies_of_large_rows_and_hold_each_version_once() {
    const VERSIONS: usize = 6;
    let memory = Limited::new(usize::MAX);
    let disk = SimulatedDisk::new();
    let mut options = small_options(&disk);
    options.commitlog.segment_size_bytes = 4 << 20;
    options.commitlog.total_space_bytes = 64 << 20;
    options.concurrent_compactors = 0;
    options.background_rows = Some(memory.clone());
    let engine = open_with(&options);
    let table = create_table(&engine);
    let lengths = [10, VALUE_BYTES, 300, 20_000, VALUE_BYTES + 77, 1];
    let value = |row: usize, version: usize| text(lengths[row], (10 * version + row) as u64);
    for version in 0..VERSIONS {
        for row in 0..lengths.len() {
            update(&engine, &table, row as i32, &value(row, version), 10 * version as i64);
        }
        engine.flush(&table).unwrap();
    }
    let of_flushes = memory.most.swap(0, Ordering::Relaxed);
    assert!((3 * VALUE_BYTES..6 * VALUE_BYTES).contains(&of_flushes), "{of_flushes}");
    let all = |version| (0..lengths.len()).map(|row| (1, row as i32, value(row, version))).collect::<Vec<_>>();
    assert_eq!(rows_of(&engine, &table), all(VERSIONS - 1));

    engine.compact(&table).unwrap();
    let of_compaction = memory.most.load(Ordering::Relaxed);
    // Each version once, the copies of the last that is decoded, the merged row, and what is written.
    let bounds = (VERSIONS + 2) * VALUE_BYTES..(VERSIONS + 8) * VALUE_BYTES;
    assert!(bounds.contains(&of_compaction), "{of_compaction}, not in {bounds:?}");
    assert_eq!(memory.taken.load(Ordering::Relaxed), 0, "it is given back");
    assert_eq!(rows_of(&engine, &table), all(VERSIONS - 1));
}
