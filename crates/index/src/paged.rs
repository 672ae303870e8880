//! The common layout of all files of this crate: pages with checksums, then a footer that names the SSTable and the
//! index of the file. FORMAT.md describes it. Bytes are untrusted: damage is an error that names the place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use model::{IndexKey, IndexPart};
use sstable::{Corruption, SSTableError, SSTableId, TRIE_PAGE_BYTES};
use types::Similarity;

/// The position of the footer and the magic number.
const TAIL_BYTES: usize = 12;
/// A limit for the size of a footer without the checksums of pages and the segments, bytes.
const FOOTER_HEAD_BYTES_MAX: u64 = 1024;
/// The number of characters that an error shows of a text that differs from the expected one.
const TEXT_SHOWN_BYTES: usize = 64;

/// The SSTable of an index file. A file of another SSTable is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The id of the SSTable, which is unique.
    pub sstable: SSTableId,
    /// The bytes of its data, uncompressed.
    pub data_bytes: u64,
}

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub magic: &'static [u8; 4],
    /// The version. Files of another version are refused, and built again.
    pub version: u32,
    /// The size of a segment's part of the footer, bytes.
    pub segment_bytes: usize,
}

/// The name of the column's indexed part in a file.
pub(crate) fn part_number(part: IndexPart) -> u32 {
    match part {
        IndexPart::Whole => 0,
        IndexPart::Values => 1,
        IndexPart::Keys => 2,
        IndexPart::Entries => 3,
        IndexPart::Vectors(Similarity::Euclidean) => 4,
        IndexPart::Vectors(Similarity::DotProduct) => 5,
        IndexPart::Vectors(Similarity::Cosine) => 6,
    }
}

/// The error of a build that was stopped.
pub(crate) fn stopped() -> SSTableError {
    SSTableError::Unwritable { what: "the building of an index was stopped".into() }
}

/// A file that is being written, under a temporary name until it is complete and durable. The file is removed if this
/// is dropped before.
pub(crate) struct PagedWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    temporary: PathBuf,
    file: Box<dyn File>,
    /// The length of the file so far.
    length: u64,
    crcs: Vec<u32>,
    is_complete: bool,
}

