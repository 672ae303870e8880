//! Where superblocks, bookkeeping and segments lie, and how records step over the headers of blocks.

use blockio::BLOCK_SIZE;

use super::BLOCK_HEADER_SIZE;
use super::block::BLOCK_PAYLOAD_SIZE;

/// Superblock copies at the head of the file.
const SUPERBLOCKS: u64 = 2;

/// The layout of one log, which never changes after the log is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of each segment: a multiple of the block size.
    pub segment_size_bytes: u32,
    /// The most segments that the log may have; the file grows up to that.
    pub segments: u32,
}

impl Geometry {
    /// Blocks in a segment.
    pub fn blocks_per_segment(&self) -> u32 {
        self.segment_size_bytes / BLOCK_SIZE as u32
    }

    /// File offset of a superblock copy, 0 or 1.
    pub fn superblock_offset(copy: u64) -> u64 {
        debug_assert!(copy < SUPERBLOCKS);
        copy * BLOCK_SIZE as u64
    }

    /// File offset after the superblocks.
    pub fn bookkeeping_start() -> u64 {
        SUPERBLOCKS * BLOCK_SIZE as u64
    }

    /// File offset of a segment's bookkeeping block.
    pub fn bookkeeping_offset(&self, index: u32) -> u64 {
        Self::bookkeeping_start() + u64::from(index) * BLOCK_SIZE as u64
    }

    /// File offset of a segment; for `index == segments`, of the end of the whole log.
    pub fn segment_offset(&self, index: u32) -> u64 {
        self.bookkeeping_offset(self.segments) + u64::from(index) * u64::from(self.segment_size_bytes)
    }

    /// File offset of a block of a segment.
    pub fn block_offset(&self, index: u32, block: u32) -> u64 {
        debug_assert!(block <= self.blocks_per_segment(), "a block of the segment, or its end");
        self.segment_offset(index) + u64::from(block) * BLOCK_SIZE as u64
    }

    /// The largest record, overhead included: half a segment, and no more than one frame's blocks, which block headers
    /// count in 16 bits.
    pub fn record_size_max(&self) -> u64 {
        u64::from(self.segment_size_bytes / 2).min(u64::from(u16::MAX) * BLOCK_PAYLOAD_SIZE as u64)
    }
}

/// Where a record that is reserved at `position` may begin: never inside a block's header.
pub fn record_start(position: u64) -> u64 {
    if position.is_multiple_of(BLOCK_SIZE as u64) { position + BLOCK_HEADER_SIZE as u64 } else { position }
}

/// Where `length` bytes of payload that begin at `start` end, stepping over block headers. At the end of a block the
/// result is that end, not the start of the next payload.
pub fn advance(start: u64, length: u64) -> u64 {
    let block = BLOCK_SIZE as u64;
    let payload = BLOCK_PAYLOAD_SIZE as u64;
    let room = block - start % block;
    if length <= room {
        return start + length;
    }
    let rest = length - room;
    let whole = (rest - 1) / payload;
    debug_assert!(whole * payload < rest, "the last block has at least a byte");
    start + room + whole * block + BLOCK_HEADER_SIZE as u64 + (rest - whole * payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_agrees_with_walking_byte_by_byte() {
        for start in [40, 41, 100, 4095, 4096 + 40, 8191] {
            let mut position = start;
            for length in 1..9000 {
                position = record_start(position) + 1;
                assert_eq!(advance(start, length), position, "{start} + {length}");
            }
        }
    }

    /// In `each` a record is a whole frame.
    #[test]
    fn the_largest_record_fits_into_half_a_segment_and_into_a_frame() {
        for segment_size_bytes in [16 << 10, 1 << 20, 32 << 20, 506 << 20, 508 << 20, 1 << 30] {
            let geometry = Geometry { segment_size_bytes, segments: 2 };
            let end = advance(record_start(0), geometry.record_size_max());
            let blocks = end.div_ceil(BLOCK_SIZE as u64);
            assert!(
                u16::try_from(blocks).is_ok() && end <= u64::from(segment_size_bytes),
                "{segment_size_bytes}: {blocks} blocks"
            );
        }
        let largest = Geometry { segment_size_bytes: 1 << 30, segments: 2 }.record_size_max();
        assert_eq!(largest, 65535 * 4056);
    }

    #[test]
    fn parts_do_not_overlap() {
        let geometry = Geometry { segment_size_bytes: 65536, segments: 5 };
        assert_eq!(Geometry::superblock_offset(1), 4096);
        assert_eq!(geometry.bookkeeping_offset(0), 8192);
        assert_eq!(geometry.segment_offset(0), 8192 + 5 * 4096);
        assert_eq!(geometry.block_offset(1, 2), geometry.segment_offset(0) + 65536 + 8192);
        assert_eq!(geometry.blocks_per_segment(), 16);
    }
}
