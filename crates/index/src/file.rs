//! Reads index files. The layout is in FORMAT.md. Bytes are untrusted: whatever is wrong is an error that names the
//! place.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use model::{IndexKey, IndexPart};
use sstable::{BlockCache, Corruption, SSTableError, SSTableId, TRIE_PAGE_BYTES, TrieFile};
use types::vint;

use crate::batch::{Batch, Source};

pub(crate) const MAGIC: &[u8; 4] = b"ESPI";
pub(crate) const VERSION: u32 = 3;
/// The position of the footer and the magic number.
const TAIL_BYTES: usize = 12;
const SEGMENT_BYTES: usize = 32;
/// More than a footer has besides checksums of pages and segments.
const FOOTER_HEAD_BYTES_MAX: u64 = 1024;

/// How much of another text than the expected one an error shows.
const TEXT_SHOWN_BYTES: usize = 64;

/// How a file names the part of the column.
pub(crate) fn part_number(part: IndexPart) -> u32 {
    IndexPart::ALL.iter().position(|other| *other == part).unwrap_or_default() as u32
}

/// The SSTable of an index file. A file that belongs to another one is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its id, which no other SSTable ever has.
    pub sstable: SSTableId,
    /// The bytes of its data, uncompressed.
    pub data_bytes: u64,
}

