//! The log's tail: where the next record goes, and the step from one segment to the next. `tests/model.rs` checks both
//! in every order of events.

use std::ops::Range;
use std::sync::Arc;

use blockio::BLOCK_SIZE;

use crate::primitive::{AtomicU64, BlockRing, Ordering, Reservation, ReserveError, Seal};

/// The log's tail. Segment `n` of this run lies at ring positions from `n * segment size` on.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The records between reservation and device.
    pub ring: Arc<BlockRing>,
    segment_size: u64,
    /// The number of segments activated so far; reservations stay inside them.
    activated: AtomicU64,
}

impl Tail {
    /// A tail before the first segment.
    pub fn new(ring: BlockRing, segment_size: u64) -> Tail {
        assert!(segment_size > 0 && segment_size.is_multiple_of(BLOCK_SIZE as u64), "segments are whole blocks");
        Tail { ring: Arc::new(ring), segment_size, activated: AtomicU64::new(0) }
    }

    /// The number of segments activated so far.
    pub fn activated(&self) -> u64 {
        self.activated.load(Ordering::Acquire)
    }

    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Reserves the range that `place` chooses for a given tail. Refuses it unless it lies inside one activated
    /// segment.
    pub fn reserve(&self, place: impl Fn(u64) -> Range<u64>) -> Result<Reservation<'_>, ReserveError> {
        self.ring.reserve(|tail| {
            let range = place(tail);
            debug_assert!(tail <= range.start && range.start < range.end, "a record is placed behind the tail");
            let number = range.start / self.segment_size;
            let fits = range.end <= (number + 1) * self.segment_size && number < self.activated();
            fits.then_some(range)
        })
    }

    /// Moves on to the next segment. One thread calls this at a time, and it knows that no segment was activated since
    /// the last one it saw. Returns what sealing the previous segment found and where its records end; `None`, with
    /// nothing changed, if too many batches wait to be written.
    pub fn next_segment(&self) -> Option<(Seal, u64)> {
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
        debug_assert!(end <= start, "records stay inside activated segments");
        // The segment is activated only now that the tail is at its start. A record admitted earlier would share a
        // batch with the previous segment, and a thread that was refused before the seal would skip a segment.
        self.activated.store(activated + 1, Ordering::Release);
        Some((seal, end))
    }
}
