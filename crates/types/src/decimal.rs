//! Decimals: an unscaled integer and a scale, with the arithmetic and the text of Java's `BigDecimal`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, Zero};

/// `unscaled * 10^-scale`. Equality and order are by value: 1.0 equals 1.00, although they print differently.
#[derive(Clone, Debug)]
pub struct Decimal {
    pub unscaled: BigInt,
    pub scale: i32,
}

/// The text is not a decimal, its scale exceeds 32 bits, or it has more than [`DIGITS_MAX`] digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseDecimalError;

impl fmt::Display for ParseDecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a decimal")
    }
}

impl std::error::Error for ParseDecimalError {}

impl FromStr for Decimal {
    type Err = ParseDecimalError;

    /// A sign, digits with an optional point anywhere among them, and an exponent: `-1.50E+3`.
    fn from_str(text: &str) -> Result<Decimal, ParseDecimalError> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, parse_exponent(exponent).ok_or(ParseDecimalError)?),
            None => (text, 0),
        };
        let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        if whole.len() + fraction.len() > DIGITS_MAX {
            return Err(ParseDecimalError);
        }
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseDecimalError);
        }
        let magnitude: BigUint = digits.parse().map_err(|_| ParseDecimalError)?;
        let sign = if number.starts_with('-') { Sign::Minus } else { Sign::Plus };
        let scale = i32::try_from(fraction.len() as i64 - i64::from(exponent)).map_err(|_| ParseDecimalError)?;
        Ok(Decimal { unscaled: BigInt::from_biguint(sign, magnitude), scale })
    }
}

fn parse_exponent(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A decimal operation whose result does not exist or needs a scale outside of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    DivisionByZero,
    /// The scale exceeds 32 bits.
    ScaleOutOfRange,
    /// The operation needs numbers of more than [`DIGITS_MAX`] digits.
    TooManyDigits,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecimalError::DivisionByZero => f.write_str("Division by zero"),
            DecimalError::ScaleOutOfRange => f.write_str("the scale of a decimal leaves 32 bits"),
            DecimalError::TooManyDigits => write!(f, "a number of more than {DIGITS_MAX} digits is needed"),
        }
    }
}

impl std::error::Error for DecimalError {}

/// Sums, differences and products keep this many digits, rounded half up.
const PRECISION_MAX: u64 = 10_000;
/// A quotient has at least this many significant digits and at least this scale, up to `QUOTIENT_SCALE_MAX`.
const QUOTIENT_SCALE_MIN: i64 = 32;
/// The largest scale of a quotient.
const QUOTIENT_SCALE_MAX: i64 = 1_000;

impl Decimal {
    /// `unscaled * 10^-scale`.
    pub fn new(unscaled: impl Into<BigInt>, scale: i32) -> Decimal {
        Decimal { unscaled: unscaled.into(), scale }
    }

    /// Reads the serialized form: i32 scale, then two's complement. `None` if shorter than the scale.
    pub fn from_bytes(value: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = value.split_first_chunk::<4>()?;
        Some(Decimal { unscaled: BigInt::from_signed_bytes_be(unscaled), scale: i32::from_be_bytes(*scale) })
    }

