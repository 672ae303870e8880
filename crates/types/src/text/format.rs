//! Values as text: what [`CqlType::from_text`] reads back.

use crate::literal::plain_text;
use crate::{CqlType, collection, hex, utf8};

impl CqlType {
    /// The value as the text that [`from_text`](Self::from_text) reads back. Values of which a part is invalid, and
    /// texts in tuples with a backslash before a colon, may be read back as other values.
    pub fn to_text(&self, value: &[u8]) -> String {
        match self {
            CqlType::Text | CqlType::Ascii => utf8::to_str(value).into_owned(),
            CqlType::Tuple(fields) => fields_to_text(fields.iter(), value),
            CqlType::Udt { definition, .. } => fields_to_text(definition.fields().iter().map(|(_, ty)| ty), value),
            CqlType::Blob
            | CqlType::Custom(_)
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Vector { .. } => hex::to_string(value),
            _ => plain_text(self, value).unwrap_or_default(),
        }
    }
}

/// Only the fields that the value has: one serialized before the type grew has fewer.
fn fields_to_text<'t>(fields: impl Iterator<Item = &'t CqlType>, value: &[u8]) -> String {
    let text = |(ty, field): (&CqlType, Option<&[u8]>)| match field {
        Some(field) => ty.to_text(field).replace(':', r"\:").replace('@', r"\@"),
        None => "@".to_owned(),
    };
    let values = collection::fields(value).map(|field| field.ok().flatten());
    fields.zip(values).map(text).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn returns(ty: &CqlType, value: &[u8], text: &str) {
        assert_eq!(ty.to_text(value), text);
        assert_eq!(ty.from_text(text).unwrap(), value, "{text}");
    }

    #[test]
    fn values_are_read_back_from_their_texts() {
        returns(&CqlType::Int, &7i32.to_be_bytes(), "7");
        returns(&CqlType::Boolean, &[1], "true");
        returns(&CqlType::Blob, &[0xca, 0xfe], "cafe");
        returns(&CqlType::Text, "it's: @".as_bytes(), "it's: @");
        returns(&CqlType::Text, b"", "");
        returns(&CqlType::Timestamp, &0i64.to_be_bytes(), "1970-01-01T00:00:00.000Z");
        returns(&CqlType::Double, &f64::NEG_INFINITY.to_be_bytes(), "-Infinity");
        let list = CqlType::List { element: Arc::new(CqlType::Int), frozen: false };
        returns(&list, &collection::list([&7i32.to_be_bytes()[..]].into_iter()), "000000010000000400000007");
    }

    #[test]
    fn fields_stand_between_colons() {
        let inner = CqlType::tuple([CqlType::Text, CqlType::Int]);
        let outer = CqlType::tuple([CqlType::Int, inner.clone(), CqlType::Text]);
        let nested = collection::tuple([Some(&b"a:b"[..]), None].into_iter());
        let value = collection::tuple([Some(&1i32.to_be_bytes()[..]), Some(&nested), Some(b"it:s@")].into_iter());
        returns(&outer, &value, r"1:a\\:b\:\@:it\:s\@");
        let short = collection::tuple([Some(&1i32.to_be_bytes()[..])].into_iter());
        returns(&outer, &short, "1");
    }
}
