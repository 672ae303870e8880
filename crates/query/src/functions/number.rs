//! Numbers of any numeric type, converted as Java converts them.

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use types::decimal::DIGITS_MAX;
use types::{CqlType, Decimal, collection};

use crate::QueryError;

/// The numeric types.
pub(super) const NUMERIC_TYPES: [CqlType; 9] = [
    CqlType::Tinyint,
    CqlType::Smallint,
    CqlType::Int,
    CqlType::Bigint,
    CqlType::Float,
    CqlType::Double,
    CqlType::Varint,
    CqlType::Decimal,
    CqlType::Counter,
];

/// The bytes of a number of [`DIGITS_MAX`] digits.
const MAGNITUDE_BYTES_MAX: usize = DIGITS_MAX * 3_322 / 8_000 + 1;

/// Refuses numbers of more than [`DIGITS_MAX`] digits, also inside other values, because the time to compute with them
/// or to print them grows by the square of their length.
pub(crate) fn refuse_long(ty: &CqlType, bytes: &[u8]) -> Result<(), QueryError> {
    if bytes.len() <= MAGNITUDE_BYTES_MAX {
        return Ok(());
    }
    let parts: Vec<(&CqlType, &[u8])> = match ty {
        CqlType::Varint => return Err(too_long(ty)),
        CqlType::Decimal if bytes.len() > MAGNITUDE_BYTES_MAX + size_of::<i32>() => return Err(too_long(ty)),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            collection::elements(bytes)?.filter_map(|part| Some((&**element, part.ok()??))).collect()
        }
        CqlType::Map { key, value, .. } => {
            let entries = collection::entries(bytes)?.entries().flatten();
            entries.flat_map(|(k, v)| [(&**key, k), (&**value, v)]).collect()
        }
        CqlType::Tuple(types) => {
            types.iter().zip(collection::fields(bytes)).filter_map(|(ty, part)| Some((ty, part.ok()??))).collect()
        }
        CqlType::Udt { definition, .. } => {
            let types = definition.fields().iter().map(|(_, ty)| ty);
            types.zip(collection::fields(bytes)).filter_map(|(ty, part)| Some((ty, part.ok()??))).collect()
        }
        CqlType::Vector { element, dimension } => {
            let elements = collection::vector_elements(element, *dimension, bytes);
            elements.filter_map(|part| Some((&**element, part.ok()?))).collect()
        }
        _ => return Ok(()),
    };
    parts.into_iter().try_for_each(|(ty, part)| refuse_long(ty, part))
}

fn too_long(ty: &CqlType) -> QueryError {
    QueryError::invalid(format!("A {ty} of more than {DIGITS_MAX} digits cannot be calculated with or converted"))
}

/// A number.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Tinyint(i8),
    Smallint(i16),
    Int(i32),
    Bigint(i64),
    Float(f32),
    Double(f64),
    Varint(BigInt),
    Decimal(Decimal),
}