    /// The serialized form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.scale.to_be_bytes().to_vec();
        out.extend_from_slice(&self.unscaled.to_signed_bytes_be());
        out
    }

    /// The number of digits of the unscaled value; 1 for zero.
    pub fn precision(&self) -> u64 {
        digits(self.unscaled.magnitude())
    }

    pub fn is_zero(&self) -> bool {
        self.unscaled.is_zero()
    }

    pub fn negate(&self) -> Decimal {
        Decimal { unscaled: -&self.unscaled, scale: self.scale }
    }

    pub fn abs(&self) -> Decimal {
        Decimal { unscaled: self.unscaled.abs(), scale: self.scale }
    }

    /// The sum, rounded to 10,000 digits.
    pub fn add(&self, other: &Decimal) -> Result<Decimal, DecimalError> {
        let scale = self.scale.max(other.scale);
        if self.is_zero() || other.is_zero() {
            // Zero only contributes its scale, and only as far as the precision reaches.
            let (value, result_is_zero) = if self.is_zero() { (other, other.is_zero()) } else { (self, false) };
            if result_is_zero {
                return Ok(Decimal { unscaled: BigInt::zero(), scale });
            }
            let room = i64::try_from(PRECISION_MAX.saturating_sub(value.precision())).unwrap_or(0);
            let grown = (i64::from(scale) - i64::from(value.scale)).min(room).max(0);
            let value = value.clone().rounded(PRECISION_MAX)?;
            return value.with_scale_grown(grown);
        }
        let (high, low) = if self.exponent() >= other.exponent() { (self, other) } else { (other, self) };
        // If the smaller operand is completely below the digits that are kept, only its sign can matter.
        let last_kept = high.exponent() - PRECISION_MAX as i64;
        let high_last = -i64::from(high.scale);
        if low.exponent() + 3 < last_kept.min(high_last) {
            let grown = high.with_scale_grown((high_last - last_kept + 3).max(3))?;
            let sticky = Decimal { unscaled: low.unscaled.signum(), scale: grown.scale };
            return Decimal { unscaled: grown.unscaled + sticky.unscaled, scale: grown.scale }.rounded(PRECISION_MAX);
        }
        let a = self.with_scale_grown(i64::from(scale) - i64::from(self.scale))?;
        let b = other.with_scale_grown(i64::from(scale) - i64::from(other.scale))?;
        Decimal { unscaled: a.unscaled + b.unscaled, scale }.rounded(PRECISION_MAX)
    }

    /// The difference, rounded to 10,000 digits.
    pub fn subtract(&self, other: &Decimal) -> Result<Decimal, DecimalError> {
        self.add(&other.negate())
    }

    /// The product, rounded to 10,000 digits.
    pub fn multiply(&self, other: &Decimal) -> Result<Decimal, DecimalError> {
        let scale = checked_scale(i64::from(self.scale) + i64::from(other.scale))?;
        Decimal { unscaled: &self.unscaled * &other.unscaled, scale }.rounded(PRECISION_MAX)
    }

    /// The quotient of CQL's `/`: 32 significant digits, or a scale of 32, or the scale of an operand, whichever is
    /// finest, but no scale above 1000; rounded half up, without trailing zeros.
    pub fn divide(&self, other: &Decimal) -> Result<Decimal, DecimalError> {
        let first_digit = self.exponent() - other.exponent();
        let wanted = (QUOTIENT_SCALE_MIN - first_digit).max(i64::from(self.scale)).max(i64::from(other.scale));
        let scale = wanted.clamp(QUOTIENT_SCALE_MIN, QUOTIENT_SCALE_MAX);
        Ok(self.divide_to_scale(other, scale as i32)?.strip_trailing_zeros())
    }

    /// The quotient at exactly this scale, rounded half up.
    pub fn divide_to_scale(&self, other: &Decimal, scale: i32) -> Result<Decimal, DecimalError> {
        if other.is_zero() {
            return Err(DecimalError::DivisionByZero);
        }
        // self / other = (u1 / u2) * 10^(s2 - s1); at `scale` that is u1 * 10^(scale + s2 - s1) / u2.
        let shift = i64::from(scale) + i64::from(other.scale) - i64::from(self.scale);
        if self.is_zero() || self.exponent() - other.exponent() + i64::from(scale) < -2 {
            return Ok(Decimal { unscaled: BigInt::zero(), scale });
        }
        let (dividend, divisor) = if shift >= 0 {
            (&self.unscaled * power_of_ten_checked(shift)?, other.unscaled.clone())
        } else {
            (self.unscaled.clone(), &other.unscaled * power_of_ten_checked(-shift)?)
        };
        Ok(Decimal { unscaled: divide_half_up(&dividend, &divisor), scale })
    }

    /// The remainder after subtracting `other` a whole number of times. It has the sign of `self`, and the scale of
    /// `self - quotient * other` when the quotient's trailing zeros count as its scale.
    pub fn remainder(&self, other: &Decimal) -> Result<Decimal, DecimalError> {
        if other.is_zero() {
            return Err(DecimalError::DivisionByZero);
        }
        if self.is_zero() || self.abs() < other.abs() {
            return Ok(self.clone());
        }
        let finer = i64::from(other.scale) - i64::from(self.scale);
        let dividend = self.with_scale_grown(finer.max(0))?;
        let divisor = other.with_scale_grown((-finer).max(0))?;
        let (quotient, remainder) = dividend.unscaled.div_rem(&divisor.unscaled);
        let remainder = Decimal { unscaled: remainder, scale: dividend.scale };
        if finer <= 0 {
            return Ok(remainder);
        }
        let zeros = -i64::from(Decimal::new(quotient, 0).strip_trailing_zeros().scale);
        let dropped = zeros.min(finer);
        let scale = checked_scale(i64::from(remainder.scale) - dropped)?;
        Ok(Decimal { unscaled: remainder.unscaled / power_of_ten_checked(dropped)?, scale })
    }

    /// The same value with the smallest scale; zero becomes 0 with scale 0.
    pub fn strip_trailing_zeros(&self) -> Decimal {
        if self.is_zero() {
            return Decimal { unscaled: BigInt::zero(), scale: 0 };
        }
        let (sign, mut magnitude) = (self.unscaled.sign(), self.unscaled.magnitude().clone());
        let mut scale = i64::from(self.scale);
        // Large steps first: one pass over halving powers in place of one division per zero.
        let mut step = 1u32 << digits(&magnitude).ilog2();
        while step > 0 {
            let (quotient, remainder) = magnitude.div_rem(&power_of_ten(step));
            if remainder.is_zero() && scale - i64::from(step) >= i64::from(i32::MIN) {
                magnitude = quotient;
                scale -= i64::from(step);
            } else {
                step /= 2;
            }
        }
        Decimal { unscaled: BigInt::from_biguint(sign, magnitude), scale: scale as i32 }
    }

    /// The integer part, toward zero. `None` if that needs a power of ten beyond [`DIGITS_MAX`].
    pub fn to_integer(&self) -> Option<BigInt> {
        let shift = i64::from(self.scale);
        if self.is_zero() || self.exponent() <= 0 {
            return Some(BigInt::zero());
        }
        if shift <= 0 {
            return power_of_ten_checked(-shift).ok().map(|power| &self.unscaled * power);
        }
        power_of_ten_checked(shift).ok().map(|power| &self.unscaled / power)
    }

    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        // The text form with an exponent is exact, and parsing it rounds correctly.
        format!("{}E{}", self.unscaled, -i64::from(self.scale)).parse().unwrap_or(f64::NAN)
    }

    /// The nearest float.
    pub fn to_f32(&self) -> f32 {
        format!("{}E{}", self.unscaled, -i64::from(self.scale)).parse().unwrap_or(f32::NAN)
    }

    /// Rounded half up to an integral value with scale 0 where it has a fraction; unchanged otherwise.
    pub fn round_half_up(&self) -> Result<Decimal, DecimalError> {
        self.divide_to_scale(&Decimal::new(1, 0), 0)
    }

    /// Rounded half up to at most `precision` digits.
    pub fn rounded(self, precision: u64) -> Result<Decimal, DecimalError> {
        let mut value = self;
        // Rounding up 99.9 adds a digit, so a second round may be needed.
        loop {
            let excess = value.precision().saturating_sub(precision);
            if excess == 0 {
                return Ok(value);
            }
            let scale = checked_scale(i64::from(value.scale) - excess as i64)?;
            value = Decimal { unscaled: divide_half_up(&value.unscaled, &power_of_ten(excess as u32).into()), scale };
        }
    }

    /// The text without an exponent, with as many zeros as necessary; `None` beyond 1,000,000 of them.
    pub fn to_plain_string(&self) -> Option<String> {
        if i64::from(self.scale).abs() > PLAIN_ZEROS_MAX {
            return None;
        }
        let digits = self.unscaled.magnitude().to_string();
        let sign = if self.unscaled.is_negative() { "-" } else { "" };
        let Ok(scale) = usize::try_from(self.scale) else {
            let zeros = if self.is_zero() { 0 } else { self.scale.unsigned_abs() as usize };
            return Some(format!("{sign}{digits}{}", "0".repeat(zeros)));
        };
        Some(match digits.len().checked_sub(scale) {
            _ if scale == 0 => format!("{sign}{digits}"),
            Some(whole) if whole > 0 => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
            _ => format!("{sign}0.{}{digits}", "0".repeat(scale - digits.len())),
        })
    }

    /// The position of the first digit: the value is 0.D... * 10^exponent. (Zero counts as having the digit 0.)
    fn exponent(&self) -> i64 {
        self.precision() as i64 - i64::from(self.scale)
    }

    /// The same value with the scale increased by `by` (0 or more).
    fn with_scale_grown(&self, by: i64) -> Result<Decimal, DecimalError> {
        if by == 0 {
            return Ok(self.clone());
        }
        let scale = checked_scale(i64::from(self.scale) + by)?;
        Ok(Decimal { unscaled: &self.unscaled * power_of_ten_checked(by)?, scale })
    }
}

