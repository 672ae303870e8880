//! One file's part of the cache. Blocks come in by their numbers, and all of them leave with the file: nobody can ask
//! for them any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::{Block, BlockCache, Key, Lent};

/// An open file's blocks in the cache; when it is dropped they leave.
#[derive(Debug)]
pub(crate) struct CachedFile {
    cache: BlockCache,
    number: u64,
    held: Arc<HeldNumbers>,
}

/// Numbers of the blocks that the cache has of a file. One that was never let in may be among them.
#[derive(Debug, Default)]
pub(crate) struct HeldNumbers(Mutex<HashSet<u64>>);

impl HeldNumbers {
    pub fn add(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
    }

    /// Called under a lock of the cache; takes no other but its own.
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
    /// Of a file of which the cache has nothing yet.
    pub fn new(cache: BlockCache) -> CachedFile {
        CachedFile { cache, number: BlockCache::file_number(), held: Arc::default() }
    }

    fn key(&self, number: u64) -> Key {
        (self.number, number)
    }

    /// See [`BlockCache::get`].
    pub fn get<E>(
        &self,
        number: u64,
        load: impl FnOnce() -> Result<Box<[u8]>, E>,
        would_wait: impl FnOnce() -> E,
    ) -> Result<Block, E> {
        self.cache.get(self.key(number), &self.held, load, would_wait)
    }

    /// A block, if the cache has it.
    #[inline]
    pub fn peek(&self, number: u64) -> Option<Lent> {
        self.cache.peek(self.key(number))
    }

    /// What was put here last under a number of which nothing is loaded.
    pub fn latest(&self, number: u64) -> Option<Block> {
        self.cache.latest(self.key(number))
    }

    /// Puts bytes in the place of what was there, under a number of which nothing is loaded.
    pub fn put(&self, number: u64, bytes: Box<[u8]>) {
        self.cache.put(self.key(number), &self.held, bytes);
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.held.take().into_iter().for_each(|number| self.cache.remove(self.key(number)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use testkit::Random;

    use super::*;
    use crate::cache::{Held, NotCached};

    fn get(file: &CachedFile, number: u64) -> Block {
        let load = || Ok(vec![number as u8; 1000].into_boxed_slice());
        file.get(number, load, || panic!("this thread may wait")).unwrap_or_else(|NotCached| panic!("it was loaded"))
    }

    /// Some were evicted, replaced, read again: what is left when a file goes is what the other one has.
    #[test]
    fn blocks_leave_with_their_file_and_no_others_do() {
        let cache = BlockCache::new(100_000);
        let [going, staying] = [(); 2].map(|()| CachedFile::new(cache.clone()));
        let mut random = Random(1);
        let mut blocks: Vec<Weak<Held>> = Vec::new();
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
        assert_eq!(**lent, [7; 1000], "whoever has a block keeps it");
        drop(lent);
        assert!(blocks.iter().all(|block| block.upgrade().is_none()), "memory of a file that is gone");
        assert_eq!((0..30).filter(|number| staying.peek(*number).is_some()).count(), stay);
        drop(staying);
        assert_eq!(cache.used_bytes(), 0);
    }
}
