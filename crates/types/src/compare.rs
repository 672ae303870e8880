//! The order of values of a type, as used in clusterings, sets, map keys and `min`/`max`.

use std::cmp::Ordering;

use crate::collection::{self, Parts, read_part};
use crate::decimal::Decimal;
use crate::{CqlType, LEGACY_TIMEUUID, LEXICAL_UUID, steps, timeuuid};

impl CqlType {
    /// Compares two serialized values of this type. A zero-length value comes first (unless the type is byte ordered).
    /// Invalid bytes are compared in some total order, without a panic.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        steps::count(1);
        // The functions for types with parts are never inlined: with them, comparing numbers and bytes took twice the
        // instructions.
        match self {
            CqlType::Text
            | CqlType::Ascii
            | CqlType::Blob
            | CqlType::Inet
            | CqlType::Date
            | CqlType::Time
            | CqlType::Duration
            | CqlType::Empty => a.cmp(b),
            CqlType::Int => match (<[u8; 4]>::try_from(a), <[u8; 4]>::try_from(b)) {
                (Ok(a), Ok(b)) => i32::from_be_bytes(a).cmp(&i32::from_be_bytes(b)),
                _ => compare_signed_bytes(a, b),
            },
            CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => {
                match (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
                    (Ok(a), Ok(b)) => i64::from_be_bytes(a).cmp(&i64::from_be_bytes(b)),
                    _ => compare_signed_bytes(a, b),
                }
            }
            CqlType::Tinyint | CqlType::Smallint => compare_signed_bytes(a, b),
            CqlType::Boolean => a.first().map(|&byte| byte != 0).cmp(&b.first().map(|&byte| byte != 0)),
            CqlType::Float => {
                let number = |value: &[u8]| value.try_into().ok().map(f32::from_be_bytes).map(f64::from);
                compare_numbers((a, number(a)), (b, number(b)))
            }
            CqlType::Double => {
                let number = |value: &[u8]| value.try_into().ok().map(f64::from_be_bytes);
                compare_numbers((a, number(a)), (b, number(b)))
            }
            CqlType::Decimal => compare_decimals(a, b),
            CqlType::Varint => compare_varints(a, b),
            CqlType::Uuid => compare_uuids(a, b),
            CqlType::Timeuuid => compare_timeuuids(a, b),
            CqlType::Custom(class) => compare_custom(class, a, b),
            CqlType::List { element, .. } | CqlType::Set { element, .. } => compare_parts(a, b, |_| element),
            CqlType::Map { key, value, .. } => compare_parts(a, b, |i| if i % 2 == 0 { key } else { value }),
            CqlType::Tuple(elements) => compare_fields(a, b, elements.len(), |i| &elements[i]),
            CqlType::Udt { definition, .. } => {
                compare_fields(a, b, definition.fields().len(), |i| &definition.fields()[i].1)
            }
            CqlType::Vector { element, dimension } => compare_vectors(a, b, element, *dimension),
        }
    }
}

/// Compares two's complement numbers of equal length; a zero-length value comes first.
fn compare_signed_bytes(a: &[u8], b: &[u8]) -> Ordering {
    let sign = |bytes: &[u8]| bytes.first().map(|&byte| byte as i8);
    sign(a).cmp(&sign(b)).then_with(|| a.cmp(b))
}

/// The order is: the empty value, numbers (all NaNs are equal and the greatest, and -0.0 is before 0.0), invalid
/// values.
fn compare_numbers((a, a_number): (&[u8], Option<f64>), (b, b_number): (&[u8], Option<f64>)) -> Ordering {
    match (a_number, b_number) {
        (Some(a), Some(b)) if a.is_nan() || b.is_nan() => a.is_nan().cmp(&b.is_nan()),
        (Some(a), Some(b)) => a.total_cmp(&b),
        (None, None) => a.cmp(b),
        _ => {
            let rank = |value: &[u8], number: Option<f64>| if number.is_some() { 1 } else { 2 * value.len().min(1) };
            rank(a, a_number).cmp(&rank(b, b_number))
        }
    }
}

