//! Writes that are begun, kept and polled by whoever began them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use blockio::{Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{BegunWrite, Engine, EngineError, block_on};
use model::Table;

use crate::fixture::{create_table, insertion, rows, small_options};

fn open(disk: &SimulatedDisk) -> Arc<Engine> {
    let mut options = small_options(disk);
    options.commitlog.sync = SyncMode::Batch;
    Engine::open(options).unwrap()
}

fn begin(engine: &Arc<Engine>, table: &Arc<Table>, row: i32, value: &str) -> Option<BegunWrite> {
    engine.begin_write(&engine.borrow_schema(), insertion(table, 1, row, value, 10)).unwrap()
}

fn poll(write: &mut BegunWrite) {
    let _ = Pin::new(write).poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_begun_write_is_visible_when_it_is_ready_and_when_it_was_dropped() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    block_on(begin(&engine, &table, 0, "ready").unwrap()).unwrap();
    assert_eq!(rows(&engine, &table).len(), 1);
    drop(begin(&engine, &table, 1, "dropped"));
    let mut polled = begin(&engine, &table, 2, "dropped after it was polled").unwrap();
    poll(&mut polled);
    drop(polled);
    // A flush waits for all of them, and takes them along.
    engine.flush_all().unwrap();
    let before = rows(&engine, &table);
    assert_eq!(before.len(), 3);
    let image = disk.crash_image(1);
    let engine = open(&image);
    assert_eq!(rows(&engine, &table), before);
}

#[test]
fn a_begun_write_whose_record_is_lost_is_refused_and_never_visible() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    disk.inject(Fault::Fail, 0);
    let refused = block_on(begin(&engine, &table, 0, "lost").unwrap());
    assert!(matches!(refused, Err(EngineError::ClosedForWrites(_))), "{refused:?}");
    assert!(engine.begin_write(&engine.borrow_schema(), insertion(&table, 1, 1, "after", 10)).is_err());
    assert_eq!(rows(&engine, &table), []);
}

#[test]
fn a_write_that_would_have_to_wait_for_room_is_not_begun() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    let large = "x".repeat(6_000);
    // Faster than the device takes them, and they keep flushes waiting.
    let mut begun: Vec<BegunWrite> = (0..).map_while(|row| begin(&engine, &table, row, &large)).collect();
    begun.iter_mut().for_each(poll);
    let count = begun.len();
    assert!(count > 10);
    begun.into_iter().for_each(|write| block_on(write).unwrap());
    assert_eq!(rows(&engine, &table).len(), count, "and without any effect");
    let next = loop {
        match begin(&engine, &table, -1, "there is room again") {
            Some(next) => break next,
            None => std::thread::yield_now(),
        }
    };
    block_on(next).unwrap();
    assert_eq!(rows(&engine, &table).len(), count + 1);
}
