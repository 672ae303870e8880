//! The vectors of a memtable: lists with their keys, in the order of arrival. A search compares all of them. A memtable
//! is flushed before a graph would save more in searches than it would cost in writes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sstable::SSTableError;
use types::similarity::read_floats;
use types::{Similarity, Token};

use super::search::VectorSource;

/// The size of vectors and keys at which a chunk is closed, bytes. A search copies the last chunk of a list.
const CHUNK_BYTES: usize = 64 << 10;

/// The vectors of one index for one memtable. Thread-safe: any number of threads may add and search.
#[derive(Debug)]
pub struct VectorMemory {
    similarity: Similarity,
    shards: Box<[Mutex<Chunks>]>,
    used_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Chunks {
    closed: Vec<Arc<Chunk>>,
    last: Chunk,
}

/// Consecutive vectors, and their keys.
#[derive(Clone, Debug, Default)]
struct Chunk {
    floats: Vec<f32>,
    keys: Vec<u8>,
    /// The end of each key.
    ends: Vec<u32>,
}

impl Chunk {
    fn size_bytes(&self) -> usize {
        size_of_val(&*self.floats) + self.keys.len() + size_of_val(&*self.ends)
    }

    fn key(&self, place: usize) -> &[u8] {
        let end = |place: usize| self.ends.get(place).map_or(0, |end| *end as usize);
        let start = place.checked_sub(1).map_or(0, end);
        self.keys.get(start..end(place)).unwrap_or_default()
    }
}

impl VectorMemory {
    /// An empty list in at least one shard.
    pub fn new(similarity: Similarity, shard_count: usize) -> VectorMemory {
        let shards = (0..shard_count.max(1)).map(|_| Mutex::default()).collect();
        VectorMemory { similarity, shards, used_bytes: AtomicU64::new(0) }
    }

    /// Adds an entry of a partition with this token. Its first `vector_length` bytes are the serialized vector. A
    /// vector that cannot be compared is left out. Searches see the entry when this returns. Returns the growth in
    /// bytes.
    pub fn put(&self, token: Token, entry: &[u8], vector_length: usize) -> i64 {
        let Some((vector, key)) = entry.split_at_checked(vector_length) else { return 0 };
        let mut chunks = lock(&self.shards[token.0.unsigned_abs() as usize % self.shards.len()]);
        let Chunks { closed, last } = &mut *chunks;
        let (before, start) = (last.size_bytes(), last.floats.len());
        read_floats(vector, &mut last.floats);
        if self.similarity.check(&last.floats[start..]).is_err() {
            last.floats.truncate(start);
            return 0;
        }
        last.keys.extend_from_slice(key);
        last.ends.push(last.keys.len() as u32);
        let growth = last.size_bytes() - before;
        if last.size_bytes() >= CHUNK_BYTES {
            closed.push(Arc::new(std::mem::take(last)));
        }
        self.used_bytes.fetch_add(growth as u64, Relaxed);
        growth as i64
    }

    /// The size of the index, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// A search for vectors that are similar to a given one.
    pub fn search(&self, wanted: &[f32]) -> Box<dyn VectorSource> {
        let mut chunks = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            chunks.extend_from_slice(&shard.closed);
            if !shard.last.ends.is_empty() {
                chunks.push(Arc::new(shard.last.clone()));
            }
        }
        let (similarity, wanted) = (self.similarity, wanted.to_vec());
        Box::new(MemorySearch { similarity, wanted, chunks, next: 0, ready: BinaryHeap::new() })
    }
}

fn lock(chunks: &Mutex<Chunks>) -> MutexGuard<'_, Chunks> {
    chunks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A search in the list of a memtable.
struct MemorySearch {
    similarity: Similarity,
    wanted: Vec<f32>,
    chunks: Vec<Arc<Chunk>>,
    /// The next chunk to compare.
    next: usize,
    ready: BinaryHeap<Scored>,
}

#[derive(Clone, Copy, PartialEq)]
struct Scored {
    score: f32,
    chunk: u32,
    place: u32,
}

impl Eq for Scored {}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |scored: &Scored| (scored.chunk, scored.place);
        self.score.total_cmp(&other.score).then_with(|| place(other).cmp(&place(self)))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl VectorSource for MemorySearch {
    fn search(&mut self, steps: usize) -> Result<bool, SSTableError> {
        if self.next >= self.chunks.len() {
            return Ok(true);
        }
        let until = self.ready.len().saturating_add(steps);
        let mut ready = std::mem::take(&mut self.ready).into_vec();
        while let Some(chunk) = self.chunks.get(self.next)
            && ready.len() < until
        {
            for (place, vector) in chunk.floats.chunks_exact(self.wanted.len().max(1)).enumerate() {
                let score = self.similarity.score(vector, &self.wanted);
                ready.push(Scored { score, chunk: self.next as u32, place: place as u32 });
            }
            self.next += 1;
        }
        self.ready = BinaryHeap::from(ready);
        Ok(self.next >= self.chunks.len())
    }

    fn best(&self) -> Option<f32> {
        self.ready.peek().map(|scored| scored.score)
    }

    fn take(&mut self, key: &mut Vec<u8>) -> Result<(), SSTableError> {
        key.clear();
        if let Some(Scored { chunk, place, .. }) = self.ready.pop()
            && let Some(chunk) = self.chunks.get(chunk as usize)
        {
            key.extend_from_slice(chunk.key(place as usize));
        }
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        self.ready.capacity() * size_of::<Scored>() + self.chunks.len() * size_of::<Arc<Chunk>>()
    }
}
