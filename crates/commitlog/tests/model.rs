//! The hand-off between appenders, writer and waiters, in every order that two or three threads can take: the crate's own source
//! over a model checker's atomics, locks and threads. A wake-up that is lost is a deadlock, which it finds.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]
#![allow(dead_code, reason = "the hand-off alone is driven, not all that the modules have")]

#[path = "../../blockio/src/ring.rs"]
mod ring;
#[path = "../src/signals.rs"]
mod signals;
#[path = "../src/tail.rs"]
mod tail;
#[path = "../src/waiters.rs"]
mod waiters;

/// In place of the crate's own.
mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) use crate::ring::{BlockRing, Reservation, ReserveError, Seal};

    /// A queue that waits by parking.
    #[derive(Clone, Debug)]
    pub(crate) struct QueueWaker(pub loom::thread::Thread);

    impl QueueWaker {
        pub fn wake(&self) {
            self.0.unpark();
        }
    }
}

use blockio::{AlignedSlice, BLOCK_SIZE};
use loom::sync::Arc;
use loom::thread;
use primitive::{AtomicU64, Mutex, Ordering, QueueWaker};
use ring::{BlockRing, ReserveError};
use signals::Signals;
use std::task::{Wake, Waker};
use tail::Tail;
use waiters::Waiters;

/// The ring's memory, which nobody looks at here.
struct AlignedBuffer(blockio::AlignedBuffer);

impl AlignedBuffer {
    fn new(length: usize) -> AlignedBuffer {
        AlignedBuffer(blockio::AlignedBuffer::new(length))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut()
    }
}

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Segments of one block, of which the first is almost full. Two threads append a record each, which has no room in it, and go on in
/// the next as the log does: under a lock, unless somebody else did meanwhile. Answers how many segments that took.
fn segments_gone_on_in(place: fn(u64) -> std::ops::Range<u64>) -> u64 {
    let log = Arc::new((Tail::new(BlockRing::new(8 * BLOCK_SIZE), BLOCK), Mutex::new(())));
    log.0.go_on().unwrap();
    drop(log.0.reserve(|_| 0..BLOCK - 100).unwrap());
    let append = move |(tail, changing): &(Tail, Mutex<()>)| {
        loop {
            let activated = tail.activated();
            match tail.reserve(place) {
                Ok(_) => return,
                Err(ReserveError::Full) => panic!("the ring has room for all of it"),
                Err(ReserveError::Refused) => {
                    let _alone = changing.lock().unwrap();
                    if tail.activated() == activated {
                        tail.go_on().unwrap();
                    }
                }
            }
        }
    };
    let other = {
        let log = Arc::clone(&log);
        thread::spawn(move || append(&log))
    };
    append(&log);
    other.join().unwrap();
    let ring = &log.0.ring;
    ring.seal(|tail| tail.next_multiple_of(BLOCK));
    let mut records_end = 0;
    while let Some(batch) = ring.take_sealed() {
        let batch = batch.filled().unwrap();
        let segment = batch.start() / BLOCK;
        assert!(batch.start() >= records_end && batch.filled() <= (segment + 1) * BLOCK, "a batch is in one segment");
        records_end = batch.filled();
    }
    log.0.activated()
}

/// Records that go on where the one before ends: both find room in the second segment.
#[test]
fn whoever_is_refused_at_a_segments_end_leaves_none_out() {
    loom::model(|| assert_eq!(segments_gone_on_in(|tail| tail..tail + 200), 2));
}

/// Records that each begin a block, which at a segment's end is the first of the next one.
#[test]
fn a_record_that_begins_a_block_is_never_in_a_batch_of_the_segment_before() {
    loom::model(|| {
        let place = |tail: u64| tail.next_multiple_of(BLOCK)..tail.next_multiple_of(BLOCK) + 200;
        assert_eq!(segments_gone_on_in(place), 3);
    });
}

/// Two threads append; the writer sleeps until there is something, or until both are in, and takes it.
fn appends_are_taken(sleep_until: u64) {
    // Three threads: all orders with so many forced switches, which is where faults of this kind are found.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let (signals, tail) = (Arc::new(Signals::new()), Arc::new(AtomicU64::new(0)));
        signals.woken_by(QueueWaker(thread::current()));
        let appenders: Vec<_> = (0..2)
            .map(|_| {
                let (signals, tail) = (Arc::clone(&signals), Arc::clone(&tail));
                thread::spawn(move || {
                    let end = tail.fetch_add(1, Ordering::AcqRel) + 1;
                    signals.appended(end);
                })
            })
            .collect();
        let mut taken = 0;
        while taken < 2 {
            let wake_at = (taken + 1).max(sleep_until);
            let there = || tail.load(Ordering::Acquire) >= wake_at;
            if signals.fall_asleep(wake_at, there) {
                thread::park();
            }
            signals.awake();
            if there() {
                taken = tail.load(Ordering::Acquire);
            }
        }
        appenders.into_iter().for_each(|appender| appender.join().unwrap());
    });
}

#[test]
fn an_append_wakes_a_writer_that_sleeps_for_it() {
    appends_are_taken(0);
}

#[test]
fn a_writer_that_waits_for_company_is_woken_by_the_last_of_it() {
    appends_are_taken(2);
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// A waiter looks, registers and sleeps while the writer moves the horizon, in one step or two.
#[test]
fn a_waiter_is_woken_however_the_horizon_moves() {
    loom::model(|| {
        let waiters = Arc::new(Waiters::default());
        let writer = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || {
                let mut ready = Vec::new();
                waiters.advance(1, &mut ready);
                waiters.advance(3, &mut ready);
            })
        };
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let mut key = None;
        while waiters.horizon() < 2 && waiters.register(2, &mut key, &waker) {
            thread::park();
        }
        assert!(waiters.horizon() >= 2);
        writer.join().unwrap();
        assert_eq!(waiters.count(), 0);
    });
}

/// In `each`, a record behind the horizon is told by itself, before or after its waiter has come.
#[test]
fn a_record_written_by_itself_is_told_to_its_waiter() {
    loom::model(|| {
        let waiters = Arc::new(Waiters::default());
        let writer = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || waiters.written(4..8, &mut Vec::new()))
        };
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let mut key = None;
        while waiters.register(7, &mut key, &waker) {
            thread::park();
            // Woken, it is no more registered.
            key = None;
        }
        assert_eq!(waiters.horizon(), 0);
        writer.join().unwrap();
    });
}