/// Entries that were sorted together: blocks, and the trie that leads to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub first_page: u64,
    /// The page behind the last block.
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
    /// Opens an index of an SSTable. Fails if the file is damaged as far as its footer tells, or belongs to another
    /// index or SSTable. Blocks on the disk.
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
        let (position, bytes) = read_footer(&name, &*file, size_bytes)?;
        let mut footer = Footer { file: &name, position, bytes: &bytes, at: 0 };
        let (crcs, segments) = footer.read(key, origin)?;
        let pages = TrieFile::new(name, file, cache, position, crcs)?;
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

    /// Reads every page; fails at the first that is damaged. Blocks on the disk.
    pub fn verify(self: &Arc<Self>) -> Result<(), SSTableError> {
        for page in 0..self.pages.length() / TRIE_PAGE_BYTES as u64 {
            self.pages.read(page * TRIE_PAGE_BYTES as u64, TRIE_PAGE_BYTES, true)?;
        }
        let mut batch = Batch::default();
        self.parts().try_for_each(|part| {
            let mut start = Vec::new();
            loop {
                batch.clear();
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

    /// The content of the block at a page of a segment, and the page behind the block.
    fn block(&self, page: u64, segment: &Segment, may_block: bool) -> Result<(Vec<u8>, u64), SSTableError> {
        if page < segment.first_page || page >= segment.end_page {
            let position = page.saturating_mul(TRIE_PAGE_BYTES as u64);
            return Err(self.damaged(position, "a block of the segment", format!("page {page}")));
        }
        let position = page * TRIE_PAGE_BYTES as u64;
        let mut content = self.pages.read(position, TRIE_PAGE_BYTES, may_block)?;
        let length = content.first_chunk().map_or(0, |length| u32::from_be_bytes(*length)) as usize;
        let pages = (4 + length as u64).div_ceil(TRIE_PAGE_BYTES as u64);
        if length == 0 || page + pages > segment.end_page {
            return Err(self.damaged(position, "the length of a block within the segment", length));
        }
        if pages > 1 {
            content = self.pages.read(position, 4 + length, may_block)?;
        }
        content.truncate(4 + length);
        content.drain(..4);
        Ok((content, page + pages))
    }
}

fn read_footer(name: &str, file: &dyn File, size_bytes: u64) -> Result<(u64, Vec<u8>), SSTableError> {
    let damaged = |offset, expected: &'static str, got: String| Corruption::new(name, offset, expected, got);
    let Some(tail_position) = size_bytes.checked_sub(TAIL_BYTES as u64) else {
        return Err(damaged(0, "an index file", format!("{size_bytes} bytes")).into());
    };
    let mut tail = [0; TAIL_BYTES];
    file.read_exact_at(&mut tail, tail_position)?;
    let (position, magic) = tail.split_at(8);
    if magic != MAGIC {
        return Err(damaged(tail_position + 8, "the magic number ESPI", format!("{magic:02x?}")).into());
    }
    let position = position.first_chunk().map_or(0, |position| u64::from_be_bytes(*position));
    let is_page = position.is_multiple_of(TRIE_PAGE_BYTES as u64);
    // It has a checksum for each page before it, and not more segments than there are pages.
    let pages = position / TRIE_PAGE_BYTES as u64;
    let length_max = FOOTER_HEAD_BYTES_MAX + pages.saturating_mul(4 + SEGMENT_BYTES as u64);
    let length = tail_position.checked_sub(position).filter(|length| is_page && *length <= length_max);
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
        let expected = "the position of the footer, at a page's start";
        return Err(damaged(tail_position, expected, position.to_string()).into());
    };
    let mut footer = vec![0; length];
    file.read_exact_at(&mut footer, position)?;
    let Some((body, crc)) = footer.split_last_chunk::<4>() else {
        return Err(damaged(position, "a footer with a checksum", format!("{length} bytes")).into());
    };
    let (stored, computed) = (u32::from_be_bytes(*crc), crc32fast::hash(body));
    if stored != computed {
        let expected = format!("checksum {computed:08x} of the footer");
        let at = position + body.len() as u64;
        return Err(Corruption::new(name, at, expected, format!("{stored:08x}")).into());
    }
    footer.truncate(length - 4);
    Ok((position, footer))
}

/// The footer while it is read.
struct Footer<'a> {
    file: &'a str,
    position: u64,
    bytes: &'a [u8],
    at: usize,
}

impl Footer<'_> {
    fn damaged(&self, expected: impl Into<String>, got: impl std::fmt::Display) -> SSTableError {
        Corruption::new(self.file, self.position + self.at as u64, expected.into(), got.to_string()).into()
    }

    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], SSTableError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        let found = found.ok_or_else(|| self.damaged(what, "the end of the footer"))?;
        self.at += N;
        Ok(found)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, SSTableError> {
        Ok(u32::from_be_bytes(self.take(what)?))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, SSTableError> {
        Ok(u64::from_be_bytes(self.take(what)?))
    }

    /// Reads a text with its length. Fails if it is not the wanted one.
    fn text(&mut self, what: &'static str, wanted: &str, expected: impl Fn() -> String) -> Result<(), SSTableError> {
        let length = self.u32(what)? as usize;
        let text = self.bytes.get(self.at..).and_then(|rest| rest.get(..length)).unwrap_or_default();
        if text.len() != length || text != wanted.as_bytes() {
            let got = format!("{:?}", String::from_utf8_lossy(&text[..text.len().min(TEXT_SHOWN_BYTES)]));
            return Err(self.damaged(expected(), got));
        }
        self.at += length;
        Ok(())
    }

    /// Checks what the file belongs to, and reads the checksums of its pages and its segments.
    fn read(&mut self, key: IndexKey, origin: &Origin) -> Result<(Vec<u32>, Vec<Segment>), SSTableError> {
        if &self.take::<4>("the magic number ESPI")? != MAGIC {
            return Err(self.damaged("the magic number ESPI before this", "another"));
        }
        let version = self.u32("a version")?;
        if version != VERSION {
            let what = format!("version {version} of index files");
            return Err(SSTableError::Unsupported { file: self.file.into(), what });
        }
        let stored = self.u32("the id of a column")?;
        if stored != key.column.0 {
            return Err(self.damaged(format!("column {}", key.column.0), stored));
        }
        let stored = self.u32("the number of a part")?;
        if stored != part_number(key.part) {
            return Err(self.damaged(format!("part {}", part_number(key.part)), stored));
        }
        let analysis = key.analysis.to_string();
        self.text("the length of an analysis", &analysis, || format!("the analysis {analysis:?} of text"))?;
        let id = origin.sstable.as_str();
        self.text("the length of an SSTable's id", id, || format!("the id {id} of an SSTable"))?;
        let data_bytes = self.u64("the length of an SSTable")?;
        if data_bytes != origin.data_bytes {
            return Err(self.damaged(format!("an SSTable of {} bytes", origin.data_bytes), data_bytes));
        }
        let page_count = u64::from(self.u32("the number of pages")?);
        if page_count * TRIE_PAGE_BYTES as u64 != self.position {
            return Err(self.damaged(format!("a checksum for each page up to {}", self.position), page_count));
        }
        let crcs = (0..page_count).map(|_| self.u32("the checksum of a page")).collect::<Result<Vec<_>, _>>()?;
        let segment_count = self.u32("the number of segments")? as usize;
        if segment_count.checked_mul(SEGMENT_BYTES) != Some(self.bytes.len() - self.at) {
            return Err(self.damaged("as many segments as the footer has room for", segment_count));
        }
        let segments = (0..segment_count).map(|_| self.segment(page_count)).collect::<Result<Vec<_>, _>>()?;
        Ok((crcs, segments))
    }

    fn segment(&mut self, page_count: u64) -> Result<Segment, SSTableError> {
        let (first_page, end_page) = (self.u64("the first page of a segment")?, self.u64("the end of a segment")?);
        let (root, entry_count) = (self.u64("the root of a trie")?, self.u64("the number of entries")?);
        if first_page >= end_page || end_page > page_count || root >= self.position {
            let got = format!("pages {first_page} to {end_page}, root {root}");
            return Err(self.damaged("a segment within the file", got));
        }
        Ok(Segment { first_page, end_page, root, entry_count })
    }
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
        let mut page = self.file.pages.floor(segment.root, from, may_block)?.unwrap_or(segment.first_page);
        let mut entry = Vec::new();
        while page < segment.end_page {
            let (content, next) = self.file.block(page, segment, may_block)?;
            let mut block = BlockReader { part: self, page, rest: &content, length: content.len() };
            while !block.rest.is_empty() {
                let term_length = block.advance(&mut entry)?;
                if entry.as_slice() < from || (!is_included && entry == from) {
                    continue;
                }
                if entry.as_slice() >= end {
                    batch.end();
                    return Ok(());
                }
                if batch.is_full() {
                    return Ok(());
                }
                batch.push(&entry, term_length);
            }
            page = next;
        }
        batch.end();
        Ok(())
    }
}

