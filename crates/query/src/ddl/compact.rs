//! Tables with COMPACT STORAGE: the columns that CREATE TABLE gives them, and ALTER TABLE ... DROP COMPACT STORAGE.

use std::collections::BTreeSet;

use model::{ColumnKind, Table, TableBuilder, TableForm};
use types::CqlType;

use crate::QueryError;
use crate::execution::Execution;

/// A column that is not part of the primary key: its name, its type, and whether it was declared static.
pub(super) type Other<'c> = (&'c str, &'c CqlType, bool);

/// Refuses columns that a table with COMPACT STORAGE cannot have. `others` are those outside the primary key.
pub(super) fn check(others: &[Other<'_>], has_clustering: bool) -> Result<(), QueryError> {
    let refuse = |message: String| Err(QueryError::invalid(message));
    if others.iter().any(|(_, ty, _)| ty.is_multi_cell()) {
        return refuse("Non-frozen collections and UDTs are not supported with COMPACT STORAGE".into());
    }
    if others.iter().any(|(.., is_static)| *is_static) {
        return refuse("Static columns are not supported in COMPACT STORAGE tables".into());
    }
    if others.is_empty() && !has_clustering {
        return refuse("No definition found that is not part of the PRIMARY KEY".into());
    }
    if others.len() > 1 && has_clustering {
        let names: Vec<&str> = others.iter().map(|(name, ..)| *name).collect();
        return refuse(format!(
            "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of the PRIMARY KEY (got: {})",
            names.join(", ")
        ));
    }
    Ok(())
}

/// Adds the columns outside the primary key to a table that has its key, including those that its form implies.
pub(super) fn add_columns<'c>(
    builder: TableBuilder,
    form: TableForm,
    others: &[Other<'c>],
    declared: &BTreeSet<&'c str>,
) -> TableBuilder {
    let builder = builder.form(form);
    let add_all =
        |builder: TableBuilder, kind| builder.add_all(others.iter().map(|(name, ty, _)| (*name, (*ty).clone(), kind)));
    let value =
        || free_name("value", std::iter::once(String::new()).chain((1..).map(|n: u32| n.to_string())), declared);
    match form {
        TableForm::StaticCompact => {
            let clustering = free_name("column", (1..).map(|n: u32| n.to_string()), declared);
            let is_counter = others.iter().any(|(_, ty, _)| **ty == CqlType::Counter);
            let value_type = if is_counter { CqlType::Counter } else { CqlType::Blob };
            let builder = builder.clustering(&clustering, CqlType::Text, false);
            add_all(builder, ColumnKind::Static).regular(&value(), value_type)
        }
        _ if others.is_empty() => builder.regular(&value(), CqlType::Empty),
        _ => add_all(builder, ColumnKind::Regular),
    }
}

/// The first of the names with these endings that no declared column has.
fn free_name(stem: &str, mut endings: impl Iterator<Item = String>, declared: &BTreeSet<&str>) -> String {
    let name = endings.find_map(|ending| {
        let name = format!("{stem}{ending}");
        (!declared.contains(&*name)).then_some(name)
    });
    name.unwrap_or_else(|| stem.to_owned())
}

/// The table without COMPACT STORAGE, in which statements may name all columns.
pub(super) fn drop(table: &Table, execution: &Execution<'_>) -> Result<Table, QueryError> {
    if !execution.processor.options().drop_compact_storage_enabled {
        let message = "DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use.";
        return Err(QueryError::invalid(message));
    }
    if !table.form().is_compact() {
        return Err(QueryError::invalid("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE"));
    }
    Ok(table.to_builder().form(TableForm::Ordinary).build())
}
