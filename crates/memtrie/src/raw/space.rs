//! Reserved address space that is committed on demand.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// From this committed size on a space asks for huge pages, and grows by whole ones.
const HUGE_PAGES_FROM_BYTES: usize = 4 << 20;

/// What debug builds fill freed pieces with. As a pointer it is a leaf beyond all that is committed, as a length more than there is.
pub(super) const POISON: u8 = 0xA5;

/// One private anonymous mapping (invariant R1).
pub(crate) struct Space {
    /// Start of the mapping.
    mapping: NonNull<u8>,
    /// The first huge page's start in it.
    base: NonNull<u8>,
    reserved: usize,
    committed: usize,
}

// SAFETY: R1, R7: the mapping belongs to no thread; `Space` itself is used only under the writer's lock.
unsafe impl Send for Space {}

impl Space {
    /// Reserves `bytes` (a multiple of the page size) of address space, aligned to huge pages. No memory is used yet.
    /// `None` if the system refuses.
    pub(crate) fn reserve(bytes: usize) -> Option<Space> {
        let mapped = bytes + HUGE_PAGE_BYTES;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        let mapping = NonNull::new(address.ok()?.cast::<u8>())?;
        let start = mapping.as_ptr();
        let base = NonNull::new(start.wrapping_add(start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr()))?;
        Some(Space { mapping, base, reserved: bytes, committed: 0 })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    /// Makes at least the first `upto` bytes usable. False if that exceeds the reservation or the system has no memory.
    pub(crate) fn commit(&mut self, upto: usize) -> bool {
        if upto > self.reserved {
            return false;
        }
        // A huge page is used only where all of it is committed when it is first touched.
        let upto =
            if upto > HUGE_PAGES_FROM_BYTES { upto.next_multiple_of(HUGE_PAGE_BYTES).min(self.reserved) } else { upto };
        if upto <= self.committed {
            return true;
        }
        let from = self.at(self.committed);
        let length = upto - self.committed;
        // SAFETY: the range lies in our own mapping (R1).
        if unsafe { mprotect(from, length, MprotectFlags::READ | MprotectFlags::WRITE) }.is_err() {
            return false;
        }
        if upto > HUGE_PAGES_FROM_BYTES {
            // All of it: the mapping stays one area for the kernel, which may collapse the small pages of the start.
            // SAFETY: as above; this advice does not change contents. It may be refused, which costs only speed.
            let _ = unsafe { madvise(self.at(0), upto, Advice::LinuxHugepage) };
        }
        self.committed = upto;
        true
    }

    /// Whether it asks for huge pages.
    pub(crate) fn wants_huge_pages(&self) -> bool {
        self.committed > HUGE_PAGES_FROM_BYTES
    }

    /// Has the `index`th huge page's range, all of it in use, moved to a huge page if it is not on one. Where memory is in pieces there
    /// often was none when it was first touched, and what was given back in parts comes again in small pages.
    pub(crate) fn collapse(&self, index: usize) {
        let offset = index * HUGE_PAGE_BYTES;
        debug_assert!(offset + HUGE_PAGE_BYTES <= self.committed);
        // SAFETY: R1: the range is ours; contents and addresses stay as they are. A refusal (before Linux 6.1 always) costs only speed.
        let _ = unsafe { libc::madvise(self.at(offset), HUGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
    }

    /// Gives the memory of a committed range back to the system; it reads as zero when next used.
    pub(crate) fn release(&self, offset: usize, length: usize) -> bool {
        debug_assert!(offset + length <= self.committed);
        // SAFETY: R1, R6, R7: the range is ours and free: nothing refers into it.
        unsafe { madvise(self.at(offset), length, Advice::LinuxDontNeed) }.is_ok()
    }

    /// The link word of a free piece of an arena, at an 8-byte unit.
    #[inline]
    pub(super) fn free_link(&self, unit: u32) -> u32 {
        debug_assert!(unit as usize * 8 < self.committed);
        // SAFETY: R1, R6, R7: a free piece of at least 8 bytes, reached by nobody but the allocator.
        unsafe { self.base.as_ptr().add(unit as usize * 8).cast::<u32>().read() }
    }

    #[inline]
    pub(super) fn set_free_link(&self, unit: u32, link: u32) {
        debug_assert!(unit as usize * 8 < self.committed);
        // SAFETY: as in `free_link`.
        unsafe { self.base.as_ptr().add(unit as usize * 8).cast::<u32>().write(link) }
    }

    /// In debug builds: has who still reads a free piece of so many units find nonsense (R5, R6).
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
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: R1: the mapping is ours, and nothing that refers into it outlives the trie that drops us.
        let unmapped = unsafe { munmap(self.mapping.as_ptr().cast(), self.reserved + HUGE_PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}
