//! The whole hand-off between appenders, leader, writer and waiters: the crate's own ring, progress, writer thread and
//! leading threads, over a model checker's atomics, locks and threads, in every order with few forced switches.
//! `model.rs` takes its parts in more orders. Every waiter must be woken in the end, or the model deadlocks, which the
//! checker finds.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]
#![allow(dead_code, reason = "the hand-off alone is driven, not all that the modules have")]

#[path = "../src/hold.rs"]
mod hold;
#[path = "../src/lead.rs"]
mod lead;
#[path = "../src/metrics.rs"]
mod metrics;
#[path = "modelled/primitive.rs"]
mod primitive;
#[path = "../src/progress.rs"]
mod progress;
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
#[path = "../src/writer.rs"]
mod writer;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::task::Waker;
use std::time::Duration;

use blockio::{AlignedSlice, BLOCK_SIZE, DiskError};
use loom::thread;
use primitive::{AlignedBuffer, AtomicU64, Bell, Ordering, QueueWaker, fence};
use shared::Shared;
use waiters::Awaits;

const BLOCK: u64 = BLOCK_SIZE as u64;
/// One segment, whose border is never reached.
const SEGMENT: u64 = 8 * BLOCK;

#[derive(Clone, Copy, Debug, PartialEq)]
enum SyncMode {
    Periodic { period: Duration },
    Group { window: Duration },
    Batch,
    Each,
}

impl SyncMode {
    fn code(self) -> u8 {
        0
    }
}

#[derive(Debug)]
enum LogError {
    Closed(Arc<str>),
    Disk(DiskError),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> LogError {
        LogError::Disk(error)
    }
}

/// Nothing waits by it here.
struct Durable;

impl Durable {
    fn registered(_: Arc<Shared>, _: u64) -> Durable {
        Durable
    }
}

/// The contents of blocks do not matter.
mod frame {
    use std::ops::Range;

    use crate::LogError;
    use crate::primitive::FilledBatch;

    #[derive(Clone)]
    pub(crate) struct FrameHead {
        pub seed: u32,
        pub mode: u8,
        pub segment_id: i64,
        pub base: u64,
        pub run: Range<u64>,
        pub filled: u64,
        pub horizon: (i64, u32),
    }

    impl FrameHead {
        pub fn of(&self, run: Range<u64>, filled: u64) -> FrameHead {
            FrameHead { run, filled, ..self.clone() }
        }

        pub fn finish(&self, _: &mut FilledBatch, _: &()) {}
    }

    pub(crate) fn find_records(_: &FilledBatch) -> Result<Vec<Range<u64>>, LogError> {
        Ok(Vec::new())
    }
}

/// Everything was written before.
mod prewrite {
    use crate::primitive::BlockQueue;

    #[derive(Debug)]
    pub(crate) struct Prewriting;

    impl Prewriting {
        pub fn new(_: u64) -> Prewriting {
            Prewriting
        }

        pub fn reaches(&self, _: u64) -> bool {
            true
        }

        pub fn is_due(&self, _: u64, _: u64) -> bool {
            false
        }

        pub fn begin_next(&mut self, _: u64, _: u64, _: &mut dyn BlockQueue) {}

        pub fn is_done(&mut self, _: u64) -> bool {
            false
        }
    }
}

mod segment {
    pub(crate) struct SegmentUse {
        pub id: i64,
        pub slot: u32,
    }
}

/// The part of the log that the hand-off needs.
mod shared {
    use std::sync::Arc;

    use commitlog::Geometry;

    use crate::metrics::Counters;
    use crate::primitive::{Bell, BlockQueue, BlockRing, Mutex, MutexGuard};
    use crate::progress::Progress;
    use crate::segment::SegmentUse;
    use crate::{BLOCK, DiskError, LogError, ModelQueue, SEGMENT, SyncMode};

    pub(crate) struct Shared {
        pub file: File,
        pub sync: SyncMode,
        pub tail: crate::tail::Tail,
        pub record_starts: (),
        pub waiters: crate::waiters::Waiters,
        pub space: crate::space_signal::SpaceSignal,
        pub counters: Counters,
        pub signals: crate::signals::Signals,
        progress: Mutex<Progress>,
    }

    pub(crate) struct File {
        pub seed: u32,
        /// What the writer's queue waits for.
        pub bell: Arc<Bell>,
    }

    impl File {
        pub fn file(&self) -> &File {
            self
        }

        pub fn geometry(&self) -> Geometry {
            Geometry { segment_size_bytes: SEGMENT as u32, segments: 1 }
        }

        pub fn write_blocks(
            &self,
            _: blockio::AlignedSlice<'_>,
            _: u64,
            _: blockio::Durability,
        ) -> Result<(), DiskError> {
            // The device takes its time; other threads run meanwhile.
            loom::thread::yield_now();
            Ok(())
        }

        pub fn sync_data(&self) -> Result<(), DiskError> {
            Ok(())
        }

        pub fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError> {
            Ok(Box::new(ModelQueue { bell: Arc::clone(&self.bell), in_flight: Vec::new(), done: Vec::new() }))
        }
    }

