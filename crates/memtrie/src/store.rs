//! The writer's memory: both allocators, what the running operation allocated and replaced, and what waits for readers.

use std::ptr::NonNull;

use crate::raw::blobs::Blobs;
use crate::raw::blocks::Blocks;
use crate::raw::epoch::{Epochs, Limbo};
use crate::raw::memory::{Memory, Ptr};
use crate::{MemoryUse, TrieFull, TrieOptions};

/// A batch of retired pieces is closed at this many pieces, or at this many bytes.
const BATCH_PIECES: usize = 512;
const BATCH_BYTES: usize = 64 << 10;

pub(crate) struct Store {
    blocks: Blocks,
    blobs: Blobs,
    /// Blocks (by their starts) and blobs that the running operation allocated; nothing published reaches them.
    fresh: Vec<Ptr>,
    /// The blocks of `fresh` once more, as a set: only a copying operation asks.
    fresh_set: BlockSet,
    /// The running operation copies what it did not allocate itself, instead of changing it in place.
    copying: bool,
    /// Pieces the running operation unlinks when it publishes.
    replaced: Vec<Ptr>,
    /// Pieces unlinked by completed operations since the last batch was closed.
    retired: Vec<Ptr>,
    retired_bytes: usize,
    limbo: Limbo,
    /// Bytes that are neither in the trie nor free: retired and in limbo.
    passing_bytes: usize,
}

impl Store {
    pub(crate) fn open(options: &TrieOptions) -> Option<Store> {
        Some(Store {
            blocks: Blocks::reserve(options.blocks_bytes_max)?,
            blobs: Blobs::reserve(options.blobs_bytes_max)?,
            fresh: Vec::new(),
            fresh_set: BlockSet::default(),
            copying: false,
            replaced: Vec::new(),
            retired: Vec::new(),
            retired_bytes: 0,
            limbo: Limbo::default(),
            passing_bytes: 0,
        })
    }

    pub(crate) fn bases(&self) -> (NonNull<u8>, NonNull<u8>) {
        (self.blocks.space().base(), self.blobs.space().base())
    }

    /// A block with undefined contents.
    #[inline]
    pub(crate) fn allocate_block(&mut self, memory: Memory<'_>) -> Result<Ptr, TrieFull> {
        let block = self.blocks.allocate(memory)?;
        self.fresh.push(block);
        if self.copying {
            self.fresh_set.insert(block.block_number());
        }
        Ok(block)
    }

    /// A blob with this content, as a leaf pointer.
    #[inline]
    pub(crate) fn allocate_blob(&mut self, memory: Memory<'_>, content: &[u8]) -> Result<Ptr, TrieFull> {
        // A length that leaves no room for the length word cannot fit the arena anyway.
        let length = u32::try_from(content.len()).ok().filter(|&length| length < u32::MAX - 8).ok_or(TrieFull)?;
        let unit = self.blobs.allocate(memory, length)?;
        memory.write_blob(unit, content, length);
        let leaf = Ptr::leaf(unit);
        self.fresh.push(leaf);
        Ok(leaf)
    }

    /// Unlinks a block or blob: it is recycled when the running operation has published and all readers have passed.
    #[inline]
    pub(crate) fn replace(&mut self, piece: Ptr) {
        self.replaced.push(piece);
    }

    /// Starts changing copies instead of the published nodes.
    pub(crate) fn copy_from_here(&mut self) {
        debug_assert!(self.fresh.is_empty());
        self.copying = true;
    }

