//! The statements of a batch.

use super::Values;

/// The kind of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    Logged = 0,
    Unlogged = 1,
    Counter = 2,
}

/// A statement of a batch and its values.
#[derive(Clone, Debug)]
pub struct BatchEntry<'a, P> {
    /// The statement.
    pub statement: BatchStatement<'a, P>,
    /// Its values. They never have names.
    pub values: Values<'a>,
}

/// A statement of a batch, in one of its two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStatement<'a, P> {
    /// The text of the statement.
    Text(&'a str),
    /// A prepared statement: its id in a message, the statement itself in a request to the query layer.
    Prepared(P),
}