    impl Shared {
        /// The state of a log whose first block is written.
        pub fn new() -> Shared {
            let tail = crate::tail::Tail::new(BlockRing::new(SEGMENT as usize), SEGMENT);
            tail.next_segment().unwrap();
            drop(tail.reserve(|_| 40..BLOCK).unwrap());
            tail.ring.seal(|tail| tail);
            drop(tail.ring.take_sealed().unwrap().filled().unwrap());
            let mut progress = Progress::new(0);
            (progress.taken, progress.written) = (BLOCK, BLOCK);
            let waiters = crate::waiters::Waiters::default();
            waiters.advance(BLOCK, &mut Vec::new());
            Shared {
                file: File { seed: 0, bell: Arc::default() },
                sync: SyncMode::Batch,
                tail,
                record_starts: (),
                waiters,
                space: crate::space_signal::SpaceSignal::default(),
                counters: Counters::default(),
                signals: crate::signals::Signals::new(),
                progress: Mutex::new(progress),
            }
        }

        pub fn segment_size(&self) -> u64 {
            SEGMENT
        }

        pub fn recent_segment(&self, _: u64) -> Option<Arc<SegmentUse>> {
            Some(Arc::new(SegmentUse { id: 1, slot: 0 }))
        }

        pub fn closed(&self) -> Option<LogError> {
            self.waiters.closed().map(LogError::Closed)
        }

        pub fn fail(&self, reason: &str) {
            assert!(std::thread::panicking(), "nothing fails here: {reason}");
        }

        pub fn progress(&self) -> MutexGuard<'_, Progress> {
            self.progress.lock().unwrap()
        }

        pub fn try_progress(&self) -> Option<MutexGuard<'_, Progress>> {
            self.progress.try_lock().ok()
        }

        pub fn make_room(&self) -> Result<(), LogError> {
            Ok(())
        }

        pub fn free_unused_if_waiting(&self) {}
    }

    impl std::fmt::Debug for Shared {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Shared")
        }
    }
}

/// Writes that complete when they are waited for.
#[derive(Debug)]
struct ModelQueue {
    bell: Arc<Bell>,
    in_flight: Vec<(ring::Frame, u64)>,
    done: Vec<primitive::CompletedWrite>,
}

impl primitive::BlockQueue for ModelQueue {
    fn submit(&mut self, frame: ring::Frame, offset: u64, _: blockio::Durability) {
        self.in_flight.push((frame, offset));
    }

    fn next_written(&mut self) -> Option<primitive::CompletedWrite> {
        self.done.pop()
    }

    fn wait(&mut self, _: Option<std::time::Instant>) -> Result<(), DiskError> {
        match self.in_flight.pop() {
            Some((frame, offset)) => self.done.push(primitive::CompletedWrite { frame, offset, result: Ok(()) }),
            None => self.bell.wait(),
        }
        Ok(())
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::Bell(Arc::clone(&self.bell))
    }
}

/// Appends a record and waits until it is on the device. `holds`: as a thread that would write it itself.
fn write(shared: &Arc<Shared>, holds: bool) {
    let held = holds.then(|| hold::LogHold::new(shared, Waker::noop()));
    let place = |tail: u64| if tail.is_multiple_of(BLOCK) { tail + 40..tail + 140 } else { tail..tail + 100 };
    let range = shared.tail.reserve(place).unwrap().range();
    if hold::hold_back(shared, range.start, range.end) {
        fence(Ordering::SeqCst);
    } else {
        shared.signals.appended(range.end);
    }
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut key = None;
    while shared.waiters.register(Awaits::Record(range.end), &mut key, &waker) {
        if !hold::write_held() {
            bell.wait();
        }
    }
    assert!(shared.waiters.horizon() >= range.end);
    drop(held);
}

/// The writer thread and threads that append; each of `appenders` says whether that thread would write in the writer's
/// place.
fn hand_off(appenders: &'static [bool], preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        let shared = Arc::new(Shared::new());
        shared.signals.woken_by(QueueWaker::Bell(Arc::clone(&shared.file.bell)));
        let left = Arc::new(AtomicU64::new(appenders.len() as u64));
        let threads: Vec<_> = appenders
            .iter()
            .map(|holds| {
                let (shared, left) = (Arc::clone(&shared), Arc::clone(&left));
                thread::spawn(move || {
                    write(&shared, *holds);
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        shared.signals.stopping.store(true, Ordering::Release);
                        shared.signals.wake();
                    }
                })
            })
            .collect();
        writer::run(Arc::clone(&shared), sync_channel(1).0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((shared.waiters.count(), shared.progress().in_flight()), (0, 0));
        assert!(!shared.tail.ring.has_untaken() && shared.waiters.horizon() == shared.tail.ring.tail());
    });
}

#[test]
fn the_writer_writes_the_record_of_one_thread() {
    hand_off(&[false], 3);
}

#[test]
fn one_leading_thread_or_the_writer_writes_its_record() {
    hand_off(&[true], 3);
}

#[test]
fn the_records_of_two_leading_threads_are_written_by_one_of_them_or_by_the_writer() {
    hand_off(&[true, true], 1);
}

#[test]
fn the_records_of_a_leading_and_another_thread_are_written_by_either_or_by_the_writer() {
    hand_off(&[true, false], 2);
}
