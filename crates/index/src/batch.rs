//! Batches of entries, and the sources from which they are read.

use std::ops::Bound;

use bytecomp::separator::NEXT_COMPONENT;
use sstable::SSTableError;

/// A batch is full when it has this many bytes, or its greatest number of entries.
const BYTES_MAX: usize = 64 << 10;

/// The entries, and their bytes, for which a batch allocates memory with its first entry. Most batches need no more.
const FEW_ENTRIES: usize = 8;
const FEW_BYTES: usize = 512;

/// Some entries of one source, in their order.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
    entries_max: usize,
    is_last: bool,
    mark: Option<Mark>,
}

/// The place after the last entry of a batch, from which the next batch is read. It has the stored parts of that last
/// entry too, because the next entry is stored as a difference from them.
#[derive(Debug)]
pub(crate) struct Mark {
    /// The page of the block.
    pub page: u64,
    /// The offset in the block's content.
    pub at: usize,
    pub term: Vec<u8>,
    pub key: Vec<u8>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::with_entries_max(Batch::ENTRIES_MAX)
    }
}

/// Stands for a position that is not known.
pub(crate) const UNKNOWN: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    /// The first bytes of the key, which decide most comparisons.
    beginning: u64,
    /// The position of the partition in the SSTable, or [`UNKNOWN`].
    position: u64,
    end: u32,
    term_length: u32,
}

/// The first eight bytes of a key as a number. A shorter key is padded with zeros. A key with a smaller number is
/// smaller.
#[inline]
pub(crate) fn beginning(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(beginning) => u64::from_be_bytes(*beginning),
        None => key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) << (64 - 8 * key.len().max(1)),
    }
}

impl Batch {
    /// The number of entries at which a batch is full, unless the caller chooses another one.
    pub(crate) const ENTRIES_MAX: usize = 512;

    /// An empty batch that is full when it has this number of entries.
    pub(crate) fn with_entries_max(entries_max: usize) -> Batch {
        debug_assert!(entries_max > 0, "a batch has entries");
        Batch { bytes: Vec::new(), entries: Vec::new(), entries_max, is_last: false, mark: None }
    }

    /// Removes all entries, so that any source can fill the batch.
    pub fn clear(&mut self) {
        self.clear_to_read_on();
        self.mark = None;
    }

    /// Removes all entries, so that the same source can fill the batch with the entries that follow.
    pub fn clear_to_read_on(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.is_last = false;
    }

    /// Sets the place from which the source continues.
    pub(crate) fn set_mark(&mut self, mark: Mark) {
        self.mark = Some(mark);
    }

    /// The place from which the source continues, if the source has set it. The next entry of the source is at this
    /// place or later.
    pub(crate) fn take_mark(&mut self) -> Option<Mark> {
        self.mark.take()
    }

    /// Adds an entry of two parts. Its first `term_length` bytes are the term.
    pub fn push(&mut self, entry: [&[u8]; 2], term_length: usize) {
        self.begin_entry();
        entry.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.keep_last(term_length, UNKNOWN);
    }

    /// Appends the bytes of an entry to the buffer. The entry becomes a part of the batch when it is kept.
    pub(crate) fn read<E>(&mut self, read: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<&[u8], E> {
        let start = self.begin_entry();
        read(&mut self.bytes)?;
        Ok(&self.bytes[start..])
    }

    /// Removes the bytes after the kept entries. Returns where the next entry begins.
    fn begin_entry(&mut self) -> usize {
        if self.entries.is_empty() {
            self.entries.reserve(FEW_ENTRIES);
            self.bytes.reserve(FEW_BYTES);
        }
        let start = self.kept_bytes();
        self.bytes.truncate(start);
        start
    }

    /// Adds the entry that was read last. Its first `term_length` bytes are the term. The position is that of its
    /// partition in the SSTable, or [`UNKNOWN`].
    #[inline]
    pub(crate) fn keep_last(&mut self, term_length: usize, position: u64) {
        let entry = &self.bytes[self.kept_bytes()..];
        debug_assert!(term_length <= entry.len(), "a term is a part of its entry");
        let beginning = beginning(&entry[term_length..]);
        let (end, term_length) = (self.bytes.len() as u32, term_length as u32);
        self.entries.push(BatchEntry { beginning, position, end, term_length });
    }

    fn kept_bytes(&self) -> usize {
        self.entries.last().map_or(0, |last| last.end as usize)
    }

    /// Whether the batch is full.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max || self.kept_bytes() >= BYTES_MAX
    }

