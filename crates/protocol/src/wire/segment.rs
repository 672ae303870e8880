//! v5 segments: the frames that carry envelopes after STARTUP is answered. See `FORMAT.md`.

use crate::wire::compression::{decompress_lz4, lz4_block};
use crate::wire::crc::{crc24, crc32};
use bytes::{Buf, Bytes, BytesMut};

/// Largest payload of one segment: seventeen bits of length.
pub(crate) const PAYLOAD_SIZE_MAX: usize = (1 << 17) - 1;

const CRC24_SIZE: usize = 3;
const CRC32_SIZE: usize = 4;

/// One segment's payload, as envelope bytes.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Complete envelopes only.
    pub(crate) self_contained: bool,
    pub(crate) payload: Bytes,
}

/// The reason why a segment cannot be read. Decoding cannot continue after any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentError {
    /// A checksum is wrong.
    Crc { part: &'static str, read: u32, computed: u32 },
    /// The LZ4 block does not expand to its stated size.
    Block,
}

/// The result of decoding the front of the input.
pub(crate) enum Decoded {
    /// A segment, taken off.
    Whole(Segment),
    /// A part of a segment. The number is that of the missing bytes, or 0 if it is not known yet.
    Lacks(usize),
}

#[cfg(test)]
impl Decoded {
    pub(crate) fn whole(self) -> Option<Segment> {
        match self {
            Decoded::Whole(segment) => Some(segment),
            Decoded::Lacks(_) => None,
        }
    }
}

/// Takes one segment off the front of `input`, if it is all there.
pub(crate) fn decode(input: &mut BytesMut, lz4: bool) -> Result<Decoded, SegmentError> {
    let length_size = if lz4 { 5 } else { 3 };
    let header_size = length_size + CRC24_SIZE;
    let Some(header) = input.get(..header_size) else { return Ok(Decoded::Lacks(0)) };
    let word = le(&header[..length_size]);
    check_header(&header[..length_size], &header[length_size..])?;
    let size = (word & PAYLOAD_SIZE_MAX as u64) as usize;
    let (uncompressed_size, self_contained) = if lz4 {
        (((word >> 17) & PAYLOAD_SIZE_MAX as u64) as usize, word & (1 << 34) != 0)
    } else {
        (0, word & (1 << 17) != 0)
    };
    if input.len() < header_size + size + CRC32_SIZE {
        return Ok(Decoded::Lacks(header_size + size + CRC32_SIZE - input.len()));
    }
    input.advance(header_size);
    let payload = input.split_to(size).freeze();
    let read = input.get_u32_le();
    let computed = crc32(&payload);
    if read != computed {
        return Err(SegmentError::Crc { part: "body", read, computed });
    }
    if uncompressed_size == 0 {
        return Ok(Decoded::Whole(Segment { self_contained, payload }));
    }
    let payload = decompress_lz4(&payload, uncompressed_size).map_err(|_| SegmentError::Block)?;
    Ok(Decoded::Whole(Segment { self_contained, payload: Bytes::from(payload) }))
}

fn check_header(lengths: &[u8], crc: &[u8]) -> Result<(), SegmentError> {
    let read = le(crc) as u32;
    let computed = crc24(lengths);
    if read == computed { Ok(()) } else { Err(SegmentError::Crc { part: "header", read, computed }) }
}

/// Up to eight little-endian bytes as a number.
fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Appends one segment with this payload (at most [`PAYLOAD_SIZE_MAX`] bytes) to `out`.
pub(crate) fn encode(payload: &[u8], self_contained: bool, lz4: bool, out: &mut Vec<u8>) {
    debug_assert!(payload.len() <= PAYLOAD_SIZE_MAX);
    if lz4 { encode_lz4(payload, self_contained, out) } else { encode_plain(payload, self_contained, out) }
}

fn encode_plain(payload: &[u8], self_contained: bool, out: &mut Vec<u8>) {
    let word = payload.len() as u64 | u64::from(self_contained) << 17;
    push_header(word, 3, out);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32(payload).to_le_bytes());
}

fn encode_lz4(payload: &[u8], self_contained: bool, out: &mut Vec<u8>) {
    const HEADER_SIZE: usize = 5 + CRC24_SIZE;
    let start = out.len();
    out.resize(start + HEADER_SIZE, 0);
    lz4_block(payload, out);
    let mut uncompressed_size = payload.len();
    if out.len() - start - HEADER_SIZE >= payload.len() {
        // Compression does not pay off: the payload is stored, which an uncompressed size of zero indicates.
        out.truncate(start + HEADER_SIZE);
        out.extend_from_slice(payload);
        uncompressed_size = 0;
    }
    let size = out.len() - start - HEADER_SIZE;
    let crc = crc32(&out[start + HEADER_SIZE..]);
    out.extend_from_slice(&crc.to_le_bytes());
    let word = size as u64 | (uncompressed_size as u64) << 17 | u64::from(self_contained) << 34;
    let header = header_bytes(word, 5);
    out[start..start + HEADER_SIZE].copy_from_slice(&header[..HEADER_SIZE]);
}

fn push_header(word: u64, length_size: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&header_bytes(word, length_size)[..length_size + CRC24_SIZE]);
}

/// The length bytes and their CRC24, at the front of eight bytes.
fn header_bytes(word: u64, length_size: usize) -> [u8; 8] {
    let mut header = word.to_le_bytes();
    let crc = crc24(&header[..length_size]);
    header[length_size..length_size + CRC24_SIZE].copy_from_slice(&crc.to_le_bytes()[..CRC24_SIZE]);
    header
}

#[cfg(test)]
pub(crate) mod tests;
