//! NaNs have one term, whatever their form, because a comparison does not distinguish them.

use std::cmp::Ordering;

use index::TermRange;
use types::CqlType;
use types::collection::{list, map, tuple, vector, write_count};

/// Two forms of NaN and a number: floats and doubles.
const FLOATS: [[u8; 4]; 3] =
    [0x7fc0_0000_u32.to_be_bytes(), 0xffc0_0001_u32.to_be_bytes(), 0x3f80_0000_u32.to_be_bytes()];
const DOUBLES: [[u8; 8]; 3] = [
    0x7ff8_0000_0000_0000_u64.to_be_bytes(),
    0xfff8_0000_0000_0001_u64.to_be_bytes(),
    0x3ff0_0000_0000_0000_u64.to_be_bytes(),
];

/// Types with two values that only differ in the form of their NaNs, and a third one.
fn values() -> Vec<(CqlType, [Vec<u8>; 3])> {
    let (float, double) = (CqlType::Float, CqlType::Double);
    let floats = CqlType::list(float.clone()).freeze();
    let of_tuple = |value: [u8; 4]| {
        let inner = tuple([Some(&value[..])].into_iter());
        tuple([Some(&b"a"[..]), Some(&DOUBLES[1][..]), None, Some(&inner[..])].into_iter())
    };
    let of_map = |value: [u8; 8]| map([(&b"a"[..], &DOUBLES[2][..]), (&b"b"[..], &value[..])].into_iter());
    let of_vector = |value: [u8; 4]| {
        let element = list([&value[..]].into_iter());
        vector(&floats, [&element[..], &element[..]].into_iter())
    };
    vec![
        (float.clone(), FLOATS.map(|value| value.to_vec())),
        (double.clone(), DOUBLES.map(|value| value.to_vec())),
        (floats.clone(), FLOATS.map(|value| list([&FLOATS[2][..], &value[..]].into_iter()))),
        (CqlType::set(double.clone()).freeze(), DOUBLES.map(|value| list([&value[..]].into_iter()))),
        (CqlType::map(CqlType::Text, double.clone()).freeze(), DOUBLES.map(of_map)),
        (CqlType::tuple([CqlType::Text, double, CqlType::Int, CqlType::tuple([float.clone()])]), FLOATS.map(of_tuple)),
        (CqlType::vector(float.clone(), 2), FLOATS.map(|value| vector(&float, [&value[..], &value[..]].into_iter()))),
        (CqlType::vector(floats.clone(), 2), FLOATS.map(of_vector)),
    ]
}

#[test]
fn nans_of_different_forms_have_the_same_term() {
    for (ty, [one, other, third]) in values() {
        assert_eq!(ty.compare(&one, &other), Ordering::Equal, "{ty:?}");
        assert_eq!(TermRange::equal(&ty, &one), TermRange::equal(&ty, &other), "{ty:?}");
        let up_to = |last: &[u8]| TermRange::between(&ty, Some(&third[..]), Some(last));
        assert_eq!(up_to(&one), up_to(&other), "{ty:?}");
        assert_ne!(TermRange::equal(&ty, &one), TermRange::equal(&ty, &third), "{ty:?}");
    }
}

#[test]
fn values_that_are_cut_short_have_a_term_too() {
    for (ty, [_, value, _]) in values() {
        (0..value.len()).for_each(|length| drop(TermRange::equal(&ty, &value[..length])));
    }
    let mut long = Vec::new();
    write_count(usize::from(u16::MAX), &mut long);
    drop(TermRange::equal(&CqlType::list(CqlType::Double).freeze(), &long));
}