impl Number {
    /// Reads a serialized number; `None` if the bytes are not a number.
    pub fn read(ty: &CqlType, bytes: &[u8]) -> Option<Number> {
        Some(match ty {
            CqlType::Tinyint => Number::Tinyint(i8::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Smallint => Number::Smallint(i16::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Int => Number::Int(i32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Bigint | CqlType::Counter => Number::Bigint(i64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Float => Number::Float(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => Number::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Varint => Number::Varint(BigInt::from_signed_bytes_be(bytes)),
            CqlType::Decimal => Number::Decimal(Decimal::from_bytes(bytes)?),
            _ => return None,
        })
    }

    /// The number of digits of a number of arbitrary length; 1 for numbers of fixed length.
    pub fn digits(&self) -> u64 {
        match self {
            Number::Varint(value) => Decimal::new(value.clone(), 0).precision(),
            Number::Decimal(value) => value.precision(),
            _ => 1,
        }
    }

    /// The serialized number.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Number::Tinyint(value) => value.to_be_bytes().to_vec(),
            Number::Smallint(value) => value.to_be_bytes().to_vec(),
            Number::Int(value) => value.to_be_bytes().to_vec(),
            Number::Bigint(value) => value.to_be_bytes().to_vec(),
            Number::Float(value) => value.to_be_bytes().to_vec(),
            Number::Double(value) => value.to_be_bytes().to_vec(),
            Number::Varint(value) => value.to_signed_bytes_be(),
            Number::Decimal(value) => value.to_bytes(),
        }
    }

    /// The number as a long: fractions are truncated, floats saturate, and large integers keep their low bits.
    pub fn to_i64(&self) -> i64 {
        match self {
            Number::Tinyint(value) => i64::from(*value),
            Number::Smallint(value) => i64::from(*value),
            Number::Int(value) => i64::from(*value),
            Number::Bigint(value) => *value,
            Number::Float(value) => *value as i64,
            Number::Double(value) => *value as i64,
            Number::Varint(value) => low_bits(value),
            Number::Decimal(value) => value.to_integer().map_or(0, |value| low_bits(&value)),
        }
    }

    /// The number as an int: floats saturate, and integers keep their low bits.
    pub fn to_i32(&self) -> i32 {
        match self {
            Number::Float(value) => *value as i32,
            Number::Double(value) => *value as i32,
            other => other.to_i64() as i32,
        }
    }

    pub fn to_f64(&self) -> f64 {
        match self {
            Number::Float(value) => f64::from(*value),
            Number::Double(value) => *value,
            Number::Varint(value) => value.to_f64().unwrap_or(f64::NAN),
            Number::Decimal(value) => value.to_f64(),
            other => other.to_i64() as f64,
        }
    }

    pub fn to_f32(&self) -> f32 {
        match self {
            Number::Float(value) => *value,
            Number::Double(value) => *value as f32,
            Number::Varint(value) => value.to_f32().unwrap_or(f32::NAN),
            Number::Decimal(value) => value.to_f32(),
            other => other.to_i64() as f32,
        }
    }

    pub fn to_bigint(&self) -> BigInt {
        match self {
            Number::Varint(value) => value.clone(),
            Number::Decimal(value) => value.to_integer().unwrap_or_default(),
            other => BigInt::from(other.to_i64()),
        }
    }

    /// The number as a decimal; `None` for NaN and infinities.
    pub fn to_decimal(&self) -> Option<Decimal> {
        match self {
            Number::Decimal(value) => Some(value.clone()),
            Number::Varint(value) => Some(Decimal::new(value.clone(), 0)),
            Number::Float(_) | Number::Double(_) => decimal_of_double(self.to_f64()),
            other => Some(Decimal::new(other.to_i64(), 0)),
        }
    }

    /// The number as an operand of decimal arithmetic. Cassandra converts integers to doubles there, so that 2 becomes
    /// 2.0.
    pub fn to_decimal_operand(&self) -> Result<Decimal, String> {
        match self {
            Number::Decimal(value) => Ok(value.clone()),
            Number::Varint(value) => Ok(Decimal::new(value.clone(), 0)),
            other => {
                let value = other.to_f64();
                let what = if value.is_nan() { "A NaN" } else { "An infinite number" };
                decimal_of_double(value).ok_or_else(|| format!("{what} cannot be converted into a decimal"))
            }
        }
    }

    /// The number after a CAST.
    pub fn cast(&self, ty: &CqlType) -> Option<Number> {
        Some(match ty {
            CqlType::Tinyint => Number::Tinyint(self.to_i32() as i8),
            CqlType::Smallint => Number::Smallint(self.to_i32() as i16),
            CqlType::Int => Number::Int(self.to_i32()),
            CqlType::Bigint | CqlType::Counter => Number::Bigint(self.to_i64()),
            CqlType::Float => Number::Float(self.to_f32()),
            CqlType::Double => Number::Double(self.to_f64()),
            CqlType::Varint => Number::Varint(BigInt::from(self.to_i64())),
            CqlType::Decimal => Number::Decimal(self.to_decimal()?),
            _ => return None,
        })
    }
}

/// As in Java, a decimal is made of the text of a double.
fn decimal_of_double(value: f64) -> Option<Decimal> {
    let text = CqlType::Double.to_cql_literal(&value.to_be_bytes());
    CqlType::Decimal.from_text(&text).ok().and_then(|bytes| Decimal::from_bytes(&bytes))
}

fn low_bits(value: &BigInt) -> i64 {
    let bytes = value.to_signed_bytes_be();
    let fill = if bytes.first().is_some_and(|first| first & 0x80 != 0) { 0xff } else { 0 };
    let mut low = [fill; 8];
    let kept = bytes.len().min(8);
    low[8 - kept..].copy_from_slice(&bytes[bytes.len() - kept..]);
    i64::from_be_bytes(low)
}

/// The rank of a type, which decides the type of an arithmetic result.
fn size(ty: &CqlType) -> usize {
    match ty {
        CqlType::Tinyint => 1,
        CqlType::Smallint => 2,
        CqlType::Int | CqlType::Float => 4,
        CqlType::Bigint | CqlType::Double | CqlType::Counter => 8,
        _ => usize::MAX,
    }
}

/// The type of the result of arithmetic on two numeric types.
pub(super) fn result_type(left: &CqlType, right: &CqlType) -> CqlType {
    let is_floating = |ty: &CqlType| matches!(ty, CqlType::Float | CqlType::Double | CqlType::Decimal);
    match (is_floating(left) || is_floating(right), size(left).max(size(right))) {
        (true, 0..=4) => CqlType::Float,
        (true, 8) => CqlType::Double,
        (true, _) => CqlType::Decimal,
        (false, 1) => CqlType::Tinyint,
        (false, 2) => CqlType::Smallint,
        (false, 4) => CqlType::Int,
        (false, 8) => CqlType::Bigint,
        (false, _) => CqlType::Varint,
    }
}
