//! The writer thread: seals what was appended, finishes its blocks, hands them to the device as frames, and tells those
//! who wait.
//!
//! Whoever finds the device idle wakes it, and its record goes at once, or [writes itself](crate::lead); while
//! frames are under way what comes meanwhile collects, and goes when the device is idle again, or before that if it is
//! worth a frame by itself. Frames end in any order. In the ordered modes what is acknowledged is the gapless part; in
//! `each` every record is a frame and acknowledged as it ends.
//!
//! The first frame of a segment is issued only when the segment before it is durable to its end, and says so: therefore
//! recovery can judge each segment by the horizons that name it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use blockio::{BLOCK_SIZE, Durability};

use crate::course::{Course, Placed};
use crate::frame::find_records;
use crate::primitive::{
    BlockQueue, FilledBatch, MutexGuard, QueueMeans, QueueWaker, SealedBatch, Written, hint, thread,
};
use crate::shared::Shared;
use crate::{LogError, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// The longest device write, but for a single record in `each`.
pub(crate) const FRAME_SIZE_MAX: u64 = 1 << 20;
/// While a frame is under way, so much makes another one worth its costs, at least: see [`Writer::wake_at`].
pub(crate) const OVERLAP_SIZE: u64 = 32 << 10;
/// A shorter frame beside which nothing is under way is written by this thread itself: its end then comes by way of
/// none of the kernel's threads, each of which has to wait for a processor too.
const ALONE_SIZE: u64 = 128 << 10;
/// Frames under way in the ordered modes: more only make them smaller.
const FRAMES_MAX: usize = 8;
/// Frames under way in `each`.
const FRAMES_MAX_EACH: usize = 32;
/// In `periodic` mode: how long a record may stay in our memory before the operating system has it.
const PERIODIC_DELAY: Duration = Duration::from_millis(10);

/// The thread's own state.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    queue: Box<dyn BlockQueue>,
    /// Since when the oldest record waits that is in no batch.
    open_since: Option<Instant>,
    /// When the file was last synced (`periodic`).
    synced_at: Instant,
}

/// The lock on where the log is; given back while the thread waits.
type Held<'a> = MutexGuard<'a, Course>;

/// Nobody may wait for a thread that is gone.
struct FailOnPanic(Arc<Shared>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its writer failed");
        }
    }
}

/// What to do next.
enum Step {
    Issue,
    Sync,
    /// Sleep until a frame is done, the time, or an append that reaches `wake_at`.
    Sleep {
        until: Option<Instant>,
        wake_at: u64,
    },
    Exit,
}

/// What the thread tells whoever started it.
pub(crate) type Started = Result<(QueueWaker, QueueMeans), LogError>;

/// Runs the writer until the log is closed.
pub(crate) fn run(shared: Arc<Shared>, started: SyncSender<Started>) {
    let _guard = FailOnPanic(Arc::clone(&shared));
    match Writer::new(&shared) {
        Ok(writer) => {
            // Whoever started us waits for this.
            let _ = started.send(Ok((writer.queue.waker(), writer.queue.means())));
            drop(started);
            writer.run();
        }
        Err(error) => drop(started.send(Err(error))),
    }
}

impl<'a> Writer<'a> {
    fn new(shared: &'a Shared) -> Result<Writer<'a>, LogError> {
        let queue = shared.file.file().block_queue()?;
        Ok(Writer { shared, queue, open_since: None, synced_at: Instant::now() })
    }

    fn run(mut self) {
        loop {
            match self.go_on() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.shared.fail(&error.to_string()),
            }
        }
    }

    /// Does what is next; false if that is nothing, for good.
    fn go_on(&mut self) -> Result<bool, LogError> {
        let mut course = self.shared.course();
        course.is_writer_idle = false;
        self.collect(&mut course)?;
        if self.shared.signals.is_segment_wanted() {
            self.shared.make_room()?;
        }
        match self.next_step(&course) {
            Step::Issue => self.issue(course)?,
            Step::Sync => self.sync(&mut course)?,
            Step::Sleep { until, wake_at } => self.sleep(course, until, wake_at)?,
            Step::Exit => return Ok(false),
        }
        Ok(true)
    }

