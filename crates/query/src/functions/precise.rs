//! `exp`, `log` and `log10` of decimals, to 32 digits or as many as the argument has.
//!
//! Numbers are integers of `10^-digits`. They have more digits than the result, so that the last digit of the result is
//! right.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use types::Decimal;

const DIGITS_MIN: u64 = 32;
/// The number of additional digits.
const GUARD_DIGITS: u32 = 20;
/// The number of times that an argument of `exp` is halved before the series, and that the result is squared after it.
const HALVINGS: u32 = 16;
/// The largest result of `exp` that is computed has about this many digits before the point, and the smallest one as
/// many zeros after it.
const MAGNITUDE_MAX: i64 = 1_000_000;

fn wanted_digits(value: &Decimal) -> u32 {
    value.precision().max(DIGITS_MIN) as u32
}

fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// A fixed-point number system.
struct Fixed {
    digits: u32,
    one: BigInt,
}

impl Fixed {
    fn new(digits: u32) -> Fixed {
        Fixed { digits, one: power_of_ten(digits) }
    }

    /// A decimal whose size was checked.
    fn of(&self, value: &Decimal) -> BigInt {
        let shift = i64::from(self.digits) - i64::from(value.scale);
        match u32::try_from(shift) {
            Ok(shift) => &value.unscaled * power_of_ten(shift),
            // The value is too small to affect the last digit.
            Err(_) if -shift > value.precision() as i64 => BigInt::zero(),
            Err(_) => &value.unscaled / power_of_ten(u32::try_from(-shift).unwrap_or(u32::MAX)),
        }
    }

    fn multiply(&self, a: &BigInt, b: &BigInt) -> BigInt {
        a * b / &self.one
    }

    fn divide(&self, a: &BigInt, b: &BigInt) -> BigInt {
        a * &self.one / b
    }

    /// `e^x` by the series of a small part of `x`.
    fn exp(&self, x: &BigInt) -> BigInt {
        let small = x / (BigInt::from(1) << HALVINGS);
        let (mut sum, mut term, mut n) = (self.one.clone(), self.one.clone(), 0u32);
        while !term.is_zero() {
            n += 1;
            term = self.multiply(&term, &small) / n;
            sum += &term;
        }
        for _ in 0..HALVINGS {
            sum = self.multiply(&sum, &sum);
        }
        sum
    }

    /// The inverse hyperbolic tangent of `1/n`.
    fn atanh_of_inverse(&self, n: u32) -> BigInt {
        let (mut power, mut sum, mut k) = (&self.one / n, BigInt::zero(), 1u32);
        while !power.is_zero() {
            sum += &power / k;
            power /= n * n;
            k += 2;
        }
        sum
    }

    fn ln_ten(&self) -> BigInt {
        self.atanh_of_inverse(31) * 46 + self.atanh_of_inverse(49) * 34 + self.atanh_of_inverse(161) * 20
    }

    /// `ln x` for `x` from 1 to 10: Halley's steps from a double's logarithm, each tripling the digits.
    fn ln(&self, x: &BigInt) -> BigInt {
        let start = (x * power_of_ten(15) / &self.one).to_f64().unwrap_or(1e15) / 1e15;
        let mut y = BigInt::from((start.ln() * 1e15) as i64) * &self.one / power_of_ten(15);
        let mut right = 14;
        while right < self.digits {
            let e = self.exp(&y);
            y += self.divide(&((x - &e) * 2), &(x + &e));
            right *= 3;
        }
        y
    }
}

/// `value` at this many digits, rounded half to even; its last digit is `10^-scale`.
fn rounded(value: BigInt, scale: i64, digits: u32) -> Option<Decimal> {
    let excess = Decimal::new(value.clone(), 0).precision() as i64 - i64::from(digits);
    if excess <= 0 {
        return Some(Decimal::new(value, i32::try_from(scale).ok()?));
    }
    let divisor = power_of_ten(u32::try_from(excess).ok()?);
    let (quotient, remainder) = (&value / &divisor, &value % &divisor);
    let doubled: BigInt = remainder.abs() * 2;
    let away = match doubled.cmp(&divisor) {
        Ordering::Less => false,
        Ordering::Equal => quotient.bit(0),
        Ordering::Greater => true,
    };
    let step = if value.is_negative() { -1 } else { 1 };
    let value = if away { quotient + step } else { quotient };
    // Rounding 9.99 up gives 10.0, which has a digit too many.
    rounded(value, scale - excess, digits)
}

/// `e` to the power of `value`; `None` if the result is too large or too small to be computed.
pub(super) fn exp(value: &Decimal) -> Option<Decimal> {
    if value.is_zero() {
        return Some(Decimal::new(1, 0));
    }
    let magnitude = value.to_f64() / std::f64::consts::LN_10;
    if magnitude.abs() > MAGNITUDE_MAX as f64 {
        return None;
    }
    let digits = wanted_digits(value);
    let fixed = Fixed::new(digits + GUARD_DIGITS);
    let ten = magnitude.floor() as i64;
    let rest = fixed.of(value) - fixed.ln_ten() * ten;
    rounded(fixed.exp(&rest), i64::from(fixed.digits) - ten, digits)
}

/// `ln value`; `None` if it is not defined.
pub(super) fn log(value: &Decimal) -> Option<Decimal> {
    log_to(value, wanted_digits(value))
}

fn log_to(value: &Decimal, digits: u32) -> Option<Decimal> {
    let fixed = Fixed::new(digits + zeros_beside_one(value) + GUARD_DIGITS);
    let natural = natural(value, &fixed)?;
    if natural.is_zero() {
        return Some(Decimal::new(0, 0));
    }
    rounded(natural, i64::from(fixed.digits), digits)
}

