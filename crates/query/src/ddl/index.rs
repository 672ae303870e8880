//! CREATE INDEX and DROP INDEX.

mod attached;
mod sasi;
mod vector;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::{CreateIndex, DropIndex, Identifier, IndexTarget, IndexTargetKind};
use model::{Column, ColumnKind, INDEX_CLASS, INDEX_TARGET, Index, IndexClass, IndexPart, Keyspace, Table};
use types::CqlType;
use types::identifier::Quoted;

use super::{
    Access, Changed, check_modifiable, edit_keyspace, is_valid_name, no_keyspace, properties, qualify, table_changed,
    undefined_column, unless_unchanged,
};
use crate::execution::Execution;
use crate::guardrail::SECONDARY_INDEXES_PER_TABLE;
use crate::names::keyspace_of;
use crate::{ChangeKind, QueryError};

/// The class of plain indexes.
const LEGACY: &str = "legacy_local_table";
const SASI_DISABLED: &str = "SASI indexes are disabled. Enable in cassandra.yaml to use.";
/// The only property of an index.
const OPTIONS: &str = "options";
/// The longest name of a column with a custom index.
const NAME_LENGTH_MAX: usize = 48;

/// Checks the statement alone.
pub(super) fn check(create: &CreateIndex) -> Result<(), QueryError> {
    properties::check_known(&create.properties, &[OPTIONS])
}

/// The class that was named, or the default one, if the index is not a plain one.
fn custom_class<'e>(create: &'e CreateIndex, execution: &Execution<'e>) -> Result<Option<&'e str>, QueryError> {
    let missing = || QueryError::invalid("Must specify index implementation via USING");
    let default = || execution.processor.options().default_index_class.as_deref();
    let class = create.class.as_deref().or_else(default).ok_or_else(missing)?;
    Ok((create.is_custom || !class.eq_ignore_ascii_case(LEGACY)).then_some(class))
}

