//! Tuples as text: fields between colons, `@` for null. A backslash escapes both.

use crate::{CqlType, MarshalError, collection};

/// A tuple `ty` with these fields; fields may be missing at the end.
pub(super) fn parse<'t>(
    ty: &CqlType,
    fields: impl ExactSizeIterator<Item = &'t CqlType>,
    text: &str,
) -> Result<Vec<u8>, MarshalError> {
    let texts = split(text);
    if texts.len() > fields.len() {
        let (expected, got) = (fields.len(), texts.len());
        return Err(MarshalError::new(format!(
            "Invalid tuple literal: too many elements. Type {ty} expects {expected} but got {got}"
        )));
    }
    let values = texts.iter().zip(fields).map(|(text, field)| match *text {
        "@" => Ok(None),
        text => field.from_text(&text.replace(r"\:", ":").replace(r"\@", "@")).map(Some),
    });
    let values: Vec<Option<Vec<u8>>> = values.collect::<Result<_, _>>()?;
    Ok(collection::tuple(values.iter().map(Option::as_deref)))
}

/// The parts between colons that are not escaped by a backslash.
fn split(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(':') {
        if at.checked_sub(1).and_then(|before| bytes.get(before)) != Some(&b'\\') {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}
