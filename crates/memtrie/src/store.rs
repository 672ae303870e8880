//! The writer's memory: both allocators, what the running operation allocated and replaced, and what waits for readers.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node::{adaptive, paper};
use crate::raw::arena::Arena;
use crate::raw::blocks::{BLOCK_BYTES, BLOCK_WORDS, Blocks};
use crate::raw::epoch::{Epochs, Limbo};
use crate::raw::leaf::{Header, leaf_units};
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::raw::spare_pages::SparePages;
use crate::terms::{Layout, MemoryUse, TrieFull, TrieOptions};

/// A batch of retired pieces is closed at this many pieces, or at this many bytes.
const BATCH_PIECES: usize = 512;
const BATCH_BYTES: usize = 64 << 10;

/// The writer waits for readers when more bytes than this, plus a share of the trie's size, wait to be reclaimed.
const PASSING_BYTES_MAX: usize = 1 << 20;
const PASSING_BYTES_SHARE: usize = 16;
/// How long it waits for one reader, and again whenever twice as much waits. The reader may only have been interrupted,
/// but it may also sleep for ever, or be the writer's own thread.
const PATIENCE: Duration = Duration::from_millis(20);
const PATIENCE_STEP: Duration = Duration::from_micros(50);

/// Contents are compacted when more bytes than this, plus a share of their size, are free between them.
const GAP_BYTES_MAX: usize = 512 << 10;
const GAP_BYTES_SHARE: usize = 16;

/// The allocator of nodes.
#[allow(clippy::large_enum_variant, reason = "a store has one, and is on the heap")]
enum Structure {
    Paper(Blocks),
    Adaptive(Arena),
}

pub(crate) struct Store {
    structure: Structure,
    blobs: Arena,
    /// The nodes (blocks of the paper's layout by their starts) and blobs that the running operation allocated; nothing
    /// published reaches them.
    fresh: Vec<Ptr>,
    /// The nodes of `fresh` again, as a set; only a copying operation queries it.
    fresh_set: NodeSet,
    /// The words of the nodes of `fresh`, as half-open ranges, for checks in debug builds.
    fresh_words: BTreeMap<u32, u32>,
    /// Whether the running operation copies nodes that it did not allocate itself, instead of changing them in place.
    copying: bool,
    /// The pieces that the running operation unlinks when it publishes.
    replaced: Vec<Ptr>,
    /// The pieces that completed operations unlinked since the last batch was closed.
    retired: Vec<Ptr>,
    retired_bytes: usize,
    limbo: Limbo,
    /// The bytes that are neither in the trie nor free: retired and in limbo.
    passing_bytes: usize,
    /// How long the writer waits for one reader.
    pub(crate) patience: Duration,
    /// The newest epoch of a pin for which the writer waited without success. It waits again when this many bytes are
    /// pending.
    given_up: u64,
    given_up_until_bytes: usize,
    /// How many more allocations succeed.
    #[cfg(test)]
    pub(crate) allocations_left: Option<u32>,
    #[cfg(test)]
    pub(crate) waits: u32,
}

impl Store {
    pub(crate) fn open(options: &TrieOptions, spare: Option<&Arc<SparePages>>) -> Option<Store> {
        let structure = match options.layout {
            Layout::Paper => Structure::Paper(Blocks::reserve(options.blocks_bytes_max, spare)?),
            Layout::Adaptive => {
                let mut arena = Arena::reserve(options.blocks_bytes_max.min(1 << 31), spare)?;
                arena.allocate_root(ROOT_UNITS).ok()?;
                Structure::Adaptive(arena)
            }
        };
        Some(Store {
            structure,
            blobs: Arena::reserve(options.blobs_bytes_max, spare)?,
            fresh: Vec::new(),
            fresh_set: NodeSet::default(),
            fresh_words: BTreeMap::new(),
            copying: false,
            replaced: Vec::new(),
            retired: Vec::new(),
            retired_bytes: 0,
            limbo: Limbo::default(),
            passing_bytes: 0,
            patience: PATIENCE,
            given_up: 0,
            given_up_until_bytes: 0,
            #[cfg(test)]
            allocations_left: None,
            #[cfg(test)]
            waits: 0,
        })
    }

    pub(crate) fn bases(&self) -> (NonNull<u8>, NonNull<u8>) {
        let structure = match &self.structure {
            Structure::Paper(blocks) => blocks.space().base(),
            Structure::Adaptive(arena) => arena.space().base(),
        };
        (structure, self.blobs.space().base())
    }

