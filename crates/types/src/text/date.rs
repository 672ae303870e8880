//! Dates: `yyyy-mm-dd`, or the serialized number itself.

use crate::MarshalError;
use crate::calendar::{Day, days_in_month};
use crate::scan::Scanner;

/// The serialized form of 1970-01-01.
pub(crate) const EPOCH: i64 = 1 << 31;

/// The dates that Cassandra's texts name as the first and the last in range.
const FIRST: &str = "-5877641-06-23T00:00Z";
const LAST: &str = "+5881580-07-11T00:00Z";
/// Dates beyond this many days from 1970 are out of range even for the error text that names the limits.
const DAYS_MAX: i64 = i64::MAX / 86_400_000;

pub(super) fn parse(text: &str) -> Result<u32, MarshalError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text
            .parse::<i64>()
            .ok()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| MarshalError::new(format!("Unable to make unsigned int (for date) from: '{text}'")));
    }
    let unreadable = || MarshalError::new(format!("Unable to coerce '{text}' to a formatted date (long)"));
    let mut scanner = Scanner(text);
    let day = scan_iso_day(&mut scanner, false).filter(|_| scanner.is_at_end()).ok_or_else(unreadable)?;
    let days = day.epoch_days();
    if days.abs() > DAYS_MAX {
        return Err(unreadable());
    }
    u32::try_from(days + EPOCH).map_err(|_| {
        let (side, limit) = if days < 0 { ("less than min", FIRST) } else { ("greater than max", LAST) };
        MarshalError::new(format!("Input date {text} is {side} supported date {limit}"))
    })
}

/// `yyyy-mm-dd`: years of more than four digits have a sign, and years before 0 a minus. With `smart`, any day up to 31
/// means the last of a shorter month.
pub(super) fn scan_iso_day(scanner: &mut Scanner<'_>, smart: bool) -> Option<Day> {
    let positive = scanner.accept("+");
    let negative = !positive && scanner.accept("-");
    let before = scanner.0.len();
    let year = scanner.number(4, 10)?;
    let digits = before - scanner.0.len();
    // Only years that need a plus have one, and there is no year -0.
    let well_signed = if negative { year != 0 } else { positive == (digits > 4) };
    if !well_signed || year > 999_999_999 || !scanner.accept("-") {
        return None;
    }
    let month = scanner.number(2, 2)?;
    if !scanner.accept("-") {
        return None;
    }
    let day = scanner.number(2, 2)?;
    resolve(if negative { -year } else { year }, month, day, smart)
}

/// The day with these numbers, if there is one.
pub(super) fn resolve(year: i64, month: i64, day: i64, smart: bool) -> Option<Day> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (month, day) = (month as u8, day as u8);
    let last = days_in_month(year, month);
    if day > last && !smart {
        return None;
    }
    Some(Day { year, month, day: day.min(last) })
}

/// A serialized date as text.
pub fn format_date(date: u32) -> String {
    let Day { year, month, day } = Day::from_epoch_days(i64::from(date) - EPOCH);
    format!("{}-{month:02}-{day:02}", padded_year(year))
}

/// At least four digits; with a sign if there are more, or the year is before 0.
pub(super) fn padded_year(year: i64) -> String {
    match year {
        0..=9999 => format!("{year:04}"),
        _ if year > 0 => format!("+{year}"),
        _ => format!("-{:04}", year.unsigned_abs()),
    }
}
