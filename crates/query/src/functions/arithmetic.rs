//! The operators `+ - * / %` and unary minus for numbers and texts, and for times with durations.

use cql::ast::ArithmeticOperator;
use num_bigint::BigInt;
use num_traits::Zero;
use types::decimal::DecimalError;
use types::{CqlType, Decimal, Duration};

use super::number::{NUMERIC_TYPES, Number, result_type};
use super::{Function, NEGATION, OPERATORS, time};
use crate::QueryError;

const DIVISION_BY_ZERO: &str = "/ by zero";
const BIG_DIVISION_BY_ZERO: &str = "BigInteger divide by zero";

/// The functions behind an operator.
pub(super) fn functions(name: &str) -> Vec<Function> {
    if name == NEGATION {
        return NUMERIC_TYPES.iter().map(negation).collect();
    }
    let Some((operator, _)) = OPERATORS.iter().find(|(_, known)| *known == name) else { return Vec::new() };
    let mut functions = Vec::new();
    for left in &NUMERIC_TYPES {
        for right in &NUMERIC_TYPES {
            functions.push(numeric(name, *operator, left, right));
        }
    }
    if *operator == ArithmeticOperator::Add {
        for (left, right) in [
            (CqlType::Text, CqlType::Text),
            (CqlType::Ascii, CqlType::Ascii),
            (CqlType::Ascii, CqlType::Text),
            (CqlType::Text, CqlType::Ascii),
        ] {
            functions.push(concatenation(name, left, right));
        }
    }
    if matches!(operator, ArithmeticOperator::Add | ArithmeticOperator::Subtract) {
        functions.push(shift(name, *operator, CqlType::Timestamp));
        functions.push(shift(name, *operator, CqlType::Date));
    }
    functions
}

fn numeric(name: &str, operator: ArithmeticOperator, left: &CqlType, right: &CqlType) -> Function {
    let result = result_type(left, right);
    let arguments = vec![left.clone(), right.clone()];
    Function::of_values(name, arguments, result.clone(), move |call, values| {
        let types = &call.function.arguments;
        let (Some(left), Some(right)) = (Number::read(&types[0], values[0]), Number::read(&types[1], values[1])) else {
            return Ok(None);
        };
        calculate(operator, &result, &left, &right).map(|number| Some(number.to_bytes())).map_err(|reason| {
            let symbol = operator.symbol();
            let message = format!("the operation '{} {symbol} {}' failed: {reason}", types[0], types[1]);
            call.function.failure(&call.function.name, message)
        })
    })
}

/// Calculates in the type of the result, as Java does: integers wrap around.
fn calculate(operator: ArithmeticOperator, ty: &CqlType, left: &Number, right: &Number) -> Result<Number, String> {
    match ty {
        CqlType::Tinyint => integers(operator, left.to_i64(), right.to_i64()).map(|n| Number::Tinyint(n as i8)),
        CqlType::Smallint => integers(operator, left.to_i64(), right.to_i64()).map(|n| Number::Smallint(n as i16)),
        CqlType::Int => integers(operator, left.to_i64(), right.to_i64()).map(|n| Number::Int(n as i32)),
        CqlType::Bigint => integers(operator, left.to_i64(), right.to_i64()).map(Number::Bigint),
        CqlType::Float => Ok(Number::Float(match operator {
            ArithmeticOperator::Add => left.to_f32() + right.to_f32(),
            ArithmeticOperator::Subtract => left.to_f32() - right.to_f32(),
            ArithmeticOperator::Multiply => left.to_f32() * right.to_f32(),
            ArithmeticOperator::Divide => left.to_f32() / right.to_f32(),
            ArithmeticOperator::Modulo => left.to_f32() % right.to_f32(),
        })),
        CqlType::Double => Ok(Number::Double(match operator {
            ArithmeticOperator::Add => left.to_f64() + right.to_f64(),
            ArithmeticOperator::Subtract => left.to_f64() - right.to_f64(),
            ArithmeticOperator::Multiply => left.to_f64() * right.to_f64(),
            ArithmeticOperator::Divide => left.to_f64() / right.to_f64(),
            ArithmeticOperator::Modulo => left.to_f64() % right.to_f64(),
        })),
        CqlType::Varint => big_integers(operator, left.to_bigint(), right.to_bigint()).map(Number::Varint),
        _ => decimals(operator, left, right).map(Number::Decimal),
    }
}

