//! Leaves of the adaptive layout: a blob that starts with the tail of its key.
//!
//! | first byte | then |
//! |---|---|
//! | `1cct tttt` | a tail of `t` bytes, a content of 0, 1, 8 or 12 bytes (`c` = 0..=3) |
//! | `0ttt tttt` | the content's length, a tail of `t` bytes, the content |
//!
//! A content's length is one byte, or `ff` and four bytes, little-endian.

use std::hint::select_unpredictable;

use super::characters::same;
use super::memory::{Memory, Ptr};

/// The longest tail.
pub(crate) const TAIL_MAX: usize = 127;
/// The longest tail of the short form.
const SHORT_TAIL_MAX: usize = 31;
/// The content lengths of the short form: frequent ones that are so small that a length byte matters.
const SHORT_CONTENTS: [usize; 4] = [0, 1, 8, 12];
const LONG_LENGTH: u8 = 0xFF;
/// The most bytes of a header.
const HEADER_MAX: usize = 6;

/// Read in place of a leaf where there is none: it has the short form, and is longer than a tail of that form.
static NO_LEAF: [u8; SHORT_TAIL_MAX + 1] = [0xFF; SHORT_TAIL_MAX + 1];

/// The parts of a leaf.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    /// The end of the key, from the leaf's place in the trie on.
    pub tail: &'a [u8],
    pub content: &'a [u8],
}

/// The first bytes of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    bytes: [u8; HEADER_MAX],
    length: usize,
}

impl Header {
    /// `content_bytes` is less than 4 GiB.
    #[inline]
    pub(crate) fn new(tail_bytes: usize, content_bytes: usize) -> Header {
        debug_assert!(tail_bytes <= TAIL_MAX);
        let mut bytes = [0; HEADER_MAX];
        if tail_bytes <= SHORT_TAIL_MAX
            && let Some(class) = SHORT_CONTENTS.iter().position(|&length| length == content_bytes)
        {
            bytes[0] = 0x80 | (class as u8) << 5 | tail_bytes as u8;
            return Header { bytes, length: 1 };
        }
        bytes[0] = tail_bytes as u8;
        if content_bytes < usize::from(LONG_LENGTH) {
            bytes[1] = content_bytes as u8;
            return Header { bytes, length: 2 };
        }
        bytes[1] = LONG_LENGTH;
        bytes[2..].copy_from_slice(&(content_bytes as u32).to_le_bytes());
        Header { bytes, length: HEADER_MAX }
    }

    /// The units of the blob.
    #[inline]
    pub(crate) fn units(&self, tail_bytes: usize, content_bytes: usize) -> u32 {
        (self.length + tail_bytes + content_bytes).div_ceil(8) as u32
    }
}

/// The units of a leaf's blob.
#[inline]
pub(crate) fn leaf_units(tail_bytes: usize, content_bytes: usize) -> u32 {
    Header::new(tail_bytes, content_bytes).units(tail_bytes, content_bytes)
}