/// The zeros after the point in the distance of `value` from one. Its logarithm has as many, and they are no digits of
/// the result.
fn zeros_beside_one(value: &Decimal) -> u32 {
    let zeros = value.subtract(&Decimal::new(1, 0)).map_or(0, |left| i64::from(left.scale) - left.precision() as i64);
    // A value beside one has more digits than that, so this bounds the cost for other values.
    u32::try_from(zeros.clamp(0, value.precision() as i64)).unwrap_or(0)
}

/// The logarithm of base ten; `None` if it is not defined.
///
/// As in Cassandra, it is the quotient of two rounded logarithms. So for some powers of ten it is a short number (2),
/// and for others one with all digits (3.000…).
pub(super) fn log10(value: &Decimal) -> Option<Decimal> {
    let digits = wanted_digits(value);
    let carried = digits + 2;
    let fixed = Fixed::new(carried + GUARD_DIGITS);
    let ln_ten = rounded(fixed.ln_ten(), i64::from(fixed.digits), carried)?;
    let quotient = quotient(&log_to(value, carried)?, &ln_ten, carried)?;
    rounded(quotient.unscaled, i64::from(quotient.scale), digits)
}

/// `a / b` as Java's `BigDecimal` divides: with this many digits, and if the result is exact, with no more trailing
/// zeros than the scales require.
fn quotient(a: &Decimal, b: &Decimal, digits: u32) -> Option<Decimal> {
    let preferred_scale = i64::from(a.scale) - i64::from(b.scale);
    let shift = digits + 5 + u32::try_from(b.precision()).ok()?;
    let dividend = &a.unscaled * power_of_ten(shift);
    let (mut value, remainder) = (&dividend / &b.unscaled, &dividend % &b.unscaled);
    let mut scale = preferred_scale + i64::from(shift);
    if !remainder.is_zero() {
        // One more digit shows that the quotient continues.
        let beyond = if value.is_negative() { -1 } else { 1 };
        return rounded(value * 10 + beyond, scale + 1, digits);
    }
    while scale > preferred_scale && (&value % 10u32).is_zero() {
        value /= 10;
        scale -= 1;
    }
    rounded(value, scale, digits)
}

fn natural(value: &Decimal, fixed: &Fixed) -> Option<BigInt> {
    if !value.unscaled.is_positive() {
        return None;
    }
    // The value is mantissa * 10^exponent, the mantissa from 1 to 10.
    let last = value.precision() as i64 - 1;
    let mantissa = Decimal::new(value.unscaled.clone(), i32::try_from(last).ok()?);
    let exponent = last - i64::from(value.scale);
    Some(fixed.ln(&fixed.of(&mantissa)) + fixed.ln_ten() * exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::from_bytes(&types::CqlType::Decimal.from_text(text).unwrap()).unwrap()
    }

    /// The crate `types` has the answers of Cassandra's own classes.
    #[test]
    fn digits_are_those_of_cassandra() {
        let text = |record: &serde_json::Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let records = include_str!("../../../types/tests/from_cassandra/5.0.8/texts.jsonl");
        let (mut compared, mut wrong) = (0, Vec::new());
        for line in records.lines().filter(|line| line.contains("\"decimal\"")) {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let (input, expected) = (text(&record, "in"), text(&record, "out"));
            let argument = decimal(input.split_once(' ').unwrap().0);
            let found = match &*text(&record, "type") {
                "exp" => exp(&argument),
                "ln" => log(&argument),
                "log10" => log10(&argument),
                _ => continue,
            };
            compared += 1;
            let found = found.map_or(String::new(), |value| value.to_string());
            // The exponent of zero depends on the digits of ln 10 that Cassandra has computed before.
            if found != expected && !(found.starts_with("0E+") && expected.starts_with("0E+")) {
                wrong.push(format!("{} of {input}: {found}, not {expected}", record["type"]));
            }
        }
        assert!(compared > 80, "only {compared} records");
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
        // This is a node's answer.
        assert_eq!(log(&decimal("12.345")).unwrap().to_string(), "2.5132511227971428258519031715410");
    }

    #[test]
    fn powers_of_ten_have_the_scales_of_cassandra() {
        let thousandth = (-3_i128 * 10_i128.pow(31), 31);
        let thousand = (3 * 10_i128.pow(31), 31);
        let cases = [
            ("1", (0, -33)),
            ("1.00", (0, -33)),
            ("10", (1, 0)),
            ("100", (2, 0)),
            ("1000", thousand),
            ("0.001", thousandth),
        ];
        for (text, (unscaled, scale)) in cases {
            assert_eq!(log10(&decimal(text)), Some(Decimal::new(unscaled, scale)), "{text}");
        }
        assert_eq!(log10(&decimal("1e20")), Some(Decimal::new(2, -1)));
        assert_eq!(log(&decimal("1.0")), Some(Decimal::new(0, 0)));
    }

    #[test]
    fn log_is_the_inverse_of_exp() {
        for text in ["0.001", "1.5", "-7", "123.456", "-0.0000001"] {
            let value = decimal(text);
            let back = log(&exp(&value).unwrap()).unwrap();
            let error = back.subtract(&value).unwrap().abs();
            assert!(error < decimal("1e-28"), "{text}: {back}");
        }
        assert!(log(&decimal("0")).is_none());
        assert!(exp(&decimal("1e9")).is_none());
    }
}
