//! How far the log is: which frames are under way, what of it is written, what is durable.
//!
//! One lock guards it. Whoever issues frames or takes in their ends holds it, and nobody does who waits for anything
//! long: mostly that is the writer's thread, at times one that [writes in its place](crate::lead).

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

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Course {
    /// Frames that were issued, without the gapless part that is written. In order.
    issued: VecDeque<Issued>,
    /// The ring position where the last batch that was issued ends.
    pub taken: u64,
    /// The ring position up to which blocks are written, gapless.
    pub written: u64,
    /// The same as blocks of a segment; (0, 0) at first.
    written_place: (i64, u32),
    /// The place of the durable horizon.
    horizon: (i64, u32),
    pub prewriting: Prewriting,
    /// The segment whose successor was asked for last.
    prepared_behind: Option<u64>,
    /// A batch that was sealed, and is for the writer's thread to issue.
    pub left: Option<SealedBatch>,
    /// The writer's thread sleeps, and has done so since before the first of what is under way.
    pub is_writer_idle: bool,
    /// A write failed that was not the writer thread's own.
    pub has_failed: bool,
    /// Scratch: who is woken after a frame.
    pub ready: Vec<Waker>,
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

/// A batch, and the use of a segment that it lies in.
pub(crate) struct Placed<B = FilledBatch> {
    pub batch: B,
    pub segment: Arc<SegmentUse>,
    /// The segment's number in this run, and the ring position where it begins.
    pub number: u64,
    pub base: u64,
}

impl Course {
    /// Of a file of this length.
    pub fn new(length: u64) -> Course {
        Course {
            issued: VecDeque::new(),
            taken: 0,
            written: 0,
            written_place: (0, 0),
            horizon: (0, 0),
            prewriting: Prewriting::new(length),
            prepared_behind: None,
            left: None,
            is_writer_idle: false,
            has_failed: false,
            ready: Vec::new(),
        }
    }

    /// Frames under way.
    pub fn under_way(&self) -> usize {
        self.issued.len()
    }

    /// A frame of these blocks is under way. Answers its place in the file.
    pub fn begin(&mut self, shared: &Shared, placed: &Placed<impl Sized>, run: Range<u64>, filled: u64) -> u64 {
        let blocks = u32::try_from((run.end - placed.base) / BLOCK).unwrap_or(u32::MAX);
        let (offset, place) = (placed.offset(shared, run.start), (placed.segment.id, blocks));
        count(shared, &run, filled);
        self.issued.push_back(Issued { run, offset, place, since: Instant::now(), done: false });
        offset
    }

    /// What the blocks of its frames say in common.
    pub fn frame_head(&self, shared: &Shared, placed: &Placed) -> FrameHead {
        FrameHead {
            seed: shared.file.seed,
            mode: shared.sync.code(),
            segment_id: placed.segment.id,
            base: placed.base,
            run: 0..0,
            filled: 0,
            horizon: self.horizon,
        }
    }

    /// The frame at this place of the file is written.
    pub fn ended(&mut self, shared: &Shared, offset: u64) {
        if let Some(issued) = self.issued.iter_mut().find(|issued| issued.offset == offset) {
            issued.done = true;
            shared.counters.flush_waits.add(issued.since.elapsed());
        }
    }

    /// Takes in the gapless part of what is done.
    pub fn advance(&mut self, shared: &Shared) {
        while let Some(issued) = self.issued.pop_front_if(|issued| issued.done) {
            self.written = issued.run.end;
            self.written_place = issued.place;
        }
        if !matches!(shared.sync, SyncMode::Periodic { .. }) && self.written > shared.waiters.horizon() {
            self.advance_horizon(shared);
        }
        shared.room.announce();
    }

    /// What is written is durable.
    pub fn advance_horizon(&mut self, shared: &Shared) {
        self.horizon = self.written_place;
        shared.waiters.advance(self.written, &mut self.ready);
        shared.free_unused_if_waiting();
    }

    /// Whether the segment is half full, so that the next one should be prepared, and nobody was asked to.
    pub fn asks_for_segment(&mut self, shared: &Shared, placed: &Placed<impl Sized>) -> bool {
        let is_half_full = self.taken - placed.base > shared.segment_size() / 2;
        is_half_full && self.prepared_behind.replace(placed.number) != Some(placed.number)
    }
}

impl Placed {
    /// Where the batch lies; of one that is about to be issued.
    pub fn new(shared: &Shared, batch: FilledBatch) -> Result<Placed, LogError> {
        let number = batch.start() / shared.segment_size();
        let segment = shared.recent_segment(number);
        let segment = segment.ok_or_else(|| LogError::Closed("a segment was lost from memory".into()))?;
        let base = number * shared.segment_size();
        if batch.end() > base + shared.segment_size() {
            return Err(LogError::Closed("a batch reaches beyond its segment".into()));
        }
        Ok(Placed { batch, segment, number, base })
    }

    /// The batch finished, to be written in parts.
    pub fn share(self) -> Placed<Arc<FilledBatch>> {
        Placed { batch: Arc::new(self.batch), segment: self.segment, number: self.number, base: self.base }
    }
}

impl<B> Placed<B> {
    /// The place in the file of a ring position.
    pub fn offset(&self, shared: &Shared, position: u64) -> u64 {
        shared.file.geometry().segment_offset(self.segment.slot) + (position - self.base)
    }
}

fn count(shared: &Shared, run: &Range<u64>, filled: u64) {
    let counters = &shared.counters;
    counters.frames.fetch_add(1, Ordering::Relaxed);
    counters.written_bytes.fetch_add(run.end - run.start, Ordering::Relaxed);
    counters.padding_bytes.fetch_add(run.end.saturating_sub(filled), Ordering::Relaxed);
}
