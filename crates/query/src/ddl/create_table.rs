//! CREATE TABLE.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::{ColumnDefinition, CreateTable, Direction, Identifier, NativeType, Properties, TypeName};
use model::{ColumnKind, ColumnMask, Schema, Table, TableBuilder, TableForm, TableId, TableOptions};
use types::identifier::Quoted;
use types::{CqlType, MarshalClass};
use uuid::Uuid;

use super::keyspace::is_system_keyspace;
use super::{
    Access, Changed, check_modifiable, compact, edit_keyspace, is_valid_name, masks, no_keyspace, options, qualify,
    table_changed,
};
use crate::execution::Execution;
use crate::guardrail::{COLUMNS_PER_TABLE, TABLES, check_vectors};
use crate::terms::{resolve_type, type_check};
use crate::{ChangeKind, ErrorKind, QueryError};

const NAME_LENGTH_MAX: usize = 222;

/// The most columns of a table. Dropped columns do not count.
const COLUMNS_MAX: usize = 32_767;

/// Refuses a table of too many columns.
pub(super) fn check_column_count(columns: usize) -> Result<(), QueryError> {
    if columns <= COLUMNS_MAX {
        return Ok(());
    }
    Err(QueryError::invalid(format!("A table may have at most {COLUMNS_MAX} columns, not {columns}")))
}

/// Checks the statement alone.
pub(super) fn check(create: &CreateTable) -> Result<(), QueryError> {
    let table = create.table.name.as_str();
    let invalid = |message: String| Err(QueryError::invalid(message));
    let mut seen = BTreeSet::new();
    for column in &create.columns {
        if !seen.insert(column.name.as_str()) {
            return invalid(format!("Duplicate column '{}' declaration for table '{table}'", column.name.as_str()));
        }
    }
    check_column_count(create.columns.len())?;
    match create.primary_keys.len() {
        0 => invalid(format!("No PRIMARY KEY specifed for table '{table}' (exactly one required)")),
        1 => Ok(()),
        _ => invalid(format!("Multiple PRIMARY KEY specified for table '{table}' (exactly one required)")),
    }
}

pub(super) fn execute(create: &CreateTable, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = qualify(&create.table, execution)?;
    check_modifiable(execution, keyspace, Some(name), Access::Create)?;
    masks::check_enabled(masks::written(&create.columns), execution)?;
    let (created, _) = execution.processor.engine().change_schema(|schema, keyspaces| {
        let Some(edited) = edit_keyspace(keyspaces, keyspace) else { return Err(no_keyspace(keyspace)) };
        if edited.tables.contains_key(name) {
            if create.if_not_exists {
                return Ok(None);
            }
            let kind = ErrorKind::AlreadyExists { keyspace: keyspace.to_string(), table: name.to_string() };
            let message = format!("Cannot add already existing table \"{name}\" to keyspace \"{keyspace}\"");
            return Err(QueryError::new(kind, message));
        }
        let guardrails = &execution.processor.options().guardrails;
        if guardrails.tables.is_set() {
            let users = schema.keyspaces.values().filter(|keyspace| !is_system_keyspace(&keyspace.name));
            let tables: usize = users.map(|keyspace| keyspace.tables.len()).sum();
            guardrails.tables.check(&TABLES, name, tables + 1, execution)?;
        }
        guardrails.columns_per_table.check(&COLUMNS_PER_TABLE, name, create.columns.len(), execution)?;
        let table = Definition::new(create, schema, keyspace, name, execution)?.build(execution)?;
        edited.tables.insert(name.into(), Arc::new(table));
        Ok(Some(table_changed(ChangeKind::Created, keyspace, name)))
    })?;
    Ok(created)
}

