//! Floats and doubles, printed as by Java 17, on which Cassandra runs.
//!
//! Nearly always that is the shortest decimal that reads back as the same number, but not quite: 1.0E23 prints as
//! 9.999999999999999E22. Results must have the same text, so this generates digits as Java does: free-format generation
//! with a margin of half a unit in the last place on either side, and slightly less precision at powers of two.

use std::cmp::Ordering;

use num_bigint::BigUint;

/// A double as Java prints it: `1.0`, `1.0E10`, `NaN`, `-Infinity`.
pub fn double(value: f64) -> String {
    let bits = value.to_bits();
    text(
        value.is_nan(),
        value.is_infinite(),
        value.is_sign_negative(),
        (bits >> 52 & 0x7ff) as i32,
        bits & MANTISSA,
        52,
    )
}

/// A float as Java prints it.
pub fn float(value: f32) -> String {
    let bits = value.to_bits();
    let fraction = u64::from(bits & 0x007f_ffff);
    // This is a float's exponent, rebiased below, and its fraction moved to a double's position.
    text(value.is_nan(), value.is_infinite(), value.is_sign_negative(), (bits >> 23 & 0xff) as i32, fraction, 23)
}

const MANTISSA: u64 = (1 << 52) - 1;
/// Bits of a double's fraction.
const FRACTION_BITS: i32 = 52;

fn text(nan: bool, infinite: bool, negative: bool, exponent: i32, fraction: u64, fraction_bits: i32) -> String {
    let sign = if negative { "-" } else { "" };
    if nan {
        return "NaN".into();
    }
    if infinite {
        return format!("{sign}Infinity");
    }
    if exponent == 0 && fraction == 0 {
        return format!("{sign}0.0");
    }
    let bias = if fraction_bits == FRACTION_BITS { 1023 } else { 127 };
    let number = if exponent == 0 {
        // A subnormal has fewer significant bits; they are moved up so that the first is where a normal number's hidden
        // bit is.
        let significant_bits = 64 - fraction.leading_zeros() as i32;
        let shift = fraction_bits + 1 - significant_bits;
        Binary {
            exponent: 1 - shift - bias,
            bits: fraction << shift << (FRACTION_BITS - fraction_bits),
            significant_bits,
        }
    } else {
        let bits = (fraction | 1 << fraction_bits) << (FRACTION_BITS - fraction_bits);
        Binary { exponent: exponent - bias, bits, significant_bits: fraction_bits + 1 }
    };
    format!("{sign}{}", number.digits().text())
}

/// `bits * 2^(exponent - 52)`, with bit 52 set.
struct Binary {
    exponent: i32,
    bits: u64,
    /// How many bits the format stores of this number: 53, 24, or fewer for subnormals.
    significant_bits: i32,
}

/// `0.d1d2d3... * 10^point`
struct Digits {
    digits: Vec<u8>,
    point: i32,
}

impl Binary {
    fn digits(&self) -> Digits {
        let tail = self.bits.trailing_zeros() as i32;
        let used_bits = FRACTION_BITS + 1 - tail;
        // The bits after the binary point.
        let behind = (used_bits - self.exponent - 1).max(0);
        if behind == 0 && (-21..=62).contains(&self.exponent) {
            return self.integer_digits();
        }
        self.generate(tail, used_bits, behind)
    }

    /// An integer below 2^63: its own digits, without those that the format cannot distinguish.
    fn integer_digits(&self) -> Digits {
        let mut value = if self.exponent >= FRACTION_BITS {
            self.bits << (self.exponent - FRACTION_BITS)
        } else {
            self.bits >> (FRACTION_BITS - self.exponent)
        };
        let excess = self.exponent - self.significant_bits - 1;
        let mut dropped = 0;
        if excess > 1 {
            // floor(excess * log10(2)) digits
            dropped = excess * 30_103 / 100_000;
            let power = 10u64.pow(dropped as u32);
            value = value / power + u64::from(value % power >= power / 2 && dropped > 0);
        }
        let text = value.to_string();
        let point = text.len() as i32 + dropped;
        let digits: Vec<u8> = text.trim_end_matches('0').bytes().map(|byte| byte - b'0').collect();
        Digits { digits, point }
    }

    /// With value = b / s * 10^e, generates the digits of b / s until the remainder is within m / s, half a unit in the
    /// last place.
    fn generate(&self, tail: i32, used_bits: i32, behind: i32) -> Digits {
        let e = self.estimate_decimal_exponent();
        let b5 = (-e).max(0);
        let s5 = e.max(0);
        let mut b2 = b5 + behind + self.exponent;
        let mut s2 = s5 + behind;
        let mut m2 = b2 - self.significant_bits;
        b2 -= used_bits - 1;
        let common = b2.min(s2);
        (b2, s2, m2) = (b2 - common, s2 - common, m2 - common);
        if used_bits == 1 {
            // Below a power of two numbers are twice as dense.
            m2 -= 1;
        }
        if m2 < 0 {
            (b2, s2, m2) = (b2 - m2, s2 - m2, 0);
        }
        let b_bits = used_bits + b2 + bits_of_power_of_five(b5);
        let ten_s_bits = s2 + 1 + bits_of_power_of_five(s5 + 1);
        let bits = self.bits >> tail;
        if b_bits < 64 && ten_s_bits < 64 {
            let five = |power: i32| 5i64.pow(power as u32);
            let s = five(s5) << s2;
            let narrow = b_bits < 32 && ten_s_bits < 32;
            let rest = Small { b: (bits as i64 * five(b5)) << b2, s, m: five(b5) << m2, ten_s: s * 10, narrow };
            return Digits::generate(rest, e);
        }
        let five = |power: i32| BigUint::from(5u32).pow(power as u32);
        let s = five(s5) << s2;
        let ten_s = &s * 10u32;
        Digits::generate(Large { b: (BigUint::from(bits) * five(b5)) << b2, s, m: five(b5) << m2, ten_s }, e)
    }

