//! All NaNs of a type compare as equal, but their bytes differ: clients send different ones. The byte-comparable
//! encoding keeps the bytes, so NaNs are replaced by one of them before terms are made.

use std::borrow::Cow;

use types::CqlType;
use types::collection::read_part;
use types::vint::read_uvint;

const FLOAT: [u8; 4] = 0x7fc0_0000_u32.to_be_bytes();
const DOUBLE: [u8; 8] = 0x7ff8_0000_0000_0000_u64.to_be_bytes();

/// The value with every NaN in it replaced by the same one. Its length does not change. Bytes that are not a value of
/// the type are not changed.
pub(crate) fn with_one_nan<'v>(ty: &CqlType, value: &'v [u8]) -> Cow<'v, [u8]> {
    if !ty.any(&|part| matches!(part, CqlType::Float | CqlType::Double)) {
        return Cow::Borrowed(value);
    }
    let mut changed = value.to_vec();
    change(ty, &mut changed);
    Cow::Owned(changed)
}

fn change(ty: &CqlType, value: &mut [u8]) {
    match ty {
        CqlType::Float => {
            if let Ok(bytes) = <&mut [u8; 4]>::try_from(value)
                && f32::from_be_bytes(*bytes).is_nan()
            {
                *bytes = FLOAT;
            }
        }
        CqlType::Double => {
            if let Ok(bytes) = <&mut [u8; 8]>::try_from(value)
                && f64::from_be_bytes(*bytes).is_nan()
            {
                *bytes = DOUBLE;
            }
        }
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            change_parts(after_count(value), skip_part, |_| Some(&**element));
        }
        CqlType::Map { key, value: mapped, .. } => {
            change_parts(after_count(value), skip_part, |place| Some(if place % 2 == 0 { &**key } else { &**mapped }));
        }
        CqlType::Tuple(elements) => change_parts(value, skip_part, |place| elements.get(place)),
        CqlType::Udt { definition, .. } => {
            change_parts(value, skip_part, |place| definition.fields().get(place).map(|(_, field)| field));
        }
        CqlType::Vector { element, .. } => match element.fixed_length() {
            Some(length) => value.chunks_mut(length.max(1)).for_each(|part| change(element, part)),
            None => change_parts(value, skip_vector_part, |_| Some(&**element)),
        },
        _ => {}
    }
}

fn after_count(collection: &mut [u8]) -> &mut [u8] {
    collection.get_mut(4..).unwrap_or_default()
}

/// Replaces the NaNs of a value's parts, up to the first part that has no type. `skip` skips a part with its length,
/// and returns the part's bytes.
fn change_parts<'t>(
    parts: &mut [u8],
    skip: impl Fn(&mut &[u8]) -> Option<usize>,
    part_type: impl Fn(usize) -> Option<&'t CqlType>,
) {
    let mut rest = parts;
    for place in 0.. {
        let mut behind = &*rest;
        let (Some(ty), Some(length)) = (part_type(place), skip(&mut behind)) else { return };
        let end = rest.len() - behind.len();
        let (own, others) = std::mem::take(&mut rest).split_at_mut(end);
        change(ty, &mut own[end - length..]);
        rest = others;
    }
}

/// Skips a part that follows its length as an i32.
fn skip_part(input: &mut &[u8]) -> Option<usize> {
    read_part(input).map(|part| part.map_or(0, <[u8]>::len))
}

/// Skips an element of a vector that follows its length as a uvint.
fn skip_vector_part(input: &mut &[u8]) -> Option<usize> {
    let length = usize::try_from(read_uvint(input)?).ok()?;
    *input = input.get(length..)?;
    Some(length)
}
