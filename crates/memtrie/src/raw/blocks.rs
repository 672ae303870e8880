//! Allocation of 32-byte blocks: a frontier that moves up through the committed space, and a free list of recycled
//! blocks that is threaded through their first words.

use std::sync::Arc;

use super::memory::{Memory, Ptr};
use super::space::{HUGE_PAGE_BYTES, POISON, Space};
use super::spare_pages::SparePages;
use crate::terms::TrieFull;

/// The size of a block. A pointer has 27 bits of block number and 5 bits of kind or offset.
pub(crate) const BLOCK_BYTES: usize = 32;
pub(crate) const BLOCK_WORDS: u32 = 8;
/// The first step of growth; later ones are a quarter of the current size, up to `STEP_BYTES_MAX`.
const STEP_BYTES_MIN: usize = 16 << 10;
const STEP_BYTES_MAX: usize = 8 << 20;

/// The allocator of one trie's blocks (invariant R7). Block 0 holds the root slot and is never a node.
pub(crate) struct Blocks {
    space: Space,
    /// The first block that was never allocated.
    frontier: u32,
    /// The first free block, as its number; 0 = none.
    free: u32,
    free_count: u32,
    limit_bytes: usize,
}

impl Blocks {
    /// `bytes_max` is rounded down to whole pages, at least one.
    pub(crate) fn reserve(bytes_max: usize, spare: Option<&Arc<SparePages>>) -> Option<Blocks> {
        let limit_bytes = (bytes_max.min(1 << 31) & !0xFFF).max(0x1000);
        let mut space = Space::reserve(limit_bytes, spare)?;
        if !space.commit(STEP_BYTES_MIN.min(limit_bytes)) {
            return None;
        }
        space.clear_root();
        Some(Blocks { space, frontier: 1, free: 0, free_count: 0, limit_bytes })
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Allocates a block with undefined contents. Returns a pointer to its start.
    #[inline]
    pub(crate) fn allocate(&mut self, memory: Memory<'_>) -> Result<Ptr, TrieFull> {
        if self.free != 0 {
            let block = Ptr::block_start(self.free);
            self.free = memory.word(block.slot(0));
            self.free_count -= 1;
            return Ok(block);
        }
        if self.frontier as usize * BLOCK_BYTES >= self.space.committed() {
            self.grow()?;
        }
        let block = Ptr::block_start(self.frontier);
        self.frontier += 1;
        poison(memory, block);
        Ok(block)
    }

    /// Frees a block that no reader can reach any more (R6).
    #[inline]
    pub(crate) fn free(&mut self, memory: Memory<'_>, block: Ptr) {
        debug_assert!(block.block_number() != 0 && block.block_number() < self.frontier);
        poison(memory, block);
        memory.set_word(block.slot(0), self.free);
        self.free = block.block_number();
        self.free_count += 1;
    }

    /// Whether the block was ever allocated; also true for the null pointer.
    pub(crate) fn was_allocated(&self, block: Ptr) -> bool {
        block.is_none() || (1..self.frontier).contains(&block.block_number())
    }

    #[cold]
    fn grow(&mut self) -> Result<(), TrieFull> {
        let committed = self.space.committed();
        let step = (committed / 4).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX) & !0xFFF;
        let upto = (committed + step).min(self.limit_bytes);
        if upto > committed && self.space.commit(upto) { Ok(()) } else { Err(TrieFull) }
    }

    /// The bytes of allocated blocks (block 0 does not count).
    pub(crate) fn used_bytes(&self) -> usize {
        (self.frontier - 1 - self.free_count) as usize * BLOCK_BYTES
    }

    /// Whether blocks occupy more than half of their limit.
    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        2 * self.used_bytes() > self.limit_bytes
    }

    /// The bytes of all blocks that were ever allocated.
    pub(crate) fn frontier_bytes(&self) -> usize {
        (self.frontier - 1) as usize * BLOCK_BYTES
    }
}

/// In debug builds, overwrites a block so that a reader of a free block, or code that relies on the contents of a new
/// one, finds nonsense (R6).
#[inline]
fn poison(memory: Memory<'_>, block: Ptr) {
    if cfg!(debug_assertions) {
        (0..BLOCK_WORDS).for_each(|word| memory.set_word(block.slot(word), u32::from_ne_bytes([POISON; 4])));
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let used_bytes = self.frontier as usize * BLOCK_BYTES;
        self.space.leave(|index| (index + 1) * HUGE_PAGE_BYTES <= used_bytes);
    }
}
