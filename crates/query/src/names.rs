//! Looking up the names in statements.

use std::sync::Arc;

use cql::ast::{Identifier, QualifiedName};
use engine::Engine;
use model::{Column, Schema, Table};
use types::identifier::Quoted;
pub(crate) use types::identifier::hash_slot;

use crate::system::VirtualTables;
use crate::{ColumnSpec, QueryError};

const NO_KEYSPACE: &str = "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename";

/// The keyspace of a name: the explicit one, or else the current one.
pub(crate) fn keyspace_of<'n>(
    written: Option<&'n Identifier>,
    current: Option<&'n str>,
) -> Result<&'n str, QueryError> {
    written.map(Identifier::as_str).or(current).ok_or_else(|| QueryError::invalid(NO_KEYSPACE))
}

/// The table of a SELECT or of a modification.
pub(crate) fn find_table(
    schema: &Schema,
    virtual_tables: &VirtualTables,
    name: &QualifiedName,
    current: Option<&str>,
) -> Result<Arc<Table>, QueryError> {
    let keyspace = keyspace_of(name.keyspace.as_ref(), current)?;
    let known = schema.keyspace(keyspace).is_some() || virtual_tables.has_keyspace(keyspace);
    if !known {
        return Err(QueryError::invalid(format!("keyspace {keyspace} does not exist")));
    }
    let table =
        schema.table(keyspace, name.name.as_str()).or_else(|| virtual_tables.table(keyspace, name.name.as_str()));
    table.cloned().ok_or_else(|| match Engine::unreadable_table(schema, keyspace, name.name.as_str()) {
        Some(quarantined) => quarantined.into(),
        None => QueryError::invalid(format!("table {} does not exist", name.name.as_str())),
    })
}

/// A column that a statement names.
pub(crate) fn find_column(table: &Table, name: &Identifier) -> Result<Arc<Column>, QueryError> {
    table.column(name.as_str()).cloned().ok_or_else(|| {
        let (keyspace, table) = (Quoted(&table.keyspace), Quoted(&table.name));
        QueryError::invalid(format!("Undefined column name {name} in table {keyspace}.{table}"))
    })
}

/// A column as receiver of a value.
pub(crate) fn column_spec(table: &Table, column: &Column) -> ColumnSpec {
    ColumnSpec {
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        name: column.name.clone(),
        ty: column.ty.clone(),
    }
}

/// The columns of a table in the order of Cassandra's hash map of their names. Columns in the same slot of that map
/// have the order of SELECT.
pub(crate) fn columns_in_hash_order(table: &Table) -> Vec<Arc<Column>> {
    let mut columns: Vec<Arc<Column>> = table.columns_in_select_order();
    let count = columns.len();
    columns.sort_by_key(|column| hash_slot(&column.name, count));
    columns
}
