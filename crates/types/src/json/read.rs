//! Parsing values from JSON, for `fromJson` and `INSERT JSON`.
//!
//! Error texts name JSON values as Cassandra's parser does, by Java class and Java's text for the value.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Number, Value};

use crate::collection;
use crate::{CqlType, Decimal, MarshalError, UserType, float_text, hex};

impl CqlType {
    /// Converts a JSON value to a serialized value of this type. Callers handle a JSON null, which is no value,
    /// beforehand. Every type accepts strings with its text form; for collections, tuples and user types they contain
    /// JSON.
    pub fn from_json(&self, json: &Value) -> Result<Vec<u8>, MarshalError> {
        match self {
            CqlType::Int => self.number_from_json(json, "an int value", integer::<i32>(json).map(i32::to_be_bytes)),
            CqlType::Bigint => {
                self.number_from_json(json, "a bigint value", integer::<i64>(json).map(i64::to_be_bytes))
            }
            CqlType::Smallint => self.small_from_json(json, "a short value"),
            CqlType::Tinyint => self.small_from_json(json, "a byte value"),
            CqlType::Float => self.number_from_json(json, "a float value", float(json).map(f32::to_be_bytes)),
            CqlType::Double => self.number_from_json(json, "a double value", double(json).map(f64::to_be_bytes)),
            CqlType::Varint => varint(json),
            CqlType::Decimal => decimal(json),
            CqlType::Boolean => match json {
                Value::Bool(value) => Ok(vec![u8::from(*value)]),
                _ => self.text_from_json(json, "a boolean value"),
            },
            CqlType::Blob | CqlType::Custom(_) => blob(json),
            CqlType::Text => self.text_from_json(json, "a UTF-8 string"),
            CqlType::Ascii => self.text_from_json(json, "an ascii string"),
            CqlType::Date => self.text_from_json(json, "a string representation of a date value"),
            CqlType::Time => self.text_from_json(json, "a string representation of a time value"),
            CqlType::Timestamp => {
                // A number that fits an int is not a long, and is refused.
                let millis = integer::<i64>(json).filter(|_| java_class(json) == "Long");
                let expected = "a long or a datestring representation of a timestamp value";
                self.number_from_json(json, expected, millis.map(i64::to_be_bytes))
            }
            CqlType::Uuid => self.text_from_json(json, "a string representation of a uuid"),
            CqlType::Timeuuid => self.text_from_json(json, "a string representation of a timeuuid"),
            CqlType::Inet => self.text_from_json(json, "a string representation of an inet value"),
            CqlType::Duration => self.text_from_json(json, "a string representation of a duration"),
            CqlType::Counter => Err(MarshalError::new("A counter has no JSON form to be read from")),
            CqlType::Empty => match json {
                Value::String(text) => self.from_text(text),
                _ => Err(MarshalError::new(format!("Expected an empty string, but got: {}", java_text(json)))),
            },
            _ => match json {
                Value::String(text) => self.structure_from_json(&decode(text)?),
                _ => self.structure_from_json(json),
            },
        }
    }

    /// Converts a string by its text form; other values are not expected.
    fn text_from_json(&self, json: &Value, expected: &str) -> Result<Vec<u8>, MarshalError> {
        match json {
            Value::String(text) => self.from_text(text),
            _ => Err(unexpected(expected, json)),
        }
    }

    fn number_from_json<const N: usize>(
        &self,
        json: &Value,
        expected: &str,
        number: Option<[u8; N]>,
    ) -> Result<Vec<u8>, MarshalError> {
        match number {
            Some(bytes) => Ok(bytes.to_vec()),
            None => self.text_from_json(json, expected),
        }
    }

    /// Converts a small integer, which accepts any number, as text.
    fn small_from_json(&self, json: &Value, expected: &str) -> Result<Vec<u8>, MarshalError> {
        match json {
            Value::Number(_) => self.from_text(&java_text(json)),
            _ => self.text_from_json(json, expected),
        }
    }

