//! The order of values. `bytecomp` checks that of valid values against Cassandra's with the byte-comparable encoding;
//! this covers what has no encoding.

use std::cmp::Ordering::{Equal, Greater, Less};

use types::{CqlType, collection};

#[test]
fn nans_are_equal_and_greatest() {
    let bytes = |value: f64| value.to_be_bytes();
    let compare = |a: f64, b: f64| CqlType::Double.compare(&bytes(a), &bytes(b));
    assert_eq!(compare(f64::NAN, f64::INFINITY), Greater);
    assert_eq!(compare(f64::NAN, -f64::NAN), Equal);
    assert_eq!(compare(-0.0, 0.0), Less);
    assert_eq!(CqlType::Float.compare(&f32::NAN.to_be_bytes(), &f32::INFINITY.to_be_bytes()), Greater);
}

#[test]
fn uuids_go_by_version_and_timeuuids_by_time() {
    let uuid = |text: &str| CqlType::Uuid.from_text(text).expect("a uuid");
    let early = uuid("ffffffff-0000-1000-8000-000000000000");
    let late = uuid("00000000-0001-1000-8000-000000000000");
    let random = uuid("00000000-0000-4000-8000-000000000000");
    for cql_type in [CqlType::Uuid, CqlType::Timeuuid] {
        assert_eq!(cql_type.compare(&early, &late), Less);
    }
    assert_eq!(CqlType::Uuid.compare(&late, &random), Less);
    // The low half: unsigned in one type, signed bytes in the other.
    let (low, high) = (uuid("00000000-0000-1000-0100-000000000000"), uuid("00000000-0000-1000-8000-000000000000"));
    assert_eq!(CqlType::Uuid.compare(&low, &high), Less);
    assert_eq!(CqlType::Timeuuid.compare(&low, &high), Greater);
}

#[test]
fn nulls_come_before_values_and_missing_fields_are_nulls() {
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Text]);
    let of = |fields: &[Option<&[u8]>]| collection::tuple(fields.iter().copied());
    let one = 1i32.to_be_bytes();
    let short = of(&[Some(&one)]);
    let padded = of(&[Some(&one), None]);
    let full = of(&[Some(&one), Some(b"")]);
    assert_eq!(tuple.compare(&short, &padded), Equal);
    assert_eq!(tuple.compare(&padded, &full), Less);
    assert_eq!(tuple.compare(&of(&[None]), &short), Less);
    assert_eq!(tuple.compare(b"", &of(&[None])), Less);
}

/// Sorting with an inconsistent order may panic; values from damaged files must not cause that.
#[test]
fn order_of_garbage_is_an_order() {
    let mut state = 5u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let types = [
        CqlType::Int,
        CqlType::Bigint,
        CqlType::Boolean,
        CqlType::Float,
        CqlType::Double,
        CqlType::Decimal,
        CqlType::Varint,
        CqlType::Uuid,
        CqlType::Timeuuid,
        CqlType::tuple([CqlType::Int, CqlType::Float]),
        CqlType::list(CqlType::Float).freeze(),
        CqlType::map(CqlType::Int, CqlType::Double).freeze(),
        CqlType::vector(CqlType::Float, 2),
    ];
    for cql_type in types {
        let values: Vec<Vec<u8>> = (0..60)
            .map(|_| {
                let length = [0, 1, 3, 4, 4, 4, 8, 8, 8, 9, 12, 16, 16][next() % 13];
                (0..length).map(|_| [0, 0, 1, 4, 0x7f, 0x80, 0xff, 0xc0][next() % 8]).collect()
            })
            .collect();
        for a in &values {
            for b in &values {
                let order = cql_type.compare(a, b);
                assert_eq!(order, cql_type.compare(b, a).reverse(), "{cql_type}: {a:x?} {b:x?}");
                for c in &values {
                    if order.is_le() && cql_type.compare(b, c).is_le() {
                        assert!(cql_type.compare(a, c).is_le(), "{cql_type}: {a:x?} {b:x?} {c:x?}");
                    }
                }
            }
        }
    }
}
