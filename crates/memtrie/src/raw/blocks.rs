//! Allocation of 32-byte blocks: a frontier that moves up through the committed space, and a free list of recycled
//! blocks threaded through their first words.

use std::sync::Arc;

use super::memory::{Memory, Ptr};
use super::space::{HUGE_PAGE_BYTES, POISON, Space};
use super::spare_pages::SparePages;
use crate::TrieFull;

/// Size of a block. A pointer has 27 bits of block and 5 of kind or place.
pub(crate) const BLOCK_BYTES: usize = 32;
pub(crate) const BLOCK_WORDS: u32 = 8;
/// The first step of growth; later ones are a quarter of what there is, up to `STEP_BYTES_MAX`.
const STEP_BYTES_MIN: usize = 16 << 10;
const STEP_BYTES_MAX: usize = 8 << 20;

/// The allocator of one trie's blocks (invariant R7). Block 0 holds the root slot and is never a node.
pub(crate) struct Blocks {
    space: Space,
    /// First block never handed out yet.
    frontier: u32,
    /// First free block, as its number; 0 = none.
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

    /// A block whose contents are undefined, as a pointer to its start.
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

    /// Takes back a block that no reader can reach any more (R6).
    #[inline]
    pub(crate) fn free(&mut self, memory: Memory<'_>, block: Ptr) {
        debug_assert!(block.block_number() != 0 && block.block_number() < self.frontier);
        poison(memory, block);
        memory.set_word(block.slot(0), self.free);
        self.free = block.block_number();
        self.free_count += 1;
    }

    /// True of a block that was handed out, and of none.
    pub(crate) fn has_given(&self, block: Ptr) -> bool {
        block.is_none() || (1..self.frontier).contains(&block.block_number())
    }

    #[cold]
    fn grow(&mut self) -> Result<(), TrieFull> {
        let committed = self.space.committed();
        let step = (committed / 4).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX) & !0xFFF;
        let upto = (committed + step).min(self.limit_bytes);
        if upto > committed && self.space.commit(upto) { Ok(()) } else { Err(TrieFull) }
    }

    /// Bytes of blocks handed out and not given back (block 0 not counted).
    pub(crate) fn used_bytes(&self) -> usize {
        (self.frontier - 1 - self.free_count) as usize * BLOCK_BYTES
    }

    /// Bytes of all blocks that were ever handed out.
    pub(crate) fn frontier_bytes(&self) -> usize {
        (self.frontier - 1) as usize * BLOCK_BYTES
    }
}

/// In debug builds: has who still reads a free block, or counts on what is in a new one, find nonsense (R6).
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
