//! Writes that read before they write: counts, which would be wrong if two of them read the same state.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use blockio::{Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Derive, Derived, Engine, EngineError, Turn, block_on};
use model::{
    KeyRange, Keyspace, Mutation, PartitionKey, ReadRange, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor,
};
use types::{CqlType, Token};
use uuid::Uuid;

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
fn an_increment_that_is_dropped_in_flight_counts_for_the_next_one() {
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    let (mut in_flight, mut step) = (0, 0);
    while step < 40 || in_flight == 0 {
        {
            let increment = increment(&engine, &table, 1, 0);
            let mut dropped = pin!(engine.write_derived(&increment, false));
            match dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => in_flight += 1,
                Poll::Ready(done) => assert_eq!(done.unwrap(), 2 * step + 1),
            }
        }
        // The dropped write may not be visible yet, so this has to read it in flight.
        let next = block_on(engine.write_derived(&increment(&engine, &table, 1, 0), false)).unwrap();
        assert_eq!(next, 2 * step + 2);
        step += 1;
        assert!(step < 100_000, "no write was in flight when it was dropped");
    }
}

/// Has read the row, and decides when it receives the word. Only the first attempt waits for it.
struct DecidedLater {
    increment: Arc<Increment>,
    has_read: Mutex<Option<Sender<()>>>,
    decide: Mutex<Receiver<()>>,
}

impl Derive for DecidedLater {
    type Answer = i64;
    type Error = EngineError;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        self.increment.partitions()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<i64>, EngineError> {
        let derived = self.increment.derive(turn);
        if let Some(has_read) = self.has_read.lock().unwrap().take() {
            has_read.send(()).unwrap();
            self.decide.lock().unwrap().recv().unwrap();
        }
        derived
    }

    fn would_wait(error: &EngineError) -> bool {
        error.would_wait()
    }
}

#[test]
fn an_increment_of_a_number_that_is_truncated_before_it_is_written_begins_again() {
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    for _ in 0..5 {
        block_on(engine.write_derived(&increment(&engine, &table, 1, 0), true)).unwrap();
    }
    let ((has_read, read), (decide, decided)) = (mpsc::channel(), mpsc::channel());
    let later = Arc::new(DecidedLater {
        increment: increment(&engine, &table, 1, 0),
        has_read: Mutex::new(Some(has_read)),
        decide: Mutex::new(decided),
    });
    thread::scope(|scope| {
        let sixth = scope.spawn(|| block_on(engine.write_derived(&later, true)));
        read.recv().unwrap();
        engine.truncate(&table).unwrap();
        decide.send(()).unwrap();
        assert_eq!(sixth.join().unwrap().unwrap(), 1, "the numbers before it are gone");
    });
    assert_eq!(number_in(&engine, &table, 1), 1);
}

#[test]
fn no_number_counts_increments_from_before_a_truncation() {
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    let (begun, ended, is_over) = (AtomicI64::new(0), AtomicI64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    begun.fetch_add(1, Ordering::SeqCst);
                    block_on(engine.write_derived(&increment(&engine, &table, 1, 0), false)).unwrap();
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let counted: Vec<(i64, i64)> = (0..100)
            .map(|_| {
                let before = ended.load(Ordering::SeqCst);
                engine.truncate(&table).unwrap();
                let number = rows(&engine, &table).first().map_or(0, |(.., value)| value.trim_end().parse().unwrap());
                (number, begun.load(Ordering::SeqCst) - before)
            })
            .collect();
        is_over.store(true, Ordering::SeqCst);
        let wrong = counted.iter().find(|(number, since)| number > since);
        assert_eq!(wrong, None, "a number, and how many increments there were since the truncation began");
    });
}

/// Answers with the number in a row, and writes nothing.
struct Look(Increment);

impl Derive for Look {
    type Answer = i64;
    type Error = EngineError;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        self.0.partitions()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<i64>, EngineError> {
        Ok(Derived { mutation: None, answer: self.0.read(turn)? })
    }

    fn would_wait(error: &EngineError) -> bool {
        error.would_wait()
    }
}

type Writing<'e> = Pin<Box<dyn Future<Output = Result<i64, EngineError>> + 'e>>;

fn begin<'e>(engine: &'e Arc<Engine>, table: &Arc<Table>, key: i32) -> Writing<'e> {
    let increment = increment(engine, table, key, 0);
    Box::pin(async move { engine.write_derived(&increment, false).await })
}

fn look<'e>(engine: &'e Arc<Engine>, table: &Arc<Table>, key: i32) -> Writing<'e> {
    let look = Increment { engine: Arc::clone(engine), table: Arc::clone(table), key, padding: 0 };
    Box::pin(async move { engine.write_derived(&Arc::new(Look(look)), false).await })
}

