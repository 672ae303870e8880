//! Terms: values as written in a statement.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use types::identifier::hash_slot;

use super::names::{FunctionName, Identifier};
use super::types::{NativeType, TypeName};

/// The syntactic kind of a constant, which Cassandra's error texts name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConstantKind {
    String,
    Integer,
    Uuid,
    /// Also `NaN` and `Infinity`, with and without sign.
    Float,
    Boolean,
    Hex,
    Duration,
}

impl fmt::Display for ConstantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConstantKind::String => "STRING",
            ConstantKind::Integer => "INTEGER",
            ConstantKind::Uuid => "UUID",
            ConstantKind::Float => "FLOAT",
            ConstantKind::Boolean => "BOOLEAN",
            ConstantKind::Hex => "HEX",
            ConstantKind::Duration => "DURATION",
        })
    }
}

/// A constant: its kind and raw text (without quotes; `-NaN` becomes `NaN`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    pub kind: ConstantKind,
    /// The text that is converted to a value.
    pub text: String,
}

/// As in CQL: strings in single quotes.
impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ConstantKind::String => write!(f, "'{}'", self.text),
            _ => f.write_str(&self.text),
        }
    }
}

/// `?` or `:name`. Markers are numbered from 0 in order of appearance in the statement (in a batch: in the batch);
/// two markers of one name are still two markers. The names by number are in [`super::ParsedStatement`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindMarker {
    /// Number of the marker.
    pub index: usize,
}

/// Named or not, Cassandra prints a marker as `?`.
impl fmt::Display for BindMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("?")
    }
}

/// Arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl ArithmeticOperator {
    /// The operator as written.
    pub fn symbol(self) -> char {
        match self {
            ArithmeticOperator::Add => '+',
            ArithmeticOperator::Subtract => '-',
            ArithmeticOperator::Multiply => '*',
            ArithmeticOperator::Divide => '/',
            ArithmeticOperator::Modulo => '%',
        }
    }
}

impl ArithmeticOperator {
    /// The native function that it stands for, which is printed for operations inside terms.
    pub fn function_name(self) -> &'static str {
        match self {
            ArithmeticOperator::Add => "_add",
            ArithmeticOperator::Subtract => "_substract",
            ArithmeticOperator::Multiply => "_multiply",
            ArithmeticOperator::Divide => "_divide",
            ArithmeticOperator::Modulo => "_modulo",
        }
    }
}

impl fmt::Display for ArithmeticOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.symbol())
    }
}

/// A value as written. `Display` prints it as Cassandra's messages do: operations and casts as calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    Constant(Constant),
    Null,
    Marker(BindMarker),
    /// `[a, b]`: a list, or a vector if the receiver is one.
    List(Vec<Term>),
    /// `{a, b}`; `{}` is an empty set, or an empty map if the receiver is one.
    Set(Vec<Term>),
    /// `{a: b}` with keys that are terms.
    Map(Vec<(Term, Term)>),
    /// `{field: value}`. A field written twice has its last value, as in Cassandra.
    UserType(Vec<(Identifier, Term)>),
    /// `(a, b)`. Parentheses around one term are a tuple of one.
    Tuple(Vec<Term>),
    Function {
        name: FunctionName,
        arguments: Vec<Term>,
    },
    Operation {
        operator: ArithmeticOperator,
        left: Box<Term>,
        right: Box<Term>,
    },
    Negation(Box<Term>),
    /// `(type) term`.
    TypeHint {
        type_name: TypeName,
        term: Box<Term>,
    },
    /// `CAST(term AS type)`.
    Cast {
        term: Box<Term>,
        type_name: NativeType,
    },
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Constant(constant) => write!(f, "{constant}"),
            Term::Null => f.write_str("NULL"),
            Term::Marker(marker) => write!(f, "{marker}"),
            Term::List(elements) => write_list(f, "[", elements, "]"),
            Term::Set(elements) => write_list(f, "{", elements, "}"),
            Term::Tuple(elements) => write_list(f, "(", elements, ")"),
            Term::Map(entries) => write_entries(f, entries.iter().map(|(k, v)| (k, v))),
            Term::UserType(fields) => write_entries(f, in_hash_order(fields).into_iter()),
            Term::Function { name, arguments } => {
                f.write_str(&name.to_cql())?;
                write_list(f, "(", arguments, ")")
            }
            Term::Operation { operator, left, right } => {
                write!(f, "system.\"{}\"({left}, {right})", operator.function_name())
            }
            Term::Negation(term) => write!(f, "system.\"_negate\"({term})"),
            Term::TypeHint { type_name, term } => write!(f, "({type_name}){term}"),
            Term::Cast { term, type_name } => write!(f, "system.cast_as_{type_name}({term})"),
        }
    }
}

/// The fields of a user type as in Cassandra's hash map: each once, with its last value.
fn in_hash_order(fields: &[(Identifier, Term)]) -> Vec<(&str, &Term)> {
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(fields.len());
    let mut each: Vec<(&str, &Term)> = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        match places.entry(name.as_str()) {
            Entry::Occupied(place) => each[*place.get()].1 = value,
            Entry::Vacant(place) => {
                place.insert(each.len());
                each.push((name.as_str(), value));
            }
        }
    }
    let count = each.len();
    each.sort_by_key(|(name, _)| hash_slot(name, count));
    each
}

pub(super) fn write_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    elements: &[T],
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (i, element) in elements.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{element}")?;
    }
    f.write_str(close)
}

pub(super) fn write_entries<K: fmt::Display, V: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    entries: impl Iterator<Item = (K, V)>,
) -> fmt::Result {
    f.write_str("{")?;
    for (i, (key, value)) in entries.enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{key}: {value}")?;
    }
    f.write_str("}")
}
