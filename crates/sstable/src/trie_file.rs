//! Tries in the files of other crates: the trie of Partitions.db, with numbers as payloads, in pages that are read
//! through the shared cache and verified against checksums that the owner of the file keeps.

use std::ops::Deref;

use blockio::File;

use crate::cache::{Block, BlockCache};
use crate::error::{Corruption, SSTableError};
use crate::index_file::IndexFile;
use crate::page_checksums::ComponentChecksums;
use crate::trie::{EntryCursor, PAGE_SIZE, Pages, Payload, TrieBuilder, read_sized, sized_length};

/// The bytes of a page. No node of a trie crosses the border of a page.
pub const TRIE_PAGE_BYTES: usize = PAGE_SIZE;

/// Makes a trie of ascending keys with a number each.
#[derive(Debug)]
pub struct TrieWriter(TrieBuilder);

impl TrieWriter {
    /// A writer of a trie whose first byte is at `position` of the file, which must be a page's start.
    pub fn new(position: u64) -> Self {
        debug_assert!(position.is_multiple_of(PAGE_SIZE as u64), "a trie starts with a page");
        TrieWriter(TrieBuilder::new(position))
    }

    /// Adds a key with a number below 2^63. Keys must ascend strictly; the first may be empty.
    pub fn add(&mut self, key: &[u8], number: u64) {
        debug_assert!(number <= i64::MAX as u64, "numbers are below 2^63");
        let size = sized_length(number as i64);
        let mut payload = Payload::new(size as u8);
        payload.push_sized(number as i64, size);
        self.0.add(key, payload);
    }

    /// The position of the root, and the bytes of the trie.
    pub fn finish(mut self) -> (u64, Vec<u8>) {
        let root = self.0.complete();
        let mut bytes = Vec::new();
        self.0.drain(&mut bytes);
        (root, bytes)
    }
}

/// A page in the cache, which keeps the page at least as long as this exists.
#[derive(Debug)]
pub struct TriePage(Block);

impl Deref for TriePage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The pages of a file that holds tries and other content. Thread-safe.
#[derive(Debug)]
pub struct TrieFile(IndexFile);

impl TrieFile {
    /// The first `length` bytes of a file, of which each page has a CRC-32 in `crcs`. Fails if the file is shorter. The
    /// name is for errors.
    pub fn new(
        name: String,
        file: Box<dyn File>,
        cache: &BlockCache,
        length: u64,
        crcs: Vec<u32>,
    ) -> Result<TrieFile, SSTableError> {
        let checksums = ComponentChecksums { length, crcs };
        Ok(TrieFile(IndexFile::part(name, file, cache.clone(), checksums)?))
    }

    /// Its name, for errors.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The length of the pages, bytes.
    pub fn length(&self) -> u64 {
        self.0.length()
    }

    /// The page with this number. With `may_block` false it fails where it would have to wait for a device.
    pub fn page(&self, number: u64, may_block: bool) -> Result<TriePage, SSTableError> {
        self.0.block(number, may_block).map(TriePage)
    }

    /// Exactly `length` bytes at `position`. With `may_block` false it fails where it would have to wait for a device.
    pub fn read(&self, position: u64, length: usize, may_block: bool) -> Result<Vec<u8>, SSTableError> {
        let mut out = Vec::new();
        self.read_into(position, length, may_block, &mut out)?;
        Ok(out)
    }

    /// As [`read`](Self::read), into a vector whose content is replaced.
    pub fn read_into(
        &self,
        position: u64,
        length: usize,
        may_block: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), SSTableError> {
        let left = self.0.length().saturating_sub(position);
        if (length as u64) > left {
            let expected = format!("{length} bytes");
            return Err(Corruption::new(self.0.name(), position, expected, format!("{left} bytes")).into());
        }
        self.0.read_into(position, length, may_block, out)
    }

    /// Passes exactly `length` bytes at `position` to `take`: as they lie in the cache if they are in one page, else a
    /// copy in `buffer`. Blocks on the disk where the cache lacks them.
    pub fn with<T>(
        &self,
        position: u64,
        length: usize,
        buffer: &mut Vec<u8>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, SSTableError> {
        let start = (position % PAGE_SIZE as u64) as usize;
        if start + length <= PAGE_SIZE && position + length as u64 <= self.0.length() {
            let page = self.0.pages(true).page(position / PAGE_SIZE as u64)?;
            if let Some(bytes) = page.get(start..start + length) {
                return Ok(take(bytes));
            }
        }
        self.read_into(position, length, true, buffer)?;
        Ok(take(buffer))
    }

    /// The number of the greatest key at or before `key` in the trie with this root; `None` if all keys are greater.
    pub fn floor(&self, root: u64, key: &[u8], may_block: bool) -> Result<Option<u64>, SSTableError> {
        let mut cursor = EntryCursor::new(self.0.pages(may_block), root)?;
        if !cursor.seek_floor(key)? {
            return Ok(None);
        }
        let (bits, bytes) = cursor.payload();
        let number = bytes.get(..usize::from(bits)).filter(|bytes| bytes.len() <= 8).map(read_sized);
        match number.and_then(|number| u64::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(Corruption::new(self.0.name(), cursor.position(), "a number as payload", "another").into()),
        }
    }
}