/// A block while its entries are read.
struct BlockReader<'a> {
    part: &'a Part,
    page: u64,
    rest: &'a [u8],
    length: usize,
}

impl BlockReader<'_> {
    /// Replaces `entry`, which is the one before, with the next entry. Returns the length of its term.
    fn advance(&mut self, entry: &mut Vec<u8>) -> Result<usize, SSTableError> {
        let at = self.length - self.rest.len();
        let shared = self.number(entry.len(), at)?;
        let length = self.number(self.rest.len(), at)?;
        // The first entry of a block is whole.
        if at == 0 && shared != 0 {
            return Err(self.damaged(at, "a whole entry at the start of a block"));
        }
        let Some((suffix, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.damaged(at, "an entry within its block"));
        };
        let is_after = entry.get(shared..).unwrap_or_default() < suffix;
        if !is_after {
            return Err(self.damaged(at, "an entry after the one before it"));
        }
        entry.truncate(shared);
        entry.extend_from_slice(suffix);
        self.rest = rest;
        self.number(entry.len(), at)
    }

    /// A number up to `max`.
    fn number(&mut self, max: usize, at: usize) -> Result<usize, SSTableError> {
        let number = vint::read_uvint(&mut self.rest).and_then(|number| usize::try_from(number).ok());
        number.filter(|number| *number <= max).ok_or_else(|| self.damaged(at, "the lengths of an entry"))
    }

    #[cold]
    fn damaged(&self, at: usize, expected: &'static str) -> SSTableError {
        let position = self.page * TRIE_PAGE_BYTES as u64 + 4 + at as u64;
        self.part.file.damaged(position, expected, "other bytes")
    }
}
