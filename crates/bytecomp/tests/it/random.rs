//! Seeded random values: bytes order them as their types do, and garbage is refused. `SEED=n` repeats a run.

use bytecomp::{
    ClusteringColumnType, decode_clustering, decode_decorated_key, decode_value, decode_value_reversed, encode_value,
    encode_value_reversed, is_invertible,
};
use testkit::{Random, seed};
use types::{CqlType, collection};

struct Values(Random);

impl Values {
    fn new() -> Values {
        Values(Random(seed(20_260_808)))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    /// Bytes in which those with a meaning in the encoding are frequent.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        const SPECIAL: [u8; 14] = [0, 0, 0, 1, 0x38, 0x3e, 0x3f, 0x40, 0x41, 0x7f, 0x80, 0xfe, 0xff, 0xff];
        (0..length).map(|_| if self.below(3) == 0 { self.0.number() as u8 } else { SPECIAL[self.below(14)] }).collect()
    }

    fn value(&mut self, cql_type: &CqlType) -> Vec<u8> {
        if self.below(40) == 0 && cql_type.validate(&[]).is_ok() {
            return Vec::new();
        }
        let length = self.below(12);
        match cql_type {
            CqlType::Boolean | CqlType::Tinyint => self.bytes(1),
            CqlType::Smallint => self.bytes(2),
            CqlType::Int | CqlType::Date | CqlType::Float => self.bytes(4),
            CqlType::Bigint => {
                let shift = self.below(64);
                ((self.0.number() as i64) >> shift).to_be_bytes().to_vec()
            }
            CqlType::Timestamp | CqlType::Time | CqlType::Double => self.bytes(8),
            CqlType::Uuid => self.bytes(16),
            CqlType::Timeuuid => {
                let mut uuid = self.bytes(16);
                uuid[6] = 0x10 | uuid[6] & 0x0f;
                uuid
            }
            CqlType::Inet => {
                let length = [4, 16][self.below(2)];
                self.bytes(length)
            }
            CqlType::Text => self.bytes(length).into_iter().map(|byte| byte & 0x7f).collect(),
            CqlType::Varint => self.bytes(length + 1),
            CqlType::Decimal => {
                let scale = self.below(9) as i32 - 4;
                [scale.to_be_bytes().to_vec(), self.bytes(length + 1)].concat()
            }
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                let elements: Vec<_> = (0..self.below(4)).map(|_| self.value(element)).collect();
                collection::list(elements.iter().map(Vec::as_slice))
            }
            CqlType::Map { key, value, .. } => {
                let entries: Vec<_> = (0..self.below(4)).map(|_| (self.value(key), self.value(value))).collect();
                collection::map(entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice())))
            }
            CqlType::Tuple(elements) => {
                let present = self.below(elements.len() + 1);
                let fields: Vec<_> =
                    elements[..present].iter().map(|t| (self.below(5) > 0).then(|| self.value(t))).collect();
                collection::tuple(fields.iter().map(|field| field.as_deref()))
            }
            CqlType::Vector { element, dimension } => {
                let elements: Vec<_> = (0..*dimension)
                    .map(|_| {
                        loop {
                            let element_value = self.value(element);
                            if !element_value.is_empty() {
                                break element_value;
                            }
                        }
                    })
                    .collect();
                collection::vector(element, elements.iter().map(Vec::as_slice))
            }
            _ => self.bytes(length),
        }
    }
}

fn all_types() -> Vec<CqlType> {
    use CqlType::*;
    let tuple = CqlType::tuple([Int, Text, Varint]);
    vec![
        Blob,
        Inet,
        Boolean,
        Tinyint,
        Smallint,
        Int,
        Bigint,
        Timestamp,
        Date,
        Time,
        Float,
        Double,
        Uuid,
        Timeuuid,
        Varint,
        Decimal,
        CqlType::list(Blob).freeze(),
        CqlType::set(Decimal).freeze(),
        CqlType::map(Blob, CqlType::list(Bigint)).freeze(),
        CqlType::vector(Int, 3),
        CqlType::vector(Varint, 2),
        CqlType::list(tuple.clone()).freeze(),
        tuple,
    ]
}

/// A component as in a clustering, so that values without an encoding are included.
fn component(cql_type: &CqlType, value: &[u8], reversed: bool) -> Vec<u8> {
    let mut out = vec![0x40];
    let has_encoding = if reversed {
        encode_value_reversed(cql_type, value, &mut out)
    } else {
        encode_value(cql_type, value, &mut out)
    };
    if !has_encoding {
        out[0] = if reversed { 0x41 } else { 0x3f };
    }
    out.push(0x38);
    out
}

