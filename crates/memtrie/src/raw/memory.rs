//! Pointers, and access to the words of blocks and the bytes of blobs.

use std::hint::select_unpredictable;
use std::marker::PhantomData;

use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::terms::Layout;

/// A node pointer: 0 is null; with the high bit set it is a leaf, `!unit` of a blob. Otherwise, in the paper's layout,
/// it has 27 bits of block number (the first of them 0) and 5 bits of kind; in the adaptive layout 28 bits of 16-byte
/// unit (the first 0) and 4 bits of kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ptr(u32);

/// The address of a pointer word: block number times 8 plus word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The slot of the trie's root pointer.
    pub(crate) const ROOT: Slot = Slot(0);
    /// The root of a subtree that is being built and not published.
    pub(crate) const PENDING: Slot = Slot(1);

    /// Its index among all words.
    pub(crate) fn word(self) -> u32 {
        self.0
    }
}

impl Ptr {
    pub(crate) const NONE: Ptr = Ptr(0);

    #[inline]
    pub(crate) fn leaf(unit: u32) -> Ptr {
        debug_assert!(unit < 1 << 31);
        Ptr(!unit)
    }

    #[inline]
    pub(super) fn block_start(number: u32) -> Ptr {
        debug_assert!(number < 1 << 26);
        Ptr(number << 5)
    }

    /// A block by its number, for tests.
    #[cfg(test)]
    pub(crate) fn for_block(number: u32) -> Ptr {
        Ptr::block_start(number)
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }

    /// The unit of a leaf pointer's blob.
    #[inline]
    pub(crate) fn unit(self) -> u32 {
        debug_assert!(self.is_leaf());
        !self.0
    }

    /// The 5 bits of kind, or of the offset in a chain.
    #[inline]
    pub(crate) fn kind(self) -> u32 {
        self.0 & 31
    }

    /// The same block with another kind or offset.
    #[inline]
    pub(crate) fn with_kind(self, kind: u32) -> Ptr {
        debug_assert!(!self.is_leaf() && kind < 32);
        Ptr(self.0 & !31 | kind)
    }

    #[inline]
    pub(crate) fn block_number(self) -> u32 {
        debug_assert!(!self.is_leaf());
        self.0 >> 5
    }

    /// The address of word `word` (0..8) of the block.
    #[inline]
    pub(crate) fn slot(self, word: u32) -> Slot {
        debug_assert!(word < 8);
        Slot((self.0 >> 5) * 8 + word)
    }

    /// A node of the adaptive layout.
    #[inline]
    pub(crate) fn node(unit: u32, kind: u32) -> Ptr {
        debug_assert!(unit < 1 << 27 && kind < 16);
        Ptr(unit << 4 | kind)
    }

    /// The 4 bits of kind of the adaptive layout.
    #[inline]
    pub(crate) fn node_kind(self) -> u32 {
        self.0 & 15
    }

    /// Whether this is a node of the adaptive layout of this kind.
    #[inline]
    pub(crate) fn is_node_of(self, kind: u32) -> bool {
        self.0 & 0x8000_000F == kind
    }

    /// The 16-byte unit where a node of the adaptive layout starts.
    #[inline]
    pub(crate) fn node_unit(self) -> u32 {
        debug_assert!(!self.is_leaf());
        self.0 >> 4
    }

    /// The address of word `word` of a node of the adaptive layout.
    #[inline]
    pub(crate) fn node_slot(self, word: u32) -> Slot {
        debug_assert!(!self.is_leaf());
        Slot((self.0 >> 4) * 4 + word)
    }

    /// The word as stored in a block, for dumps and worked examples.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

/// The base pointers that readers use (invariant R2).
pub(crate) struct Bases {
    layout: Layout,
    blocks: AtomicPtr<u8>,
    blobs: AtomicPtr<u8>,
}

impl Bases {
    pub(crate) fn new(layout: Layout) -> Bases {
        Bases { layout, blocks: AtomicPtr::default(), blobs: AtomicPtr::default() }
    }