fn poll(writing: &mut Writing<'_>) -> Option<Result<i64, EngineError>> {
    match writing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// Waits until everything that is in the log is on the device.
fn wait_for_the_log(engine: &Arc<Engine>, table: &Arc<Table>) {
    block_on(engine.write(&insertion(table, 1000, 0, "another partition", 1))).unwrap();
}

/// A partition of which these writes are all in flight, and the writes. Where the device was faster, another one.
fn begin_all<'e>(engine: &'e Arc<Engine>, table: &Arc<Table>, count: i64) -> (i32, Vec<Writing<'e>>) {
    let attempts = (1..1000).map(|key| (key, (0..count).map(|_| begin(engine, table, key)).collect::<Vec<_>>()));
    let mut slow = attempts
        .filter_map(|(key, mut writes)| writes.iter_mut().all(|write| poll(write).is_none()).then_some((key, writes)));
    slow.next().expect("the device is not always so fast")
}

#[test]
fn writes_of_a_partition_are_in_flight_together_and_become_visible_in_their_order() {
    const WRITES: i64 = 12;
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    let (key, mut writes) = begin_all(&engine, &table, WRITES);
    let mut answer = look(&engine, &table, key);
    assert!(poll(&mut answer).is_none());
    wait_for_the_log(&engine, &table);
    // Each of them has a record, and only the first one may become visible.
    assert!(writes[1..].iter_mut().rev().all(|write| poll(write).is_none()) && poll(&mut answer).is_none());
    assert!(!rows(&engine, &table).iter().any(|(other, ..)| *other == key));
    for (place, write) in writes.iter_mut().enumerate() {
        let number = place as i64 + 1;
        assert_eq!(poll(write).expect("those before it are visible").unwrap(), number);
        assert_eq!(number_in(&engine, &table, key), number);
        assert_eq!(poll(&mut look(&engine, &table, 2000)).expect("of another partition").unwrap(), 0);
    }
    assert_eq!(poll(&mut answer).expect("all is visible").unwrap(), WRITES);
}

#[test]
fn writes_of_a_partition_that_are_dropped_in_flight_in_any_order_are_finished() {
    for seed in testkit::seeds(0..40) {
        let mut random = testkit::Random(seed);
        let engine = open(&SimulatedDisk::new());
        let table = create_table(&engine);
        let (key, mut writes) = begin_all(&engine, &table, 10);
        while !writes.is_empty() {
            let place = random.below(writes.len());
            drop(poll(&mut writes[place]));
            drop(writes.swap_remove(place));
        }
        assert_eq!(block_on(look(&engine, &table, key)).unwrap(), 10, "seed {seed}");
        engine.flush(&table).unwrap();
        assert_eq!(number_in(&engine, &table, key), 10, "seed {seed}");
    }
}

#[test]
fn more_writes_than_may_be_in_flight_and_large_ones_wait_for_the_lock() {
    for (count, padding) in [(40, 0), (6, 40 << 10)] {
        let engine = open(&SimulatedDisk::new());
        let table = create_table(&engine);
        let writes = (0..count).map(|_| {
            let increment = increment(&engine, &table, 1, padding);
            let engine = &engine;
            Box::pin(async move { engine.write_derived(&increment, false).await }) as Writing<'_>
        });
        let mut writes: Vec<_> = writes.collect();
        let begun: Vec<_> = writes.iter_mut().map(poll).collect();
        let finished = writes.into_iter().zip(begun).map(|(write, begun)| begun.unwrap_or_else(|| block_on(write)));
        let numbers: Vec<i64> = finished.map(Result::unwrap).collect();
        assert_eq!(numbers, (1..=count).collect::<Vec<i64>>());
    }
}

#[test]
fn a_log_that_fails_refuses_writes_in_flight_and_answers_that_follow_them() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk);
    let table = create_table(&engine);
    block_on(begin(&engine, &table, 1)).unwrap();
    disk.inject(Fault::Fail, 0);
    let mut begun: Vec<_> = (0..3).map(|_| begin(&engine, &table, 1)).chain([look(&engine, &table, 1)]).collect();
    let mut polled: Vec<_> = begun.iter_mut().map(poll).collect();
    if polled[..3].iter().all(Option::is_some) {
        // The log failed before the last of them, so the answer follows none.
        begun.pop();
    }
    drop((begun.remove(1), polled.remove(1)));
    for (refused, polled) in begun.into_iter().zip(polled) {
        assert!(matches!(polled.unwrap_or_else(|| block_on(refused)), Err(EngineError::ClosedForWrites(_))));
    }
    assert_eq!(number_in(&engine, &table, 1), 1);
    assert_eq!(block_on(look(&engine, &table, 1)).unwrap(), 1, "what is visible is still answered");
}

