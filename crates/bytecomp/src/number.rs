//! Integers of variable length: short for small magnitudes, and longer for larger ones of either sign.

use crate::reader::{DecodeError, Reader};

/// Varints of this many significant bytes and more have the form with an explicit length.
const FULL_FORM_BYTES: usize = 7;

/// Appends `value` in 1 to 9 bytes. The first bit is 1 for zero and above. Then come as many equal bits as bytes follow
/// (up to eight), and, if fewer than eight, one different bit. The rest is the value, inverted for negatives.
pub(crate) fn encode_i64(value: i64, out: &mut Vec<u8>) {
    let negative = value < 0;
    let magnitude = (if negative { !value } else { value }) as u64;
    let inversion = if negative { u64::MAX } else { 0 };
    let bits = 64 - (magnitude | 1).leading_zeros() as usize;
    let length = bits / 7 + 1;
    if length <= 8 {
        let marks = !(0xffu64 >> length) & 0xff;
        let marked = (magnitude | marks << (8 * (length - 1))) ^ inversion;
        out.extend_from_slice(&marked.to_be_bytes()[8 - length..]);
    } else {
        out.push(0xff ^ inversion as u8);
        out.extend_from_slice(&((magnitude | 1 << 63) ^ inversion).to_be_bytes());
    }
}

/// Reads what [`encode_i64`] wrote.
pub(crate) fn decode_i64(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    const EXPECTED: &str = "an integer of varying length";
    let first = reader.byte(EXPECTED)?;
    let negative = first < 0x80;
    let inversion = if negative { 0xff } else { 0 };
    let first = first ^ inversion;
    // The number of bytes that follow is given by the bits after the sign; the eighth of these is in the second byte.
    let ones = first.leading_ones() as usize - 1;
    let follow = if ones < 7 {
        ones
    } else {
        let second = reader.peek().ok_or_else(|| reader.error(EXPECTED))? ^ inversion;
        if second >= 0x80 { 8 } else { 7 }
    };
    let mut magnitude = if ones < 7 { u64::from(first & (0x3f >> ones)) } else { 0 };
    for _ in 0..follow {
        magnitude = magnitude << 8 | u64::from(reader.byte(EXPECTED)? ^ inversion);
    }
    let magnitude = (magnitude & !(1 << 63)) as i64;
    Ok(if negative { !magnitude } else { magnitude })
}

/// Appends a varint (two's complement, not empty, possibly padded).
pub(crate) fn encode_varint(value: &[u8], out: &mut Vec<u8>) {
    let Some(&first) = value.first() else { return };
    let negative = first >= 0x80;
    let significant = match first {
        0x00 | 0xff => {
            let padding = value.iter().take_while(|&&byte| byte == first).count();
            &value[padding.min(value.len() - 1)..]
        }
        _ => value,
    };
    if significant.len() < FULL_FORM_BYTES {
        let fill = if negative { -1i64 } else { 0 };
        encode_i64(significant.iter().fold(fill, |value, &byte| value << 8 | i64::from(byte)), out);
        return;
    }
    out.push(if negative { 0x00 } else { 0xff });
    let start = out.len();
    types::vint::write_uvint((significant.len() - FULL_FORM_BYTES) as u64, out);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    out.extend_from_slice(significant);
}

/// Appends the varint that comes next, in its shortest two's complement form.
pub(crate) fn decode_varint(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let first = reader.peek().ok_or_else(|| reader.error("a varint"))?;
    if !matches!(first, 0x00 | 0xff) {
        let bytes = decode_i64(reader)?.to_be_bytes();
        let is_padding = |pair: &[u8]| matches!(pair, [0x00, 0x00..=0x7f] | [0xff, 0x80..=0xff]);
        let padding = bytes.windows(2).take_while(|pair| is_padding(pair)).count();
        out.extend_from_slice(&bytes[padding..]);
        return Ok(());
    }
    reader.skip();
    let negative = first == 0;
    let length = decode_length(reader, if negative { 0xff } else { 0 })?;
    let top = reader.peek().ok_or_else(|| reader.error("the bytes of a varint"))?;
    if (top >= 0x80) != negative {
        out.push(if negative { 0xff } else { 0x00 });
    }
    reader.copy(length, "the bytes of a varint", out)
}

/// The number of bytes of a varint in full form.
fn decode_length(reader: &mut Reader<'_>, inversion: u8) -> Result<usize, DecodeError> {
    const EXPECTED: &str = "the length of a varint";
    let first = reader.byte(EXPECTED)? ^ inversion;
    let follow = first.leading_ones() as usize;
    let mut length = if follow < 7 { u64::from(first & (0x7f >> follow)) } else { 0 };
    for _ in 0..follow {
        length = length << 8 | u64::from(reader.byte(EXPECTED)? ^ inversion);
    }
    let length = usize::try_from(length).ok().and_then(|length| length.checked_add(FULL_FORM_BYTES));
    length.ok_or_else(|| reader.error_before(EXPECTED))
}
