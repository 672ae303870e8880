//! The bounded cache that all tables share: index pages and uncompressed data blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockio::OpenOptions;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::Corruption;

/// A block of a file: the file's number and the block's.
type Key = (u64, u64);

/// A page or chunk in memory. Its bytes are by themselves, so that a power of two of them takes no more than that.
pub(crate) type Block = Arc<Box<[u8]>>;

/// What a look that must not wait ends with where the cache lacks something, or what it has makes no sense: whoever waits will be told more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCached;

impl From<Box<Corruption>> for NotCached {
    fn from(_: Box<Corruption>) -> Self {
        NotCached
    }
}

/// Bytes an entry costs beside its content: its place in the cache's tables, and the counted pointer.
const ENTRY_OVERHEAD_BYTES: u64 = 112;

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Block> for Bytes {
    fn weight(&self, _: &Key, block: &Block) -> u64 {
        block.len() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

/// Blocks of files in memory, up to a number of bytes, and how files are opened that are read into it. Cheap to clone; clones
/// share the content.
#[derive(Clone)]
pub struct BlockCache {
    blocks: Arc<Cache<Key, Block, Bytes>>,
    open_options: OpenOptions,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        let expected = (capacity_bytes / 8192).clamp(16, 1 << 24) as usize;
        let blocks = Arc::new(Cache::with_weighter(expected, capacity_bytes, Bytes));
        BlockCache { blocks, open_options: OpenOptions::read() }
    }

    /// The same, for files that are opened from now on to be read past the kernel's page cache where it allows.
    pub fn with_direct_reads(self) -> Self {
        BlockCache { open_options: OpenOptions::read().blocks(), ..self }
    }

    /// How to open a file that is read into the cache, or beside it.
    pub(crate) fn open_options(&self) -> OpenOptions {
        self.open_options
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// The most it holds, bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.blocks.capacity()
    }

    /// A block, read by `load` unless it is here. Threads that want the same missing block wait for one load.
    pub(crate) fn get<E>(&self, key: Key, load: impl FnOnce() -> Result<Block, E>) -> Result<Block, E> {
        self.blocks.get_or_insert_with(&key, load)
    }

    /// A block, if it is here.
    pub(crate) fn peek(&self, key: Key) -> Option<Block> {
        self.blocks.get(&key)
    }

    /// Puts a block in the place of what was there.
    pub(crate) fn put(&self, key: Key, block: Block) {
        self.blocks.insert(key, block);
    }

    /// A number for a file that is opened, never used again in this process.
    pub(crate) fn file_number() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.used_bytes(), self.capacity_bytes())
    }
}
