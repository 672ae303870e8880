//! Values as JSON text, for `toJson` and `SELECT JSON`.

use std::fmt::Write as _;

use crate::collection;
use crate::literal::plain_text;
use crate::text::{Separator, format_timestamp};
use crate::{CqlType, utf8};

impl CqlType {
    /// The value as JSON. NaN and infinities become `null`, an empty number `""`, and a map's keys strings.
    pub fn to_json(&self, value: &[u8]) -> String {
        let mut out = String::new();
        self.write_json(value, &mut out);
        out
    }

    /// Like [`to_json`](Self::to_json), appended to `out`.
    pub fn write_json(&self, value: &[u8], out: &mut String) {
        match self {
            CqlType::Text | CqlType::Ascii => write_json_string(&utf8::to_str(value), out),
            CqlType::Blob | CqlType::Custom(_) => {
                out.push_str("\"0x");
                crate::hex::write(value, out);
                out.push('"');
            }
            CqlType::Timestamp => match <[u8; 8]>::try_from(value) {
                Ok(millis) => {
                    let text = format_timestamp(i64::from_be_bytes(millis), Separator::Json);
                    let _ = write!(out, "\"{text}\"");
                }
                Err(_) => out.push_str("\"\""),
            },
            CqlType::Float if <[u8; 4]>::try_from(value).is_ok_and(|bytes| !f32::from_be_bytes(bytes).is_finite()) => {
                out.push_str("null");
            }
            CqlType::Double if <[u8; 8]>::try_from(value).is_ok_and(|bytes| !f64::from_be_bytes(bytes).is_finite()) => {
                out.push_str("null");
            }
            CqlType::Date | CqlType::Time | CqlType::Uuid | CqlType::Timeuuid | CqlType::Inet | CqlType::Duration => {
                let _ = write!(out, "\"{}\"", plain_text(self, value).unwrap_or_default());
            }
            CqlType::Boolean if value.is_empty() => out.push_str("null"),
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                let parts = collection::elements(value).into_iter().flatten();
                write_array(parts.map(|part| (&**element, part.ok().flatten())), out);
            }
            CqlType::Vector { element, dimension } => {
                let parts = collection::vector_elements(element, *dimension, value);
                write_array(parts.map(|part| (&**element, part.ok())), out);
            }
            CqlType::Tuple(elements) => {
                let parts = collection::fields(value).map(|part| part.ok().flatten());
                write_array(elements.iter().zip(parts.chain(std::iter::repeat(None))), out);
            }
            CqlType::Map { key, value: mapped, .. } => write_map(key, mapped, value, out),
            CqlType::Udt { .. } => self.write_json_fields(value, out),
            _ => out.push_str(plain_text(self, value).as_deref().unwrap_or("\"\"")),
        }
    }

    /// Fields that the value lacks, because it was serialized before the type grew, are null.
    fn write_json_fields(&self, value: &[u8], out: &mut String) {
        let CqlType::Udt { definition, .. } = self else { return };
        let mut parts = collection::fields(value);
        out.push('{');
        for (i, (name, field)) in definition.fields().iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            write_json_name(name, out);
            out.push_str(": ");
            write_optional(field, parts.next().and_then(|part| part.ok().flatten()), out);
        }
        out.push('}');
    }
}

/// Appends a column's or field's name as in a JSON object: with additional double quotes unless it is lower-case.
pub fn write_json_name(name: &str, out: &mut String) {
    if name.chars().any(char::is_uppercase) {
        write_json_string(&format!("\"{name}\""), out);
    } else {
        write_json_string(name, out);
    }
}

/// Appends a JSON string: quotes, backslashes and control characters are escaped, everything else is unchanged.
pub fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn write_optional(cql_type: &CqlType, value: Option<&[u8]>, out: &mut String) {
    match value {
        Some(value) => cql_type.write_json(value, out),
        None => out.push_str("null"),
    }
}

fn write_array<'a>(parts: impl Iterator<Item = (&'a CqlType, Option<&'a [u8]>)>, out: &mut String) {
    out.push('[');
    for (i, (cql_type, part)) in parts.enumerate() {
        out.push_str(if i == 0 { "" } else { ", " });
        write_optional(cql_type, part, out);
    }
    out.push(']');
}

fn write_map(key: &CqlType, mapped: &CqlType, value: &[u8], out: &mut String) {
    out.push('{');
    for (i, entry) in collection::entries(value).into_iter().flat_map(|parts| parts.entries()).enumerate() {
        let Ok((key_value, mapped_value)) = entry else { break };
        out.push_str(if i == 0 { "" } else { ", " });
        let start = out.len();
        key.write_json(key_value, out);
        // Keys are strings: a number or a collection becomes a string that contains its JSON.
        if !out[start..].starts_with('"') {
            let json = out.split_off(start);
            write_json_string(&json, out);
        }
        out.push_str(": ");
        mapped.write_json(mapped_value, out);
    }
    out.push('}');
}
