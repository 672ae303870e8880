//! Times of day: `hh:mm:ss[.fffffffff]`, or nanoseconds.

use crate::MarshalError;
use crate::duration::{NANOS_PER_DAY, NANOS_PER_HOUR, NANOS_PER_MINUTE, NANOS_PER_SECOND};

pub(super) fn parse(text: &str) -> Result<i64, MarshalError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let in_day = |nanos: &i64| (0..NANOS_PER_DAY).contains(nanos);
        return text
            .parse()
            .ok()
            .filter(in_day)
            .ok_or_else(|| MarshalError::new(format!("Unable to make long (for time) from: '{text}'")));
    }
    clock(text.trim_matches(|c| c <= ' '))
        .ok_or_else(|| MarshalError::new(format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)")))
}

/// Any number of digits in each part, as long as its value is in range; at most nine after the point.
fn clock(text: &str) -> Option<i64> {
    let (hours, rest) = text.split_once(':')?;
    let (minutes, rest) = rest.split_once(':')?;
    let (seconds, nanos) = match rest.split_once('.') {
        None => (rest, 0),
        Some((seconds, fraction)) => {
            if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (seconds, format!("{fraction:0<9}").parse().ok()?)
        }
    };
    let part = |text: &str, limit: i64| text.parse().ok().filter(|number| (0..limit).contains(number));
    let whole = part(hours, 24)? * NANOS_PER_HOUR
        + part(minutes, 60)? * NANOS_PER_MINUTE
        + part(seconds, 60)? * NANOS_PER_SECOND;
    Some(whole + nanos)
}

/// A serialized time as text: always with nine digits after the point.
pub fn format_time(nanos: i64) -> String {
    // Values outside of a day are accepted from clients, and printed as Cassandra prints them, including signs.
    let parts = [
        nanos / NANOS_PER_HOUR % 24,
        nanos / NANOS_PER_MINUTE % 60,
        nanos / NANOS_PER_SECOND % 60,
        nanos / 1_000_000 % 1_000,
        nanos / 1_000 % 1_000,
        nanos % 1_000,
    ];
    let [hours, minutes, seconds] = [parts[0], parts[1], parts[2]].map(|part| padded(part, 2));
    let [millis, micros, nanos] = [parts[3], parts[4], parts[5]].map(|part| padded(part, 3));
    format!("{hours}:{minutes}:{seconds}.{millis}{micros}{nanos}")
}

fn padded(number: i64, digits: u32) -> String {
    let zeros = (1..digits).filter(|&i| number < 10i64.pow(i)).count();
    format!("{}{number}", "0".repeat(zeros))
}
