//! Partitions.db and Rows.db as pages read through the cache.

use std::ops::Deref;

use blockio::{DiskError, File};

use crate::cache::{Block, BlockCache, Lent, NotCached};
use crate::cached_file::CachedFile;
use crate::error::{Corruption, SSTableError};
use crate::page_checksums::ComponentChecksums;
use crate::trie::{PAGE_SIZE, Pages};

/// An index file, read page by page.
#[derive(Debug)]
pub(crate) struct IndexFile {
    name: String,
    file: Box<dyn File>,
    length: u64,
    pages: CachedFile,
    checksums: Option<ComponentChecksums>,
}

impl IndexFile {
    /// Pages are verified against `checksums` when they are read.
    pub fn new(
        name: String,
        file: Box<dyn File>,
        cache: BlockCache,
        checksums: Option<ComponentChecksums>,
    ) -> Result<Self, SSTableError> {
        let length = file.len()?;
        if let Some(checksums) = &checksums {
            checksums.check_length(&name, length)?;
        }
        Ok(IndexFile { name, file, length, pages: CachedFile::new(cache), checksums })
    }

    /// The first part of a file, as long as its checksums say.
    pub fn part(
        name: String,
        file: Box<dyn File>,
        cache: BlockCache,
        checksums: ComponentChecksums,
    ) -> Result<Self, SSTableError> {
        let length = file.len()?;
        if length < checksums.length {
            let expected = format!("pages up to {}", checksums.length);
            return Err(Corruption::new(&name, length, expected, "the end of the file").into());
        }
        let length = checksums.length;
        Ok(IndexFile { name, file, length, pages: CachedFile::new(cache), checksums: Some(checksums) })
    }

    /// A file without content, in place of one that cannot be read.
    pub fn empty(name: String, file: Box<dyn File>, cache: BlockCache) -> Self {
        IndexFile { name, file, length: 0, pages: CachedFile::new(cache), checksums: None }
    }

    /// The bytes held in memory outside of the cache.
    pub fn memory_bytes(&self) -> usize {
        self.checksums.as_ref().map_or(0, |checksums| checksums.crcs.len() * 4)
    }

    /// Name of the file, for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Up to `length` bytes at `position`, fewer only at the end of the file.
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
        out.clear();
        out.reserve(length);
        let mut at = position;
        while out.len() < length && at < self.length {
            let page = self.block(at / PAGE_SIZE as u64, may_block)?;
            let rest = page.get((at % PAGE_SIZE as u64) as usize..).unwrap_or_default();
            let taken = &rest[..rest.len().min(length - out.len())];
            if taken.is_empty() {
                break;
            }
            out.extend_from_slice(taken);
            at += taken.len() as u64;
        }
        Ok(())
    }
}

/// The pages that the cache has.
pub(crate) struct CachedPages<'f>(pub &'f IndexFile);

impl Pages for CachedPages<'_> {
    type Error = NotCached;
    type Page = Lent;

    fn page(&self, number: u64) -> Result<Lent, NotCached> {
        self.0.pages.peek(number).ok_or(NotCached)
    }

    fn file(&self) -> &str {
        &self.0.name
    }
}

/// The pages of a file, which are read from the disk where the cache lacks them. `F` shares or borrows the file.
#[derive(Clone, Copy)]
pub(crate) struct ReadPages<F> {
    pub file: F,
    /// Whether a read may wait for the device.
    pub may_block: bool,
}

impl<F: Deref<Target = IndexFile>> Pages for ReadPages<F> {
    type Error = SSTableError;
    type Page = Lent;

    fn page(&self, number: u64) -> Result<Lent, SSTableError> {
        self.file.block(number, self.may_block).map(Lent::from)
    }

    fn file(&self) -> &str {
        &self.file.name
    }
}

impl IndexFile {
    /// The pages, read where the cache lacks them.
    pub fn pages(&self, may_block: bool) -> ReadPages<&IndexFile> {
        ReadPages { file: self, may_block }
    }

    /// A page that the caller may keep.
    pub fn block(&self, number: u64, may_block: bool) -> Result<Block, SSTableError> {
        let start = number.saturating_mul(PAGE_SIZE as u64);
        if start >= self.length {
            let got = format!("the end of the file at {}", self.length);
            return Err(Corruption::new(&self.name, start, "a page of a trie", got).into());
        }
        let load = || {
            let length = (self.length - start).min(PAGE_SIZE as u64) as usize;
            let mut page = vec![0; length].into_boxed_slice();
            match may_block {
                true => self.file.read_exact_at(&mut page, start)?,
                false => self.file.read_exact_at_nowait(&mut page, start)?,
            }
            if let Some(checksums) = &self.checksums {
                checksums.check_page(&self.name, number, &page)?;
            }
            Ok(page)
        };
        let would_wait = || DiskError::would_wait(self.file.path(), Some(start)).into();
        self.pages.get(number, may_block, load, would_wait)
    }
}
