//! Checking whether bytes are a value of a type, with Cassandra's error texts.

use crate::collection::{self, Parts, read_part};
use crate::{CqlType, LEGACY_TIMEUUID, LEXICAL_UUID, MarshalError, UserType, duration, hex, utf8};

impl CqlType {
    /// Checks that `value` is a serialized value of this type. A zero-length value is accepted where Cassandra accepts
    /// it.
    pub fn validate(&self, value: &[u8]) -> Result<(), MarshalError> {
        match self {
            CqlType::Blob | CqlType::Varint => Ok(()),
            CqlType::Custom(class) => validate_custom(class, value),
            CqlType::Text => utf8::validate(value),
            CqlType::Ascii => validate_ascii(value),
            CqlType::Boolean if value.len() > 1 => wrong_length("Expected 1 or 0 byte value", value),
            CqlType::Tinyint if value.len() != 1 => wrong_length("Expected 1 byte for a tinyint", value),
            CqlType::Smallint if value.len() != 2 => wrong_length("Expected 2 bytes for a smallint", value),
            CqlType::Int if !matches!(value.len(), 0 | 4) => wrong_length("Expected 4 or 0 byte int", value),
            CqlType::Float if !matches!(value.len(), 0 | 4) => {
                wrong_length("Expected 4 or 0 byte value for a float", value)
            }
            CqlType::Bigint | CqlType::Counter if !matches!(value.len(), 0 | 8) => {
                wrong_length("Expected 8 or 0 byte long", value)
            }
            CqlType::Double if !matches!(value.len(), 0 | 8) => {
                wrong_length("Expected 8 or 0 byte value for a double", value)
            }
            CqlType::Timestamp if !matches!(value.len(), 0 | 8) => {
                wrong_length("Expected 8 or 0 byte long for date", value)
            }
            CqlType::Date if value.len() != 4 => wrong_length("Expected 4 byte long for date", value),
            CqlType::Time if value.len() != 8 => wrong_length("Expected 8 byte long for time", value),
            CqlType::Decimal if !value.is_empty() && value.len() < 4 => {
                wrong_length("Expected 0 or at least 4 bytes", value)
            }
            CqlType::Uuid | CqlType::Timeuuid if !matches!(value.len(), 0 | 16) => {
                wrong_length("UUID should be 16 or 0 bytes", value)
            }
            CqlType::Timeuuid => validate_version(value),
            CqlType::Inet if !matches!(value.len(), 0 | 4 | 16) => {
                Err(MarshalError::new(format!("Expected 4 or 16 byte inetaddress; got {}", hex::to_string(value))))
            }
            CqlType::Empty if !value.is_empty() => Err(MarshalError::new("EmptyType only accept empty values")),
            CqlType::Duration => duration::validate(value),
            CqlType::List { element, .. } => validate_list(element, value),
            CqlType::Set { element, .. } => validate_set(element, value),
            CqlType::Map { key, value: mapped, .. } => validate_map(key, mapped, value),
            CqlType::Tuple(elements) => validate_tuple(elements, value),
            CqlType::Udt { definition, .. } => validate_udt(definition, value),
            CqlType::Vector { element, dimension } => self.validate_vector(element, *dimension, value),
            _ => Ok(()),
        }
    }

    fn validate_vector(&self, element: &CqlType, dimension: u32, value: &[u8]) -> Result<(), MarshalError> {
        if value.is_empty() {
            return Err(MarshalError::new("Invalid empty vector value"));
        }
        let mut elements = collection::vector_elements(element, dimension, value);
        for part in elements.by_ref() {
            let part = part.map_err(|_| MarshalError::new(format!("Not enough bytes to read a {self}")))?;
            element.validate(part)?;
        }
        match elements.rest().len() {
            0 => Ok(()),
            extra => Err(MarshalError::new(format!("Unexpected {extra} extraneous bytes after {self} value"))),
        }
    }
}

fn wrong_length(expected: &str, value: &[u8]) -> Result<(), MarshalError> {
    Err(MarshalError::new(format!("{expected} ({})", value.len())))
}

