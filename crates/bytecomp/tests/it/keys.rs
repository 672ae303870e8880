use bytecomp::{Side, decode_decorated_key, encode_decorated_key, encode_key_bound, encode_token_bound, encode_value};
use types::{CqlType, Token};

use crate::vectors::{byte_comparable, bytes, list, primitives, text};

fn token(value: &serde_json::Value) -> Token {
    Token(text(value, "token").parse().unwrap())
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn partition_keys_are_those_of_cassandra() {
    let vectors = byte_comparable();
    let mut bounds = 0;
    for vector in list(&vectors, "partition_keys") {
        let (key, token) = (bytes(&vector["ser"]).unwrap(), token(vector));
        assert_eq!(Token::of_key(&key), token);
        let encoded = written(|out| encode_decorated_key(token, &key, out));
        assert_eq!(Some(&encoded), bytes(&vector["cmp"]).as_ref());
        assert_eq!(decode_decorated_key(&encoded), Ok((token, key.clone())));
        let bound = |side| written(|out| encode_key_bound(token, &key, side, out));
        if let (Some(before), Some(after)) = (bytes(&vector["before"]), bytes(&vector["after"])) {
            assert_eq!((bound(Side::Before), bound(Side::After)), (before, after));
            bounds += 1;
        }
        assert!(bound(Side::Before) < encoded && encoded < bound(Side::After));
    }
    assert!(bounds > 100, "only {bounds}");
    let ranked: Vec<_> =
        list(&vectors, "partition_keys").iter().map(|v| (bytes(&v["cmp"]), v["rank"].as_u64())).collect();
    for (a, a_rank) in &ranked {
        for (b, b_rank) in &ranked {
            assert_eq!(a.cmp(b), a_rank.cmp(b_rank));
        }
    }
}

#[test]
fn primitive_partition_keys_hash_and_encode() {
    let vectors = primitives();
    for vector in list(&vectors, "partition_keys") {
        let key = bytes(&vector["key"]).unwrap();
        let (h1, h2) = types::murmur3::hash128(&key);
        assert_eq!((h1 as i64).to_string(), text(vector, "h1"));
        assert_eq!((h2 as i64).to_string(), text(vector, "h2"));
        assert_eq!((types::murmur3::murmur2_64(&key) as i64).to_string(), text(vector, "murmur2_64"));
        assert_eq!(types::murmur3::token(&key), token(vector));
        let encoded = written(|out| encode_decorated_key(token(vector), &key, out));
        assert_eq!(Some(encoded), bytes(&vector["byte_comparable"]));
    }
}

#[test]
fn token_bounds_are_those_of_cassandra() {
    let vectors = byte_comparable();
    for vector in list(&vectors, "token_bounds") {
        let bound = |side| written(|out| encode_token_bound(token(vector), side, out));
        assert_eq!(Some(bound(Side::Before)), bytes(&vector["min_key_bound"]));
        assert_eq!(Some(bound(Side::After)), bytes(&vector["max_key_bound"]));
    }
}

#[test]
fn partitioner_defined_order_is_the_decorated_key() {
    let vectors = byte_comparable();
    for vector in list(&vectors, "partitioner_defined_order") {
        let key = bytes(&vector["ser"]).unwrap();
        let Some(expected) = bytes(&vector["cmp"]) else {
            assert!(key.is_empty());
            continue;
        };
        assert_eq!(written(|out| encode_decorated_key(Token::of_key(&key), &key, out)), expected);
    }
}

/// Composite values of old tables are not a type of this crate; their encoding consists of the same parts.
#[test]
fn composite_values_are_made_of_tuples_and_bytes() {
    let vectors = byte_comparable();
    let types = [CqlType::Int, CqlType::Text];
    for vector in list(&vectors, "composite_type") {
        let value = bytes(&vector["ser"]).unwrap();
        let mut rest = value.as_slice();
        // The static marker is a component without bytes.
        let mut expected = vec![0x40];
        for cql_type in &types {
            let Some((length, after)) = rest.split_first_chunk::<2>() else { break };
            let (component, after) = after.split_at(u16::from_be_bytes(*length).into());
            expected.push(0x40);
            if !encode_value(cql_type, component, &mut expected) {
                *expected.last_mut().unwrap() = 0x3e;
            }
            expected.push(0x40);
            assert!(encode_value(&CqlType::Tinyint, &after[..1], &mut expected));
            rest = &after[1..];
        }
        expected.push(0x38);
        assert_eq!(Some(expected), bytes(&vector["cmp"]), "{vector}");
    }
}

#[test]
fn broken_keys_are_refused_where_they_break() {
    let good = written(|out| encode_decorated_key(Token(5), b"key", out));
    for cut in 0..good.len() {
        assert_eq!(decode_decorated_key(&good[..cut]).unwrap_err().offset, cut);
    }
    for at in [0, 9, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] = 0x41;
        assert_eq!(decode_decorated_key(&bad).unwrap_err().offset, at);
    }
    let longer = [good.as_slice(), &[0]].concat();
    assert_eq!(decode_decorated_key(&longer).unwrap_err().offset, good.len());
}

#[test]
fn keys_of_every_length_are_encoded_in_the_same_way() {
    for length in 0..40_u8 {
        for zero_at in (0..length).map(Some).chain([None]) {
            let key: Vec<u8> = (0..length).map(|at| if Some(at) == zero_at { 0 } else { at + 1 }).collect();
            for token in [i64::MIN + 1, -2, 0, 3, i64::MAX] {
                let mut expected = vec![0x40];
                expected.extend_from_slice(&(token as u64 ^ 1 << 63).to_be_bytes());
                expected.push(0x40);
                let escaped = |&byte: &u8| if byte == 0 { vec![0, 0xFF] } else { vec![byte] };
                expected.extend(key.iter().flat_map(escaped));
                match key.last() {
                    Some(0) => *expected.last_mut().unwrap() = 0xFE,
                    _ => expected.push(0),
                }
                expected.push(0x38);
                assert_eq!(written(|out| encode_decorated_key(Token(token), &key, out)), expected);
            }
        }
    }
}