/// A column's resolved type and whether it is static.
type Resolved<'c> = BTreeMap<&'c str, (CqlType, &'c ColumnDefinition)>;

struct Definition<'c> {
    create: &'c CreateTable,
    /// Those of `create` that are not ignored.
    properties: Cow<'c, Properties>,
    keyspace: &'c str,
    name: &'c str,
    columns: Resolved<'c>,
    masks: Vec<(&'c str, ColumnMask)>,
}

impl<'c> Definition<'c> {
    fn new(
        create: &'c CreateTable,
        schema: &Schema,
        keyspace: &'c str,
        name: &'c str,
        execution: &Execution<'_>,
    ) -> Result<Self, QueryError> {
        let properties = options::guarded(&create.properties, execution)?;
        options::check_known(&properties)?;
        options::table_id(&properties)?;
        let (mut columns, mut masks) = (Resolved::new(), Vec::new());
        for column in &create.columns {
            check_column(column)?;
            let ty = resolve_type(&column.type_name, schema, keyspace)?;
            let name = column.name.as_str();
            if let Some(mask) = &column.mask {
                masks.push((name, masks::resolve(mask, &column.name, &ty, keyspace, execution)?));
            }
            check_nested(&ty, &column.name)?;
            check_vectors("Column", name, &ty, execution)?;
            columns.insert(name, (ty, column));
        }
        Ok(Definition { create, properties, keyspace, name, columns, masks })
    }

    fn build(&self, execution: &Execution<'_>) -> Result<Table, QueryError> {
        let properties = &self.properties;
        let table_options = options::parse_new(properties, execution)?;
        execution.processor.options().guardrails.flags.check_table(&table_options, execution)?;
        let key = &self.create.primary_keys[0];
        let clustering: BTreeSet<&str> = key.clustering.iter().map(Identifier::as_str).collect();
        let mut in_key = BTreeSet::new();
        for column in key.partition_key.iter().chain(&key.clustering) {
            self.check_key_column(column, &clustering, &mut in_key)?;
        }
        let statics = self.create.columns.iter().any(|column| column.is_static);
        if statics && key.clustering.is_empty() && !self.create.compact_storage {
            return Err(QueryError::invalid(STATICS_NEED_CLUSTERING));
        }
        self.check_clustering_order(&clustering)?;
        let others = self.columns.iter().filter(|(name, _)| !in_key.contains(*name));
        let others: Vec<compact::Other<'_>> =
            others.map(|(name, (ty, column))| (*name, ty, column.is_static)).collect();
        if self.create.compact_storage {
            compact::check(&others, !key.clustering.is_empty())?;
        }
        if others.iter().any(|(_, ty, _)| **ty == CqlType::Counter) {
            if others.iter().any(|(_, ty, _)| **ty != CqlType::Counter) {
                return Err(QueryError::invalid("Cannot mix counter and non counter columns in the same table"));
            }
            check_no_expiry(&table_options)?;
        }
        self.check_name()?;
        let id = options::table_id(properties)?.unwrap_or_else(|| new_table_id(execution));
        if execution.schema.table_by_id(TableId(id)).is_some() {
            return Err(QueryError::invalid(format!("Table id {id} is in use")));
        }
        let mut builder = TableBuilder::new(self.keyspace, self.name, TableId(id)).options(table_options);
        for column in &key.partition_key {
            builder = builder.partition_key(column.as_str(), self.type_of(column));
        }
        let order = self.create.clustering_order.iter().map(|(column, direction)| (column.as_str(), direction));
        let order: BTreeMap<&str, &Direction> = order.collect();
        for column in &key.clustering {
            let declared = self.columns.get(column.as_str()).map(|(_, definition)| &definition.type_name);
            let reversed = order.get(column.as_str()).is_some_and(|direction| **direction == Direction::Desc)
                || declared.is_some_and(is_class_in_descending_order);
            builder = builder.clustering(column.as_str(), self.type_of(column), reversed);
        }
        let builder = if self.create.compact_storage {
            let declared = self.columns.keys().copied().collect();
            compact::add_columns(builder, TableForm::compact(key.clustering.len()), &others, &declared)
        } else {
            builder.add_all(others.iter().map(|(name, ty, is_static)| {
                let kind = if *is_static { ColumnKind::Static } else { ColumnKind::Regular };
                (*name, (*ty).clone(), kind)
            }))
        };
        let masked = |builder: TableBuilder, (name, mask): &(&str, ColumnMask)| builder.mask(name, Some(mask.clone()));
        Ok(self.masks.iter().fold(builder, masked).build())
    }

    fn type_of(&self, column: &Identifier) -> CqlType {
        self.columns.get(column.as_str()).map_or(CqlType::Blob, |(ty, _)| ty.clone())
    }

    fn check_key_column(
        &self,
        column: &'c Identifier,
        clustering: &BTreeSet<&str>,
        in_key: &mut BTreeSet<&'c str>,
    ) -> Result<(), QueryError> {
        let (invalid, column) = (|message: String| Err(QueryError::invalid(message)), column.as_str());
        let Some((ty, definition)) = self.columns.get(column) else {
            return invalid(format!("Unknown column '{column}' referenced in PRIMARY KEY for table '{}'", self.name));
        };
        if !in_key.insert(column) {
            return invalid(format!("Duplicate column '{column}' in PRIMARY KEY clause for table '{}'", self.name));
        }
        if let CqlType::Udt { definition, frozen: false } = ty {
            let name = format!("\"{}.{}\"", definition.keyspace, definition.name);
            return invalid(format!("Invalid non-frozen user-defined type {name} for PRIMARY KEY column '{column}'"));
        }
        if ty.is_multi_cell() {
            return invalid(format!("Invalid non-frozen collection type {ty} for PRIMARY KEY column '{column}'"));
        }
        if *ty == CqlType::Counter {
            return invalid(format!("counter type is not supported for PRIMARY KEY column '{column}'"));
        }
        if clustering.contains(column) {
            type_check::check_order(ty)?;
        }
        if ty.any(&|inner| *inner == CqlType::Duration) {
            return invalid(format!("duration type is not supported for PRIMARY KEY column '{column}'"));
        }
        if definition.is_static {
            return invalid(format!("Static column '{column}' cannot be part of the PRIMARY KEY"));
        }
        Ok(())
    }

    fn check_clustering_order(&self, names: &BTreeSet<&str>) -> Result<(), QueryError> {
        let (order, clustering) = (&self.create.clustering_order, &self.create.primary_keys[0].clustering);
        let ordered = order.iter().map(|(column, _)| column.as_str());
        let unknown: Vec<&str> = ordered.filter(|column| !names.contains(column)).collect();
        if !unknown.is_empty() {
            return Err(QueryError::invalid(format!(
                "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are not clustering columns",
                unknown.join(", ")
            )));
        }
        for ((ordered, _), column) in order.iter().zip(clustering) {
            if ordered == column {
                continue;
            }
            let (ordered, column) = (ordered.as_str(), column.as_str());
            return Err(QueryError::invalid(match order.iter().any(|(other, _)| other.as_str() == column) {
                true => format!(
                    "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns ({column} must appear before {ordered})"
                ),
                false => format!("Missing CLUSTERING ORDER for column {column}"),
            }));
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), QueryError> {
        let (keyspace, name) = (self.keyspace, self.name);
        if !is_valid_name(name) {
            return Err(QueryError::configuration(format!(
                "{keyspace}.{name}: Table name must not be empty or not contain non-alphanumeric-underscore characters (got \"{name}\")"
            )));
        }
        if name.len() > NAME_LENGTH_MAX {
            return Err(QueryError::configuration(format!(
                "{keyspace}.{name}: Table name must not be more than {NAME_LENGTH_MAX} characters long (got {} characters for \"{name}\")",
                name.len()
            )));
        }
        Ok(())
    }
}

/// Refuses a time to live of a table with counters.
pub(super) fn check_no_expiry(options: &TableOptions) -> Result<(), QueryError> {
    match options.default_time_to_live {
        0 => Ok(()),
        _ => Err(QueryError::invalid("Cannot set default_time_to_live on a table with counters")),
    }
}

pub(super) const STATICS_NEED_CLUSTERING: &str =
    "Static columns are only useful (and thus allowed) if the table has at least one clustering column";

/// Checks the type of a column as written.
pub(super) fn check_column(column: &ColumnDefinition) -> Result<(), QueryError> {
    match &column.type_name {
        TypeName::Native(NativeType::Counter) => Ok(()),
        name => type_check::check(name),
    }
}

/// Whether a clustering column of this type sorts in descending order, whatever order the table declares.
fn is_class_in_descending_order(name: &TypeName) -> bool {
    matches!(name, TypeName::Custom(class) if matches!(MarshalClass::parse(class), Ok(MarshalClass::Reversed(_))))
}

/// A non-frozen user type may not contain a type that has cells of its own.
pub(super) fn check_nested(ty: &CqlType, column: &Identifier) -> Result<(), QueryError> {
    type_check::check_elements(ty)?;
    match ty {
        CqlType::Udt { definition, frozen: false } if definition.fields().iter().any(|(_, f)| f.is_multi_cell()) => {
            Err(QueryError::invalid(format!(
                "Non-frozen UDTs with nested non-frozen collections are not supported for column {}",
                Quoted(column.as_str())
            )))
        }
        _ => Ok(()),
    }
}

/// Table ids are time-based, as in Cassandra.
fn new_table_id(execution: &Execution<'_>) -> Uuid {
    Uuid::from_bytes(execution.processor.next_timeuuid())
}
