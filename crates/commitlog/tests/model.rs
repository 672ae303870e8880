//! The hand-off between appenders, writer and waiters, in every order that two or three threads can take: the crate's
//! own source over a model checker's atomics, locks and threads. A lost wake-up is a deadlock, which the checker finds.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]
#![allow(dead_code, reason = "the hand-off alone is driven, not all that the modules have")]

#[path = "../src/hold.rs"]
mod hold;
#[path = "modelled/primitive.rs"]
mod primitive;
#[path = "../../blockio/src/ring.rs"]
mod ring;
#[path = "../src/signals.rs"]
mod signals;
#[path = "../src/space_signal.rs"]
mod space_signal;
#[path = "../src/tail.rs"]
mod tail;
#[path = "../src/waiters.rs"]
mod waiters;

use blockio::{AlignedSlice, BLOCK_SIZE};
use loom::sync::Arc;
use loom::thread;
use primitive::{AlignedBuffer, AtomicU64, Bell, Mutex, Ordering, QueueWaker, fence};
use ring::{BlockRing, ReserveError};
use signals::Signals;
use space_signal::SpaceSignal;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tail::Tail;
use waiters::{Awaits, Waiters};

/// The part of the log that holding wake-ups back needs.
mod shared {
    #[derive(Debug)]
    pub(crate) struct Shared {
        pub sync: crate::SyncMode,
        pub signals: crate::Signals,
        pub waiters: crate::Waiters,
    }

    impl Shared {
        pub fn closed(&self) -> Option<std::sync::Arc<str>> {
            self.waiters.closed()
        }
    }
}

/// No thread writes in the writer's place here; `writer_model.rs` covers that.
mod lead {
    pub(crate) fn lead(_: &crate::shared::Shared, _: u64) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SyncMode {
    Batch,
    Each,
}

/// Nothing waits by it here.
struct Durable;

impl Durable {
    fn registered(_: std::sync::Arc<shared::Shared>, _: u64) -> Durable {
        Durable
    }
}

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Segments of one block, the first of which is almost full. Two threads each append a record that does not fit, and
/// move on to the next segment as the log does: under a lock, unless the other thread already did. Returns how many
/// segments that took.
fn segments_activated(place: fn(u64) -> std::ops::Range<u64>) -> u64 {
    let log = Arc::new((Tail::new(BlockRing::new(8 * BLOCK_SIZE), BLOCK), Mutex::new(())));
    log.0.next_segment().unwrap();
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
                        tail.next_segment().unwrap();
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

/// Each record starts where the previous one ends: both fit into the second segment.
#[test]
fn a_refusal_at_the_end_of_a_segment_skips_no_record() {
    loom::model(|| assert_eq!(segments_activated(|tail| tail..tail + 200), 2));
}

/// Each record begins a block, which at a segment's end is the first block of the next one.
#[test]
fn a_record_that_begins_a_block_is_never_in_a_batch_of_the_segment_before() {
    loom::model(|| {
        let place = |tail: u64| tail.next_multiple_of(BLOCK)..tail.next_multiple_of(BLOCK) + 200;
        assert_eq!(segments_activated(place), 3);
    });
}

/// Two threads append; the writer sleeps until there is something, or until both records are in, and takes them.
fn appends_are_taken(sleep_until: u64) {
    // Three threads, in all orders with this many forced switches, which is where faults of this kind are found.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let (signals, tail) = (Arc::new(Signals::new()), Arc::new(AtomicU64::new(0)));
        signals.woken_by(QueueWaker::Parked(thread::current()));
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
fn a_writer_that_waits_for_more_appends_is_woken_by_the_last_one() {
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
        while waiters.horizon() < 2 && waiters.register(Awaits::Record(2), &mut key, &waker) {
            thread::park();
        }
        assert!(waiters.horizon() >= 2);
        writer.join().unwrap();
        assert_eq!(waiters.count(), 0);
    });
}

/// In `each`, a record behind the horizon is reported by itself, before or after its waiter has come.
#[test]
fn the_waiter_of_a_single_record_learns_that_it_is_durable() {
    loom::model(|| {
        let waiters = Arc::new(Waiters::default());
        let writer = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || waiters.written(4..8, &mut Vec::new()))
        };
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let mut key = None;
        while waiters.register(Awaits::Record(7), &mut key, &waker) {
            thread::park();
            // Once woken, it is no longer registered.
            key = None;
        }
        assert_eq!(waiters.horizon(), 0);
        writer.join().unwrap();
    });
}

/// The log fails while a waiter registers: the waiter learns of it, before it sleeps or after.
#[test]
fn a_waiter_that_registers_during_a_failure_learns_of_it() {
    loom::model(|| {
        let waiters = Arc::new(Waiters::default());
        let failing = {
            let waiters = Arc::clone(&waiters);
            thread::spawn(move || assert!(waiters.close("it failed")))
        };
        let bell = std::sync::Arc::new(Bell::default());
        let waker = Waker::from(std::sync::Arc::clone(&bell));
        let mut key = None;
        let reported = loop {
            match waiters.poll(Awaits::Record(1), &mut key, &waker, || false) {
                Poll::Pending => bell.wait(),
                Poll::Ready(reported) => break reported,
            }
        };
        assert_eq!(reported.unwrap_err().as_ref(), "it failed");
        failing.join().unwrap();
    });
}

