//! The writer thread: seals what was appended, finishes its blocks, hands them to the device as frames, and tells those who wait.
//!
//! It is the only one to write blocks of segments. Whoever finds the device idle wakes it, and its record goes at once; while
//! frames are under way what comes meanwhile collects, and goes when the device is idle again, or before that if it is worth a
//! frame by itself. Frames end in any order. In the ordered modes what is acknowledged is the gapless part; in `each` every
//! record is a frame and acknowledged as it ends.
//!
//! The first frame of a segment is issued only when the segment before it is durable to its end, and says so: therefore recovery
//! can judge each segment by the horizons that name it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use blockio::{BLOCK_SIZE, BlockQueue, Durability, FilledBatch, QueueMeans, QueueWaker, SealedBatch, Written};

use crate::frame::{FrameHead, find_records};
use crate::prewrite::Prewriting;
use crate::shared::Shared;
use crate::{LogError, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// The longest device write, but for a single record in `each`.
const FRAME_SIZE_MAX: u64 = 1 << 20;
/// While a frame is under way, so much makes another one worth its costs, at least: see [`Writer::wake_at`].
const OVERLAP_SIZE: u64 = 32 << 10;
/// A shorter frame beside which nothing is under way is written by this thread itself: its end then comes by way of none of the kernel's
/// threads, each of which has to wait for a processor too.
const ALONE_SIZE: u64 = 128 << 10;
/// Frames under way in the ordered modes: more only make them smaller.
const FRAMES_MAX: usize = 8;
/// Frames under way in `each`.
const FRAMES_MAX_EACH: usize = 32;
/// In `periodic` mode: how long a record may stay in our memory before the operating system has it.
const PERIODIC_DELAY: Duration = Duration::from_millis(10);

/// The thread's own state.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    queue: Box<dyn BlockQueue>,
    /// Frames that were issued, without the gapless part that is written. In order.
    issued: VecDeque<Issued>,
    /// Since when the oldest record waits that is in no batch.
    open_since: Option<Instant>,
    /// When the file was last synced (`periodic`).
    synced_at: Instant,
    /// The ring position where the last batch that was taken ends.
    taken: u64,
    /// The ring position up to which blocks are written, gapless.
    written: u64,
    /// The same as blocks of a segment; (0, 0) at first.
    written_place: (i64, u32),
    /// The place of the durable horizon.
    horizon: (i64, u32),
    prewriting: Prewriting,
    /// The segment whose successor was prepared last.
    prepared_behind: Option<u64>,
    /// Scratch: who is woken after a frame.
    ready: Vec<Waker>,
}

/// A frame under way, or done behind one that is.
#[derive(Debug)]
struct Issued {
    run: Range<u64>,
    offset: u64,
    /// Its end as blocks of a segment.
    place: (i64, u32),
    since: Instant,
    done: bool,
}

/// Nobody may wait for a thread that is gone.
struct FailOnPanic(Arc<Shared>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
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
    match Writer::new(shared) {
        Ok(writer) => {
            // Whoever started us waits for this.
            let _ = started.send(Ok((writer.queue.waker(), writer.queue.means())));
            drop(started);
            writer.run();
        }
        Err(error) => drop(started.send(Err(error))),
    }
}

impl Writer {
    fn new(shared: Arc<Shared>) -> Result<Writer, LogError> {
        let queue = shared.file.file().block_queue()?;
        let prewriting = Prewriting::new(shared.file.file().len()?);
        Ok(Writer {
            shared,
            queue,
            issued: VecDeque::new(),
            open_since: None,
            synced_at: Instant::now(),
            taken: 0,
            written: 0,
            written_place: (0, 0),
            horizon: (0, 0),
            prewriting,
            prepared_behind: None,
            ready: Vec::new(),
        })
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
        self.collect()?;
        if self.shared.signals.is_segment_wanted() {
            self.shared.make_room()?;
        }
        match self.next_step() {
            Step::Issue => self.issue()?,
            Step::Sync => self.sync()?,
            Step::Sleep { until, wake_at } => self.sleep(until, wake_at)?,
            Step::Exit => return Ok(false),
        }
        Ok(true)
    }

