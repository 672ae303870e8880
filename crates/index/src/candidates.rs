//! The candidates of all sources of one index, or of two indexes, in the order in which the table is read.

use std::ops::Bound;
use std::sync::Arc;

use sstable::{PartitionHint, SSTableError};

use crate::MemoryIndex;
use crate::batch::{Batch, Source, UNKNOWN, beginning};
use crate::entry::{KeyBounds, TermRange};
use crate::two_indexes::CommonKeys;

/// The greatest size of the keys that are sorted for a range of values, bytes. An index does not answer a larger range.
pub const SORTED_BYTES_MAX: usize = 64 << 20;

/// The greatest number of entries of a source that are sorted on a thread that may not be blocked.
const FEW_ENTRIES: usize = 128;

/// The keys of candidates in ascending order, without duplicates.
pub enum Candidates {
    /// The entries of one term, which are sorted in every source.
    Merged(Vec<Stream>),
    /// The entries of several terms, all of which were read and sorted.
    Sorted(SortedKeys),
    /// The common keys of two indexes of a memtable.
    Common(Box<CommonKeys>),
}

impl Candidates {
    /// The candidates for a range of values within some partitions. Returns `None`, which makes every row a candidate,
    /// if the keys would have to be sorted and the range has more than `sorted_bytes_max` bytes of them (at most
    /// [`SORTED_BYTES_MAX`]). All keys of the range count, because keys of other partitions are read too. On a thread
    /// that may not be blocked, a few keys are sorted at most.
    pub fn open(
        sources: Vec<Box<dyn Source>>,
        terms: &TermRange,
        keys: &KeyBounds,
        may_block: bool,
        sorted_bytes_max: usize,
    ) -> Result<Option<Candidates>, SSTableError> {
        if !terms.is_one_term {
            let sorted = SortedKeys::read(&sources, terms, keys, may_block, sorted_bytes_max)?;
            return Ok(sorted.map(Candidates::Sorted));
        }
        let bounds = [&keys.start, &keys.end].map(|key| [terms.start.as_slice(), key].concat());
        let streams = sources.into_iter().map(|source| Stream::open(source, terms.start.len(), &bounds, may_block));
        let has_entries = |stream: &Result<Stream, _>| !matches!(stream, Ok(stream) if stream.batch.is_empty());
        Ok(Some(Candidates::Merged(streams.filter(has_entries).collect::<Result<_, _>>()?)))
    }

    /// The rows within some partitions that two indexes of one memtable both have, each for its own value. `None` if
    /// they cannot be found without reading all entries of one of the indexes.
    pub fn of_two(indexes: [Arc<MemoryIndex>; 2], terms: [&TermRange; 2], keys: &KeyBounds) -> Option<Candidates> {
        CommonKeys::open(indexes, terms, keys).map(|common| Candidates::Common(Box::new(common)))
    }

