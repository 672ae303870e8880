//! `abs`, `exp`, `log`, `log10` and `round`.

use num_traits::Signed;
use types::Decimal;

use super::number::{NUMERIC_TYPES, Number};
use super::{Function, precise};
use crate::QueryError;

/// The functions of this name, one per numeric type.
pub(super) fn functions(name: &str) -> Vec<Function> {
    let apply: fn(&Number, &str) -> Result<Number, String> = match name {
        "abs" => |number, _| Ok(absolute(number)),
        "round" => |number, _| round(number),
        "exp" | "log" | "log10" => transcendental,
        _ => return Vec::new(),
    };
    NUMERIC_TYPES
        .iter()
        .map(|ty| {
            Function::of_values(name, vec![ty.clone()], ty.clone(), move |call, values| {
                let Some(number) = Number::read(&call.function.arguments[0], values[0]) else { return Ok(None) };
                let result = apply(&number, &call.function.name).map_err(QueryError::invalid)?;
                Ok(Some(result.to_bytes()))
            })
        })
        .collect()
}

fn absolute(number: &Number) -> Number {
    match number {
        Number::Tinyint(value) => Number::Tinyint(value.wrapping_abs()),
        Number::Smallint(value) => Number::Smallint(value.wrapping_abs()),
        Number::Int(value) => Number::Int(value.wrapping_abs()),
        Number::Bigint(value) => Number::Bigint(value.wrapping_abs()),
        Number::Float(value) => Number::Float(value.abs()),
        Number::Double(value) => Number::Double(value.abs()),
        Number::Varint(value) => Number::Varint(value.abs()),
        Number::Decimal(value) => Number::Decimal(value.abs()),
    }
}

/// Rounds half up. Floats are rounded as by Java's `Math.round`, whose result is an integer.
fn round(number: &Number) -> Result<Number, String> {
    Ok(match number {
        Number::Float(value) => Number::Float((f64::from(*value) + 0.5).floor() as i32 as f32),
        Number::Double(value) => {
            let floor = value.floor();
            let rounded = if value - floor >= 0.5 { floor + 1.0 } else { floor };
            Number::Double(rounded as i64 as f64)
        }
        Number::Decimal(value) => Number::Decimal(value.round_half_up().map_err(|error| error.to_string())?),
        other => other.clone(),
    })
}

/// The most digits of a number whose exponential or logarithm is computed, because the time grows by more than the
/// square of the digits.
const PRECISE_DIGITS_MAX: u64 = 1_000;

/// A function of decimals; `None` where it is not defined.
type OfDecimal = fn(&Decimal) -> Option<Decimal>;

/// Computes with many digits for decimals and varints, and in double precision for other types. Results of integer
/// types are truncated.
fn transcendental(number: &Number, name: &str) -> Result<Number, String> {
    let (of_double, of_decimal): (fn(f64) -> f64, OfDecimal) = match name {
        "exp" => (f64::exp, precise::exp),
        "log" => (f64::ln, precise::log),
        _ => (f64::log10, precise::log10),
    };
    if number.digits() > PRECISE_DIGITS_MAX {
        return Err(format!("The {name} of a number of more than {PRECISE_DIGITS_MAX} digits is not supported"));
    }
    let undefined = || format!("The {name} of this number is not defined, or too large");
    let double = Number::Double(of_double(number.to_f64()));
    Ok(match number {
        Number::Tinyint(_) => Number::Tinyint(double.to_i32() as i8),
        Number::Smallint(_) => Number::Smallint(double.to_i32() as i16),
        Number::Int(_) => Number::Int(double.to_i32()),
        Number::Bigint(_) => Number::Bigint(double.to_i64()),
        Number::Float(_) => Number::Float(double.to_f32()),
        Number::Double(_) => double,
        Number::Varint(value) => {
            let result = of_decimal(&Decimal::new(value.clone(), 0)).ok_or_else(undefined)?;
            Number::Varint(result.to_integer().ok_or_else(undefined)?)
        }
        Number::Decimal(value) => Number::Decimal(of_decimal(value).ok_or_else(undefined)?),
    })
}
