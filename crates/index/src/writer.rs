//! Writes an index file. The layout is in FORMAT.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use bytecomp::separator::write_separator_after;
use model::IndexKey;
use sstable::{SSTableError, TRIE_PAGE_BYTES, TrieWriter};
use types::vint;

use crate::file::{MAGIC, Origin, Segment, VERSION, part_number};

/// The bytes of entries that are sorted in memory. More of them make another segment.
const SEGMENT_BYTES: usize = 32 << 20;
/// A block ends when its entries reach this size, bytes. Most blocks then fit a page.
const BLOCK_BYTES: usize = TRIE_PAGE_BYTES - 4;

/// An index file that is being written, under a temporary name until it is complete and durable. The file is removed if
/// this is dropped before.
pub struct IndexWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    temporary: PathBuf,
    file: Box<dyn File>,
    /// The length of the file so far.
    length: u64,
    crcs: Vec<u32>,
    segments: Vec<Segment>,
    /// The entries of the next segment, in order of arrival.
    bytes: Vec<u8>,
    entries: Vec<Unsorted>,
    segment_bytes: usize,
    is_complete: bool,
}

/// An entry in the bytes of the next segment.
#[derive(Clone, Copy)]
struct Unsorted {
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
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let file = disk.open(&temporary, OpenOptions::create())?;
        Ok(IndexWriter {
            disk: disk.clone(),
            path: path.to_owned(),
            temporary,
            file,
            length: 0,
            crcs: Vec::new(),
            segments: Vec::new(),
            bytes: Vec::new(),
            entries: Vec::new(),
            segment_bytes,
            is_complete: false,
        })
    }

    /// Adds an entry. Entries come in any order, and the same one may come again.
    pub fn add(&mut self, entry: &[u8], term_length: usize) -> Result<(), SSTableError> {
        debug_assert!(term_length <= entry.len(), "a term is a part of its entry");
        if !self.entries.is_empty() && self.bytes.len() + entry.len() > self.segment_bytes {
            self.write_segment()?;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(entry);
        let end = self.bytes.len() as u32;
        self.entries.push(Unsorted { start, end, term_length: term_length as u16 });
        Ok(())
    }

    /// Writes the rest and gives the file its name. The bytes are durable when this returns; the name is once the
    /// directory is synced.
    pub fn finish(mut self, key: IndexKey, origin: &Origin) -> Result<(), SSTableError> {
        if !self.entries.is_empty() {
            self.write_segment()?;
        }
        let footer = self.footer(key, origin);
        self.file.write_at(&footer, self.length)?;
        self.file.sync_data()?;
        self.disk.rename(&self.temporary, &self.path)?;
        self.is_complete = true;
        Ok(())
    }

    fn footer(&self, key: IndexKey, origin: &Origin) -> Vec<u8> {
        debug_assert_eq!(self.length, (self.crcs.len() * TRIE_PAGE_BYTES) as u64, "every page has a checksum");
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&key.column.0.to_be_bytes());
        out.extend_from_slice(&part_number(key.part).to_be_bytes());
        push_text(&key.analysis.to_string(), &mut out);
        push_text(origin.sstable.as_str(), &mut out);
        out.extend_from_slice(&origin.data_bytes.to_be_bytes());
        out.extend_from_slice(&(self.crcs.len() as u32).to_be_bytes());
        out.extend(self.crcs.iter().flat_map(|crc| crc.to_be_bytes()));
        out.extend_from_slice(&(self.segments.len() as u32).to_be_bytes());
        for segment in &self.segments {
            out.extend_from_slice(&segment.first_page.to_be_bytes());
            out.extend_from_slice(&segment.end_page.to_be_bytes());
            out.extend_from_slice(&segment.root.to_be_bytes());
            out.extend_from_slice(&segment.entry_count.to_be_bytes());
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(MAGIC);
        out
    }

    /// Sorts the entries, and writes them as blocks and a trie.
    fn write_segment(&mut self) -> Result<(), SSTableError> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut entries = std::mem::take(&mut self.entries);
        let entry = |place: &Unsorted| &bytes[place.start as usize..place.end as usize];
        entries.sort_unstable_by(|one, other| entry(one).cmp(entry(other)));
        entries.dedup_by(|one, other| entry(one) == entry(other));
        let first_page = self.length / TRIE_PAGE_BYTES as u64;
        let mut separators: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut block = Block::default();
        let mut previous: &[u8] = &[];
        for place in &entries {
            let next = entry(place);
            if block.is_full_for(next) {
                self.write_block(&mut block)?;
            }
            if block.content.is_empty() {
                let mut separator = Vec::new();
                if !separators.is_empty() {
                    write_separator_after(previous, next, &mut separator);
                }
                separators.push((separator, self.length / TRIE_PAGE_BYTES as u64));
            }
            block.add(next, place.term_length);
            previous = next;
        }
        self.write_block(&mut block)?;
        let end_page = self.length / TRIE_PAGE_BYTES as u64;
        let root = self.write_trie(&separators)?;
        self.segments.push(Segment { first_page, end_page, root, entry_count: entries.len() as u64 });
        (self.bytes, self.entries) = (bytes, entries);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    fn write_block(&mut self, block: &mut Block) -> Result<(), SSTableError> {
        let mut bytes = (block.content.len() as u32).to_be_bytes().to_vec();
        bytes.append(&mut block.content);
        block.last.clear();
        self.write_pages(bytes)
    }

    /// Writes the trie of the blocks' separators. Returns the position of its root.
    fn write_trie(&mut self, separators: &[(Vec<u8>, u64)]) -> Result<u64, SSTableError> {
        let mut trie = TrieWriter::new(self.length);
        separators.iter().for_each(|(separator, page)| trie.add(separator, *page));
        let (root, bytes) = trie.finish();
        self.write_pages(bytes)?;
        Ok(root)
    }

    /// Appends bytes, and zeros up to the end of the page.
    fn write_pages(&mut self, mut bytes: Vec<u8>) -> Result<(), SSTableError> {
        bytes.resize(bytes.len().next_multiple_of(TRIE_PAGE_BYTES), 0);
        self.file.write_at(&bytes, self.length)?;
        self.crcs.extend(bytes.chunks(TRIE_PAGE_BYTES).map(crc32fast::hash));
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        if !self.is_complete {
            // Best effort: the next start removes what stays behind.
            let _ = self.disk.remove_file(&self.temporary);
        }
    }
}

/// The entries of a block. Each shares its beginning with the one before.
#[derive(Default)]
struct Block {
    content: Vec<u8>,
    last: Vec<u8>,
}

impl Block {
    /// Whether an entry does not fit any more. The first entry fits always.
    fn is_full_for(&self, entry: &[u8]) -> bool {
        let added = 3 * vint::uvint_size(entry.len() as u64) + entry.len() - self.shared_with(entry);
        !self.content.is_empty() && self.content.len() + added > BLOCK_BYTES
    }

    fn shared_with(&self, entry: &[u8]) -> usize {
        self.last.iter().zip(entry).take_while(|(one, other)| one == other).count()
    }

    fn add(&mut self, entry: &[u8], term_length: u16) {
        let shared = self.shared_with(entry);
        vint::write_uvint(shared as u64, &mut self.content);
        vint::write_uvint((entry.len() - shared) as u64, &mut self.content);
        self.content.extend_from_slice(&entry[shared..]);
        vint::write_uvint(u64::from(term_length), &mut self.content);
        self.last.truncate(shared);
        self.last.extend_from_slice(&entry[shared..]);
    }
}