    /// Whether the next key is unknown until [`read_on`](Self::read_on) was called, perhaps several times.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Candidates::Common(common) if common.is_waiting())
    }

    /// Does a bounded part of the search for the next key.
    pub fn read_on(&mut self) {
        if let Candidates::Common(common) = self {
            common.read_on();
        }
    }

    /// The next key, which stays the next until `advance`.
    pub fn peek(&self) -> Option<&[u8]> {
        match self {
            Candidates::Merged(streams) => match streams.as_slice() {
                [only] => only.peek(),
                streams => streams.iter().filter_map(Stream::peek).min(),
            },
            Candidates::Sorted(sorted) => sorted.peek(),
            Candidates::Common(common) => common.peek(),
        }
    }

    /// The place of the next key's partition in an SSTable, if the SSTable's index has it. Other sources may have the
    /// partition too.
    pub fn hint(&self) -> Option<PartitionHint> {
        match self {
            Candidates::Merged(streams) => match streams.as_slice() {
                [only] => only.hint(),
                streams => {
                    let keys = streams.iter().filter_map(|stream| Some((stream.peek()?, stream)));
                    keys.min_by_key(|(key, _)| *key)?.1.hint()
                }
            },
            Candidates::Sorted(sorted) => sorted.hint(),
            Candidates::Common(_) => None,
        }
    }

    /// How many keys are known to follow: all of them if there are few. A key in several sources counts several times.
    pub fn known_count(&self) -> usize {
        match self {
            Candidates::Merged(streams) => streams.iter().map(|stream| stream.batch.known_count(stream.at)).sum(),
            Candidates::Sorted(sorted) => sorted.candidates.len() - sorted.at,
            Candidates::Common(common) => common.known_count(),
        }
    }

    /// An estimate of how many keys follow: the known ones, and others on the assumption that keys are spread evenly
    /// over the tokens. A key in several sources counts several times.
    pub fn estimated_count(&self) -> usize {
        match self {
            Candidates::Merged(streams) => streams.iter().map(Stream::estimated_count).fold(0, usize::saturating_add),
            Candidates::Sorted(_) | Candidates::Common(_) => self.known_count(),
        }
    }

    /// Moves to the first key that is not less than this one. Returns how many batches that read. Fails where a source
    /// cannot be read.
    pub fn advance_to(&mut self, key: &[u8]) -> Result<usize, SSTableError> {
        match self {
            Candidates::Merged(streams) => {
                streams.iter_mut().try_fold(0, |batches, stream| Ok(batches + usize::from(stream.advance_to(key)?)))
            }
            Candidates::Sorted(sorted) => {
                sorted.advance_to(key);
                Ok(0)
            }
            Candidates::Common(common) => {
                common.advance_to(key);
                Ok(0)
            }
        }
    }

    /// Moves past the next key. Fails where a source cannot be read.
    pub fn advance(&mut self) -> Result<(), SSTableError> {
        match self {
            Candidates::Merged(streams) => {
                let keys = streams.iter().enumerate().filter_map(|(place, stream)| Some((stream.peek()?, place)));
                let Some((_, least)) = keys.min() else { return Ok(()) };
                // Streams before this index have greater keys, or none.
                for place in least + 1..streams.len() {
                    if streams[place].peek() == streams[least].peek() {
                        streams[place].advance()?;
                    }
                }
                streams[least].advance()
            }
            Candidates::Sorted(sorted) => {
                sorted.at += 1;
                Ok(())
            }
            Candidates::Common(common) => {
                common.advance();
                Ok(())
            }
        }
    }
}

/// The entries of one term in one source.
pub struct Stream {
    source: Box<dyn Source>,
    /// The exclusive end of the entries. It begins with the term.
    end: Vec<u8>,
    term_length: usize,
    may_block: bool,
    batch: Batch,
    at: usize,
}

impl Stream {
    /// The entries of a range whose entries all begin with a term of this length. The batch is empty if there are none.
    fn open(
        source: Box<dyn Source>,
        term_length: usize,
        [start, end]: &[Vec<u8>; 2],
        may_block: bool,
    ) -> Result<Stream, SSTableError> {
        let end = end.clone();
        let mut stream = Stream { source, end, term_length, may_block, batch: Batch::default(), at: 0 };
        stream.fill(Bound::Included(start))?;
        Ok(stream)
    }

    fn fill(&mut self, start: Bound<&[u8]>) -> Result<(), SSTableError> {
        self.batch.clear_to_read_on();
        self.at = 0;
        self.source.read(start, &self.end, self.may_block, &mut self.batch)?;
        debug_assert!(self.batch.is_last() || !self.batch.is_empty(), "a batch that is not the last has entries");
        Ok(())
    }

    fn peek(&self) -> Option<&[u8]> {
        self.batch.key(self.at)
    }

    fn estimated_count(&self) -> usize {
        self.batch.estimated_count(self.at, &self.end[self.term_length..])
    }

    fn hint(&self) -> Option<PartitionHint> {
        Some(PartitionHint { sstable: self.source.sstable()?, position: self.batch.position(self.at)? })
    }

    /// Moves to the first key that is not less than this one. Returns whether that read a batch.
    fn advance_to(&mut self, key: &[u8]) -> Result<bool, SSTableError> {
        self.at = self.batch.first_not_before(self.at, key);
        if self.at < self.batch.len() || self.batch.is_last() {
            return Ok(false);
        }
        let start = [&self.end[..self.term_length], key].concat();
        self.fill(Bound::Included(&start))?;
        Ok(true)
    }