fn validate_ascii(value: &[u8]) -> Result<(), MarshalError> {
    match value.iter().find(|byte| !byte.is_ascii()) {
        None => Ok(()),
        Some(&byte) => Err(MarshalError::new(format!("Invalid byte for ascii: {}", byte as i8))),
    }
}

/// Cassandra's text names the first digit of the value, not its version digit, and so does this one.
fn validate_version(value: &[u8]) -> Result<(), MarshalError> {
    match (value.first(), value.get(6)) {
        (Some(first), Some(version)) if version >> 4 != 1 => {
            Err(MarshalError::new(format!("Invalid version for TimeUUID type: 0x{:x}", first >> 4)))
        }
        _ => Ok(()),
    }
}

fn validate_custom(class: &str, value: &[u8]) -> Result<(), MarshalError> {
    match class {
        LEGACY_TIMEUUID => CqlType::Timeuuid.validate(value),
        LEXICAL_UUID if !matches!(value.len(), 0 | 16) => wrong_length("LexicalUUID should be 16 or 0 bytes", value),
        _ => Ok(()),
    }
}

fn validate_list(element: &CqlType, value: &[u8]) -> Result<(), MarshalError> {
    let cut_short = || MarshalError::new("Not enough bytes to read a list");
    let mut parts = collection::elements(value).map_err(|_| cut_short())?;
    for part in parts.by_ref() {
        let part = part.map_err(|_| cut_short())?;
        element.validate(part.ok_or_else(|| MarshalError::new(collection::NULL_NOT_ALLOWED))?)?;
    }
    nothing_after(&parts, "Unexpected extraneous bytes after list value")
}

fn validate_set(element: &CqlType, value: &[u8]) -> Result<(), MarshalError> {
    let cut_short = || MarshalError::new("Not enough bytes to read a set");
    let mut parts = collection::elements(value).map_err(|_| cut_short())?;
    for part in parts.by_ref() {
        let part = part.map_err(|_| cut_short())?;
        element.validate(part.ok_or_else(|| MarshalError::new(collection::NULL_NOT_ALLOWED))?)?;
    }
    nothing_after(&parts, "Unexpected extraneous bytes after set value")
}

fn validate_map(key: &CqlType, mapped: &CqlType, value: &[u8]) -> Result<(), MarshalError> {
    let mut parts = collection::entries(value)?;
    // Key by key, because the errors of a key come before those of its value.
    while let Some(part) = parts.next_non_null() {
        key.validate(part?)?;
        if let Some(part) = parts.next_non_null() {
            mapped.validate(part?)?;
        }
    }
    nothing_after(&parts, "Unexpected extraneous bytes after map value")
}

fn nothing_after(parts: &Parts<'_>, otherwise: &'static str) -> Result<(), MarshalError> {
    if parts.rest().is_empty() { Ok(()) } else { Err(MarshalError::new(otherwise)) }
}

fn validate_tuple(elements: &[CqlType], value: &[u8]) -> Result<(), MarshalError> {
    let mut rest = value;
    for (i, element) in elements.iter().enumerate() {
        if rest.is_empty() {
            return Ok(());
        }
        if rest.len() < 4 {
            return Err(MarshalError::new(format!("Not enough bytes to read size of {i}th component")));
        }
        match read_part(&mut rest) {
            None => return Err(MarshalError::new(format!("Not enough bytes to read {i}th component"))),
            Some(None) => {}
            Some(Some(part)) => element.validate(part)?,
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(MarshalError::new("Invalid remaining data after end of tuple value")) }
}

fn validate_udt(definition: &UserType, value: &[u8]) -> Result<(), MarshalError> {
    let mut rest = value;
    for (i, (name, field)) in definition.fields().iter().enumerate() {
        if rest.is_empty() {
            return Ok(());
        }
        if rest.len() < 4 {
            return Err(MarshalError::new(format!("Not enough bytes to read size of {i}th field {name}")));
        }
        match read_part(&mut rest) {
            None => return Err(MarshalError::new(format!("Not enough bytes to read {i}th field {name}"))),
            Some(None) => {}
            Some(Some(part)) => field
                .validate(part)
                .map_err(|error| MarshalError::new(format!("Failure validating the {i}th field {name}; {error}")))?,
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(MarshalError::new("Invalid remaining data after end of UDT value")) }
}
