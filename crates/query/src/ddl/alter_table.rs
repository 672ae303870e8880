//! ALTER TABLE.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::{AlterTable, AlterTableAction, ColumnDefinition, Identifier, Properties};
use model::{Column, ColumnKind, Schema, Table};
use types::CqlType;
use types::identifier::Quoted;

use super::create_table::{STATICS_NEED_CLUSTERING, check_column, check_column_count, check_nested, check_no_expiry};
use super::index::check_not_indexed;
use super::masks;
use super::readd::check_dropped;
use super::{
    Access, Changed, check_modifiable, compact, edit_keyspace, no_table, options, qualify, table_changed, table_name,
    undefined_column, unless_unchanged,
};
use crate::execution::Execution;
use crate::guardrail::{COLUMNS_PER_TABLE, check_vectors};
use crate::terms::resolve_type;
use crate::{ChangeKind, QueryError};

pub(super) fn execute(alter: &AlterTable, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = qualify(&alter.table, execution)?;
    check_modifiable(execution, keyspace, Some(name), Access::Alter)?;
    match &alter.action {
        AlterTableAction::Mask { mask, .. } => masks::check_enabled(mask.iter(), execution)?,
        AlterTableAction::Add { columns, .. } => masks::check_enabled(masks::written(columns), execution)?,
        _ => {}
    }
    let altered = execution.processor.engine().change_schema(|schema, keyspaces| {
        let Some(table) = schema.table(keyspace, name) else {
            return if alter.if_exists { Ok(None) } else { Err(no_table(keyspace, name)) };
        };
        let altered = apply(table, &alter.action, schema, execution)?;
        if let Some(edited) = edit_keyspace(keyspaces, keyspace) {
            edited.tables.insert(name.into(), Arc::new(altered));
        }
        Ok(Some(table_changed(ChangeKind::Updated, keyspace, name)))
    })?;
    Ok(unless_unchanged(altered, execution))
}

fn apply(
    table: &Table,
    action: &AlterTableAction,
    schema: &Schema,
    execution: &Execution<'_>,
) -> Result<Table, QueryError> {
    match action {
        AlterTableAction::AlterType { .. } => Err(QueryError::invalid("Altering column types is no longer supported")),
        AlterTableAction::Mask { column, mask, if_column_exists } => {
            masks::alter(table, column, mask.as_ref(), *if_column_exists, execution)
        }
        AlterTableAction::DropCompactStorage => compact::drop(table, execution),
        AlterTableAction::Add { columns, if_column_not_exists } => {
            add(table, columns, *if_column_not_exists, schema, execution)
        }
        AlterTableAction::Drop { columns, if_column_exists, timestamp } => {
            let timestamp = timestamp.unwrap_or_else(|| execution.timestamp_micros());
            drop_columns(table, columns, *if_column_exists, timestamp)
        }
        // IF EXISTS makes no difference here, nor in Cassandra.
        AlterTableAction::Rename { renames, .. } => rename(table, renames),
        AlterTableAction::With(properties) => with(table, properties, execution),
    }
}

fn add(
    table: &Table,
    columns: &[ColumnDefinition],
    if_not_exists: bool,
    schema: &Schema,
    execution: &Execution<'_>,
) -> Result<Table, QueryError> {
    let invalid = |message: String| Err(QueryError::invalid(message));
    let (mut added, mut added_masks) = (BTreeMap::new(), Vec::new());
    for column in columns {
        check_column(column)?;
        let ty = resolve_type(&column.type_name, schema, &table.keyspace)?;
        let resolve = |mask| masks::resolve(mask, &column.name, &ty, &table.keyspace, execution);
        let mask = column.mask.as_ref().map(resolve).transpose()?;
        let name = column.name.as_str();
        if table.stored_column(name).is_some() || added.contains_key(name) {
            if if_not_exists {
                continue;
            }
            return invalid(format!("Column with name '{name}' already exists"));
        }
        if table.form().is_compact() {
            return invalid("Cannot add new column to a COMPACT STORAGE table".into());
        }
        let kind = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
        if column.is_static && table.clustering().is_empty() {
            return invalid(STATICS_NEED_CLUSTERING.into());
        }
        check_nested(&ty, &column.name)?;
        check_vectors("Column", name, &ty, execution)?;
        check_dropped(table, name, &ty, kind)?;
        let (is_counter, counts) = (ty == CqlType::Counter, table.is_counter());
        if is_counter != counts {
            let (column, of) = if is_counter { ("counter", "non counter") } else { ("non counter", "counter") };
            return Err(QueryError::configuration(format!(
                "{}: Cannot have a {column} column (\"{name}\") in a {of} table",
                table_name(table)
            )));
        }
        added.insert(name, (added.len(), ty, kind));
        added_masks.extend(mask.map(|mask| (name, mask)));
    }
    // Columns have ids in the order written.
    let mut added: Vec<_> = added.into_iter().collect();
    added.sort_by_key(|(_, (place, ..))| *place);
    let builder = table.to_builder().add_all(added.into_iter().map(|(name, (_, ty, kind))| (name, ty, kind)));
    let table = added_masks.into_iter().fold(builder, |builder, (name, mask)| builder.mask(name, Some(mask))).build();
    let columns = table.columns_in_select_order().len();
    check_column_count(columns)?;
    let guardrail = execution.processor.options().guardrails.columns_per_table;
    guardrail.check(&COLUMNS_PER_TABLE, &table.name, columns, execution)?;
    Ok(table)
}

