//! The writer thread: seals what was appended, finishes its blocks, writes them, and tells those who wait.
//!
//! It is the only one to write blocks of segments, one frame at a time and in order, so that everything below the durable
//! horizon is gapless. The first frame of a segment is issued only when the segment before it is durable to its end, and says so:
//! therefore recovery can judge each segment by the horizons that name it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use blockio::{AlignedBuffer, BLOCK_SIZE, Durability, FilledBatch, SealedBatch};

use crate::file::CHUNK_SIZE;
use crate::format::{
    BLOCK_HEADER_SIZE, BlockHeader, NO_RECORD_STARTS, RecordHead, advance, record_start, write_block_header,
};
use crate::segment::SegmentUse;
use crate::shared::Shared;
use crate::{LogError, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// The longest device write.
const FRAME_SIZE_MAX: u64 = 1 << 20;
/// In `periodic` mode: how long a record may stay in our memory before the operating system has it.
const PERIODIC_DELAY: Duration = Duration::from_millis(10);

/// The thread's own state.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Since when the oldest record waits that is in no batch.
    open_since: Option<Instant>,
    /// When the file was last synced (`periodic`).
    synced_at: Instant,
    /// The ring position up to which blocks were handed to the disk.
    written: u64,
    /// The place of the durable horizon, as blocks of a segment; (0, 0) at first.
    horizon: (i64, u32),
    /// The same of what is written.
    written_place: (i64, u32),
    /// The length of the file: all before it is prewritten.
    prewritten: u64,
    zeros: AlignedBuffer,
    /// Scratch: who is woken after a frame.
    ready: Vec<Waker>,
    /// Scratch: where records start.
    starts: Vec<u64>,
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
    /// Sleep; `for_append`: an append must wake us.
    Sleep {
        until: Option<Instant>,
        for_append: bool,
    },
    Exit,
}

impl Writer {
    pub fn new(shared: Arc<Shared>) -> Result<Writer, LogError> {
        let prewritten = shared.file.file().len()? / BLOCK * BLOCK;
        Ok(Writer {
            shared,
            open_since: None,
            synced_at: Instant::now(),
            written: 0,
            horizon: (0, 0),
            written_place: (0, 0),
            prewritten,
            zeros: AlignedBuffer::new(CHUNK_SIZE),
            ready: Vec::new(),
            starts: Vec::new(),
        })
    }

    /// Runs until the log is closed.
    pub fn run(mut self) {
        let _guard = FailOnPanic(Arc::clone(&self.shared));
        loop {
            let result = match self.next_step() {
                Step::Issue => self.issue(),
                Step::Sync => self.sync(),
                Step::Sleep { until, for_append } => {
                    self.sleep(until, for_append);
                    Ok(())
                }
                Step::Exit => return,
            };
            if let Err(error) = result {
                self.shared.fail(&error.to_string());
                return;
            }
        }
    }

    fn next_step(&mut self) -> Step {
        let signals = &self.shared.signals;
        let urgent = signals.urgent.swap(false, Ordering::AcqRel);
        let stopping = signals.stopping.load(Ordering::Acquire);
        let now = Instant::now();
        let unsynced = self.written > self.shared.waiters.horizon();
        let sync_due = match self.shared.sync {
            SyncMode::Periodic { period } if unsynced => Some(self.synced_at + period),
            _ => None,
        };
        let sync_wanted = signals.sync_wanted.load(Ordering::Acquire) > self.shared.waiters.horizon();
        if unsynced && (sync_due.is_some_and(|due| due <= now) || sync_wanted && !self.shared.ring.has_untaken()) {
            return Step::Sync;
        }
        if self.shared.ring.has_untaken() {
            let delay = match self.shared.sync {
                SyncMode::Batch => Duration::ZERO,
                SyncMode::Group { window } => window,
                SyncMode::Periodic { period } => PERIODIC_DELAY.min(period),
            };
            let due = *self.open_since.get_or_insert(now) + delay;
            if due <= now || urgent || stopping || sync_wanted {
                return Step::Issue;
            }
            return Step::Sleep { until: Some(sync_due.map_or(due, |sync| sync.min(due))), for_append: false };
        }
        if stopping {
            return if unsynced { Step::Sync } else { Step::Exit };
        }
        Step::Sleep { until: sync_due, for_append: true }
    }