    /// Lets allocations fail in tests.
    #[inline]
    fn may_allocate(&mut self) -> Result<(), TrieFull> {
        #[cfg(test)]
        if let Some(left) = &mut self.allocations_left {
            *left = left.checked_sub(1).ok_or(TrieFull)?;
        }
        Ok(())
    }

    /// A block of the paper's layout with undefined contents.
    #[inline]
    pub(crate) fn allocate_block(&mut self, memory: Memory<'_>) -> Result<Ptr, TrieFull> {
        self.may_allocate()?;
        let Structure::Paper(blocks) = &mut self.structure else {
            unreachable!("the paper's writer runs on the paper's layout only");
        };
        let block = blocks.allocate(memory)?;
        self.allocated(block, block.slot(0), BLOCK_WORDS);
        Ok(block)
    }

    /// A node of the adaptive layout with undefined contents. A chain's length must be written before anything can
    /// fail.
    #[inline]
    pub(crate) fn allocate_node(&mut self, kind: u32, units: u32) -> Result<Ptr, TrieFull> {
        self.may_allocate()?;
        let Structure::Adaptive(arena) = &mut self.structure else {
            unreachable!("the adaptive writer runs on the adaptive layout only");
        };
        let unit = arena.allocate(units)?;
        let node = Ptr::node(unit / 2, kind);
        self.allocated(node, node.node_slot(0), 2 * units);
        Ok(node)
    }

    #[inline]
    fn allocated(&mut self, node: Ptr, first: Slot, words: u32) {
        self.fresh.push(node);
        if cfg!(debug_assertions) {
            self.fresh_words.insert(first.word(), first.word() + words);
        }
        if self.copying {
            self.fresh_set.insert(number(node, self.layout()));
        }
    }

    fn layout(&self) -> Layout {
        match self.structure {
            Structure::Paper(_) => Layout::Paper,
            Structure::Adaptive(_) => Layout::Adaptive,
        }
    }

    /// A blob of the paper's layout with this content, as a leaf pointer.
    #[inline]
    pub(crate) fn allocate_blob(&mut self, memory: Memory<'_>, content: &[u8]) -> Result<Ptr, TrieFull> {
        self.may_allocate()?;
        let length = content_length(content)?;
        let unit = self.blobs.allocate(paper::blob_units(length))?;
        memory.write_blob(unit, content, length);
        let leaf = Ptr::leaf(unit);
        self.fresh.push(leaf);
        Ok(leaf)
    }

    /// A leaf of the adaptive layout.
    #[inline]
    pub(crate) fn allocate_leaf(&mut self, memory: Memory<'_>, tail: &[u8], content: &[u8]) -> Result<Ptr, TrieFull> {
        self.may_allocate()?;
        content_length(content)?;
        let header = Header::new(tail.len(), content.len());
        let unit = self.blobs.allocate(header.units(tail.len(), content.len()))?;
        memory.write_leaf(unit, header, tail, content);
        let leaf = Ptr::leaf(unit);
        self.fresh.push(leaf);
        Ok(leaf)
    }

    /// Unlinks a node or blob. It is recycled when the running operation has published and no reader can reach it.
    #[inline]
    pub(crate) fn replace(&mut self, piece: Ptr) {
        self.replaced.push(piece);
    }

    /// Whether the running operation has unlinked something.
    pub(crate) fn has_replaced(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// Starts changing copies instead of published nodes.
    pub(crate) fn copy_from_here(&mut self) {
        debug_assert!(self.fresh.is_empty());
        self.copying = true;
    }

    /// Ends that: what follows links the copies to the published nodes, in place again.
    pub(crate) fn copy_to_here(&mut self) {
        self.fresh_set.clear();
        self.copying = false;
    }

    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        self.copying
    }

    /// Whether the word is in a node that the running operation allocated. Known in debug builds only.
    pub(crate) fn is_own(&self, slot: Slot) -> bool {
        let before = self.fresh_words.range(..=slot.word()).next_back();
        before.is_some_and(|(_, end)| slot.word() < *end)
    }

    /// Whether the running operation may change the word (W4). Known in debug builds only.
    pub(crate) fn may_publish(&self, slot: Slot) -> bool {
        !self.copying || slot == Slot::PENDING || self.is_own(slot)
    }

