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

/// Whether there is anything to escape.
#[inline]
pub(crate) fn has_zero(value: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = value.as_chunks::<8>();
    // A zero byte leaves a mark. The lowest mark is exact; marks above it may be false.
    let marks = |word: u64| word.wrapping_sub(ONES) & !word & HIGH_BITS;
    words.iter().any(|word| marks(u64::from_le_bytes(*word)) != 0) || rest.contains(&0)
}

/// Appends the escaped form of `value`. It ends in `00` or `fe`.
pub(crate) fn encode(value: &[u8], out: &mut Vec<u8>) {
    out.reserve(value.len() + 1);
    if !has_zero(value) {
        out.extend_from_slice(value);
        out.push(ESCAPE);
        return;
    }
    let mut rest = value;
    loop {
        let plain = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        out.push(ESCAPE);
        rest = &rest[plain..];
        let zeros = rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len());
        rest = &rest[zeros..];
        if rest.is_empty() {
            out.extend(std::iter::repeat_n(ANOTHER_ZERO, zeros));
            return;
        }
        out.extend(std::iter::repeat_n(ANOTHER_ZERO, zeros - 1));
        out.push(LAST_ZERO);
    }
}

/// Appends the value whose escaped form comes next, and stops before the separator that follows it.
pub(crate) fn decode(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
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
