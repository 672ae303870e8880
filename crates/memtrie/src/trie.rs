//! The trie and its entry points: one writer at a time, any number of pins.

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cursor::Cursor;
use crate::gather::{Gathering, gather};
use crate::node::{self, NodePosition};
use crate::node_cursor::NodeCursor;
use crate::raw::epoch::{Epochs, PinGuard, Reach};
use crate::raw::memory::{Bases, Memory, Slot};
use crate::raw::spare_pages::SparePages;
use crate::store::Store;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::tail::Tail;
use crate::terms::{Bounds, Direction, Edit, Layout, MemoryUse, TrieFull, TrieOptions, Upsert};
use crate::together::{TOGETHER, get_together, prefetch_together, start_together};

/// A map from byte strings to byte strings, ordered bytewise. There is one writer at a time; readers need no lock and
/// see each publication whole. Keys may be prefixes of one another, and empty.
pub struct Trie {
    options: TrieOptions,
    spare_pages: Option<Arc<SparePages>>,
    bases: Bases,
    epochs: Epochs,
    used: AtomicU64,
    reusable: AtomicU64,
    reserved: AtomicU64,
    /// 1 if a limit is more than half reached, or else 0.
    half_full: AtomicU32,
    state: Mutex<WriterState>,
}

pub(crate) struct WriterState {
    /// The allocators; `None` before the first write.
    pub(crate) store: Option<Box<Store>>,
    scratch: Vec<u8>,
    gathering: Gathering,
}

impl Trie {
    /// An empty trie, which takes a few KiB until the first write.
    pub fn new(options: TrieOptions) -> Trie {
        Trie {
            options,
            spare_pages: None,
            bases: Bases::new(options.layout),
            epochs: Epochs::new(),
            used: AtomicU64::new(0),
            reusable: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            half_full: AtomicU32::new(0),
            state: Mutex::new(WriterState { store: None, scratch: Vec::new(), gathering: Gathering::default() }),
        }
    }

    /// Like [`new`](Self::new), for a trie that grows into the given pages while there are any, and leaves its own
    /// there when it is dropped.
    pub fn with_spare_pages(options: TrieOptions, spare_pages: Arc<SparePages>) -> Trie {
        Trie { spare_pages: Some(spare_pages), ..Trie::new(options) }
    }

    /// Waits for the writer's lock.
    pub fn writer(&self) -> Writer<'_> {
        // The only foreign code that runs under the lock is `upsert`'s closure, which runs before anything is changed:
        // the state is sound even after it panics.
        Writer { trie: self, state: self.state.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// The writer, if no other thread is writing.
    pub fn try_writer(&self) -> Option<Writer<'_>> {
        match self.state.try_lock() {
            Ok(state) => Some(Writer { trie: self, state }),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                Some(Writer { trie: self, state: poisoned.into_inner() })
            }
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Starts a bounded period of reading. While a pin lives nothing that was replaced since can be recycled. So read
    /// some (about 64 KiB or a millisecond), copy it out, drop the pin, and resume from the last key with a new one.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        Pin { trie: self, _guard: self.epochs.pin(Reach::ALL) }
    }

    /// Like [`pin`](Self::pin), for a reader that reads together only keys that start with `prefix`.
    /// [`Writer::is_read_below`] of other prefixes may ignore this pin.
    #[inline]
    pub fn pin_below(&self, prefix: &[u8]) -> Pin<'_> {
        Pin { trie: self, _guard: self.epochs.pin(Reach::below(prefix)) }
    }

    /// Like [`pin`](Self::pin), for a reader that reads each key independently of the others. [`Writer::is_read_below`]
    /// ignores this pin.
    #[inline]
    pub fn pin_for_single_keys(&self) -> Pin<'_> {
        Pin { trie: self, _guard: self.epochs.pin(Reach::SINGLE_KEYS) }
    }

    /// The memory after the last completed write. Takes no lock.
    pub fn memory(&self) -> MemoryUse {
        let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed) as usize;
        MemoryUse { used: figure(&self.used), reusable: figure(&self.reusable), reserved: figure(&self.reserved) }
    }

    /// Whether nodes or contents occupy more than half of their limit. The other half is for the writes until another
    /// trie takes them. Takes no lock.
    pub fn is_half_full(&self) -> bool {
        self.half_full.load(Ordering::Relaxed) != 0
    }

    /// The layout of its nodes.
    pub fn layout(&self) -> Layout {
        self.options.layout
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.bases.memory().is_none_or(|memory| memory.load(Slot::ROOT).is_none())
    }

    pub(crate) fn raw_memory(&self) -> Option<Memory<'_>> {
        self.bases.memory()
    }

    fn tail(&self, key: &[u8]) -> Tail<'_> {
        let memory = self.bases.memory();
        Tail::find(memory, memory.map_or(NodePosition::NONE, NodePosition::root), key)
    }
}

