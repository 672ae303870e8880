//! Reading `WITH` properties, with Cassandra's texts for values of the wrong kind.

use std::collections::BTreeMap;

use cql::ast::{Properties, PropertyValue};

use crate::QueryError;

/// Refuses properties that are not among `known`.
pub(super) fn check_known(properties: &Properties, known: &[&str]) -> Result<(), QueryError> {
    match properties.entries.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(QueryError::syntax(format!("Unknown property '{name}'"))),
        None => Ok(()),
    }
}

/// A property that is a constant.
pub(super) fn text<'p>(properties: &'p Properties, name: &str) -> Result<Option<&'p str>, QueryError> {
    match properties.get(name) {
        None => Ok(None),
        Some(PropertyValue::Text(text)) => Ok(Some(text)),
        Some(PropertyValue::Map(_)) => {
            Err(QueryError::syntax(format!("Invalid value for property '{name}'. It should be a string.")))
        }
    }
}

/// A property that is a map.
pub(super) fn map(properties: &Properties, name: &str) -> Result<Option<BTreeMap<String, String>>, QueryError> {
    match properties.get(name) {
        None => Ok(None),
        Some(PropertyValue::Map(entries)) => Ok(Some(entries.iter().cloned().collect())),
        Some(PropertyValue::Text(_)) => {
            Err(QueryError::syntax(format!("Invalid value for property '{name}'. It should be a map.")))
        }
    }
}

/// A property that is an integer.
pub(super) fn integer(properties: &Properties, name: &str) -> Result<Option<i32>, QueryError> {
    let parse =
        |text: &str| text.parse().map_err(|_| QueryError::syntax(format!("Invalid integer value {text} for '{name}'")));
    text(properties, name)?.map(parse).transpose()
}

/// A property that is a floating-point number.
pub(super) fn double(properties: &Properties, name: &str) -> Result<Option<f64>, QueryError> {
    let parse =
        |text: &str| text.parse().map_err(|_| QueryError::syntax(format!("Invalid double value {text} for '{name}'")));
    text(properties, name)?.map(parse).transpose()
}

/// A property that is a boolean.
pub(super) fn boolean(properties: &Properties, name: &str) -> Result<Option<bool>, QueryError> {
    let parse = |text: &str| match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(QueryError::syntax(format!(
            "Invalid boolean value {text} for '{name}'. Positive values can be '1', 'true' or 'yes'. Negative values can be '0', 'false' or 'no'."
        ))),
    };
    text(properties, name)?.map(parse).transpose()
}
