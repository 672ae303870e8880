//! Durations: `1y2mo3w4d5h6m7s8ms9us10ns`, ISO 8601's `P1Y2M3DT4H5M6S` and `P1W`, or `P0001-02-03T04:05:06`.

use crate::MarshalError;
use crate::duration::{Duration, NANOS_PER_HOUR, NANOS_PER_MICRO, NANOS_PER_MILLI, NANOS_PER_MINUTE, NANOS_PER_SECOND};
use crate::scan::Scanner;

pub(crate) fn parse(text: &str) -> Result<Duration, MarshalError> {
    let (negative, source) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut builder = Builder::default();
    let well_formed = if !source.starts_with('P') {
        units(source, &mut builder)?
    } else if source.ends_with('W') {
        iso_weeks(source, &mut builder)?
    } else if source.contains('-') {
        iso_alternative(source, &mut builder)?
    } else {
        iso_designators(source, &mut builder)?
    };
    if !well_formed {
        return Err(MarshalError::new(format!("Unable to convert '{source}' to a duration")));
    }
    Ok(builder.build(negative))
}

/// A unit, in the order in which they must occur.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Years,
    Months,
    Weeks,
    Days,
    Hours,
    Minutes,
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Years => "years",
            Unit::Months => "months",
            Unit::Weeks => "weeks",
            Unit::Days => "days",
            Unit::Hours => "hours",
            Unit::Minutes => "minutes",
            Unit::Seconds => "seconds",
            Unit::Millis => "milliseconds",
            Unit::Micros => "microseconds",
            Unit::Nanos => "nanoseconds",
        }
    }

    /// The unit with this symbol in either case, longest symbols first.
    fn scan(scanner: &mut Scanner<'_>) -> Option<Unit> {
        const SYMBOLS: [(&str, Unit); 11] = [
            ("mo", Unit::Months),
            ("ms", Unit::Millis),
            ("us", Unit::Micros),
            ("µs", Unit::Micros),
            ("ns", Unit::Nanos),
            ("y", Unit::Years),
            ("w", Unit::Weeks),
            ("d", Unit::Days),
            ("h", Unit::Hours),
            ("s", Unit::Seconds),
            ("m", Unit::Minutes),
        ];
        SYMBOLS.iter().find_map(|(symbol, unit)| {
            let head = scanner.0.get(..symbol.len())?;
            head.eq_ignore_ascii_case(symbol).then(|| {
                scanner.0 = &scanner.0[symbol.len()..];
                *unit
            })
        })
    }
}

#[derive(Default)]
struct Builder {
    months: i64,
    days: i64,
    nanoseconds: i64,
    last: Option<Unit>,
}

impl Builder {
    fn add(&mut self, digits: &str, unit: Unit) -> Result<(), MarshalError> {
        let number: i64 = digits.parse().map_err(|_| MarshalError::new(format!("For input string: \"{digits}\"")))?;
        if let Some(last) = self.last {
            if last == unit {
                let name = unit.name();
                return Err(MarshalError::new(format!("Invalid duration. The {name} are specified multiple times")));
            }
            if last > unit {
                let (last, name) = (last.name(), unit.name());
                return Err(MarshalError::new(format!("Invalid duration. The {last} should be after {name}")));
            }
        }
        self.last = Some(unit);
        let (total, factor, name, max) = match unit {
            Unit::Years => (&mut self.months, 12, "months", i64::from(i32::MAX)),
            Unit::Months => (&mut self.months, 1, "months", i64::from(i32::MAX)),
            Unit::Weeks => (&mut self.days, 7, "days", i64::from(i32::MAX)),
            Unit::Days => (&mut self.days, 1, "days", i64::from(i32::MAX)),
            Unit::Hours => (&mut self.nanoseconds, NANOS_PER_HOUR, "nanoseconds", i64::MAX),
            Unit::Minutes => (&mut self.nanoseconds, NANOS_PER_MINUTE, "nanoseconds", i64::MAX),
            Unit::Seconds => (&mut self.nanoseconds, NANOS_PER_SECOND, "nanoseconds", i64::MAX),
            Unit::Millis => (&mut self.nanoseconds, NANOS_PER_MILLI, "nanoseconds", i64::MAX),
            Unit::Micros => (&mut self.nanoseconds, NANOS_PER_MICRO, "nanoseconds", i64::MAX),
            Unit::Nanos => (&mut self.nanoseconds, 1, "nanoseconds", i64::MAX),
        };
        if number > (max - *total) / factor {
            // The text names the 32-bit limit for nanoseconds too.
            return Err(MarshalError::new(format!(
                "Invalid duration. The total number of {name} must be less or equal to 2147483647"
            )));
        }
        *total += number * factor;
        Ok(())
    }

