//! Prewriting a segment's blocks in the background, a little ahead of the records that will overwrite them.

use std::ops::Range;
use std::sync::Arc;

use blockio::{BLOCK_SIZE, BlockQueue, BlockRing, Durability, FilledBatch};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// How many bytes one step prewrites.
const STEP_SIZE: u64 = 512 << 10;
/// How far prewriting runs ahead of the log, at most. It never goes beyond the segment.
const AHEAD_SIZE: u64 = 4 << 20;

const _: () = assert!(STEP_SIZE.is_multiple_of(BLOCK) && STEP_SIZE <= AHEAD_SIZE);

/// How far the file is prewritten, and the step in flight.
#[derive(Debug)]
pub(crate) struct Prewriting {
    /// A step's length of zeros, allocated when something first has to be prewritten.
    zeros: Option<Arc<FilledBatch>>,
    done: u64,
    in_flight: Option<Range<u64>>,
}

impl Prewriting {
    /// Starts with a file of this length, all of which was written before.
    pub fn new(length: u64) -> Prewriting {
        Prewriting { zeros: None, done: length / BLOCK * BLOCK, in_flight: None }
    }

    /// Whether blocks up to `end` are prewritten.
    pub fn reaches(&self, end: u64) -> bool {
        end <= self.done
    }

    /// Whether a log that has reached `end` must wait for a step, or should begin one.
    pub fn is_due(&self, end: u64, segment_end: u64) -> bool {
        !self.reaches(end) || self.next_step(end, segment_end).is_some()
    }

    /// The step to begin, if none is in flight and the log, which has reached `end`, is close.
    fn next_step(&self, end: u64, segment_end: u64) -> Option<Range<u64>> {
        // Only whole steps: each of them grows the file, which costs a journal commit, and so do concurrent writes.
        let step = self.done..(self.done + STEP_SIZE).min(segment_end);
        (self.in_flight.is_none() && !step.is_empty() && step.end <= end + AHEAD_SIZE).then_some(step)
    }

    /// Begins the next step if it is due.
    pub fn begin_next(&mut self, end: u64, segment_end: u64, queue: &mut dyn BlockQueue) {
        let Some(step) = self.next_step(end, segment_end) else { return };
        // A segment may begin after blocks that were never needed. They are written too, so that the file has no
        // holes.
        let frame = self.zeros.get_or_insert_with(zeros).frame(0..step.end - step.start);
        debug_assert!(step.start == self.done && self.in_flight.is_none(), "steps follow one another, one at a time");
        debug_assert!(step.start % BLOCK == 0 && step.end % BLOCK == 0, "a step is whole blocks");
        queue.submit(frame, step.start, Durability::Durable);
        self.in_flight = Some(step);
    }

    /// Records that a write at `offset` is complete. Returns whether it was a prewriting step.
    pub fn is_done(&mut self, offset: u64) -> bool {
        match self.in_flight.take_if(|step| step.start == offset) {
            Some(step) => {
                debug_assert!(self.done <= step.start, "prewriting only moves forward");
                self.done = step.end;
                true
            }
            None => false,
        }
    }
}

fn zeros() -> Arc<FilledBatch> {
    let ring = Arc::new(BlockRing::new(STEP_SIZE as usize));
    // A new ring has room for a batch as long as itself, and its memory is zero.
    drop(ring.reserve(|start| Some(start..start + STEP_SIZE)));
    ring.seal(|end| end);
    let batch = ring.take_sealed().and_then(|batch| batch.filled().ok());
    Arc::new(batch.expect("the batch that was just filled"))
}
