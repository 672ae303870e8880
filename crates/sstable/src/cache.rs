//! The bounded cache that all tables share: index pages and uncompressed data blocks.
//!
//! `quick_cache` decides what is kept, and for how long. A look-up there waits for memory four times in a row, and for
//! a lock. Blocks that are looked up often are therefore also in [`NearBlocks`], a plain array in which a look-up takes
//! one step. Evicted blocks are removed from both. An eviction spares
//! a block that was used through the array since the last eviction considered it. A file's blocks leave the cache with
//! the file: see [`CachedFile`](crate::cached_file::CachedFile).

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use blockio::{OpenOptions, prefetch};
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::cached_file::BlockNumbers;
use crate::error::Corruption;

/// The key of a block: the file's number and the block's.
pub(crate) type Key = (u64, u64);

/// A page or chunk in memory.
pub(crate) type Block = Arc<CachedBlock>;

/// The bytes of a block. They have their own allocation, so that a power of two of them takes no more than that.
#[derive(Debug)]
pub(crate) struct CachedBlock {
    key: Key,
    /// Whether it was used through the array since an eviction last considered it.
    is_seen: AtomicBool,
    /// How often it was found outside of the array, up to [`USES_BEFORE_ARRAY`].
    uses: AtomicU8,
    bytes: Box<[u8]>,
    /// The numbers of the blocks that the cache has of the same file.
    file: Arc<BlockNumbers>,
}

impl CachedBlock {
    fn new(key: Key, file: &Arc<BlockNumbers>, bytes: Box<[u8]>) -> Block {
        Arc::new(CachedBlock {
            key,
            is_seen: AtomicBool::new(false),
            uses: AtomicU8::new(0),
            bytes,
            file: file.clone(),
        })
    }

