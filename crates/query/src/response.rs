//! The answer to a statement.

use std::sync::Arc;

use protocol::{ResultColumns, SchemaChange};

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The answer itself.
    pub body: ResponseBody,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// The kinds of answers.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseBody {
    /// The statement succeeded without a result.
    Void,
    /// Rows.
    Rows(Rows),
    /// The client's keyspace changed to this one.
    SetKeyspace(Arc<str>),
    /// The schema was changed.
    SchemaChange {
        /// The object that the statement names.
        change: SchemaChange,
        /// The objects that changed with it: the tables and types of a dropped keyspace. Clients are told about these
        /// first.
        contained: Vec<SchemaChange>,
    },
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// The columns.
    pub metadata: Arc<ResultColumns>,
    /// The paging state for the next page; `None` after the last one.
    pub paging_state: Option<Vec<u8>>,
    /// The number of rows in `cells`.
    pub row_count: usize,
    /// The rows one after the other in the protocol's form: `[i32 length][bytes]` per cell, with length -1 for null.
    pub cells: Vec<u8>,
}
