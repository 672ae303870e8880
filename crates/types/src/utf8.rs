//! Text as Cassandra accepts it, which is nearly UTF-8.

use std::borrow::Cow;

use crate::MarshalError;

/// Checks a text value. Beyond UTF-8, encoded surrogates and the two-byte zero of Java's own encoding are accepted.
pub fn validate(value: &[u8]) -> Result<(), MarshalError> {
    // Most text is ASCII, which is checked several bytes at a time. The strict check is right for nearly all other
    // text; the rest is checked byte by byte.
    if value.is_ascii() || std::str::from_utf8(value).is_ok() || is_tolerated(value) {
        Ok(())
    } else {
        Err(MarshalError::new("String didn't validate."))
    }
}

/// A text value as a string; invalid UTF-8 becomes the replacement character.
pub fn to_str(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}

/// The condition on a byte after the first: `byte & mask == bits`, or the opposite.
struct Follower {
    mask: u8,
    bits: u8,
    equal: bool,
}

const ANY: Follower = Follower { mask: 0xc0, bits: 0x80, equal: true };
const ZERO: Follower = Follower { mask: 0xff, bits: 0x80, equal: true };
// Cassandra only excludes overlong forms after e0 and f0, and accepts any other byte there.
const AFTER_E0: Follower = Follower { mask: 0xe0, bits: 0x80, equal: false };
const AFTER_F0: Follower = Follower { mask: 0x30, bits: 0x00, equal: false };

fn is_tolerated(value: &[u8]) -> bool {
    let mut rest = value;
    while let Some((&first, after)) = rest.split_first() {
        let followers: &[Follower] = match first {
            0x00..=0x7f => &[],
            0xc0 => &[ZERO],
            0xc2..=0xdf => &[ANY],
            0xe0 => &[AFTER_E0, ANY],
            0xe1..=0xef => &[ANY, ANY],
            0xf0 => &[AFTER_F0, ANY, ANY],
            0xf1..=0xf7 => &[ANY, ANY, ANY],
            _ => return false,
        };
        let Some((found, after)) = after.split_at_checked(followers.len()) else {
            return false;
        };
        if !found.iter().zip(followers).all(|(byte, f)| (byte & f.mask == f.bits) == f.equal) {
            return false;
        }
        rest = after;
    }
    true
}
