//! Memory of dropped tries, for tries that grow.
//!
//! The first touch of a page is expensive: the kernel finds and clears one, and in a virtual machine whose host
//! reclaims free memory, the host does so too. A trie that is dropped therefore leaves the huge pages that it filled
//! here, where they stay resident, and a growing trie has them moved to its own addresses. Pages that are not needed
//! for a while are returned to the system.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MremapFlags, mremap_fixed, munmap};

use super::space::{HUGE_PAGE_BYTES, POISON};

/// Huge pages that belong to no trie. Thread-safe. A trie uses one of these from its first write to its end
/// ([`Trie::with_spare_pages`](crate::Trie::with_spare_pages)).
///
/// Together with its tries it holds no more bytes than its limit.
#[derive(Debug)]
pub struct SparePages {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Taken from the end; the first have been here longest.
    pages: Vec<HugePage>,
    /// How many of the first were not needed since the last check.
    unneeded: usize,
    /// The bytes committed by the spaces that use these pages.
    committed_bytes: usize,
}

impl SparePages {
    /// Starts empty; it and its tries hold at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> SparePages {
        SparePages { bytes_max, state: Mutex::default() }
    }

    /// The bytes of the pages here.
    pub fn bytes(&self) -> usize {
        self.state().pages.len() * HUGE_PAGE_BYTES
    }

    /// Returns to the system what was not needed since the last call.
    pub fn give_back_unneeded(&self) {
        let mut state = self.state();
        let unneeded = state.unneeded;
        let unneeded: Vec<HugePage> = state.pages.drain(..unneeded).collect();
        state.unneeded = state.pages.len();
        drop(state);
        drop(unneeded);
    }

    /// Takes a page for a space, which thereby commits it.
    pub(super) fn take(&self) -> Option<HugePage> {
        let mut state = self.state();
        let page = state.pages.pop()?;
        state.unneeded = state.unneeded.min(state.pages.len());
        state.committed_bytes += HUGE_PAGE_BYTES;
        Some(page)
    }

    /// Keeps a page, if there is room.
    pub(super) fn keep(&self, mut page: HugePage) -> bool {
        page.poison();
        let mut state = self.state();
        if state.held_bytes() + HUGE_PAGE_BYTES > self.bytes_max {
            return false;
        }
        state.pages.push(page);
        true
    }

    /// Records that a space has committed new memory, and drops pages over the limit.
    pub(super) fn committed(&self, bytes: usize) {
        let mut state = self.state();
        state.committed_bytes += bytes;
        let surplus = state.held_bytes().saturating_sub(self.bytes_max).div_ceil(HUGE_PAGE_BYTES);
        let count = state.pages.len();
        let surplus: Vec<HugePage> = state.pages.drain(..surplus.min(count)).collect();
        state.unneeded = state.unneeded.min(state.pages.len());
        drop(state);
        drop(surplus);
    }

    /// Records that a space with this many committed bytes is gone.
    pub(super) fn uncommitted(&self, bytes: usize) {
        self.state().committed_bytes -= bytes;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The bytes here and in the spaces.
    fn held_bytes(&self) -> usize {
        self.committed_bytes + self.pages.len() * HUGE_PAGE_BYTES
    }
}

/// The memory of one aligned huge page, whether or not the kernel maps it as one, readable and writable (invariant
/// R10). Its contents are undefined. Unmapped when it is dropped.
#[derive(Debug)]
pub(super) struct HugePage(NonNull<u8>);

// SAFETY: R10: the mapping belongs to no thread, and only the owner of the value refers into it.
unsafe impl Send for HugePage {}

impl HugePage {
    /// # Safety
    ///
    /// R10: the huge page that begins there is mapped, readable and writable; from now on no other code refers into it
    /// or unmaps it.
    pub unsafe fn new(start: NonNull<u8>) -> HugePage {
        debug_assert!(start.addr().get().is_multiple_of(HUGE_PAGE_BYTES));
        HugePage(start)
    }

    /// Moves the page to an address, replacing what is mapped there. If that fails, what is mapped there is unknown.
    ///
    /// # Safety
    ///
    /// R1, R10: the range of one huge page that begins there is the caller's, and nothing refers into it.
    pub unsafe fn move_to(self, place: *mut c_void) -> Result<(), HugePage> {
        let page = ManuallyDrop::new(self);
        let length = HUGE_PAGE_BYTES;
        // SAFETY: R10: the page is ours and nothing refers into it; of the place the caller says the same.
        match unsafe { mremap_fixed(page.0.as_ptr().cast(), length, length, MremapFlags::MAYMOVE, place) } {
            Ok(_) => Ok(()),
            Err(_) => Err(ManuallyDrop::into_inner(page)),
        }
    }

    /// In debug builds, overwrites the page, so that code that relies on its contents, or still reads them, finds
    /// nonsense (R3, R6).
    fn poison(&mut self) {
        if cfg!(debug_assertions) {
            // SAFETY: R10: all of it is writable and ours.
            unsafe { self.0.as_ptr().write_bytes(POISON, HUGE_PAGE_BYTES) }
        }
    }
}

impl Drop for HugePage {
    fn drop(&mut self) {
        // SAFETY: R10: the mapping is ours, and nothing refers into it. A failure costs only memory.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), HUGE_PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::raw::space::Space;

    /// A page that cannot be moved, because nothing is mapped in the kernel's half of the address space.
    fn immovable() -> HugePage {
        HugePage(NonNull::new(std::ptr::without_provenance_mut(1 << 63)).expect("not null"))
    }

    #[test]
    fn a_space_ends_where_a_page_could_not_be_moved_and_keeps_what_it_has() {
        let spare = Arc::new(SparePages::new(1 << 30));
        let mut space = Space::reserve(64 << 20, Some(&spare)).expect("address space");
        assert!(space.commit(HUGE_PAGE_BYTES));
        (0..HUGE_PAGE_BYTES as u32 / 8).for_each(|unit| space.set_free_link(unit, unit));
        spare.state().pages.push(immovable());
        assert!(!space.commit(3 * HUGE_PAGE_BYTES));
        assert!(spare.state().pages.is_empty());
        assert_eq!(space.committed(), HUGE_PAGE_BYTES);
        (0..HUGE_PAGE_BYTES as u32 / 8).for_each(|unit| assert_eq!(space.free_link(unit), unit));
        assert!(!space.commit(3 * HUGE_PAGE_BYTES), "nor later");
        drop(space);
        assert_eq!(spare.state().held_bytes(), 0);
    }
}
