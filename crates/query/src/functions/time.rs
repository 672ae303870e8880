//! Functions of time: the clock, conversions between kinds of time, rounding down.

use types::calendar::{Day, MILLIS_PER_DAY};
use types::{CqlType, Duration, timeuuid};

use super::Function;
use crate::QueryError;

/// A date is the number of days since 1970 plus this.
const DATE_ORIGIN: i64 = 1 << 31;

/// The functions of this name.
pub(super) fn functions(name: &str) -> Vec<Function> {
    match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => {
            vec![Function::scalar(name, vec![], CqlType::Timeuuid, |call, _| {
                Ok(Some(call.execution.processor.next_timeuuid().to_vec()))
            })]
        }
        "current_timestamp" | "currenttimestamp" => vec![clock(name, CqlType::Timestamp, i64::to_be_bytes)],
        "current_date" | "currentdate" => vec![clock(name, CqlType::Date, |millis| date_of(millis).to_be_bytes())],
        "current_time" | "currenttime" => {
            vec![clock(name, CqlType::Time, |millis| (millis.rem_euclid(MILLIS_PER_DAY) * 1_000_000).to_be_bytes())]
        }
        "uuid" => vec![Function::scalar(name, vec![], CqlType::Uuid, |_, _| {
            Ok(Some(uuid::Uuid::new_v4().into_bytes().to_vec()))
        })],
        "min_timeuuid" | "mintimeuuid" => vec![bounding_timeuuid(name, timeuuid::min_for_millis)],
        "max_timeuuid" | "maxtimeuuid" => vec![bounding_timeuuid(name, timeuuid::max_for_millis)],
        "to_date" | "todate" => [CqlType::Timeuuid, CqlType::Timestamp].map(|from| to_date(name, from)).into(),
        "to_timestamp" | "totimestamp" => {
            [CqlType::Timeuuid, CqlType::Date].map(|from| to_timestamp(name, from)).into()
        }
        "to_unix_timestamp" | "tounixtimestamp" => {
            [CqlType::Timeuuid, CqlType::Timestamp, CqlType::Date].map(|from| to_unix_timestamp(name, from)).into()
        }
        "floor" => floor_functions(),
        _ => Vec::new(),
    }
}

fn clock<const N: usize>(name: &str, ty: CqlType, of_millis: fn(i64) -> [u8; N]) -> Function {
    Function::scalar(name, vec![], ty, move |call, _| Ok(Some(of_millis(call.execution.now_micros / 1_000).to_vec())))
}

fn bounding_timeuuid(name: &str, of_millis: fn(i64) -> [u8; 16]) -> Function {
    Function::of_values(name, vec![CqlType::Timestamp], CqlType::Timeuuid, move |_, values| {
        Ok(long(values[0]).map(|millis| of_millis(millis).to_vec()))
    })
}

