//! Where the first record starts in each block in memory. A thread that copies a record stores this, and the thread
//! that finishes the block reads it. The latter then need not read the records, which are in another processor's cache.

use std::sync::atomic::{AtomicU16, Ordering};

use blockio::BLOCK_SIZE;

use crate::format::{BLOCK_HEADER_SIZE, NO_RECORD_STARTS};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// One payload offset for each block of the ring.
#[derive(Debug)]
pub(crate) struct RecordStarts(Box<[AtomicU16]>);

impl RecordStarts {
    /// For a ring of this many bytes.
    pub fn new(capacity: u64) -> RecordStarts {
        RecordStarts((0..capacity / BLOCK).map(|_| AtomicU16::new(NO_RECORD_STARTS)).collect())
    }

    /// Stores that a record starts at a ring position. Call it before the record's reservation is done, which orders
    /// the store before the block is finished.
    pub fn note(&self, start: u64) {
        debug_assert!(start % BLOCK >= BLOCK_HEADER_SIZE as u64, "a record does not start in a block's header");
        let offset = (start % BLOCK) as u16 - BLOCK_HEADER_SIZE as u16;
        let first = self.of(start);
        if offset < first.load(Ordering::Relaxed) {
            first.fetch_min(offset, Ordering::Relaxed);
        }
    }

    /// Takes the offset of the first record in the payload of the block at a ring position. The entry is cleared,
    /// because each block is written once.
    pub fn take(&self, block: u64) -> u16 {
        debug_assert!(block.is_multiple_of(BLOCK), "the start of a block");
        let first = self.of(block);
        let offset = first.load(Ordering::Relaxed);
        debug_assert!(offset == NO_RECORD_STARTS || u64::from(offset) < BLOCK - BLOCK_HEADER_SIZE as u64);
        first.store(NO_RECORD_STARTS, Ordering::Relaxed);
        offset
    }

    fn of(&self, position: u64) -> &AtomicU16 {
        &self.0[(position / BLOCK % self.0.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_of_a_block_does_not_depend_on_the_order_of_appends() {
        let starts = RecordStarts::new(4 * BLOCK);
        starts.note(BLOCK + 700);
        starts.note(BLOCK + 40);
        starts.note(BLOCK + 300);
        starts.note(2 * BLOCK + 4095);
        assert_eq!([0, 1, 2].map(|block| starts.take(block * BLOCK)), [NO_RECORD_STARTS, 0, 4055]);
        // The same memory is used again.
        assert_eq!(starts.take(5 * BLOCK), NO_RECORD_STARTS);
        starts.note(5 * BLOCK + 100);
        assert_eq!(starts.take(5 * BLOCK), 60);
    }
}