/// Random clients begin, poll and drop increments of two partitions. Each number is given out once.
#[test]
fn no_history_of_writes_in_flight_gives_a_number_twice() {
    for seed in testkit::seeds(0..60) {
        let mut random = testkit::Random(seed);
        let disk = SimulatedDisk::new();
        let engine = open(&disk);
        let table = create_table(&engine);
        let mut writes: Vec<(i32, Writing<'_>)> = Vec::new();
        let mut given = [Vec::new(), Vec::new()];
        for _ in 0..120 {
            match random.below(10) {
                0..=3 => {
                    let key = random.below(2) as i32;
                    let mut write = begin(&engine, &table, key);
                    match poll(&mut write) {
                        Some(number) => given[key as usize].push(number.unwrap()),
                        None => writes.push((key, write)),
                    }
                }
                4 if !writes.is_empty() => drop(writes.swap_remove(random.below(writes.len()))),
                // A flush waits for writes in flight, which are polled by this thread alone.
                5 if writes.is_empty() => engine.flush(&table).unwrap(),
                _ if !writes.is_empty() => {
                    let place = random.below(writes.len());
                    if let Some(number) = poll(&mut writes[place].1) {
                        let (key, _) = writes.swap_remove(place);
                        given[key as usize].push(number.unwrap());
                    }
                }
                _ => {}
            }
        }
        // Out of order, so that some wait for others that are no longer polled.
        writes.reverse();
        drop(writes);
        for (key, given) in given.iter_mut().enumerate() {
            let last = block_on(look(&engine, &table, key as i32)).unwrap();
            given.sort_unstable();
            assert!(given.is_sorted_by(|one, next| one < next), "seed {seed}: {given:?}");
            assert!(given.last().is_none_or(|number| *number <= last), "seed {seed}: {given:?} and then {last}");
        }
    }
}

/// Adds one to a number in each of two tables, together.
struct Both([Increment; 2]);

impl Derive for Both {
    type Answer = i64;
    type Error = EngineError;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        self.0.iter().flat_map(Increment::partitions).collect()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<i64>, EngineError> {
        let derived = self.0.iter().map(|increment| increment.derive(turn)).collect::<Result<Vec<_>, _>>()?;
        let answer = derived[1].answer;
        let updates = derived.into_iter().filter_map(|derived| derived.mutation).flat_map(Mutation::into_updates);
        Ok(Derived { mutation: Some(Mutation::new(updates.collect())), answer })
    }

    fn would_wait(error: &EngineError) -> bool {
        error.would_wait()
    }
}

#[test]
fn a_write_that_is_not_logged_becomes_visible_after_those_that_it_follows() {
    let engine = open(&SimulatedDisk::new());
    let table = create_table(&engine);
    let builder = TableBuilder::new("unlogged", "t", TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    let unlogged = Arc::new(builder.clustering("c", CqlType::Int, false).regular("v", CqlType::Text).build());
    let mut keyspace = Keyspace::new("unlogged", Default::default(), false);
    keyspace.tables.insert(unlogged.name.clone(), unlogged.clone());
    engine.set_keyspace(keyspace).unwrap();
    let mut in_flight = 0;
    for key in 0..100 {
        let of = |table| Increment { engine: Arc::clone(&engine), table: Arc::clone(table), key, padding: 0 };
        let both = Arc::new(Both([of(&table), of(&unlogged)]));
        let mut first: Writing<'_> = Box::pin(async { engine.write_derived(&both, false).await });
        if poll(&mut first).is_some() {
            continue;
        }
        in_flight += 1;
        let mut next = begin(&engine, &unlogged, key);
        let mut answer = look(&engine, &unlogged, key);
        assert!(poll(&mut next).is_none() && poll(&mut answer).is_none(), "the first one is not visible");
        wait_for_the_log(&engine, &table);
        assert!(poll(&mut next).is_none() && !rows(&engine, &unlogged).iter().any(|(other, ..)| *other == key));
        assert_eq!(block_on(first).unwrap(), 1);
        assert_eq!(block_on(next).unwrap(), 2);
        assert_eq!(block_on(answer).unwrap(), 2);
    }
    assert!(in_flight > 0, "the device is never so fast");
}

/// Reads only where it may block, and notes where that was.
struct Elsewhere(Mutex<Option<thread::ThreadId>>);

impl Derive for Elsewhere {
    type Answer = ();
    type Error = Option<EngineError>;

    fn partitions(&self) -> Vec<(TableId, Token)> {
        Vec::new()
    }

    fn derive(&self, turn: Turn<'_>) -> Result<Derived<()>, Option<EngineError>> {
        if !turn.may_block {
            return Err(None);
        }
        *self.0.lock().unwrap() = Some(thread::current().id());
        Ok(Derived { mutation: None, answer: () })
    }

    fn would_wait(error: &Option<EngineError>) -> bool {
        error.is_none()
    }
}

#[test]
fn what_is_derived_without_locks_waits_on_another_thread_unless_this_one_may_block() {
    let engine = open(&SimulatedDisk::new());
    for may_block in [true, false] {
        let derive = Arc::new(Elsewhere(Mutex::default()));
        block_on(engine.derive_unlocked(&derive, may_block)).unwrap();
        let is_here = *derive.0.lock().unwrap() == Some(thread::current().id());
        assert_eq!(is_here, may_block);
    }
}
