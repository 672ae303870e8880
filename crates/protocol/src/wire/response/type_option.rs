//! Types as `[option]`: a number, and the parameters of that number.

use crate::Version;
use crate::wire::writer::{put_short, put_string};
use types::CqlType;

const CUSTOM: u16 = 0x0000;

/// Writes a type. A type without a number in this version is written as CUSTOM with its marshal class.
pub(crate) fn put_type(out: &mut Vec<u8>, ty: &CqlType, version: Version) {
    if let Some((number, since)) = native(ty) {
        if version >= since {
            return put_short(out, number);
        }
        return put_custom(out, ty);
    }
    match ty {
        CqlType::List { element, .. } => {
            put_short(out, 0x20);
            put_type(out, element, version);
        }
        CqlType::Map { key, value, .. } => {
            put_short(out, 0x21);
            put_type(out, key, version);
            put_type(out, value, version);
        }
        CqlType::Set { element, .. } => {
            put_short(out, 0x22);
            put_type(out, element, version);
        }
        CqlType::Udt { definition, .. } => {
            put_short(out, 0x30);
            put_string(out, &definition.keyspace);
            put_string(out, &definition.name);
            put_short(out, definition.fields().len() as u16);
            for (name, field) in definition.fields() {
                put_string(out, name);
                put_type(out, field, version);
            }
        }
        CqlType::Tuple(elements) => {
            put_short(out, 0x31);
            put_short(out, elements.len() as u16);
            for element in elements.iter() {
                put_type(out, element, version);
            }
        }
        _ => put_custom(out, ty),
    }
}

fn put_custom(out: &mut Vec<u8>, ty: &CqlType) {
    put_short(out, CUSTOM);
    put_string(out, &ty.to_marshal_class());
}

/// The number of a type without parameters, and the first version that knows it.
fn native(ty: &CqlType) -> Option<(u16, Version)> {
    use Version::{V3, V4, V5};
    Some(match ty {
        CqlType::Ascii => (0x01, V3),
        CqlType::Bigint => (0x02, V3),
        CqlType::Blob => (0x03, V3),
        CqlType::Boolean => (0x04, V3),
        CqlType::Counter => (0x05, V3),
        CqlType::Decimal => (0x06, V3),
        CqlType::Double => (0x07, V3),
        CqlType::Float => (0x08, V3),
        CqlType::Int => (0x09, V3),
        CqlType::Timestamp => (0x0B, V3),
        CqlType::Uuid => (0x0C, V3),
        CqlType::Text => (0x0D, V3),
        CqlType::Varint => (0x0E, V3),
        CqlType::Timeuuid => (0x0F, V3),
        CqlType::Inet => (0x10, V3),
        CqlType::Date => (0x11, V4),
        CqlType::Time => (0x12, V4),
        CqlType::Smallint => (0x13, V4),
        CqlType::Tinyint => (0x14, V4),
        CqlType::Duration => (0x15, V5),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(ty: &CqlType, version: Version) -> Vec<u8> {
        let mut out = Vec::new();
        put_type(&mut out, ty, version);
        out
    }

    #[test]
    fn types_younger_than_the_version_go_as_their_class() {
        assert_eq!(option(&CqlType::Duration, Version::V5), [0, 0x15]);
        let class = b"org.apache.cassandra.db.marshal.DurationType";
        let custom = [&[0, 0, 0, class.len() as u8][..], class].concat();
        assert_eq!(option(&CqlType::Duration, Version::V4), custom);
        assert_eq!(option(&CqlType::Date, Version::V4), [0, 0x11]);
        assert_ne!(option(&CqlType::Date, Version::V3), [0, 0x11]);
    }

    #[test]
    fn a_vector_is_sent_as_its_class() {
        let class = b"org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)";
        let custom = [&[0, 0, 0, class.len() as u8][..], class].concat();
        assert_eq!(option(&CqlType::vector(CqlType::Float, 3), Version::V5), custom);
    }

    #[test]
    fn collections_nest() {
        let ty = CqlType::map(CqlType::Text, CqlType::list(CqlType::Int).freeze());
        assert_eq!(option(&ty, Version::V5), [0, 0x21, 0, 0x0D, 0, 0x20, 0, 0x09]);
        let ty = CqlType::tuple([CqlType::Int, CqlType::Text]);
        assert_eq!(option(&ty, Version::V5), [0, 0x31, 0, 2, 0, 9, 0, 0x0D]);
    }
}
