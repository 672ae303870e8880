//! Decimals: a base-100 exponent, then the base-100 digits of the fraction, so that equal values of different scales
//! have one encoding.

use num_bigint::{BigInt, BigUint, Sign};
use types::Decimal;

use crate::reader::{DecodeError, Reader};

const ZERO: u8 = 0x80;
const POSITIVE: u8 = 0x80;
const NEGATIVE: u8 = 0x00;
/// Added to the sign in the header; then the length of the exponent is added or subtracted.
const EXPONENT_BASE: u8 = 0x40;
/// Added to each base-100 digit.
const DIGIT_BASE: u8 = 0x80;
const END: u8 = 0x00;
/// A decoded value that needs more zeros than this to be written out is treated as damage.
const ZEROS_MAX: u32 = 1_000_000;

/// Appends a serialized decimal (of four bytes at least).
pub(crate) fn encode(value: &[u8], out: &mut Vec<u8>) {
    let Some((scale, unscaled)) = value.split_first_chunk::<4>() else { return };
    let scale = i64::from(i32::from_be_bytes(*scale));
    // An odd scale is made even by one more digit, so that digits pair up around the point.
    let odd = scale & 1 != 0;
    let half_scale = (scale + i64::from(odd)) / 2;
    if unscaled.len() <= 8 {
        let fill = if unscaled.first().is_some_and(|&byte| byte >= 0x80) { -1 } else { 0 };
        let small = unscaled.iter().fold(fill, |value: i64, &byte| value << 8 | i64::from(byte));
        let magnitude = u128::from(small.unsigned_abs()) * if odd { 10 } else { 1 };
        let mut digits = [0; 10];
        let digits = small_digits(magnitude, &mut digits);
        encode_digits(small < 0, digits, digits.len() as i64 - half_scale, out);
    } else {
        let (sign, mut magnitude) = BigInt::from_signed_bytes_be(unscaled).into_parts();
        if odd {
            magnitude *= 10u32;
        }
        let digits = magnitude.to_radix_be(100);
        encode_digits(sign == Sign::Minus, &digits, digits.len() as i64 - half_scale, out);
    }
}

/// Base-100 digits, without leading zeros, at the end of `digits`.
fn small_digits(mut magnitude: u128, digits: &mut [u8; 10]) -> &[u8] {
    let mut start = digits.len();
    while magnitude > 0 && start > 0 {
        start -= 1;
        digits[start] = (magnitude % 100) as u8;
        magnitude /= 100;
    }
    &digits[start..]
}

/// Appends the value 0.digits * 100^exponent. There are no leading zero digits; no digits at all is zero.
fn encode_digits(negative: bool, digits: &[u8], exponent: i64, out: &mut Vec<u8>) {
    let significant = digits.iter().rposition(|&digit| digit != 0).map_or(0, |last| last + 1);
    let Some((&last, digits)) = digits[..significant].split_last() else {
        out.push(ZERO);
        return;
    };
    let exponent = if negative { -exponent } else { exponent };
    let length = (64 - exponent.unsigned_abs().leading_zeros()).div_ceil(8) as u8;
    let middle = EXPONENT_BASE + if negative { NEGATIVE } else { POSITIVE };
    out.push(if exponent < 0 { middle - length } else { middle + length });
    out.extend_from_slice(&exponent.to_be_bytes()[8 - usize::from(length)..]);
    if negative {
        // These are the digits of -0.d1d2.. with each step rounded down: d1, plus one if anything is left, then
        // complements.
        match digits.split_first() {
            None => out.push(DIGIT_BASE - last),
            Some((first, middle)) => {
                out.push(DIGIT_BASE - first - 1);
                out.extend(middle.iter().map(|digit| DIGIT_BASE + 99 - digit));
                out.push(DIGIT_BASE + 100 - last);
            }
        }
    } else {
        out.extend(digits.iter().map(|digit| DIGIT_BASE + digit));
        out.push(DIGIT_BASE + last);
    }
    out.push(END);
}

/// Appends the serialized decimal whose encoding comes next. Its scale is even, and may differ from the original's.
pub(crate) fn decode(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let header = reader.byte("a decimal")?;
    if header == ZERO {
        out.extend_from_slice(&[0; 5]);
        return Ok(());
    }
    let negative = header < ZERO;
    let sign = i64::from(header & 0x7f) - i64::from(EXPONENT_BASE);
    if sign.abs() > 4 {
        return Err(reader.error_before("the header of a decimal"));
    }
    let mut exponent = if sign < 0 { -1 } else { 0 };
    for _ in 0..sign.abs() {
        exponent = exponent << 8 | i64::from(reader.byte("the exponent of a decimal")?);
    }
    let exponent = if negative { -exponent } else { exponent };
    let mut digits = Vec::new();
    let first = decode_first_digit(reader, negative)?;
    digits.push(if negative { 0 } else { first });
    loop {
        match reader.byte("a digit of a decimal")? {
            END => break,
            byte @ DIGIT_BASE..=0xe3 => digits.push(byte - DIGIT_BASE),
            _ => return Err(reader.error_before("a digit of a decimal")),
        }
    }
    let places = digits.len() as i64;
    let mut unscaled = BigInt::from(BigUint::from_radix_be(&digits, 100).unwrap_or_default());
    if negative {
        unscaled -= BigInt::from(first) * power_of_ten(2 * (digits.len() as u32 - 1));
    }
    let decimal = with_scale_in_range(unscaled, 2 * (places - exponent))
        .ok_or_else(|| reader.error_before("a decimal whose scale is in range"))?;
    out.extend_from_slice(&decimal.to_bytes());
    Ok(())
}

/// The first digit's magnitude: 1 to 99, or up to 100 for negative values with further digits.
fn decode_first_digit(reader: &mut Reader<'_>, negative: bool) -> Result<u8, DecodeError> {
    let byte = reader.byte("the first digit of a decimal")?;
    let magnitude = if negative { DIGIT_BASE.checked_sub(byte) } else { byte.checked_sub(DIGIT_BASE) };
    match magnitude {
        Some(magnitude) if magnitude <= 99 + u8::from(negative) => Ok(magnitude),
        _ => Err(reader.error_before("the first digit of a decimal")),
    }
}

/// Brings a scale just outside of 32 bits, which comes from an original scale at the limit, back into range.
fn with_scale_in_range(mut unscaled: BigInt, scale: i64) -> Option<Decimal> {
    let scale_min = -i64::from(i32::MAX);
    let mut in_range = scale;
    if scale < scale_min {
        let zeros = u32::try_from(scale_min - scale).ok().filter(|&zeros| zeros <= ZEROS_MAX)?;
        unscaled *= power_of_ten(zeros);
        in_range = scale_min;
    } else if scale > i64::from(i32::MAX) {
        // Only the digit that made an odd scale even can be removed.
        let ten = BigInt::from(10);
        if scale != i64::from(i32::MAX) + 1 || &unscaled % &ten != BigInt::ZERO {
            return None;
        }
        unscaled /= ten;
        in_range -= 1;
    }
    Some(Decimal { unscaled, scale: i32::try_from(in_range).ok()? })
}

fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}
