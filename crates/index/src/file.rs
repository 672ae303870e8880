//! Reads index files. The layout is in FORMAT.md. Bytes are untrusted: damage is an error that names the place.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions};
use model::IndexKey;
use sstable::{BlockCache, Corruption, SSTableError, TRIE_PAGE_BYTES, TrieFile, TriePage};

use crate::batch::{Batch, Mark, Source};
use crate::block::{BlockHead, BlockReader, Damage, HEAD_BYTES};
use crate::paged::{Footer, FooterBytes, Form, Origin};

/// The form of these files.
pub(crate) const FORM: Form = Form { magic: b"ESPI", version: 6, segment_bytes: 32 };

/// Entries that were sorted together: their blocks, and a trie over the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub first_page: u64,
    /// The page after the last block.
    pub end_page: u64,
    /// The position of the trie's root.
    pub root: u64,
    pub entry_count: u64,
}

/// An open index file. Thread-safe.
#[derive(Debug)]
pub struct IndexFile {
    pages: TrieFile,
    segments: Vec<Segment>,
    size_bytes: u64,
}

impl IndexFile {
    /// Opens an index of an SSTable. Fails if its footer shows that the file is damaged, or belongs to another index or
    /// SSTable. Blocks on the disk.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        key: IndexKey,
        origin: &Origin,
        cache: &BlockCache,
    ) -> Result<IndexFile, SSTableError> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let file = disk.open(path, OpenOptions::read())?;
        let size_bytes = file.len()?;
        let bytes = FooterBytes::read(FORM, &name, &*file, size_bytes)?;
        let mut footer = bytes.content(&name);
        let (crcs, segment_count) = footer.head(FORM, key, origin)?;
        let segments = (0..segment_count).map(|_| segment(&mut footer, crcs.len() as u64));
        let segments = segments.collect::<Result<Vec<_>, _>>()?;
        let pages = TrieFile::new(name, file, cache, bytes.position, crcs)?;
        Ok(IndexFile { pages, segments, size_bytes })
    }

    /// The size of the file, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The number of entries.
    pub fn entry_count(&self) -> u64 {
        self.segments.iter().map(|segment| segment.entry_count).sum()
    }

    /// The number of entries of each segment.
    pub fn segment_entry_counts(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| segment.entry_count).collect()
    }

    /// The segments, each a source of its own.
    pub fn parts(self: &Arc<Self>) -> impl Iterator<Item = impl Source + use<>> + use<> {
        let file = self.clone();
        (0..self.segments.len()).map(move |segment| Part { file: file.clone(), segment })
    }

    /// Reads every page. Fails at the first damaged one. Blocks on the disk.
    pub fn verify(self: &Arc<Self>) -> Result<(), SSTableError> {
        for page in 0..self.pages.length() / TRIE_PAGE_BYTES as u64 {
            self.pages.read(page * TRIE_PAGE_BYTES as u64, TRIE_PAGE_BYTES, true)?;
        }
        let mut batch = Batch::default();
        self.parts().try_for_each(|part| {
            let mut start = Vec::new();
            batch.clear();
            loop {
                batch.clear_to_read_on();
                part.read(Bound::Excluded(&start), &[0xff], true, &mut batch)?;
                match batch.len().checked_sub(1).and_then(|last| batch.entry(last)) {
                    Some(last) if !batch.is_last() => start = last.to_vec(),
                    _ => return Ok(()),
                }
            }
        })
    }

    fn damaged(&self, position: u64, expected: &'static str, got: impl std::fmt::Display) -> SSTableError {
        Corruption::new(self.pages.name(), position, expected, got.to_string()).into()
    }

    /// The block at a page of a segment.
    fn block(&self, page: u64, segment: &Segment, may_block: bool) -> Result<Block, SSTableError> {
        if page < segment.first_page || page >= segment.end_page {
            let position = page.saturating_mul(TRIE_PAGE_BYTES as u64);
            return Err(self.damaged(position, "a block of the segment", format!("page {page}")));
        }
        let position = page * TRIE_PAGE_BYTES as u64;
        let first = self.pages.page(page, may_block)?;
        let head = BlockHead::read(first.first_chunk().copied().unwrap_or_default());
        let length = HEAD_BYTES + head.length;
        let pages = (length as u64).div_ceil(TRIE_PAGE_BYTES as u64);
        if head.length == 0 || page + pages > segment.end_page {
            return Err(self.damaged(position, "the length of a block within the segment", head.length));
        }
        let bytes = match pages {
            1 => BlockBytes::Cached(first),
            _ => BlockBytes::Copied(self.pages.read(position, length, may_block)?),
        };
        Ok(Block { bytes, head, next_page: page + pages })
    }

    #[cold]
    fn damaged_block(&self, page: u64, damage: Damage) -> SSTableError {
        let position = page * TRIE_PAGE_BYTES as u64 + (HEAD_BYTES + damage.at) as u64;
        self.damaged(position, damage.expected, "other bytes")
    }
}

