//! Byte-ordered values of any length. Zeros are escaped, so that the end of a value sorts before any continuation.

use crate::reader::{DecodeError, Reader};

/// A run of zeros begins, or the value ends.
const ESCAPE: u8 = 0x00;
/// One more zero of a run that continues or reaches the end.
const ANOTHER_ZERO: u8 = 0xfe;
/// The last zero of a run that is followed by another byte.
const LAST_ZERO: u8 = 0xff;

/// Follows a value without zeros.
pub(crate) const END: u8 = ESCAPE;

pub(crate) const WORD: usize = size_of::<u64>();
/// The room for the escaped form of a word: each byte has at most two bytes, and the last stored word may reach beyond
/// them.
const ESCAPED_SIZE: usize = 3 * WORD;

/// The bits that mark zero bytes of a word. The lowest mark is exact; marks above it may be false.
#[inline]
pub(crate) fn marks(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    word.wrapping_sub(ONES) & !word & HIGH_BITS
}

/// Whether there is anything to escape.
#[inline]
pub(crate) fn has_zero(value: &[u8]) -> bool {
    let (words, rest) = value.as_chunks::<WORD>();
    words.iter().any(|word| marks(u64::from_le_bytes(*word)) != 0) || rest.contains(&0)
}

/// Appends the escaped form of `value`. It ends in `00` or `fe`.
pub(crate) fn encode(value: &[u8], out: &mut Vec<u8>) {
    if !has_zero(value) {
        out.reserve(value.len() + 1);
        out.extend_from_slice(value);
        out.push(ESCAPE);
        return;
    }
    let mut follows_zero = false;
    let (words, rest) = value.as_chunks::<WORD>();
    for word in words {
        encode_word(u64::from_le_bytes(*word), WORD, &mut follows_zero, out);
    }
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        encode_word(word, rest.len(), &mut follows_zero, out);
    }
    out.push(if follows_zero { ANOTHER_ZERO } else { ESCAPE });
}

/// Appends the escaped form of the first `length` bytes of a word, the lowest first.
#[inline(always)]
fn encode_word(word: u64, length: usize, follows_zero: &mut bool, out: &mut Vec<u8>) {
    let mut escaped = [0; ESCAPED_SIZE];
    let count = escape_word(word, length, follows_zero, &mut escaped);
    // An append of constant length needs no call.
    let end = out.len() + count;
    out.extend_from_slice(&escaped);
    out.truncate(end);
}

/// Writes the escaped form of the first `length` bytes of a word, the lowest first, and returns its length. The
/// byte for the last zero of a run depends on the next byte, so it is written with that. Whole words are stored, of
/// which only the first bytes count.
#[inline(always)]
fn escape_word(mut word: u64, mut length: usize, follows_zero: &mut bool, escaped: &mut [u8; ESCAPED_SIZE]) -> usize {
    let mut count = 0;
    let mut store = |count: usize, word: u64| {
        if let Some(place) = escaped.get_mut(count..).and_then(<[u8]>::first_chunk_mut) {
            *place = word.to_le_bytes();
        }
    };
    loop {
        let plain = length.min(marks(word).trailing_zeros() as usize / 8);
        if plain > 0 {
            store(count, u64::from(LAST_ZERO));
            count += usize::from(*follows_zero);
            store(count, word);
            count += plain;
            *follows_zero = false;
            length -= plain;
        }
        if length == 0 {
            return count;
        }
        word >>= 8 * plain;
        let zeros = length.min(word.trailing_zeros() as usize / 8);
        let first = if *follows_zero { ANOTHER_ZERO } else { ESCAPE };
        store(count, u64::from_le_bytes([ANOTHER_ZERO; WORD]) << 8 | u64::from(first));
        count += zeros;
        *follows_zero = true;
        length -= zeros;
        if length == 0 {
            return count;
        }
        word >>= 8 * zeros;
    }
}

/// Appends the value whose escaped form comes next, and stops before the separator that follows it.
pub(crate) fn decode(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    // A value is no longer than its escaped form.
    out.reserve(reader.rest().len().min(ESCAPED_SIZE));
    loop {
        reader.copy_to_zero("the zero that ends a value", out)?;
        loop {
            match reader.peek() {
                Some(ANOTHER_ZERO) => {
                    reader.skip();
                    out.push(0);
                }
                Some(LAST_ZERO) => {
                    reader.skip();
                    out.push(0);
                    break;
                }
                _ => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The escaped form, byte by byte.
    fn escaped(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, &byte) in value.iter().enumerate() {
            let (follows_zero, next) = (index > 0 && value[index - 1] == 0, value.get(index + 1));
            match byte {
                0 => {
                    out.extend((!follows_zero).then_some(ESCAPE));
                    out.push(if next.is_some_and(|&next| next != 0) { LAST_ZERO } else { ANOTHER_ZERO });
                }
                _ => out.push(byte),
            }
        }
        out.extend((value.last() != Some(&0)).then_some(ESCAPE));
        out
    }

    #[test]
    fn words_are_escaped_as_bytes_are_and_back() {
        for length in 0..=18 {
            for zeros in 0..1_u32 << length {
                let value: Vec<u8> =
                    (0..length).map(|place| if zeros >> place & 1 == 1 { 0 } else { 0x7F + place as u8 % 3 }).collect();
                let mut out = Vec::new();
                encode(&value, &mut out);
                assert_eq!(out, escaped(&value), "{value:02x?}");
                let (mut behind, mut decoded) = (out.clone(), Vec::new());
                behind.extend_from_slice(&[0x38, 0, 0xff]);
                let mut reader = Reader::new(&behind);
                decode(&mut reader, &mut decoded).unwrap();
                assert_eq!((decoded, reader.rest().len()), (value, 3), "{out:02x?}");
            }
        }
    }
}
