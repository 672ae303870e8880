//! The storage of an index's entries or vectors: in memory for a memtable, in a file for an SSTable.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockio::{Disk, DiskErrorKind};
use index::{Batch, IndexFile, MemoryIndex, Origin, Source, VectorFile, VectorMemory, VectorSource};
use model::IndexKey;
use sstable::{BlockCache, SSTableError};
use types::Token;

/// One index of a memtable.
#[derive(Clone)]
pub(crate) enum PartMemory {
    Entries(Arc<MemoryIndex>),
    Vectors(Arc<VectorMemory>),
}

impl PartMemory {
    pub fn new(key: IndexKey, shards: usize) -> PartMemory {
        match key.part.similarity() {
            None => PartMemory::Entries(Arc::new(MemoryIndex::new(shards))),
            Some(similarity) => PartMemory::Vectors(Arc::new(VectorMemory::new(similarity, shards))),
        }
    }

    /// Adds an entry of a partition with this token. Returns the growth in bytes.
    pub fn put(&self, token: Token, entry: &[u8], term_length: usize) -> i64 {
        match self {
            PartMemory::Entries(memory) => memory.put(token, entry, term_length),
            PartMemory::Vectors(memory) => memory.put(token, entry, term_length),
        }
    }

    /// The index, if it is one of values.
    pub fn entries(&self) -> Option<Arc<MemoryIndex>> {
        match self {
            PartMemory::Entries(memory) => Some(memory.clone()),
            PartMemory::Vectors(_) => None,
        }
    }

    /// The bytes of the index.
    pub fn used_bytes(&self) -> u64 {
        match self {
            PartMemory::Entries(memory) => memory.used_bytes(),
            PartMemory::Vectors(memory) => memory.used_bytes(),
        }
    }
}

/// An open file of an index.
#[derive(Clone)]
pub(crate) enum PartFile {
    Entries(Arc<IndexFile>),
    Vectors(Arc<VectorFile>),
}

/// An index file, and whether a read found damage in it.
pub(crate) struct WatchedFile {
    file: PartFile,
    /// The number of the open SSTable that it belongs to.
    sstable: u64,
    is_damaged: AtomicBool,
}

impl WatchedFile {
    /// Opens an index file of the open SSTable with this number. Blocks on the disk.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        key: IndexKey,
        (origin, sstable): (&Origin, u64),
        cache: &BlockCache,
    ) -> Result<Arc<WatchedFile>, SSTableError> {
        let file = match key.part.similarity() {
            None => PartFile::Entries(Arc::new(IndexFile::open(disk, path, key, origin, cache)?)),
            Some(_) => PartFile::Vectors(Arc::new(VectorFile::open(disk, path, key, origin, cache)?)),
        };
        Ok(Arc::new(WatchedFile { file, sstable, is_damaged: AtomicBool::new(false) }))
    }

    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// The number of entries or vectors of each segment.
    pub fn segment_entry_counts(&self) -> Vec<u64> {
        match &self.file {
            PartFile::Entries(entries) => entries.segment_entry_counts(),
            PartFile::Vectors(vectors) => vectors.segment_counts(),
        }
    }

    /// The size of the file, bytes.
    pub fn size_bytes(&self) -> u64 {
        match &self.file {
            PartFile::Entries(entries) => entries.size_bytes(),
            PartFile::Vectors(vectors) => vectors.size_bytes(),
        }
    }

    fn note<T>(&self, outcome: Result<T, SSTableError>) -> Result<T, SSTableError> {
        outcome.inspect_err(|error| {
            if is_unreadable(error) {
                self.is_damaged.store(true, Ordering::Relaxed);
            }
        })
    }
}

/// Whether the error says that an index file is damaged, or that the disk failed to read it.
pub(crate) fn is_unreadable(error: &SSTableError) -> bool {
    match error {
        SSTableError::Corruption(_) => true,
        SSTableError::Disk(error) => error.kind() != DiskErrorKind::WouldWait,
        _ => false,
    }
}

/// The entries of a memtable's or an SSTable's rows.
#[derive(Clone)]
pub(crate) enum IndexSource {
    Memory(PartMemory),
    File(Arc<WatchedFile>),
}

impl IndexSource {
    /// Its parts, for a search by value. An index of vectors has none.
    pub fn add_to(&self, sources: &mut Vec<Box<dyn Source>>) {
        match self {
            IndexSource::Memory(PartMemory::Entries(memory)) => {
                sources.extend(memory.parts().map(|part| Box::new(part) as Box<dyn Source>));
            }
            IndexSource::File(file) => {
                if let PartFile::Entries(entries) = &file.file {
                    let watch = |part| Box::new(Watched { part, file: file.clone() }) as Box<dyn Source>;
                    sources.extend(entries.parts().map(watch));
                }
            }
            IndexSource::Memory(PartMemory::Vectors(_)) => {}
        }
    }

    /// Its parts, for a search for about `count` vectors that are similar to a given one. An index of values has none.
    pub fn add_nearest(&self, wanted: &[f32], count: usize, sources: &mut Vec<Box<dyn VectorSource>>) {
        match self {
            IndexSource::Memory(PartMemory::Vectors(memory)) => sources.push(memory.search(wanted)),
            IndexSource::File(file) => {
                if let PartFile::Vectors(vectors) = &file.file {
                    let watch = |part| Box::new(Watched { part, file: file.clone() }) as Box<dyn VectorSource>;
                    sources.extend(vectors.search(wanted, count).into_iter().map(watch));
                }
            }
            IndexSource::Memory(PartMemory::Entries(_)) => {}
        }
    }

    pub fn is_damaged(&self) -> bool {
        matches!(self, IndexSource::File(file) if file.is_damaged())
    }
}

/// A part of a file that notes damage when it is read.
struct Watched<P> {
    part: P,
    file: Arc<WatchedFile>,
}

impl<P: Source> Source for Watched<P> {
    fn read(&self, start: Bound<&[u8]>, end: &[u8], may_block: bool, batch: &mut Batch) -> Result<(), SSTableError> {
        self.file.note(self.part.read(start, end, may_block, batch))
    }

    fn sstable(&self) -> Option<u64> {
        Some(self.file.sstable)
    }
}

impl VectorSource for Watched<Box<dyn VectorSource>> {
    fn search(&mut self, steps: usize) -> Result<bool, SSTableError> {
        let outcome = self.part.search(steps);
        self.file.note(outcome)
    }

    fn best(&self) -> Option<f32> {
        self.part.best()
    }

    fn take(&mut self, key: &mut Vec<u8>) -> Result<(), SSTableError> {
        let outcome = self.part.take(key);
        self.file.note(outcome)
    }

    fn held_bytes(&self) -> usize {
        self.part.held_bytes()
    }
}