/// The type with user types replaced by tuples, as a dropped column's type is recorded.
fn expand(ty: &CqlType) -> CqlType {
    let inner = |ty: &Arc<CqlType>| Arc::new(expand(ty));
    match ty {
        CqlType::List { element, frozen } => CqlType::List { element: inner(element), frozen: *frozen },
        CqlType::Set { element, frozen } => CqlType::Set { element: inner(element), frozen: *frozen },
        CqlType::Map { key, value, frozen } => CqlType::Map { key: inner(key), value: inner(value), frozen: *frozen },
        CqlType::Tuple(elements) => CqlType::tuple(elements.iter().map(expand)),
        CqlType::Vector { element, dimension } => CqlType::Vector { element: inner(element), dimension: *dimension },
        CqlType::Udt { definition, .. } => CqlType::tuple(definition.fields().iter().map(|(_, ty)| expand(ty))),
        other => other.clone(),
    }
}

fn drop_columns(
    table: &Table,
    columns: &[Identifier],
    if_exists: bool,
    timestamp_micros: i64,
) -> Result<Table, QueryError> {
    let mut dropped = BTreeMap::new();
    for name in columns {
        let printed = Quoted(name.as_str());
        let Some(column) = table.stored_column(name.as_str()) else {
            if if_exists {
                continue;
            }
            let message = format!("Column {printed} was not found in table '{}'", table_name(table));
            return Err(QueryError::invalid(message));
        };
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return Err(QueryError::invalid(format!("Cannot drop PRIMARY KEY column {printed}")));
        }
        if table.compact_value().is_some_and(|value| value.id == column.id) {
            let message = format!("Cannot drop the only regular column {printed} of a COMPACT STORAGE table");
            return Err(QueryError::invalid(message));
        }
        if matches!(column.ty, CqlType::Udt { frozen: false, .. }) {
            // The message has no quotes, whatever the name is.
            let message = format!("Cannot drop non-frozen column {} of user type {}", name.as_str(), column.ty);
            return Err(QueryError::invalid(message));
        }
        check_not_indexed(table, column, |indexes| {
            format!("Cannot drop column {} because it has dependent secondary indexes ({indexes})", name.as_str())
        })?;
        dropped.insert(name.as_str(), expand(&column.ty));
    }
    let dropped: Vec<(&str, CqlType)> = dropped.into_iter().collect();
    Ok(table.to_builder().drop_all(&dropped, timestamp_micros).build())
}

/// Each renaming sees the results of those before it.
fn rename(table: &Table, renames: &[(Identifier, Identifier)]) -> Result<Table, QueryError> {
    // The columns by their new names, and the names that are free again.
    let (mut renamed, mut free) = (BTreeMap::<&str, &Arc<Column>>::new(), BTreeSet::new());
    for (from, to) in renames {
        let (from_name, to_name) = (from.as_str(), to.as_str());
        let find = |name: &str| match renamed.get(name) {
            Some(column) => Some(*column),
            None => table.column(name).filter(|_| !free.contains(name)),
        };
        let column = find(from_name).ok_or_else(|| undefined_column(from, table))?;
        if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return Err(QueryError::invalid(format!("Cannot rename non PRIMARY KEY column {from}")));
        }
        let is_taken_by_hidden = table.column(to_name).is_none() && table.stored_column(to_name).is_some();
        if find(to_name).is_some() || is_taken_by_hidden {
            return Err(QueryError::invalid(format!(
                "Cannot rename column {from} to {to} in table '{}'; another column with that name already exists",
                table_name(table)
            )));
        }
        check_not_indexed(table, column, |indexes| {
            format!("Can't rename column {from} because it has dependent secondary indexes ({indexes})")
        })?;
        renamed.remove(from_name);
        free.insert(from_name);
        renamed.insert(to_name, column);
    }
    let names = renamed.into_iter().map(|(name, column)| (&*column.name, name)).collect();
    Ok(table.to_builder().rename_all(&names).build())
}

fn with(table: &Table, properties: &Properties, execution: &Execution<'_>) -> Result<Table, QueryError> {
    if properties.is_empty() {
        return Err(QueryError::invalid("ALTER TABLE WITH invoked, but no parameters found"));
    }
    let properties = &*options::guarded(properties, execution)?;
    options::check_known(properties)?;
    if options::table_id(properties)?.is_some() {
        return Err(QueryError::configuration("Cannot alter table id."));
    }
    let options = options::parse(properties, table.options.clone(), execution)?;
    execution.processor.options().guardrails.flags.check_table(&options, execution)?;
    if table.is_counter() {
        check_no_expiry(&options)?;
    }
    Ok(table.to_builder().options(options).build())
}