    /// Whether the pointer is null, or what it names is in committed memory (R3).
    pub(crate) fn is_committed(&self, ptr: Ptr) -> bool {
        if ptr.is_leaf() {
            return (ptr.unit() as usize * 8) < self.blobs.space().committed();
        }
        match &self.structure {
            Structure::Paper(blocks) => blocks.was_allocated(ptr),
            Structure::Adaptive(arena) => ptr.node_unit() as usize * 16 < arena.space().committed(),
        }
    }

    /// Whether the running (copying) operation allocated the node.
    pub(crate) fn is_fresh(&self, node: Ptr) -> bool {
        self.fresh_set.contains(number(node, self.layout()))
    }

    /// Completes an operation after its publication. Returns the bytes of the batch of replaced pieces, if one was
    /// closed.
    #[inline]
    pub(crate) fn commit(&mut self, memory: Memory<'_>, epochs: &Epochs) -> Option<usize> {
        self.fresh.clear();
        if cfg!(debug_assertions) {
            self.fresh_words.clear();
        }
        if self.copying {
            self.copy_to_here();
        }
        while let Some(piece) = self.replaced.pop() {
            self.retired_bytes += piece_bytes(memory, piece);
            self.retired.push(piece);
        }
        if self.retired.len() < BATCH_PIECES && self.retired_bytes < BATCH_BYTES {
            return None;
        }
        let closed_bytes = self.retired_bytes;
        self.close_batch(memory, epochs);
        Some(closed_bytes)
    }

    /// Undoes an operation that did not publish: everything it allocated is free again, and nothing was unlinked.
    #[cold]
    pub(crate) fn roll_back(&mut self, memory: Memory<'_>, epochs: &Epochs) {
        self.replaced.clear();
        self.fresh_words.clear();
        self.copy_to_here();
        while let Some(piece) = self.fresh.pop() {
            self.free_piece(memory, piece);
        }
        self.close_batch(memory, epochs);
    }

    /// Stamps the retired pieces, and recycles those that no reader can reach.
    pub(crate) fn close_batch(&mut self, memory: Memory<'_>, epochs: &Epochs) {
        if !self.retired.is_empty() {
            self.passing_bytes += self.retired_bytes;
            self.retired_bytes = 0;
            self.limbo.push(epochs.advance(), &mut self.retired);
        }
        if self.limbo.is_empty() {
            return;
        }
        self.recycle(memory, epochs);
        if self.passing_is_much() {
            self.await_readers(memory, epochs);
        }
    }

    /// Recycles the pieces that no reader can reach. Returns the oldest epoch that a reader holds.
    fn recycle(&mut self, memory: Memory<'_>, epochs: &Epochs) -> u64 {
        let oldest = epochs.oldest_pin();
        let mut limbo = std::mem::take(&mut self.limbo);
        limbo.drain(oldest, |piece| {
            self.passing_bytes -= self.free_piece(memory, piece);
        });
        self.limbo = limbo;
        oldest
    }

    fn passing_is_much(&self) -> bool {
        self.passing_bytes > PASSING_BYTES_MAX + self.memory_use().used / PASSING_BYTES_SHARE
    }

    /// Gives an interrupted reader time to finish: a writer at full speed replaces the whole trie several times while a
    /// thread waits for a processor.
    #[cold]
    fn await_readers(&mut self, memory: Memory<'_>, epochs: &Epochs) {
        let start = Instant::now();
        loop {
            let oldest = self.recycle(memory, epochs);
            let is_given_up = oldest <= self.given_up && self.passing_bytes < self.given_up_until_bytes;
            if !self.passing_is_much() || is_given_up {
                return;
            }
            #[cfg(test)]
            {
                self.waits += 1;
            }
            if start.elapsed() >= self.patience {
                (self.given_up, self.given_up_until_bytes) = (oldest, 2 * self.passing_bytes);
                return;
            }
            std::thread::sleep(PATIENCE_STEP);
        }
    }

    /// Whether so much is free between contents that moving some is worthwhile.
    pub(crate) fn has_gaps(&self) -> bool {
        self.blobs.gap_bytes() > GAP_BYTES_MAX + self.blobs.used_bytes() / GAP_BYTES_SHARE
    }

    /// Whether most of what was around a content is gone. (Contents inside nodes do not count.)
    pub(crate) fn is_sparse_around(&self, content: &[u8]) -> bool {
        self.blobs.is_sparse_at(content.as_ptr())
    }

