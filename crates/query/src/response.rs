//! What a statement answers.

use std::sync::Arc;

use protocol::{ResultColumns, SchemaChange};

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
    SchemaChange {
        /// What the statement names.
        change: SchemaChange,
        /// What was changed with it: a dropped keyspace's tables and types. Clients learn of these first.
        contained: Vec<SchemaChange>,
    },
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// The columns.
    pub metadata: Arc<ResultColumns>,
    /// Where the next page starts; `None` after the last one.
    pub paging_state: Option<Vec<u8>>,
    /// How many rows `cells` holds.
    pub row_count: usize,
    /// The rows one after the other, in the protocol's form: per cell `[i32 length][bytes]`, length -1 for null.
    pub cells: Vec<u8>,
}
