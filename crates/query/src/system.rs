//! Virtual tables, whose rows are made when they are read, and the node's description in `system.local`.

mod index_views;
mod node;
mod row_list;
mod views;
mod virtual_schema;

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Engine;
use model::{BoxCursor, ReadRange, Table};

use crate::{Processor, ProcessorOptions, QueryError};

pub use node::Node;
use row_list::RowList;

/// The virtual keyspaces and their tables.
pub(crate) struct VirtualTables {
    keyspaces: BTreeMap<&'static str, BTreeMap<Arc<str>, VirtualTable>>,
}

/// A virtual table and the function that makes its rows.
struct VirtualTable {
    table: Arc<Table>,
    rows: fn(&Processor, &mut RowList),
}

/// A virtual keyspace, one of its tables, and the function that makes the rows.
type Definition = (&'static str, Table, fn(&Processor, &mut RowList));

impl VirtualTables {
    pub fn new(_engine: &Arc<Engine>, _options: &ProcessorOptions) -> Self {
        let mut keyspaces: BTreeMap<&'static str, BTreeMap<Arc<str>, VirtualTable>> = BTreeMap::new();
        let definitions = [virtual_schema::tables(), views::tables(), index_views::tables()];
        for (keyspace, table, rows) in definitions.into_iter().flatten() {
            let table = VirtualTable { table: Arc::new(table), rows };
            keyspaces.entry(keyspace).or_default().insert(table.table.name.clone(), table);
        }
        VirtualTables { keyspaces }
    }

    /// The names of the virtual keyspaces.
    pub fn keyspace_names(&self) -> impl Iterator<Item = &'static str> {
        self.keyspaces.keys().copied()
    }

    /// The tables of a virtual keyspace.
    pub fn tables(&self, keyspace: &str) -> impl Iterator<Item = &Arc<Table>> {
        self.keyspaces.get(keyspace).into_iter().flatten().map(|(_, table)| &table.table)
    }

    /// Whether there is a virtual keyspace of that name.
    pub fn has_keyspace(&self, name: &str) -> bool {
        self.keyspaces.contains_key(name)
    }

    /// The virtual table of that name.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        Some(&self.keyspaces.get(keyspace)?.get(name)?.table)
    }

    /// Whether this table is one of them.
    pub fn contains(&self, table: &Table) -> bool {
        self.table(&table.keyspace, &table.name).is_some()
    }

    /// Opens a cursor over the rows of a virtual table.
    pub fn read<'c>(
        &'c self,
        processor: &'c Processor,
        table: &'c Arc<Table>,
        range: &ReadRange,
    ) -> Result<BoxCursor<'c>, QueryError> {
        let found = self.keyspaces.get(&*table.keyspace).and_then(|tables| tables.get(&table.name));
        let Some(found) = found else {
            return Err(QueryError::invalid(format!("table {} does not exist", table.name)));
        };
        let mut rows = RowList::new(&found.table, processor.now_micros());
        (found.rows)(processor, &mut rows);
        Ok(Box::new(rows.into_cursor(range)))
    }
}
