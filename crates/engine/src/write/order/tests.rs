//! Tests of every state of a write, and of every transition.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Wake, Waker};

use blockio::{Fault, SimulatedDisk};
use commitlog::SyncMode;
use model::{
    Cell, Keyspace, Liveness, PartitionKey, PartitionUpdateBuilder, ReadRange, RowBuilder, Table, TableBuilder,
    TableId, UnfilteredCursor,
};
use types::CqlType;
use uuid::Uuid;

use super::*;
use crate::shared::Barrier;
use crate::{Derive, Derived, Engine, EngineOptions, Turn};

/// An engine with one table, and the values that show whether a write left something behind.
struct Fixture {
    disk: SimulatedDisk,
    engine: Arc<Engine>,
    table: Arc<Table>,
}

#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    end_of_log: LogPosition,
    taken_bytes: i64,
    reserved_bytes: u64,
}

impl Fixture {
    fn open(adjust: impl FnOnce(&mut EngineOptions)) -> Fixture {
        let disk = SimulatedDisk::new();
        let mut options = EngineOptions::new(Arc::new(disk.clone()), "/node");
        options.commitlog.sync = SyncMode::Batch;
        options.commitlog.segment_size_bytes = 256 << 10;
        options.commitlog.total_space_bytes = 4 << 20;
        options.memtable_shards = 1;
        options.concurrent_compactors = 0;
        adjust(&mut options);
        let engine = Engine::open(options).unwrap();
        let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(1))).partition_key("k", CqlType::Int);
        let table = Arc::new(builder.regular("v", CqlType::Text).build());
        let mut keyspace = Keyspace::new("ks", Default::default(), true);
        keyspace.tables.insert(table.name.clone(), table.clone());
        engine.set_keyspace(keyspace).unwrap();
        let table = engine.schema().table("ks", "t").unwrap().clone();
        Fixture { disk, engine, table }
    }

    fn insertion(&self, key: i32, value_bytes: usize) -> Mutation {
        let mut builder = RowBuilder::default();
        builder.start(self.table.regulars(), false);
        builder.liveness(Liveness::at(1));
        builder.cell(0, &Cell::live(1, &vec![b'v'; value_bytes]));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(self.table.clone(), PartitionKey::new(&key.to_be_bytes()));
        update.row(&[], &blob);
        Mutation::from(update.build())
    }

    fn begin(
        &self,
        mutation: Mutation,
        stores: &[Arc<TableStore>],
    ) -> Result<Option<OwnedWrite<Arc<Writes>>>, EngineError> {
        let writes = &self.engine.writes;
        begin(writes, || Arc::clone(writes), |pending| pending, mutation, stores)
    }

    fn stores(&self) -> [Arc<TableStore>; 1] {
        [self.engine.shared.catalog().any_store(self.table.id).unwrap().clone()]
    }

    fn holdings(&self) -> Holdings {
        let reserved_bytes = self.stores()[0].limit.reserved_bytes();
        Holdings {
            end_of_log: self.engine.shared.log().position(),
            taken_bytes: self.engine.shared.pool().taken_bytes(),
            reserved_bytes,
        }
    }

    /// The number of partitions that reads see after every write in a group has left it.
    fn visible(&self) -> usize {
        self.engine.shared.groups().barrier().wait();
        let mut cursor = self.engine.read(&self.table, &ReadRange::all_rows(model::KeyRange::all())).unwrap();
        let mut count = 0;
        while cursor.advance_partition().unwrap() {
            count += 1;
        }
        count
    }

    /// Begins writes until the log has no room for another one.
    fn fill_log(&self) -> Vec<OwnedWrite<Arc<Writes>>> {
        let stores = self.stores();
        // Only the writes of this table keep segments in use, and their group delays every flush.
        self.engine.flush_all().unwrap();
        let mut pending = Vec::new();
        let mut is_written = false;
        while pending.len() < 1000 {
            let pressure = self.engine.shared.log().pressure();
            match self.begin(self.insertion(1000 + pending.len() as i32, 8 << 10), &stores).unwrap() {
                Some(write) => {
                    pending.push(write);
                    is_written = false;
                }
                None if pressure.is_none_or(|pressure| pressure.free_segments > 0) => {
                    // The log's writer is preparing a segment.
                    std::thread::yield_now();
                }
                None if is_written => break,
                None => {
                    // Too many records may wait for the device. Besides, the end of the log moves to the next block
                    // when the last records are written.
                    self.engine.shared.log().sync().unwrap();
                    is_written = true;
                }
            }
        }
        pending
    }
}

