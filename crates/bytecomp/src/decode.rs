//! Decoding of values.

use types::{CqlType, LEGACY_TIMEUUID, LEXICAL_UUID, collection, vint};

use crate::reader::{DecodeError, Reader};
use crate::separator::{NEXT_COMPONENT, NEXT_COMPONENT_NULL, TERMINATOR};
use crate::{decimal, escape, number};

/// Appends the serialized value whose encoding is at the start of `input`. Moves `input` past it, to the separator that
/// follows or to the end. For types that are not [`is_invertible`](crate::is_invertible), the result is equal to the
/// original but may differ in bytes.
pub fn decode_value(cql_type: &CqlType, input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    decode_from(cql_type, false, input, out)
}

/// Like [`decode_value`], for the output of [`encode_value_reversed`](crate::encode_value_reversed).
pub fn decode_value_reversed(cql_type: &CqlType, input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    decode_from(cql_type, true, input, out)
}

fn decode_from(cql_type: &CqlType, reversed: bool, input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let mut reader = Reader::new(input);
    reader.set_inverted(reversed);
    decode(cql_type, &mut reader, out)?;
    *input = reader.rest();
    Ok(())
}

pub(crate) fn decode(cql_type: &CqlType, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    match cql_type {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration => {
            escape::decode(reader, out)
        }
        CqlType::Custom(class) => decode_custom(class, reader, out),
        CqlType::Empty => Err(reader.error("no value, the type has none")),
        CqlType::Int => decode_signed::<4>(reader, "an int", out),
        CqlType::Tinyint => decode_signed::<1>(reader, "a tinyint", out),
        CqlType::Smallint => decode_signed::<2>(reader, "a smallint", out),
        CqlType::Timestamp => decode_signed::<8>(reader, "a timestamp", out),
        CqlType::Date => reader.copy(4, "a date", out),
        CqlType::Time => reader.copy(8, "a time", out),
        CqlType::Bigint | CqlType::Counter => {
            out.extend_from_slice(&number::decode_i64(reader)?.to_be_bytes());
            Ok(())
        }
        CqlType::Varint => number::decode_varint(reader, out),
        CqlType::Decimal => decimal::decode(reader, out),
        CqlType::Boolean => {
            out.push(u8::from(reader.byte("a boolean")? == 1));
            Ok(())
        }
        CqlType::Float => decode_float::<4>(reader, "a float", out),
        CqlType::Double => decode_float::<8>(reader, "a double", out),
        CqlType::Uuid => decode_uuid(reader, out),
        CqlType::Timeuuid => decode_timeuuid(reader, out),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => decode_list(element, reader, out),
        CqlType::Map { key, value, .. } => decode_map(key, value, reader, out),
        CqlType::Tuple(elements) => decode_fields(elements.len(), |i| &elements[i], reader, out),
        CqlType::Udt { definition, .. } => {
            decode_fields(definition.fields().len(), |i| &definition.fields()[i].1, reader, out)
        }
        CqlType::Vector { element, dimension } => decode_vector(element, *dimension, reader, out),
    }
}

fn decode_signed<const N: usize>(
    reader: &mut Reader<'_>,
    expected: &'static str,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut bytes = reader.array::<N>(expected)?;
    bytes[0] ^= 0x80;
    out.extend_from_slice(&bytes);
    Ok(())
}

fn decode_float<const N: usize>(
    reader: &mut Reader<'_>,
    expected: &'static str,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut bytes = reader.array::<N>(expected)?;
    if bytes[0] < 0x80 {
        bytes = bytes.map(|byte| !byte);
    } else {
        bytes[0] &= 0x7f;
    }
    out.extend_from_slice(&bytes);
    Ok(())
}

fn decode_uuid(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let encoded = u64::from_be_bytes(reader.array("a uuid")?);
    let high = match encoded >> 60 {
        1 => high_half_of_time(encoded),
        version => encoded << 4 & !0xffff | version << 12 | encoded & 0x0fff,
    };
    out.extend_from_slice(&high.to_be_bytes());
    reader.copy(8, "the low half of a uuid", out)
}

fn decode_timeuuid(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let encoded = u64::from_be_bytes(reader.array("a timeuuid")?);
    out.extend_from_slice(&high_half_of_time(encoded).to_be_bytes());
    let low = reader.array::<8>("the low half of a timeuuid")?;
    out.extend_from_slice(&low.map(|byte| byte ^ 0x80));
    Ok(())
}

fn decode_custom(class: &str, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    match class {
        LEGACY_TIMEUUID => decode_timeuuid(reader, out),
        LEXICAL_UUID => {
            let encoded = u128::from_be_bytes(reader.array("a uuid")?);
            out.extend_from_slice(&(encoded ^ (1 << 127 | 1 << 63)).to_be_bytes());
            Ok(())
        }
        _ => escape::decode(reader, out),
    }
}

fn high_half_of_time(order: u64) -> u64 {
    order << 32 | (order >> 32 & 0xffff) << 16 | order >> 48
}

/// Decodes one component after its separator into `[i32 length][bytes]`; returns `false` at the terminator. A component
/// without bytes is decoded as null; inside a collection, where there are no nulls, it was an empty value.
fn decode_part(cql_type: &CqlType, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<bool, DecodeError> {
    match reader.byte("a separator")? {
        TERMINATOR => Ok(false),
        NEXT_COMPONENT_NULL => {
            collection::write_part(None, out);
            Ok(true)
        }
        NEXT_COMPONENT => {
            with_length(out, |out| decode(cql_type, reader, out))?;
            Ok(true)
        }
        _ => Err(reader.error_before("a separator")),
    }
}

/// Writes an i32 length, and the bytes that `write` appends.
pub(crate) fn with_length(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn decode_list(element: &CqlType, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0i32;
    while decode_part(element, reader, out)? {
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

fn decode_map(key: &CqlType, value: &CqlType, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0i32;
    while decode_part(key, reader, out)? {
        if !decode_part(value, reader, out)? {
            return Err(reader.error_before("the value of a map's key"));
        }
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

/// Missing fields are decoded as nulls, and fields that the type does not know yet as bytes.
fn decode_fields<'t>(
    count: usize,
    field_type: impl Fn(usize) -> &'t CqlType,
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    for i in 0..count {
        if !decode_part(field_type(i), reader, out)? {
            (i..count).for_each(|_| collection::write_part(None, out));
            return Ok(());
        }
    }
    while decode_part(&CqlType::Blob, reader, out)? {}
    Ok(())
}

fn decode_vector(
    element: &CqlType,
    dimension: u32,
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let bare = element.fixed_length().is_some();
    let mut scratch = Vec::new();
    for _ in 0..dimension {
        match reader.byte("a separator")? {
            NEXT_COMPONENT if bare => decode(element, reader, out)?,
            NEXT_COMPONENT => {
                scratch.clear();
                decode(element, reader, &mut scratch)?;
                vint::write_uvint(scratch.len() as u64, out);
                out.extend_from_slice(&scratch);
            }
            // Only an element of a type with lengths can be empty.
            NEXT_COMPONENT_NULL if !bare => vint::write_uvint(0, out),
            _ => return Err(reader.error_before("the separator before an element of a vector")),
        }
    }
    terminator(reader)
}

fn terminator(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    match reader.byte("a terminator")? {
        TERMINATOR => Ok(()),
        _ => Err(reader.error_before("a terminator")),
    }
}
