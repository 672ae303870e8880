//! Writes an index file. The layout is in FORMAT.md.

use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use bytecomp::separator::write_separator_after;
use model::IndexKey;
use sstable::{SSTableError, TrieWriter};

use crate::batch::UNKNOWN;
use crate::block::{BlockWriter, POSITION_BYTES_MAX};
use crate::file::{FORM, Segment};
use crate::paged::{Origin, PagedWriter};

/// The bytes of entries that are sorted in memory. More of them make another segment.
const SEGMENT_BYTES: usize = 32 << 20;

/// An index file that is being written, under a temporary name until it is complete and durable. The file is removed if
/// this is dropped before.
pub struct IndexWriter {
    file: PagedWriter,
    segments: Vec<Segment>,
    /// The entries of the next segment, in order of arrival.
    bytes: Vec<u8>,
    entries: Vec<Unsorted>,
    segment_bytes: usize,
}

/// An entry in the bytes of the next segment.
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
        IndexWriter::with_segments(disk, path, SEGMENT_BYTES)
    }

    /// As [`create`](Self::create), with segments of about this many bytes of entries.
    pub fn with_segments(disk: &Arc<dyn Disk>, path: &Path, segment_bytes: usize) -> Result<IndexWriter, SSTableError> {
        let file = PagedWriter::create(disk, path)?;
        Ok(IndexWriter { file, segments: Vec::new(), bytes: Vec::new(), entries: Vec::new(), segment_bytes })
    }

    /// Adds an entry, with the position of its partition in the SSTable's data if that may be used. Entries come in any
    /// order, and the same one may come again.
    pub fn add(&mut self, entry: &[u8], term_length: usize, position: Option<u64>) -> Result<(), SSTableError> {
        debug_assert!(term_length <= entry.len(), "a term is a part of its entry");
        if !self.entries.is_empty() && self.bytes.len() + entry.len() > self.segment_bytes {
            self.write_segment()?;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(entry);
        let end = self.bytes.len() as u32;
        let (position, term_length) = (position.unwrap_or(UNKNOWN), term_length as u16);
        self.entries.push(Unsorted { position, start, end, term_length });
        Ok(())
    }

    /// Writes the rest and gives the file its name. The bytes are durable when this returns; the name is once the
    /// directory is synced.
    pub fn finish(mut self, key: IndexKey, origin: &Origin) -> Result<(), SSTableError> {
        if !self.entries.is_empty() {
            self.write_segment()?;
        }
        let mut segments = Vec::new();
        for segment in &self.segments {
            let Segment { first_page, end_page, root, entry_count } = segment;
            [first_page, end_page, root, entry_count].iter().for_each(|n| segments.extend_from_slice(&n.to_be_bytes()));
        }
        self.file.finish(FORM, key, origin, &segments)
    }

    /// Sorts the entries, and writes them as blocks and a trie.
    fn write_segment(&mut self) -> Result<(), SSTableError> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut entries = std::mem::take(&mut self.entries);
        let entry = |place: &Unsorted| &bytes[place.start as usize..place.end as usize];
        entries.sort_unstable_by(|one, other| entry(one).cmp(entry(other)));
        entries.dedup_by(|one, other| entry(one) == entry(other));
        let first_page = self.file.page();
        let mut separators: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut block = BlockWriter::new(position_bytes(&entries));
        let mut previous: &[u8] = &[];
        for place in &entries {
            let next = entry(place);
            let is_first = block.is_empty();
            if !block.add(next, place.term_length.into(), place.position) {
                self.file.write_pages(block.take())?;
                block.add(next, place.term_length.into(), place.position);
            } else if !is_first {
                previous = next;
                continue;
            }
            let mut separator = Vec::new();
            if !separators.is_empty() {
                write_separator_after(previous, next, &mut separator);
            }
            separators.push((separator, self.file.page()));
            previous = next;
        }
        self.file.write_pages(block.take())?;
        let end_page = self.file.page();
        let root = self.write_trie(&separators)?;
        self.segments.push(Segment { first_page, end_page, root, entry_count: entries.len() as u64 });
        (self.bytes, self.entries) = (bytes, entries);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    /// Writes the trie of the blocks' separators. Returns the position of its root.
    fn write_trie(&mut self, separators: &[(Vec<u8>, u64)]) -> Result<u64, SSTableError> {
        let mut trie = TrieWriter::new(self.file.length());
        separators.iter().for_each(|(separator, page)| trie.add(separator, *page));
        let (root, bytes) = trie.finish();
        self.file.write_pages(bytes)?;
        Ok(root)
    }
}

/// The bytes that the positions of these entries need; 0 if one of them is not known.
fn position_bytes(entries: &[Unsorted]) -> usize {
    let greatest = entries.iter().map(|entry| entry.position).max().unwrap_or(UNKNOWN);
    let bytes = (u64::BITS - greatest.leading_zeros()).div_ceil(8).max(1) as usize;
    if bytes <= POSITION_BYTES_MAX { bytes } else { 0 }
}