fn is_closed(error: &EngineError) -> bool {
    matches!(error, EngineError::ClosedForWrites(_))
}

fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_write_that_is_dropped_before_the_log_has_not_happened() {
    let fixture = Fixture::open(|_| {});
    let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let before = fixture.holdings();
    let admitted = write.admit_now().unwrap().expect("there is room");
    assert!(fixture.holdings().taken_bytes > before.taken_bytes, "memory is taken at admission");
    drop(admitted);
    assert_eq!(fixture.holdings(), before);
    drop(write.admit_exempt());
    drop(drive(write));
    assert_eq!((fixture.holdings(), fixture.visible()), (before, 0));
}

#[test]
fn a_write_that_is_dropped_in_flight_is_finished_whether_it_was_polled_or_not() {
    for is_polled in [false, true] {
        let fixture = Fixture::open(|_| {});
        let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
        let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
        let admitted = write.admit_now().unwrap().expect("there is room");
        let entered = admitted.enter().unwrap().expect("the log has room");
        // It is in flight, even if the device was fast.
        let kept = admitted.apply_unless_waiting(entered, Durability::OnDevice).expect("it waits for the device");
        let mut in_flight = InFlight::new(&*fixture.engine.writes, &mutation, &stores[..], kept);
        assert!(!in_flight.is_done() && fixture.holdings().taken_bytes > 0);
        if is_polled {
            let _ = in_flight.poll(&mut Context::from_waker(Waker::noop()));
        }
        drop(in_flight);
        assert_eq!((fixture.visible(), fixture.holdings().taken_bytes), (1, 0));
    }
}

#[test]
fn a_write_is_applied_once_however_often_it_is_polled() {
    let fixture = Fixture::open(|_| {});
    let stores = fixture.stores();
    let mut pending = fixture.begin(fixture.insertion(1, 100), &stores).unwrap().expect("there is room");
    crate::block_on(poll_fn(|context| pending.poll(context))).unwrap();
    assert!(pending.is_done() && poll_once(pin!(poll_fn(|context| pending.poll(context)))).is_ready());
    assert_eq!(fixture.holdings().taken_bytes, 0);
    drop(pending);
    assert_eq!(fixture.visible(), 1);
}

#[test]
fn a_write_that_the_log_refuses_leaves_its_group_and_is_not_visible() {
    let fixture = Fixture::open(|_| {});
    let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let admitted = write.admit_now().unwrap().expect("there is room");
    fixture.engine.shared.log().fail("the test says so");
    assert!(admitted.enter().err().is_some_and(|error| is_closed(&error)));
    drop(admitted);
    assert!(is_closed(&crate::block_on(drive(write)).unwrap_err()));
    assert!(block(write, Durability::OnDevice).is_err_and(|error| is_closed(&error)));
    assert!(fixture.begin(mutation.clone(), &stores).err().is_some_and(|error| is_closed(&error)));
    assert_eq!((fixture.visible(), fixture.holdings().taken_bytes), (0, 0), "no barrier waits for it");
}

#[test]
fn a_write_whose_record_is_lost_in_flight_leaves_its_group_and_is_not_visible() {
    for is_dropped in [false, true] {
        let fixture = Fixture::open(|_| {});
        let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
        let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
        // All writes fail from now on.
        fixture.disk.inject(Fault::Fail, 0);
        let admitted = write.admit_now().unwrap().expect("there is room");
        let entered = admitted.enter().unwrap().expect("the log has room");
        let kept = admitted.apply_unless_waiting(entered, Durability::OnDevice).expect("it waits for the device");
        let in_flight = InFlight::new(&*fixture.engine.writes, &mutation, &stores[..], kept);
        match is_dropped {
            true => drop(in_flight),
            false => assert!(in_flight.block(Durability::OnDevice).is_err_and(|error| is_closed(&error))),
        }
        assert_eq!((fixture.visible(), fixture.holdings().taken_bytes), (0, 0));
    }
}

