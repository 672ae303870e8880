//! What a statement answers.

use std::sync::Arc;

use types::CqlType;

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The answer itself.
    pub body: ResponseBody,
    /// For the client to log.
    pub warnings: Vec<String>,
}

/// The kinds of answers.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseBody {
    /// Nothing to say: it is done.
    Void,
    /// Rows.
    Rows(Rows),
    /// The client is in this keyspace now.
    SetKeyspace(Arc<str>),
    /// The schema was changed.
    SchemaChange(SchemaChange),
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// The columns.
    pub metadata: Arc<ResultMetadata>,
    /// Where the next page starts; `None` after the last one.
    pub paging_state: Option<Vec<u8>>,
    /// How many rows `cells` holds.
    pub row_count: usize,
    /// The rows one after the other, in the protocol's form: per cell `[i32 length][bytes]`, length -1 for null.
    pub cells: Vec<u8>,
}

/// The columns of a result.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResultMetadata {
    /// In the order of the cells.
    pub columns: Vec<ColumnSpec>,
}

/// Describes a column of a result, or a bind marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The keyspace.
    pub keyspace: Arc<str>,
    /// The table.
    pub table: Arc<str>,
    /// The column's name or the selected expression's text.
    pub name: Arc<str>,
    /// The type.
    pub ty: CqlType,
}

impl ColumnSpec {
    /// A column beside this one: the same table, another name and type.
    pub fn sibling(&self, name: impl Into<Arc<str>>, ty: CqlType) -> ColumnSpec {
        ColumnSpec { keyspace: self.keyspace.clone(), table: self.table.clone(), name: name.into(), ty }
    }
}

/// A change of the schema, as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// What happened.
    pub change: ChangeType,
    /// To what kind of thing.
    pub target: ChangeTarget,
    /// The keyspace.
    pub keyspace: String,
    /// The table, type, function or aggregate; `None` for a keyspace.
    pub name: Option<String>,
    /// The argument types of a function or aggregate, in CQL.
    pub arguments: Vec<String>,
    /// What went with it: a dropped keyspace's tables and types. Listeners are told of these first.
    pub contained: Vec<SchemaChange>,
}

/// What happened to a part of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the protocol's.
pub enum ChangeType {
    Created,
    Updated,
    Dropped,
}

/// The kind of thing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the protocol's.
pub enum ChangeTarget {
    Keyspace,
    Table,
    Type,
    Function,
    Aggregate,
}
