//! Timestamps: milliseconds, `now`, or a date with or without a time and a zone.

use std::time::{SystemTime, UNIX_EPOCH};

use super::date::{padded_year, resolve, scan_iso_day};
use super::zone::Zone;
use crate::MarshalError;
use crate::calendar::{Day, MILLIS_PER_DAY};
use crate::scan::Scanner;

const MILLIS_PER_HOUR: i64 = 3_600_000;
const MILLIS_PER_MINUTE: i64 = 60_000;

pub(super) fn parse(text: &str) -> Result<i64, MarshalError> {
    if text.eq_ignore_ascii_case("now") {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return Ok(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| MarshalError::new(format!("Unable to make long (for date) from: '{text}'")));
    }
    let (local, zone) = date_and_time(text)
        .or_else(|| date_only(text))
        .ok_or_else(|| MarshalError::new(format!("Unable to parse a date/time from '{text}'")))?;
    local.and_then(|millis| zone.to_utc(millis)).ok_or_else(|| MarshalError::new("long overflow"))
}

/// Local milliseconds since 1970 (`None` if they overflow), and their zone.
type Local = (Option<i64>, Zone);

/// `y-M-d H:m[:s[.fffffffff]]` or with a `T`, with any number of digits in each, then a zone.
fn date_and_time(text: &str) -> Option<Local> {
    const DIGITS_MAX: usize = 18;
    let mut scanner = Scanner(text);
    // The year is one of an era: there is no year 0 and nothing before.
    let year = scanner.number(1, DIGITS_MAX).filter(|year| (1..=999_999_999).contains(year))?;
    let month = scanner.accept("-").then(|| scanner.number(1, DIGITS_MAX))??;
    let day = scanner.accept("-").then(|| scanner.number(1, DIGITS_MAX))??;
    if !scanner.accept("T") && !scanner.accept(" ") {
        return None;
    }
    let hour = scanner.number(1, DIGITS_MAX)?;
    let minute = scanner.accept(":").then(|| scanner.number(1, DIGITS_MAX))??;
    let mut second = 0;
    let mut millis = 0;
    if scanner.accept(":") {
        second = scanner.number(1, DIGITS_MAX)?;
        if scanner.accept(".") {
            // Digits below a millisecond are dropped; a point needs at least one digit.
            let fraction = scanner.digits(9);
            millis = format!("{fraction:0<3}")[..3].parse().ok()?;
        }
    }
    let end_of_day = hour == 24 && minute == 0 && second == 0 && millis == 0;
    if !(hour < 24 || end_of_day) || minute > 59 || second > 59 {
        return None;
    }
    let day = resolve(year, month, day, true)?;
    let of_day = hour * MILLIS_PER_HOUR + minute * MILLIS_PER_MINUTE + second * 1000 + millis;
    local(day, of_day, scanner)
}

/// `yyyy-MM-dd`, then a zone.
fn date_only(text: &str) -> Option<Local> {
    let mut scanner = Scanner(text);
    let day = scan_iso_day(&mut scanner, true)?;
    local(day, 0, scanner)
}

fn local(day: Day, of_day: i64, scanner: Scanner<'_>) -> Option<Local> {
    let zone = if scanner.is_at_end() { Zone::local() } else { Zone::parse(scanner.0)? };
    Some((day.epoch_days().checked_mul(MILLIS_PER_DAY).and_then(|millis| millis.checked_add(of_day)), zone))
}

/// The separator of date and time: `T` in a literal, a blank in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    Literal,
    Json,
}

/// Milliseconds since 1970 as text, in UTC: `1970-01-01T00:00:00.000Z`. Years are those of an era, so that 2 BC prints
/// as 0002.
pub fn format_timestamp(millis: i64, separator: Separator) -> String {
    let Day { year, month, day } = Day::from_epoch_days(millis.div_euclid(MILLIS_PER_DAY));
    let of_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (hour, minute) = (of_day / MILLIS_PER_HOUR, of_day / MILLIS_PER_MINUTE % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    let separator = if separator == Separator::Literal { 'T' } else { ' ' };
    let year = padded_year(if year > 0 { year } else { 1 - year });
    format!("{year}-{month:02}-{day:02}{separator}{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}
