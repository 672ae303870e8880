//! Takes the place of the engine and the parser until they are there. To be removed then.
#![allow(missing_docs)]

use std::sync::Arc;

use cql::SyntaxError;
use cql::ast::ParsedStatement;
use model::{BoxCursor, ReadError, ReadRange, Schema, Table};

#[derive(Debug)]
pub struct Engine {
    schema: Arc<Schema>,
}

impl Engine {
    pub fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }

    pub fn read<'c>(&'c self, _table: &'c Arc<Table>, _range: &ReadRange) -> Result<BoxCursor<'c>, ReadError> {
        Err(ReadError::Closed)
    }
}

pub fn parse(_text: &str) -> Result<ParsedStatement, SyntaxError> {
    Err(SyntaxError { message: "no parser yet".into() })
}

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
