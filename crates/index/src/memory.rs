//! The part of an index that belongs to a memtable.
//!
//! Tries divide the tokens equally, as the shards of a memtable do, so that writers of different tokens seldom wait for
//! one another. Readers take no lock. If the system refuses a trie more memory, entries go to a sorted map, because a
//! logged write must always be applied.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memtrie::{Bounds, Direction, Trie, TrieOptions};
use sstable::SSTableError;
use types::Token;

use crate::batch::{Batch, Source};

/// The address space that the trie of a shard reserves, bytes. A memtable is flushed long before it is as large.
const OPTIONS: TrieOptions =
    TrieOptions { layout: memtrie::Layout::Adaptive, blocks_bytes_max: 256 << 20, blobs_bytes_max: 1 << 30 };

/// The entries of one index for one memtable. Thread-safe: any number of threads may add and read.
#[derive(Debug)]
pub struct MemoryIndex {
    shards: Box<[Trie]>,
    /// The bytes of the entries in `overflow`.
    overflow_bytes: AtomicU64,
    /// Entries for which a trie had no room, with the lengths of their terms.
    overflow: Mutex<BTreeMap<Vec<u8>, u16>>,
}

impl MemoryIndex {
    /// An empty index of at least one shard. Memory is taken as entries arrive.
    pub fn new(shard_count: usize) -> MemoryIndex {
        MemoryIndex::with_options(shard_count, OPTIONS)
    }

    /// As [`new`](Self::new), with limits for each trie.
    pub fn with_options(shard_count: usize, options: TrieOptions) -> MemoryIndex {
        MemoryIndex {
            shards: (0..shard_count.max(1)).map(|_| Trie::new(options)).collect(),
            overflow_bytes: AtomicU64::new(0),
            overflow: Mutex::default(),
        }
    }

    /// Adds an entry of a partition with this token, unless it is there. Readers see it when this returns. Returns by
    /// how many bytes the index grew.
    pub fn put(&self, token: Token, entry: &[u8], term_length: usize) -> i64 {
        debug_assert!(term_length <= entry.len(), "a term is a part of its entry");
        let term_length = term_length as u16;
        let trie = &self.shards[self.shard_of(token)];
        let mut writer = trie.writer();
        if writer.get(entry).is_some() {
            return 0;
        }
        let before = trie.memory().used;
        match writer.put(entry, &term_length.to_be_bytes()) {
            Ok(()) => trie.memory().used as i64 - before as i64,
            Err(memtrie::TrieFull) => {
                drop(writer);
                self.put_aside(entry, term_length)
            }
        }
    }

    #[cold]
    fn put_aside(&self, entry: &[u8], term_length: u16) -> i64 {
        let mut overflow = self.lock_overflow();
        let growth = if overflow.insert(entry.to_vec(), term_length).is_none() { entry.len() } else { 0 };
        // The bytes are counted under the lock. So when another writer of the same entry returns, readers already
        // search the map.
        self.overflow_bytes.fetch_add(growth as u64, Ordering::Release);
        growth as i64
    }

    fn lock_overflow(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, u16>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of a token. Tokens are divided equally, in order.
    fn shard_of(&self, token: Token) -> usize {
        let position = token.0 as u64 ^ 1 << 63;
        ((u128::from(position) * self.shards.len() as u128) >> 64) as usize
    }

    /// The size of the index, bytes.
    pub fn used_bytes(&self) -> u64 {
        let in_tries: u64 = self.shards.iter().map(|trie| trie.memory().used as u64).sum();
        in_tries + self.overflow_bytes.load(Ordering::Relaxed)
    }

    /// The tries, in order of their tokens.
    pub(crate) fn tries(&self) -> &[Trie] {
        &self.shards
    }

    /// Whether the tries have all entries so far.
    pub(crate) fn is_in_tries(&self) -> bool {
        self.overflow_bytes.load(Ordering::Acquire) == 0
    }

    /// The shards that have entries, each as a source, and the map.
    pub fn parts(self: &Arc<Self>) -> impl Iterator<Item = MemoryPart> + use<> {
        let (index, overflow) = (self.clone(), (!self.is_in_tries()).then_some(None));
        let parts = (0..self.shards.len()).map(Some).chain(overflow);
        let parts = parts.map(move |shard| MemoryPart { index: index.clone(), shard });
        parts.filter(|part| part.shard.is_none_or(|shard| !part.index.shards[shard].is_empty()))
    }
}

/// The entries of one shard, or those of the map.
#[derive(Clone, Debug)]
pub struct MemoryPart {
    index: Arc<MemoryIndex>,
    shard: Option<usize>,
}

impl Source for MemoryPart {
    fn read(&self, start: Bound<&[u8]>, end: &[u8], _may_block: bool, batch: &mut Batch) -> Result<(), SSTableError> {
        let Some(shard) = self.shard else {
            self.read_overflow(start, end, batch);
            return Ok(());
        };
        let from = match start {
            Bound::Included(from) | Bound::Excluded(from) => from,
            Bound::Unbounded => &[],
        };
        // All entries of the range begin with the common prefix of its bounds, which usually is a term. The cursor
        // stays in the branch of that prefix, so it reads no nodes of other branches.
        let shared = from.iter().zip(end).take_while(|(one, other)| one == other).count();
        let (prefix, below) = from.split_at(shared);
        let pin = self.index.shards[shard].pin();
        let start = match start {
            Bound::Excluded(_) => Bound::Excluded(below),
            Bound::Included(_) if !below.is_empty() => Bound::Included(below),
            _ => Bound::Unbounded,
        };
        let (bounds, branch) = ((start, Bound::Excluded(&end[shared..])), pin.tail(prefix));
        if let Some((key, content)) = branch.leaf() {
            if RangeBounds::<[u8]>::contains(&bounds, key) {
                batch.push([prefix, key], term_length(content));
            }
            batch.end();
            return Ok(());
        }
        let mut cursor = branch.cursor(Bounds { start: bounds.0, end: bounds.1 }, Direction::Forward);
        while !batch.is_full() {
            if !cursor.advance() {
                batch.end();
                break;
            }
            batch.push([prefix, cursor.key()], term_length(cursor.content()));
        }
        Ok(())
    }
}

/// The value that the trie stores for an entry.
fn term_length(content: &[u8]) -> usize {
    content.first_chunk().map_or(0, |length| u16::from_be_bytes(*length).into())
}

impl MemoryPart {
    fn read_overflow(&self, start: Bound<&[u8]>, end: &[u8], batch: &mut Batch) {
        let (Bound::Included(from) | Bound::Excluded(from)) = start else {
            return self.read_overflow(Bound::Included(&[]), end, batch);
        };
        if from < end {
            let entries = self.index.lock_overflow();
            for (entry, term_length) in entries.range::<[u8], _>((start, Bound::Excluded(end))) {
                if batch.is_full() {
                    return;
                }
                batch.push([entry, &[]], usize::from(*term_length));
            }
        }
        batch.end();
    }
}
