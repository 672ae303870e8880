//! Secondary indexes in `system_schema.indexes`, and their entries in `system."IndexInfo"`.

use std::sync::Arc;

use model::{Index, IndexClass, Keyspace, PartitionUpdate, Schema, Table};
use types::CqlType;

use super::{BUILT_INDEXES, schema_table, text, text_map};
use crate::system::{SystemRow, SystemWrite};

/// Rewrites the indexes of changed tables, and deletes the entries of removed indexes in `IndexInfo`.
pub(super) fn change(
    [mut indexes, mut built]: [SystemWrite; 2],
    before: Option<&Keyspace>,
    keyspace: &Keyspace,
    writes: &mut Vec<PartitionUpdate>,
) {
    let of_before = before.iter().flat_map(|before| before.tables.values());
    let is_changed = |table: &&Arc<Table>| keyspace.tables.get(&table.name) != Some(*table);
    let is_new = |table: &&Arc<Table>| before.and_then(|before| before.tables.get(&table.name)) != Some(*table);
    let (mut changed, mut forgotten) = (false, false);
    for table in of_before.filter(is_changed) {
        for index in table.indexes() {
            changed = true;
            indexes.clear_rows(&[table.name.as_bytes(), index.name.as_bytes()]);
            let still = keyspace.tables.get(&table.name).filter(|other| other.id == table.id);
            if !still.is_some_and(|other| other.indexes().contains(index)) {
                forgotten = true;
                built.clear_rows(&[index.name.as_bytes()]);
            }
        }
    }
    for table in keyspace.tables.values().filter(is_new) {
        for index in table.indexes() {
            changed = true;
            indexes.row(&[table.name.as_bytes(), index.name.as_bytes()], &index_values(index));
        }
    }
    writes.extend(changed.then(|| indexes.build()));
    writes.extend(forgotten.then(|| built.build()));
}

fn index_values(index: &Index) -> Vec<(&'static str, Option<Vec<u8>>)> {
    vec![("kind", text(kind(index.class))), ("options", text_map(&index.options))]
}

fn kind(class: IndexClass) -> &'static str {
    match class {
        IndexClass::Plain => "COMPOSITES",
        IndexClass::StorageAttached | IndexClass::Sasi => "CUSTOM",
    }
}

/// The index of a row; `None` if its class is not supported.
pub(crate) fn read(row: &SystemRow) -> Option<Index> {
    let index = Index::from_options(&row.text("index_name"), row.text_map("options"))?;
    (row.text("kind") == kind(index.class)).then_some(index)
}

/// The write that records that an index is built.
pub(crate) fn note_built(schema: &Schema, keyspace: &str, index: &str, timestamp: i64) -> PartitionUpdate {
    let mut write = SystemWrite::new(schema_table(schema, BUILT_INDEXES), keyspace.as_bytes(), timestamp);
    write.row(&[index.as_bytes()], &[]);
    write.build()
}

/// The index of a row; `None` if it is of a kind or column that the table does not have.
pub(super) fn load(row: &SystemRow, table: &Table) -> Option<Index> {
    let index = read(row)?;
    let column = table.column(&index.column)?;
    let is_of_vectors = index.class == IndexClass::StorageAttached && matches!(column.ty, CqlType::Vector { .. });
    let index = if is_of_vectors { index.of_vectors()? } else { index };
    (column.is_complex() == index.part.is_of_collection()).then_some(index)
}