/// The most digits of a number that is parsed, converted or calculated with, because that takes time quadratic in them.
pub const DIGITS_MAX: usize = 100_000;

/// The most zeros with which a number without an exponent is printed.
const PLAIN_ZEROS_MAX: i64 = 1_000_000;

fn checked_scale(scale: i64) -> Result<i32, DecimalError> {
    i32::try_from(scale).map_err(|_| DecimalError::ScaleOutOfRange)
}

fn power_of_ten(exponent: u32) -> BigUint {
    BigUint::from(10u32).pow(exponent)
}

fn power_of_ten_checked(exponent: i64) -> Result<BigInt, DecimalError> {
    if exponent > DIGITS_MAX as i64 {
        Err(DecimalError::TooManyDigits)
    } else {
        Ok(power_of_ten(exponent as u32).into())
    }
}

fn divide_half_up(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, remainder) = dividend.div_rem(divisor);
    let away = remainder.magnitude() * 2u32 >= *divisor.magnitude();
    match (away, dividend.sign() == divisor.sign()) {
        (false, _) => quotient,
        (true, true) => quotient + BigInt::one(),
        (true, false) => quotient - BigInt::one(),
    }
}

/// The number of decimal digits of `magnitude`; 1 for zero.
fn digits(magnitude: &BigUint) -> u64 {
    let bits = magnitude.bits();
    if bits <= 64 {
        let small = magnitude.iter_u64_digits().next().unwrap_or(0);
        return u64::from(small.checked_ilog10().unwrap_or(0)) + 1;
    }
    // At least 2^(bits - 1), which has floor((bits - 1) * log10(2)) + 1 digits; at most one digit more.
    let at_least = (u128::from(bits - 1) * 30_102_999_566_398_119 / 100_000_000_000_000_000) as u64 + 1;
    if *magnitude >= power_of_ten(at_least as u32) { at_least + 1 } else { at_least }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Decimal) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let sign = |value: &Decimal| match value.unscaled.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        };
        let order = sign(self).cmp(&sign(other));
        if order.is_ne() || self.is_zero() {
            return order;
        }
        let magnitudes = compare_magnitudes(self, other);
        if sign(self) < 0 { magnitudes.reverse() } else { magnitudes }
    }
}