    /// Called once, by the writer, before the first publication.
    pub(crate) fn set(&self, blocks: *mut u8, blobs: *mut u8) {
        debug_assert!(self.memory().is_none());
        self.blobs.store(blobs, Ordering::Relaxed);
        self.blocks.store(blocks, Ordering::Release);
    }

    /// Access for a reader or the writer; `None` before the first write.
    #[inline]
    pub(crate) fn memory(&self) -> Option<Memory<'_>> {
        let blocks = self.blocks.load(Ordering::Acquire);
        if blocks.is_null() {
            return None;
        }
        let blobs = self.blobs.load(Ordering::Relaxed);
        Some(Memory { layout: self.layout, blocks, blobs, trie: PhantomData })
    }
}

/// Access to one trie's structure and blobs, valid as long as the trie. R3 and R6 say what it may read.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) layout: Layout,
    blocks: *const u8,
    blobs: *mut u8,
    trie: PhantomData<&'a Bases>,
}

// SAFETY: R1, R4: the pointers are valid for the trie's life from any thread, and racing accesses are atomic.
unsafe impl Send for Memory<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Memory<'_> {}

impl<'a> Memory<'a> {
    #[inline]
    fn atomic(self, slot: Slot) -> &'a AtomicU32 {
        // SAFETY: R1, R3: the slot is of a committed block (or block 0), 4-byte aligned; R4: 32-bit accesses only.
        unsafe { &*self.blocks.cast::<AtomicU32>().add(slot.0 as usize) }
    }

    /// Loads a pointer word with acquire: everything written before its publication is visible.
    #[inline]
    pub(crate) fn load(self, slot: Slot) -> Ptr {
        Ptr(self.atomic(slot).load(Ordering::Acquire))
    }

    /// Publishes a pointer: everything written before is visible to a reader that loads it.
    #[inline]
    pub(crate) fn publish(self, slot: Slot, ptr: Ptr) {
        self.atomic(slot).store(ptr.0, Ordering::Release);
    }

    /// Loads a word that is not a pointer, or whose block was already acquired.
    #[inline]
    pub(crate) fn word(self, slot: Slot) -> u32 {
        self.atomic(slot).load(Ordering::Relaxed)
    }

    /// Publishes a word that is not a pointer.
    #[inline]
    pub(crate) fn publish_word(self, slot: Slot, word: u32) {
        self.atomic(slot).store(word, Ordering::Release);
    }

    /// Writes a word that no reader can reach yet, or whose meaning to readers does not change.
    #[inline]
    pub(crate) fn set_word(self, slot: Slot, word: u32) {
        self.atomic(slot).store(word, Ordering::Relaxed);
    }

    #[inline]
    fn wide(self, slot: Slot) -> &'a AtomicU64 {
        debug_assert!(slot.0.is_multiple_of(2));
        // SAFETY: R1, R3: two words of a committed node, 8-byte aligned; R4: these words are always accessed so.
        unsafe { &*self.blocks.add(slot.0 as usize * 4).cast::<AtomicU64>() }
    }

    /// Loads two words that are always accessed as one, with acquire.
    #[inline]
    pub(crate) fn load_wide(self, slot: Slot) -> u64 {
        self.wide(slot).load(Ordering::Acquire)
    }

    /// Publishes two words as one.
    #[inline]
    pub(crate) fn publish_wide(self, slot: Slot, word: u64) {
        self.wide(slot).store(word, Ordering::Release);
    }

    /// Loads two words as one, whose node was already acquired.
    #[inline]
    pub(crate) fn wide_word(self, slot: Slot) -> u64 {
        self.wide(slot).load(Ordering::Relaxed)
    }

    /// Writes two words as one, like `set_word`.
    #[inline]
    pub(crate) fn set_wide_word(self, slot: Slot, word: u64) {
        self.wide(slot).store(word, Ordering::Relaxed);
    }

    /// The steps of a chain: `length` bytes that start `offset` bytes after a slot's word.
    #[inline]
    pub(crate) fn steps(self, slot: Slot, offset: usize, length: usize) -> &'a [u8] {
        // SAFETY: R1, R3: bytes of a committed node; R8: they do not change from its publication to its reclamation.
        unsafe { std::slice::from_raw_parts(self.blocks.add(slot.0 as usize * 4 + offset), length) }
    }

    /// The bytes of a blob of the paper's layout: 4 bytes of length, then the content.
    #[inline]
    pub(crate) fn blob(self, leaf: Ptr) -> &'a [u8] {
        // SAFETY: R3, R5: the leaf names a complete, immutable blob: a 4-byte length and that many bytes; R6 bounds the
        // use of the slice by the pin or writer borrow of the caller.
        unsafe {
            let start = self.blobs.add(leaf.unit() as usize * 8);
            let length = start.cast::<u32>().read() as usize;
            std::slice::from_raw_parts(start.add(4), length)
        }
    }

    /// Prefetches the start of a blob.
    #[inline]
    pub(crate) fn prefetch_blob(self, leaf: Ptr) {
        let start = self.blobs.wrapping_add(leaf.unit() as usize * 8);
        prefetch(start);
        // A small blob may end on the next cache line.
        prefetch(start.wrapping_add(32));
    }

    /// Prefetches a leaf like `prefetch_blob`, or the first line of a node of the adaptive layout. No branch
    /// distinguishes them, because it would be unpredictable among a node's children.
    #[inline]
    pub(crate) fn prefetch_piece(self, ptr: Ptr) {
        let node = self.blocks.wrapping_add((ptr.0 >> 4) as usize * 16);
        let start = select_unpredictable(ptr.is_leaf(), self.blob_start_or_any(ptr), node);
        prefetch(start);
        prefetch(start.wrapping_add(select_unpredictable(ptr.is_leaf(), 32, 0)));
    }

    /// Prefetches the first line of a node of the adaptive layout; for a leaf, memory that is always cached. It has no
    /// branch, like `prefetch_piece`.
    #[inline]
    pub(crate) fn prefetch_node(self, ptr: Ptr) {
        let unit = select_unpredictable(ptr.is_leaf(), 0, ptr.0 >> 4);
        prefetch(self.blocks.wrapping_add(unit as usize * 16));
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub(crate) fn prefetch_slot(self, slot: Slot) {
        prefetch(self.blocks.wrapping_add(slot.0 as usize * 4));
    }

    /// Writes a blob at a unit that was just allocated for it.
    #[inline]
    pub(crate) fn write_blob(self, unit: u32, content: &[u8], length: u32) {
        debug_assert_eq!(content.len(), length as usize);
        // SAFETY: R1, R6, R7: the allocator handed out these bytes for `4 + length` bytes and nothing else refers to
        // them.
        unsafe {
            let start = self.blobs.add(unit as usize * 8);
            start.cast::<u32>().write(length);
            start.add(4).copy_from_nonoverlapping(content.as_ptr(), content.len());
        }
    }

    /// The address of the first byte of a blob; `R3` says how many bytes the caller may read.
    #[inline]
    pub(super) fn blob_start(self, leaf: Ptr) -> *const u8 {
        self.blobs.wrapping_add(leaf.unit() as usize * 8)
    }

    /// Like `blob_start`; for a pointer that is not a leaf, some address that must not be read.
    #[inline]
    pub(super) fn blob_start_or_any(self, ptr: Ptr) -> *const u8 {
        self.blobs.wrapping_add(!ptr.0 as usize * 8)
    }

    /// Like `blob_start`, for a blob that was just allocated.
    #[inline]
    pub(super) fn blob_start_mut(self, unit: u32) -> *mut u8 {
        self.blobs.wrapping_add(unit as usize * 8)
    }
}

#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees and faults on no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
