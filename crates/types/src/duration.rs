//! Durations: months, days and nanoseconds, which cannot be converted into each other.

use std::fmt;
use std::str::FromStr;

use crate::calendar::{Day, MILLIS_PER_DAY};
use crate::{MarshalError, vint};

/// A duration. The three parts have the same sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duration {
    pub months: i32,
    pub days: i32,
    pub nanoseconds: i64,
}

pub const NANOS_PER_MICRO: i64 = 1_000;
pub const NANOS_PER_MILLI: i64 = 1_000_000;
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;
pub const NANOS_PER_MINUTE: i64 = 60 * NANOS_PER_SECOND;
pub const NANOS_PER_HOUR: i64 = 60 * NANOS_PER_MINUTE;
pub const NANOS_PER_DAY: i64 = 24 * NANOS_PER_HOUR;

impl Duration {
    /// Reads the serialized form (three `svint`); `None` when cut short or out of range.
    pub fn from_bytes(mut value: &[u8]) -> Option<Duration> {
        let months = i32::try_from(vint::read_svint(&mut value)?).ok()?;
        let days = i32::try_from(vint::read_svint(&mut value)?).ok()?;
        let nanoseconds = vint::read_svint(&mut value)?;
        Some(Duration { months, days, nanoseconds })
    }

    /// The serialized form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        vint::write_svint(self.months.into(), &mut out);
        vint::write_svint(self.days.into(), &mut out);
        vint::write_svint(self.nanoseconds, &mut out);
        out
    }

    /// The time in milliseconds since 1970 that is this duration after `millis`. Months are added by the calendar (in
    /// UTC), up to the last day of a shorter month; then days, then milliseconds.
    pub fn add_to(&self, millis: i64) -> i64 {
        add(millis, self.months.into(), self.days.into(), self.nanoseconds)
    }

    /// The time that is this duration before `millis`.
    pub fn subtract_from(&self, millis: i64) -> i64 {
        add(millis, -i64::from(self.months), -i64::from(self.days), self.nanoseconds.wrapping_neg())
    }

    /// Whether any part is negative.
    pub fn is_negative(&self) -> bool {
        self.months < 0 || self.days < 0 || self.nanoseconds < 0
    }

    /// Whether it has no part below a day.
    pub fn has_day_precision(&self) -> bool {
        self.nanoseconds == 0
    }

    /// Whether it has no part below a millisecond.
    pub fn has_millisecond_precision(&self) -> bool {
        self.nanoseconds % NANOS_PER_MILLI == 0
    }
}

fn add(millis: i64, months: i64, days: i64, nanoseconds: i64) -> i64 {
    let mut shifted = millis;
    let mut added = nanoseconds / NANOS_PER_MILLI;
    if months != 0 {
        // Cassandra's calendar takes milliseconds in 32 bits, and this code has to match it.
        added = i64::from(added as i32);
        let day = Day::from_epoch_days(millis.div_euclid(MILLIS_PER_DAY)).add_months(months);
        let of_day = millis.rem_euclid(MILLIS_PER_DAY);
        shifted = day.epoch_days().wrapping_mul(MILLIS_PER_DAY).wrapping_add(of_day);
    }
    shifted.wrapping_add(days * MILLIS_PER_DAY).wrapping_add(added)
}

/// Checks the serialized form.
pub(crate) fn validate(value: &[u8]) -> Result<(), MarshalError> {
    let too_short = || MarshalError::new(format!("Expected at least 3 bytes for a duration ({})", value.len()));
    if value.len() < 3 {
        return Err(too_short());
    }
    let mut rest = value;
    let months = vint::read_svint(&mut rest).ok_or_else(too_short)?;
    let days = vint::read_svint(&mut rest).ok_or_else(too_short)?;
    let nanoseconds = vint::read_svint(&mut rest).ok_or_else(too_short)?;
    let integer = |part: &str, value: i64| {
        i32::try_from(value)
            .map_err(|_| MarshalError::new(format!("The duration {part} must be a 32 bits integer but was: {value}")))
    };
    let (months, days) = (integer("months", months)?, integer("days", days)?);
    let signs = [i64::from(months), i64::from(days), nanoseconds];
    if signs.iter().any(|&part| part < 0) && signs.iter().any(|&part| part > 0) {
        return Err(MarshalError::new(format!(
            "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanoseconds})"
        )));
    }
    Ok(())
}

impl fmt::Display for Duration {
    /// `1y2mo3d4h5m6s7ms8us9ns`, with a leading `-` if negative; zero is the empty text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negative() {
            f.write_str("-")?;
        }
        // The least integer has no positive counterpart; like Java, this prints nothing for it.
        write_units(f, self.months.wrapping_abs().into(), &[(12, "y"), (1, "mo")])?;
        write_units(f, self.days.wrapping_abs().into(), &[(1, "d")])?;
        write_units(
            f,
            self.nanoseconds.wrapping_abs(),
            &[
                (NANOS_PER_HOUR, "h"),
                (NANOS_PER_MINUTE, "m"),
                (NANOS_PER_SECOND, "s"),
                (NANOS_PER_MILLI, "ms"),
                (NANOS_PER_MICRO, "us"),
                (1, "ns"),
            ],
        )
    }
}

fn write_units(f: &mut fmt::Formatter<'_>, mut left: i64, units: &[(i64, &str)]) -> fmt::Result {
    for (size, symbol) in units {
        if left >= *size {
            write!(f, "{}{symbol}", left / size)?;
            left %= size;
        }
    }
    Ok(())
}

impl FromStr for Duration {
    type Err = MarshalError;

    /// Any of the three forms of CQL.
    fn from_str(text: &str) -> Result<Duration, MarshalError> {
        crate::text::parse_duration(text)
    }
}
