//! Rebuilding both superblocks of a log from its other blocks, for a start with salvage.
//!
//! The checksum of a bookkeeping entry starts from the log's seed, and everything else in the entry is known, so each
//! entry yields the seed. A sound block of a segment names its use, whose entry names the segment, and its index in the
//! segment. Blocks therefore show where segments begin and how far apart they are. A value counts if more than half of
//! the blocks agree on it; of entries, at least two must agree.

use std::collections::BTreeMap;

use blockio::{AlignedBuffer, BLOCK_SIZE, Disk, Durability, File, OpenOptions};
use uuid::Uuid;

use crate::file::{CHUNK_SIZE, DAMAGED_FILE_NAME, LogFile, free_path};
use crate::format::{BlockHeader, BlockState, BookkeepingEntry, Geometry, Superblock, checksum_before, classify_block};
use crate::{LogError, LogOptions};

/// Blocks before the bookkeeping.
const SUPERBLOCKS: u64 = 2;

/// Rewrites the superblocks from the log's other blocks if these are sufficient, and opens the log. Keeps what was in
/// the superblocks' place in a separate file.
pub(crate) fn open(disk: &dyn Disk, options: &LogOptions, wanted: Geometry) -> Result<Option<LogFile>, LogError> {
    let path = options.log_path();
    let file = disk.open(&path, OpenOptions::write().blocks())?;
    let Some(evidence) = Evidence::gather(&*file)? else { return Ok(None) };
    let Some(geometry) = evidence.geometry(&*file, wanted)? else { return Ok(None) };
    keep_head(disk, options, &*file)?;
    let host_id = options.host_id.unwrap_or_else(Uuid::new_v4);
    let superblock = Superblock { geometry, log_id: id_of_checksum(evidence.seed), host_id };
    let mut block = AlignedBuffer::new(BLOCK_SIZE);
    superblock.encode(&mut block);
    for copy in 0..SUPERBLOCKS {
        file.write_blocks(block.all_blocks(), Geometry::superblock_offset(copy), Durability::Durable)?;
    }
    drop(file);
    LogFile::open(disk, options)
}

/// Copies the contents of the superblocks' place to a separate file.
fn keep_head(disk: &dyn Disk, options: &LogOptions, file: &dyn File) -> Result<(), LogError> {
    let mut head = vec![0; Geometry::bookkeeping_start() as usize];
    let got = file.read_at(&mut head, 0)?;
    let copy = disk.open(&free_path(disk, &options.directory, DAMAGED_FILE_NAME)?, OpenOptions::create_new())?;
    copy.write_at(head.get(..got).unwrap_or_default(), 0)?;
    copy.sync_data()?;
    disk.sync_dir(&options.directory)?;
    Ok(())
}

/// The log's seed, and the entries that agree on it.
struct Evidence {
    seed: u32,
    entries: Vec<BookkeepingEntry>,
}

impl Evidence {
    fn gather(file: &dyn File) -> Result<Option<Evidence>, LogError> {
        let mut found = Vec::new();
        each_block(file, |number, block| found.extend(entry_at(number, block)))?;
        let Some(seed) = most(found.iter().map(|(seed, _)| *seed)) else { return Ok(None) };
        let entries: Vec<_> = found.into_iter().filter(|(of, _)| *of == seed).map(|(_, entry)| entry).collect();
        Ok((entries.len() >= 2).then_some(Evidence { seed, entries }))
    }

