//! Descriptions of columns: those of a result, and bind markers.

use std::sync::Arc;

use types::CqlType;

/// One column of a result, or one bind marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Keyspace of its table.
    pub keyspace: Arc<str>,
    /// Its table.
    pub table: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    pub ty: CqlType,
}

impl ColumnSpec {
    /// A column of the same table with another name and type.
    pub fn sibling(&self, name: impl Into<Arc<str>>, ty: CqlType) -> ColumnSpec {
        ColumnSpec { keyspace: self.keyspace.clone(), table: self.table.clone(), name: name.into(), ty }
    }
}
