//! Reading encoded bytes, plain or inverted, and the error for malformed ones.

use std::fmt;

use crate::escape::{WORD, marks};

/// Bytes that are not an encoding of the requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The offset in the input.
    pub offset: usize,
    pub expected: &'static str,
    /// The byte there (before any inversion); `None` at the end of the input.
    pub got: Option<u8>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeError { offset, expected, got } = self;
        match got {
            Some(byte) => write!(f, "byte-comparable key: at offset {offset} expected {expected}, got {byte:02x}"),
            None => write!(f, "byte-comparable key: at offset {offset} expected {expected}, got the end"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A position in encoded bytes. With `mask` ff it reads inverted bytes, as a descending column has them.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    mask: u8,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0, mask: 0 }
    }

    /// Switches to inverted bytes, or back to plain ones.
    pub(crate) fn set_inverted(&mut self, inverted: bool) {
        self.mask = if inverted { 0xff } else { 0 };
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).map(|byte| byte ^ self.mask)
    }

    pub(crate) fn skip(&mut self) {
        self.at = (self.at + 1).min(self.bytes.len());
    }

    pub(crate) fn byte(&mut self, expected: &'static str) -> Result<u8, DecodeError> {
        let byte = self.peek().ok_or_else(|| self.error(expected))?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let Some(bytes) = self.rest().first_chunk::<N>() else {
            return Err(DecodeError { offset: self.bytes.len(), expected, got: None });
        };
        self.at += N;
        Ok(bytes.map(|byte| byte ^ self.mask))
    }

    /// Appends the next `length` bytes to `out`.
    pub(crate) fn copy(&mut self, length: usize, expected: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let Some(bytes) = self.rest().get(..length) else {
            return Err(DecodeError { offset: self.bytes.len(), expected, got: None });
        };
        self.at += length;
        match self.mask {
            0 => out.extend_from_slice(bytes),
            mask => out.extend(bytes.iter().map(|byte| byte ^ mask)),
        }
        Ok(())
    }

    /// Appends bytes up to the next zero, and skips it.
    pub(crate) fn copy_to_zero(&mut self, expected: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        // Most values are short, and an append of constant length needs no call.
        while let Some(word) = self.rest().first_chunk::<WORD>() {
            let word = u64::from_le_bytes(*word) ^ u64::from_le_bytes([self.mask; WORD]);
            let plain = marks(word).trailing_zeros() as usize / 8;
            let end = out.len() + plain;
            out.extend_from_slice(&word.to_le_bytes());
            out.truncate(end);
            self.at += plain;
            if plain < WORD {
                self.skip();
                return Ok(());
            }
        }
        while let Some(byte) = self.peek() {
            self.skip();
            if byte == 0 {
                return Ok(());
            }
            out.push(byte);
        }
        Err(DecodeError { offset: self.bytes.len(), expected, got: None })
    }

    /// An error at the byte about to be read.
    pub(crate) fn error(&self, expected: &'static str) -> DecodeError {
        DecodeError { offset: self.at, expected, got: self.bytes.get(self.at).copied() }
    }

    /// An error at the byte read last.
    pub(crate) fn error_before(&self, expected: &'static str) -> DecodeError {
        let offset = self.at.saturating_sub(1);
        DecodeError { offset, expected, got: self.bytes.get(offset).copied() }
    }
}
