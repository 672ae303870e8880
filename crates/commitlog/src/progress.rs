//! The log's progress: which frames are in flight, which blocks are written, and what is durable.
//!
//! One lock guards this state. A thread takes it to issue frames or to record that frames have completed, and never
//! holds it across a long wait. That thread is usually the log's writer, and sometimes an appender that [writes in its
//! place](crate::lead).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

use blockio::BLOCK_SIZE;

use crate::frame::FrameHead;
use crate::prewrite::Prewriting;
use crate::primitive::{FilledBatch, SealedBatch};
use crate::segment::SegmentUse;
use crate::shared::Shared;
use crate::{LogError, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The state that the module's text describes.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Frames that were issued and are not yet part of the gapless written prefix, in order of issue.
    issued: VecDeque<IssuedFrame>,
    /// The ring position where the last issued batch ends.
    pub taken: u64,
    /// The ring position up to which all blocks are written, without a gap.
    pub written: u64,
    /// The same position as a segment id and a count of its blocks; (0, 0) at first.
    written_place: (i64, u32),
    /// The durable horizon as a segment id and a count of its blocks.
    horizon: (i64, u32),
    pub prewriting: Prewriting,
    /// The number of the last segment whose successor was requested.
    prepared_after: Option<u64>,
    /// A sealed batch that the writer thread has to issue.
    pub left: Option<SealedBatch>,
    /// The writer thread is asleep, and fell asleep before the first frame in flight was issued.
    pub is_writer_idle: bool,
    /// A write failed that another thread made in the writer's place.
    pub has_failed: bool,
    /// Scratch space: the wakers to call after a frame completes.
    pub ready: Vec<Waker>,
}

/// A frame in flight, or one that is complete while an earlier frame is not.
#[derive(Debug)]
struct IssuedFrame {
    run: Range<u64>,
    offset: u64,
    /// The frame's end as a segment id and a count of blocks.
    place: (i64, u32),
    since: Instant,
    done: bool,
}

/// A batch, and the use of the segment that it lies in.
pub(crate) struct LocatedBatch<B = FilledBatch> {
    pub batch: B,
    pub segment: Arc<SegmentUse>,
    /// The segment's number in this run, and the ring position where the segment begins.
    pub number: u64,
    pub base: u64,
}

impl Progress {
    /// The progress of a log whose file has this length, in bytes.
    pub fn new(length: u64) -> Progress {
        Progress {
            issued: VecDeque::new(),
            taken: 0,
            written: 0,
            written_place: (0, 0),
            horizon: (0, 0),
            prewriting: Prewriting::new(length),
            prepared_after: None,
            left: None,
            is_writer_idle: false,
            has_failed: false,
            ready: Vec::new(),
        }
    }

    /// The number of frames in flight.
    pub fn in_flight(&self) -> usize {
        self.issued.len()
    }

    /// Records that a frame of these blocks is in flight. Returns the frame's offset in the file.
    pub fn begin(&mut self, shared: &Shared, located: &LocatedBatch<impl Sized>, run: Range<u64>, filled: u64) -> u64 {
        debug_assert!(run.start < run.end, "a frame has blocks");
        debug_assert!(run.start.is_multiple_of(BLOCK) && run.end.is_multiple_of(BLOCK), "a frame is whole blocks");
        debug_assert!(located.base <= run.start && run.start < filled, "a frame has a record, in its segment");
        debug_assert!(self.issued.back().is_none_or(|last| last.run.end <= run.start), "frames are issued in order");
        debug_assert!(self.written <= run.start && run.end <= self.taken, "only a taken, unwritten run is issued");
        let blocks = u32::try_from((run.end - located.base) / BLOCK).unwrap_or(u32::MAX);
        let (offset, place) = (located.offset(shared, run.start), (located.segment.id, blocks));
        count(shared, &run, filled);
        self.issued.push_back(IssuedFrame { run, offset, place, since: Instant::now(), done: false });
        offset
    }