impl std::fmt::Debug for Trie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trie").field("options", &self.options).field("memory", &self.memory()).finish_non_exhaustive()
    }
}

/// Permission to read for a bounded period; see [`Trie::pin`].
pub struct Pin<'t> {
    trie: &'t Trie,
    _guard: PinGuard<'t>,
}

impl<'t> Pin<'t> {
    pub(crate) fn raw_memory(&self) -> Option<Memory<'_>> {
        self.trie.raw_memory()
    }

    /// The content of `key`, which the caller must copy before the pin ends.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let memory = self.trie.bases.memory()?;
        node::get_from_root(memory, key)
    }

    /// The contents of many keys, in less time than one by one, because their memory is fetched in parallel. `found`
    /// receives the index of a key and its content, once for each key, in any order.
    pub fn get_many<'p>(&'p self, keys: &[&[u8]], mut found: impl FnMut(usize, Option<&'p [u8]>)) {
        match self.trie.bases.memory() {
            Some(memory) => get_together(memory, keys, found),
            None => (0..keys.len()).for_each(|index| found(index, None)),
        }
    }

    /// A cursor over the keys within `bounds`.
    pub fn cursor<'a>(&'a self, bounds: Bounds<'a>, direction: Direction) -> Cursor<'a> {
        self.tail(&[]).cursor(bounds, direction)
    }

    /// The subtree at `key`: its content and everything below it.
    pub fn tail(&self, key: &[u8]) -> Tail<'_> {
        self.trie.tail(key)
    }

    /// A cursor over the nodes.
    pub fn node_cursor(&self, direction: Direction) -> NodeCursor<'_> {
        NodeCursor::new(self.trie.bases.memory(), direction)
    }

    /// The entry with the largest key at or before `key`, as a cursor on it; `None` if all keys are larger.
    pub fn floor<'a>(&'a self, key: &'a [u8]) -> Option<Cursor<'a>> {
        let bounds = Bounds { start: Bound::Unbounded, end: Bound::Included(key) };
        let mut cursor = self.cursor(bounds, Direction::Reverse);
        cursor.advance().then_some(cursor)
    }
}

/// The trie's only writer, until it is dropped.
pub struct Writer<'t> {
    trie: &'t Trie,
    state: MutexGuard<'t, WriterState>,
}

