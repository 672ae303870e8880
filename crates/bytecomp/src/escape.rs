//! Byte-ordered values of any length: zeros are escaped, so that the end of a value sorts before any more of it.

use crate::reader::{DecodeError, Reader};

/// A run of zeros begins, or the value ends.
const ESCAPE: u8 = 0x00;
/// One more zero of a run that goes to the end or goes on.
const ANOTHER_ZERO: u8 = 0xfe;
/// The last zero of a run that another byte follows.
const LAST_ZERO: u8 = 0xff;

/// Appends the escaped form of `value`. It ends in `00` or `fe`.
pub(crate) fn encode(value: &[u8], out: &mut Vec<u8>) {
    out.reserve(value.len() + 1);
    if !value.contains(&0) {
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