    fn see(&self) {
        // It usually is set already. Then nothing is written to memory that other threads read.
        if !self.is_seen.load(Ordering::Relaxed) {
            self.is_seen.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a use outside of the array, and returns whether the block is used often. Uses at the same time may count
    /// as one.
    fn count_use(&self) -> bool {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_BEFORE_ARRAY {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
        uses + 1 >= USES_BEFORE_ARRAY
    }
}

impl Deref for CachedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A block borrowed for a moment, without a reference count.
pub(crate) struct Lent(Guard<Option<Block>>);

impl From<Block> for Lent {
    fn from(block: Block) -> Lent {
        Lent(Guard::from_inner(Some(block)))
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.0.as_ref() {
            Some(held) => &held.bytes,
            None => &[],
        }
    }
}

/// The block at a key's place in the array, whose head is being prefetched. It may be a block with another key.
pub(crate) struct PrefetchedBlock(Guard<Option<Block>>);

impl PrefetchedBlock {
    /// The block's bytes, if its key is this one.
    #[inline]
    pub fn bytes_of(&self, key: Key) -> Option<&[u8]> {
        self.0.as_deref().filter(|held| held.key == key).map(|held| &*held.bytes)
    }
}

/// The result of a look-up that must not wait, when the cache lacks something or its contents make no sense. A caller
/// that may wait will get the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCached;

impl From<Box<Corruption>> for NotCached {
    fn from(_: Box<Corruption>) -> Self {
        NotCached
    }
}

/// The bytes of an entry in addition to its content: its places in the cache's tables and among its file's numbers, and
/// the counted pointer.
const ENTRY_OVERHEAD_BYTES: u64 = 160;
/// The bytes of the cache for each place of the array: at least twice the places that chunks of the usual sizes need.
const BYTES_PER_PLACE: u64 = 4096;
/// A block enters the array when it is found this many times. To enter and to leave visits every thread that ever used
/// the array, of which Cassandra has hundreds, so it does not pay for a block that is evicted after a few uses.
const USES_BEFORE_ARRAY: u8 = 32;

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Block> for Bytes {
    fn weight(&self, _: &Key, block: &Block) -> u64 {
        block.len() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

/// Blocks of the cache, each in the one place that its key determines, unless another block is there.
struct NearBlocks {
    /// Dropping a place visits every thread that ever used an `ArcSwap`, even if the place is empty. With a hundred
    /// thousand places this takes up to seconds. So `drop` empties the used places and leaves the others alone.
    places: Box<[ManuallyDrop<ArcSwapOption<CachedBlock>>]>,
    /// How far a hash is shifted to get the number of a place.
    shift: u32,
}

impl NearBlocks {
    fn new(capacity_bytes: u64) -> NearBlocks {
        let count = (capacity_bytes / BYTES_PER_PLACE).clamp(16, 1 << 24).next_power_of_two();
        let places = (0..count).map(|_| ManuallyDrop::new(ArcSwapOption::empty())).collect();
        NearBlocks { places, shift: u64::BITS - count.trailing_zeros() }
    }

    fn place(&self, key: Key) -> &ArcSwapOption<CachedBlock> {
        // This spreads neighbours in a file.
        let hash = (key.0.rotate_left(40) ^ key.1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.places[(hash >> self.shift) as usize]
    }

    #[inline]
    fn get(&self, key: Key) -> Option<Lent> {
        let lent = self.place(key).load();
        let held = lent.as_deref().filter(|held| held.key == key)?;
        held.see();
        Some(Lent(lent))
    }

    /// The block at the place of this key, whatever its key is. Its head is prefetched.
    #[inline]
    fn prefetch_block(&self, key: Key) -> PrefetchedBlock {
        let lent = self.place(key).load();
        if let Some(block) = lent.as_ref() {
            prefetch(&**block);
        }
        PrefetchedBlock(lent)
    }

    /// Stores a block of the cache in its place, if that is free.
    fn put(&self, block: &Block, cache: &Blocks) {
        let place = self.place(block.key);
        if place.load().is_some() {
            return;
        }
        place.compare_and_swap(&None::<Block>, Some(block.clone()));
        // It may have been evicted, or replaced by another, before it was stored here.
        if !cache.peek(&block.key).is_some_and(|held| Arc::ptr_eq(&held, block)) {
            self.take_out(block);
        }
    }

    fn take_out(&self, block: &Block) {
        let place = self.place(block.key);
        if place.load().as_ref().is_some_and(|held| Arc::ptr_eq(held, block)) {
            place.compare_and_swap(block, None);
        }
    }
}

impl Drop for NearBlocks {
    fn drop(&mut self) {
        self.places.iter().filter(|place| place.load().is_some()).for_each(|place| place.store(None));
    }
}

/// The most used blocks that an eviction spares. It then ends soon, and makes room even if all blocks were used since
/// the last one.
const PASSED_OVER_MAX: u64 = 8;

/// How evictions treat the array.
#[derive(Clone)]
struct Evictions {
    near: Arc<NearBlocks>,
    /// The blocks spared since one was evicted.
    passed_over: Arc<AtomicU64>,
}

impl Lifecycle<Key, Block> for Evictions {
    /// The evicted block, which is freed after the cache's lock was released.
    type RequestState = Option<Block>;

    fn is_pinned(&self, _: &Key, block: &Block) -> bool {
        block.is_seen.swap(false, Ordering::Relaxed)
            && self.passed_over.fetch_add(1, Ordering::Relaxed) < PASSED_OVER_MAX
    }

    fn on_evict(&self, evicted: &mut Option<Block>, _: Key, block: Block) {
        self.passed_over.store(0, Ordering::Relaxed);
        self.near.take_out(&block);
        block.file.remove(block.key.1);
        *evicted = Some(block);
    }
}

type Blocks = Cache<Key, Block, Bytes, DefaultHashBuilder, Evictions>;

/// Blocks of files in memory, up to a number of bytes, and how files are opened that are read into the cache. Cheap to
/// clone; clones share the content.
#[derive(Clone)]
pub struct BlockCache {
    near: Arc<NearBlocks>,
    blocks: Arc<Blocks>,
    open_options: OpenOptions,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        let expected = (capacity_bytes / 8192).clamp(16, 1 << 24) as usize;
        let near = Arc::new(NearBlocks::new(capacity_bytes));
        let evictions = Evictions { near: near.clone(), passed_over: Arc::default() };
        let blocks = Cache::with(expected, capacity_bytes, Bytes, DefaultHashBuilder::default(), evictions);
        BlockCache { near, blocks: Arc::new(blocks), open_options: OpenOptions::read() }
    }

    /// The same, with the kernel's page cache bypassed, where possible, for files that are opened from now on.
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

    /// Returns a block, reading it with `load` if it is not here. Threads that want the same missing block wait for one
    /// load. With `may_block` false, `load` must not block, and a load of another thread is an error, which
    /// `would_wait` makes.
    pub(crate) fn get<E>(
        &self,
        key: Key,
        file: &Arc<BlockNumbers>,
        may_block: bool,
        load: impl FnOnce() -> Result<Box<[u8]>, E>,
        would_wait: impl FnOnce() -> E,
    ) -> Result<Block, E> {
        if let Some(Lent(lent)) = self.near.get(key)
            && let Some(block) = Guard::into_inner(lent)
        {
            return Ok(block);
        }
        if let Some(block) = self.find(&key) {
            return Ok(block);
        }
        // The number is recorded before the block is inserted, so that an eviction finds it.
        let load = || {
            let bytes = load()?;
            file.add(key.1);
            Ok(CachedBlock::new(key, file, bytes))
        };
        self.load(key, may_block, load, would_wait)
    }

    /// A block of the cache that is not in the array, which it enters if it is used often.
    fn find(&self, key: &Key) -> Option<Block> {
        let block = self.blocks.get(key)?;
        if block.count_use() {
            self.near.put(&block, &self.blocks);
        }
        Some(block)
    }

    #[cold]
    fn load<E>(
        &self,
        key: Key,
        may_block: bool,
        load: impl FnOnce() -> Result<Block, E>,
        would_wait: impl FnOnce() -> E,
    ) -> Result<Block, E> {
        if may_block {
            return self.blocks.get_or_insert_with(&key, load);
        }
        match self.blocks.get_value_or_guard(&key, Some(Duration::ZERO)) {
            GuardResult::Value(block) => Ok(block),
            GuardResult::Guard(place) => {
                let block = load()?;
                // This fails if the block was removed meanwhile, and then it is not kept.
                let _ = place.insert(block.clone());
                Ok(block)
            }
            GuardResult::Timeout => Err(would_wait()),
        }
    }

    /// A block, if it is here.
    pub(crate) fn peek(&self, key: Key) -> Option<Lent> {
        self.near.get(key).or_else(|| self.find(&key).map(Lent::from))
    }

    /// Prefetches the memory that [`prefetch_block`](Self::prefetch_block) reads.
    #[inline]
    pub(crate) fn prefetch_place(&self, key: Key) {
        prefetch(self.near.place(key));
    }

    /// Borrows a block that a look-up will probably find soon, and prefetches its head. A thread may borrow up to eight
    /// blocks at a time without writing to memory that threads share.
    #[inline]
    pub(crate) fn prefetch_block(&self, key: Key) -> PrefetchedBlock {
        self.near.prefetch_block(key)
    }

    /// The block that was stored last with `put` under this key. Such keys are never loaded.
    pub(crate) fn latest(&self, key: Key) -> Option<Block> {
        self.peek(key).and_then(|Lent(lent)| Guard::into_inner(lent))
    }

    /// Replaces the bytes under a key that is never loaded.
    pub(crate) fn put(&self, key: Key, file: &Arc<BlockNumbers>, bytes: Box<[u8]>) {
        let block = CachedBlock::new(key, file, bytes);
        // The old bytes are removed from the array as if they were evicted.
        self.blocks.insert(key, block.clone());
        // The number is recorded after the insertion, because the replaced block is evicted under the same number.
        file.add(key.1);
        self.near.put(&block, &self.blocks);
    }

    /// Removes a block of a file that is no longer read.
    pub(crate) fn remove(&self, key: Key) {
        if let Some((_, block)) = self.blocks.remove(&key) {
            self.near.take_out(&block);
        }
    }

    /// A number for a file that is opened, which this process never uses again.
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::thread;

    use testkit::Random;

    use super::*;

    const BLOCK_BYTES: usize = 1000;

    /// The expected content of a key's block.
    fn content(key: Key) -> Box<[u8]> {
        let word = (key.0 << 32 | key.1).to_be_bytes();
        (0..BLOCK_BYTES).map(|at| word[at % 8]).collect()
    }

    fn load(key: Key) -> Result<Box<[u8]>, NotCached> {
        Ok(content(key))
    }

    fn file() -> Arc<BlockNumbers> {
        Arc::default()
    }

    /// For threads that may wait.
    fn unexpected() -> NotCached {
        panic!("this thread may wait")
    }

    #[test]
    fn threads_see_the_right_bytes_beside_evictions() {
        let (cache, file) = (BlockCache::new(100 * BLOCK_BYTES as u64), file());
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (cache, file) = (&cache, &file);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..20_000 {
                        // Small numbers come often, so that their blocks are in the array.
                        let most = 1 + random.below(90);
                        let key = (random.below(3) as u64, random.below(most) as u64);
                        match random.one_in(2) {
                            true => {
                                assert_eq!(
                                    &**cache.get(key, file, true, || load(key), unexpected).unwrap(),
                                    &*content(key)
                                )
                            }
                            false => assert!(cache.peek(key).is_none_or(|block| *block == *content(key))),
                        }
                    }
                });
            }
        });
        assert!(cache.used_bytes() <= cache.capacity_bytes());
    }