    fn next_step(&mut self) -> Step {
        let shared = &*self.shared;
        let signals = &shared.signals;
        let urgent = signals.urgent.swap(false, Ordering::AcqRel);
        let stopping = signals.stopping.load(Ordering::Acquire);
        let now = Instant::now();
        let idle = self.issued.is_empty();
        let unsynced = self.written > shared.waiters.horizon();
        let sync_due = match shared.sync {
            SyncMode::Periodic { period } if unsynced => Some(self.synced_at + period),
            _ => None,
        };
        let sync_wanted = signals.sync_wanted.load(Ordering::Acquire) > shared.waiters.horizon();
        let has_untaken = shared.tail.ring.has_untaken();
        if idle && unsynced && (sync_due.is_some_and(|due| due <= now) || sync_wanted && !has_untaken) {
            return Step::Sync;
        }
        if has_untaken {
            let due = *self.open_since.get_or_insert(now) + delay(shared.sync);
            let in_a_hurry = urgent || stopping || sync_wanted;
            if due > now && !in_a_hurry {
                let until = sync_due.map_or(due, |sync| sync.min(due));
                return Step::Sleep { until: Some(until), wake_at: u64::MAX };
            }
            let wake_at = self.wake_at();
            if shared.tail.ring.tail() >= wake_at || in_a_hurry && self.issued.len() < self.frames_max() {
                return Step::Issue;
            }
            return Step::Sleep { until: None, wake_at };
        }
        if stopping && idle {
            return if unsynced { Step::Sync } else { Step::Exit };
        }
        Step::Sleep { until: sync_due.filter(|_| idle), wake_at: self.wake_at() }
    }

    /// An append that reaches this ring position makes a frame to be issued at once. Beside frames under way it has to be half as long as
    /// they are together: the device is kept busy by two or three, and the more there is to write, the fewer they are.
    fn wake_at(&self) -> u64 {
        match self.issued.len() {
            0 => 0,
            frames if frames >= self.frames_max() => u64::MAX,
            _ if self.shared.sync == SyncMode::Each => 0,
            _ => self.taken + ((self.taken - self.written) / 2).clamp(OVERLAP_SIZE, FRAME_SIZE_MAX),
        }
    }

    fn frames_max(&self) -> usize {
        if self.shared.sync == SyncMode::Each { FRAMES_MAX_EACH } else { FRAMES_MAX }
    }

    /// Sleeps until woken, a frame is done or the time has come.
    fn sleep(&mut self, until: Option<Instant>, wake_at: u64) -> Result<(), LogError> {
        let shared = &*self.shared;
        let ready = || shared.tail.ring.tail() >= wake_at && shared.tail.ring.has_untaken();
        let slept = if shared.signals.fall_asleep(wake_at, ready) { self.queue.wait(until) } else { Ok(()) };
        shared.signals.awake();
        Ok(slept?)
    }

    /// Seals the open batch and issues all that are sealed.
    fn issue(&mut self) -> Result<(), LogError> {
        self.open_since = None;
        let shared = Arc::clone(&self.shared);
        shared.tail.ring.seal(|tail| tail.next_multiple_of(BLOCK));
        while let Some(batch) = shared.tail.ring.take_sealed() {
            let batch = wait_filled(batch);
            // A record may lie in it that was not copied, because what has to be on the device before it is not.
            if let Some(closed) = shared.closed() {
                return Err(closed);
            }
            self.issue_batch(batch)?;
        }
        Ok(())
    }

    fn issue_batch(&mut self, mut batch: FilledBatch) -> Result<(), LogError> {
        let number = batch.start() / self.shared.segment_size();
        let segment = self.shared.recent_segment(number);
        let segment = segment.ok_or_else(|| LogError::Closed("a segment was lost from memory".into()))?;
        let base = number * self.shared.segment_size();
        if batch.end() > base + self.shared.segment_size() {
            return Err(LogError::Closed("a batch reaches beyond its segment".into()));
        }
        self.taken = batch.end();
        if batch.start() == base {
            self.complete()?;
        }
        let apart = self.shared.sync == SyncMode::Each;
        let mut head = FrameHead {
            seed: self.shared.file.seed,
            mode: self.shared.sync.code(),
            segment_id: segment.id,
            base,
            run: 0..0,
            filled: 0,
            horizon: self.horizon,
        };
        let frames = if apart { find_records(&batch)? } else { ordered_frames(&batch) };
        let runs = frames.into_iter().map(|data| {
            head.run = data.start / BLOCK * BLOCK..data.end.next_multiple_of(BLOCK);
            head.filled = data.end;
            head.finish(&mut batch, &self.shared.record_starts);
            (head.run.clone(), data.end)
        });
        let runs: Vec<_> = runs.collect();
        let alone = !apart && self.issued.is_empty() && batch.end() - batch.start() < ALONE_SIZE;
        let batch = Arc::new(batch);
        let file_start = self.shared.file.geometry().segment_offset(segment.slot);
        for (run, filled) in runs {
            let offset = file_start + (run.start - base);
            let blocks = u32::try_from((run.end - base) / BLOCK).unwrap_or(u32::MAX);
            self.prewrite(offset + (run.end - run.start), segment.slot)?;
            self.wait_for_turn()?;
            self.count(&run, filled);
            let (place, since) = ((segment.id, blocks), Instant::now());
            self.issued.push_back(Issued { run: run.clone(), offset, place, since, done: false });
            if alone {
                self.queue.submit_alone(batch.frame(run), offset, self.durability());
            } else {
                self.queue.submit(batch.frame(run), offset, self.durability());
            }
        }
        let is_half_full = self.taken - base > self.shared.segment_size() / 2;
        if is_half_full && self.prepared_behind.replace(number) != Some(number) {
            self.shared.make_room()?;
        }
        Ok(())
    }

