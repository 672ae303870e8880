//! Whether the rows of `system_schema` agree with a table's layout in `system.table_layouts` about its columns.
//!
//! Clients read the rows, and the node reads a table's data by the layout. One mutation writes both, so they differ
//! only if a part of it was lost. The layout is used then, and the start reports the difference.

use std::collections::{BTreeMap, BTreeSet};

use model::{Keyspace, Table};
use types::CqlType;

use crate::system::SystemRow;

const COLUMNS: &str = "system_schema.columns";
const DROPPED_COLUMNS: &str = "system_schema.dropped_columns";
const LAYOUTS: &str = "system.table_layouts";

/// Compares the table, as its layout has it, with its rows of `system_schema.columns`; `None` if they agree. A layout
/// has no columns of the key.
pub(super) fn differing_column(keyspace: &Keyspace, table: &Table, rows: &[&SystemRow]) -> Option<String> {
    let is_key = |row: &SystemRow| matches!(row.text("kind").as_str(), "partition_key" | "clustering");
    let stored = rows.iter().filter(|row| !is_key(row));
    let mut stored: BTreeMap<String, &SystemRow> = stored.map(|row| (row.text("column_name"), *row)).collect();
    for (kind, columns) in [("static", table.statics()), ("regular", table.regulars())] {
        for column in columns.shown() {
            let Some(row) = stored.remove(&*column.name) else {
                return Some(lacks(COLUMNS, "column", &column.name, LAYOUTS));
            };
            let ty = CqlType::parse_name(&row.text("type"), &|user| keyspace.types.get(user).cloned());
            if row.text("kind") != kind || ty.as_ref() != Some(&column.ty) {
                let in_rows = format!("{} {}", row.text("kind"), row.text("type"));
                let in_layout = format!("{kind} {}", column.ty);
                return Some(format!("column {} is {in_rows} in {COLUMNS} and {in_layout} in {LAYOUTS}", column.name));
            }
        }
    }
    stored.into_keys().next().map(|name| lacks(LAYOUTS, "column", &name, COLUMNS))
}

/// Compares the dropped columns of a layout with the rows of `system_schema.dropped_columns`; `None` if they agree.
pub(super) fn differing_drop(layout: &BTreeMap<String, i64>, rows: &[&SystemRow]) -> Option<String> {
    let stored: BTreeSet<String> = rows.iter().map(|row| row.text("column_name")).collect();
    let only_in_layout = layout.keys().find(|name| !stored.contains(*name));
    let only_in_rows = stored.iter().find(|name| !layout.contains_key(*name));
    only_in_layout
        .map(|name| lacks(DROPPED_COLUMNS, "dropped column", name, LAYOUTS))
        .or_else(|| only_in_rows.map(|name| lacks(LAYOUTS, "dropped column", name, DROPPED_COLUMNS)))
}

fn lacks(place: &str, what: &str, name: &str, other: &str) -> String {
    format!("{place} lacks the {what} {name}, which {other} has")
}
