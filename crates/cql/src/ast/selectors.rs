//! The selected expressions of a SELECT.

use std::fmt;

use super::names::{FunctionName, Identifier};
use super::terms::{ArithmeticOperator, Term, write_entries, write_list};
use super::types::{NativeType, TypeName};

/// The list after SELECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectClause {
    /// `*`.
    Wildcard,
    Selectors(Vec<Selector>),
}

/// One selected expression with its alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub selectable: Selectable,
    pub alias: Option<Identifier>,
}

/// The number that `WRITETIME`, `MAXWRITETIME` or `TTL` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WritetimeOrTtl {
    Writetime,
    MaxWritetime,
    Ttl,
}

impl fmt::Display for WritetimeOrTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WritetimeOrTtl::Writetime => "writetime",
            WritetimeOrTtl::MaxWritetime => "maxwritetime",
            WritetimeOrTtl::Ttl => "ttl",
        })
    }
}

/// Something that can be selected (or grouped by).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selectable {
    Column(Identifier),
    /// A constant, NULL or marker.
    Term(Term),
    /// `COUNT(*)` (and `COUNT(1)`, which is parsed as a function call).
    CountRows,
    /// `WRITETIME(column...)`; `selected` is the column with its modifiers (field, element or slice).
    WritetimeOrTtl {
        kind: WritetimeOrTtl,
        column: Identifier,
        selected: Box<Selectable>,
    },
    Cast {
        argument: Box<Selectable>,
        type_name: NativeType,
    },
    Function {
        name: FunctionName,
        arguments: Vec<Selectable>,
    },
    Operation {
        operator: ArithmeticOperator,
        left: Box<Selectable>,
        right: Box<Selectable>,
    },
    Negation(Box<Selectable>),
    /// `receiver.field`.
    Field {
        receiver: Box<Selectable>,
        field: Identifier,
    },
    /// `receiver[element]`.
    Element {
        receiver: Box<Selectable>,
        element: Box<Term>,
    },
    /// `receiver[from..to]`; either end may be open.
    Slice {
        receiver: Box<Selectable>,
        from: Option<Box<Term>>,
        to: Option<Box<Term>>,
    },
    /// `(type) selectable`.
    TypeHint {
        type_name: TypeName,
        selectable: Box<Selectable>,
    },
    /// `(a)` is `a`; `(a, b)` is a tuple.
    BetweenParenthesesOrTuple(Vec<Selectable>),
    /// `[a, b]`: list or vector.
    List(Vec<Selectable>),
    /// `{a, b}`.
    Set(Vec<Selectable>),
    /// `{a: b}`: a map, or a user type when the keys are plain names.
    MapOrUdt(Vec<(Selectable, Selectable)>),
}

impl fmt::Display for Selectable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selectable::Column(name) => write!(f, "{name}"),
            Selectable::Term(term) => write!(f, "{term}"),
            Selectable::CountRows => f.write_str("count(*)"),
            Selectable::WritetimeOrTtl { kind, selected, .. } => write!(f, "{kind}({selected})"),
            Selectable::Cast { argument, type_name } => write!(f, "cast({argument} as {type_name})"),
            Selectable::Function { name, arguments } => {
                write!(f, "{name}")?;
                write_list(f, "(", arguments, ")")
            }
            Selectable::Operation { operator, left, right } => write!(f, "{left} {operator} {right}"),
            Selectable::Negation(argument) => write!(f, "-{argument}"),
            Selectable::Field { receiver, field } => write!(f, "{receiver}.{field}"),
            Selectable::Element { receiver, element } => write!(f, "{receiver}[{element}]"),
            Selectable::Slice { receiver, from, to } => {
                write!(f, "{receiver}[")?;
                if let Some(from) = from {
                    write!(f, "{from}")?;
                }
                f.write_str("..")?;
                if let Some(to) = to {
                    write!(f, "{to}")?;
                }
                f.write_str("]")
            }
            Selectable::TypeHint { type_name, selectable } => write!(f, "({type_name}){selectable}"),
            Selectable::BetweenParenthesesOrTuple(elements) => write_list(f, "(", elements, ")"),
            Selectable::List(elements) => write_list(f, "[", elements, "]"),
            Selectable::Set(elements) => write_list(f, "{", elements, "}"),
            Selectable::MapOrUdt(entries) => write_entries(f, entries.iter().map(|(k, v)| (k, v))),
        }
    }
}