    fn next_step(&mut self, course: &Course) -> Step {
        let shared = self.shared;
        let signals = &shared.signals;
        let urgent = signals.urgent.swap(false, Ordering::AcqRel);
        let stopping = signals.stopping.load(Ordering::Acquire);
        let now = Instant::now();
        let idle = course.under_way() == 0;
        let unsynced = course.written > shared.waiters.horizon();
        let sync_due = match shared.sync {
            SyncMode::Periodic { period } if unsynced => Some(self.synced_at + period),
            _ => None,
        };
        // What is appended behind it does not matter to whoever wants a sync: it would never end while others append.
        let sync_wanted = signals.sync_wanted.load(Ordering::Acquire);
        let is_wanted_written = sync_wanted > shared.waiters.horizon() && sync_wanted <= course.written;
        if unsynced && (sync_due.is_some_and(|due| due <= now) || is_wanted_written) {
            return Step::Sync;
        }
        if has_untaken(shared, course) {
            let due = *self.open_since.get_or_insert(now) + delay(shared.sync);
            let in_a_hurry = urgent || stopping || sync_wanted > course.taken;
            if due > now && !in_a_hurry {
                let until = sync_due.map_or(due, |sync| sync.min(due));
                return Step::Sleep { until: Some(until), wake_at: u64::MAX };
            }
            let wake_at = self.wake_at(course);
            if shared.tail.ring.tail() >= wake_at || in_a_hurry && course.under_way() < self.frames_max() {
                return Step::Issue;
            }
            return Step::Sleep { until: None, wake_at };
        }
        if stopping && idle {
            return if unsynced { Step::Sync } else { Step::Exit };
        }
        Step::Sleep { until: sync_due.filter(|_| idle), wake_at: self.wake_at(course) }
    }

    /// An append that reaches this ring position makes a frame to be issued at once. Beside frames under way it has to
    /// be half as long as they are together: the device is kept busy by two or three, and the more there is to
    /// write, the fewer they are.
    fn wake_at(&self, course: &Course) -> u64 {
        match course.under_way() {
            0 => 0,
            frames if frames >= self.frames_max() => u64::MAX,
            _ if self.shared.sync == SyncMode::Each => 0,
            _ => course.taken + ((course.taken - course.written) / 2).clamp(OVERLAP_SIZE, FRAME_SIZE_MAX),
        }
    }

    fn frames_max(&self) -> usize {
        if self.shared.sync == SyncMode::Each { FRAMES_MAX_EACH } else { FRAMES_MAX }
    }

    /// Sleeps until woken, a frame is done or the time has come.
    fn sleep(&mut self, mut course: Held<'a>, until: Option<Instant>, wake_at: u64) -> Result<(), LogError> {
        let shared = self.shared;
        let ready = || shared.tail.ring.tail() >= wake_at && has_untaken(shared, &course);
        let falls_asleep = shared.signals.fall_asleep(wake_at, ready);
        course.is_writer_idle = falls_asleep && course.under_way() == 0;
        drop(course);
        let slept = if falls_asleep { self.queue.wait(until) } else { Ok(()) };
        shared.signals.awake();
        Ok(slept?)
    }