    /// Frees a piece. Returns how many bytes it occupied.
    #[inline]
    fn free_piece(&mut self, memory: Memory<'_>, piece: Ptr) -> usize {
        if piece.is_leaf() {
            let units = blob_units(memory, piece);
            self.blobs.free(piece.unit(), units);
            return Arena::bytes_of(units);
        }
        match &mut self.structure {
            Structure::Paper(blocks) => {
                blocks.free(memory, piece);
                BLOCK_BYTES
            }
            Structure::Adaptive(arena) => {
                let units = adaptive::units(memory, piece);
                arena.free(piece.node_unit() * 2, units);
                Arena::bytes_of(units)
            }
        }
    }

    /// The bytes that are neither in the trie nor free.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.passing_bytes + self.retired_bytes
    }

    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        let is_structure_half_full = match &self.structure {
            Structure::Paper(blocks) => blocks.is_half_full(),
            Structure::Adaptive(arena) => arena.is_half_full(),
        };
        is_structure_half_full || self.blobs.is_half_full()
    }

    pub(crate) fn memory_use(&self) -> MemoryUse {
        let (allocated, held, reserved) = match &self.structure {
            Structure::Paper(blocks) => (blocks.used_bytes(), blocks.frontier_bytes(), blocks.space().committed()),
            Structure::Adaptive(arena) => {
                let root_bytes = Arena::bytes_of(ROOT_UNITS);
                (arena.used_bytes() - root_bytes, arena.held_bytes() - root_bytes, arena.held_bytes())
            }
        };
        let used = allocated + self.blobs.used_bytes() - self.waiting_bytes();
        MemoryUse {
            used,
            reusable: held + self.blobs.held_bytes() - used,
            reserved: reserved + self.blobs.held_bytes(),
        }
    }
}

/// Units of the adaptive layout's first piece, which holds the root words.
const ROOT_UNITS: u32 = 2;

/// The bytes that a node or blob occupies.
#[inline]
pub(crate) fn piece_bytes(memory: Memory<'_>, piece: Ptr) -> usize {
    if piece.is_leaf() {
        return Arena::bytes_of(blob_units(memory, piece));
    }
    match memory.layout {
        Layout::Paper => BLOCK_BYTES,
        Layout::Adaptive => Arena::bytes_of(adaptive::units(memory, piece)),
    }
}

#[inline]
fn blob_units(memory: Memory<'_>, leaf: Ptr) -> u32 {
    match memory.layout {
        Layout::Paper => paper::blob_units(memory.blob(leaf).len() as u32),
        Layout::Adaptive => {
            let leaf = memory.leaf(leaf);
            leaf_units(leaf.tail.len(), leaf.content.len())
        }
    }
}

/// A length that leaves no room for the lengths themselves cannot fit the arena anyway.
#[inline]
fn content_length(content: &[u8]) -> Result<u32, TrieFull> {
    u32::try_from(content.len()).ok().filter(|&length| length < u32::MAX - 256).ok_or(TrieFull)
}

/// A number that distinguishes nodes from each other.
#[inline]
fn number(node: Ptr, layout: Layout) -> u32 {
    match layout {
        Layout::Paper => node.block_number(),
        Layout::Adaptive => node.node_unit(),
    }
}

/// A set of node numbers with open addressing, cleared in the time that it took to fill.
#[derive(Default)]
struct NodeSet {
    /// Number, or 0.
    table: Vec<u32>,
    count: usize,
}

impl NodeSet {
    fn place(&self, number: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = number.wrapping_mul(0x9E37_79B1) as usize >> 7 & mask;
        while self.table[place] != 0 && self.table[place] != number {
            place = (place + 1) & mask;
        }
        place
    }

    fn insert(&mut self, number: u32) {
        if self.count * 2 >= self.table.len() {
            let wider = vec![0; (self.table.len() * 2).max(64)];
            let old = std::mem::replace(&mut self.table, wider);
            for number in old.into_iter().filter(|&number| number != 0) {
                let place = self.place(number);
                self.table[place] = number;
            }
        }
        let place = self.place(number);
        self.count += usize::from(self.table[place] == 0);
        self.table[place] = number;
    }

    fn contains(&self, number: u32) -> bool {
        self.count > 0 && self.table[self.place(number)] == number
    }

    fn clear(&mut self) {
        if self.table.len() > 4096 {
            *self = NodeSet::default();
        } else if self.count > 0 {
            self.table.fill(0);
            self.count = 0;
        }
    }
}
