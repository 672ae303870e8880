//! Values of statements: preparing them for their receivers, and serializing them at execution.

mod assignment;
mod constant;
mod findings;
mod in_values;
mod json_error;
mod literal;
mod prepare;
pub(crate) mod type_check;
mod type_name;

use std::borrow::Cow;

use types::{CqlType, collection};

use crate::execution::Execution;
use crate::functions::FunctionCall;
use crate::{ColumnSpec, QueryError, Value};

pub(crate) use assignment::{
    Assignable, Assignment, Typed, Unnamed, assign_hinted, assign_type, common_type, is_value_compatible,
};
pub(crate) use findings::{Expression, Findings};
pub(crate) use in_values::InTerms;
pub(crate) use json_error::{JACKSON, SOURCE, unreadable_json};
pub(crate) use prepare::{cast_type, prepare};
pub(crate) use type_name::{qualified, resolve_type, with_definitions};

/// A prepared value.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// A value that is known already; `None` is null.
    Value(Option<Box<[u8]>>),
    /// A value that a JSON document lacks, if that leaves the column unchanged.
    Unset,
    /// A bind marker.
    Marker { index: usize, receiver: ColumnSpec },
    /// A function of other terms.
    Function(Box<FunctionCall>),
    /// A list of terms that are not all known.
    List(Vec<Term>),
    /// A set of terms that are not all known.
    Set { element: CqlType, elements: Vec<Term> },
    /// A map of terms that are not all known.
    Map { key: CqlType, entries: Vec<(Term, Term)> },
    /// A tuple of terms that are not all known.
    Tuple(Vec<Term>),
    /// A user type's fields, not all known.
    UserType { receiver: ColumnSpec, fields: Vec<Term> },
    /// A vector of terms that are not all known.
    Vector { element: CqlType, elements: Vec<Term> },
}

/// The value of a term in one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound<'v> {
    Null,
    Unset,
    Bytes(Cow<'v, [u8]>),
}

impl<'v> Bound<'v> {
    /// A serialized value, or null.
    pub fn from_option(value: Option<Vec<u8>>) -> Bound<'v> {
        value.map_or(Bound::Null, |bytes| Bound::Bytes(Cow::Owned(bytes)))
    }

    /// The bytes, if there are any.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Bound::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value or null, if unset is not allowed. `unset` makes the error text.
    pub fn or_refuse_unset(self, unset: impl FnOnce() -> String) -> Result<Option<Cow<'v, [u8]>>, QueryError> {
        match self {
            Bound::Bytes(bytes) => Ok(Some(bytes)),
            Bound::Null => Ok(None),
            Bound::Unset => Err(QueryError::invalid(unset())),
        }
    }
}

impl Term {
    pub const NULL: Term = Term::Value(None);

    /// A value known already.
    pub fn value(bytes: Vec<u8>) -> Term {
        Term::Value(Some(bytes.into_boxed_slice()))
    }

    /// Whether the term depends on bind markers.
    pub fn contains_marker(&self) -> bool {
        match self {
            Term::Value(_) | Term::Unset => false,
            Term::Marker { .. } => true,
            Term::Function(call) => call.arguments.iter().any(Term::contains_marker),
            Term::List(terms)
            | Term::Set { elements: terms, .. }
            | Term::Tuple(terms)
            | Term::UserType { fields: terms, .. }
            | Term::Vector { elements: terms, .. } => terms.iter().any(Term::contains_marker),
            Term::Map { entries, .. } => entries.iter().any(|(k, v)| k.contains_marker() || v.contains_marker()),
        }
    }