#[inline(never)]
fn compare_decimals(a: &[u8], b: &[u8]) -> Ordering {
    match (Decimal::from_bytes(a), Decimal::from_bytes(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Compares two's complement numbers of any length and padding.
fn compare_varints(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (without_padding(a), without_padding(b));
    let (Some(&a_sign), Some(&b_sign)) = (a.first(), b.first()) else {
        return a.len().cmp(&b.len());
    };
    let (a_negative, b_negative) = (a_sign >= 0x80, b_sign >= 0x80);
    let lengths = a.len().cmp(&b.len());
    match (a_negative, b_negative) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => lengths.then_with(|| a.cmp(b)),
        (true, true) => lengths.reverse().then_with(|| a.cmp(b)),
    }
}

/// The shortest two's complement form of a varint: `00 01` is `01`, `ff 80` is `80`.
fn without_padding(mut value: &[u8]) -> &[u8] {
    while let [0x00, 0x00..=0x7f, ..] | [0xff, 0x80..=0xff, ..] = value {
        value = &value[1..];
    }
    value
}

fn compare_uuids(a: &[u8], b: &[u8]) -> Ordering {
    let (Ok(a), Ok(b)) = (<[u8; 16]>::try_from(a), <[u8; 16]>::try_from(b)) else {
        return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    };
    let (a_version, b_version) = (a[6] >> 4, b[6] >> 4);
    a_version.cmp(&b_version).then_with(|| {
        if a_version == 1 {
            timeuuid::timestamp(&a).cmp(&timeuuid::timestamp(&b)).then_with(|| a[8..].cmp(&b[8..]))
        } else {
            a.cmp(&b)
        }
    })
}

/// Compares timestamps, then the low halves as eight signed bytes (a historical order on which stored data depends).
fn compare_timeuuids(a: &[u8], b: &[u8]) -> Ordering {
    let (Ok(a), Ok(b)) = (<[u8; 16]>::try_from(a), <[u8; 16]>::try_from(b)) else {
        return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    };
    let low = |value: &[u8; 16]| value[8..].iter().fold(0u64, |low, &byte| low << 8 | u64::from(byte ^ 0x80));
    timeuuid::time_order(&a).cmp(&timeuuid::time_order(&b)).then_with(|| low(&a).cmp(&low(&b)))
}

/// Compares bytes if the order of the class is not known: such values are not clusterings, elements of sets or keys of
/// maps.
#[inline(never)]
fn compare_custom(class: &str, a: &[u8], b: &[u8]) -> Ordering {
    let halves =
        |value: &[u8]| value.try_into().ok().map(u128::from_be_bytes).map(|all| [(all >> 64) as i64, all as i64]);
    match class {
        LEGACY_TIMEUUID => compare_timeuuids(a, b),
        LEXICAL_UUID => halves(a).cmp(&halves(b)).then_with(|| a.cmp(b)),
        _ => a.cmp(b),
    }
}

/// Compares collections part by part, then by the number of parts.
#[inline(never)]
fn compare_parts<'t>(a: &[u8], b: &[u8], part_type: impl Fn(usize) -> &'t CqlType) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    let (mut a, mut b) = (after_count(a), after_count(b));
    for i in 0.. {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) if a.is_none() || b.is_none() => return a.is_some().cmp(&b.is_some()),
            (Some(Ok(Some(a))), Some(Ok(Some(b)))) => part_type(i).compare(a, b),
            (a, b) => rank(&a).cmp(&rank(&b)),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// The parts after the count, up to the end of the value, with one or two for each element.
fn after_count(value: &[u8]) -> Parts<'_> {
    collection::fields(value.get(4..).unwrap_or_default())
}

/// Broken parts come before nulls, and nulls before values; only needed for invalid bytes.
fn rank<E>(part: &Option<Result<Option<&[u8]>, E>>) -> u8 {
    match part {
        Some(Err(_)) => 0,
        Some(Ok(None)) => 1,
        _ => 2,
    }
}

/// Compares tuples field by field, with null before any value; missing fields at the end are nulls. Additional fields,
/// which the type lacks because it is from before an ALTER TYPE, come after their absence and are compared as bytes.
#[inline(never)]
fn compare_fields<'t>(a: &[u8], b: &[u8], count: usize, field_type: impl Fn(usize) -> &'t CqlType) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().min(1).cmp(&b.len().min(1));
    }
    let (mut a, mut b) = (a, b);
    for i in 0..count {
        let order = match (read_part(&mut a).flatten(), read_part(&mut b).flatten()) {
            (Some(a), Some(b)) => field_type(i).compare(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
    match (a, b) {
        ([], []) => Ordering::Equal,
        _ => without_nulls_at_end(a).cmp(without_nulls_at_end(b)),
    }
}

/// A serialized tuple up to its last field that is not null.
fn without_nulls_at_end(fields: &[u8]) -> &[u8] {
    let (mut rest, mut kept) = (fields, 0);
    while let Some(field) = read_part(&mut rest) {
        if field.is_some() {
            kept = fields.len() - rest.len();
        }
    }
    &fields[..kept]
}

#[inline(never)]
fn compare_vectors(a: &[u8], b: &[u8], element: &CqlType, dimension: u32) -> Ordering {
    let a_elements = collection::vector_elements(element, dimension, a);
    let b_elements = collection::vector_elements(element, dimension, b);
    for (a, b) in a_elements.zip(b_elements) {
        let order = match (a, b) {
            (Ok(a), Ok(b)) => element.compare(a, b),
            (a, b) => a.is_ok().cmp(&b.is_ok()),
        };
        if order.is_ne() {
            return order;
        }
    }
    a.is_empty().cmp(&b.is_empty()).reverse()
}