    fn structure_from_json(&self, json: &Value) -> Result<Vec<u8>, MarshalError> {
        match self {
            CqlType::List { element, .. } => {
                let parts = elements(element, json, "a list", "Invalid null element in list")?;
                Ok(collection::list(parts.iter().map(Vec::as_slice)))
            }
            CqlType::Set { element, .. } => {
                let mut parts = elements(element, json, "a list (representing a set)", "Invalid null element in set")?;
                parts.sort_by(|a, b| element.compare(a, b));
                parts.dedup_by(|a, b| element.compare(a, b).is_eq());
                Ok(collection::list(parts.iter().map(Vec::as_slice)))
            }
            CqlType::Map { key, value, .. } => map(key, value, json),
            CqlType::Vector { element, dimension } => vector(element, *dimension, json),
            CqlType::Tuple(types) => tuple(types, json),
            CqlType::Udt { definition, .. } => user_type(definition, json),
            _ => Err(unexpected("a list", json)),
        }
    }
}

fn decode(text: &str) -> Result<Value, MarshalError> {
    serde_json::from_str(text).map_err(|error| MarshalError::new(format!("Error decoding JSON string: {error}")))
}

fn unexpected(expected: &str, json: &Value) -> MarshalError {
    MarshalError::new(format!("Expected {expected}, but got a {}: {}", java_class(json), java_text(json)))
}

fn array<'a>(json: &'a Value, expected: &str) -> Result<&'a [Value], MarshalError> {
    json.as_array().map(Vec::as_slice).ok_or_else(|| unexpected(expected, json))
}

fn elements(element: &CqlType, json: &Value, expected: &str, null: &'static str) -> Result<Vec<Vec<u8>>, MarshalError> {
    let part = |json: &Value| if json.is_null() { Err(MarshalError::new(null)) } else { element.from_json(json) };
    array(json, expected)?.iter().map(part).collect()
}

fn map(key: &CqlType, mapped: &CqlType, json: &Value) -> Result<Vec<u8>, MarshalError> {
    let object = json.as_object().ok_or_else(|| unexpected("a map", json))?;
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(object.len());
    for (name, value) in object {
        if value.is_null() {
            return Err(MarshalError::new("Invalid null value in map"));
        }
        entries.push((key.from_json(&Value::String(name.clone()))?, mapped.from_json(value)?));
    }
    // The sort is stable: of equal keys the last one is kept.
    entries.sort_by(|(a, _), (b, _)| key.compare(a, b));
    entries.reverse();
    entries.dedup_by(|(a, _), (b, _)| key.compare(a, b).is_eq());
    entries.reverse();
    Ok(collection::map(entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))))
}

fn vector(element: &CqlType, dimension: u32, json: &Value) -> Result<Vec<u8>, MarshalError> {
    let given = array(json, "a list")?.len();
    if given != dimension as usize {
        return Err(MarshalError::new(format!(
            "List had incorrect size: expected {dimension} but given {given}; {}",
            java_text(json)
        )));
    }
    let parts = elements(element, json, "a list", "Invalid null element in list")?;
    Ok(collection::vector(element, parts.iter().map(Vec::as_slice)))
}

fn tuple(types: &[CqlType], json: &Value) -> Result<Vec<u8>, MarshalError> {
    let given = array(json, "a list representation of a tuple")?;
    let problem = match given.len().cmp(&types.len()) {
        std::cmp::Ordering::Greater => Some("contains extra items"),
        std::cmp::Ordering::Less => Some("is missing items"),
        std::cmp::Ordering::Equal => None,
    };
    if let Some(problem) = problem {
        let text = format!("Tuple {problem} (expected {}): {}", types.len(), java_text(json));
        return Err(MarshalError::new(text));
    }
    let mut out = Vec::new();
    for (cql_type, json) in types.iter().zip(given) {
        write_field(cql_type, json, &mut out)?;
    }
    Ok(out)
}

fn user_type(definition: &UserType, json: &Value) -> Result<Vec<u8>, MarshalError> {
    let object = json.as_object().ok_or_else(|| unexpected("a map", json))?;
    let mut given: BTreeMap<String, &Value> = BTreeMap::new();
    let mut order = Vec::new();
    for (name, value) in object {
        let name = name_from_json(name);
        order.push(name.clone());
        given.insert(name, value);
    }
    let mut out = Vec::new();
    for (name, field) in definition.fields() {
        write_field(field, given.get(&**name).copied().unwrap_or(&Value::Null), &mut out)?;
    }
    match order.iter().find(|name| definition.field_index(name).is_none()) {
        None => Ok(out),
        Some(name) => {
            Err(MarshalError::new(format!("Unknown field '{name}' in value of user defined type {}", definition.name)))
        }
    }
}

