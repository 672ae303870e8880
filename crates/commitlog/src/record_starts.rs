//! Where the first record starts in each block that is in memory: told by whoever copies a record, read by whoever
//! finishes the block, who so need not look at the records themselves, which lie in another processor's cache.

use std::sync::atomic::{AtomicU16, Ordering};

use blockio::BLOCK_SIZE;

use crate::format::{BLOCK_HEADER_SIZE, NO_RECORD_STARTS};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// One offset in the payload for each block of the ring.
#[derive(Debug)]
pub(crate) struct RecordStarts(Box<[AtomicU16]>);

impl RecordStarts {
    /// For a ring of so many bytes.
    pub fn new(capacity: u64) -> RecordStarts {
        RecordStarts((0..capacity / BLOCK).map(|_| AtomicU16::new(NO_RECORD_STARTS)).collect())
    }

    /// A record starts at a ring position. To be told before its reservation is done: that orders it before the block
    /// is finished.
    pub fn note(&self, start: u64) {
        let offset = (start % BLOCK) as u16 - BLOCK_HEADER_SIZE as u16;
        let first = self.of(start);
        if offset < first.load(Ordering::Relaxed) {
            first.fetch_min(offset, Ordering::Relaxed);
        }
    }

    /// Where the first record starts in the payload of the block at a ring position; forgets it, because the block is
    /// written once.
    pub fn take(&self, block: u64) -> u16 {
        let first = self.of(block);
        let offset = first.load(Ordering::Relaxed);
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
    fn the_first_record_of_a_block_is_known_whoever_comes_first() {
        let starts = RecordStarts::new(4 * BLOCK);
        starts.note(BLOCK + 700);
        starts.note(BLOCK + 40);
        starts.note(BLOCK + 300);
        starts.note(2 * BLOCK + 4095);
        assert_eq!([0, 1, 2].map(|block| starts.take(block * BLOCK)), [NO_RECORD_STARTS, 0, 4055]);
        // The same memory, used again.
        assert_eq!(starts.take(5 * BLOCK), NO_RECORD_STARTS);
        starts.note(5 * BLOCK + 100);
        assert_eq!(starts.take(5 * BLOCK), 60);
    }
}
