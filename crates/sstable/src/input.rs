//! A bounds-checked view of file bytes that knows its position, so that every error can report it.

use crate::error::{Corruption, Decoded};

/// The size of a copy as one block, which replaces a copy of unknown length.
pub(crate) const BLOCK_BYTES: usize = 64;

/// Bytes of a file with a read position.
#[derive(Clone)]
pub(crate) struct Input<'a> {
    file: &'a str,
    base: u64,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    /// Bytes whose errors are discarded: they carry no information, and are cheap to make.
    pub fn unnamed(base: u64, bytes: &'a [u8]) -> Self {
        Input::new("", base, bytes)
    }

    /// `bytes` are at offset `base` of `file`.
    pub fn new(file: &'a str, base: u64, bytes: &'a [u8]) -> Self {
        Input { file, base, bytes, at: 0 }
    }

    /// Bytes consumed so far.
    pub fn consumed(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The bytes that were not consumed.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Offset in the file of the next byte.
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.at as u64)
    }

    #[cold]
    fn short(&self, wanted: usize, what: &'static str) -> Box<Corruption> {
        let mut corruption = match self.file {
            "" => Corruption::new("", self.offset(), what, "less"),
            file => {
                let (expected, got) = (format!("{what} of {wanted} bytes"), format!("{} bytes left", self.remaining()));
                Corruption::new(file, self.offset(), expected, got)
            }
        };
        corruption.short = true;
        corruption
    }

    /// An error at the current position.
    #[cold]
    pub fn damaged(&self, expected: &'static str, got: impl Into<std::borrow::Cow<'static, str>>) -> Box<Corruption> {
        Corruption::new(self.file, self.offset(), expected, got)
    }

    #[inline]
    pub fn take(&mut self, length: usize, what: &'static str) -> Decoded<&'a [u8]> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..length)) {
            Some(taken) => {
                self.at += length;
                Ok(taken)
            }
            None => Err(self.short(length, what)),
        }
    }

    /// Takes `length` bytes as a separate view.
    #[inline]
    pub fn part(&mut self, length: usize, what: &'static str) -> Decoded<Input<'a>> {
        let base = self.offset();
        Ok(Input { file: self.file, base, bytes: self.take(length, what)?, at: 0 })
    }

    /// Takes `length` bytes, if they are few and enough other bytes follow: returns a block that begins with them,
    /// which is faster to copy and truncate than the bytes alone.
    #[inline]
    pub fn take_in_block(&mut self, length: usize) -> Option<&'a [u8; BLOCK_BYTES]> {
        let block = self.bytes.get(self.at..)?.first_chunk()?;
        if length > BLOCK_BYTES {
            return None;
        }
        self.at += length;
        Some(block)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Decoded<[u8; N]> {
        match self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(taken) => {
                self.at += N;
                Ok(*taken)
            }
            None => Err(self.short(N, what)),
        }
    }

    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Decoded<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub fn bool(&mut self, what: &'static str) -> Decoded<bool> {
        match self.u8(what)? {
            0 => Ok(false),
            _ => Ok(true),
        }
    }

    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Decoded<u16> {
        self.array(what).map(u16::from_be_bytes)
    }

    #[inline]
    pub fn i32(&mut self, what: &'static str) -> Decoded<i32> {
        self.array(what).map(i32::from_be_bytes)
    }

    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Decoded<u32> {
        self.array(what).map(u32::from_be_bytes)
    }

    #[inline]
    pub fn i64(&mut self, what: &'static str) -> Decoded<i64> {
        self.array(what).map(i64::from_be_bytes)
    }

    pub fn f64(&mut self, what: &'static str) -> Decoded<f64> {
        self.array(what).map(f64::from_be_bytes)
    }

    /// Cassandra's unsigned variable-length integer.
    #[inline]
    pub fn uvint(&mut self, what: &'static str) -> Decoded<u64> {
        let first = self.u8(what)?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let extra = first.leading_ones() as usize;
        let rest = self.take(extra, what)?;
        let mut value = if extra >= 7 { 0 } else { u64::from(first) & (0x7F >> extra) };
        for byte in rest {
            value = value << 8 | u64::from(*byte);
        }
        Ok(value)
    }

    /// A signed variable-length integer (zigzag).
    pub fn svint(&mut self, what: &'static str) -> Decoded<i64> {
        let raw = self.uvint(what)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A uvint that must fit memory: lengths and counts.
    #[inline]
    pub fn length(&mut self, what: &'static str) -> Decoded<usize> {
        let start = self.at;
        let raw = self.uvint(what)?;
        match usize::try_from(raw) {
            Ok(length) if raw <= u64::from(u32::MAX) >> 1 => Ok(length),
            _ => {
                self.at = start;
                Err(self.damaged(what, format!("length {raw}")))
            }
        }
    }

    /// Bytes with a uvint length.
    #[inline]
    pub fn vbytes(&mut self, what: &'static str) -> Decoded<&'a [u8]> {
        let length = self.length(what)?;
        self.take(length, what)
    }

    /// Bytes with a u16 length.
    #[inline]
    pub fn short_bytes(&mut self, what: &'static str) -> Decoded<&'a [u8]> {
        let length = self.u16(what)?;
        self.take(usize::from(length), what)
    }

    /// A u16 length and UTF-8.
    pub fn utf(&mut self, what: &'static str) -> Decoded<&'a str> {
        let start = self.clone();
        let bytes = self.short_bytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| start.damaged(what, "bytes that are not UTF-8"))
    }

    /// UTF-8 with a uvint length.
    pub fn vstring(&mut self, what: &'static str) -> Decoded<&'a str> {
        let start = self.clone();
        let bytes = self.vbytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| start.damaged(what, "bytes that are not UTF-8"))
    }

    /// Checks a count of items that take at least `least` bytes each, so that a wrong count cannot cause a large
    /// allocation.
    pub fn checked_count(&self, count: u64, least: usize, what: &'static str) -> Decoded<usize> {
        match usize::try_from(count) {
            Ok(count) if count.checked_mul(least.max(1)).is_some_and(|bytes| bytes <= self.remaining()) => Ok(count),
            _ => Err(self.damaged(what, format!("{count} items in {} bytes", self.remaining()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uvints_of_every_length_are_read() {
        for (bytes, value) in [
            (&[0x7F_u8][..], 127_u64),
            (&[0x80, 0x80], 128),
            (&[0xC0, 0x40, 0x00], 0x4000),
            (&[0xFE, 1, 2, 3, 4, 5, 6, 7], 0x01_0203_0405_0607),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE], u64::MAX - 1),
        ] {
            assert_eq!(Input::new("t", 0, bytes).uvint("v").unwrap(), value);
        }
    }

    #[test]
    fn a_short_input_names_the_offset() {
        let mut input = Input::new("da-1-bti-Data.db", 100, &[0, 5, 1, 2]);
        let error = input.short_bytes("key").unwrap_err();
        assert!(error.short);
        assert_eq!((error.file.as_str(), error.offset), ("da-1-bti-Data.db", 102));
    }
}
