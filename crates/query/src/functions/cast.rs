//! CAST.

use types::CqlType;

use super::number::{NUMERIC_TYPES, Number};
use super::{CAST_PREFIX, Function, time};

/// The functions behind `CAST(... AS type)`.
pub(super) fn functions(name: &str) -> Vec<Function> {
    let target = name.strip_prefix(CAST_PREFIX).or_else(|| name.strip_prefix("castas"));
    let Some(target) = target.and_then(CqlType::native) else { return Vec::new() };
    let is_text = matches!(target, CqlType::Text | CqlType::Ascii);
    let is_numeric = NUMERIC_TYPES.contains(&target) && target != CqlType::Counter;
    let mut functions = Vec::new();
    for from in NUMERIC_TYPES.iter().filter(|from| **from != target) {
        if is_numeric {
            functions.push(numeric(name, from, &target));
        } else if is_text {
            functions.push(text(name, from, &target));
        }
    }
    if is_text {
        let others = [
            CqlType::Inet,
            CqlType::Boolean,
            CqlType::Timeuuid,
            CqlType::Timestamp,
            CqlType::Date,
            CqlType::Time,
            CqlType::Uuid,
        ];
        functions.extend(others.iter().map(|from| text(name, from, &target)));
    }
    match target {
        CqlType::Text => functions.push(text(name, &CqlType::Ascii, &target)),
        CqlType::Date => {
            functions.extend([CqlType::Timeuuid, CqlType::Timestamp].map(|from| time::to_date(name, from)))
        }
        CqlType::Timestamp => {
            functions.extend([CqlType::Timeuuid, CqlType::Date].map(|from| time::to_timestamp(name, from)));
        }
        _ => {}
    }
    functions
}

fn numeric(name: &str, from: &CqlType, to: &CqlType) -> Function {
    Function::of_values(name, vec![from.clone()], to.clone(), |call, values| {
        let number = Number::read(&call.function.arguments[0], values[0]);
        Ok(number.and_then(|number| number.cast(&call.function.returns)).map(|number| number.to_bytes()))
    })
}

fn text(name: &str, from: &CqlType, to: &CqlType) -> Function {
    Function::of_values(name, vec![from.clone()], to.clone(), |call, values| {
        Ok(Some(plain_text(&call.function.arguments[0], values[0]).into_bytes()))
    })
}

/// A value as text, without the quotes that a literal of its type has.
pub(super) fn plain_text(ty: &CqlType, bytes: &[u8]) -> String {
    match ty {
        CqlType::Ascii | CqlType::Text => types::utf8::to_str(bytes).into_owned(),
        CqlType::Counter => CqlType::Bigint.to_cql_literal(bytes),
        _ => ty.to_cql_literal(bytes).trim_matches('\'').to_owned(),
    }
}