/// Neither is zero. Scales are only aligned if the first digits have the same position, so that they differ no more
/// than the lengths of the operands.
fn compare_magnitudes(a: &Decimal, b: &Decimal) -> Ordering {
    a.exponent().cmp(&b.exponent()).then_with(|| {
        let difference = i64::from(a.scale) - i64::from(b.scale);
        let power = power_of_ten(difference.unsigned_abs() as u32);
        match difference {
            0 => a.unscaled.magnitude().cmp(b.unscaled.magnitude()),
            1.. => a.unscaled.magnitude().cmp(&(b.unscaled.magnitude() * power)),
            _ => (a.unscaled.magnitude() * power).cmp(b.unscaled.magnitude()),
        }
    })
}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let stripped = self.strip_trailing_zeros();
        stripped.unscaled.hash(state);
        stripped.scale.hash(state);
    }
}

impl fmt::Display for Decimal {
    /// Prints it as Java does: plain if the scale is not negative and the first digit is not too far after the point,
    /// otherwise with an exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.magnitude().to_string();
        let adjusted = digits.len() as i64 - 1 - i64::from(self.scale);
        if self.scale >= 0 && adjusted >= -6 {
            // The scale is at most six above the number of digits, so this always succeeds.
            return f.write_str(&self.to_plain_string().unwrap_or_default());
        }
        if self.unscaled.is_negative() {
            f.write_str("-")?;
        }
        let (first, rest) = digits.split_at(1);
        f.write_str(first)?;
        if !rest.is_empty() {
            write!(f, ".{rest}")?;
        }
        if adjusted == 0 { Ok(()) } else { write!(f, "E{adjusted:+}") }
    }
}