    fn advance(&mut self) -> Result<(), SSTableError> {
        self.at += 1;
        if self.at < self.batch.len() || self.batch.is_last() {
            return Ok(());
        }
        let last = self.batch.entry(self.at - 1).unwrap_or_default().to_vec();
        self.fill(Bound::Excluded(&last))
    }
}

/// Keys that were sorted in memory.
pub struct SortedKeys {
    bytes: Vec<u8>,
    candidates: Vec<SortedCandidate>,
    at: usize,
    /// The SSTables of the sources that have positions.
    sstables: Vec<Option<u64>>,
}

/// A key that was sorted: its range in the bytes of all keys, and where it comes from.
#[derive(Clone, Copy)]
struct SortedCandidate {
    /// The first bytes of the key, which decide most comparisons.
    beginning: u64,
    /// The position of the partition in the SSTable of the source, or [`UNKNOWN`].
    position: u64,
    start: u32,
    end: u32,
    source: u32,
}

impl SortedKeys {
    fn read(
        sources: &[Box<dyn Source>],
        terms: &TermRange,
        bounds: &KeyBounds,
        may_block: bool,
        bytes_max: usize,
    ) -> Result<Option<SortedKeys>, SSTableError> {
        debug_assert!(bytes_max <= SORTED_BYTES_MAX, "offsets are of 32 bits");
        let sstables = sources.iter().map(|source| source.sstable()).collect();
        let mut sorted = SortedKeys { bytes: Vec::new(), candidates: Vec::new(), at: 0, sstables };
        let mut read_bytes = 0;
        let mut batch = if may_block { Batch::default() } else { Batch::with_entries_max(FEW_ENTRIES) };
        for (number, source) in sources.iter().enumerate() {
            let mut start = Bound::Included(terms.start.clone());
            batch.clear();
            loop {
                batch.clear_to_read_on();
                source.read(start.as_ref().map(Vec::as_slice), &terms.end, may_block, &mut batch)?;
                for index in 0..batch.len() {
                    let key = batch.key(index).unwrap_or_default();
                    read_bytes += key.len() + size_of::<SortedCandidate>();
                    sorted.add(&batch, index, number as u32, bounds);
                }
                if read_bytes > bytes_max || (!may_block && !batch.is_last()) {
                    return Ok(None);
                }
                match batch.len().checked_sub(1).and_then(|last| batch.entry(last)) {
                    Some(last) if !batch.is_last() => start = Bound::Excluded(last.to_vec()),
                    _ => break,
                }
            }
        }
        sorted.sort();
        Ok(Some(sorted))
    }

    /// Adds the entry of a batch with this index.
    fn add(&mut self, batch: &Batch, index: usize, source: u32, bounds: &KeyBounds) {
        let key = batch.key(index).unwrap_or_default();
        if !bounds.contain(key) {
            return;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        let (end, position) = (self.bytes.len() as u32, batch.position(index).unwrap_or(UNKNOWN));
        self.candidates.push(SortedCandidate { beginning: beginning(key), position, start, end, source });
    }

    fn sort(&mut self) {
        let SortedKeys { bytes, candidates, .. } = self;
        let key = |candidate: &SortedCandidate| &bytes[candidate.start as usize..candidate.end as usize];
        candidates
            .sort_unstable_by(|one, other| one.beginning.cmp(&other.beginning).then_with(|| key(one).cmp(key(other))));
        candidates.dedup_by(|one, other| one.beginning == other.beginning && key(one) == key(other));
    }

    fn key(&self, candidate: &SortedCandidate) -> &[u8] {
        &self.bytes[candidate.start as usize..candidate.end as usize]
    }

    fn peek(&self) -> Option<&[u8]> {
        self.candidates.get(self.at).map(|candidate| self.key(candidate))
    }

    fn hint(&self) -> Option<PartitionHint> {
        let next = self.candidates.get(self.at).filter(|candidate| candidate.position != UNKNOWN)?;
        Some(PartitionHint { sstable: (*self.sstables.get(next.source as usize)?)?, position: next.position })
    }

    fn advance_to(&mut self, key: &[u8]) {
        let rest = &self.candidates[self.at.min(self.candidates.len())..];
        self.at += rest.partition_point(|candidate| self.key(candidate) < key);
    }
}