fn integers(operator: ArithmeticOperator, left: i64, right: i64) -> Result<i64, String> {
    Ok(match operator {
        ArithmeticOperator::Add => left.wrapping_add(right),
        ArithmeticOperator::Subtract => left.wrapping_sub(right),
        ArithmeticOperator::Multiply => left.wrapping_mul(right),
        _ if right == 0 => return Err(DIVISION_BY_ZERO.to_owned()),
        ArithmeticOperator::Divide => left.wrapping_div(right),
        ArithmeticOperator::Modulo => left.wrapping_rem(right),
    })
}

fn big_integers(operator: ArithmeticOperator, left: BigInt, right: BigInt) -> Result<BigInt, String> {
    Ok(match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        _ if right.is_zero() => return Err(BIG_DIVISION_BY_ZERO.to_owned()),
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Modulo => left % right,
    })
}

fn decimals(operator: ArithmeticOperator, left: &Number, right: &Number) -> Result<Decimal, String> {
    let (left, right) = (left.to_decimal_operand()?, right.to_decimal_operand()?);
    let result = match operator {
        ArithmeticOperator::Add => left.add(&right),
        ArithmeticOperator::Subtract => left.subtract(&right),
        ArithmeticOperator::Multiply => left.multiply(&right),
        ArithmeticOperator::Divide => left.divide(&right),
        ArithmeticOperator::Modulo => left.remainder(&right),
    };
    result.map_err(|error| match error {
        DecimalError::DivisionByZero if operator != ArithmeticOperator::Modulo => BIG_DIVISION_BY_ZERO.to_owned(),
        DecimalError::DivisionByZero if left.is_zero() => "Division undefined".to_owned(),
        DecimalError::DivisionByZero => "Division by zero".to_owned(),
        other => other.to_string(),
    })
}

fn negation(ty: &CqlType) -> Function {
    Function::of_values(NEGATION, vec![ty.clone()], ty.clone(), |call, values| {
        let negated = match Number::read(&call.function.arguments[0], values[0]) {
            None => return Ok(None),
            Some(Number::Tinyint(value)) => Number::Tinyint(value.wrapping_neg()),
            Some(Number::Smallint(value)) => Number::Smallint(value.wrapping_neg()),
            Some(Number::Int(value)) => Number::Int(value.wrapping_neg()),
            Some(Number::Bigint(value)) => Number::Bigint(value.wrapping_neg()),
            Some(Number::Float(value)) => Number::Float(-value),
            Some(Number::Double(value)) => Number::Double(-value),
            Some(Number::Varint(value)) => Number::Varint(-value),
            Some(Number::Decimal(value)) => Number::Decimal(value.negate()),
        };
        Ok(Some(negated.to_bytes()))
    })
}

fn concatenation(name: &str, left: CqlType, right: CqlType) -> Function {
    let result = if left == CqlType::Ascii && right == CqlType::Ascii { CqlType::Ascii } else { CqlType::Text };
    Function::of_values(name, vec![left, right], result, |_, values| Ok(Some(values.concat())))
}

/// A time moved by a duration.
fn shift(name: &str, operator: ArithmeticOperator, ty: CqlType) -> Function {
    let sign = if operator == ArithmeticOperator::Add { 1 } else { -1 };
    Function::of_values(name, vec![ty.clone(), CqlType::Duration], ty, move |call, values| {
        let duration = Duration::from_bytes(values[1]).ok_or_else(|| QueryError::invalid("Invalid duration"))?;
        let moved = match call.function.arguments[0] {
            CqlType::Date => time::shift_date(values[0], &duration, sign),
            _ => time::shift_timestamp(values[0], &duration, sign),
        };
        moved.map(Some).map_err(|reason| {
            let symbol = operator.symbol();
            let ty = &call.function.arguments[0];
            let message = format!("the operation '{ty} {symbol} duration' failed: {reason}");
            call.function.failure(&call.function.name, message)
        })
    })
}