#[test]
fn a_write_without_memory_is_not_started_and_waits_outside_of_any_group() {
    let fixture = Fixture::open(|options| options.memtable_space_bytes = 1 << 20);
    let (mutation, stores) = (fixture.insertion(1, 10_000), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let mut taken: Vec<_> = std::iter::from_fn(|| fixture.engine.shared.pool().take_now(4_000)).collect();
    let before = fixture.holdings();
    assert!(fixture.begin(mutation.clone(), &stores).unwrap().is_none());
    {
        let mut dropped = pin!(drive(write));
        assert!(poll_once(dropped.as_mut()).is_pending());
    }
    assert_eq!(fixture.holdings(), before, "nothing happened");
    let mut waiting = pin!(drive(write));
    assert!(poll_once(waiting.as_mut()).is_pending());
    fixture.engine.shared.groups().barrier().wait();
    // A write without admission does not wait for memory.
    assert!(block(Write { mutation: &fixture.insertion(2, 100), ..write }, Durability::Configured).unwrap());
    taken.clear();
    crate::block_on(waiting).unwrap();
    assert_eq!((fixture.visible(), fixture.holdings().taken_bytes), (2, 0));
}

#[test]
fn a_write_without_space_in_the_log_is_not_started_and_waits_outside_of_any_group() {
    let fixture = Fixture::open(|_| {});
    let pending = fixture.fill_log();
    let (mutation, stores) = (fixture.insertion(1, 8 << 10), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let before = fixture.holdings();
    let admitted = write.admit_now().unwrap().expect("there is memory");
    assert!(admitted.enter().unwrap().is_none(), "the log is full");
    assert!(admitted.enter().unwrap().is_none(), "and stays so while what is pending keeps flushes waiting");
    drop(admitted);
    assert!(!block(write, Durability::OnDevice).unwrap());
    {
        let mut dropped = pin!(drive(write));
        assert!(poll_once(dropped.as_mut()).is_pending());
    }
    assert_eq!(fixture.holdings(), before, "nothing happened");
    let mut waiting = pin!(drive(write));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let count = pending.len();
    for mut pending in pending {
        crate::block_on(poll_fn(|context| pending.poll(context))).unwrap();
    }
    // A flush makes room: no group holds the waiting write.
    crate::block_on(waiting).unwrap();
    assert_eq!((fixture.visible(), fixture.holdings().taken_bytes), (count + 1, 0));
}

#[test]
fn a_table_that_is_dropped_or_quarantined_after_admission_refuses_the_write_before_the_log() {
    let drop_it: fn(&TableStore) = TableStore::set_dropped;
    let quarantine: fn(&TableStore) = |store| store.set_quarantined(&EngineError::Unsupported("a test".into()));
    for refuse in [drop_it, quarantine] {
        let fixture = Fixture::open(|_| {});
        let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
        let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
        let before = fixture.holdings();
        let admitted = write.admit_now().unwrap().expect("there is room");
        refuse(&stores[0]);
        let refusal = admitted.enter().err().expect("the table is not served");
        assert!(matches!(refusal, EngineError::UnknownTable(_) | EngineError::Quarantined { .. }), "{refusal}");
        drop(admitted);
        crate::block_on(drive(write)).unwrap_err();
        block(write, Durability::Configured).unwrap_err();
        assert_eq!(fixture.holdings(), before, "nothing was appended");
    }
}

#[test]
fn a_table_that_is_quarantined_while_a_write_is_in_flight_waits_for_the_write() {
    let fixture = Fixture::open(|_| {});
    let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let admitted = write.admit_now().unwrap().expect("there is room");
    let entered = admitted.enter().unwrap().expect("the log has room");
    let kept = admitted.apply_unless_waiting(entered, Durability::OnDevice).expect("it waits for the device");
    let in_flight = InFlight::new(&*fixture.engine.writes, &mutation, &stores[..], kept);
    stores[0].set_quarantined(&EngineError::Unsupported("a test".into()));
    let barrier = fixture.engine.shared.groups().barrier();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| barrier.wait());
        assert!(!waiting.is_finished(), "the write is in the group that was closed");
        in_flight.block(Durability::OnDevice).unwrap();
    });
    let view = stores[0].view();
    assert!(!view.active.memtable.is_empty(), "it was applied before the quarantine continued");
}