    /// Waits for the queue without the lock.
    fn wait(&mut self, course: Held<'a>) -> Result<Held<'a>, LogError> {
        drop(course);
        self.queue.wait(None)?;
        let mut course = self.shared.course();
        self.collect(&mut course)?;
        Ok(course)
    }

    /// Seals the open batch and issues all that are sealed.
    fn issue(&mut self, mut course: Held<'a>) -> Result<(), LogError> {
        self.open_since = None;
        let shared = self.shared;
        shared.tail.ring.seal(|tail| tail.next_multiple_of(BLOCK));
        while let Some(batch) = course.left.take().or_else(|| shared.tail.ring.take_sealed()) {
            let batch = wait_filled(batch);
            // A record may lie in it that was not copied, because what has to be on the device before it is not.
            if let Some(closed) = shared.closed() {
                return Err(closed);
            }
            course = self.issue_batch(course, Placed::new(shared, batch)?)?;
        }
        Ok(())
    }

    fn issue_batch(&mut self, mut course: Held<'a>, mut placed: Placed) -> Result<Held<'a>, LogError> {
        let shared = self.shared;
        course.taken = placed.batch.end();
        if placed.batch.start() == placed.base {
            course = self.complete(course)?;
        }
        let apart = shared.sync == SyncMode::Each;
        let frames = if apart { find_records(&placed.batch)? } else { ordered_frames(&placed.batch) };
        let head = course.frame_head(shared, &placed);
        let finish = |data: Range<u64>| {
            let run = data.start / BLOCK * BLOCK..data.end.next_multiple_of(BLOCK);
            head.of(run.clone(), data.end).finish(&mut placed.batch, &shared.record_starts);
            (run, data.end)
        };
        let runs: Vec<_> = frames.into_iter().map(finish).collect();
        let is_alone = !apart && course.under_way() == 0 && placed.batch.end() - placed.batch.start() < ALONE_SIZE;
        let placed = placed.share();
        for (run, filled) in runs {
            course = self.prewrite(course, placed.offset(shared, run.end), placed.segment.slot)?;
            course = self.wait_for_turn(course)?;
            let offset = course.begin(shared, &placed, run.clone(), filled);
            let frame = placed.batch.frame(run);
            if is_alone {
                self.queue.submit_alone(frame, offset, self.durability());
            } else {
                self.queue.submit(frame, offset, self.durability());
            }
        }
        if course.asks_for_segment(shared, &placed) {
            shared.make_room()?;
        }
        Ok(course)
    }

    /// Takes in what is done.
    fn collect(&mut self, course: &mut Course) -> Result<(), LogError> {
        if let (true, Some(closed)) = (course.has_failed, self.shared.closed()) {
            return Err(closed);
        }
        let mut any = false;
        while let Some(Written { frame, offset, result }) = self.queue.next_written() {
            result?;
            let run = frame.range();
            drop(frame);
            if course.prewriting.is_done(offset) {
                continue;
            }
            any = true;
            course.ended(self.shared, offset);
            if self.shared.sync == SyncMode::Each {
                self.shared.waiters.written(run, &mut course.ready);
            }
        }
        if any {
            course.advance(self.shared);
        }
        Ok(())
    }

    /// Waits until another frame may be under way: one batch may be more frames than that.
    fn wait_for_turn(&mut self, mut course: Held<'a>) -> Result<Held<'a>, LogError> {
        while course.under_way() >= self.frames_max() {
            course = self.wait(course)?;
        }
        Ok(course)
    }

    /// Waits until everything issued is durable.
    fn complete(&mut self, mut course: Held<'a>) -> Result<Held<'a>, LogError> {
        while course.under_way() > 0 {
            course = self.wait(course)?;
        }
        if course.written > self.shared.waiters.horizon() {
            self.sync(&mut course)?;
        }
        Ok(course)
    }

    fn durability(&self) -> Durability {
        match self.shared.sync {
            SyncMode::Periodic { .. } => Durability::AtNextSync,
            SyncMode::Batch | SyncMode::Group { .. } | SyncMode::Each => Durability::Durable,
        }
    }

    /// Syncs the file; what was written is durable then.
    fn sync(&mut self, course: &mut Course) -> Result<(), LogError> {
        let since = Instant::now();
        self.shared.file.file().sync_data()?;
        self.shared.counters.flush_waits.add(since.elapsed());
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.synced_at = Instant::now();
        course.advance_horizon(self.shared);
        Ok(())
    }

    /// Makes sure that the file reaches to `end` with blocks that were written before: overwriting them later changes
    /// no metadata, so a durable write is one device write.
    fn prewrite(&mut self, mut course: Held<'a>, end: u64, slot: u32) -> Result<Held<'a>, LogError> {
        let segment_end = self.shared.file.geometry().segment_offset(slot + 1);
        course.prewriting.go_on(end, segment_end, &mut *self.queue);
        while !course.prewriting.reaches(end) {
            course = self.wait(course)?;
            course.prewriting.go_on(end, segment_end, &mut *self.queue);
        }
        Ok(course)
    }
}

/// Whether something was appended that is not issued.
pub(crate) fn has_untaken(shared: &Shared, course: &Course) -> bool {
    course.left.is_some() || shared.tail.ring.has_untaken()
}

/// How long the first record of a frame waits for company when nothing is under way.
fn delay(sync: SyncMode) -> Duration {
    match sync {
        SyncMode::Batch | SyncMode::Each => Duration::ZERO,
        SyncMode::Group { window } => window,
        SyncMode::Periodic { period } => PERIODIC_DELAY.min(period),
    }
}

/// A batch in pieces that lie in one piece of memory and are not too long, as the data in them.
fn ordered_frames(batch: &FilledBatch) -> Vec<Range<u64>> {
    let mut frames = Vec::with_capacity(1);
    let mut at = batch.start();
    while at < batch.end() {
        let run = batch.run(at, FRAME_SIZE_MAX);
        at = run.end;
        frames.push(run.start..run.end.min(batch.filled()));
    }
    frames
}

/// Waits for the last copies into a sealed batch: each takes no longer than a memcpy, unless its thread lost the
/// processor.
pub(crate) fn wait_filled(mut batch: SealedBatch) -> FilledBatch {
    let mut tries = 0u32;
    loop {
        match batch.filled() {
            Ok(filled) => return filled,
            Err(again) => batch = again,
        }
        tries += 1;
        if tries < 100 { hint::spin_loop() } else { thread::yield_now() }
    }
}
