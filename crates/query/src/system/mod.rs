//! Virtual tables: rows made when they are read.

use std::sync::Arc;

use engine::Engine;
use model::{BoxCursor, ReadRange, Table};

use crate::{Processor, ProcessorOptions, QueryError};

/// The virtual keyspaces and their tables.
pub(crate) struct VirtualTables {}

impl VirtualTables {
    pub fn new(_engine: &Arc<Engine>, _options: &ProcessorOptions) -> Self {
        VirtualTables {}
    }

    /// Whether there is a virtual keyspace of that name.
    pub fn has_keyspace(&self, _name: &str) -> bool {
        false
    }

    /// The virtual table of that name.
    pub fn table(&self, _keyspace: &str, _name: &str) -> Option<&Arc<Table>> {
        None
    }

    /// Whether this table is one of them.
    pub fn contains(&self, _table: &Table) -> bool {
        false
    }

    /// Opens a cursor over the rows of a virtual table.
    pub fn read<'c>(
        &'c self,
        _processor: &'c Processor,
        table: &'c Arc<Table>,
        _range: &ReadRange,
    ) -> Result<BoxCursor<'c>, QueryError> {
        Err(QueryError::not_supported(format!("reading {}.{}", table.keyspace, table.name)))
    }
}
