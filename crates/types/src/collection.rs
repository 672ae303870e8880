//! The serialized forms of collections, tuples and vectors: iterating over them and building them.
//!
//! A list, set or map is an i32 count and then its elements (a map's keys and values alternate); a tuple or user type
//! is its fields without a count. Each part is an i32 length and that many bytes; a negative length is a null. A vector
//! is its elements, bare if their type has a fixed length, otherwise each after its length as `uvint`.

use crate::{CqlType, MarshalError, steps, vint};

/// Takes one `[i32 length][bytes]` part from the front of `input`: `None` if it is cut short, `Some(None)` for a null.
pub fn read_part<'a>(input: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, rest) = input.split_first_chunk::<4>()?;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
        *input = rest;
        return Some(None);
    };
    let (part, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some(Some(part))
}

/// Appends one `[i32 length][bytes]` part; a null as length -1.
///
/// # Panics
/// If the part is longer than 2 GiB, which no request can carry.
pub fn write_part(part: Option<&[u8]>, out: &mut Vec<u8>) {
    match part {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(bytes) => {
            let length = i32::try_from(bytes.len()).expect("a part below 2 GiB");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends the i32 count that heads a list, set or map (of pairs).
pub fn write_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&i32::try_from(count).expect("fewer than 2^31 elements").to_be_bytes());
}

/// A list or set of these elements; the caller sorts those of a set.
pub fn list<'a>(elements: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    write_count(elements.len(), &mut out);
    elements.for_each(|element| write_part(Some(element), &mut out));
    out
}

/// A map of these entries, which the caller sorts by key.
pub fn map<'a>(entries: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    write_count(entries.len(), &mut out);
    for (key, value) in entries {
        write_part(Some(key), &mut out);
        write_part(Some(value), &mut out);
    }
    out
}

/// A tuple or user type of these fields.
pub fn tuple<'a>(fields: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut out = Vec::new();
    fields.for_each(|field| write_part(field, &mut out));
    out
}

/// A vector of these elements.
pub fn vector<'a>(element: &CqlType, elements: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    let bare = element.fixed_length().is_some();
    for bytes in elements {
        if !bare {
            vint::write_uvint(bytes.len() as u64, &mut out);
        }
        out.extend_from_slice(bytes);
    }
    out
}

/// The number of elements (of a map: pairs) of a serialized collection; a negative count is an empty collection.
pub fn count(value: &[u8]) -> Option<usize> {
    let (count, _) = value.split_first_chunk::<4>()?;
    Some(usize::try_from(i32::from_be_bytes(*count)).unwrap_or(0))
}

/// The elements of a serialized list or set, in stored order. A null element is `None`.
pub fn elements(value: &[u8]) -> Result<Parts<'_>, MarshalError> {
    parts(value, 1, "Not enough bytes to read a list or set")
}

/// The keys and values, in turn, of a serialized map; [`Parts::entries`] pairs them.
pub fn entries(value: &[u8]) -> Result<Parts<'_>, MarshalError> {
    parts(value, 2, "Not enough bytes to read a map")
}

fn parts<'a>(value: &'a [u8], parts_per_element: usize, cut_short: &'static str) -> Result<Parts<'a>, MarshalError> {
    let Some((count, rest)) = value.split_first_chunk::<4>() else {
        return Err(MarshalError::new(cut_short));
    };
    let count = usize::try_from(i32::from_be_bytes(*count)).unwrap_or(0);
    Ok(Parts { rest, left: Some(count.saturating_mul(parts_per_element)), cut_short })
}

/// The fields present in a serialized tuple or user type; a null field is `None`.
pub fn fields(value: &[u8]) -> Parts<'_> {
    Parts { rest: value, left: None, cut_short: "Not enough bytes to read a tuple" }
}

/// A key and its value.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// The parts of a serialized collection or tuple, in order; the iteration ends after an error.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
    /// How many parts are left; `None` means until the bytes end.
    left: Option<usize>,
    cut_short: &'static str,
}

impl<'a> Parts<'a> {
    /// The bytes after the parts taken so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many parts are left according to the count; `None` for tuples, which have no count.
    pub fn left(&self) -> Option<usize> {
        self.left
    }

    /// The next key and value of a map; nulls, which no stored map has, are errors.
    pub fn next_entry(&mut self) -> Option<Result<Entry<'a>, MarshalError>> {
        let key = match self.next_non_null()? {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        let value = self.next_non_null().unwrap_or_else(|| Err(MarshalError::new(self.cut_short)));
        Some(value.map(|value| (key, value)))
    }

    /// The keys and values of a map, paired.
    pub fn entries(mut self) -> impl Iterator<Item = Result<Entry<'a>, MarshalError>> {
        std::iter::from_fn(move || self.next_entry())
    }

    /// The next part; a null is an error.
    pub fn next_non_null(&mut self) -> Option<Result<&'a [u8], MarshalError>> {
        Some(self.next()?.and_then(|part| part.ok_or_else(|| MarshalError::new(NULL_NOT_ALLOWED))))
    }
}

/// Cassandra's text for a null that is not allowed.
pub(crate) const NULL_NOT_ALLOWED: &str = "Null value read when not allowed";

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Option<&'a [u8]>, MarshalError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.left {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None if self.rest.is_empty() => return None,
            None => {}
        }
        steps::count(1);
        let part = read_part(&mut self.rest);
        if part.is_none() {
            (self.left, self.rest) = (Some(0), &[]);
        }
        Some(part.ok_or_else(|| MarshalError::new(self.cut_short)))
    }
}

/// The elements of a serialized vector: exactly `dimension` of them, unless an error ends the iteration earlier.
pub fn vector_elements<'a>(element: &CqlType, dimension: u32, value: &'a [u8]) -> VectorElements<'a> {
    VectorElements { rest: value, left: dimension, length: element.fixed_length() }
}

/// See [`vector_elements`].
#[derive(Clone, Debug)]
pub struct VectorElements<'a> {
    rest: &'a [u8],
    left: u32,
    length: Option<usize>,
}

impl<'a> VectorElements<'a> {
    /// The bytes after the elements taken so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&mut self) -> Option<&'a [u8]> {
        let length = match self.length {
            Some(length) => length,
            None => usize::try_from(vint::read_uvint(&mut self.rest)?).ok()?,
        };
        let (element, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(element)
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], MarshalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let element = self.read();
        if element.is_none() {
            (self.left, self.rest) = (0, &[]);
        }
        Some(element.ok_or_else(|| MarshalError::new("Not enough bytes to read a vector")))
    }
}
