//! A block of a segment: a self-describing header, and payload.

use blockio::BLOCK_SIZE;

use super::{array, put};

/// Bytes of a block before its payload.
pub const BLOCK_HEADER_SIZE: usize = 40;
/// Bytes of records in a full block.
pub const BLOCK_PAYLOAD_SIZE: usize = BLOCK_SIZE - BLOCK_HEADER_SIZE;
/// Value of `first_record` in a block where no record starts.
pub const NO_RECORD_STARTS: u16 = u16::MAX;

/// The version of the block's layout.
const VERSION: u8 = 1;

const _: () = assert!(BLOCK_HEADER_SIZE == 38 + 2, "the fields of the header, and two unused bytes");
const _: () = assert!(BLOCK_PAYLOAD_SIZE < NO_RECORD_STARTS as usize, "every offset differs from the mark for none");

/// The fields of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The code of the sync mode in which the block was written (see FORMAT.md).
    pub mode: u8,
    /// Bytes of payload in use; the rest is padding.
    pub used: u16,
    /// The id of the segment's use.
    pub segment_id: i64,
    /// The block's index in the segment.
    pub index: u32,
    /// The block's index in its frame, which is the device write that carried it.
    pub frame_index: u16,
    /// The number of blocks in the frame.
    pub frame_blocks: u16,
    /// The segment that contained the durable horizon when the frame was issued; 0 for none.
    pub horizon_segment: i64,
    /// The number of that segment's blocks, from its first, that were durable then.
    pub horizon_blocks: u32,
    /// The offset in the payload of the first record that starts in the block, or [`NO_RECORD_STARTS`].
    pub first_record: u16,
}

/// The state of a block, for a reader that expects block `index` of segment `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The expected block, sound.
    Live(BlockHeader),
    /// Zeros: prewritten and never used, or past the end of the file.
    Blank,
    /// A sound block of an earlier use of the segment.
    Stale(BlockHeader),
    /// The checksum does not match: an incomplete write, or damage.
    Torn {
        /// As computed.
        expected: u32,
        /// As stored.
        got: u32,
    },
    /// A sound block that belongs to another place: a misdirected write.
    Misplaced(BlockHeader),
}

/// Writes the header with its checksum. The payload must be in place, and its unused end must be zero.
pub fn write_block_header(header: &BlockHeader, seed: u32, block: &mut [u8]) {
    put(block, 4, &[VERSION, header.mode]);
    put(block, 6, &header.used.to_be_bytes());
    put(block, 8, &header.segment_id.to_be_bytes());
    put(block, 16, &header.index.to_be_bytes());
    put(block, 20, &header.frame_index.to_be_bytes());
    put(block, 22, &header.frame_blocks.to_be_bytes());
    put(block, 24, &header.horizon_segment.to_be_bytes());
    put(block, 32, &header.horizon_blocks.to_be_bytes());
    put(block, 36, &header.first_record.to_be_bytes());
    put(block, 38, &[0; 2]);
    debug_assert!(block.len() == BLOCK_SIZE, "a block of {} bytes", block.len());
    debug_assert!(header.frame_index < header.frame_blocks, "the block is one of its frame's");
    let crc = crc(seed, block);
    put(block, 0, &crc.to_be_bytes());
}

/// Classifies what should be block `index` of segment `id`.
pub fn classify_block(block: &[u8], seed: u32, id: i64, index: u32) -> BlockState {
    let got = u32::from_be_bytes(array(block, 0));
    if got == 0 && block.iter().all(|byte| *byte == 0) {
        return BlockState::Blank;
    }
    let expected = crc(seed, block);
    if expected != got || block.len() != BLOCK_SIZE || block.get(4) != Some(&VERSION) {
        return BlockState::Torn { expected, got };
    }
    let header = BlockHeader {
        mode: array::<1>(block, 5)[0],
        used: u16::from_be_bytes(array(block, 6)),
        segment_id: i64::from_be_bytes(array(block, 8)),
        index: u32::from_be_bytes(array(block, 16)),
        frame_index: u16::from_be_bytes(array(block, 20)),
        frame_blocks: u16::from_be_bytes(array(block, 22)),
        horizon_segment: i64::from_be_bytes(array(block, 24)),
        horizon_blocks: u32::from_be_bytes(array(block, 32)),
        first_record: u16::from_be_bytes(array(block, 36)),
    };
    if header.index != index || header.segment_id > id {
        BlockState::Misplaced(header)
    } else if header.segment_id < id {
        BlockState::Stale(header)
    } else {
        BlockState::Live(header)
    }
}

fn crc(seed: u32, block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(block.get(4..).unwrap_or_default());
    hasher.finalize()
}

impl std::fmt::Display for BlockState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BlockState::Live(header) => write!(f, "block {} of segment {}", header.index, header.segment_id),
            BlockState::Blank => f.write_str("zeros"),
            BlockState::Stale(header) => write!(f, "a block of segment {}", header.segment_id),
            BlockState::Torn { expected, got } => write!(f, "checksum {got:08x} over bytes of checksum {expected:08x}"),
            BlockState::Misplaced(header) => write!(f, "block {} of segment {}", header.index, header.segment_id),
        }
    }
}
