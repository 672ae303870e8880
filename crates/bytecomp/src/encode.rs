//! Encoding of values, one rule for each type.

use types::collection::{self, Parts};
use types::{CqlType, LEGACY_TIMEUUID, LEXICAL_UUID};

use crate::separator::{NEXT_COMPONENT, NEXT_COMPONENT_NULL, TERMINATOR};
use crate::{decimal, escape, number};

/// Appends the encoding of a valid value. Returns `false`, and appends nothing, if this value has no encoding (the
/// empty value of most types: a separator byte at its place represents it).
///
/// Bytes that are not a valid value of the type get some encoding, without a panic.
pub fn encode_value(cql_type: &CqlType, value: &[u8], out: &mut Vec<u8>) -> bool {
    match cql_type {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration => {
            escape::encode(value, out);
            return true;
        }
        CqlType::Custom(class) => return encode_custom(class, value, out),
        CqlType::Empty => return false,
        _ if value.is_empty() => return false,
        CqlType::Int if value.len() == 4 => {
            out.extend_from_slice(&[value[0] ^ 0x80, value[1], value[2], value[3]]);
        }
        CqlType::Int | CqlType::Tinyint | CqlType::Smallint | CqlType::Timestamp => {
            out.push(value[0] ^ 0x80);
            out.extend_from_slice(&value[1..]);
        }
        CqlType::Date | CqlType::Time => out.extend_from_slice(value),
        CqlType::Bigint | CqlType::Counter => {
            if let Ok(bytes) = value.try_into() {
                number::encode_i64(i64::from_be_bytes(bytes), out);
                return true;
            }
            let fill = if value[0] >= 0x80 { -1i64 } else { 0 };
            number::encode_i64(value.iter().fold(fill, |value, &byte| value << 8 | i64::from(byte)), out);
        }
        CqlType::Varint => number::encode_varint(value, out),
        CqlType::Decimal => decimal::encode(value, out),
        CqlType::Boolean => out.push(u8::from(value[0] != 0)),
        CqlType::Float | CqlType::Double => {
            if value[0] < 0x80 {
                out.push(value[0] | 0x80);
                out.extend_from_slice(&value[1..]);
            } else {
                out.extend(value.iter().map(|byte| !byte));
            }
        }
        CqlType::Uuid => encode_uuid(value, out),
        CqlType::Timeuuid => encode_timeuuid(value, out),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            encode_parts(after_count(value), |_| element, out);
        }
        CqlType::Map { key, value: mapped, .. } => {
            encode_parts(after_count(value), |i| if i % 2 == 0 { key } else { mapped }, out);
        }
        CqlType::Tuple(elements) => encode_fields(value, elements.len(), |i| &elements[i], out),
        CqlType::Udt { definition, .. } => {
            encode_fields(value, definition.fields().len(), |i| &definition.fields()[i].1, out);
        }
        CqlType::Vector { element, dimension } => {
            for part in collection::vector_elements(element, *dimension, value) {
                encode_component(element, part.ok(), out);
            }
            out.push(TERMINATOR);
        }
    }
    true
}

fn encode_custom(class: &str, value: &[u8], out: &mut Vec<u8>) -> bool {
    match (class, value) {
        (LEGACY_TIMEUUID, value) => encode_value(&CqlType::Timeuuid, value, out),
        (LEXICAL_UUID, []) => false,
        (LEXICAL_UUID, value) => {
            // Two signed halves.
            out.extend(value.iter().enumerate().map(|(i, byte)| if i % 8 == 0 { byte ^ 0x80 } else { *byte }));
            true
        }
        _ => {
            escape::encode(value, out);
            true
        }
    }
}

/// Like [`encode_value`], for a column in descending order: every byte is inverted.
pub fn encode_value_reversed(cql_type: &CqlType, value: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let has_encoding = encode_value(cql_type, value, out);
    out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    has_encoding
}

/// Encodes the version digit first. Then follows, for version 1, the time from its high end down; for other versions,
/// the digits as they are.
fn encode_uuid(value: &[u8], out: &mut Vec<u8>) {
    let Ok(uuid) = <[u8; 16]>::try_from(value) else {
        out.extend_from_slice(value);
        return;
    };
    let version = u64::from(types::timeuuid::version(&uuid));
    let high = if version == 1 {
        types::timeuuid::time_order(&uuid)
    } else {
        let high = (u128::from_be_bytes(uuid) >> 64) as u64;
        version << 60 | high >> 4 & 0x0fff_ffff_ffff_f000 | high & 0x0fff
    };
    out.extend_from_slice(&high.to_be_bytes());
    out.extend_from_slice(&uuid[8..]);
}

fn encode_timeuuid(value: &[u8], out: &mut Vec<u8>) {
    let Ok(uuid) = <[u8; 16]>::try_from(value) else {
        out.extend_from_slice(value);
        return;
    };
    out.extend_from_slice(&types::timeuuid::time_order(&uuid).to_be_bytes());
    // Timeuuids compare these as signed bytes.
    out.extend(uuid[8..].iter().map(|byte| byte ^ 0x80));
}

fn after_count(value: &[u8]) -> Parts<'_> {
    collection::fields(value.get(4..).unwrap_or_default())
}

fn encode_parts<'t>(parts: Parts<'_>, part_type: impl Fn(usize) -> &'t CqlType, out: &mut Vec<u8>) {
    for (i, part) in parts.enumerate() {
        encode_component(part_type(i), part.ok().flatten(), out);
    }
    out.push(TERMINATOR);
}

/// Nulls at the end are omitted, since a tuple is equal with and without them. A value therefore keeps its bytes when
/// its type gets more fields. Fields that the type does not know yet are written as bytes.
fn encode_fields<'t>(value: &[u8], count: usize, field_type: impl Fn(usize) -> &'t CqlType, out: &mut Vec<u8>) {
    let present = |part: &Result<Option<&[u8]>, _>| matches!(part, Ok(Some(_)));
    let fields = || collection::fields(value);
    let last = fields().enumerate().filter(|(_, part)| present(part)).last().map_or(0, |(i, _)| i + 1);
    for (i, part) in fields().take(last).enumerate() {
        let ty = if i < count { field_type(i) } else { &CqlType::Blob };
        encode_component(ty, part.ok().flatten(), out);
    }
    out.push(TERMINATOR);
}

fn encode_component(cql_type: &CqlType, value: Option<&[u8]>, out: &mut Vec<u8>) {
    let separator = out.len();
    out.push(NEXT_COMPONENT);
    if !value.is_some_and(|value| encode_value(cql_type, value, out)) {
        out[separator] = NEXT_COMPONENT_NULL;
    }
}

/// Whether decoding restores every value of this type byte for byte. For other types, 1.0 and 1.00, padded varints,
/// tuples with and without nulls at the end, or an empty and a null element share an encoding.
pub fn is_invertible(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Decimal
        | CqlType::Varint
        | CqlType::Boolean
        | CqlType::Tuple(_)
        | CqlType::Udt { .. }
        | CqlType::List { .. }
        | CqlType::Set { .. }
        | CqlType::Map { .. } => false,
        // With a length before each element there is more than one way to write that length.
        CqlType::Vector { element, .. } => element.fixed_length().is_some() && is_invertible(element),
        _ => true,
    }
}