impl<'a> Memory<'a> {
    /// A leaf of the adaptive layout.
    #[inline]
    pub(crate) fn leaf(self, ptr: Ptr) -> Leaf<'a> {
        let start = self.blob_start(ptr);
        // SAFETY: R3, R5: the leaf names a complete, immutable blob, which starts with its own lengths; R6 bounds the
        // use of the slices by the pin or writer borrow of the caller.
        unsafe {
            let first = start.read();
            let (tail_bytes, header_bytes, content_bytes) = if first & 0x80 != 0 {
                (usize::from(first & 31), 1, SHORT_CONTENTS[usize::from(first >> 5 & 3)])
            } else {
                match start.add(1).read() {
                    LONG_LENGTH => {
                        let length = start.add(2).cast::<u32>().read_unaligned();
                        (usize::from(first), HEADER_MAX, u32::from_le(length) as usize)
                    }
                    length => (usize::from(first), 2, usize::from(length)),
                }
            };
            let tail = start.add(header_bytes);
            Leaf {
                tail: std::slice::from_raw_parts(tail, tail_bytes),
                content: std::slice::from_raw_parts(tail.add(tail_bytes), content_bytes),
            }
        }
    }

    /// The content of a leaf in the short form whose tail is `rest`. Returns `None` for other leaves, and for anything
    /// that is not a leaf. No branch distinguishes these: it would often be mispredicted, and what comes after it, the
    /// next get, would not begin before the leaf's memory has arrived.
    #[inline]
    pub(crate) fn content_of_tail(self, ptr: Ptr, rest: &[u8]) -> Option<&'a [u8]> {
        let start = select_unpredictable(ptr.is_leaf(), self.blob_start_or_any(ptr), NO_LEAF.as_ptr());
        // SAFETY: R3: for a leaf this is the first byte of its blob; `NO_LEAF` has one too.
        let first = unsafe { start.read() };
        let (Some(rest_first), Some(rest_last)) = (rest.first_chunk::<16>(), rest.last_chunk::<16>()) else {
            return self.content_of_odd_tail(ptr, rest);
        };
        if first & 0x80 == 0 || rest.len() > SHORT_TAIL_MAX {
            return self.content_of_odd_tail(ptr, rest);
        }
        let tail_bytes = usize::from(first & 31);
        let content_bytes = SHORT_CONTENTS[usize::from(first >> 5 & 3)];
        let fits = ptr.is_leaf() & (tail_bytes == rest.len());
        let tail = select_unpredictable(fits, start.wrapping_add(1), NO_LEAF.as_ptr());
        // SAFETY: R3, R5: a tail of `rest.len()` bytes, 16 to 31, or the longer `NO_LEAF`.
        let (first, last) =
            unsafe { (tail.cast::<[u8; 16]>().read(), tail.add(rest.len() - 16).cast::<[u8; 16]>().read()) };
        let differing = (u128::from_ne_bytes(first) ^ u128::from_ne_bytes(*rest_first))
            | (u128::from_ne_bytes(last) ^ u128::from_ne_bytes(*rest_last));
        if fits & (differing == 0) {
            // SAFETY: R3, R5: after the tail is the content; R6 bounds the use of the slice by the pin or writer
            // borrow of the caller.
            Some(unsafe { std::slice::from_raw_parts(tail.add(tail_bytes), content_bytes) })
        } else {
            None
        }
    }

    fn content_of_odd_tail(self, ptr: Ptr, rest: &[u8]) -> Option<&'a [u8]> {
        if !ptr.is_leaf() {
            return None;
        }
        let leaf = self.leaf(ptr);
        same(leaf.tail, rest).then_some(leaf.content)
    }

    /// Writes a leaf with this header, at a unit that was just allocated for it.
    #[inline]
    pub(crate) fn write_leaf(self, unit: u32, header: Header, tail: &[u8], content: &[u8]) {
        debug_assert_eq!(header, Header::new(tail.len(), content.len()));
        let start = self.blob_start_mut(unit);
        // SAFETY: R1, R6, R7: the allocator handed out `Header::units` units, which these bytes fit, and nothing else
        // refers to them.
        unsafe {
            if header.length == 1 {
                start.write(header.bytes[0]);
            } else {
                start.copy_from_nonoverlapping(header.bytes.as_ptr(), header.length);
            }
            let start = start.add(header.length);
            copy(tail, start);
            copy(content, start.add(tail.len()));
        }
    }
}

/// Copies bytes. A copy of unknown length would be a call; most lengths are copied as two copies of a known length,
/// which may overlap.
///
/// # Safety
///
/// There is room for them at `to`, which does not overlap `from`.
#[inline]
unsafe fn copy(from: &[u8], to: *mut u8) {
    let length = from.len();
    // SAFETY: everything is written within `length` bytes from `to`; any address will do for the arrays.
    unsafe {
        if let (Some(first), Some(last), 16..=32) = (from.first_chunk::<16>(), from.last_chunk::<16>(), length) {
            to.cast::<[u8; 16]>().write(*first);
            to.add(length - 16).cast::<[u8; 16]>().write(*last);
        } else if let (Some(first), Some(last), 8..=16) = (from.first_chunk::<8>(), from.last_chunk::<8>(), length) {
            to.cast::<[u8; 8]>().write(*first);
            to.add(length - 8).cast::<[u8; 8]>().write(*last);
        } else {
            to.copy_from_nonoverlapping(from.as_ptr(), length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_leaves_have_small_headers() {
        let length = |tail, content| Header::new(tail, content).length;
        assert_eq!([length(23, 8), length(31, 0), length(32, 8), length(23, 9)], [1, 1, 2, 2]);
        assert_eq!([length(127, 254), length(0, 255), length(1, 1 << 20)], [2, 6, 6]);
        assert_eq!([leaf_units(23, 8), leaf_units(22, 9), leaf_units(0, 0)], [4, 5, 1]);
    }
}
