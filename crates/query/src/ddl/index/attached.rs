//! Storage-attached indexes: their permitted targets and options (`StorageAttachedIndex.validateOptions` in Cassandra).

use cql::ast::IndexTarget;
use model::{Column, ColumnKind, Index, IndexClass, IndexPart, Table};
use types::CqlType;
use types::identifier::Quoted;

use super::vector::OPTIONS as OF_VECTORS;
use crate::QueryError;

/// The options that change text before it is indexed and looked for.
const ANALYSIS: [&str; 3] = ["case_sensitive", "normalize", "ascii"];

/// The error for an index of several columns.
pub(super) fn several_columns(targets: &[IndexTarget]) -> QueryError {
    let names: Vec<String> = targets.iter().map(|target| Quoted(target.column.as_str()).to_string()).collect();
    let names = names.join(", ");
    QueryError::invalid(format!("A storage-attached index cannot be created over multiple columns: {names}"))
}

/// Checks an index that the table does not have yet.
pub(super) fn check(index: &Index, column: &Column, table: &Table) -> Result<(), QueryError> {
    check_known(index)?;
    let is_same = |other: &Index| other.class == IndexClass::StorageAttached && other.target() == index.target();
    if table.indexes().iter().any(is_same) {
        let name = &column.name;
        return refuse(format!("Cannot create more than one storage-attached index on the same column: {name}"));
    }
    check_analysis(index, column)?;
    let value_type = index.part.value_type(&column.ty);
    super::vector::check_options(index, column, &value_type)?;
    match (&column.ty, index.part) {
        (CqlType::Map { key, value, .. }, IndexPart::Entries) => check_type(key).and_then(|()| check_type(value)),
        _ => check_type(&value_type),
    }
}

fn refuse(message: String) -> Result<(), QueryError> {
    Err(QueryError::invalid(message))
}

fn check_known(index: &Index) -> Result<(), QueryError> {
    let is_known = |key: &str| ANALYSIS.contains(&key) || OF_VECTORS.contains(&key);
    let unknown: Vec<&str> = index.given_options().map(|(key, _)| key).filter(|key| !is_known(key)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let unknown = unknown.join(", ");
    Err(QueryError::configuration(format!(
        "Properties specified [{unknown}] are not understood by StorageAttachedIndex"
    )))
}

fn check_analysis(index: &Index, column: &Column) -> Result<(), QueryError> {
    let given: Vec<(&str, &str)> = index.given_options().filter(|(key, _)| ANALYSIS.contains(key)).collect();
    let [_, ..] = given.as_slice() else { return Ok(()) };
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        let given: Vec<String> = given.iter().map(|(key, value)| format!("'{key}': '{value}'")).collect();
        let given = given.join(", ");
        return refuse(format!("Analysis options are not supported on primary key columns, but found {{{given}}}"));
    }
    let value_type = index.part.value_type(&column.ty);
    match (&column.ty, index.part) {
        (CqlType::Map { key, value, .. }, IndexPart::Entries) => {
            let class = format!(
                "org.apache.cassandra.db.marshal.CompositeType({},{})",
                key.to_marshal_class(),
                value.to_marshal_class()
            );
            return refuse(format!("CQL type '{class}' cannot be analyzed."));
        }
        _ if !matches!(value_type, CqlType::Ascii | CqlType::Text) => {
            return refuse(format!("CQL type {value_type} cannot be analyzed."));
        }
        _ => {}
    }
    for (key, value) in &given {
        if value.is_empty() {
            return refuse(format!("Empty value for boolean option '{key}'"));
        }
        if !["true", "false"].iter().any(|known| value.eq_ignore_ascii_case(known)) {
            return refuse(format!("Illegal value for boolean option '{key}': {value}"));
        }
    }
    Ok(())
}

fn check_type(ty: &CqlType) -> Result<(), QueryError> {
    match ty {
        CqlType::Blob | CqlType::Duration | CqlType::Counter | CqlType::Custom(_) | CqlType::Empty => {
            refuse(format!("Unsupported type: {ty}"))
        }
        _ => Ok(()),
    }
}
