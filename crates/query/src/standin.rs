//! Takes the place of the text forms of values until they are there. To be removed then.
#![allow(missing_docs)]

/// Text forms of values until `types` has them.
pub trait TextForms {
    fn from_text(&self, text: &str) -> Result<Vec<u8>, types::MarshalError>;
    fn to_cql_literal(&self, bytes: &[u8]) -> String;
    fn to_json(&self, bytes: &[u8]) -> String;
    fn from_json(&self, value: &serde_json::Value) -> Result<Vec<u8>, types::MarshalError>;
}

impl TextForms for types::CqlType {
    fn from_text(&self, text: &str) -> Result<Vec<u8>, types::MarshalError> {
        Ok(text.as_bytes().to_vec())
    }
    fn to_cql_literal(&self, bytes: &[u8]) -> String {
        types::hex::to_string(bytes)
    }
    fn to_json(&self, bytes: &[u8]) -> String {
        types::hex::to_string(bytes)
    }
    fn from_json(&self, value: &serde_json::Value) -> Result<Vec<u8>, types::MarshalError> {
        Ok(value.to_string().into_bytes())
    }
}