    #[test]
    fn evicted_pages_are_freed() {
        let (cache, file) = (BlockCache::new(50 * BLOCK_BYTES as u64), file());
        let mut all: Vec<Weak<CachedBlock>> = Vec::new();
        let mut random = Random(1);
        for step in 0..5_000 {
            let key = (0, random.below(400) as u64);
            all.push(Arc::downgrade(&cache.get(key, &file, true, || load(key), unexpected).unwrap()));
            // A few blocks are used often for a while, so that they enter the array, and are evicted later.
            for _ in 0..10 {
                let often_used = (0, (step / 100 * 10 + random.below(10)) as u64);
                all.push(Arc::downgrade(&cache.get(often_used, &file, true, || load(often_used), unexpected).unwrap()));
            }
        }
        let mut held: Vec<Block> = all.iter().filter_map(Weak::upgrade).collect();
        held.sort_by_key(|block| block.key);
        held.dedup_by(|a, b| Arc::ptr_eq(a, b));
        assert!(held.len() > 10 && held.len() <= 50, "{} blocks", held.len());
        assert!(held.iter().all(|block| cache.blocks.contains_key(&block.key)));
        assert_eq!(file.count(), held.len(), "numbers of a file's blocks");
        drop((cache, held));
        assert!(all.iter().all(|block| block.upgrade().is_none()), "a dropped cache keeps no block");
    }

