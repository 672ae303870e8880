//! The writer thread: seals what was appended, finishes its blocks, gives them to the device as frames, and wakes the
//! waiters.
//!
//! A thread that finds the device idle wakes the writer so that its record is written at once, or [writes it
//! itself](crate::lead). Records that arrive while frames are in flight are collected, and written when the device is
//! idle again, or earlier if they are worth a frame of their own. Frames complete in any order. In the ordered modes
//! the gapless prefix is acknowledged; in `each` every record is a frame and is acknowledged when it completes.
//!
//! The first frame of a segment is issued only when the previous segment is durable to its end, and the frame says so.
//! Recovery can therefore judge each segment by the horizons that name it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use blockio::{BLOCK_SIZE, Durability};

use crate::frame::find_records;
use crate::primitive::{
    BlockQueue, CompletedWrite, FilledBatch, MutexGuard, QueueMeans, QueueWaker, SealedBatch, hint, thread,
};
use crate::progress::{LocatedBatch, Progress};
use crate::shared::Shared;
use crate::{LogError, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// The longest device write, except for a single record in `each`.
pub(crate) const FRAME_SIZE_MAX: u64 = 1 << 20;
/// The least amount that makes another frame worthwhile while one is in flight: see [`Writer::wake_at`].
pub(crate) const OVERLAP_SIZE: u64 = 32 << 10;
/// A shorter frame that is alone in flight is written by this thread itself. Its completion then involves no kernel
/// thread, which would have to wait for a processor too.
const ALONE_SIZE: u64 = 128 << 10;
/// The most frames in flight in the ordered modes; more would only be smaller.
const FRAMES_MAX: usize = 8;
/// The most frames in flight in `each`.
const FRAMES_MAX_EACH: usize = 32;
/// In `periodic` mode, how long a record may stay in the log's memory before the operating system has it.
const PERIODIC_DELAY: Duration = Duration::from_millis(10);

const _: () = assert!(FRAME_SIZE_MAX / BLOCK <= u16::MAX as u64, "headers count the blocks of a frame in 16 bits");
const _: () = assert!(FRAMES_MAX < FRAMES_MAX_EACH && ALONE_SIZE < FRAME_SIZE_MAX && OVERLAP_SIZE < FRAME_SIZE_MAX);

/// The writer thread's own state.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    queue: Box<dyn BlockQueue>,
    /// When the oldest record that is in no sealed batch began to wait.
    open_since: Option<Instant>,
    /// When the file was last synced (`periodic`).
    synced_at: Instant,
}

/// The lock on the log's progress, released while the thread waits.
type ProgressGuard<'a> = MutexGuard<'a, Progress>;

/// Closes the log on a panic, so that no thread waits for a writer that is gone.
struct FailOnPanic(Arc<Shared>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its writer failed");
        }
    }
}

/// The next action of the writer.
enum Step {
    Issue,
    Sync,
    /// Sleep until a frame completes, the time comes, or an append reaches `wake_at`.
    Sleep {
        until: Option<Instant>,
        wake_at: u64,
    },
    Exit,
}

/// The writer's report to the thread that started it.
pub(crate) type Started = Result<(QueueWaker, QueueMeans), LogError>;