impl PagedWriter {
    /// Starts a file at `path`, in a directory that exists.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path) -> Result<PagedWriter, SSTableError> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let file = disk.open(&temporary, OpenOptions::create())?;
        let (disk, path) = (disk.clone(), path.to_owned());
        Ok(PagedWriter { disk, path, temporary, file, length: 0, crcs: Vec::new(), is_complete: false })
    }

    /// The length of the file so far: a multiple of the page size.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The number of pages so far.
    pub fn page(&self) -> u64 {
        self.length / TRIE_PAGE_BYTES as u64
    }

    /// Appends bytes, and zeros up to the end of the page.
    pub fn write_pages(&mut self, mut bytes: Vec<u8>) -> Result<(), SSTableError> {
        bytes.resize(bytes.len().next_multiple_of(TRIE_PAGE_BYTES), 0);
        self.file.write_at(&bytes, self.length)?;
        self.crcs.extend(bytes.chunks(TRIE_PAGE_BYTES).map(crc32fast::hash));
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes the footer and gives the file its name. The bytes are durable when this returns; the name is once the
    /// directory is synced. `segments` has the segments' part of the footer.
    pub fn finish(mut self, form: Form, key: IndexKey, origin: &Origin, segments: &[u8]) -> Result<(), SSTableError> {
        debug_assert!(segments.len().is_multiple_of(form.segment_bytes), "segments of the form's size");
        let footer = self.footer(form, key, origin, segments);
        self.file.write_at(&footer, self.length)?;
        self.file.sync_data()?;
        self.disk.rename(&self.temporary, &self.path)?;
        self.is_complete = true;
        Ok(())
    }

    fn footer(&self, form: Form, key: IndexKey, origin: &Origin, segments: &[u8]) -> Vec<u8> {
        debug_assert_eq!(self.length, (self.crcs.len() * TRIE_PAGE_BYTES) as u64, "every page has a checksum");
        let mut out = form.magic.to_vec();
        out.extend_from_slice(&form.version.to_be_bytes());
        out.extend_from_slice(&key.column.0.to_be_bytes());
        out.extend_from_slice(&part_number(key.part).to_be_bytes());
        push_text(&key.analysis.to_string(), &mut out);
        push_text(origin.sstable.as_str(), &mut out);
        out.extend_from_slice(&origin.data_bytes.to_be_bytes());
        out.extend_from_slice(&(self.crcs.len() as u32).to_be_bytes());
        out.extend(self.crcs.iter().flat_map(|crc| crc.to_be_bytes()));
        out.extend_from_slice(&((segments.len() / form.segment_bytes) as u32).to_be_bytes());
        out.extend_from_slice(segments);
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(form.magic);
        out
    }
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl Drop for PagedWriter {
    fn drop(&mut self) {
        if !self.is_complete {
            // An error is ignored, because the next start removes temporary files.
            let _ = self.disk.remove_file(&self.temporary);
        }
    }
}

/// A footer that was read, whose checksum is right.
pub(crate) struct FooterBytes {
    /// The offset of the footer, which is the end of the pages.
    pub position: u64,
    bytes: Vec<u8>,
}

impl FooterBytes {
    /// Reads the footer of a file. Blocks on the disk.
    pub fn read(form: Form, name: &str, file: &dyn File, size_bytes: u64) -> Result<FooterBytes, SSTableError> {
        let damaged = |offset, expected: &'static str, got: String| Corruption::new(name, offset, expected, got);
        let Some(tail_position) = size_bytes.checked_sub(TAIL_BYTES as u64) else {
            return Err(damaged(0, "an index file", format!("{size_bytes} bytes")).into());
        };
        let mut tail = [0; TAIL_BYTES];
        file.read_exact_at(&mut tail, tail_position)?;
        let (position, magic) = tail.split_at(8);
        if magic != form.magic {
            let expected = format!("the magic number {}", String::from_utf8_lossy(form.magic));
            return Err(Corruption::new(name, tail_position + 8, expected, format!("{magic:02x?}")).into());
        }
        let position = position.first_chunk().map_or(0, |position| u64::from_be_bytes(*position));
        let is_page = position.is_multiple_of(TRIE_PAGE_BYTES as u64);
        // It has a checksum for each page before it, and not more segments than there are pages.
        let pages = position / TRIE_PAGE_BYTES as u64;
        let length_max = FOOTER_HEAD_BYTES_MAX.saturating_add(pages.saturating_mul(4 + form.segment_bytes as u64));
        let length = tail_position.checked_sub(position).filter(|length| is_page && *length <= length_max);
        let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
            let expected = "the position of the footer, at a page's start";
            return Err(damaged(tail_position, expected, position.to_string()).into());
        };
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, position)?;
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged(position, "a footer with a checksum", format!("{length} bytes")).into());
        };
        let (stored, computed) = (u32::from_be_bytes(*crc), crc32fast::hash(body));
        if stored != computed {
            let expected = format!("checksum {computed:08x} of the footer");
            let at = position + body.len() as u64;
            return Err(Corruption::new(name, at, expected, format!("{stored:08x}")).into());
        }
        bytes.truncate(length - 4);
        Ok(FooterBytes { position, bytes })
    }

    /// The content of the footer.
    pub fn content<'a>(&'a self, file: &'a str) -> Footer<'a> {
        Footer { file, position: self.position, bytes: &self.bytes, at: 0 }
    }
}

/// A footer while it is read.
pub(crate) struct Footer<'a> {
    file: &'a str,
    position: u64,
    bytes: &'a [u8],
    at: usize,
}

impl Footer<'_> {
    pub fn damaged(&self, expected: impl Into<String>, got: impl std::fmt::Display) -> SSTableError {
        Corruption::new(self.file, self.position + self.at as u64, expected.into(), got.to_string()).into()
    }

    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], SSTableError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        let found = found.ok_or_else(|| self.damaged(what, "the end of the footer"))?;
        self.at += N;
        Ok(found)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, SSTableError> {
        Ok(u32::from_be_bytes(self.take(what)?))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, SSTableError> {
        Ok(u64::from_be_bytes(self.take(what)?))
    }

    pub fn f32(&mut self, what: &'static str) -> Result<f32, SSTableError> {
        Ok(f32::from_be_bytes(self.take(what)?))
    }

    /// Reads a text with its length. Fails if it is not the expected one.
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

    /// Checks to which SSTable and index the file belongs. Then reads the checksums of its pages and the number of its
    /// segments.
    pub fn head(&mut self, form: Form, key: IndexKey, origin: &Origin) -> Result<(Vec<u32>, usize), SSTableError> {
        if &self.take::<4>("a magic number")? != form.magic {
            return Err(self.damaged("the magic number before this", "another"));
        }
        let version = self.u32("a version")?;
        if version != form.version {
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
        if segment_count.checked_mul(form.segment_bytes) != Some(self.bytes.len() - self.at) {
            return Err(self.damaged("as many segments as the footer has room for", segment_count));
        }
        Ok((crcs, segment_count))
    }
}