    #[test]
    fn only_the_newest_content_of_a_key_is_kept() {
        let (cache, file) = (BlockCache::new(100 * BLOCK_BYTES as u64), file());
        let all: Vec<Weak<CachedBlock>> = thread::scope(|scope| {
            let writers = [0, 1].map(|writer| {
                let (cache, file) = (&cache, &file);
                scope.spawn(move || {
                    let mut random = Random(writer);
                    let mut put = Vec::new();
                    for number in 0..5_000_u64 {
                        let key = (0, random.below(8) as u64);
                        cache.put(key, file, Box::new(number.to_be_bytes()));
                        put.extend(cache.latest(key).iter().map(Arc::downgrade));
                    }
                    put
                })
            });
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        cache.put((0, 3), &file, Box::new(*b"the last"));
        assert_eq!(&**cache.latest((0, 3)).unwrap(), b"the last");
        let held: Vec<Block> = all.iter().filter_map(Weak::upgrade).collect();
        assert!(held.iter().all(|block| cache.blocks.peek(&block.key).is_some_and(|kept| Arc::ptr_eq(&kept, block))));
    }

    #[test]
    fn pages_read_twice_outlive_pages_read_once() {
        let (cache, file) = (BlockCache::new(100 * BLOCK_BYTES as u64), file());
        let hot = |number: u64| (7, number);
        let mut loads = 0;
        for number in 0..3_000 {
            cache.get((1, number), &file, true, || load((1, number)), unexpected).unwrap();
            for number in 0..20 {
                let count = || {
                    loads += 1;
                    load(hot(number))
                };
                let loaded = cache.get(hot(number), &file, true, count, unexpected);
                assert!(loaded.is_ok());
            }
        }
        assert!(loads < 100, "{loads} loads of 20 blocks that are read all the time");
    }

    #[test]
    fn a_caller_that_may_not_wait_gets_cached_pages_only() {
        let (cache, file) = (BlockCache::new(1 << 20), file());
        let bytes = || vec![7; 100].into_boxed_slice();
        let read = |block: Result<Block, &'static str>| block.map(|block| block.to_vec());
        let get = || {
            let unexpected = || panic!("another thread loads it");
            read(cache.get((1, 1), &file, false, unexpected, || "would wait"))
        };
        let load = || {
            thread::scope(|scope| scope.spawn(|| assert_eq!(get(), Err("would wait"))).join().unwrap());
            Ok(bytes())
        };
        assert_eq!(read(cache.get((1, 1), &file, true, load, || "would wait")), Ok(bytes().to_vec()));
        assert_eq!(get(), Ok(bytes().to_vec()));
        let loaded = cache.get((1, 2), &file, false, || Err("the device says"), || "would wait");
        assert_eq!(read(loaded), Err("the device says"));
        let loaded = cache.get((1, 2), &file, false, || Ok(bytes()), || "would wait");
        assert_eq!(read(loaded), Ok(bytes().to_vec()));
        assert!(cache.peek((1, 2)).is_some());
    }
}
