//! Restrictions of a WHERE clause and conditions of an IF clause.

use std::fmt;

use super::names::{Identifier, QualifiedName};
use super::terms::{BindMarker, Term, write_list};

/// Comparison of a relation or condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
    Neq,
    In,
    Contains,
    ContainsKey,
    Like,
    /// `IS NOT`, only with NULL.
    IsNot,
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operator::Eq => "=",
            Operator::Lt => "<",
            Operator::Lte => "<=",
            Operator::Gt => ">",
            Operator::Gte => ">=",
            Operator::Neq => "!=",
            Operator::In => "IN",
            Operator::Contains => "CONTAINS",
            Operator::ContainsKey => "CONTAINS KEY",
            Operator::Like => "LIKE",
            Operator::IsNot => "IS NOT",
        })
    }
}

/// The right side of IN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InValues {
    /// `IN ?`: one marker for the whole list.
    Marker(BindMarker),
    /// `IN (a, b)`, also empty. For multi-column relations: all tuples, or all markers.
    Terms(Vec<Term>),
}

impl fmt::Display for InValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InValues::Marker(marker) => write!(f, "{marker}"),
            InValues::Terms(terms) => write_list(f, "(", terms, ")"),
        }
    }
}

/// One restriction of a WHERE clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `column operator value`; `IS NOT NULL` has the value NULL. Never `In`.
    SingleColumn { column: Identifier, operator: Operator, value: Term },
    /// `column IN values`.
    SingleColumnIn { column: Identifier, values: InValues },
    /// `column[key] operator value`.
    MapElement { column: Identifier, key: Term, operator: Operator, value: Term },
    /// `token(columns) operator value`.
    Token { columns: Vec<Identifier>, operator: Operator, value: Term },
    /// `(columns) operator value`; the value is a tuple or a marker.
    MultiColumn { columns: Vec<Identifier>, operator: Operator, value: Term },
    /// `(columns) IN values`.
    MultiColumnIn { columns: Vec<Identifier>, values: InValues },
}

impl Relation {
    /// The columns of the left side.
    pub fn columns(&self) -> &[Identifier] {
        match self {
            Relation::SingleColumn { column, .. }
            | Relation::SingleColumnIn { column, .. }
            | Relation::MapElement { column, .. } => std::slice::from_ref(column),
            Relation::Token { columns, .. }
            | Relation::MultiColumn { columns, .. }
            | Relation::MultiColumnIn { columns, .. } => columns,
        }
    }

    /// The comparison, whatever the left side is.
    pub fn operator(&self) -> Operator {
        match self {
            Relation::SingleColumn { operator, .. }
            | Relation::MapElement { operator, .. }
            | Relation::Token { operator, .. }
            | Relation::MultiColumn { operator, .. } => *operator,
            Relation::SingleColumnIn { .. } | Relation::MultiColumnIn { .. } => Operator::In,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Relation::SingleColumn { column, operator, value } => write!(f, "{column} {operator} {value}"),
            Relation::SingleColumnIn { column, values } => write!(f, "{column} IN {values}"),
            Relation::MapElement { column, key, operator, value } => {
                write!(f, "{column}[{key}] {operator} {value}")
            }
            Relation::Token { columns, operator, value } => {
                write_list(f, "token(", columns, ")")?;
                write!(f, " {operator} {value}")
            }
            Relation::MultiColumn { columns, operator, value } => {
                write_list(f, "(", columns, ")")?;
                write!(f, " {operator} {value}")
            }
            Relation::MultiColumnIn { columns, values } => {
                write_list(f, "(", columns, ")")?;
                write!(f, " IN {values}")
            }
        }
    }
}

/// `expr(index, value)`: restriction by a custom index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomIndexExpression {
    pub index: QualifiedName,
    pub value: Term,
}

/// All restrictions of a statement, joined by AND, in the order written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhereClause {
    pub relations: Vec<Relation>,
    pub expressions: Vec<CustomIndexExpression>,
}

/// The value that a condition tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionTarget {
    Column,
    /// `column[element]`.
    Element(Term),
    /// `column.field`.
    Field(Identifier),
}

/// The value that a condition compares with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionValue {
    Term(Term),
    /// Only with `Operator::In`.
    In(InValues),
}

/// One condition of an IF clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub column: Identifier,
    pub target: ConditionTarget,
    pub operator: Operator,
    pub value: ConditionValue,
}

/// The IF clause of INSERT, UPDATE or DELETE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Conditions {
    /// No IF.
    #[default]
    None,
    /// `IF NOT EXISTS` (INSERT only).
    NotExists,
    /// `IF EXISTS` (UPDATE and DELETE).
    Exists,
    /// `IF a = 1 AND ...` (UPDATE and DELETE).
    Columns(Vec<Condition>),
}