pub(super) fn create(create: &CreateIndex, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = qualify(&create.table, execution)?;
    if execution.processor.virtual_tables().has_keyspace(keyspace) {
        return Err(QueryError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    check_modifiable(execution, keyspace, Some(name), Access::Alter)?;
    let class = custom_class(create, execution)?;
    if class.is_none() && !create.properties.is_empty() {
        return Err(QueryError::invalid("Cannot specify options for a non-CUSTOM index"));
    }
    let options = properties::map(&create.properties, OPTIONS)?.unwrap_or_default();
    if let Some(own) = [INDEX_CLASS, INDEX_TARGET].into_iter().find(|own| options.contains_key(*own)) {
        return Err(QueryError::invalid(format!("Cannot specify {own} as a CUSTOM option")));
    }
    let is_sasi = class.and_then(IndexClass::of_name) == Some(IndexClass::Sasi);
    if is_sasi && !execution.processor.options().sasi_indexes_enabled {
        return Err(QueryError::invalid(SASI_DISABLED));
    }
    let created = execution.processor.engine().change_schema(|schema, keyspaces| {
        let known = schema.keyspace(keyspace).ok_or_else(|| no_keyspace(keyspace))?;
        let missing = || QueryError::invalid(format!("Table '{name}' doesn't exist"));
        let table = known.tables.get(name).ok_or_else(missing)?;
        let class = class.map(|class| (class, &options));
        let Some(index) = define(create, class, known, table, execution)? else { return Ok::<_, QueryError>(None) };
        let altered = table.to_builder().indexes(table.indexes().iter().cloned().chain([index])).build();
        if let Some(edited) = edit_keyspace(keyspaces, keyspace) {
            edited.tables.insert(name.into(), Arc::new(altered));
        }
        Ok(Some(table_changed(ChangeKind::Updated, keyspace, name)))
    })?;
    Ok(unless_unchanged(created, execution))
}

/// The index; `None` if it exists already and need not be created. `class` is the name of a class with its options.
fn define(
    create: &CreateIndex,
    class: Option<(&str, &BTreeMap<String, String>)>,
    keyspace: &Keyspace,
    table: &Table,
    execution: &Execution<'_>,
) -> Result<Option<Index>, QueryError> {
    let written = create.name.as_ref().map(Identifier::as_str);
    if let Some(name) = written
        && has_index(keyspace, name)
    {
        let exists = || QueryError::invalid(format!("Index '{name}' already exists"));
        return if create.if_not_exists { Ok(None) } else { Err(exists()) };
    }
    if table.is_counter() {
        return Err(QueryError::invalid("Secondary indexes on counter tables aren't supported"));
    }
    check_count(written, table, execution)?;
    let (column, part) = match create.targets.as_slice() {
        [] if class.is_none() => {
            return Err(QueryError::invalid("Only CUSTOM indexes can be created without specifying a target column"));
        }
        [_, _, ..] if class.is_none() => {
            return Err(QueryError::invalid("Only CUSTOM indexes support multiple columns"));
        }
        [target] => target_of(target, table, class.is_some())?,
        targets => {
            return Err(match known_class(class.map_or("", |(name, _)| name))? {
                IndexClass::Sasi => sasi::not_one_column(targets),
                _ if targets.is_empty() => QueryError::invalid("Failed to retrieve target column for: "),
                _ => attached::several_columns(targets),
            });
        }
    };
    let name = written.map_or_else(|| free_name(keyspace, table, column), str::to_owned);
    let index = match class {
        Some((class, options)) => {
            let new = if known_class(class)? == IndexClass::Sasi { Index::sasi } else { Index::storage_attached };
            vector::part(new(&name, column, part, class, options.clone()), column)
        }
        None => Index::plain(&name, column, part),
    };
    if let Some(same) = table.indexes().iter().find(|other| other.options == index.options) {
        let duplicate = format!("Index {name} is a duplicate of existing index {}", same.name);
        return if create.if_not_exists { Ok(None) } else { Err(QueryError::invalid(duplicate)) };
    }
    if !is_valid_name(&name) {
        return Err(QueryError::configuration(format!("Illegal index name {name}")));
    }
    match index.class {
        IndexClass::Plain => {}
        IndexClass::StorageAttached => {
            attached::check(&index, column, table)?;
            vector::check(&index, column, execution)?;
        }
        IndexClass::Sasi => sasi::check(&index, column, execution)?,
    }
    Ok(Some(index))
}

/// Refuses a class of indexes that does not exist.
fn known_class(class: &str) -> Result<IndexClass, QueryError> {
    let unknown = || QueryError::configuration(format!("Unable to find custom indexer class '{class}'"));
    IndexClass::of_name(class).ok_or_else(unknown)
}

fn check_count(name: Option<&str>, table: &Table, execution: &Execution<'_>) -> Result<(), QueryError> {
    let what = match name {
        Some(name) => format!("{name} on table {}", table.name),
        None => format!("on table {}", table.name),
    };
    let guardrail = execution.processor.options().guardrails.secondary_indexes_per_table;
    guardrail.check(&SECONDARY_INDEXES_PER_TABLE, &what, table.indexes().len() + 1, execution)
}

fn has_index(keyspace: &Keyspace, name: &str) -> bool {
    keyspace.tables.values().flat_map(|table| table.indexes()).any(|index| *index.name == *name)
}

/// The default name of an index.
fn free_name(keyspace: &Keyspace, table: &Table, column: &Column) -> String {
    let base: String = format!("{}_{}_idx", table.name, column.name)
        .chars()
        .filter(|character| character.is_ascii_alphanumeric() || *character == '_')
        .collect();
    let numbered = (1..).map(|number| format!("{base}_{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    names.find(|name| !has_index(keyspace, name)).unwrap_or(base)
}

/// Refuses columns that may have no index.
fn check_column(column: &Column, table: &Table, is_custom: bool) -> Result<(), QueryError> {
    let (ty, name) = (&column.ty, &*column.name);
    let refuse = |message: String| Err(QueryError::invalid(message));
    if is_custom && !name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_') {
        return refuse(format!("Column '{name}' contains non-alphanumeric-underscore characters"));
    }
    if is_custom && name.len() > NAME_LENGTH_MAX {
        let what = format!("is longer than the permissible name length of {NAME_LENGTH_MAX} characters");
        return refuse(format!("Column '{name}' {what}"));
    }
    if ty.any(&|inner| *inner == CqlType::Duration) {
        let what = match ty {
            CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => "collections containing durations",
            CqlType::Tuple(_) => "tuples containing durations",
            CqlType::Udt { .. } => "UDTs containing durations",
            _ => "duration columns",
        };
        return refuse(format!("Secondary indexes are not supported on {what}"));
    }
    if table.form().is_compact() {
        let is_key = matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        let what = match table.compact_value() {
            _ if is_key => Some("PRIMARY KEY columns in"),
            Some(value) if value.id == column.id => Some("compact value column of"),
            _ => None,
        };
        if let Some(what) = what {
            return refuse(format!("Secondary indexes are not supported on {what} COMPACT STORAGE tables"));
        }
    }
    if column.kind == ColumnKind::PartitionKey && table.partition_key().len() == 1 {
        return refuse(format!("Cannot create secondary index on the only partition key column {name}"));
    }
    Ok(())
}

/// The column that is indexed, and the part of it.
fn target_of<'t>(
    target: &IndexTarget,
    table: &'t Table,
    is_custom: bool,
) -> Result<(&'t Arc<Column>, IndexPart), QueryError> {
    let column = table.column(target.column.as_str()).ok_or_else(|| undefined_column(&target.column, table))?;
    let (ty, name) = (&column.ty, &*column.name);
    check_column(column, table, is_custom)?;
    let refuse = |message: String| Err(QueryError::invalid(message));
    let is_frozen = ty.is_collection() && !ty.is_multi_cell();
    let kind = match target.kind {
        IndexTargetKind::Simple if ty.is_collection() => IndexTargetKind::Values,
        kind => kind,
    };
    let printed = match kind {
        IndexTargetKind::Simple => "",
        IndexTargetKind::Values => "values",
        IndexTargetKind::Keys => "keys",
        IndexTargetKind::Entries => "entries",
        IndexTargetKind::Full => "full",
    };
    if is_frozen && kind != IndexTargetKind::Full {
        return refuse(format!(
            "Cannot create {printed}() index on frozen column {name}. Frozen collections are immutable and must be fully indexed by using the 'full({})' modifier",
            Quoted(name)
        ));
    }
    if !is_frozen && kind == IndexTargetKind::Full {
        return refuse("full() indexes can only be created on frozen collections".into());
    }
    if !ty.is_collection() && kind != IndexTargetKind::Simple {
        let what = "Non-collection columns only support simple indexes";
        return refuse(format!("Cannot create {printed}() index on {name}. {what}"));
    }
    let is_of_keys = matches!(kind, IndexTargetKind::Keys | IndexTargetKind::Entries);
    if is_of_keys && !matches!(ty, CqlType::Map { .. }) {
        return refuse(format!("Cannot create index on {printed} of column {name} with non-map type"));
    }
    if matches!(ty, CqlType::Udt { frozen: false, .. }) {
        return refuse(format!("Cannot create index on non-frozen UDT column {name}"));
    }
    let part = match kind {
        IndexTargetKind::Simple | IndexTargetKind::Full => IndexPart::Whole,
        IndexTargetKind::Values => IndexPart::Values,
        IndexTargetKind::Keys => IndexPart::Keys,
        IndexTargetKind::Entries => IndexPart::Entries,
    };
    Ok((column, part))
}

pub(super) fn drop(drop: &DropIndex, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let keyspace = keyspace_of(drop.index.keyspace.as_ref(), execution.keyspace)?;
    let name = drop.index.name.as_str();
    let table = execution.schema.keyspace(keyspace).and_then(|known| table_of(known, name));
    check_modifiable(execution, keyspace, table.map(|table| &*table.name), Access::Alter)?;
    let dropped = execution.processor.engine().change_schema(|schema, keyspaces| {
        let Some(table) = schema.keyspace(keyspace).and_then(|known| table_of(known, name)) else {
            let missing = format!("Index '{keyspace}.{name}' doesn't exist'");
            return if drop.if_exists { Ok(None) } else { Err(QueryError::invalid(missing)) };
        };
        let kept = table.indexes().iter().filter(|index| *index.name != *name).cloned();
        let altered = table.to_builder().indexes(kept).build();
        if let Some(edited) = edit_keyspace(keyspaces, keyspace) {
            edited.tables.insert(table.name.clone(), Arc::new(altered));
        }
        Ok(Some(table_changed(ChangeKind::Updated, keyspace, &table.name)))
    })?;
    Ok(unless_unchanged(dropped, execution))
}

/// The table that has the index of that name.
pub(crate) fn table_of<'k>(keyspace: &'k Keyspace, index: &str) -> Option<&'k Arc<Table>> {
    keyspace.tables.values().find(|table| table.indexes().iter().any(|known| *known.name == *index))
}

/// Refuses a change of a column that has indexes.
pub(super) fn check_not_indexed(
    table: &Table,
    column: &Column,
    message: impl FnOnce(&str) -> String,
) -> Result<(), QueryError> {
    let names = table.indexes().iter().filter(|index| index.column == column.name).map(|index| &*index.name);
    let names: Vec<&str> = names.collect();
    if names.is_empty() { Ok(()) } else { Err(QueryError::invalid(message(&names.join(", ")))) }
}