impl Writer<'_> {
    /// The content of `key`.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let memory = self.trie.bases.memory()?;
        node::get_from_root(memory, key)
    }

    /// A cursor over the keys within `bounds`.
    pub fn cursor<'a>(&'a self, bounds: Bounds<'a>, direction: Direction) -> Cursor<'a> {
        self.tail(&[]).cursor(bounds, direction)
    }

    /// The subtree at `key`: its content and everything below it.
    pub fn tail(&self, key: &[u8]) -> Tail<'_> {
        self.trie.tail(key)
    }

    /// A cursor over the nodes.
    pub fn node_cursor(&self, direction: Direction) -> NodeCursor<'_> {
        NodeCursor::new(self.trie.bases.memory(), direction)
    }

    /// Whether a pin may be reading several of the keys that start with `prefix`, as one made by [`Trie::pin`] or by
    /// [`Trie::pin_below`] with the same prefix. (The answer may be true without one.) If not, the next change may be
    /// made in place: every pin that starts later sees all changes before this call. If so, only [`apply`](Self::apply)
    /// at the prefix keeps a reader from seeing a later change without an earlier one.
    pub fn is_read_below(&self, prefix: &[u8]) -> bool {
        self.trie.epochs.is_read(Reach::below(prefix))
    }

    /// Prefetches what changes of these keys will read. It pays off for about 32 keys at once that are changed right
    /// afterwards.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        if let Some(memory) = self.trie.bases.memory() {
            prefetch_together(memory, keys);
        }
    }

    /// Puts or replaces the content of one key.
    ///
    /// # Errors
    /// [`TrieFull`]: the trie is as it was.
    pub fn put(&mut self, key: &[u8], content: &[u8]) -> Result<(), TrieFull> {
        self.with_store(|memory, store| {
            let start = node::start(memory, memory.load(Slot::ROOT), key);
            node::put_from(memory, store, start, key, content)
        })
    }

    /// Puts or replaces the contents of many keys in their order, in less time than one by one: their memory is fetched
    /// in parallel, and the paths found before the first put serve all of them.
    ///
    /// # Errors
    ///
    /// [`TrieFull`]: the entries before the one that has no room are put, the others are not.
    pub fn put_many(&mut self, entries: &[(&[u8], &[u8])]) -> Result<(), TrieFull> {
        let trie = self.trie;
        let (memory, store, gathering) = self.opened()?;
        let result = entries.chunks(TOGETHER).try_for_each(|entries| {
            let starts = start_together(memory, entries);
            for (&(key, content), start) in entries.iter().zip(starts) {
                let result = node::put_from(memory, store, start, key, content);
                complete(&result, memory, store, gathering, &trie.epochs);
                result?;
            }
            Ok(())
        });
        self.count_memory();
        result
    }

    /// Removes one key and the branch that only led to it. Returns true if it existed.
    ///
    /// # Errors
    ///
    /// [`TrieFull`]: the trie is as it was (removing may need a block).
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, TrieFull> {
        let mut found = false;
        self.with_store(|memory, store| {
            node::upsert(memory, store, key, |existing| {
                found = existing.is_some();
                Some(None)
            })
        })?;
        Ok(found)
    }

    /// Changes the content of one key: `change` sees the current content and decides, writing a replacement to the
    /// (empty) scratch buffer. Readers see the old content or the new, never a mixture.
    ///
    /// # Errors
    ///
    /// [`TrieFull`]: the trie is as it was.
    pub fn upsert(
        &mut self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>, &mut Vec<u8>) -> Upsert,
    ) -> Result<(), TrieFull> {
        let mut scratch = std::mem::take(&mut self.state.scratch);
        scratch.clear();
        let scratch_used = &mut scratch;
        let result = self.with_store(|memory, store| {
            node::upsert(memory, store, key, |existing| match change(existing, scratch_used) {
                Upsert::Keep => None,
                Upsert::Replace => Some(Some(scratch_used.as_slice())),
                Upsert::Remove => Some(None),
            })
        });
        scratch.shrink_to(1 << 16);
        self.state.scratch = scratch;
        result
    }

    /// Makes several changes below `prefix`, which readers see all at once or not at all. The edits must be sorted by
    /// suffix, without duplicates. The nodes on the edited paths are copied, and published by one store.
    ///
    /// A reader that is already below the prefix continues with the version that it started with.
    ///
    /// # Errors
    ///
    /// [`TrieFull`]: the trie is as it was.
    pub fn apply(&mut self, prefix: &[u8], edits: &[Edit<'_>]) -> Result<(), TrieFull> {
        debug_assert!(edits.is_sorted_by(|a, b| a.suffix < b.suffix));
        self.with_store(|memory, store| node::apply(memory, store, prefix, edits))
    }

    /// Puts the content of `key` and removes everything below it. Readers see all of that at once or not at all. The
    /// time is proportional to what is removed.
    ///
    /// # Errors
    ///
    /// [`TrieFull`]: the trie is as it was.
    pub fn put_alone(&mut self, key: &[u8], content: &[u8]) -> Result<(), TrieFull> {
        if self.trie.options.layout == Layout::Adaptive {
            return self.with_store(|memory, store| node::put_alone(memory, store, key, content));
        }
        let below = self.suffixes_below(key);
        let mut edits = vec![Edit { suffix: &[], content: Some(content) }];
        edits.extend(below.iter().map(|suffix| Edit { suffix, content: None }));
        self.apply(key, &edits)
    }

    /// The rests of the longer keys that start with `key`.
    fn suffixes_below(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let bounds = Bounds { start: Bound::Excluded(key), end: Bound::Unbounded };
        let mut cursor = self.cursor(bounds, Direction::Forward);
        let mut suffixes = Vec::new();
        while cursor.advance() {
            let Some(suffix) = cursor.key().strip_prefix(key) else { break };
            suffixes.push(suffix.to_vec());
        }
        suffixes
    }

    /// The bytes of what was replaced or removed and that readers may still read.
    pub fn waiting_bytes(&self) -> usize {
        self.state.store.as_ref().map_or(0, |store| store.waiting_bytes())
    }

    /// Recycles what no reader can reach any more, without waiting for the next write to do it.
    pub fn reclaim(&mut self) {
        let trie = self.trie;
        if let (Some(memory), Some(store)) = (trie.bases.memory(), &mut self.state.store) {
            store.close_batch(memory, &trie.epochs);
            self.count_memory();
        }
    }

    /// Runs an operation and then completes its bookkeeping, or undoes its allocations if it failed.
    #[inline]
    fn with_store<T>(
        &mut self,
        operation: impl FnOnce(Memory<'_>, &mut Store) -> Result<T, TrieFull>,
    ) -> Result<T, TrieFull> {
        let trie = self.trie;
        let (memory, store, gathering) = self.opened()?;
        let result = operation(memory, store);
        complete(&result, memory, store, gathering, &trie.epochs);
        self.count_memory();
        result
    }

    /// The state that a change needs; the arenas are made before the first one.
    #[inline]
    fn opened(&mut self) -> Result<(Memory<'_>, &mut Store, &mut Gathering), TrieFull> {
        if self.state.store.is_none() {
            self.open()?;
        }
        let WriterState { store, gathering, .. } = &mut *self.state;
        match (self.trie.bases.memory(), store) {
            (Some(memory), Some(store)) => Ok((memory, store, gathering)),
            _ => Err(TrieFull),
        }
    }

    #[cold]
    fn open(&mut self) -> Result<(), TrieFull> {
        let store = Store::open(&self.trie.options, self.trie.spare_pages.as_ref()).ok_or(TrieFull)?;
        let (blocks, blobs) = store.bases();
        self.trie.bases.set(blocks.as_ptr(), blobs.as_ptr());
        self.state.store = Some(Box::new(store));
        Ok(())
    }

    #[inline]
    fn count_memory(&self) {
        if let Some(store) = &self.state.store {
            let MemoryUse { used, reusable, reserved } = store.memory_use();
            self.trie.used.store(used as u64, Ordering::Relaxed);
            self.trie.reusable.store(reusable as u64, Ordering::Relaxed);
            self.trie.reserved.store(reserved as u64, Ordering::Relaxed);
            self.trie.half_full.store(u32::from(store.is_half_full()), Ordering::Relaxed);
        }
    }

    /// The store, for tests that change or read how the writer waits for readers.
    #[cfg(test)]
    pub(crate) fn store(&mut self) -> Option<&mut Store> {
        self.state.store.as_deref_mut()
    }

    /// Lets only `count` more allocations succeed, or all if `None`.
    #[cfg(test)]
    pub(crate) fn let_allocations_fail_after(&mut self, count: Option<u32>) {
        if let Some(store) = &mut self.state.store {
            store.allocations_left = count;
        }
    }

    pub(crate) fn raw_parts(&self) -> (Option<Memory<'_>>, Option<&Store>) {
        (self.trie.bases.memory(), self.state.store.as_deref())
    }
}

/// Completes an operation: what it replaced waits for readers, or what it allocated is free again.
#[inline]
fn complete<T>(
    result: &Result<T, TrieFull>,
    memory: Memory<'_>,
    store: &mut Store,
    gathering: &mut Gathering,
    epochs: &Epochs,
) {
    match result {
        Ok(_) => {
            if let Some(replaced_bytes) = store.commit(memory, epochs) {
                gather(gathering, memory, store, epochs, replaced_bytes);
            }
        }
        Err(_) => store.roll_back(memory, epochs),
    }
}