    /// The layout that the segments' blocks imply; the wanted layout if only the first segment has blocks.
    fn geometry(&self, file: &dyn File, wanted: Geometry) -> Result<Option<Geometry>, LogError> {
        let slots: BTreeMap<i64, u32> = self.entries.iter().map(|entry| (entry.id, entry.index)).collect();
        let listed = self.entries.iter().map(|entry| entry.index + 1).max().unwrap_or(0);
        // For each slot, the block of the file where the segment seems to begin; and the least length of a segment.
        let mut begins: Vec<(u32, u64)> = Vec::new();
        let mut longest = 0;
        each_block(file, |number, block| {
            let Some(header) = self.header(block) else { return };
            longest = longest.max(header.index.saturating_add(1));
            let begin = number.checked_sub(header.index.into());
            begins.extend(slots.get(&header.segment_id).copied().zip(begin));
        })?;
        let of_first = begins.iter().filter(|(slot, _)| *slot == 0).map(|(_, begin)| *begin);
        let start = most(of_first).unwrap_or(SUPERBLOCKS + u64::from(listed));
        let lengths = begins.iter().filter(|(slot, _)| *slot > 0).filter_map(|(slot, begin)| {
            let (distance, slot) = (begin.checked_sub(start)?, u64::from(*slot));
            distance.is_multiple_of(slot).then_some(distance / slot)
        });
        let found = most(lengths);
        let length = found.unwrap_or(u64::from(wanted.blocks_per_segment()));
        let is_right = |(slot, begin): &&(u32, u64)| *begin == start + u64::from(*slot) * length;
        let right = begins.iter().filter(is_right).count();
        let bytes = u32::try_from(length * BLOCK_SIZE as u64).ok().filter(|bytes| *bytes <= i32::MAX as u32);
        let segments = start.checked_sub(SUPERBLOCKS).and_then(|segments| u32::try_from(segments).ok());
        let fits = length >= u64::from(longest) && (begins.is_empty() || 2 * right > begins.len());
        Ok(bytes
            .zip(segments.filter(|segments| *segments >= listed))
            .filter(|_| fits && length > 0)
            .map(|(segment_size_bytes, segments)| Geometry { segment_size_bytes, segments }))
    }

    /// The header of a sound block, of any use of any segment.
    fn header(&self, block: &[u8]) -> Option<BlockHeader> {
        match classify_block(block, self.seed, i64::MAX, 0) {
            BlockState::Live(header) | BlockState::Stale(header) | BlockState::Misplaced(header) => Some(header),
            BlockState::Blank | BlockState::Torn { .. } => None,
        }
    }
}

/// A bookkeeping entry that lies in its right place, and the seed of its checksum.
fn entry_at(number: u64, block: &[u8]) -> Option<(u32, BookkeepingEntry)> {
    let index = u32::try_from(number.checked_sub(SUPERBLOCKS)?).ok()?;
    let seed = BookkeepingEntry::seed(block)?;
    BookkeepingEntry::decode(block, seed, index).ok().map(|entry| (seed, entry))
}

/// Visits every whole block of the file with its number.
fn each_block(file: &dyn File, mut visit: impl FnMut(u64, &[u8])) -> Result<(), LogError> {
    let mut chunk = AlignedBuffer::new(CHUNK_SIZE);
    let mut number = 0;
    let blocks = file.len()? / BLOCK_SIZE as u64;
    while number < blocks {
        let length = CHUNK_SIZE.min((blocks - number) as usize * BLOCK_SIZE);
        let got = file.read_blocks(&mut chunk, length, number * BLOCK_SIZE as u64)?;
        debug_assert!(got <= length);
        let read = chunk.get(..got).unwrap_or_default().chunks_exact(BLOCK_SIZE);
        let count = read.len() as u64;
        (number..).zip(read).for_each(|(number, block)| visit(number, block));
        if count == 0 {
            break;
        }
        number += count;
    }
    Ok(())
}

/// The value that more than half of the inputs agree on.
fn most<T: Ord + Copy>(found: impl Iterator<Item = T>) -> Option<T> {
    let mut votes: BTreeMap<T, usize> = BTreeMap::new();
    let mut all = 0;
    for one in found {
        *votes.entry(one).or_default() += 1;
        all += 1;
    }
    votes.into_iter().find(|(_, count)| 2 * count > all).map(|(one, _)| one)
}

/// A new id with that checksum, which is all that the log's blocks know about its id.
fn id_of_checksum(checksum: u32) -> Uuid {
    let mut bytes = *Uuid::new_v4().as_bytes();
    let (head, tail) = bytes.split_at_mut(12);
    // The effect of the last four bytes is linear: they change the checksum by the same difference, whatever precedes
    // them.
    let last = checksum_before(checksum, &[0; 4]) ^ crc32fast::hash(head);
    tail.copy_from_slice(&last.to_le_bytes());
    debug_assert_eq!(crc32fast::hash(&bytes), checksum, "the id has the checksum that the blocks know");
    Uuid::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::seed_of;

    #[test]
    fn an_id_is_created_for_a_seed() {
        for seed in [0, 0xdead_beef, u32::MAX] {
            assert_eq!(seed_of(id_of_checksum(seed)), seed);
        }
    }

    #[test]
    fn an_identity_without_a_majority_is_not_restored() {
        assert_eq!(most::<u8>([].into_iter()), None);
        assert_eq!(most([1, 1, 2, 2].into_iter()), None);
        assert_eq!(most([1, 2, 1].into_iter()), Some(1));
    }
}
