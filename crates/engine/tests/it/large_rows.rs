//! Copies of large rows take memory of where the reader says, before they are made, and give it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, Turn};
use model::{KeyRange, ReadError, ReadRange, RowMemory, Table, UnfilteredCursor};

use crate::fixture::{create_table, insert, open_with, small_options};

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

/// What a read takes at most; and a read with a little less fails and leaves nothing taken.
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
