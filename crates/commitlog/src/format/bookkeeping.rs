//! A segment's bookkeeping block: who uses it now. All of it lies in one 512-byte sector and is written without
//! reading.

use uuid::Uuid;

use super::{array, put};
use crate::rebuild::checksum_before;

const MAGIC: [u8; 4] = *b"SEGM";
const SIZE: usize = 28;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Holds nothing that is needed.
    Free = 1,
    /// Holds records, or is about to.
    Live = 2,
}

/// One segment's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookkeepingEntry {
    /// The segment's index in the file.
    pub index: u32,
    /// What it is used for.
    pub state: SegmentState,
    /// The id of this use, or of the last one if free; 0 if it was never used.
    pub id: i64,
    /// The [`checksum`](tables_checksum) of tables none of which has a record in this use; 0 promises nothing.
    pub without: u32,
}

/// What a promise names tables by; in any order. 0 if there are none.
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
    /// All zeros: never written, which a log that was made whole does not have.
    Zero,
    /// Magic, checksum or state do not fit.
    Damaged(String),
    /// A sound entry of another segment: a misdirected write.
    Misplaced(u32),
}

impl BookkeepingEntry {
    /// Whether both tell of the same use, whatever they promise.
    pub fn is_same_use(&self, other: &BookkeepingEntry) -> bool {
        (self.index, self.state, self.id) == (other.index, other.state, other.id)
    }

    /// The entry as a block. `seed` is the checksum of the log's id.
    pub fn encode(&self, seed: u32, block: &mut [u8]) {
        block.fill(0);
        put(block, 0, &MAGIC);
        put(block, 4, &self.index.to_be_bytes());
        put(block, 8, &[self.state as u8]);
        put(block, 12, &self.without.to_be_bytes());
        put(block, 16, &self.id.to_be_bytes());
        let crc = crc(seed, block);
        put(block, SIZE - 4, &crc.to_be_bytes());
    }

    /// The seed with which the block is an entry; `None` if it does not begin as one.
    pub fn seed(block: &[u8]) -> Option<u32> {
        let bytes = block.get(..SIZE - 4).filter(|bytes| bytes.starts_with(&MAGIC))?;
        Some(checksum_before(u32::from_be_bytes(array(block, SIZE - 4)), bytes))
    }

    /// Reads the entry of segment `index`.
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
        let entry = BookkeepingEntry {
            index: u32::from_be_bytes(array(block, 4)),
            state,
            id: i64::from_be_bytes(array(block, 16)),
            without: u32::from_be_bytes(array(block, 12)),
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
