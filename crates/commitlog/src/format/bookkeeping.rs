//! A segment's bookkeeping block describes the current use of the segment. All of it lies in one 512-byte sector and
//! is written without being read first.

use uuid::Uuid;

use super::checksum::checksum_before;
use super::{array, put};

const MAGIC: [u8; 4] = *b"SEGM";
const SIZE: usize = 28;

const _: () = assert!(SIZE <= 512, "an entry is in one sector, which is written whole or not at all");
const _: () = assert!(SegmentState::Free as u8 != 0 && SegmentState::Live as u8 != 0, "zeros are no valid state");

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The segment holds nothing that is needed.
    Free = 1,
    /// The segment holds records, or soon will.
    Live = 2,
}

/// One segment's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookkeepingEntry {
    /// The segment's index in the file.
    pub index: u32,
    /// The use of the segment.
    pub state: SegmentState,
    /// The id of this use, or of the last use if the segment is free; 0 if it was never used.
    pub id: i64,
    /// The [`checksum`](tables_checksum) of a set of tables of which this use has no record; 0 makes no promise.
    pub without: u32,
    /// How many blocks of this use, from its first, are known to be durable; 0 if that is not known, or if the blocks
    /// of the next segment tell it. It is at most [`DURABLE_BLOCKS_MAX`].
    pub durable_blocks: u32,
}

/// The greatest number of durable blocks that an entry can record: it has 3 bytes for it.
pub const DURABLE_BLOCKS_MAX: u32 = (1 << 24) - 1;

/// The checksum by which a promise names a set of tables, given in any order. It is 0 for an empty set.
pub fn tables_checksum(tables: &[Uuid]) -> u32 {
    let mut tables = tables.to_vec();
    tables.sort_unstable();
    let mut hasher = crc32fast::Hasher::new();
    tables.iter().for_each(|table| hasher.update(table.as_bytes()));
    hasher.finalize()
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryFault {
    /// All zeros: never written. A log that was made completely has no such entry.
    Zero,
    /// The magic, the checksum or the state is wrong.
    Damaged(String),
    /// A sound entry of another segment: a misdirected write.
    Misplaced(u32),
}

impl BookkeepingEntry {
    /// Whether both entries describe the same use, whatever they promise.
    pub fn is_same_use(&self, other: &BookkeepingEntry) -> bool {
        (self.index, self.state, self.id) == (other.index, other.state, other.id)
    }

    /// Encodes the entry as a block. `seed` is the checksum of the log's id.
    pub fn encode(&self, seed: u32, block: &mut [u8]) {
        block.fill(0);
        debug_assert!(block.len() >= SIZE);
        debug_assert!(self.state == SegmentState::Live || self.without == 0, "a free segment promises nothing");
        debug_assert!(self.state == SegmentState::Live || self.durable_blocks == 0, "a free segment has no end");
        debug_assert!(self.durable_blocks <= DURABLE_BLOCKS_MAX, "a segment has fewer blocks");
        put(block, 0, &MAGIC);
        put(block, 4, &self.index.to_be_bytes());
        put(block, 8, &[self.state as u8]);
        let [_, durable_blocks @ ..] = self.durable_blocks.min(DURABLE_BLOCKS_MAX).to_be_bytes();
        put(block, 9, &durable_blocks);
        put(block, 12, &self.without.to_be_bytes());
        put(block, 16, &self.id.to_be_bytes());
        let crc = crc(seed, block);
        put(block, SIZE - 4, &crc.to_be_bytes());
    }

    /// The seed under which the block is a valid entry; `None` if it does not start like an entry.
    pub fn seed(block: &[u8]) -> Option<u32> {
        let bytes = block.get(..SIZE - 4).filter(|bytes| bytes.starts_with(&MAGIC))?;
        Some(checksum_before(u32::from_be_bytes(array(block, SIZE - 4)), bytes))
    }

    /// Decodes the entry of segment `index`.
    pub fn decode(block: &[u8], seed: u32, index: u32) -> Result<BookkeepingEntry, EntryFault> {
        if block.iter().all(|byte| *byte == 0) {
            return Err(EntryFault::Zero);
        }
        let expected = crc(seed, block);
        let got = u32::from_be_bytes(array(block, SIZE - 4));
        if array(block, 0) != MAGIC || expected != got {
            return Err(EntryFault::Damaged(format!("checksum {got:08x} over bytes of checksum {expected:08x}")));
        }
        let state = match block.get(8) {
            Some(1) => SegmentState::Free,
            Some(2) => SegmentState::Live,
            other => return Err(EntryFault::Damaged(format!("state {}", other.copied().unwrap_or_default()))),
        };
        let [a, b, c] = array(block, 9);
        let entry = BookkeepingEntry {
            index: u32::from_be_bytes(array(block, 4)),
            state,
            id: i64::from_be_bytes(array(block, 16)),
            without: u32::from_be_bytes(array(block, 12)),
            durable_blocks: u32::from_be_bytes([0, a, b, c]),
        };
        if entry.index == index { Ok(entry) } else { Err(EntryFault::Misplaced(entry.index)) }
    }
}

fn crc(seed: u32, block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(block.get(..SIZE - 4).unwrap_or_default());
    hasher.finalize()
}

impl std::fmt::Display for EntryFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EntryFault::Zero => f.write_str("zeros"),
            EntryFault::Damaged(what) => f.write_str(what),
            EntryFault::Misplaced(index) => write!(f, "the entry of segment {index}"),
        }
    }
}