fn long(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

/// Milliseconds since 1970 of a timeuuid, timestamp or date.
fn millis_of(ty: &CqlType, bytes: &[u8]) -> Option<i64> {
    match ty {
        CqlType::Timeuuid => bytes.try_into().ok().map(|uuid| timeuuid::unix_millis(&uuid)),
        CqlType::Date => {
            let days = u32::from_be_bytes(bytes.try_into().ok()?);
            Some((i64::from(days) - DATE_ORIGIN) * MILLIS_PER_DAY)
        }
        _ => long(bytes),
    }
}

/// The day of a time. Before 1970 it is the next day, because Cassandra truncates towards zero.
fn date_of(millis: i64) -> u32 {
    (millis / MILLIS_PER_DAY + DATE_ORIGIN) as u32
}

/// The day of a timeuuid or timestamp.
pub(super) fn to_date(name: &str, from: CqlType) -> Function {
    Function::of_values(name, vec![from], CqlType::Date, |call, values| {
        Ok(millis_of(&call.function.arguments[0], values[0]).map(|millis| date_of(millis).to_be_bytes().to_vec()))
    })
    .monotonic()
}

/// The time of a timeuuid or date.
pub(super) fn to_timestamp(name: &str, from: CqlType) -> Function {
    to_millis(name, from, CqlType::Timestamp)
}

fn to_unix_timestamp(name: &str, from: CqlType) -> Function {
    to_millis(name, from, CqlType::Bigint)
}

fn to_millis(name: &str, from: CqlType, to: CqlType) -> Function {
    Function::of_values(name, vec![from], to, |call, values| {
        Ok(millis_of(&call.function.arguments[0], values[0]).map(|millis| millis.to_be_bytes().to_vec()))
    })
    .monotonic()
}

/// A timestamp moved by a duration.
pub(super) fn shift_timestamp(timestamp: &[u8], duration: &Duration, sign: i64) -> Result<Vec<u8>, String> {
    if !duration.has_millisecond_precision() {
        return Err(format!("The duration must have a millisecond precision. Was: {duration}"));
    }
    let millis = long(timestamp).ok_or("not a timestamp")?;
    Ok(moved(millis, duration, sign).to_be_bytes().to_vec())
}

/// A date moved by a duration.
pub(super) fn shift_date(date: &[u8], duration: &Duration, sign: i64) -> Result<Vec<u8>, String> {
    if !duration.has_day_precision() {
        return Err(format!("The duration must have a day precision. Was: {duration}"));
    }
    let millis = millis_of(&CqlType::Date, date).ok_or("not a date")?;
    Ok(date_of(moved(millis, duration, sign)).to_be_bytes().to_vec())
}

/// Milliseconds moved by a duration, or back by it if `sign` is negative.
fn moved(millis: i64, duration: &Duration, sign: i64) -> i64 {
    if sign < 0 { duration.subtract_from(millis) } else { duration.add_to(millis) }
}

/// Milliseconds moved by `times` durations: months first, then days, then the rest.
fn add(millis: i64, duration: &Duration, times: i64) -> i64 {
    let months = i64::from(duration.months).saturating_mul(times);
    let days = i64::from(duration.days).saturating_mul(times);
    let rest = (duration.nanoseconds / 1_000_000).saturating_mul(times);
    add_months(millis, months).saturating_add(days.saturating_mul(MILLIS_PER_DAY)).saturating_add(rest)
}

/// The same day and time in another month, or the last day of that month if it has no such day.
fn add_months(millis: i64, months: i64) -> i64 {
    if months == 0 {
        return millis;
    }
    let (days, time) = (millis.div_euclid(MILLIS_PER_DAY), millis.rem_euclid(MILLIS_PER_DAY));
    let days = Day::from_epoch_days(days).add_months(months).epoch_days();
    days.saturating_mul(MILLIS_PER_DAY).saturating_add(time)
}

/// The number of the month of a time, counted from the year 0.
fn month_of(millis: i64) -> i64 {
    let Day { year, month, .. } = Day::from_epoch_days(millis.div_euclid(MILLIS_PER_DAY));
    year * 12 + i64::from(month)
}

fn floor_functions() -> Vec<Function> {
    let mut functions = Vec::new();
    for (ty, start) in [
        (CqlType::Timestamp, CqlType::Timestamp),
        (CqlType::Timeuuid, CqlType::Timestamp),
        (CqlType::Date, CqlType::Date),
    ] {
        let returns = if ty == CqlType::Date { CqlType::Date } else { CqlType::Timestamp };
        functions.push(floor(vec![ty.clone(), CqlType::Duration], returns.clone()));
        functions.push(floor(vec![ty, CqlType::Duration, start], returns));
    }
    functions.push(floor_time());
    functions
}

fn floor(arguments: Vec<CqlType>, returns: CqlType) -> Function {
    Function::of_values("floor", arguments, returns, |call, values| {
        let types = &call.function.arguments;
        let Some(duration) = Duration::from_bytes(values[1]) else { return Ok(None) };
        let is_date = call.function.returns == CqlType::Date;
        if is_date && !duration.has_day_precision() {
            return Err(QueryError::invalid(format!(
                "The floor on date values cannot be computed for the {duration} duration as precision is below 1 day"
            )));
        }
        if !duration.has_millisecond_precision() {
            return Err(QueryError::invalid(format!(
                "The floor cannot be computed for the {duration} duration as precision is below 1 millisecond"
            )));
        }
        let start = values.get(2).map_or(Some(0), |start| millis_of(&types[2], start));
        let (Some(millis), Some(start)) = (millis_of(&types[0], values[0]), start) else { return Ok(None) };
        let floored = floor_millis(millis, &duration, start)?;
        Ok(Some(if is_date { date_of(floored).to_be_bytes().to_vec() } else { floored.to_be_bytes().to_vec() }))
    })
    .monotonic()
}

/// The latest time that is a whole number of durations after `start`, and not after `millis`. For durations of months,
/// Cassandra compares only the months, so a time whose day of the month is before that of `start` may get a floor that
/// is later than itself.
fn floor_millis(millis: i64, duration: &Duration, start: i64) -> Result<i64, QueryError> {
    if start > millis {
        return Err(QueryError::invalid("The floor function starting time is greater than the provided time"));
    }
    refuse_negative(duration)?;
    if duration.months == 0 {
        let step = i64::from(duration.days) * MILLIS_PER_DAY + duration.nanoseconds / 1_000_000;
        return Ok(if step == 0 { millis } else { millis - (millis - start) % step });
    }
    if duration.days == 0 && duration.nanoseconds == 0 {
        let months = i64::from(duration.months);
        return Ok(add_months(start, (month_of(millis) - month_of(start)) / months * months));
    }
    // A month has at least 28 days, so this number of steps is too large.
    let (mut low, mut high) = (0, (millis - start) / (28 * MILLIS_PER_DAY) + 2);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if add(start, duration, middle) <= millis { low = middle } else { high = middle }
    }
    Ok(add(start, duration, low))
}

