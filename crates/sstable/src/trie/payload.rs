//! A node's payload: a number up to 15 in its payload bits, and the bytes after the node.

/// Longest payload: seven offset bytes and a twelve-byte deletion.
const CAPACITY: usize = 24;

/// A payload to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    bits: u8,
    length: u8,
    bytes: [u8; CAPACITY],
}

impl Payload {
    /// A payload announced by `bits` (1 to 15).
    pub fn new(bits: u8) -> Self {
        debug_assert!((1..16).contains(&bits));
        Payload { bits, length: 0, bytes: [0; CAPACITY] }
    }

    pub fn bits(&self) -> u8 {
        self.bits
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }

    /// The low `size` bytes of `value`, big-endian.
    pub fn push_sized(&mut self, value: i64, size: usize) {
        self.push(&value.to_be_bytes()[8 - size..]);
    }
}

/// Bytes needed for `value` in two's complement, sign bit included; at least one.
pub(crate) fn sized_length(value: i64) -> usize {
    let magnitude = if value < 0 { !value } else { value };
    ((64 - magnitude.leading_zeros() as usize) + 8) / 8
}

/// The signed value of up to eight big-endian bytes.
pub(crate) fn read_sized(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    bytes.iter().fold(if negative { -1 } else { 0 }, |value, byte| value << 8 | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sized_integers_keep_their_sign_at_every_length() {
        for value in [0, 1, -1, 127, 128, -128, -129, 32767, 32768, -32769, i64::MAX, i64::MIN, 1 << 40] {
            let size = sized_length(value);
            let mut payload = Payload::new(1);
            payload.push_sized(value, size);
            assert_eq!(read_sized(payload.bytes()), value);
            assert_eq!(payload.bytes().len(), size);
        }
        assert_eq!((sized_length(127), sized_length(128), sized_length(-128), sized_length(-129)), (1, 2, 1, 2));
    }
}
