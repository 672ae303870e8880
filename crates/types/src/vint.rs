//! Variable-length integers of sstables and of durations: `uvint` and `svint`.
//!
//! The number of leading one bits of the first byte is the number of bytes that follow (0 to 8); the other bits of
//! the first byte and those bytes are the value, big-endian. `svint` is the zig-zag of a signed value as `uvint`.

/// The longest encoding, in bytes.
pub const VINT_SIZE_MAX: usize = 9;

/// Number of bytes [`write_uvint`] writes for `value` (1 to 9).
pub fn uvint_size(value: u64) -> usize {
    // 7 bits per byte up to 8 bytes; the ninth adds the last 8 bits.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7).min(VINT_SIZE_MAX)
}

/// Number of bytes [`write_svint`] writes for `value` (1 to 9).
pub fn svint_size(value: i64) -> usize {
    uvint_size(zigzag(value))
}

/// Appends `value` in its shortest form.
pub fn write_uvint(value: u64, out: &mut Vec<u8>) {
    let size = uvint_size(value);
    if size == 1 {
        out.push(value as u8);
        return;
    }
    if size == VINT_SIZE_MAX {
        out.push(0xff);
        out.extend_from_slice(&value.to_be_bytes());
        return;
    }
    // `size - 1` leading ones, then a zero; the value's top bits share this byte (none of them when size = 8).
    let marks = !(0xffu64 >> (size - 1)) & 0xff;
    let marked = value | (marks << (8 * (size - 1)));
    out.extend_from_slice(&marked.to_be_bytes()[8 - size..]);
}

/// Appends `value` zig-zagged, in its shortest form.
pub fn write_svint(value: i64, out: &mut Vec<u8>) {
    write_uvint(zigzag(value), out);
}

/// Reads one `uvint` from the front of `input`; `None` (with `input` unchanged) if it is cut short.
pub fn read_uvint(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    if first < 0x80 {
        *input = rest;
        return Some(u64::from(first));
    }
    let extra = first.leading_ones() as usize;
    if rest.len() < extra {
        return None;
    }
    let (bytes, rest) = rest.split_at(extra);
    let mut value = if extra >= 7 { 0 } else { u64::from(first & (0x7f >> extra)) };
    for &byte in bytes {
        value = (value << 8) | u64::from(byte);
    }
    *input = rest;
    Some(value)
}

/// Reads one `svint` from the front of `input`; `None` (with `input` unchanged) if it is cut short.
pub fn read_svint(input: &mut &[u8]) -> Option<i64> {
    read_uvint(input).map(unzigzag)
}

/// Maps small magnitudes of either sign to small numbers: 0, -1, 1, -2 ... become 0, 1, 2, 3 ...
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_each_size_round_trip() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, (1u64 << bits) | 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                write_uvint(value, &mut out);
                assert_eq!(out.len(), uvint_size(value));
                let mut input = out.as_slice();
                assert_eq!(read_uvint(&mut input), Some(value));
                assert!(input.is_empty());
                for cut in 0..out.len() {
                    assert_eq!(read_uvint(&mut &out[..cut]), None, "cut at {cut}");
                }
                let mut out = Vec::new();
                write_svint(value as i64, &mut out);
                assert_eq!(out.len(), svint_size(value as i64));
                assert_eq!(read_svint(&mut out.as_slice()), Some(value as i64));
            }
        }
    }
}