#[test]
fn an_engine_that_was_shut_down_refuses_what_was_admitted_before() {
    let fixture = Fixture::open(|_| {});
    let (mutation, stores) = (fixture.insertion(1, 100), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let admitted = write.admit_now().unwrap().expect("there is room");
    fixture.engine.shutdown().unwrap();
    assert!(admitted.enter().err().is_some_and(|error| is_closed(&error)));
    drop(admitted);
    assert_eq!(fixture.holdings().taken_bytes, 0);
}

#[test]
fn room_in_a_table_in_memory_is_reserved_before_memory_is_taken() {
    let fixture = Fixture::open(|options| options.memtable_space_bytes = 1 << 20);
    let mut limited = (*fixture.table).clone();
    let options = [("class", "org.apache.cassandra.db.compaction.MemoryOnlyStrategy"), ("size_limit_in_mb", "1")];
    limited.options.compaction = options.map(|(name, value)| (name.into(), value.into())).into();
    let mut keyspace = Keyspace::new("ks", Default::default(), true);
    keyspace.tables.insert(limited.name.clone(), Arc::new(limited));
    fixture.engine.set_keyspace(keyspace).unwrap();
    let (mutation, stores) = (fixture.insertion(1, 100_000), fixture.stores());
    let write = Write { writes: &fixture.engine.writes, mutation: &mutation, stores: &stores };
    let before = fixture.holdings();
    let mut admitted: Vec<_> = std::iter::from_fn(|| write.admit_now().unwrap()).collect();
    // The reservations of the others leave no room. This write waits for them and holds no memory.
    let full = fixture.holdings();
    assert!(!admitted.is_empty() && full.reserved_bytes > 0, "{full:?}");
    {
        let mut waiting = pin!(drive(write));
        assert!(poll_once(waiting.as_mut()).is_pending());
        assert_eq!(fixture.holdings(), full);
    }
    admitted.clear();
    assert_eq!(fixture.holdings(), before);
    // If there is no memory, the room is returned too.
    let taken: Vec<_> = std::iter::from_fn(|| fixture.engine.shared.pool().take_now(4_000)).collect();
    let without_memory = fixture.holdings();
    assert!(write.admit_now().unwrap().is_none());
    assert_eq!(fixture.holdings(), without_memory);
    drop(taken);
    crate::block_on(drive(write)).unwrap();
    assert_eq!((fixture.visible(), fixture.holdings().reserved_bytes), (1, 0));
}

/// A write that follows from nothing but takes the lock of its partition.
struct Locked(Mutation);

impl Derive for Locked {
    type Answer = ();
    type Error = EngineError;

    fn partitions(&self) -> Vec<(TableId, types::Token)> {
        self.0.updates().iter().map(|update| (update.table().id, update.key().token())).collect()
    }

    fn derive(&self, _: Turn<'_>) -> Result<Derived<()>, EngineError> {
        Ok(Derived { mutation: Some(self.0.clone()), answer: () })
    }

    fn would_wait(_: &EngineError) -> bool {
        false
    }
}

/// Notes at the first wake whether the writes before a barrier have left their group.
struct AtFirstWake {
    barrier: Barrier,
    had_left: OnceLock<bool>,
}

impl Wake for AtFirstWake {
    fn wake(self: Arc<Self>) {
        self.had_left.get_or_init(|| self.barrier.is_empty());
    }
}

#[test]
fn a_write_leaves_the_order_of_its_partitions_before_its_group() {
    let fixture = Fixture::open(|_| {});
    let writes = &fixture.engine.writes;
    let derived = [1, 2].map(|bytes| Arc::new(Locked(fixture.insertion(1, bytes))));
    let stall = fixture.disk.stall();
    let (mut first, mut second) =
        (pin!(writes.write_derived(&derived[0], true)), pin!(writes.write_derived(&derived[1], true)));
    assert!(poll_once(first.as_mut()).is_pending());
    // A truncation would wait for the first write, and then no write may read that in the order.
    let barrier = fixture.engine.shared.groups().barrier();
    let at_wake = Arc::new(AtFirstWake { barrier, had_left: OnceLock::new() });
    let waker = Waker::from(Arc::clone(&at_wake));
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(stall);
    crate::block_on(first).unwrap();
    assert_eq!(at_wake.had_left.get(), Some(&false), "the second write was woken while the first was in its group");
    assert!(at_wake.barrier.is_empty());
    crate::block_on(second).unwrap();
}