    /// What follows links the copies to the published nodes, in place again.
    pub(crate) fn copy_to_here(&mut self) {
        self.fresh_set.clear();
        self.copying = false;
    }

    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        self.copying
    }

    /// True if the running (copying) operation allocated the block.
    pub(crate) fn is_fresh(&self, block: Ptr) -> bool {
        self.fresh_set.contains(block.block_number())
    }

    /// After publication.
    #[inline]
    pub(crate) fn commit(&mut self, memory: Memory<'_>, epochs: &Epochs) {
        self.fresh.clear();
        if self.copying {
            self.copy_to_here();
        }
        while let Some(piece) = self.replaced.pop() {
            self.retired_bytes += self.piece_bytes(memory, piece);
            self.retired.push(piece);
        }
        if self.retired.len() >= BATCH_PIECES || self.retired_bytes >= BATCH_BYTES {
            self.close_batch(memory, epochs);
        }
    }

    /// Instead of publication: everything allocated is free again, and nothing was unlinked.
    #[cold]
    pub(crate) fn roll_back(&mut self, memory: Memory<'_>, epochs: &Epochs) {
        self.replaced.clear();
        self.copy_to_here();
        while let Some(piece) = self.fresh.pop() {
            self.free_piece(memory, piece);
        }
        self.close_batch(memory, epochs);
    }

    /// Stamps what was retired, and recycles what readers have passed.
    pub(crate) fn close_batch(&mut self, memory: Memory<'_>, epochs: &Epochs) {
        if !self.retired.is_empty() {
            self.passing_bytes += self.retired_bytes;
            self.retired_bytes = 0;
            self.limbo.push(epochs.advance(), &mut self.retired);
        }
        if self.limbo.is_empty() {
            return;
        }
        let oldest = epochs.oldest_pin();
        let mut limbo = std::mem::take(&mut self.limbo);
        limbo.drain(oldest, |piece| {
            self.passing_bytes -= self.piece_bytes(memory, piece);
            self.free_piece(memory, piece);
        });
        self.limbo = limbo;
    }

    fn free_piece(&mut self, memory: Memory<'_>, piece: Ptr) {
        if piece.is_leaf() {
            let length = memory.blob(piece).len() as u32;
            self.blobs.free(memory, piece.unit(), length);
        } else {
            self.blocks.free(memory, piece);
        }
    }

    #[inline]
    fn piece_bytes(&self, memory: Memory<'_>, piece: Ptr) -> usize {
        if piece.is_leaf() { Blobs::bytes_of(memory.blob(piece).len() as u32) } else { crate::raw::blocks::BLOCK_BYTES }
    }

    #[inline]
    pub(crate) fn memory_use(&self) -> MemoryUse {
        let allocated = self.blocks.used_bytes() + self.blobs.used_bytes();
        let waiting = self.passing_bytes + self.retired_bytes;
        let held = self.blocks.frontier_bytes() + self.blobs.held_bytes();
        MemoryUse {
            used: allocated - waiting,
            reusable: held - (allocated - waiting),
            reserved: self.blocks.space().committed() + self.blobs.held_bytes(),
        }
    }
}

/// A set of block numbers: open addressing, cleared in the time it took to fill.
#[derive(Default)]
struct BlockSet {
    /// Block number, or 0.
    table: Vec<u32>,
    count: usize,
}

impl BlockSet {
    fn place(&self, block: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = block.wrapping_mul(0x9E37_79B1) as usize >> 7 & mask;
        while self.table[place] != 0 && self.table[place] != block {
            place = (place + 1) & mask;
        }
        place
    }

    fn insert(&mut self, block: u32) {
        if self.count * 2 >= self.table.len() {
            let wider = vec![0; (self.table.len() * 2).max(64)];
            let old = std::mem::replace(&mut self.table, wider);
            for block in old.into_iter().filter(|&block| block != 0) {
                let place = self.place(block);
                self.table[place] = block;
            }
        }
        let place = self.place(block);
        self.count += usize::from(self.table[place] == 0);
        self.table[place] = block;
    }

    fn contains(&self, block: u32) -> bool {
        self.count > 0 && self.table[self.place(block)] == block
    }

    fn clear(&mut self) {
        if self.table.len() > 4096 {
            *self = BlockSet::default();
        } else if self.count > 0 {
            self.table.fill(0);
            self.count = 0;
        }
    }
}
