//! One file's share of the cache. Blocks enter by their numbers, and all of them leave with the file, because nothing
//! can request them any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::{Block, BlockCache, Key, Lent, PrefetchedBlock};

/// An open file's blocks in the cache, which are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct CachedFile {
    cache: BlockCache,
    number: u64,
    numbers: Arc<BlockNumbers>,
}

/// The numbers of the blocks that the cache has of a file. It may contain numbers of blocks that were never admitted.
#[derive(Debug, Default)]
pub(crate) struct BlockNumbers(Mutex<HashSet<u64>>);

impl BlockNumbers {
    pub fn add(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
    }

    /// Called under a lock of the cache; takes only its own lock.
    pub fn remove(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn take(&self) -> HashSet<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CachedFile {
    /// For a file of which the cache has nothing yet.
    pub fn new(cache: BlockCache) -> CachedFile {
        CachedFile { cache, number: BlockCache::file_number(), numbers: Arc::default() }
    }

    /// The number of the file, which is unique in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn key(&self, number: u64) -> Key {
        (self.number, number)
    }

    /// See [`BlockCache::get`].
    pub fn get<E>(
        &self,
        number: u64,
        may_block: bool,
        load: impl FnOnce() -> Result<Box<[u8]>, E>,
        would_wait: impl FnOnce() -> E,
    ) -> Result<Block, E> {
        self.cache.get(self.key(number), &self.numbers, may_block, load, would_wait)
    }

    /// A block, if the cache has it.
    #[inline]
    pub fn peek(&self, number: u64) -> Option<Lent> {
        self.cache.peek(self.key(number))
    }

    /// See [`BlockCache::prefetch_place`].
    #[inline]
    pub fn prefetch_place(&self, number: u64) {
        self.cache.prefetch_place(self.key(number));
    }

    /// See [`BlockCache::prefetch_block`].
    #[inline]
    pub fn prefetch_block(&self, number: u64) -> PrefetchedBlock {
        self.cache.prefetch_block(self.key(number))
    }

    /// The bytes of the block with this number, if it is the prefetched one.
    #[inline]
    pub fn bytes_of<'a>(&self, prefetched: &'a PrefetchedBlock, number: u64) -> Option<&'a [u8]> {
        prefetched.bytes_of(self.key(number))
    }

    /// The block that was stored last with `put` under this number. Such numbers are never loaded.
    pub fn latest(&self, number: u64) -> Option<Block> {
        self.cache.latest(self.key(number))
    }

    /// Replaces the bytes under a number that is never loaded.
    pub fn put(&self, number: u64, bytes: Box<[u8]>) {
        self.cache.put(self.key(number), &self.numbers, bytes);
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.numbers.take().into_iter().for_each(|number| self.cache.remove(self.key(number)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use testkit::Random;

    use super::*;
    use crate::cache::{CachedBlock, NotCached};

    fn get(file: &CachedFile, number: u64) -> Block {
        let load = || Ok(vec![number as u8; 1000].into_boxed_slice());
        file.get(number, true, load, || panic!("this thread may wait"))
            .unwrap_or_else(|NotCached| panic!("it was loaded"))
    }

    /// Some blocks are evicted, replaced and read again: when a file is dropped, exactly the other file's blocks
    /// remain.
    #[test]
    fn blocks_leave_with_their_file_and_no_others_do() {
        let cache = BlockCache::new(100_000);
        let [going, staying] = [(); 2].map(|()| CachedFile::new(cache.clone()));
        let mut random = Random(1);
        let mut blocks: Vec<Weak<CachedBlock>> = Vec::new();
        for _ in 0..3_000 {
            let number = random.below(80) as u64;
            blocks.push(Arc::downgrade(&get(&going, number)));
            going.put(1_000 + number, vec![2; 100].into_boxed_slice());
            drop(get(&staying, random.below(30) as u64));
        }
        let stay = (0..30).filter(|number| staying.peek(*number).is_some()).count();
        let lent = get(&going, 7);
        assert!(stay > 5 && blocks.iter().any(|block| block.upgrade().is_some()));
        drop(going);
        assert_eq!(**lent, [7; 1000], "a lent block stays unchanged");
        drop(lent);
        assert!(blocks.iter().all(|block| block.upgrade().is_none()), "memory of a file that is gone");
        assert_eq!((0..30).filter(|number| staying.peek(*number).is_some()).count(), stay);
        drop(staying);
        assert_eq!(cache.used_bytes(), 0);
    }
}
