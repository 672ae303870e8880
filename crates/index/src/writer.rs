//! Writes an index file. The layout is in FORMAT.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::Disk;
use bytecomp::separator::write_separator_after;
use model::IndexKey;
use sstable::{SSTableError, TrieWriter};

use crate::batch::UNKNOWN;
use crate::block::{BlockWriter, POSITION_BYTES_MAX};
use crate::file::{FORM, Segment};
use crate::paged::{Origin, PagedWriter, stopped};
use crate::runs::{Run, Runs, SortedEntry};

/// The number of entries between two checks of whether the build should continue.
const ENTRIES_PER_QUESTION: u64 = 4096;

/// The limits at which entries in memory are written to a temporary file.
#[derive(Clone, Copy, Debug)]
pub struct WriterLimits {
    /// The size of the entries that are sorted in memory, bytes. Larger indexes have several runs, which are merged at
    /// the end.
    pub run_bytes: usize,
    /// The greatest number of runs that are merged into one segment. Each needs 64 KiB of memory during the merge.
    pub runs_max: usize,
}

impl Default for WriterLimits {
    fn default() -> WriterLimits {
        WriterLimits { run_bytes: 32 << 20, runs_max: 64 }
    }
}

/// An index file that is being written, under a temporary name until it is complete and durable. The file is removed if
/// this is dropped before.
pub struct IndexWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: PagedWriter,
    limits: WriterLimits,
    /// The entries of the next run, in order of arrival.
    bytes: Vec<u8>,
    entries: Vec<Unsorted>,
    /// The runs before them, if there are several.
    runs: Option<Runs>,
}

/// An entry in the bytes of the next run.
#[derive(Clone, Copy)]
struct Unsorted {
    /// The position of the partition in the SSTable, or [`UNKNOWN`].
    position: u64,
    start: u32,
    end: u32,
    term_length: u16,
}

