//! Clustering values in the form of Data.db and Statistics.db, from and to the model's serialized clusterings.

use model::{Clusterings, push_component};
use types::vint;

use crate::error::{Decoded, SSTableError};
use crate::input::Input;
use crate::stats::push_vbytes;

/// The number of values that one header describes.
const GROUP: usize = 32;

/// Kinds of bounds, with their numbers in files.
pub(crate) mod kind {
    pub const EXCL_END_BOUND: u8 = 0;
    pub const INCL_START_BOUND: u8 = 1;
    pub const EXCL_END_INCL_START_BOUNDARY: u8 = 2;
    pub const CLUSTERING: u8 = 4;
    pub const INCL_END_EXCL_START_BOUNDARY: u8 = 5;
    pub const INCL_END_BOUND: u8 = 6;
    pub const EXCL_START_BOUND: u8 = 7;
}

/// Appends a value, without a length if its type has a fixed one.
#[inline]
pub(crate) fn write_value(fixed_length: Option<usize>, value: &[u8], out: &mut Vec<u8>) -> Result<(), SSTableError> {
    match fixed_length {
        None => push_vbytes(value, out),
        Some(length) if length == value.len() => out.extend_from_slice(value),
        Some(length) => {
            let what = format!("a value of {} bytes of a type whose values have {length}", value.len());
            return Err(SSTableError::Unwritable { what });
        }
    }
    Ok(())
}

/// Reads a value whose type has the given fixed length, if any.
#[inline]
pub(crate) fn read_value<'a>(fixed_length: Option<usize>, input: &mut Input<'a>) -> Decoded<&'a [u8]> {
    match fixed_length {
        Some(length) => input.take(length, "value"),
        None => input.vbytes("value"),
    }
}

/// Appends the values of a serialized clustering or prefix. `fixed_lengths` are those of the clustering types.
pub(crate) fn write_values(
    fixed_lengths: &[Option<usize>],
    serialized: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), SSTableError> {
    let mut group = Clusterings(serialized);
    let mut fixed_lengths = fixed_lengths.chunks(GROUP);
    while !group.0.is_empty() {
        let mut header = 0_u64;
        let mut ahead = group;
        for index in 0..GROUP {
            match ahead.next() {
                Some(Some([])) => header |= 1 << (2 * index),
                Some(None) => header |= 2 << (2 * index),
                Some(Some(_)) => {}
                None => break,
            }
        }
        vint::write_uvint(header, out);
        let Some(fixed_lengths) = fixed_lengths.next() else {
            return Err(SSTableError::Unwritable { what: "more clustering values than clustering columns".into() });
        };
        for fixed_length in fixed_lengths {
            match group.next() {
                Some(Some(value)) if !value.is_empty() => write_value(*fixed_length, value, out)?,
                Some(_) => {}
                None => break,
            }
        }
    }
    Ok(())
}

/// The number of components of a serialized clustering or prefix.
pub(crate) fn component_count(serialized: &[u8]) -> usize {
    Clusterings(serialized).count()
}

/// Appends `count` values, in the model's form, to `out`.
pub(crate) fn read_values(
    fixed_lengths: &[Option<usize>],
    count: usize,
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> Decoded<()> {
    let Some(fixed_lengths) = fixed_lengths.get(..count) else {
        return Err(input.damaged("at most as many clustering values as clustering columns", count.to_string()));
    };
    for group in fixed_lengths.chunks(GROUP) {
        let header = input.uvint("clustering header")?;
        for (index, fixed_length) in group.iter().enumerate() {
            match header >> (2 * index) & 3 {
                0 => push_component(Some(read_value(*fixed_length, input)?), out),
                1 => push_component(Some(&[]), out),
                _ => push_component(None, out),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use types::CqlType;

    use super::*;

    #[test]
    fn groups_of_values_round_trip() {
        let types: Vec<CqlType> = (0..70).map(|i| if i % 3 == 0 { CqlType::Int } else { CqlType::Text }).collect();
        let lengths: Vec<_> = types.iter().map(CqlType::fixed_length).collect();
        for count in [0, 1, 5, 31, 32, 33, 64, 70] {
            let mut serialized = Vec::new();
            for index in 0..count {
                match index % 5 {
                    0 => push_component(Some(&[1, 2, 3, index as u8][..4]), &mut serialized),
                    1 => push_component(Some(&[]), &mut serialized),
                    2 => push_component(None, &mut serialized),
                    _ => push_component(Some(if index % 3 == 0 { &[9; 4] } else { b"text value" }), &mut serialized),
                }
            }
            let mut stored = Vec::new();
            write_values(&lengths, &serialized, &mut stored).unwrap();
            let mut input = Input::new("t", 0, &stored);
            let mut back = Vec::new();
            read_values(&lengths, count, &mut input, &mut back).unwrap();
            assert_eq!(back, serialized, "{count} values");
            assert!(input.is_empty());
        }
    }
}
