//! The check of a schema change: the stored rows are read back before they are stored, so that a schema that the next
//! start could not read, or would read differently, never reaches the log.
//!
//! The rows that a change writes are loaded with the code of a start, and the result must equal the changed schema.
//! Only changed objects are compared, so that a change costs nothing for other tables.

use std::sync::Arc;

use compaction::{Strategy, TombstoneOptions};
use model::{Column, ColumnChange, ColumnSet, Keyspace, PartitionUpdate, Schema, Table};
use sstable::WriterOptions;
use types::CqlType;

use crate::error::EngineError;
use crate::schema_rows::{self, SchemaRows, UserTypes};
use crate::system::rows_of;

/// Fails if `updates`, which store the difference between `old` and `new`, do not load as `new`.
pub(crate) fn check(old: &Schema, new: &Schema, updates: &[PartitionUpdate]) -> Result<(), EngineError> {
    let is_changed = |keyspace: &&Arc<Keyspace>| !is_same(old.keyspaces.get(&keyspace.name), keyspace);
    for keyspace in new.keyspaces.values().filter(is_changed) {
        let before = old.keyspaces.get(&keyspace.name).map(Arc::as_ref);
        check_keyspace(before, keyspace, updates).map_err(EngineError::Unstorable)?;
    }
    Ok(())
}

fn check_keyspace(before: Option<&Keyspace>, new: &Keyspace, updates: &[PartitionUpdate]) -> Result<(), String> {
    let unchanged = |name: &Arc<str>| before.and_then(|before| before.types.get(name));
    let mut unchanged_types = UserTypes::new();
    for (name, definition) in &new.types {
        if unchanged(name) == Some(definition) {
            unchanged_types.insert(name.clone(), definition.clone());
            continue;
        }
        let ty = CqlType::Udt { definition: definition.clone(), frozen: true };
        ty.check_size().map_err(|why| format!("type {}.{name} cannot be stored: {why}", new.name))?;
    }
    let table_before = |table: &Arc<Table>| before.and_then(|before| before.tables.get(&table.name));
    let is_changed = |table: &&Arc<Table>| !is_same(table_before(table), table);
    let changed: Vec<&Arc<Table>> = new.tables.values().filter(is_changed).collect();
    for table in &changed {
        check_sizes(table)?;
    }
    let rows = rows_of_keyspace(new, &changed, updates);
    let loaded = schema_rows::load_changes(&rows, unchanged_types)
        .map_err(|damage| format!("the schema cannot be stored, a start could not read it: {damage}"))?;
    debug_assert_eq!(loaded.name, new.name);
    if loaded.replication != new.replication || loaded.durable_writes != new.durable_writes {
        return Err(format!("the settings of keyspace {} would not survive a restart", new.name));
    }
    if let Some((name, _)) = new.types.iter().find(|(name, definition)| loaded.types.get(*name) != Some(definition)) {
        return Err(format!("type {}.{name} would not survive a restart", new.name));
    }
    for table in changed {
        let survives = match loaded.tables.get(&table.name) {
            Some(loaded) => difference(loaded, table).map_or(Ok(()), Err),
            None => Err("it".to_owned()),
        };
        survives.map_err(|what| format!("table {}.{}: {what} would not survive a restart", new.name, table.name))?;
    }
    Ok(())
}

/// Most of the compared objects are shared between the old schema and the new one.
fn is_same<T: PartialEq>(before: Option<&Arc<T>>, now: &Arc<T>) -> bool {
    before.is_some_and(|before| Arc::ptr_eq(before, now) || before == now)
}

fn check_sizes(table: &Table) -> Result<(), String> {
    for column in table.columns_in_select_order() {
        let name = &column.name;
        let fails = |why| format!("column {name} of table {}.{} cannot be stored: {why}", table.keyspace, table.name);
        column.ty.check_size().map_err(fails)?;
    }
    Ok(())
}