    /// The decimal exponent, or one more.
    fn estimate_decimal_exponent(&self) -> i32 {
        #[expect(clippy::approx_constant, reason = "Java's own approximation, to fifteen digits")]
        const LOG10_2: f64 = 0.301029995663981;
        let mantissa = f64::from_bits(1023 << 52 | self.bits & MANTISSA);
        let estimate = (mantissa - 1.5) * 0.289529654 + 0.176091259 + f64::from(self.exponent) * LOG10_2;
        estimate.floor() as i32
    }
}

/// The number of bits of 5^power; an upper bound for large powers.
fn bits_of_power_of_five(power: i32) -> i32 {
    match power {
        0 => 0,
        1..=26 => 128 - 5u128.pow(power as u32).leading_zeros() as i32,
        _ => power * 3,
    }
}

/// The remainder of a number while its digits are generated: b / s, with the margin m / s.
trait Rest {
    /// The next digit, and whether the remainder is within the margin of this digit (low) or of the next higher one
    /// (high).
    fn next_digit(&mut self) -> (u8, bool, bool);

    /// The remainder, compared with half of a unit in the last place.
    fn compare_to_half(&self) -> Ordering;
}

/// Java computes with ints or longs where b and 10 s fit, and lets the rest overflow. This code does the same, because
/// otherwise digits would differ.
struct Small {
    b: i64,
    s: i64,
    m: i64,
    ten_s: i64,
    /// Ints rather than longs.
    narrow: bool,
}

impl Small {
    fn wrap(&self, value: i64) -> i64 {
        if self.narrow { i64::from(value as i32) } else { value }
    }
}

impl Rest for Small {
    fn next_digit(&mut self) -> (u8, bool, bool) {
        let digit = (self.b / self.s) as u8;
        self.b = self.b % self.s * 10;
        self.m = self.wrap(self.m.wrapping_mul(10));
        if self.m <= 0 {
            return (digit, true, true);
        }
        (digit, self.b < self.m, self.wrap(self.b.wrapping_add(self.m)) > self.ten_s)
    }

    fn compare_to_half(&self) -> Ordering {
        self.wrap(self.wrap(self.b << 1).wrapping_sub(self.ten_s)).cmp(&0)
    }
}

struct Large {
    b: BigUint,
    s: BigUint,
    m: BigUint,
    ten_s: BigUint,
}

impl Rest for Large {
    fn next_digit(&mut self) -> (u8, bool, bool) {
        let digit = &self.b / &self.s;
        self.b = (&self.b - &digit * &self.s) * 10u32;
        self.m *= 10u32;
        let low = self.b < self.m;
        let high = &self.b + &self.m >= self.ten_s;
        (digit.iter_u32_digits().next().unwrap_or(0) as u8, low, high)
    }

    fn compare_to_half(&self) -> Ordering {
        (&self.b * 2u32).cmp(&self.ten_s)
    }
}

impl Digits {
    /// The digits of `rest` * 10^e, where e may be one too high, until the remainder is within the margin.
    fn generate(mut rest: impl Rest, mut e: i32) -> Digits {
        let mut digits = Vec::with_capacity(18);
        let (first, mut low, mut high) = rest.next_digit();
        if first == 0 && !high {
            e -= 1;
        } else {
            digits.push(first);
        }
        // With an exponent there is always a second digit, so the first one is never the last.
        if !(-3..8).contains(&e) {
            (low, high) = (false, false);
        }
        while !low && !high {
            let digit;
            (digit, low, high) = rest.next_digit();
            digits.push(digit);
        }
        let mut digits = Digits { digits, point: e + 1 };
        let odd = digits.digits.last().is_some_and(|digit| digit & 1 == 1);
        let half = rest.compare_to_half();
        if high && (!low || half.is_gt() || half.is_eq() && odd) {
            digits.round_up();
        }
        digits
    }

    fn round_up(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.point += 1;
        if let Some(first) = self.digits.first_mut() {
            *first = 1;
        }
    }

    /// Plain from 10^-3 up to 10^7, with an exponent outside of that range; always with a digit after the point.
    fn text(&self) -> String {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        match self.point {
            1..=7 => {
                let point = self.point as usize;
                if digits.len() <= point {
                    format!("{digits:0<point$}.0")
                } else {
                    format!("{}.{}", &digits[..point], &digits[point..])
                }
            }
            -2..=0 => format!("0.{}{digits}", "0".repeat(self.point.unsigned_abs() as usize)),
            _ => {
                let (first, rest) = digits.split_at(1);
                format!("{first}.{}E{}", if rest.is_empty() { "0" } else { rest }, self.point - 1)
            }
        }
    }
}
