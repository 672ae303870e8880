//! Writes that are begun, kept for a while, and polled by the test.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use blockio::{Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineError, PendingWrite, block_on};
use model::Table;
use types::CqlType;

use crate::fixture::{create_table, insertion, rows, small_options};

fn open(disk: &SimulatedDisk) -> Arc<Engine> {
    let mut options = small_options(disk);
    options.commitlog.sync = SyncMode::Batch;
    Engine::open(options).unwrap()
}

fn begin(engine: &Arc<Engine>, table: &Arc<Table>, row: i32, value: &str) -> Option<PendingWrite> {
    engine.begin_write(&engine.borrow_schema(), insertion(table, 1, row, value, 10)).unwrap()
}

fn poll(write: &mut PendingWrite) {
    let _ = Pin::new(write).poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_pending_write_is_visible_when_it_is_ready_and_when_it_was_dropped() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    block_on(begin(&engine, &table, 0, "ready").unwrap()).unwrap();
    assert_eq!(rows(&engine, &table).len(), 1);
    drop(begin(&engine, &table, 1, "dropped"));
    let mut polled = begin(&engine, &table, 2, "dropped after it was polled").unwrap();
    poll(&mut polled);
    drop(polled);
    // A flush waits for all of these writes and includes them.
    engine.flush_all().unwrap();
    let before = rows(&engine, &table);
    assert_eq!(before.len(), 3);
    let image = disk.crash_image(1);
    let engine = open(&image);
    assert_eq!(rows(&engine, &table), before);
}

#[test]
fn a_pending_write_whose_record_is_lost_is_refused_and_never_visible() {
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
fn a_write_that_would_have_to_wait_for_space_is_not_started() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    let large = "x".repeat(6_000);
    // The writes come faster than the device completes them, and they delay flushes.
    let mut begun: Vec<PendingWrite> = (0..).map_while(|row| begin(&engine, &table, row, &large)).collect();
    begun.iter_mut().for_each(poll);
    let count = begun.len();
    assert!(count > 10);
    begun.into_iter().for_each(|write| block_on(write).unwrap());
    assert_eq!(rows(&engine, &table).len(), count, "and without any effect");
    let next = loop {
        match begin(&engine, &table, -1, "there is room again") {
            Some(next) => break next,
            None => std::thread::sleep(crate::fixture::PAUSE),
        }
    };
    block_on(next).unwrap();
    assert_eq!(rows(&engine, &table).len(), count + 1);
}

/// Begins writes as a connection does: the log's writer is woken only after the last one. If the writer was awake
/// already, some of the writes may be complete.
fn begin_all(engine: &Arc<Engine>, table: &Arc<Table>, rows: Range<i32>) -> Vec<PendingWrite> {
    let _held = engine.hold_log(Waker::noop());
    rows.map(|row| begin(engine, table, row, "together").expect("there is room")).collect()
}

fn done<'w>(writes: impl IntoIterator<Item = &'w PendingWrite>) -> usize {
    writes.into_iter().filter(|write| write.is_done()).count()
}

#[test]
fn pending_writes_are_prefetched_together_and_become_visible_one_by_one() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    let mut begun = begin_all(&engine, &table, 0..20);
    let mut late = begun.split_off(15);
    block_on(begun.swap_remove(3)).unwrap();
    // One of the writes was dropped, and some are complete.
    late.iter_mut().for_each(|write| block_on(write).unwrap());
    PendingWrite::prefetch(begun.iter().chain(&late));
    let visible = 1 + done(begun.iter().chain(&late));
    assert_eq!(rows(&engine, &table).len(), visible, "brought near, not written");
    begun.into_iter().for_each(|write| block_on(write).unwrap());
    assert_eq!(rows(&engine, &table).len(), 20);
}

#[test]
fn pending_writes_whose_table_is_altered_and_flushed_meanwhile_are_all_visible() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    block_on(begin(&engine, &table, -1, "for the flush").unwrap()).unwrap();
    let before = begin_all(&engine, &table, 0..20);
    put_table(&engine, Some(Arc::new(table.to_builder().regular("u", CqlType::Text).build())));
    let altered = engine.schema().table("ks", "t").unwrap().clone();
    let after = begin_all(&engine, &altered, 20..40);
    let flush = thread::spawn({
        let (engine, altered) = (engine.clone(), altered.clone());
        move || engine.flush(&altered).unwrap()
    });
    PendingWrite::prefetch(before.iter().chain(&after));
    assert!(done(&before) == 20 || !flush.is_finished(), "it waits for them");
    before.into_iter().chain(after).for_each(|write| block_on(write).unwrap());
    flush.join().unwrap();
    assert_eq!(rows(&engine, &altered).len(), 41);
    let again = open(&disk.crash_image(1));
    assert_eq!(rows(&again, &altered), rows(&engine, &altered));
}

#[test]
fn pending_writes_do_not_reach_a_table_that_replaced_theirs() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let old = create_table(&engine);
    let begun = begin_all(&engine, &old, 0..20);
    let remade = thread::spawn({
        let (engine, new) = (engine.clone(), Arc::new(old.to_builder().build()));
        move || [None, Some(new)].into_iter().for_each(|table| put_table(&engine, table))
    });
    // The table will be dropped soon.
    while engine.begin_write(&engine.borrow_schema(), insertion(&old, 1, 99, "also before", 10)).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    PendingWrite::prefetch(begun.iter());
    assert!(done(&begun) == 20 || !remade.is_finished(), "the drop waits for them");
    begun.into_iter().for_each(|write| block_on(write).unwrap());
    remade.join().unwrap();
    let new = engine.schema().table("ks", "t").unwrap().clone();
    assert_eq!((new.id, rows(&engine, &new)), (old.id, vec![]));
    let begun = begin_all(&engine, &new, 0..8);
    PendingWrite::prefetch(begun.iter());
    begun.into_iter().for_each(|write| block_on(write).unwrap());
    let again = open(&disk.crash_image(1));
    assert_eq!(rows(&again, again.schema().table("ks", "t").unwrap()).len(), 8);
}

#[test]
fn pending_writes_that_a_failing_log_refuses_are_not_visible() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    block_on(begin(&engine, &table, -1, "before").unwrap()).unwrap();
    let held = engine.hold_log(Waker::noop());
    let begun: Vec<_> = (0..20).map(|row| begin(&engine, &table, row, "lost").unwrap()).collect();
    disk.inject(Fault::Fail, 0);
    drop(held);
    PendingWrite::prefetch(begun.iter());
    let outcomes: Vec<_> = begun.into_iter().map(block_on).collect();
    let is_refused = |outcome: &&Result<(), EngineError>| matches!(outcome, Err(EngineError::ClosedForWrites(_)));
    let refused = outcomes.iter().filter(is_refused).count();
    assert!(refused > 0 && outcomes.iter().all(|outcome| outcome.is_ok() || is_refused(&outcome)), "{outcomes:?}");
    assert_eq!(rows(&engine, &table).len(), 21 - refused);
}

/// Replaces `ks.t` with a table, or drops it.
fn put_table(engine: &Engine, table: Option<Arc<Table>>) {
    let change = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        let tables = &mut Arc::make_mut(keyspaces.get_mut("ks").unwrap()).tables;
        tables.remove("t");
        tables.extend(table.map(|table| ("t".into(), table)));
        Ok(())
    });
    change.unwrap();
}
