use bytecomp::separator::{self, EXCLUDED, GT_NEXT_COMPONENT, LT_NEXT_COMPONENT, TERMINATOR};
use bytecomp::{
    ClusteringColumnType, decode_clustering, encode_clustering, encode_serialized_clustering, encode_value,
};
use serde_json::Value;
use types::{CqlType, collection};

use crate::vectors::{byte_comparable, bytes, list, text};

fn column(name: &str) -> ClusteringColumnType {
    let (name, direction) = name.rsplit_once(' ').unwrap();
    let cql_type = match name {
        "frozen<tuple<int, text>>" => CqlType::tuple([CqlType::Int, CqlType::Text]),
        "frozen<list<text>>" => CqlType::list(CqlType::Text).freeze(),
        native => CqlType::native(native).unwrap(),
    };
    ClusteringColumnType { cql_type, reversed: direction == "DESC" }
}

fn terminator(kind: &str) -> u8 {
    match kind {
        "CLUSTERING" => TERMINATOR,
        "STATIC_CLUSTERING" => EXCLUDED,
        "INCL_START_BOUND" | "EXCL_END_BOUND" | "EXCL_END_INCL_START_BOUNDARY" => LT_NEXT_COMPONENT,
        "EXCL_START_BOUND" | "INCL_END_BOUND" | "INCL_END_EXCL_START_BOUNDARY" => GT_NEXT_COMPONENT,
        other => panic!("unknown kind {other}"),
    }
}

#[test]
fn every_position_encodes_and_decodes_as_in_cassandra() {
    let vectors = byte_comparable();
    for group in list(&vectors, "clusterings") {
        let columns: Vec<_> = list(group, "columns").iter().map(|name| column(name.as_str().unwrap())).collect();
        let mut ranked: Vec<(Vec<u8>, u64)> = Vec::new();
        for vector in list(group, "vectors") {
            let components: Vec<Option<Vec<u8>>> = list(vector, "ser").iter().map(bytes).collect();
            let expected = bytes(&vector["cmp"]).unwrap();
            let terminator = terminator(text(vector, "kind"));
            let mut encoded = Vec::new();
            encode_clustering(&columns, components.iter().map(|c| c.as_deref()), terminator, &mut encoded);
            assert_eq!(encoded, expected, "{vector}");

            let mut input = [expected.as_slice(), &[0x77]].concat();
            input.push(0x78);
            let mut input = input.as_slice();
            let mut decoded = Vec::new();
            assert_eq!(decode_clustering(&columns, &mut input, &mut decoded), Ok(terminator), "{vector}");
            assert_eq!(input, [0x77, 0x78]);
            // An empty field of a tuple is decoded as null, and nulls at the end are omitted.
            let tuples = columns.iter().any(|c| matches!(c.cql_type, CqlType::Tuple(_)));
            let mut again = Vec::new();
            encode_serialized_clustering(&columns, &decoded, terminator, &mut again);
            assert!(again == expected || tuples, "{vector}");
            check_components(&columns, &components, &decoded, vector);
            ranked.push((expected, vector["rank"].as_u64().unwrap()));
        }
        for (a, a_rank) in &ranked {
            for (b, b_rank) in &ranked {
                assert_eq!(a.cmp(b), a_rank.cmp(b_rank));
            }
        }
    }
}

/// Components are restored as they were, or as equal values where the type is not invertible.
fn check_components(columns: &[ClusteringColumnType], components: &[Option<Vec<u8>>], decoded: &[u8], vector: &Value) {
    let decoded: Vec<_> = collection::fields(decoded).map(|part| part.unwrap()).collect();
    assert_eq!(decoded.len(), components.len(), "{vector}");
    for ((column, component), decoded) in columns.iter().zip(components).zip(decoded) {
        match (component, decoded) {
            (Some(component), Some(decoded)) if !bytecomp::is_invertible(&column.cql_type) => {
                if matches!(column.cql_type, CqlType::Tuple(_)) {
                    assert!(column.cql_type.compare(component, decoded).is_ge(), "{vector}");
                    continue;
                }
                let mut pair = [Vec::new(), Vec::new()];
                assert_eq!(
                    encode_value(&column.cql_type, component, &mut pair[0]),
                    encode_value(&column.cql_type, decoded, &mut pair[1]),
                );
                assert_eq!(pair[0], pair[1], "{vector}");
            }
            (component, decoded) => assert_eq!(component.as_deref(), decoded, "{vector}"),
        }
    }
}

#[test]
fn separators_are_those_of_cassandra() {
    let vectors = byte_comparable();
    for vector in list(&vectors, "separators") {
        let (previous, current) = (bytes(&vector["prev"]).unwrap(), bytes(&vector["curr"]).unwrap());
        let mut after = Vec::new();
        separator::write_separator_after(&previous, &current, &mut after);
        assert_eq!(Some(after), bytes(&vector["gt"]), "{vector}");
    }
}

#[test]
fn broken_positions_are_refused_where_they_break() {
    let columns = [column("int ASC"), column("text DESC")];
    let refuse = |mut input: &[u8]| {
        let error = decode_clustering(&columns, &mut input, &mut Vec::new()).unwrap_err();
        (error.offset, error.got)
    };
    assert_eq!(refuse(&[]), (0, None));
    assert_eq!(refuse(&[0x40, 0x80, 0, 0]), (4, None));
    assert_eq!(refuse(&[0x40, 0x80, 0, 0, 1]), (5, None));
    assert_eq!(refuse(&[0x42, 0x80, 0, 0, 1, 0x38]), (0, Some(0x42)));
    assert_eq!(refuse(&[0x3e, 0x3e, 0x3e, 0x38]), (2, Some(0x3e)));
    assert_eq!(refuse(&[0x3e, 0x40, 0x9e, 0x38]), (4, None));
}