fn refuse_negative(duration: &Duration) -> Result<(), QueryError> {
    if duration.is_negative() {
        return Err(QueryError::invalid("Negative durations are not supported by the floor function"));
    }
    Ok(())
}

fn floor_time() -> Function {
    Function::of_values("floor", vec![CqlType::Time, CqlType::Duration], CqlType::Time, |_, values| {
        let (Some(nanos), Some(duration)) = (long(values[0]), Duration::from_bytes(values[1])) else { return Ok(None) };
        refuse_negative(&duration)?;
        if duration.months != 0 || duration.days != 0 || duration.nanoseconds > types::duration::NANOS_PER_DAY {
            return Err(QueryError::invalid(
                "For time values, the floor can only be computed for durations smaller that a day",
            ));
        }
        let floored = if duration.nanoseconds == 0 { nanos } else { nanos - nanos % duration.nanoseconds };
        Ok(Some(floored.to_be_bytes().to_vec()))
    })
    .monotonic()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(year: i64, month: u8, day: u8) -> i64 {
        Day { year, month, day }.epoch_days() * MILLIS_PER_DAY
    }

    #[test]
    fn months_are_added_by_the_calendar() {
        let month = Duration { months: 1, days: 0, nanoseconds: 0 };
        assert_eq!(add(day(2024, 1, 31), &month, 1), day(2024, 2, 29));
        assert_eq!(add(day(2024, 3, 31), &month, -1), day(2024, 2, 29));
        assert_eq!(add(day(1969, 12, 15), &month, 2), day(1970, 2, 15));
    }

    #[test]
    fn a_moved_timestamp_has_the_milliseconds_of_cassandras_calendar() {
        let month_and_30_days = Duration { months: 1, days: 0, nanoseconds: 30 * 86_400_000_000_000 };
        let moved = shift_timestamp(&day(2024, 1, 1).to_be_bytes(), &month_and_30_days, 1).unwrap();
        let wrapped = i64::from((30 * MILLIS_PER_DAY) as i32);
        assert_eq!(moved, (day(2024, 2, 1) + wrapped).to_be_bytes());
    }

    #[test]
    fn floors_go_by_whole_durations_from_the_start() {
        let month = Duration { months: 1, days: 0, nanoseconds: 0 };
        assert_eq!(floor_millis(day(2024, 5, 17), &month, 0).unwrap(), day(2024, 5, 1));
        assert_eq!(floor_millis(day(2024, 5, 17), &month, day(2024, 1, 20)).unwrap(), day(2024, 5, 20));
        let month_and_day = Duration { months: 1, days: 1, nanoseconds: 0 };
        assert_eq!(floor_millis(day(2024, 5, 17), &month_and_day, day(2024, 1, 20)).unwrap(), day(2024, 4, 23));
        let hour = Duration { months: 0, days: 0, nanoseconds: 3_600_000_000_000 };
        assert_eq!(floor_millis(7_300_000, &hour, 0).unwrap(), 7_200_000);
        assert!(floor_millis(-1, &hour, 0).is_err());
    }
}
