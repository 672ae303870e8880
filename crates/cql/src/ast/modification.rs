//! INSERT, UPDATE, DELETE and BATCH.

use super::names::{Identifier, QualifiedName};
use super::relations::{Conditions, WhereClause};
use super::terms::{BindMarker, Term};

/// `USING TIMESTAMP t AND TTL t`; each is an integer constant or a marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Microseconds.
    pub timestamp: Option<Term>,
    /// Seconds.
    pub time_to_live: Option<Term>,
}

/// `INSERT INTO table (columns) VALUES (values)`. The two lists may differ in length, which is checked later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    pub table: QualifiedName,
    pub columns: Vec<Identifier>,
    pub values: Vec<Term>,
    pub if_not_exists: bool,
    pub attributes: Attributes,
}

/// The document of INSERT JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    Literal(String),
    Marker(BindMarker),
}

/// `INSERT INTO table JSON ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertJson {
    pub table: QualifiedName,
    pub value: JsonValue,
    /// `DEFAULT UNSET`: columns that are not in the document keep their value. Otherwise they become null.
    pub default_unset: bool,
    pub if_not_exists: bool,
    pub attributes: Attributes,
}

/// The change of a column by UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `c = value`.
    SetValue(Term),
    /// `c[element] = value`.
    SetElement { element: Term, value: Term },
    /// `c.field = value`.
    SetField { field: Identifier, value: Term },
    /// `c = c + value`, `c += value`; also `c = c -3`, as the addition of a negative number.
    Addition(Term),
    /// `c = c - value`, `c -= value`.
    Subtraction(Term),
    /// `c = value + c`.
    Prepend(Term),
}

/// `UPDATE table SET ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub table: QualifiedName,
    pub attributes: Attributes,
    pub operations: Vec<(Identifier, Operation)>,
    pub where_clause: WhereClause,
    /// Never `NotExists`.
    pub conditions: Conditions,
}

/// The part of a row that DELETE removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    Column(Identifier),
    /// `c[element]`.
    Element {
        column: Identifier,
        element: Term,
    },
    /// `c.field`.
    Field {
        column: Identifier,
        field: Identifier,
    },
}

impl Deletion {
    /// The affected column.
    pub fn column(&self) -> &Identifier {
        match self {
            Deletion::Column(column) | Deletion::Element { column, .. } | Deletion::Field { column, .. } => column,
        }
    }
}

/// `DELETE ... FROM table`. Without deletions it deletes whole rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub table: QualifiedName,
    pub attributes: Attributes,
    pub deletions: Vec<Deletion>,
    pub where_clause: WhereClause,
    /// Never `NotExists`.
    pub conditions: Conditions,
}

/// A statement that can be part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modification {
    Insert(Insert),
    InsertJson(InsertJson),
    Update(Update),
    Delete(Delete),
}

impl Modification {
    /// The table written to.
    pub fn table(&self) -> &QualifiedName {
        match self {
            Modification::Insert(insert) => &insert.table,
            Modification::InsertJson(insert) => &insert.table,
            Modification::Update(update) => &update.table,
            Modification::Delete(delete) => &delete.table,
        }
    }

    /// Its USING clause.
    pub fn attributes(&self) -> &Attributes {
        match self {
            Modification::Insert(insert) => &insert.attributes,
            Modification::InsertJson(insert) => &insert.attributes,
            Modification::Update(update) => &update.attributes,
            Modification::Delete(delete) => &delete.attributes,
        }
    }
}

/// Kind of batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
}

/// `BEGIN BATCH ... APPLY BATCH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub kind: BatchKind,
    pub attributes: Attributes,
    pub statements: Vec<Modification>,
}
