//! Byte-comparable keys, decoded to values.

use std::sync::Arc;

use bytecomp::{
    ClusteringColumnType, decode_clustering, decode_decorated_key, decode_value, decode_value_reversed,
    encode_decorated_key, encode_value, encode_value_reversed,
};
use types::{CqlType, Token};

/// One type for each kind of encoding.
pub(crate) fn types() -> Vec<CqlType> {
    use CqlType::*;
    let element = Arc::new(Text);
    vec![
        Ascii,
        Bigint,
        Blob,
        Boolean,
        Date,
        Decimal,
        Double,
        Inet,
        Int,
        Smallint,
        Text,
        Time,
        Timeuuid,
        Tinyint,
        Uuid,
        Varint,
        List { element: element.clone(), frozen: true },
        Map { key: Arc::new(Decimal), value: element.clone(), frozen: true },
        Tuple([Int, Text, Varint].into()),
        Vector { element: Arc::new(Float), dimension: 3 },
        Vector { element, dimension: 2 },
    ]
}

/// The first byte chooses the type and the direction.
pub fn byte_comparable(bytes: &[u8]) {
    let Some((choice, encoded)) = bytes.split_first() else { return };
    let types = types();
    let ty = &types[usize::from(choice >> 1) % types.len()];
    let reversed = choice & 1 == 1;
    let mut out = Vec::new();
    let _ = match reversed {
        true => decode_value_reversed(ty, &mut &*encoded, &mut out),
        false => decode_value(ty, &mut &*encoded, &mut out),
    };
    out.clear();
    let other = ClusteringColumnType { cql_type: CqlType::Text, reversed: !reversed };
    let columns = [ClusteringColumnType { cql_type: ty.clone(), reversed }, other];
    let _ = decode_clustering(&columns, &mut &*encoded, &mut out);
    let _ = decode_decorated_key(encoded);
}

/// Seeds: a value of each type in both directions, and a partition key.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (index, ty) in types().iter().enumerate() {
        for reversed in [false, true] {
            let mut seed = vec![(index as u8) << 1 | u8::from(reversed)];
            let encode = if reversed { encode_value_reversed } else { encode_value };
            encode(ty, &sample(ty), &mut seed);
            seeds.push((format!("{index:02}{}", if reversed { "-reversed" } else { "" }), seed));
        }
    }
    let mut key = vec![0];
    encode_decorated_key(Token(-5), b"key\0with\0zeros", &mut key);
    seeds.push(("key".into(), key));
    seeds
}

fn sample(ty: &CqlType) -> Vec<u8> {
    let part = |value: &[u8]| [&(value.len() as i32).to_be_bytes()[..], value].concat();
    match ty {
        CqlType::Decimal => [&2i32.to_be_bytes()[..], &[1, 0xE2]].concat(),
        CqlType::Varint => vec![0xFF; 9],
        CqlType::Timeuuid => uuid::Uuid::from_u128(0x1b4e28ba_2fa1_11d2_883f_0016d3cca427).as_bytes().to_vec(),
        CqlType::List { .. } => [&2i32.to_be_bytes()[..], &part(b"a"), &part(b"")].concat(),
        CqlType::Map { .. } => [&1i32.to_be_bytes()[..], &part(&[0, 0, 0, 1, 7]), &part(b"v")].concat(),
        CqlType::Tuple(_) => [part(&[0, 0, 0, 1]), part(b"t\0"), (-1i32).to_be_bytes().to_vec()].concat(),
        CqlType::Vector { element, .. } if **element == CqlType::Float => vec![0x3F; 12],
        CqlType::Vector { .. } => vec![1, b'a', 2, b'b', b'c'],
        CqlType::Ascii | CqlType::Blob | CqlType::Text => b"te\0xt".to_vec(),
        other => vec![0x11; other.fixed_length().unwrap_or(4)],
    }
}
