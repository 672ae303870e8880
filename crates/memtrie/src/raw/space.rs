//! Reserved address space that is committed on demand.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use super::spare_pages::{HugePage, SparePages};

pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// From this committed size on a space requests huge pages, and grows by whole ones.
const HUGE_PAGES_FROM_BYTES: usize = 4 << 20;

/// The words of the trie's root and of the subtree being built, and two unused words, which together read as a node
/// without children.
const ROOT_BYTES: usize = 16;

/// The byte with which debug builds fill freed and new pieces. As a pointer it is a leaf beyond all committed memory,
/// and as a length more than there is.
pub(super) const POISON: u8 = 0xA5;

/// A range of addresses that was mapped as one, private and anonymous (invariant R1).
pub(crate) struct Space {
    /// The start of the mapping, and its length.
    mapping: NonNull<u8>,
    mapped: usize,
    /// The start of the first huge page in it.
    base: NonNull<u8>,
    reserved: usize,
    committed: usize,
    /// The source of memory before new memory is requested, and where memory goes at the end.
    spare: Option<Arc<SparePages>>,
}

// SAFETY: R1, R7: the mapping belongs to no thread; `Space` itself is used only under the writer's lock.
unsafe impl Send for Space {}

impl Space {
    /// Reserves `bytes` (a multiple of the page size) of address space, aligned to huge pages. No memory is used yet.
    /// `None` if the system refuses.
    pub(crate) fn reserve(bytes: usize, spare: Option<&Arc<SparePages>>) -> Option<Space> {
        let mapped = bytes + HUGE_PAGE_BYTES;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        let mapping = NonNull::new(address.ok()?.cast::<u8>())?;
        let start = mapping.as_ptr();
        let base = NonNull::new(start.wrapping_add(start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr()))?;
        Some(Space { mapping, mapped, base, reserved: bytes, committed: 0, spare: spare.cloned() })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    /// Commits at least the first `upto` bytes, whose contents are undefined. Returns false if that exceeds the
    /// reservation or the system has no memory.
    pub(crate) fn commit(&mut self, upto: usize) -> bool {
        if upto > self.reserved {
            return false;
        }
        // The kernel uses a huge page only where all of it is committed when it is first touched.
        let upto =
            if upto > HUGE_PAGES_FROM_BYTES { upto.next_multiple_of(HUGE_PAGE_BYTES).min(self.reserved) } else { upto };
        self.commit_spare(upto);
        upto <= self.committed || self.commit_new(upto)
    }

    /// Commits spare pages as far as there are any. The first huge page of a space is never spare, because a small
    /// space does not need all of it.
    fn commit_spare(&mut self, upto: usize) {
        let Some(spare) = self.spare.clone() else { return };
        while self.committed > 0
            && self.committed.is_multiple_of(HUGE_PAGE_BYTES)
            && self.committed + HUGE_PAGE_BYTES <= upto.min(self.reserved)
        {
            let Some(page) = spare.take() else { return };
            // SAFETY: R1: the range is in our own mapping, and not committed: nothing refers into it.
            if unsafe { page.move_to(self.at(self.committed)) }.is_err() {
                spare.uncommitted(HUGE_PAGE_BYTES);
                return self.end_here();
            }
            self.committed += HUGE_PAGE_BYTES;
        }
    }

    /// Ends the space before the next huge page's range, after a failed move. What is mapped there is unknown: it may
    /// be nothing, or already belong to something else.
    #[cold]
    fn end_here(&mut self) {
        let (unknown, end) = (self.committed + HUGE_PAGE_BYTES, self.end());
        unmap(self.at(unknown), end - self.at(unknown).addr());
        self.mapped -= end - self.at(self.committed).addr();
        self.reserved = self.committed;
    }

    fn commit_new(&mut self, upto: usize) -> bool {
        if upto > self.reserved {
            return false;
        }
        let from = self.at(self.committed);
        let length = upto - self.committed;
        // SAFETY: the range lies in our own mapping (R1).
        if unsafe { mprotect(from, length, MprotectFlags::READ | MprotectFlags::WRITE) }.is_err() {
            return false;
        }
        if upto > HUGE_PAGES_FROM_BYTES {
            // The first time the advice covers the space from its start, so that it remains one area for the kernel,
            // which may collapse its small pages.
            let advised = if self.wants_huge_pages() { self.committed } else { 0 };
            // SAFETY: as above; this advice does not change contents. It may be refused, which costs only speed.
            let _ = unsafe { madvise(self.at(advised), upto - advised, Advice::LinuxHugepage) };
        }
        self.committed = upto;
        self.spare.iter().for_each(|spare| spare.committed(length));
        true
    }

    /// Before the drop: passes the huge pages that are in use, by their index, to other tries. A space that stayed
    /// small passes on none.
    pub(super) fn leave(&mut self, is_in_use: impl Fn(usize) -> bool) {
        let Some(spare) = self.spare.take() else { return };
        spare.uncommitted(self.committed);
        if !self.wants_huge_pages() {
            return;
        }
        for index in (0..self.committed / HUGE_PAGE_BYTES).filter(|&index| is_in_use(index)) {
            let page = self.cut_out(index);
            if !spare.keep(page) {
                return;
            }
        }
    }

    /// Takes a huge page out of the mapping, and unmaps what is before it.
    fn cut_out(&mut self, index: usize) -> HugePage {
        let start = self.base.as_ptr().wrapping_add(index * HUGE_PAGE_BYTES);
        let before = start.addr() - self.mapping.addr().get();
        unmap(self.mapping.as_ptr().cast(), before);
        self.mapped -= before + HUGE_PAGE_BYTES;
        // SAFETY: R1: both addresses are in our mapping, or at its end.
        let (start, after) =
            unsafe { (NonNull::new_unchecked(start), NonNull::new_unchecked(start.add(HUGE_PAGE_BYTES))) };
        self.mapping = after;
        // SAFETY: R1, R10: it is committed, nothing that refers into it outlives the trie that drops us, and it is no
        // longer in our mapping.
        unsafe { HugePage::new(start) }
    }

    /// Whether it requests huge pages.
    pub(crate) fn wants_huge_pages(&self) -> bool {
        self.committed > HUGE_PAGES_FROM_BYTES
    }

    /// Moves the `index`th huge page's range, all of it in use, to a huge page if it is not on one. In fragmented
    /// memory there often was none when the range was first touched, and memory that was returned in parts comes back
    /// in small pages.
    pub(crate) fn collapse(&self, index: usize) {
        let offset = index * HUGE_PAGE_BYTES;
        debug_assert!(offset + HUGE_PAGE_BYTES <= self.committed);
        // SAFETY: R1: the range is ours; contents and addresses stay as they are. A refusal (before Linux 6.1 always)
        // costs only speed.
        let _ = unsafe { libc::madvise(self.at(offset), HUGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
    }

    /// Returns the memory of a committed range to the system; it reads as zero when it is used next.
    pub(crate) fn release(&self, offset: usize, length: usize) -> bool {
        debug_assert!(offset + length <= self.committed);
        // SAFETY: R1, R6, R7: the range is ours and free: nothing refers into it.
        unsafe { madvise(self.at(offset), length, Advice::LinuxDontNeed) }.is_ok()
    }

    /// The link word of a free piece of an arena, at an 8-byte unit.
    #[inline]
    pub(super) fn free_link(&self, unit: u32) -> u32 {
        debug_assert!(unit as usize * 8 < self.committed);
        // SAFETY: R1, R6, R7: a free piece of at least 8 bytes, reached by the allocator alone.
        unsafe { self.base.as_ptr().add(unit as usize * 8).cast::<u32>().read() }
    }

    #[inline]
    pub(super) fn set_free_link(&self, unit: u32, link: u32) {
        debug_assert!(unit as usize * 8 < self.committed);
        // SAFETY: as in `free_link`.
        unsafe { self.base.as_ptr().add(unit as usize * 8).cast::<u32>().write(link) }
    }

    /// Clears the words at the start, which belong to no piece.
    pub(super) fn clear_root(&self) {
        debug_assert!(self.committed >= ROOT_BYTES);
        // SAFETY: R1, R2: committed, and no other code has the address yet.
        unsafe { self.base.as_ptr().write_bytes(0, ROOT_BYTES) }
    }

    /// In debug builds, overwrites a piece of `units` units, so that a reader of a free piece, or code that relies on
    /// the contents of a new one, finds nonsense (R5, R6).
    #[inline]
    pub(super) fn poison(&self, unit: u32, units: u32) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!((unit + units) as usize * 8 <= self.committed);
        // SAFETY: as in `free_link`, of all its bytes.
        unsafe { self.base.as_ptr().add(unit as usize * 8).write_bytes(POISON, units as usize * 8) }
    }

    fn at(&self, offset: usize) -> *mut c_void {
        self.base.as_ptr().wrapping_add(offset).cast()
    }

    /// The address after the mapping.
    fn end(&self) -> usize {
        self.mapping.addr().get() + self.mapped
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.spare.iter().for_each(|spare| spare.uncommitted(self.committed));
        unmap(self.mapping.as_ptr().cast(), self.mapped);
    }
}

/// Unmaps a part of a space's mapping that the space no longer uses.
fn unmap(start: *mut c_void, bytes: usize) {
    if bytes > 0 {
        // SAFETY: R1: the mapping is ours, and nothing that refers into it outlives the trie that drops the space.
        let unmapped = unsafe { munmap(start, bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