    /// Notes that the source has no more entries in the range.
    pub fn end(&mut self) {
        self.is_last = true;
    }

    /// Whether the source has no more entries in the range.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// How many entries are known to follow this index. If the batch is not the last one, this is at least the greatest
    /// number of entries of a batch, although a batch of long entries has fewer.
    pub(crate) fn known_count(&self, from: usize) -> usize {
        let known = self.len() - from;
        if self.is_last { known } else { known.max(Batch::ENTRIES_MAX) }
    }

    /// About how many entries with one term follow this index, all with keys before `end`. Entries are in the order of
    /// their tokens, which are spread evenly, so the number is estimated from the part of the tokens that the batch
    /// covers. If the batch has one partition, the estimate is [`known_count`](Self::known_count).
    pub(crate) fn estimated_count(&self, from: usize, end: &[u8]) -> usize {
        let known = self.known_count(from);
        let (Some(first), Some(last)) = (self.entries.get(from), self.entries.last()) else { return known };
        let end = beginning(end).min(u64::from(NEXT_COMPONENT + 1) << 56);
        let covered = last.beginning.saturating_sub(first.beginning);
        let all = end.saturating_sub(first.beginning);
        if self.is_last || covered == 0 {
            return known;
        }
        let estimated = known as u128 * u128::from(all) / u128::from(covered);
        usize::try_from(estimated).unwrap_or(usize::MAX).max(known)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with this index.
    pub fn entry(&self, index: usize) -> Option<&[u8]> {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].end as usize);
        Some(&self.bytes[start..self.entries.get(index)?.end as usize])
    }

    /// The entry with this index without its term.
    pub fn key(&self, index: usize) -> Option<&[u8]> {
        let entry = self.entry(index)?;
        Some(&entry[self.entries[index].term_length as usize..])
    }

    /// The position in the SSTable of the partition that the entry with this index names, if the source knows it.
    pub fn position(&self, index: usize) -> Option<u64> {
        self.entries.get(index).map(|entry| entry.position).filter(|position| *position != UNKNOWN)
    }

    /// The index, not below `from`, of the first entry whose key is not before this one. All entries have the same
    /// term. The entry is usually near, so this is a galloping search.
    pub fn first_not_before(&self, from: usize, key: &[u8]) -> usize {
        let beginning = beginning(key);
        let is_before = |index: usize| match self.entries.get(index) {
            Some(entry) if entry.beginning == beginning => self.key(index).is_some_and(|other| other < key),
            Some(entry) => entry.beginning < beginning,
            None => false,
        };
        let (mut low, mut step) = (from.min(self.len()), 1);
        while is_before(low + step - 1) {
            low += step;
            step *= 2;
        }
        let mut high = self.len().min(low + step - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The entries of one index in one source, in byte order. It is read batch by batch.
pub trait Source: Send + Sync {
    /// Adds the entries from `start` to `end` (exclusive) to an empty batch, until the batch is full. If there are no
    /// more entries, it marks the batch as the last one. The range must follow the entries that the batch had before
    /// [`clear_to_read_on`](Batch::clear_to_read_on). With `may_block` false it fails where it would have to wait for a
    /// device.
    fn read(&self, start: Bound<&[u8]>, end: &[u8], may_block: bool, batch: &mut Batch) -> Result<(), SSTableError>;

    /// The number of the open SSTable to which positions refer ([`sstable::SSTableReader::number`]). `None` if the
    /// source has no positions.
    fn sstable(&self) -> Option<u64> {
        None
    }
}