impl IndexWriter {
    /// Starts a file at `path`, in a directory that exists.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path) -> Result<IndexWriter, SSTableError> {
        IndexWriter::with_limits(disk, path, WriterLimits::default())
    }

    /// As [`create`](Self::create), with other limits, which are not 0.
    pub fn with_limits(disk: &Arc<dyn Disk>, path: &Path, limits: WriterLimits) -> Result<IndexWriter, SSTableError> {
        debug_assert!(limits.run_bytes > 0 && limits.runs_max > 0, "a run has entries, and a segment has runs");
        let file = PagedWriter::create(disk, path)?;
        let (disk, path) = (disk.clone(), path.to_owned());
        Ok(IndexWriter { disk, path, file, limits, bytes: Vec::new(), entries: Vec::new(), runs: None })
    }

    /// Adds an entry, with the position of its partition in the SSTable's data if that may be used. Entries may be
    /// added in any order, and several times.
    pub fn add(&mut self, entry: &[u8], term_length: usize, position: Option<u64>) -> Result<(), SSTableError> {
        debug_assert!(term_length <= entry.len(), "a term is a part of its entry");
        if !self.entries.is_empty() && self.bytes.len() + entry.len() > self.limits.run_bytes {
            self.put_aside()?;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(entry);
        let end = self.bytes.len() as u32;
        let (position, term_length) = (position.unwrap_or(UNKNOWN), term_length as u16);
        self.entries.push(Unsorted { position, start, end, term_length });
        Ok(())
    }

    /// Writes the rest and gives the file its name. The bytes are durable when this returns; the name is once the
    /// directory is synced. `goes_on` is called from time to time, and may return false to stop the build.
    pub fn finish(
        mut self,
        key: IndexKey,
        origin: &Origin,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SSTableError> {
        let mut segments = Vec::new();
        for segment in self.segments(goes_on)? {
            let Segment { first_page, end_page, root, entry_count } = segment;
            [first_page, end_page, root, entry_count].iter().for_each(|n| segments.extend_from_slice(&n.to_be_bytes()));
        }
        self.file.finish(FORM, key, origin, &segments)
    }

    fn segments(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Result<Vec<Segment>, SSTableError> {
        if self.runs.is_none() {
            return Ok(self.sorted_segment()?.into_iter().collect());
        }
        self.put_aside()?;
        (self.bytes, self.entries) = (Vec::new(), Vec::new());
        // The temporary file is removed here, before the index file gets its name.
        let Some(runs) = self.runs.take() else { return Ok(Vec::new()) };
        let groups = runs.as_slice().chunks(self.limits.runs_max);
        groups.map(|group| merged_segment(&mut self.file, &runs, group, goes_on)).collect()
    }

    /// Writes the entries in memory as a segment; `None` if there are none.
    fn sorted_segment(&mut self) -> Result<Option<Segment>, SSTableError> {
        self.sort();
        if self.entries.is_empty() {
            return Ok(None);
        }
        let mut segment = SegmentWriter::new(&mut self.file, position_bytes(&self.entries));
        sorted_entries(&self.bytes, &self.entries).try_for_each(|entry| segment.add(entry))?;
        segment.finish().map(Some)
    }

    /// Writes the entries in memory as a run.
    fn put_aside(&mut self) -> Result<(), SSTableError> {
        self.sort();
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(Runs::create(&self.disk, &self.path)?),
        };
        runs.add(sorted_entries(&self.bytes, &self.entries), position_bytes(&self.entries))?;
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    /// Sorts the entries in memory, and removes duplicates.
    fn sort(&mut self) {
        let IndexWriter { bytes, entries, .. } = self;
        let entry = |place: &Unsorted| &bytes[place.start as usize..place.end as usize];
        entries.sort_unstable_by(|one, other| entry(one).cmp(entry(other)));
        entries.dedup_by(|one, other| entry(one) == entry(other));
    }
}

fn sorted_entries<'e>(bytes: &'e [u8], entries: &'e [Unsorted]) -> impl Iterator<Item = SortedEntry<'e>> {
    entries.iter().map(|entry| SortedEntry {
        bytes: &bytes[entry.start as usize..entry.end as usize],
        term_length: entry.term_length.into(),
        position: entry.position,
    })
}

/// The bytes that the positions of these entries need; 0 if one of them is not known.
fn position_bytes(entries: &[Unsorted]) -> usize {
    let greatest = entries.iter().map(|entry| entry.position).max().unwrap_or(UNKNOWN);
    let bytes = (u64::BITS - greatest.leading_zeros()).div_ceil(8).max(1) as usize;
    if bytes <= POSITION_BYTES_MAX { bytes } else { 0 }
}

/// Writes the entries of some runs as a segment.
fn merged_segment(
    file: &mut PagedWriter,
    runs: &Runs,
    group: &[Run],
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Segment, SSTableError> {
    let needed = group.iter().map(|run| run.position_bytes);
    let position_bytes = if needed.clone().any(|bytes| bytes == 0) { 0 } else { needed.max().unwrap_or(0) };
    let (mut segment, mut count) = (SegmentWriter::new(file, position_bytes), 0);
    runs.merge(group, |entry| {
        count += 1;
        if count % ENTRIES_PER_QUESTION == 0 && !goes_on() {
            return Err(stopped());
        }
        segment.add(entry)
    })?;
    segment.finish()
}

/// A segment that is being written.
struct SegmentWriter<'f> {
    file: &'f mut PagedWriter,
    first_page: u64,
    block: BlockWriter,
    separators: Vec<(Vec<u8>, u64)>,
    /// The last entry.
    previous: Vec<u8>,
    entry_count: u64,
}

impl<'f> SegmentWriter<'f> {
    /// Starts a segment whose positions have this many bytes.
    fn new(file: &'f mut PagedWriter, position_bytes: usize) -> SegmentWriter<'f> {
        let (first_page, block) = (file.page(), BlockWriter::new(position_bytes));
        SegmentWriter { file, first_page, block, separators: Vec::new(), previous: Vec::new(), entry_count: 0 }
    }

    /// Adds the next entry. A repeated entry is ignored.
    fn add(&mut self, entry: SortedEntry<'_>) -> Result<(), SSTableError> {
        let SortedEntry { bytes, term_length, position } = entry;
        if self.entry_count > 0 && self.previous == bytes {
            return Ok(());
        }
        let mut is_first = self.block.is_empty();
        if !self.block.add(bytes, term_length, position) {
            self.file.write_pages(self.block.take())?;
            self.block.add(bytes, term_length, position);
            is_first = true;
        }
        if is_first {
            let mut separator = Vec::new();
            if !self.separators.is_empty() {
                write_separator_after(&self.previous, bytes, &mut separator);
            }
            self.separators.push((separator, self.file.page()));
        }
        self.previous.clear();
        self.previous.extend_from_slice(bytes);
        self.entry_count += 1;
        Ok(())
    }

    /// Writes the rest, and the trie of the blocks' separators.
    fn finish(mut self) -> Result<Segment, SSTableError> {
        self.file.write_pages(self.block.take())?;
        let (first_page, end_page, entry_count) = (self.first_page, self.file.page(), self.entry_count);
        let mut trie = TrieWriter::new(self.file.length());
        self.separators.iter().for_each(|(separator, page)| trie.add(separator, *page));
        let (root, bytes) = trie.finish();
        self.file.write_pages(bytes)?;
        Ok(Segment { first_page, end_page, root, entry_count })
    }
}
