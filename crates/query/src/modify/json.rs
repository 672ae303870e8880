//! INSERT JSON.

use std::collections::HashMap;

use cql::ast::{Conditions, InsertJson, JsonValue};
use model::{Column, ColumnKind, Table, TableForm};
use serde_json::{Map, Value as Json};
use types::identifier::Quoted;
use types::json::name_from_json;
use types::{CqlType, utf8};

use super::change::{Change, Changes};
use super::plan::Modification;
use super::statements::{Start, refuse_counters};
use super::target::ModificationTarget;
use crate::execution::Execution;
use crate::names::columns_in_hash_order;
use crate::preparing::Preparing;
use crate::restrictions::{RowTarget, StatementType};
use crate::terms::{JACKSON, SOURCE, Term, unreadable_json};
use crate::{ColumnSpec, ErrorKind, QueryError, Value};

/// An INSERT JSON whose document is a bind marker.
#[derive(Debug)]
pub(super) struct MarkerDocument {
    pub start: Start,
    marker: usize,
    default_unset: bool,
}

/// A prepared INSERT JSON.
pub(super) enum InsertDocument {
    /// The statement contained the document.
    Known(Box<Modification>),
    Marker(Box<MarkerDocument>),
}

/// Prepares an INSERT JSON.
pub(super) fn prepare(insert: &InsertJson, preparing: &mut Preparing<'_>) -> Result<InsertDocument, QueryError> {
    let conditions = if insert.if_not_exists { Conditions::NotExists } else { Conditions::None };
    let start = Start::prepare(&insert.table, &insert.attributes, &conditions, preparing)?;
    refuse_counters(&start.table)?;
    match &insert.value {
        JsonValue::Marker(_) if start.table.form() == TableForm::StaticCompact => Err(hidden_clustering(&start.table)),
        JsonValue::Literal(text) => {
            let modification = resolve(start, text, insert.default_unset)?;
            Ok(InsertDocument::Known(Box::new(modification)))
        }
        JsonValue::Marker(marker) => {
            let (keyspace, table) = (start.table.keyspace.clone(), start.table.name.clone());
            preparing.bind(marker, &ColumnSpec { keyspace, table, name: "[json]".into(), ty: CqlType::Text });
            let (marker, default_unset) = (marker.index, insert.default_unset);
            Ok(InsertDocument::Marker(Box::new(MarkerDocument { start, marker, default_unset })))
        }
    }
}

impl MarkerDocument {
    /// The INSERT of the document in this execution.
    pub fn resolve(&self, execution: &Execution<'_>) -> Result<Modification, QueryError> {
        let text = match execution.value(self.marker)? {
            Value::Null => return Err(no_document()),
            Value::Unset => "".into(),
            Value::Bytes(bytes) => {
                CqlType::Text.validate(bytes)?;
                utf8::to_str(bytes)
            }
        };
        charge_document(&text, execution)?;
        resolve(self.start.clone(), &text, self.default_unset)
    }
}

/// The memory and the work that a value in a document takes.
const VALUE_BYTES: usize = 160;
const VALUES_PER_STEP: usize = 4;

/// Charges the statement's budget with the memory and the work for reading a document.
fn charge_document(text: &str, execution: &Execution<'_>) -> Result<(), QueryError> {
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    execution.work((values / VALUES_PER_STEP) as u64)?;
    execution.charge(values.saturating_mul(VALUE_BYTES)).map_err(|error| match error.kind {
        ErrorKind::Overloaded => error,
        _ => QueryError::invalid(error.message),
    })
}

fn no_document() -> QueryError {
    QueryError::invalid("Got null for INSERT JSON values")
}

