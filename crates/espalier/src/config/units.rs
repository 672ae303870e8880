//! Cassandra's units: durations, sizes, and the plain values around them.

use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A number with a unit, as `10s` or `32MiB`.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

/// The text of a scalar; `None` for lists, maps and null.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn expected<T>(value: &Value, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    scalar(value).as_deref().and_then(parse).ok_or_else(|| format!("expected {what}, got {value}"))
}

/// `10s`, `5000ms`, `1h`, ...
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    expected(value, "a duration such as 10s or 500ms (units ns, us, ms, s, m, h, d)", |text| {
        let (number, unit) = split(text)?;
        Some(match unit {
            "ns" => Duration::from_nanos(number),
            "us" | "µs" => Duration::from_micros(number),
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(3600)?),
            "d" => Duration::from_secs(number.checked_mul(86_400)?),
            _ => return None,
        })
    })
}

/// `32MiB`, `5KiB`, ... in bytes.
pub(super) fn size_bytes(value: &Value) -> Result<u64, String> {
    expected(value, "a size such as 32MiB (units B, KiB, MiB, GiB)", |text| {
        let (number, unit) = split(text)?;
        let unit_bytes = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        number.checked_mul(unit_bytes)
    })
}

/// `64MiB/s`, ... in bytes per second.
pub(super) fn bytes_per_second(value: &Value) -> Result<u64, String> {
    expected(value, "a rate such as 64MiB/s (units B/s, KiB/s, MiB/s)", |text| {
        let (number, unit) = split(text)?;
        let unit_bytes = match unit {
            "B/s" => 1,
            "KiB/s" => 1 << 10,
            "MiB/s" => 1 << 20,
            _ => return None,
        };
        number.checked_mul(unit_bytes)
    })
}

/// A number without unit.
pub(super) fn number<T: std::str::FromStr>(value: &Value) -> Result<T, String> {
    expected(value, "a number", |text| text.parse().ok())
}

/// A size within limits; `words` describes them.
pub(super) fn size_in(value: &Value, range: RangeInclusive<u64>, words: &str) -> Result<u64, String> {
    size_bytes(value).and_then(|size| match range.contains(&size) {
        true => Ok(size),
        false => Err(format!("expected a size {words}, got {value}")),
    })
}

/// Puts a value into its place, unless it is wrong.
pub(super) fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// `true` or `false`.
pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    expected(value, "true or false", |text| text.parse().ok())
}

/// Text of any kind.
pub(super) fn text(value: &Value) -> Result<String, String> {
    expected(value, "text", |text| Some(text.to_owned()))
}

/// The class of `class`, `{class_name: class}`, or a list of one of these; without its package.
pub(super) fn class_name(value: &Value) -> Result<String, String> {
    let named = match value {
        Value::Array(classes) => classes.first().unwrap_or(&Value::Null),
        other => other,
    };
    let named = named.get("class_name").unwrap_or(named);
    let class = text(named).map_err(|_| format!("expected a class name, got {value}"))?;
    Ok(class.rsplit('.').next().unwrap_or(&class).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cassandras_units_are_read() {
        assert_eq!(duration(&json!("10s")), Ok(Duration::from_secs(10)));
        assert_eq!(duration(&json!("5000ms")), Ok(Duration::from_secs(5)));
        assert_eq!(duration(&json!("3h")), Ok(Duration::from_secs(10_800)));
        assert_eq!(size_bytes(&json!("32MiB")), Ok(32 << 20));
        assert_eq!(size_bytes(&json!("16KiB")), Ok(16 << 10));
        assert_eq!(bytes_per_second(&json!("64MiB/s")), Ok(64 << 20));
    }

    #[test]
    fn values_without_a_known_unit_are_refused() {
        for bad in [json!(10), json!("10"), json!("10 s"), json!("10S"), json!("-1s"), json!("s"), json!(null)] {
            assert!(duration(&bad).is_err(), "{bad}");
        }
        for bad in [json!(32), json!("32MB"), json!("32mib"), json!("99999999999999GiB"), json!([])] {
            assert!(size_bytes(&bad).is_err() && bytes_per_second(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn classes_come_in_three_forms() {
        for form in [
            json!("org.apache.cassandra.auth.AllowAllAuthenticator"),
            json!({"class_name": "AllowAllAuthenticator"}),
            json!([{"class_name": "AllowAllAuthenticator"}]),
        ] {
            assert_eq!(class_name(&form).unwrap(), "AllowAllAuthenticator");
        }
    }
}
