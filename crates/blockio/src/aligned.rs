//! Memory that the device can read and write directly. The type guarantees the alignment.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use rustix::mm::{Advice, madvise};

/// The unit of block writes, in bytes: every address, offset and length of direct I/O is a multiple of it.
pub const BLOCK_SIZE: usize = 4096;

/// Buffers of at least this length ask for huge pages: filling them causes fewer address translations, and the kernel
/// looks up fewer pages for each write.
const LARGE: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Owned memory that starts at a multiple of [`BLOCK_SIZE`] and has a multiple of that length. It is zero at first;
/// untouched pages cost nothing.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the buffer owns its memory alone, as a Box<[u8]> does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads, as with a Box<[u8]>.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Zeroed memory of at least `length` bytes, rounded up to whole blocks (at least one).
    pub fn new(length: usize) -> AlignedBuffer {
        let length = length.max(1).next_multiple_of(BLOCK_SIZE);
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        if length >= LARGE {
            // A kernel without huge pages returns an error, and ordinary pages serve. SAFETY: advice on memory that we
            // own, which does not change its contents.
            let _ = unsafe { madvise(start.as_ptr().cast(), length / HUGE_PAGE * HUGE_PAGE, Advice::LinuxHugepage) };
        }
        AlignedBuffer { start, length }
    }

    fn layout(length: usize) -> Layout {
        let alignment = if length >= LARGE { HUGE_PAGE } else { BLOCK_SIZE };
        Layout::from_size_align(length, alignment).expect("a length that fits the address space")
    }

    /// A range of whole blocks: both ends, in bytes, are multiples of [`BLOCK_SIZE`].
    ///
    /// # Panics
    ///
    /// If they are not, or if the range is not inside the buffer.
    pub fn blocks(&self, range: Range<usize>) -> AlignedSlice<'_> {
        AlignedSlice::new(&self[range]).expect("a range of whole blocks")
    }

    /// All of it.
    pub fn all_blocks(&self) -> AlignedSlice<'_> {
        self.blocks(0..self.length)
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and never freed before.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes that we own; `&self` keeps writers out.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `length` initialised bytes that we own; `&mut self` keeps everyone else out.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

/// Borrowed whole blocks: address and length are multiples of [`BLOCK_SIZE`].
#[derive(Clone, Copy)]
pub struct AlignedSlice<'a>(&'a [u8]);

impl<'a> AlignedSlice<'a> {
    /// The bytes as blocks, if address and length allow.
    pub fn new(bytes: &'a [u8]) -> Option<AlignedSlice<'a>> {
        let aligned = bytes.as_ptr().addr().is_multiple_of(BLOCK_SIZE) && bytes.len().is_multiple_of(BLOCK_SIZE);
        aligned.then_some(AlignedSlice(bytes))
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl Deref for AlignedSlice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Debug for AlignedSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedSlice({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_whole_zeroed_blocks() {
        for length in [0, 1, 4095, 4096, 4097, 100_000] {
            let buffer = AlignedBuffer::new(length);
            assert!(buffer.len() >= length.max(1) && buffer.len() - length <= BLOCK_SIZE);
            assert!(buffer.iter().all(|b| *b == 0));
            assert!(AlignedSlice::new(&buffer).is_some());
            assert!(AlignedSlice::new(&buffer[1..]).is_none());
            assert!(AlignedSlice::new(&buffer[..buffer.len() - 1]).is_none());
        }
    }
}
