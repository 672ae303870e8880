//! Writes that read before they write: counts, which would be wrong if two of them read the same state.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use blockio::SimulatedDisk;
use commitlog::SyncMode;
use engine::{Derive, Derived, Engine, EngineError, Turn, block_on};
use model::{KeyRange, PartitionKey, ReadRange, Table, TableId, Unfiltered, UnfilteredCursor};
use types::Token;

use crate::fixture::{create_table, insertion, rows, small_options};

/// Adds one to the number in a row. Its value also has some padding.
struct Increment {
    engine: Arc<Engine>,
    table: Arc<Table>,
    key: i32,
    padding: usize,
}

impl Increment {
    fn read(&self, turn: Turn<'_>) -> Result<i64, EngineError> {
        let keys = KeyRange::Single(PartitionKey::new(&self.key.to_be_bytes()));
        let mut cursor = self.engine.read_at(&self.table, &ReadRange::all_rows(keys), 1, turn)?;
        if !cursor.advance_partition().map_err(Arc::new).map_err(EngineError::Read)? {
            return Ok(0);
        }
        while cursor.advance().map_err(Arc::new).map_err(EngineError::Read)? {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                return Ok(row.row.liveness().timestamp);
            }
        }
        Ok(0)
    }
}

impl Derive for Increment {
    type Answer = i64;
    type Error = EngineError;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        vec![(self.table.id, PartitionKey::new(&self.key.to_be_bytes()).token())]
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<i64>, EngineError> {
        // The timestamp of the row is the number.
        let next = self.read(turn)? + 1;
        let value = format!("{next}{}", " ".repeat(self.padding));
        Ok(Derived { mutation: Some(insertion(&self.table, self.key, 0, &value, next)), answer: next })
    }

    fn would_wait(error: &EngineError) -> bool {
        error.would_wait()
    }
}

fn open(disk: &SimulatedDisk) -> Arc<Engine> {
    let mut options = small_options(disk);
    options.commitlog.sync = SyncMode::Batch;
    Engine::open(options).unwrap()
}

fn increment(engine: &Arc<Engine>, table: &Arc<Table>, key: i32, padding: usize) -> Arc<Increment> {
    Arc::new(Increment { engine: Arc::clone(engine), table: Arc::clone(table), key, padding })
}

fn number_in(engine: &Engine, table: &Arc<Table>, key: i32) -> i64 {
    let all = rows(engine, table);
    let (.., value) = all.iter().find(|(known, ..)| *known == key).unwrap();
    value.trim_end().parse().unwrap()
}

#[test]
fn increments_of_many_threads_are_one_after_the_other_and_survive_a_crash() {
    const THREADS: i32 = 6;
    const EACH: i64 = 60;
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (engine, table) = (&engine, &table);
            scope.spawn(move || {
                for step in 0..EACH {
                    // Half of them read on this thread, and half where they may not wait.
                    let increment = increment(engine, table, (number + step as i32) % 2, 0);
                    block_on(engine.write_derived(&increment, number % 2 == 0)).unwrap();
                    if step % 20 == 0 {
                        engine.flush(table).unwrap();
                    }
                }
            });
        }
    });
    let total = |engine: &Engine| number_in(engine, &table, 0) + number_in(engine, &table, 1);
    assert_eq!(total(&engine), i64::from(THREADS) * EACH);
    let again = open(&disk.crash_image(1));
    assert_eq!(total(&again), i64::from(THREADS) * EACH);
}

/// The log has room for few of these at a time, so that they wait for it again and again.
#[test]
fn increments_that_wait_for_room_in_the_log_are_derived_again() {
    const THREADS: i32 = 4;
    const EACH: i32 = 40;
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (engine, table) = (&engine, &table);
            scope.spawn(move || {
                for _ in 0..EACH {
                    block_on(engine.write_derived(&increment(engine, table, 1, 60 << 10), false)).unwrap();
                }
            });
        }
    });
    assert_eq!(number_in(&engine, &table, 1), i64::from(THREADS * EACH));
}

#[test]
fn an_increment_that_is_dropped_in_flight_keeps_its_lock_until_it_is_visible() {
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    let mut in_flight = 0;
    for step in 0..40 {
        {
            let increment = increment(&engine, &table, 1, 0);
            let mut dropped = pin!(engine.write_derived(&increment, false));
            match dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => in_flight += 1,
                Poll::Ready(done) => assert_eq!(done.unwrap(), 2 * step + 1),
            }
        }
        // If the lock were free before the dropped write is visible, this would read the number before it.
        let next = block_on(engine.write_derived(&increment(&engine, &table, 1, 0), false)).unwrap();
        assert_eq!(next, 2 * step + 2);
    }
    assert!(in_flight > 0, "the device is never so fast");
}
