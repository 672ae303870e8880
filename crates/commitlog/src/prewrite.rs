//! Writing a segment's blocks once before records come into them, in the background, a little ahead of the log.

use std::ops::Range;
use std::sync::Arc;

use blockio::{BLOCK_SIZE, BlockQueue, BlockRing, Durability, FilledBatch};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// How much is prewritten at once.
const STEP_SIZE: u64 = 512 << 10;
/// How far ahead of the log. At most: not beyond the segment.
const AHEAD_SIZE: u64 = 4 << 20;

/// How far the file is prewritten, and the step under way.
#[derive(Debug)]
pub(crate) struct Prewriting {
    /// Zeros, as long as a step; there once something has to be prewritten.
    zeros: Option<Arc<FilledBatch>>,
    done: u64,
    under_way: Option<Range<u64>>,
}

impl Prewriting {
    /// All of a file of this length was written before.
    pub fn new(length: u64) -> Prewriting {
        Prewriting { zeros: None, done: length / BLOCK * BLOCK, under_way: None }
    }

    /// Whether blocks up to `end` are prewritten.
    pub fn reaches(&self, end: u64) -> bool {
        end <= self.done
    }

    /// Whether a log that is at `end` has to wait for a step, or should begin one.
    pub fn is_due(&self, end: u64, segment_end: u64) -> bool {
        !self.reaches(end) || self.next_step(end, segment_end).is_some()
    }

    /// The step to begin if none is under way and the log, which is at `end`, comes near.
    fn next_step(&self, end: u64, segment_end: u64) -> Option<Range<u64>> {
        // Whole steps: each grows the file, which costs a commit of its journal, and so do the writes beside it.
        let step = self.done..(self.done + STEP_SIZE).min(segment_end);
        (self.under_way.is_none() && !step.is_empty() && step.end <= end + AHEAD_SIZE).then_some(step)
    }

    /// Begins that step.
    pub fn go_on(&mut self, end: u64, segment_end: u64, queue: &mut dyn BlockQueue) {
        let Some(step) = self.next_step(end, segment_end) else { return };
        // A segment may begin behind blocks that were never needed: they are written too, because a file has no holes
        // here.
        let frame = self.zeros.get_or_insert_with(zeros).frame(0..step.end - step.start);
        queue.submit(frame, step.start, Durability::Durable);
        self.under_way = Some(step);
    }

    /// A write at `offset` is done; answers whether it was ours.
    pub fn is_done(&mut self, offset: u64) -> bool {
        match self.under_way.take_if(|step| step.start == offset) {
            Some(step) => {
                self.done = step.end;
                true
            }
            None => false,
        }
    }
}

fn zeros() -> Arc<FilledBatch> {
    let ring = Arc::new(BlockRing::new(STEP_SIZE as usize));
    // A fresh ring has room for a batch as long as itself, and its memory is zeros.
    drop(ring.reserve(|start| Some(start..start + STEP_SIZE)));
    ring.seal(|end| end);
    let batch = ring.take_sealed().and_then(|batch| batch.filled().ok());
    Arc::new(batch.expect("the batch that was just filled"))
}