fn rows_of_keyspace(keyspace: &Keyspace, changed: &[&Arc<Table>], updates: &[PartitionUpdate]) -> SchemaRows {
    let rows = |name: &str| {
        let of_table = updates.iter().filter(|update| *update.table().name == *name);
        of_table.filter(|update| update.key().bytes() == keyspace.name.as_bytes()).flat_map(rows_of).collect()
    };
    let is_of_changed = |update: &&PartitionUpdate| {
        *update.table().name == *schema_rows::LAYOUTS
            && changed.iter().any(|table| update.key().bytes() == table.id.0.as_bytes())
    };
    SchemaRows {
        keyspaces: rows(schema_rows::KEYSPACES),
        tables: rows(schema_rows::TABLES),
        columns: rows(schema_rows::COLUMNS),
        dropped_columns: rows(schema_rows::DROPPED_COLUMNS),
        column_masks: rows(schema_rows::COLUMN_MASKS),
        types: rows(schema_rows::TYPES),
        indexes: rows(schema_rows::INDEXES),
        layouts: updates.iter().filter(is_of_changed).flat_map(rows_of).collect(),
        is_foreign: false,
    }
}

/// Describes the difference between a table and the one that was read back. Of a column that is not visible any more,
/// only the properties that are needed to skip its cells count, because its type may be gone.
fn difference(loaded: &Table, table: &Table) -> Option<String> {
    let keys = |table: &Table| [table.partition_key().to_vec(), table.clustering().to_vec()].concat();
    let differs = |(loaded, column): (Arc<Column>, Arc<Column>)| (loaded != column).then_some(column);
    if let Some(column) = keys(loaded).into_iter().zip(keys(table)).find_map(differs) {
        return Some(described(&column));
    }
    if loaded.form() != table.form() {
        return Some("its form".into());
    }
    for is_static in [true, false] {
        let (loaded_sets, sets) = (loaded.column_sets(is_static), table.column_sets(is_static));
        let is_missing = |column: &&Arc<Column>| !is_in(column, loaded_sets.current());
        if let Some(column) = sets.current().shown().find(is_missing) {
            return Some(described(column));
        }
        let is_alike = |(loaded, change): (&ColumnChange, &ColumnChange)| {
            loaded.removed == change.removed && layout_of(loaded).eq(layout_of(change))
        };
        let is_same_count = loaded_sets.count() == sets.count();
        if !is_same_count || !loaded_sets.changes().zip(sets.changes()).all(is_alike) {
            return Some("the layout of its rows".into());
        }
    }
    let dropped = |(loaded, dropped)| (loaded != dropped).then_some(dropped);
    if let Some(dropped) = loaded.dropped().iter().zip(table.dropped()).find_map(dropped) {
        return Some(format!("dropped column {} of type {}", dropped.name, dropped.ty));
    }
    let mask = table.masks().iter().find(|(name, mask)| loaded.masks().get(*name) != Some(mask));
    if let Some((name, _)) = mask {
        return Some(format!("the mask of column {name}"));
    }
    if let Some(index) = table.indexes().iter().find(|index| !loaded.indexes().contains(index)) {
        return Some(format!("index {}", index.name));
    }
    let is_same = loaded.options == table.options
        && loaded.masks().len() == table.masks().len()
        && loaded.indexes().len() == table.indexes().len()
        && loaded.id == table.id
        && keys(loaded).len() == keys(table).len()
        && loaded.dropped().len() == table.dropped().len()
        && loaded.next_column_id() == table.next_column_id();
    (!is_same).then(|| "its options".into())
}

fn is_in(column: &Column, set: &ColumnSet) -> bool {
    let place = set.index_of_kind(&column.name, column.is_complex());
    place.is_some_and(|place| *set.columns[place] == *column)
}

fn described(column: &Column) -> String {
    format!("column {} of type {}", column.name, column.ty)
}

/// The properties by which rows are read, for each column that a change adds.
fn layout_of(change: &ColumnChange) -> impl Iterator<Item = (u32, &str, bool, bool)> {
    change.added.iter().map(|column| (column.id.0, &*column.name, column.is_dropped, column.is_complex()))
}

/// Fails for options that a flush or a compaction of the table could not use: they are read by the code that those
/// call.
pub(crate) fn check_options(table: &Table) -> Result<(), EngineError> {
    let writer = WriterOptions::for_table(table).map(|_| ()).map_err(|error| error.to_string());
    let compaction = &table.options.compaction;
    let strategy = Strategy::from_options(compaction).map(|_| ()).map_err(|error| error.to_string());
    let tombstones = TombstoneOptions::from_options(compaction).map(|_| ()).map_err(|error| error.to_string());
    writer.and(strategy).and(tombstones).map_err(|why| {
        EngineError::TableOptions(format!("Table {}.{} could not be stored: {why}", table.keyspace, table.name))
    })
}