    /// Sleeps until unparked or the time has come. With `for_append`, appends see the flag and unpark us; one that came before
    /// the flag is seen here.
    fn sleep(&self, until: Option<Instant>, for_append: bool) {
        let signals = &self.shared.signals;
        if for_append {
            signals.idle.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.shared.ring.has_untaken() || signals.stopping.load(Ordering::Relaxed) {
                signals.idle.store(false, Ordering::Relaxed);
                return;
            }
        }
        if !signals.urgent.load(Ordering::Acquire) {
            match until {
                Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
        signals.idle.store(false, Ordering::Relaxed);
    }

    /// Seals the open batch and writes out all that are sealed.
    fn issue(&mut self) -> Result<(), LogError> {
        self.open_since = None;
        let shared = Arc::clone(&self.shared);
        shared.ring.seal(|tail| tail.next_multiple_of(BLOCK));
        while let Some(batch) = shared.ring.take_sealed() {
            self.write_batch(wait_filled(batch))?;
        }
        Ok(())
    }

    fn write_batch(&mut self, mut batch: FilledBatch<'_>) -> Result<(), LogError> {
        let number = batch.start() / self.shared.segment_size();
        let segment = self.shared.recent_segment(number).ok_or_else(|| closed("a segment was lost from memory"))?;
        let base = number * self.shared.segment_size();
        if batch.start() == base && self.written > self.shared.waiters.horizon() {
            self.sync()?;
        }
        let block_of = |position: u64| (position - base) / BLOCK;
        let mut starts = std::mem::take(&mut self.starts);
        find_record_starts(&batch, &mut starts)?;
        pad(&mut batch);
        let file_start = self.shared.file.geometry().segment_offset(segment.slot);
        self.prewrite(file_start + (batch.end() - base), segment.slot)?;
        let mut at = batch.start();
        while at < batch.end() {
            let run = batch.run(at, FRAME_SIZE_MAX);
            let frame = Frame {
                seed: self.shared.file.seed,
                mode: self.shared.sync.code(),
                segment: &segment,
                horizon: self.horizon,
            };
            frame.finish(&mut batch, run.clone(), base, &starts);
            let durability = self.durability();
            self.shared.file.file().write_blocks(batch.blocks(run.clone()), file_start + (at - base), durability)?;
            self.written = run.end;
            self.written_place = (segment.id, u32::try_from(block_of(run.end)).unwrap_or(u32::MAX));
            self.count(&run, batch.filled());
            if durability == Durability::Durable {
                self.advance_horizon();
            }
            at = run.end;
        }
        self.starts = starts;
        batch.release();
        self.shared.room.announce();
        Ok(())
    }

    fn durability(&self) -> Durability {
        match self.shared.sync {
            SyncMode::Periodic { .. } => Durability::AtNextSync,
            SyncMode::Batch | SyncMode::Group { .. } => Durability::Durable,
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
        self.shared.file.file().sync_data()?;
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
    /// metadata, so a durable write is one device write. Done in steps at a segment's first use, a step being about 1 ms.
    fn prewrite(&mut self, end: u64, slot: u32) -> Result<(), LogError> {
        if end <= self.prewritten {
            return Ok(());
        }
        let segment_end = self.shared.file.geometry().segment_offset(slot + 1);
        let target = (end + CHUNK_SIZE as u64 - BLOCK).min(segment_end);
        while self.prewritten < target {
            let length = (target - self.prewritten).min(CHUNK_SIZE as u64);
            let blocks = self.zeros.blocks(0..length as usize);
            self.shared.file.file().write_blocks(blocks, self.prewritten, Durability::AtNextSync)?;
            self.prewritten += length;
        }
        Ok(self.shared.file.file().sync_data()?)
    }
}

fn closed(reason: &str) -> LogError {
    LogError::Closed(reason.into())
}

/// Waits for the last copies into a sealed batch: each takes no longer than a memcpy, unless its thread lost the processor.
fn wait_filled(mut batch: SealedBatch<'_>) -> FilledBatch<'_> {
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

/// The ring positions of a batch's first records in each block that has one, in order.
fn find_record_starts(batch: &FilledBatch<'_>, starts: &mut Vec<u64>) -> Result<(), LogError> {
    starts.clear();
    let mut last_block = u64::MAX;
    let mut at = batch.start();
    while at < batch.filled() {
        let start = record_start(at);
        if start / BLOCK != last_block {
            last_block = start / BLOCK;
            starts.push(start);
        }
        let head = RecordHead::decode(&head_at(batch, start));
        let head = head.map_err(|fault| closed(&format!("a record was damaged in memory: {fault}")))?;
        at = advance(start, head.record_size());
    }
    Ok(())
}

/// The bytes of a head, which may lie across two blocks.
fn head_at(batch: &FilledBatch<'_>, start: u64) -> [u8; RecordHead::SIZE] {
    let mut head = [0; RecordHead::SIZE];
    let block = start / BLOCK * BLOCK;
    let bytes = batch.blocks(block..block + BLOCK).bytes();
    let in_first = bytes.get((start - block) as usize..).unwrap_or_default();
    let n = in_first.len().min(head.len());
    head[..n].copy_from_slice(&in_first[..n]);
    if n < head.len() {
        let bytes = batch.blocks(block + BLOCK..block + 2 * BLOCK).bytes();
        let rest = RecordHead::SIZE - n;
        head[n..].copy_from_slice(&bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + rest]);
    }
    head
}

fn pad(batch: &mut FilledBatch<'_>) {
    let padding = batch.filled()..batch.end();
    if !padding.is_empty() {
        batch.bytes_mut(padding).fill(0);
    }
}

/// What the blocks of one device write have in common.
struct Frame<'a> {
    seed: u32,
    mode: u8,
    segment: &'a SegmentUse,
    horizon: (i64, u32),
}

impl Frame<'_> {
    /// Writes the headers of the blocks of `run`.
    fn finish(&self, batch: &mut FilledBatch<'_>, run: Range<u64>, base: u64, starts: &[u64]) {
        let blocks = (run.end - run.start) / BLOCK;
        let filled = batch.filled();
        let mut starts =
            starts.get(starts.partition_point(|start| *start < run.start)..).unwrap_or_default().iter().peekable();
        for place in 0..blocks {
            let block = run.start + place * BLOCK;
            let payload = block + BLOCK_HEADER_SIZE as u64;
            let first_record = starts
                .next_if(|start| **start < block + BLOCK)
                .map_or(NO_RECORD_STARTS, |start| (start - payload) as u16);
            let header = BlockHeader {
                mode: self.mode,
                used: (filled.min(block + BLOCK) - payload) as u16,
                segment_id: self.segment.id,
                index: ((block - base) / BLOCK) as u32,
                frame_index: place as u16,
                frame_blocks: blocks as u16,
                horizon_segment: self.horizon.0,
                horizon_blocks: self.horizon.1,
                first_record,
            };
            write_block_header(&header, self.seed, batch.bytes_mut(block..block + BLOCK));
        }
    }
}