    /// Takes in what is done.
    fn collect(&mut self) -> Result<(), LogError> {
        let mut any = false;
        while let Some(Written { frame, offset, result }) = self.queue.next_written() {
            result?;
            let run = frame.range();
            drop(frame);
            if self.prewriting.is_done(offset) {
                continue;
            }
            any = true;
            if let Some(issued) = self.issued.iter_mut().find(|issued| issued.offset == offset) {
                issued.done = true;
                self.shared.counters.flush_waits.add(issued.since.elapsed());
            }
            if self.shared.sync == SyncMode::Each {
                self.shared.waiters.written(run, &mut self.ready);
            }
        }
        if any {
            self.advance();
        }
        Ok(())
    }

    /// Takes in the gapless part of what is done.
    fn advance(&mut self) {
        while let Some(issued) = self.issued.pop_front_if(|issued| issued.done) {
            self.written = issued.run.end;
            self.written_place = issued.place;
        }
        if self.durability() == Durability::Durable && self.written > self.shared.waiters.horizon() {
            self.advance_horizon();
        }
        self.shared.room.announce();
    }

    /// Waits until another frame may be under way: one batch may be more frames than that.
    fn wait_for_turn(&mut self) -> Result<(), LogError> {
        while self.issued.len() >= self.frames_max() {
            self.queue.wait(None)?;
            self.collect()?;
        }
        Ok(())
    }

    /// Waits until everything issued is durable.
    fn complete(&mut self) -> Result<(), LogError> {
        while !self.issued.is_empty() {
            self.queue.wait(None)?;
            self.collect()?;
        }
        if self.written > self.shared.waiters.horizon() { self.sync() } else { Ok(()) }
    }

    fn durability(&self) -> Durability {
        match self.shared.sync {
            SyncMode::Periodic { .. } => Durability::AtNextSync,
            SyncMode::Batch | SyncMode::Group { .. } | SyncMode::Each => Durability::Durable,
        }
    }

    fn count(&self, run: &Range<u64>, filled: u64) {
        let counters = &self.shared.counters;
        counters.frames.fetch_add(1, Ordering::Relaxed);
        counters.written_bytes.fetch_add(run.end - run.start, Ordering::Relaxed);
        counters.padding_bytes.fetch_add(run.end.saturating_sub(filled), Ordering::Relaxed);
    }

    /// Syncs the file; what was written is durable then.
    fn sync(&mut self) -> Result<(), LogError> {
        let since = Instant::now();
        self.shared.file.file().sync_data()?;
        self.shared.counters.flush_waits.add(since.elapsed());
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.synced_at = Instant::now();
        self.advance_horizon();
        Ok(())
    }

    fn advance_horizon(&mut self) {
        self.horizon = self.written_place;
        self.shared.waiters.advance(self.written, &mut self.ready);
        self.shared.free_unused_if_waiting();
    }

    /// Makes sure that the file reaches to `end` with blocks that were written before: overwriting them later changes no
    /// metadata, so a durable write is one device write.
    fn prewrite(&mut self, end: u64, slot: u32) -> Result<(), LogError> {
        let segment_end = self.shared.file.geometry().segment_offset(slot + 1);
        self.prewriting.go_on(end, segment_end, &mut *self.queue);
        while !self.prewriting.reaches(end) {
            self.queue.wait(None)?;
            self.collect()?;
            self.prewriting.go_on(end, segment_end, &mut *self.queue);
        }
        Ok(())
    }
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

/// Waits for the last copies into a sealed batch: each takes no longer than a memcpy, unless its thread lost the processor.
fn wait_filled(mut batch: SealedBatch) -> FilledBatch {
    let mut tries = 0u32;
    loop {
        match batch.filled() {
            Ok(filled) => return filled,
            Err(again) => batch = again,
        }
        tries += 1;
        if tries < 100 { std::hint::spin_loop() } else { thread::yield_now() }
    }
}