/// Cases where bytes and type disagree by design: NaNs are one value to the type, and null and empty parts to the
/// bytes.
fn may_disagree(cql_type: &CqlType, value: &[u8]) -> bool {
    let has_nan = match cql_type {
        CqlType::Float => <[u8; 4]>::try_from(value).is_ok_and(|bytes| f32::from_be_bytes(bytes).is_nan()),
        CqlType::Double => <[u8; 8]>::try_from(value).is_ok_and(|bytes| f64::from_be_bytes(bytes).is_nan()),
        _ => false,
    };
    has_nan || has_empty_field(cql_type, value)
}

/// Whether a tuple in this value may have an empty field, which is decoded as null.
fn has_empty_field(cql_type: &CqlType, value: &[u8]) -> bool {
    cql_type.any(&|part| matches!(part, CqlType::Tuple(_))) && value.windows(4).any(|bytes| bytes == [0; 4])
}

#[test]
fn bytes_order_random_values_as_types_do() {
    let mut random = Values::new();
    for cql_type in all_types() {
        let mut values: Vec<_> = (0..120).map(|_| random.value(&cql_type)).collect();
        values.retain(|value| !may_disagree(&cql_type, value));
        for value in &values {
            assert_eq!(cql_type.validate(value), Ok(()), "{cql_type}: {value:x?}");
        }
        for a in &values {
            for b in &values {
                let order = cql_type.compare(a, b);
                let context = || format!("{cql_type}: {a:02x?} {b:02x?}");
                assert_eq!(component(&cql_type, a, false).cmp(&component(&cql_type, b, false)), order, "{}", context());
                assert_eq!(component(&cql_type, b, true).cmp(&component(&cql_type, a, true)), order, "{}", context());
            }
        }
    }
}

#[test]
fn random_values_round_trip() {
    let mut random = Values::new();
    for cql_type in all_types() {
        for _ in 0..500 {
            let value = random.value(&cql_type);
            let mut encoded = Vec::new();
            if !encode_value(&cql_type, &value, &mut encoded) {
                continue;
            }
            let mut decoded = Vec::new();
            let mut rest = encoded.as_slice();
            decode_value(&cql_type, &mut rest, &mut decoded).unwrap();
            assert!(rest.is_empty());
            let may_have_empty_part = value.windows(4).any(|bytes| bytes == [0; 4]);
            assert!(cql_type.validate(&decoded).is_ok() || may_have_empty_part, "{cql_type}: {value:02x?}");
            assert!(!is_invertible(&cql_type) || decoded == value, "{cql_type}: {value:02x?}");
            let mut again = Vec::new();
            assert!(encode_value(&cql_type, &decoded, &mut again));
            assert!(again == encoded || has_empty_field(&cql_type, &value), "{cql_type}: {value:02x?}");
        }
    }
}

#[test]
fn garbage_never_panics() {
    let mut random = Values::new();
    for cql_type in all_types() {
        let columns = [
            ClusteringColumnType { cql_type: cql_type.clone(), reversed: false },
            ClusteringColumnType { cql_type: cql_type.clone(), reversed: true },
        ];
        for _ in 0..2000 {
            let length = random.below(40);
            let mut garbage = random.bytes(length);
            if random.below(2) == 0 {
                // Damages a good encoding in one place instead.
                let value = random.value(&cql_type);
                garbage.clear();
                encode_value(&cql_type, &value, &mut garbage);
                if !garbage.is_empty() {
                    let at = random.below(garbage.len());
                    garbage[at] ^= 1 << random.below(8);
                }
            }
            let mut out = Vec::new();
            let mut rest = garbage.as_slice();
            if decode_value(&cql_type, &mut rest, &mut out).is_ok() {
                assert!(garbage.ends_with(rest));
                // Whatever was accepted can be encoded again.
                encode_value(&cql_type, &out, &mut Vec::new());
                let _ = cql_type.compare(&out, &garbage);
            }
            let _ = decode_value_reversed(&cql_type, &mut garbage.as_slice(), &mut Vec::new());
            let _ = decode_clustering(&columns, &mut garbage.as_slice(), &mut Vec::new());
            let _ = decode_decorated_key(&garbage);
            // The encoder and the comparator accept bytes that are no value of the type.
            encode_value(&cql_type, &garbage, &mut Vec::new());
            let _ = cql_type.validate(&garbage);
            let _ = cql_type.compare(&garbage, &out);
        }
    }
}
