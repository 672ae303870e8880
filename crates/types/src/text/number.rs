//! Numbers from text.

use std::str::FromStr;

use num_bigint::BigInt;

use crate::decimal::DIGITS_MAX;
use crate::{Decimal, MarshalError};

/// An integer of fixed width; `name` is Java's name for it in the error text.
pub(super) fn integer<T: FromStr, const N: usize>(
    text: &str,
    name: &str,
    to_bytes: fn(T) -> [u8; N],
) -> Result<Vec<u8>, MarshalError> {
    match text.parse() {
        Ok(value) => Ok(to_bytes(value).to_vec()),
        Err(_) => Err(MarshalError::new(format!("Unable to make {name} from '{text}'"))),
    }
}

pub(super) fn varint(text: &str) -> Result<Vec<u8>, MarshalError> {
    refuse_long(text, "varint")?;
    parse_varint(text)
        .map(|value| value.to_signed_bytes_be())
        .ok_or_else(|| MarshalError::new(format!("unable to make int from '{text}'")))
}

/// Refuses a number that would take long to parse, and whose text is too long for a message.
fn refuse_long(text: &str, name: &str) -> Result<(), MarshalError> {
    /// The characters besides digits: a sign, a point, and an exponent of ten digits with a sign.
    const OTHER_CHARACTERS_MAX: usize = 14;
    if text.len() <= DIGITS_MAX + OTHER_CHARACTERS_MAX {
        return Ok(());
    }
    Err(MarshalError::new(format!("a {name} of more than {DIGITS_MAX} digits cannot be read from a text")))
}

/// An optional sign and digits, nothing else.
pub(crate) fn parse_varint(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.len() > DIGITS_MAX || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

pub(super) fn decimal(text: &str) -> Result<Vec<u8>, MarshalError> {
    refuse_long(text, "decimal")?;
    match text.parse::<Decimal>() {
        Ok(value) => Ok(value.to_bytes()),
        Err(_) => Err(MarshalError::new(format!("unable to make BigDecimal from '{text}'"))),
    }
}

pub(super) fn float(text: &str) -> Result<Vec<u8>, MarshalError> {
    match java_float::<f32>(text) {
        Some(value) => Ok(value.to_be_bytes().to_vec()),
        None => Err(MarshalError::new(format!("Unable to make float from '{text}'"))),
    }
}

pub(super) fn double(text: &str) -> Result<Vec<u8>, MarshalError> {
    match java_float::<f64>(text) {
        Some(value) => Ok(value.to_be_bytes().to_vec()),
        None => Err(MarshalError::new(format!("Unable to make double from '{text}'"))),
    }
}

/// Java's grammar: blanks around, a sign, `NaN` or `Infinity` in exactly this case or a decimal, and a type suffix.
/// (Its hexadecimal floats are not accepted.)
fn java_float<T: FromStr + std::ops::Neg<Output = T>>(text: &str) -> Option<T> {
    let text = text.trim_matches(|c| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    if unsigned == "NaN" {
        return "NaN".parse().ok();
    }
    let magnitude: T = if unsigned == "Infinity" {
        "inf".parse().ok()?
    } else {
        let number = unsigned.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(unsigned);
        // Rust's grammar is the same once names and second signs are excluded.
        if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return None;
        }
        number.parse().ok()?
    };
    Some(if negative { -magnitude } else { magnitude })
}