    /// The bytes of the term in this execution, valid for its receiver.
    pub fn bind<'v>(&'v self, execution: &'v Execution<'_>) -> Result<Bound<'v>, QueryError> {
        match self {
            Term::Value(None) => Ok(Bound::Null),
            Term::Unset => Ok(Bound::Unset),
            Term::Value(Some(bytes)) => Ok(Bound::Bytes(Cow::Borrowed(bytes))),
            Term::Marker { index, receiver } => bind_marker(execution.value(*index)?, &receiver.ty),
            Term::Function(call) => call.execute(execution).map(Bound::from_option),
            Term::List(elements) => {
                let elements = bind_elements(elements, execution, "collections")?;
                Ok(Bound::Bytes(collection::list(elements.iter().map(AsRef::as_ref)).into()))
            }
            Term::Set { element, elements } => {
                let mut elements = bind_elements(elements, execution, "collections")?;
                literal::sort_set(element, &mut elements);
                Ok(Bound::Bytes(collection::list(elements.iter().map(AsRef::as_ref)).into()))
            }
            Term::Map { key, entries } => bind_map(key, entries, execution),
            Term::Tuple(elements) => {
                let mut out = Vec::new();
                for (place, element) in elements.iter().enumerate() {
                    let unset = || format!("Invalid unset value for tuple field number {place}");
                    let bytes = element.bind(execution)?.or_refuse_unset(unset)?;
                    collection::write_part(bytes.as_deref(), &mut out);
                }
                Ok(Bound::Bytes(out.into()))
            }
            Term::UserType { receiver, fields } => bind_user_type(receiver, fields, execution),
            Term::Vector { element, elements } => {
                let elements = bind_elements(elements, execution, "vectors")?;
                Ok(Bound::Bytes(collection::vector(element, elements.iter().map(AsRef::as_ref)).into()))
            }
        }
    }
}

/// Checks a bound value against its receiver's type. Sets and maps become sorted and free of duplicates.
fn bind_marker<'v>(value: Value<'v>, ty: &CqlType) -> Result<Bound<'v>, QueryError> {
    match value {
        Value::Null => Ok(Bound::Null),
        Value::Unset => Ok(Bound::Unset),
        Value::Bytes(bytes) => {
            check_count(ty, bytes)?;
            ty.validate(bytes)?;
            Ok(Bound::Bytes(literal::normalized(ty, bytes)?))
        }
    }
}

/// Refuses a bound collection with a negative number of elements.
pub(crate) fn check_count(ty: &CqlType, bytes: &[u8]) -> Result<(), QueryError> {
    let kind = match ty {
        CqlType::List { .. } => "list",
        CqlType::Set { .. } => "set",
        CqlType::Map { .. } => "map",
        _ => return Ok(()),
    };
    match bytes.split_first_chunk::<4>() {
        Some((count, _)) if i32::from_be_bytes(*count) < 0 => {
            Err(QueryError::invalid(format!("The data cannot be deserialized as a {kind}")))
        }
        _ => Ok(()),
    }
}

fn bind_elements<'v>(
    elements: &'v [Term],
    execution: &'v Execution<'_>,
    inside: &str,
) -> Result<Vec<Cow<'v, [u8]>>, QueryError> {
    let bind = |element: &'v Term| {
        let unset = || format!("unset value is not supported inside {inside}");
        element
            .bind(execution)?
            .or_refuse_unset(unset)?
            .ok_or_else(|| QueryError::invalid(format!("null is not supported inside {inside}")))
    };
    elements.iter().map(bind).collect()
}

fn bind_map<'v>(
    key: &CqlType,
    entries: &'v [(Term, Term)],
    execution: &'v Execution<'_>,
) -> Result<Bound<'v>, QueryError> {
    let bind = |term: &'v Term| {
        let null = || QueryError::invalid("null is not supported inside collections");
        term.bind(execution)?
            .or_refuse_unset(|| "unset value is not supported for map keys".to_owned())?
            .ok_or_else(null)
    };
    let mut bound = Vec::with_capacity(entries.len());
    for (k, v) in entries {
        bound.push((bind(k)?, bind(v)?));
    }
    literal::sort_map(key, &mut bound);
    Ok(Bound::Bytes(collection::map(bound.iter().map(|(k, v)| (k.as_ref(), v.as_ref()))).into()))
}

fn bind_user_type<'v>(
    receiver: &ColumnSpec,
    fields: &'v [Term],
    execution: &'v Execution<'_>,
) -> Result<Bound<'v>, QueryError> {
    let CqlType::Udt { definition, .. } = &receiver.ty else {
        return Err(QueryError::server("a user type literal for another type"));
    };
    let mut out = Vec::new();
    for (term, (field, _)) in fields.iter().zip(definition.fields()) {
        let unset = || format!("Invalid unset value for field '{field}' of user defined type {}", definition.name);
        let bytes = term.bind(execution)?.or_refuse_unset(unset)?;
        collection::write_part(bytes.as_deref(), &mut out);
    }
    Ok(Bound::Bytes(out.into()))
}
