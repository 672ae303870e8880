//! Reading the vectors that Cassandra made.

use serde_json::Value;

pub fn byte_comparable() -> Value {
    serde_json::from_str(include_str!("../from_cassandra/5.0.8/vectors.json")).unwrap()
}

pub fn primitives() -> Value {
    serde_json::from_str(include_str!("../from_cassandra/5.0.8/primitives.json")).unwrap()
}

pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no {name}"))
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// The bytes of a hexadecimal field; `None` for a JSON null.
pub fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|hex| types::hex::parse(hex).unwrap())
}
