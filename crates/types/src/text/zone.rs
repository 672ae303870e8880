//! Time zones in the text of a timestamp.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::scan::Scanner;

/// How to convert local time to UTC.
pub(super) enum Zone {
    /// Seconds east of Greenwich.
    Offset(i64),
    Named(TimeZone),
}

/// Abbreviations and names that are not regions of the time zone database, with the region that each means.
const NAMES: &[(&str, &str)] = &[
    ("AEDT", "Australia/Sydney"),
    ("AEST", "Australia/Sydney"),
    ("AKDT", "America/Anchorage"),
    ("AKST", "America/Anchorage"),
    ("BST", "Pacific/Bougainville"),
    ("CDT", "America/Chicago"),
    ("CEST", "Europe/Paris"),
    ("CST", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("EST", "America/New_York"),
    ("EEST", "Europe/Helsinki"),
    ("HKT", "Asia/Hong_Kong"),
    ("IST", "UTC"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("MDT", "America/Denver"),
    ("MSK", "Europe/Moscow"),
    ("MST", "America/Denver"),
    ("NZDT", "Pacific/Auckland"),
    ("NZST", "Pacific/Auckland"),
    ("PDT", "America/Los_Angeles"),
    ("PST", "America/Los_Angeles"),
    ("SGT", "Asia/Singapore"),
    ("WEST", "Europe/Lisbon"),
    ("Central European Standard Time", "Europe/Paris"),
    ("Central European Summer Time", "Europe/Paris"),
    ("Central Standard Time", "America/Chicago"),
    ("Coordinated Universal Time", "UTC"),
    ("Eastern Standard Time", "America/New_York"),
    ("Greenwich Mean Time", "UTC"),
    ("Japan Standard Time", "Asia/Tokyo"),
    ("Mountain Standard Time", "America/Denver"),
    ("Pacific Standard Time", "America/Los_Angeles"),
];

impl Zone {
    /// The zone of this machine.
    pub(super) fn local() -> Zone {
        TimeZone::try_system().map_or(Zone::Offset(0), Zone::Named)
    }

    /// What may follow a date or time: nothing (`None`), an offset, or a blank and an offset or name.
    pub(super) fn parse(text: &str) -> Option<Zone> {
        let Some(name) = text.strip_prefix(' ') else {
            return offset(text).map(Zone::Offset);
        };
        offset(name).map(Zone::Offset).or_else(|| named(name))
    }

    /// Milliseconds since 1970 of this local time (milliseconds since 1970 as if in UTC).
    pub(super) fn to_utc(&self, local_millis: i64) -> Option<i64> {
        let seconds = match self {
            Zone::Offset(seconds) => *seconds,
            Zone::Named(zone) => offset_at(zone, local_millis),
        };
        local_millis.checked_sub(seconds * 1000)
    }
}

/// `Z`, `+hh`, `+hhmm` or `+hh:mm`, up to 18 hours either way, in seconds.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let mut scanner = Scanner(text);
    let negative = scanner.accept("-");
    if !negative && !scanner.accept("+") {
        return None;
    }
    let hours = scanner.number(2, 2)?;
    let minutes = if scanner.is_at_end() {
        0
    } else {
        scanner.accept(":");
        scanner.number(2, 2)?
    };
    let seconds = hours * 3600 + minutes * 60;
    if !scanner.is_at_end() || minutes > 59 || seconds > 18 * 3600 {
        return None;
    }
    Some(if negative { -seconds } else { seconds })
}

fn named(name: &str) -> Option<Zone> {
    if matches!(name, "UTC" | "UT" | "GMT") {
        return Some(Zone::Offset(0));
    }
    for prefix in ["UTC", "GMT", "UT"] {
        if let Some(rest) = name.strip_prefix(prefix).filter(|rest| rest.starts_with(['+', '-'])) {
            return offset(rest).map(Zone::Offset);
        }
    }
    let region = NAMES.iter().find(|(known, _)| *known == name).map_or(name, |(_, region)| region);
    let zone = TimeZone::get(region).ok()?;
    // The database accepts names in any case, but Java does not.
    (zone.iana_name() == Some(region)).then_some(Zone::Named(zone))
}

/// The offset at a local time, in seconds. In a gap it is the offset before the gap, which moves the time forward by
/// the gap; where a time occurs twice, it is the first one. Far in the past or future, it is that of the nearest year
/// in the database.
fn offset_at(zone: &TimeZone, local_millis: i64) -> i64 {
    let seconds = local_millis.div_euclid(1000);
    let clamped = seconds.clamp(Timestamp::MIN.as_second() + 200_000, Timestamp::MAX.as_second() - 200_000);
    let Ok(timestamp) = Timestamp::from_second(clamped) else { return 0 };
    let local: DateTime = TimeZone::UTC.to_datetime(timestamp);
    let offset = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
    };
    i64::from(offset.seconds())
}