/// A block that was read.
struct Block {
    bytes: BlockBytes,
    head: BlockHead,
    /// The page after the block.
    next_page: u64,
}

/// The head and the content of a block.
enum BlockBytes {
    /// A block of one page, which is shared with the cache.
    Cached(TriePage),
    Copied(Vec<u8>),
}

impl Block {
    fn content(&self) -> &[u8] {
        let bytes: &[u8] = match &self.bytes {
            BlockBytes::Cached(page) => page,
            BlockBytes::Copied(bytes) => bytes.as_slice(),
        };
        bytes.get(HEAD_BYTES..HEAD_BYTES + self.head.length).unwrap_or_default()
    }
}

/// Reads a segment of a file with this number of pages.
fn segment(footer: &mut Footer<'_>, page_count: u64) -> Result<Segment, SSTableError> {
    let (first_page, end_page) = (footer.u64("the first page of a segment")?, footer.u64("the end of a segment")?);
    let (root, entry_count) = (footer.u64("the root of a trie")?, footer.u64("the number of entries")?);
    if first_page >= end_page || end_page > page_count || root >= page_count * TRIE_PAGE_BYTES as u64 {
        let got = format!("pages {first_page} to {end_page}, root {root}");
        return Err(footer.damaged("a segment within the file", got));
    }
    Ok(Segment { first_page, end_page, root, entry_count })
}

/// A segment of a file.
#[derive(Clone, Debug)]
struct Part {
    file: Arc<IndexFile>,
    segment: usize,
}

impl Source for Part {
    fn read(&self, start: Bound<&[u8]>, end: &[u8], may_block: bool, batch: &mut Batch) -> Result<(), SSTableError> {
        let segment = &self.file.segments[self.segment];
        let (from, is_included) = match start {
            Bound::Included(from) => (from, true),
            Bound::Excluded(from) => (from, false),
            Bound::Unbounded => (&[][..], true),
        };
        let floor = self.file.pages.floor(segment.root, from, may_block)?.unwrap_or(segment.first_page);
        // After the mark nothing is read twice, unless the first entry is in a later block.
        let mut mark = batch.take_mark().filter(|mark| mark.page >= floor);
        let mut page = mark.as_ref().map_or(floor, |mark| mark.page);
        let mut filter = EntryFilter { from, is_included, end, is_reached: false };
        while page < segment.end_page {
            let stored = self.file.block(page, segment, may_block)?;
            let damaged = |damage| self.file.damaged_block(page, damage);
            let is_after_start = filter.is_reached || mark.is_some();
            let block = match mark.take() {
                Some(mark) => BlockReader::resume(stored.content(), stored.head, mark),
                None => BlockReader::new(stored.content(), stored.head),
            };
            let mut block = block.map_err(damaged)?;
            let has_entry = if is_after_start { block.advance() } else { block.advance_to(from) }.map_err(damaged)?;
            if has_entry && filter.add(block, (page, stored.next_page), batch).map_err(damaged)? {
                return Ok(());
            }
            page = stored.next_page;
        }
        batch.end();
        Ok(())
    }
}

/// The entries of a file that a read wants.
struct EntryFilter<'w> {
    from: &'w [u8],
    is_included: bool,
    end: &'w [u8],
    /// Whether all further entries follow the first wanted one.
    is_reached: bool,
}

impl EntryFilter<'_> {
    /// Adds the wanted entries of a block, from its current entry on. Returns whether the batch is complete.
    fn add(
        &mut self,
        mut block: BlockReader<'_>,
        (page, next_page): (u64, u64),
        batch: &mut Batch,
    ) -> Result<bool, Damage> {
        loop {
            let entry = batch.read(|bytes| block.read(bytes))?;
            self.is_reached = self.is_reached || if self.is_included { entry >= self.from } else { entry > self.from };
            if self.is_reached {
                if entry >= self.end {
                    batch.end();
                    return Ok(true);
                }
                batch.keep_last(block.term().len(), block.position());
                if batch.is_full() {
                    let behind = Mark { page: next_page, at: 0, term: Vec::new(), key: Vec::new() };
                    batch.set_mark(block.mark(page).unwrap_or(behind));
                    return Ok(true);
                }
            }
            if !block.advance()? {
                return Ok(false);
            }
        }
    }
}