/// A thread and a task that look for room, find none and wait do not miss room that is made meanwhile.
#[test]
fn every_waiter_for_room_is_woken() {
    for by_waker in [false, true] {
        loom::model(move || {
            let log = Arc::new((SpaceSignal::default(), AtomicU64::new(0)));
            let flush = {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    log.1.store(1, Ordering::Release);
                    log.0.announce();
                })
            };
            let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
            loop {
                let epoch = log.0.epoch();
                if log.1.load(Ordering::Acquire) == 1 {
                    break;
                }
                if !by_waker {
                    log.0.wait(epoch, Instant::now() + Duration::from_secs(3600));
                } else if !log.0.is_announced_after(epoch, &waker) {
                    thread::park();
                }
            }
            flush.join().unwrap();
        });
    }
}

/// A thread holds two appends back; the writer falls asleep before, between or after them, and is woken when they are
/// released.
#[test]
fn held_appends_wake_the_writer_when_they_are_released() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let waiters = Waiters::default();
        let shared = std::sync::Arc::new(shared::Shared { sync: SyncMode::Batch, signals: Signals::new(), waiters });
        let tail = Arc::new(AtomicU64::new(0));
        shared.signals.woken_by(QueueWaker::Parked(thread::current()));
        let appender = {
            let (shared, tail) = (std::sync::Arc::clone(&shared), Arc::clone(&tail));
            thread::spawn(move || {
                let held = hold::LogHold::new(&shared, Waker::noop());
                for end in 1..=2 {
                    tail.store(end, Ordering::Release);
                    assert!(hold::hold_back(&shared, end - 1, end));
                    fence(Ordering::SeqCst);
                }
                drop(held);
            })
        };
        let mut taken = 0;
        while taken < 2 {
            let wake_at = taken + 1;
            let there = || tail.load(Ordering::Acquire) >= wake_at;
            if shared.signals.fall_asleep(wake_at, there) {
                thread::park();
            }
            shared.signals.awake();
            taken = tail.load(Ordering::Acquire);
        }
        appender.join().unwrap();
    });
}

/// A thread appends and writes in the place of the writer, which sleeps, while another appends: one of them writes the
/// other's record.
#[test]
fn an_append_during_a_leaders_write_is_written() {
    #[derive(Default)]
    struct Progress {
        is_writer_idle: bool,
        taken: u64,
        in_flight: bool,
    }

    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (signals, tail) = (Arc::new(Signals::new()), Arc::new(AtomicU64::new(0)));
        let progress = Arc::new(Mutex::new(Progress::default()));
        signals.woken_by(QueueWaker::Parked(thread::current()));
        let leading = {
            let (signals, tail, progress) = (Arc::clone(&signals), Arc::clone(&tail), Arc::clone(&progress));
            thread::spawn(move || {
                let end = tail.fetch_add(1, Ordering::AcqRel) + 1;
                let mut held = progress.lock().unwrap();
                if !held.is_writer_idle {
                    drop(held);
                    return signals.appended(end);
                }
                held.in_flight = true;
                held.taken = tail.load(Ordering::Acquire);
                // No further append deserves a frame of its own.
                signals.sleep_on(u64::MAX, || false);
                drop(held);
                let mut held = progress.lock().unwrap();
                held.in_flight = false;
                match held.is_writer_idle {
                    true => signals.sleep_on(0, || tail.load(Ordering::Acquire) > held.taken),
                    false => signals.wake(),
                }
                if held.taken == 2 {
                    // The writer has nothing left to do but to end.
                    signals.wake();
                }
            })
        };
        let other = {
            let (signals, tail) = (Arc::clone(&signals), Arc::clone(&tail));
            thread::spawn(move || {
                let end = tail.fetch_add(1, Ordering::AcqRel) + 1;
                signals.appended(end);
            })
        };
        loop {
            let mut held = progress.lock().unwrap();
            held.is_writer_idle = false;
            if !held.in_flight {
                held.taken = tail.load(Ordering::Acquire);
            }
            if held.taken == 2 && !held.in_flight {
                break;
            }
            let wake_at = if held.in_flight { u64::MAX } else { 0 };
            let is_asleep =
                signals.fall_asleep(wake_at, || !held.in_flight && tail.load(Ordering::Acquire) > held.taken);
            held.is_writer_idle = is_asleep && !held.in_flight;
            drop(held);
            if is_asleep {
                thread::park();
            }
            signals.awake();
        }
        leading.join().unwrap();
        other.join().unwrap();
    });
}
