//! Querying what the page cache has of a file.
//!
//! Unsafe code here is one system call that rustix does not know. What makes it sound:
//!
//! 1. `cachestat(2)` reads a `CacheRange` and writes a `CacheCounts`, which are the kernel's structures, of integers
//!    without padding; both live until the call returns.

use std::fs;
use std::os::fd::AsRawFd;

/// The number of `cachestat`, which is the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CacheRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    under_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the page cache has every page of a range. False where the system cannot tell (Linux before 6.5, and
/// sandboxes).
pub(super) fn has_all(file: &fs::File, offset: u64, length: usize) -> bool {
    let (range, mut counts) = (CacheRange { offset, length: length as u64 }, CacheCounts::default());
    // SAFETY: invariant 1. There are no flags.
    let answer = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut counts, 0_u32) };
    answer == 0 && counts.cached.saturating_mul(rustix::param::page_size() as u64) >= length as u64
}