/// The INSERT of a document.
fn resolve(start: Start, text: &str, default_unset: bool) -> Result<Modification, QueryError> {
    let values = read(text, &start.table)?;
    if start.table.form() == TableForm::StaticCompact {
        return Err(hidden_clustering(&start.table));
    }
    let given = |column: &Column| values.get(&*column.name);
    let mut changes = Changes::default();
    for column in start.table.columns_in_select_order() {
        let is_key = matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        match given(&column) {
            _ if is_key => {}
            None if default_unset => {}
            value => {
                let bytes = value.cloned().flatten().map(Vec::into_boxed_slice);
                changes.push(&start.table, &column, Change::Set(Term::Value(bytes)))?;
            }
        }
    }
    // A missing key column is refused at execution.
    let target = RowTarget::of_values(&start.table, |column| match given(column) {
        None if default_unset => Term::Unset,
        value => Term::Value(value.cloned().flatten().map(Vec::into_boxed_slice)),
    });
    let modification = start.finish(StatementType::Insert, changes, ModificationTarget::Row(target))?;
    // A document names all columns, also those that it leaves as they are.
    let names_statics = modification.table.has_statics();
    Ok(Modification { names_statics, ..modification })
}

/// A document names all columns, also those that a table with COMPACT STORAGE hides, as in Cassandra.
fn hidden_clustering(table: &Table) -> QueryError {
    let column = table.clustering().first().map_or("", |column| &column.name);
    let (keyspace, table) = (Quoted(&table.keyspace), Quoted(&table.name));
    QueryError::invalid(format!("Undefined column name {} in table {keyspace}.{table}", Quoted(column)))
}

/// The columns that a document names and their values; `None` is null.
fn read(text: &str, table: &Table) -> Result<HashMap<String, Option<Vec<u8>>>, QueryError> {
    // If a name occurs twice, the last value counts.
    let mut left: HashMap<String, (usize, Json)> = HashMap::new();
    for (place, (name, value)) in parse(text)?.into_iter().enumerate() {
        left.insert(name_from_json(&name), (place, value));
    }
    let mut values = HashMap::with_capacity(left.len());
    for column in columns_in_hash_order(table) {
        let Some((name, (_, value))) = left.remove_entry(&*column.name) else { continue };
        let bytes = match value {
            Json::Null => None,
            value => Some(column.ty.from_json(&value).map_err(|error| {
                QueryError::invalid(format!("Error decoding JSON value for {name}: {}", error.message()))
            })?),
        };
        values.insert(name, bytes);
    }
    match left.iter().min_by_key(|(_, (place, _))| *place) {
        None => Ok(values),
        Some((name, _)) => Err(QueryError::invalid(format!("JSON values map contains unrecognized column: {name}"))),
    }
}

fn parse(text: &str) -> Result<Map<String, Json>, QueryError> {
    let why = match serde_json::from_str(text) {
        Ok(Json::Object(object)) => return Ok(object),
        Ok(Json::Null) => return Err(no_document()),
        Ok(other) => not_an_object(&other),
        Err(_) if text.trim().is_empty() => {
            format!(
                "{JACKSON}.databind.exc.MismatchedInputException: No content to map due to end-of-input\n at [{SOURCE}; line: 1]"
            )
        }
        Err(error) => unreadable_json(text, &error),
    };
    Err(QueryError::invalid(format!("Could not decode JSON string as a map: {why}. (String was: {text})")))
}

/// The text of Cassandra's parser for a document that is not an object.
fn not_an_object(document: &Json) -> String {
    let what = match document {
        Json::Array(_) => "Array value (token `JsonToken.START_ARRAY`)",
        Json::String(text) => {
            return format!(
                "{JACKSON}.databind.exc.MismatchedInputException: Cannot construct instance of \
                 `java.util.LinkedHashMap` (although at least one Creator exists): no String-argument \
                 constructor/factory method to deserialize from String value ('{text}')\n at [{SOURCE}; line: 1, column: 1]"
            );
        }
        Json::Bool(true) => "Boolean value (token `JsonToken.VALUE_TRUE`)",
        Json::Bool(false) => "Boolean value (token `JsonToken.VALUE_FALSE`)",
        Json::Number(number) if number.as_str().contains(['.', 'e', 'E']) => {
            "Floating-point value (token `JsonToken.VALUE_NUMBER_FLOAT`)"
        }
        _ => "Integer value (token `JsonToken.VALUE_NUMBER_INT`)",
    };
    format!(
        "{JACKSON}.databind.exc.MismatchedInputException: Cannot deserialize value of type \
         `java.util.LinkedHashMap<java.lang.Object,java.lang.Object>` from {what}\n at [{SOURCE}; line: 1, column: 1]"
    )
}