/// Runs the writer until the log is closed.
pub(crate) fn run(shared: Arc<Shared>, started: SyncSender<Started>) {
    let _guard = FailOnPanic(Arc::clone(&shared));
    match Writer::new(&shared) {
        Ok(writer) => {
            // The thread that started the writer waits for this.
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
            match self.step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.shared.fail(&error.to_string()),
            }
        }
    }

    /// Does the next step. Returns false when there is none and never will be.
    fn step(&mut self) -> Result<bool, LogError> {
        let mut progress = self.shared.progress();
        progress.is_writer_idle = false;
        self.collect(&mut progress)?;
        if self.shared.signals.is_segment_wanted() {
            self.shared.make_room()?;
        }
        match self.next_step(&progress) {
            Step::Issue => self.issue(progress)?,
            Step::Sync => self.sync(&mut progress)?,
            Step::Sleep { until, wake_at } => self.sleep(progress, until, wake_at)?,
            Step::Exit => return Ok(false),
        }
        Ok(true)
    }

    fn next_step(&mut self, progress: &Progress) -> Step {
        let shared = self.shared;
        let signals = &shared.signals;
        let urgent = signals.urgent.swap(false, Ordering::AcqRel);
        let stopping = signals.stopping.load(Ordering::Acquire);
        let now = Instant::now();
        let idle = progress.in_flight() == 0;
        let unsynced = progress.written > shared.waiters.horizon();
        let sync_due = match shared.sync {
            SyncMode::Periodic { period } if unsynced => Some(self.synced_at + period),
            _ => None,
        };
        // A sync does not wait for what is appended after it; it would never end while other threads append.
        let sync_wanted = signals.sync_wanted.load(Ordering::Acquire);
        let is_wanted_written = sync_wanted > shared.waiters.horizon() && sync_wanted <= progress.written;
        if unsynced && (sync_due.is_some_and(|due| due <= now) || is_wanted_written) {
            return Step::Sync;
        }
        if has_untaken(shared, progress) {
            let due = *self.open_since.get_or_insert(now) + delay(shared.sync);
            let in_a_hurry = urgent || stopping || sync_wanted > progress.taken;
            if due > now && !in_a_hurry {
                let until = sync_due.map_or(due, |sync| sync.min(due));
                return Step::Sleep { until: Some(until), wake_at: u64::MAX };
            }
            let wake_at = self.wake_at(progress);
            if shared.tail.ring.tail() >= wake_at || in_a_hurry && progress.in_flight() < self.frames_max() {
                return Step::Issue;
            }
            return Step::Sleep { until: None, wake_at };
        }
        if stopping && idle {
            return if unsynced { Step::Sync } else { Step::Exit };
        }
        Step::Sleep { until: sync_due.filter(|_| idle), wake_at: self.wake_at(progress) }
    }

    /// The ring position that an append must reach to be written at once. While frames are in flight, the new frame has
    /// to be at least half as long as all of them together: two or three frames keep the device busy, and the more
    /// there is to write, the fewer and longer they are.
    fn wake_at(&self, progress: &Progress) -> u64 {
        match progress.in_flight() {
            0 => 0,
            frames if frames >= self.frames_max() => u64::MAX,
            _ if self.shared.sync == SyncMode::Each => 0,
            _ => progress.taken + ((progress.taken - progress.written) / 2).clamp(OVERLAP_SIZE, FRAME_SIZE_MAX),
        }
    }

    fn frames_max(&self) -> usize {
        if self.shared.sync == SyncMode::Each { FRAMES_MAX_EACH } else { FRAMES_MAX }
    }

    /// Sleeps until woken, a frame completes, or the time comes.
    fn sleep(&mut self, mut progress: ProgressGuard<'a>, until: Option<Instant>, wake_at: u64) -> Result<(), LogError> {
        let shared = self.shared;
        let ready = || shared.tail.ring.tail() >= wake_at && has_untaken(shared, &progress);
        let falls_asleep = shared.signals.fall_asleep(wake_at, ready);
        progress.is_writer_idle = falls_asleep && progress.in_flight() == 0;
        drop(progress);
        let slept = if falls_asleep { self.queue.wait(until) } else { Ok(()) };
        shared.signals.awake();
        Ok(slept?)
    }

    /// Waits for the queue without holding the lock.
    fn wait(&mut self, progress: ProgressGuard<'a>) -> Result<ProgressGuard<'a>, LogError> {
        drop(progress);
        self.queue.wait(None)?;
        let mut progress = self.shared.progress();
        self.collect(&mut progress)?;
        Ok(progress)
    }

    /// Seals the open batch and issues all sealed batches.
    fn issue(&mut self, mut progress: ProgressGuard<'a>) -> Result<(), LogError> {
        self.open_since = None;
        let shared = self.shared;
        shared.tail.ring.seal(|tail| tail.next_multiple_of(BLOCK));
        while let Some(batch) = progress.left.take().or_else(|| shared.tail.ring.take_sealed()) {
            let batch = wait_filled(batch);
            // The batch may contain a record that was not copied, because a promise that had to be withdrawn on the
            // device before it could not be written (`last_mark::mark`). That failure closed the log.
            if let Some(closed) = shared.closed() {
                return Err(closed);
            }
            progress = self.issue_batch(progress, LocatedBatch::new(shared, batch)?)?;
        }
        Ok(())
    }

    fn issue_batch(
        &mut self,
        mut progress: ProgressGuard<'a>,
        mut located: LocatedBatch,
    ) -> Result<ProgressGuard<'a>, LogError> {
        let shared = self.shared;
        debug_assert!(progress.taken <= located.batch.start(), "batches are taken in order");
        progress.taken = located.batch.end();
        if located.batch.start() == located.base {
            progress = self.complete(progress)?;
        }
        let apart = shared.sync == SyncMode::Each;
        let frames = if apart { find_records(&located.batch)? } else { ordered_frames(&located.batch) };
        let head = progress.frame_head(shared, &located);
        let finish = |data: Range<u64>| {
            let run = data.start / BLOCK * BLOCK..data.end.next_multiple_of(BLOCK);
            head.of(run.clone(), data.end).finish(&mut located.batch, &shared.record_starts);
            (run, data.end)
        };
        let runs: Vec<_> = frames.into_iter().map(finish).collect();
        debug_assert!(!runs.is_empty(), "a sealed batch has a frame");
        let is_alone = !apart && progress.in_flight() == 0 && located.batch.end() - located.batch.start() < ALONE_SIZE;
        let located = located.share();
        for (run, filled) in runs {
            progress = self.prewrite(progress, located.offset(shared, run.end), located.segment.slot)?;
            progress = self.wait_for_turn(progress)?;
            let offset = progress.begin(shared, &located, run.clone(), filled);
            let frame = located.batch.frame(run);
            debug_assert!(progress.in_flight() <= self.frames_max(), "no more frames are in flight than may be");
            if is_alone {
                self.queue.submit_alone(frame, offset, self.durability());
            } else {
                self.queue.submit(frame, offset, self.durability());
            }
        }
        if progress.asks_for_segment(shared, &located) {
            shared.make_room()?;
        }
        Ok(progress)
    }

    /// Records the completion of finished writes.
    fn collect(&mut self, progress: &mut Progress) -> Result<(), LogError> {
        if let (true, Some(closed)) = (progress.has_failed, self.shared.closed()) {
            return Err(closed);
        }
        let mut any = false;
        while let Some(CompletedWrite { frame, offset, result }) = self.queue.next_written() {
            result?;
            let run = frame.range();
            drop(frame);
            if progress.prewriting.is_done(offset) {
                continue;
            }
            any = true;
            progress.ended(self.shared, offset);
            if self.shared.sync == SyncMode::Each {
                self.shared.waiters.written(run, &mut progress.ready);
            }
        }
        if any {
            progress.advance(self.shared);
        }
        Ok(())
    }

    /// Waits until another frame may be in flight: one batch may be more frames than the limit.
    fn wait_for_turn(&mut self, mut progress: ProgressGuard<'a>) -> Result<ProgressGuard<'a>, LogError> {
        while progress.in_flight() >= self.frames_max() {
            progress = self.wait(progress)?;
        }
        Ok(progress)
    }

    /// Waits until everything issued is durable.
    fn complete(&mut self, mut progress: ProgressGuard<'a>) -> Result<ProgressGuard<'a>, LogError> {
        while progress.in_flight() > 0 {
            progress = self.wait(progress)?;
        }
        if progress.written > self.shared.waiters.horizon() {
            self.sync(&mut progress)?;
        }
        debug_assert_eq!(progress.in_flight(), 0, "everything issued is complete");
        Ok(progress)
    }

    fn durability(&self) -> Durability {
        match self.shared.sync {
            SyncMode::Periodic { .. } => Durability::AtNextSync,
            SyncMode::Batch | SyncMode::Group { .. } | SyncMode::Each => Durability::Durable,
        }
    }

    /// Syncs the file, which makes everything written durable.
    fn sync(&mut self, progress: &mut Progress) -> Result<(), LogError> {
        let since = Instant::now();
        self.shared.file.file().sync_data()?;
        self.shared.counters.flush_waits.add(since.elapsed());
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.synced_at = Instant::now();
        progress.advance_horizon(self.shared);
        Ok(())
    }

    /// Makes sure that the file reaches `end` with blocks that were written before. Overwriting such blocks changes no
    /// metadata, so that a durable write is one device write.
    fn prewrite(
        &mut self,
        mut progress: ProgressGuard<'a>,
        end: u64,
        slot: u32,
    ) -> Result<ProgressGuard<'a>, LogError> {
        let segment_end = self.shared.file.geometry().segment_offset(slot + 1);
        progress.prewriting.begin_next(end, segment_end, &mut *self.queue);
        while !progress.prewriting.reaches(end) {
            progress = self.wait(progress)?;
            progress.prewriting.begin_next(end, segment_end, &mut *self.queue);
        }
        Ok(progress)
    }
}

/// Whether something was appended that is not issued.
pub(crate) fn has_untaken(shared: &Shared, progress: &Progress) -> bool {
    progress.left.is_some() || shared.tail.ring.has_untaken()
}

/// How long the first record of a frame waits for others when nothing is in flight.
fn delay(sync: SyncMode) -> Duration {
    match sync {
        SyncMode::Batch | SyncMode::Each => Duration::ZERO,
        SyncMode::Group { window } => window,
        SyncMode::Periodic { period } => PERIODIC_DELAY.min(period),
    }
}

/// Splits a batch into frames that are contiguous in memory and not too long.
fn ordered_frames(batch: &FilledBatch) -> Vec<Range<u64>> {
    let mut frames = Vec::with_capacity(1);
    let mut at = batch.start();
    while at < batch.end() {
        let run = batch.run(at, FRAME_SIZE_MAX);
        at = run.end;
        debug_assert!(run.start < run.end && run.start < batch.filled(), "a frame moves on and has records");
        frames.push(run.start..run.end.min(batch.filled()));
    }
    frames
}

/// Waits for the last copies into a sealed batch. Each takes no longer than a memcpy, unless its thread lost the
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
