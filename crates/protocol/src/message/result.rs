//! The results of statements.

use std::sync::Arc;

use super::SchemaChange;
use crate::ResultColumns;

/// The result of an executed statement, for a RESULT message.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseBody {
    /// The statement was executed and returns nothing.
    Void,
    /// Rows.
    Rows(Rows),
    /// The connection now uses this keyspace.
    SetKeyspace(Arc<str>),
    /// The schema was changed.
    SchemaChange {
        /// The change that the statement names.
        change: SchemaChange,
        /// The changes that it implies: drops of a dropped keyspace's tables and types. Clients learn of these first.
        contained: Vec<SchemaChange>,
    },
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// The columns.
    pub metadata: Arc<ResultColumns>,
    /// How the columns accompany the rows.
    pub form: MetadataForm,
    /// Where the next page starts; `None` after the last one.
    pub paging_state: Option<Vec<u8>>,
    /// How many rows `cells` holds.
    pub row_count: usize,
    /// The rows one after the other, in the protocol's form: per cell `[i32 length][bytes]`, length -1 for null.
    pub cells: Vec<u8>,
}

/// The form in which the columns accompany rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataForm {
    /// Whether names and types are left out: the client has them.
    pub skip: bool,
    /// The id of the columns where the client has others (v5).
    pub changed_id: Option<[u8; 16]>,
}