    fn build(self, negative: bool) -> Duration {
        let sign = if negative { -1 } else { 1 };
        Duration {
            // Both were checked to be at most i32::MAX.
            months: self.months as i32 * sign,
            days: self.days as i32 * sign,
            nanoseconds: self.nanoseconds * i64::from(sign),
        }
    }
}

fn units(source: &str, builder: &mut Builder) -> Result<bool, MarshalError> {
    let mut scanner = Scanner(source);
    while !scanner.is_at_end() {
        let digits = scanner.digits(usize::MAX);
        match Unit::scan(&mut scanner) {
            Some(unit) if !digits.is_empty() => builder.add(digits, unit)?,
            _ => return Ok(false),
        }
    }
    Ok(!source.is_empty())
}

fn iso_weeks(source: &str, builder: &mut Builder) -> Result<bool, MarshalError> {
    let digits = &source[1..source.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(false);
    }
    builder.add(digits, Unit::Weeks)?;
    Ok(true)
}

fn iso_designators(source: &str, builder: &mut Builder) -> Result<bool, MarshalError> {
    let (date, time) = match source[1..].split_once('T') {
        Some((date, time)) => (date, time),
        None => (&source[1..], ""),
    };
    let date_parts = [("Y", Unit::Years), ("M", Unit::Months), ("D", Unit::Days)];
    let time_parts = [("H", Unit::Hours), ("M", Unit::Minutes), ("S", Unit::Seconds)];
    let (Some(date), Some(time)) = (designated(date, date_parts), designated(time, time_parts)) else {
        return Ok(false);
    };
    for (digits, unit) in date.into_iter().chain(time) {
        builder.add(digits, unit)?;
    }
    Ok(true)
}

/// The digits before each of these letters that is present; the letters are in order, and nothing else is allowed.
fn designated<'a>(text: &'a str, parts: [(&str, Unit); 3]) -> Option<Vec<(&'a str, Unit)>> {
    let mut scanner = Scanner(text);
    let mut found = Vec::new();
    for (letter, unit) in parts {
        let mut ahead = scanner;
        let digits = ahead.digits(usize::MAX);
        if !digits.is_empty() && ahead.accept(letter) {
            found.push((digits, unit));
            scanner = ahead;
        }
    }
    scanner.is_at_end().then_some(found)
}

fn iso_alternative(source: &str, builder: &mut Builder) -> Result<bool, MarshalError> {
    const PARTS: [(&str, usize, Unit); 6] = [
        ("P", 4, Unit::Years),
        ("-", 2, Unit::Months),
        ("-", 2, Unit::Days),
        ("T", 2, Unit::Hours),
        (":", 2, Unit::Minutes),
        (":", 2, Unit::Seconds),
    ];
    let mut scanner = Scanner(source);
    let mut found = Vec::new();
    for (before, length, unit) in PARTS {
        let digits = if scanner.accept(before) { scanner.digits(length) } else { "" };
        if digits.len() != length {
            return Ok(false);
        }
        found.push((digits, unit));
    }
    if !scanner.is_at_end() {
        return Ok(false);
    }
    for (digits, unit) in found {
        builder.add(digits, unit)?;
    }
    Ok(true)
}
