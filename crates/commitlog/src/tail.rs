//! The log's tail: where the next record goes, and the step from one segment into the next. `tests/model.rs` takes both
//! in every order.

use std::ops::Range;
use std::sync::Arc;

use blockio::BLOCK_SIZE;

use crate::primitive::{AtomicU64, BlockRing, Ordering, Reservation, ReserveError, Seal};

/// See the module's text. Segment `n` of this run lies at ring positions from `n * segment size` on.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Records between reservation and device.
    pub ring: Arc<BlockRing>,
    segment_size: u64,
    /// Segments gone on in; reservations stay inside them.
    activated: AtomicU64,
}

impl Tail {
    /// In no segment yet.
    pub fn new(ring: BlockRing, segment_size: u64) -> Tail {
        Tail { ring: Arc::new(ring), segment_size, activated: AtomicU64::new(0) }
    }

    /// How many segments were gone on in.
    pub fn activated(&self) -> u64 {
        self.activated.load(Ordering::Acquire)
    }

    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Reserves the range that `place` chooses for the tail that it is given; refused unless that is inside one segment
    /// gone on in.
    pub fn reserve(&self, place: impl Fn(u64) -> Range<u64>) -> Result<Reservation<'_>, ReserveError> {
        self.ring.reserve(|tail| {
            let range = place(tail);
            let number = range.start / self.segment_size;
            let fits = range.end <= (number + 1) * self.segment_size && number < self.activated();
            fits.then_some(range)
        })
    }

    /// Goes on in the next segment; by one thread at a time, which knows that none has since the last that it saw.
    /// Answers what the seal of the one before found and where its records end; `None` if too many batches wait to
    /// be written, and nothing changed.
    pub fn go_on(&self) -> Option<(Seal, u64)> {
        let activated = self.activated();
        let start = activated * self.segment_size;
        let mut end = start;
        let seal = self.ring.seal(|tail| {
            end = tail.next_multiple_of(BLOCK_SIZE as u64);
            end.max(start)
        });
        if seal == Seal::TooMany {
            return None;
        }
        // Only now, with the tail at its start: a record that was let into it earlier would share a batch with the one
        // before, and whoever was refused before the seal would go on in the segment after it.
        self.activated.store(activated + 1, Ordering::Release);
        Some((seal, end))
    }
}