    /// The header fields that all blocks of the batch's frames share.
    pub fn frame_head(&self, shared: &Shared, located: &LocatedBatch) -> FrameHead {
        FrameHead {
            seed: shared.file.seed,
            mode: shared.sync.code(),
            segment_id: located.segment.id,
            base: located.base,
            run: 0..0,
            filled: 0,
            horizon: self.horizon,
        }
    }

    /// Records that the frame at this file offset is written.
    pub fn ended(&mut self, shared: &Shared, offset: u64) {
        if let Some(issued) = self.issued.iter_mut().find(|issued| issued.offset == offset) {
            debug_assert!(!issued.done, "a frame completes once");
            issued.done = true;
            shared.counters.flush_waits.add(issued.since.elapsed());
        }
    }

    /// Extends the gapless written prefix over all frames that are complete.
    pub fn advance(&mut self, shared: &Shared) {
        while let Some(issued) = self.issued.pop_front_if(|issued| issued.done) {
            debug_assert!(self.written <= issued.run.start, "the written prefix only grows");
            self.written = issued.run.end;
            self.written_place = issued.place;
        }
        debug_assert!(self.written <= self.taken, "nothing is written before it is taken");
        debug_assert!(self.issued.front().is_none_or(|issued| !issued.done), "the prefix ends at an incomplete frame");
        if !matches!(shared.sync, SyncMode::Periodic { .. }) && self.written > shared.waiters.horizon() {
            self.advance_horizon(shared);
        }
        shared.space.announce();
    }

    /// Makes everything that is written durable, and wakes its waiters.
    pub fn advance_horizon(&mut self, shared: &Shared) {
        debug_assert!(self.horizon <= self.written_place, "the horizon only moves forward");
        self.horizon = self.written_place;
        shared.waiters.advance(self.written, &mut self.ready);
        shared.free_unused_if_waiting();
    }

    /// Returns true once for each segment, when it is half full: the caller should then have the next one prepared.
    pub fn asks_for_segment(&mut self, shared: &Shared, located: &LocatedBatch<impl Sized>) -> bool {
        debug_assert!(located.base <= self.taken, "the batch was taken");
        let is_half_full = self.taken - located.base > shared.segment_size() / 2;
        is_half_full && self.prepared_after.replace(located.number) != Some(located.number)
    }
}

impl LocatedBatch {
    /// Finds the segment of a batch that is about to be issued.
    pub fn new(shared: &Shared, batch: FilledBatch) -> Result<LocatedBatch, LogError> {
        let number = batch.start() / shared.segment_size();
        let segment = shared.recent_segment(number);
        let segment = segment.ok_or_else(|| LogError::Closed("a segment was lost from memory".into()))?;
        let base = number * shared.segment_size();
        if batch.end() > base + shared.segment_size() {
            return Err(LogError::Closed("a batch reaches beyond its segment".into()));
        }
        Ok(LocatedBatch { batch, segment, number, base })
    }

    /// Shares the finished batch, so that it can be written in parts.
    pub fn share(self) -> LocatedBatch<Arc<FilledBatch>> {
        LocatedBatch { batch: Arc::new(self.batch), segment: self.segment, number: self.number, base: self.base }
    }
}

impl<B> LocatedBatch<B> {
    /// The offset in the file of a ring position.
    pub fn offset(&self, shared: &Shared, position: u64) -> u64 {
        debug_assert!(self.base <= position && position <= self.base + shared.segment_size(), "inside the segment");
        shared.file.geometry().segment_offset(self.segment.slot) + (position - self.base)
    }
}

fn count(shared: &Shared, run: &Range<u64>, filled: u64) {
    let counters = &shared.counters;
    counters.frames.fetch_add(1, Ordering::Relaxed);
    counters.written_bytes.fetch_add(run.end - run.start, Ordering::Relaxed);
    counters.padding_bytes.fetch_add(run.end.saturating_sub(filled), Ordering::Relaxed);
}
