//! The SELECT statement.

use super::names::{Identifier, QualifiedName};
use super::relations::WhereClause;
use super::selectors::{SelectClause, Selectable};
use super::terms::Term;

/// Ascending or descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Asc,
    Desc,
}

/// One column of ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordering {
    pub column: Identifier,
    /// The vector of `column ANN OF vector`.
    pub ann_of: Option<Term>,
    pub direction: Direction,
}

/// `SELECT ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    pub table: QualifiedName,
    /// `SELECT JSON`.
    pub is_json: bool,
    pub is_distinct: bool,
    pub selection: SelectClause,
    pub where_clause: WhereClause,
    pub group_by: Vec<Selectable>,
    pub order_by: Vec<Ordering>,
    /// An integer constant or a marker.
    pub per_partition_limit: Option<Term>,
    /// An integer constant or a marker.
    pub limit: Option<Term>,
    pub allow_filtering: bool,
}