fn write_field(cql_type: &CqlType, json: &Value, out: &mut Vec<u8>) -> Result<(), MarshalError> {
    if json.is_null() {
        collection::write_part(None, out);
    } else {
        collection::write_part(Some(&cql_type.from_json(json)?), out);
    }
    Ok(())
}

/// The column or field that a name in a JSON object refers to: unchanged if it is in double quotes, otherwise in lower
/// case.
pub fn name_from_json(name: &str) -> String {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(exact) => exact.to_owned(),
        None => name.to_lowercase(),
    }
}

/// A number written without point and exponent, if it fits.
fn integer<T: std::str::FromStr>(json: &Value) -> Option<T> {
    match json {
        Value::Number(number) if is_integral(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

fn double(json: &Value) -> Option<f64> {
    match json {
        // Negative zero is an integer, which has only one zero.
        Value::Number(number) => number.as_str().parse().ok().map(|value: f64| normal_zero(number, value)),
        _ => None,
    }
}

/// A number with a point or exponent is converted to a double first, and so rounded twice.
fn float(json: &Value) -> Option<f32> {
    match json {
        Value::Number(number) if is_integral(number) => {
            number.as_str().parse().ok().map(|value: f32| if value == 0.0 { 0.0 } else { value })
        }
        _ => double(json).map(|value| value as f32),
    }
}

fn normal_zero(number: &Number, value: f64) -> f64 {
    if value == 0.0 && is_integral(number) { 0.0 } else { value }
}

fn varint(json: &Value) -> Result<Vec<u8>, MarshalError> {
    let text = java_text(json);
    CqlType::Varint
        .from_text(&text)
        .ok()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| MarshalError::new(format!("Value '{text}' is not a valid representation of a varint value")))
}

fn decimal(json: &Value) -> Result<Vec<u8>, MarshalError> {
    let text = java_text(json);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    match text.parse::<Decimal>() {
        Ok(value) => Ok(value.to_bytes()),
        Err(_) => Err(MarshalError::new(format!("Value '{text}' is not a valid representation of a decimal value"))),
    }
}

fn blob(json: &Value) -> Result<Vec<u8>, MarshalError> {
    let reason = match json {
        Value::String(text) => match text.strip_prefix("0x") {
            None => format!("String representation of blob is missing 0x prefix: {text}"),
            Some(digits) => match hex::parse(digits) {
                Some(bytes) => return Ok(bytes),
                None => format!("cannot parse '{digits}' as hex bytes"),
            },
        },
        _ => {
            let class = java_class(json);
            let package = match class {
                "ArrayList" | "LinkedHashMap" => "java.util",
                "BigInteger" => "java.math",
                _ => "java.lang",
            };
            format!(
                "class {package}.{class} cannot be cast to class java.lang.String ({package}.{class} and \
                 java.lang.String are in module java.base of loader 'bootstrap')"
            )
        }
    };
    let text = java_text(json);
    Err(MarshalError::new(format!("Value '{text}' is not a valid blob representation: {reason}")))
}

/// Whether a number was written without point and exponent.
fn is_integral(number: &Number) -> bool {
    !number.as_str().contains(['.', 'e', 'E'])
}

fn java_class(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "Boolean",
        Value::String(_) => "String",
        Value::Array(_) => "ArrayList",
        Value::Object(_) => "LinkedHashMap",
        Value::Number(number) if !is_integral(number) => "Double",
        Value::Number(_) if integer::<i32>(json).is_some() => "Integer",
        Value::Number(_) if integer::<i64>(json).is_some() => "Long",
        Value::Number(_) => "BigInteger",
    }
}

fn java_text(json: &Value) -> String {
    let mut out = String::new();
    write_java_text(json, &mut out);
    out
}

fn write_java_text(json: &Value, out: &mut String) {
    match json {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => {
            let _ = write!(out, "{value}");
        }
        Value::String(text) => out.push_str(text),
        Value::Number(number) if is_integral(number) => {
            let text = number.as_str();
            out.push_str(if text == "-0" { "0" } else { text });
        }
        Value::Number(_) => out.push_str(&float_text::double(double(json).unwrap_or(f64::NAN))),
        Value::Array(values) => {
            out.push('[');
            for (i, value) in values.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_java_text(value, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (i, (name, value)) in entries.iter().enumerate() {
                let separator = if i == 0 { "" } else { ", " };
                let _ = write!(out, "{separator}{name}=");
                write_java_text(value, out);
            }
            out.push('}');
        }
    }
}
