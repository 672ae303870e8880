//! The exponential and logarithms of decimals, to as many digits as the argument has, and at least 32.
//!
//! They are computed in binary fixed point with guard bits, and rounded once.

use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{Decimal, DecimalError, power_of_ten_checked};

const DIGITS_MIN: u64 = 32;
const DIGITS_MAX: u64 = 10_000;
const GUARD_BITS: u64 = 96;
/// The exponential of anything greater has a scale that exceeds 32 bits.
const EXPONENT_MAX: f64 = 2_147_483_647.0 * std::f64::consts::LN_10;

impl Decimal {
    /// e to the power of this decimal.
    pub fn exp(&self) -> Result<Decimal, DecimalError> {
        if self.is_zero() {
            return Ok(Decimal::new(1, 0));
        }
        let approximate = self.to_f64();
        if approximate.abs() > EXPONENT_MAX {
            return Err(DecimalError::ScaleOutOfRange);
        }
        // e^x = 10^k * e^r, with r between 0 and ln 10.
        let digits = self.result_digits();
        let bits = bits_of(digits) + 64;
        let x = self.to_fixed(bits)?;
        let ln_10 = ln_10(bits);
        let k = num_integer::Integer::div_floor(&x, &ln_10);
        let power = exp_fixed(&(x - &k * ln_10), bits);
        let mut result = from_fixed(&power, bits, digits as i64 + 10)?;
        let scale = i64::from(result.scale) - k.to_i64().ok_or(DecimalError::ScaleOutOfRange)?;
        result.scale = i32::try_from(scale).map_err(|_| DecimalError::ScaleOutOfRange)?;
        result.rounded(digits)
    }

    /// The natural logarithm; `None` for zero and negative numbers.
    pub fn ln(&self) -> Option<Result<Decimal, DecimalError>> {
        self.logarithm(|fixed, _| fixed)
    }

    /// The logarithm to base 10; `None` for zero and negative numbers.
    pub fn log10(&self) -> Option<Result<Decimal, DecimalError>> {
        if self.strip_trailing_zeros().unscaled.is_one() {
            return Some(Ok(Decimal::new(self.exponent() - 1, 0)));
        }
        self.logarithm(|fixed, bits| (fixed << bits) / ln_10(bits))
    }

    fn logarithm(&self, finish: impl Fn(BigInt, u64) -> BigInt) -> Option<Result<Decimal, DecimalError>> {
        if !self.unscaled.is_positive() {
            return None;
        }
        let one = Decimal::new(1, 0);
        if *self == one {
            return Some(Ok(Decimal::new(0, 0)));
        }
        Some(self.subtract(&one).and_then(|distance| {
            // Close to 1 the result has as many leading zeros after the point as the distance from 1.
            let zeros = u64::try_from(-distance.exponent()).unwrap_or(0);
            let digits = self.result_digits();
            let bits = bits_of(digits + zeros) + 64;
            // x = m * 10^k, with m between 1 and 10.
            let k = self.exponent() - 1;
            let m = Decimal { unscaled: self.unscaled.clone(), scale: self.precision() as i32 - 1 }.to_fixed(bits)?;
            let result = finish(ln_fixed(&m, bits) + ln_10(bits) * k, bits);
            from_fixed(&result, bits, (digits + zeros) as i64 + 10)?.rounded(digits)
        }))
    }

    fn result_digits(&self) -> u64 {
        self.precision().clamp(DIGITS_MIN, DIGITS_MAX)
    }

    /// This decimal times 2^bits, rounded down.
    fn to_fixed(&self, bits: u64) -> Result<BigInt, DecimalError> {
        let scale = i64::from(self.scale);
        if self.exponent() < -(bits as i64) {
            return Ok(BigInt::zero());
        }
        Ok(if scale <= 0 {
            (&self.unscaled * power_of_ten_checked(-scale)?) << bits
        } else {
            (&self.unscaled << bits) / power_of_ten_checked(scale)?
        })
    }
}

/// The number of bits for this many decimal digits, plus guard bits.
fn bits_of(digits: u64) -> u64 {
    digits * 3_322 / 1_000 + GUARD_BITS
}

fn from_fixed(fixed: &BigInt, bits: u64, places: i64) -> Result<Decimal, DecimalError> {
    let unscaled: BigInt = (fixed * power_of_ten_checked(places)?) >> bits;
    Ok(Decimal { unscaled, scale: i32::try_from(places).map_err(|_| DecimalError::ScaleOutOfRange)? })
}

/// e^r for r between -3 and 3: Taylor's series for r / 2^n, squared n times.
fn exp_fixed(r: &BigInt, bits: u64) -> BigInt {
    let halvings = bits.isqrt();
    let bits_inside = bits + 2 * halvings;
    let r: BigInt = (r << (bits_inside - bits)) >> halvings;
    let one = BigInt::one() << bits_inside;
    let (mut sum, mut term) = (&one + &r, r.clone());
    let mut n = 2u32;
    while !term.is_zero() && n < u32::MAX {
        term = ((term * &r) >> bits_inside) / n;
        // A shift rounds down, so a small negative term would never become zero.
        if term == -BigInt::one() {
            break;
        }
        sum += &term;
        n += 1;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> bits_inside;
    }
    sum >> (bits_inside - bits)
}

/// ln m for m between 1 and 10, by Halley's iteration: each step triples the correct bits.
fn ln_fixed(m: &BigInt, bits: u64) -> BigInt {
    let head = (m >> (bits - 60)).to_f64().unwrap_or(1.0) / 2f64.powi(60);
    let mut y: BigInt = BigInt::from((head.ln() * 2f64.powi(60)) as i64) << (bits - 60);
    let mut right = 48;
    while right < bits {
        let power = exp_fixed(&y, bits);
        y += ((m - &power) << (bits + 1)) / (m + power);
        right *= 3;
    }
    y
}

/// ln 10 = 46 artanh(1/31) + 34 artanh(1/49) + 20 artanh(1/161)
fn ln_10(bits: u64) -> BigInt {
    let bits_inside = bits + 64;
    let sum = artanh_of_inverse(31, bits_inside) * 46
        + artanh_of_inverse(49, bits_inside) * 34
        + artanh_of_inverse(161, bits_inside) * 20;
    sum >> 64u32
}

fn artanh_of_inverse(n: u32, bits: u64) -> BigInt {
    let mut power = (BigInt::one() << bits) / n;
    let mut sum = power.clone();
    for k in (3u32..).step_by(2) {
        power /= n * n;
        if power.is_zero() {
            break;
        }
        sum += &power / k;
    }
    sum
}
