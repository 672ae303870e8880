//! The synchronization primitives of writer and readers. A model checker replaces them (`raw/model.rs`).

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// The number of pin slots before more are allocated.
pub(crate) const PIN_SLOTS: usize = 16;

/// A sequentially consistent fence right after a locked instruction.
#[inline]
pub(crate) fn fence_behind_lock() {
    if cfg!(target_arch = "x86_64") {
        // No load moves before a locked instruction; the compiler must not move one either.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
