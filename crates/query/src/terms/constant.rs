//! Constants: the types that they may have, and their serialization.

use cql::ast::{Constant, ConstantKind};
use num_bigint::BigInt;
use types::decimal::DIGITS_MAX;
use types::{CqlType, Decimal};

use super::Assignment;
use crate::{ColumnSpec, QueryError};

/// The type of a constant if nothing else determines it.
pub(crate) fn preferred_type(constant: &Constant) -> CqlType {
    match constant.kind {
        ConstantKind::String if constant.text.is_ascii() => CqlType::Ascii,
        ConstantKind::String => CqlType::Text,
        ConstantKind::Integer => match constant.text.parse::<i64>() {
            Ok(value) if i32::try_from(value).is_ok() => CqlType::Int,
            Ok(_) => CqlType::Bigint,
            Err(_) => CqlType::Varint,
        },
        ConstantKind::Uuid => {
            let version = constant.text.as_bytes().get(14).copied();
            if version == Some(b'1') { CqlType::Timeuuid } else { CqlType::Uuid }
        }
        ConstantKind::Float => float_type(&constant.text),
        ConstantKind::Boolean => CqlType::Boolean,
        ConstantKind::Hex => CqlType::Blob,
        ConstantKind::Duration => CqlType::Duration,
    }
}

/// Double if the number's shortest text is that of a double, and decimal otherwise.
fn float_type(text: &str) -> CqlType {
    let Ok(value) = text.parse::<f64>() else { return CqlType::Double };
    if !value.is_finite() {
        let digits = text.bytes().any(|byte| byte.is_ascii_digit());
        return if digits { CqlType::Decimal } else { CqlType::Double };
    }
    let exact = CqlType::Decimal.from_text(text).ok().and_then(|bytes| Decimal::from_bytes(&bytes));
    let shortest = CqlType::Decimal.from_text(&format!("{value:?}")).ok().and_then(|bytes| Decimal::from_bytes(&bytes));
    if exact.is_some() && exact == shortest { CqlType::Double } else { CqlType::Decimal }
}

/// How well a constant fits a type.
pub(super) fn assignment(constant: &Constant, ty: &CqlType) -> Assignment {
    use CqlType::*;
    if matches!(ty, List { .. } | Set { .. } | Map { .. } | Udt { .. } | Vector { .. } | Empty) {
        return Assignment::No;
    }
    if matches!(ty, Tuple(_) | Custom(_)) {
        return Assignment::Weak;
    }
    if *ty == preferred_type(constant) {
        return Assignment::Exact;
    }
    let fits = match constant.kind {
        ConstantKind::String => matches!(ty, Ascii | Text | Inet | Date | Time | Timestamp),
        ConstantKind::Integer => matches!(
            ty,
            Bigint
                | Counter
                | Date
                | Decimal
                | Double
                | Duration
                | Float
                | Int
                | Smallint
                | Time
                | Timestamp
                | Tinyint
                | Varint
        ),
        ConstantKind::Uuid => matches!(ty, Uuid | Timeuuid),
        ConstantKind::Float => matches!(ty, Decimal | Double | Float),
        ConstantKind::Boolean => matches!(ty, Boolean),
        ConstantKind::Hex => matches!(ty, Blob),
        ConstantKind::Duration => matches!(ty, Duration),
    };
    if fits { Assignment::Weak } else { Assignment::No }
}

/// The bytes of a constant as its receiver's type.
pub(super) fn to_bytes(constant: &Constant, receiver: &ColumnSpec) -> Result<Vec<u8>, QueryError> {
    let Constant { kind, text } = constant;
    if !assignment(constant, &receiver.ty).is_assignable() {
        let (name, ty) = (&receiver.name, &receiver.ty);
        return Err(QueryError::invalid(format!("Invalid {kind} constant ({text}) for \"{name}\" of type {ty}")));
    }
    let text = match kind {
        ConstantKind::Hex => text.get(2..).unwrap_or_default(),
        _ => text,
    };
    let bytes = match &receiver.ty {
        CqlType::Counter => CqlType::Bigint.from_text(text),
        CqlType::Varint if *kind == ConstantKind::Integer => Ok(integer_bytes(text)?),
        CqlType::Tuple(_) if *kind == ConstantKind::Hex => CqlType::Blob.from_text(text),
        ty => ty.from_text(text),
    }?;
    if matches!(receiver.ty, CqlType::Tuple(_)) {
        receiver.ty.validate(&bytes)?; // hexadecimal digits stand for anything
    }
    Ok(bytes)
}

fn integer_bytes(text: &str) -> Result<Vec<u8>, QueryError> {
    if text.len() > DIGITS_MAX + 1 {
        return Err(QueryError::invalid(format!(
            "a varint of more than {DIGITS_MAX} digits cannot be read from a text"
        )));
    }
    let value: BigInt =
        text.parse().map_err(|_| QueryError::invalid(format!("unable to make BigInteger from '{text}'")))?;
    Ok(value.to_signed_bytes_be())
}
