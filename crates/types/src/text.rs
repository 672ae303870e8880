//! Values from text: the meaning of a string literal or a JSON string for each type.

mod date;
mod duration;
mod format;
mod inet;
mod number;
mod time;
mod timestamp;
mod tuple;
mod zone;

use crate::{CqlType, MarshalError, hex, timeuuid};

pub use date::format_date;
pub(crate) use duration::parse as parse_duration;
pub use inet::format_inet;
pub use time::format_time;
pub use timestamp::{Separator, format_timestamp};

impl CqlType {
    /// Converts a text to a serialized value of the type. The empty text is the empty value if the type has one.
    ///
    /// Collections and vectors accept hexadecimal bytes; tuples and user types accept their fields between colons
    /// (`1:a:@`). Host names are not addresses: nothing is looked up.
    pub fn from_text(&self, text: &str) -> Result<Vec<u8>, MarshalError> {
        match self {
            CqlType::Text => Ok(text.as_bytes().to_vec()),
            CqlType::Ascii => ascii(text),
            CqlType::Boolean => boolean(text),
            CqlType::Date => date::parse(text).map(|days| days.to_be_bytes().to_vec()),
            CqlType::Time => time::parse(text).map(|nanos| nanos.to_be_bytes().to_vec()),
            CqlType::Empty if !text.is_empty() => Err(MarshalError::new(format!("'{text}' is not empty"))),
            _ if text.is_empty() => Ok(Vec::new()),
            CqlType::Int => number::integer(text, "int", i32::to_be_bytes),
            CqlType::Bigint | CqlType::Counter => number::integer(text, "long", i64::to_be_bytes),
            CqlType::Smallint => number::integer(text, "short", i16::to_be_bytes),
            CqlType::Tinyint => number::integer(text, "byte", i8::to_be_bytes),
            CqlType::Varint => number::varint(text),
            CqlType::Decimal => number::decimal(text),
            CqlType::Float => number::float(text),
            CqlType::Double => number::double(text),
            CqlType::Timestamp => timestamp::parse(text).map(|millis| millis.to_be_bytes().to_vec()),
            CqlType::Uuid => parse_uuid(text)
                .map(Vec::from)
                .ok_or_else(|| MarshalError::new(format!("Unable to make UUID from '{text}'"))),
            CqlType::Timeuuid => parse_timeuuid(text),
            CqlType::Inet => inet::parse(text),
            CqlType::Duration => duration::parse(text).map(|duration| duration.to_bytes()),
            CqlType::Tuple(fields) => tuple::parse(self, fields.iter(), text),
            CqlType::Udt { definition, .. } => tuple::parse(self, definition.fields().iter().map(|(_, ty)| ty), text),
            _ => hex::parse(text).ok_or_else(|| MarshalError::new(format!("cannot parse '{text}' as hex bytes"))),
        }
    }
}

fn ascii(text: &str) -> Result<Vec<u8>, MarshalError> {
    if text.is_ascii() {
        return Ok(text.as_bytes().to_vec());
    }
    Err(MarshalError::new(
        "Invalid ASCII character in string literal: java.nio.charset.UnmappableCharacterException: Input length = 1",
    ))
}

fn boolean(text: &str) -> Result<Vec<u8>, MarshalError> {
    if text.is_empty() || text.eq_ignore_ascii_case("false") {
        Ok(vec![0])
    } else if text.eq_ignore_ascii_case("true") {
        Ok(vec![1])
    } else {
        Err(MarshalError::new(format!("Unable to make boolean from '{text}'")))
    }
}

/// A UUID in its usual form: digits of either case in groups of 8, 4, 4, 4 and 12.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let hyphens = [8, 13, 18, 23];
    let digits = text.as_bytes().iter().enumerate().filter(|(i, _)| !hyphens.contains(i));
    let digits: Vec<u8> = digits.map(|(_, &byte)| byte).collect();
    if hyphens.iter().any(|&i| text.as_bytes()[i] != b'-') {
        return None;
    }
    hex::parse(std::str::from_utf8(&digits).ok()?)?.try_into().ok()
}

/// A UUID in its usual form, lower-case.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let digits = hex::to_string(uuid);
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    groups.join("-")
}

fn parse_timeuuid(text: &str) -> Result<Vec<u8>, MarshalError> {
    let uuid = parse_uuid(text).ok_or_else(|| MarshalError::new(format!("Unknown timeuuid representation: {text}")))?;
    if timeuuid::version(&uuid) != 1 {
        return Err(MarshalError::new("TimeUUID supports only version 1 UUIDs"));
    }
    Ok(uuid.to_vec())
}
