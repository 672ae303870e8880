//! Whether a value may be assigned to a receiver, and how well it fits.

use std::fmt;

use types::CqlType;

use crate::QueryError;
use crate::preparing::Preparing;

/// How well a value fits a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// The types are the same.
    Exact,
    /// The value can be read as the receiver's type.
    Weak,
    /// The value cannot be read as the receiver's type.
    No,
}

impl Assignment {
    pub fn is_assignable(self) -> bool {
        self != Assignment::No
    }

    /// How well all of several values fit.
    pub fn all(each: impl Iterator<Item = Result<Assignment, QueryError>>) -> Result<Assignment, QueryError> {
        let mut all = Assignment::Exact;
        for one in each {
            match one? {
                Assignment::No => return Ok(Assignment::No),
                Assignment::Weak => all = Assignment::Weak,
                Assignment::Exact => {}
            }
        }
        Ok(all)
    }
}

/// Something that can be an argument of a function: a term, or a selected expression.
pub(crate) trait Assignable: fmt::Display {
    /// How well it fits a receiver of this type.
    fn assignment(&self, preparing: &Preparing<'_>, ty: &CqlType) -> Result<Assignment, QueryError>;

    /// A type as which it can surely be read; `None` for markers and similar terms.
    fn compatible_type(&self, preparing: &Preparing<'_>) -> Option<CqlType>;

    /// Whether it is or contains a bind marker.
    fn contains_marker(&self) -> bool;

    /// The number of elements of a `[a, b]`, which may be a list or a vector; `None` for anything else.
    fn literal_length(&self) -> Option<usize> {
        None
    }
}

/// An argument of a call whose error texts are not shown and need not be made.
pub(crate) struct Unnamed<'a>(pub &'a dyn Assignable);

impl fmt::Display for Unnamed<'_> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl Assignable for Unnamed<'_> {
    fn assignment(&self, preparing: &Preparing<'_>, ty: &CqlType) -> Result<Assignment, QueryError> {
        self.0.assignment(preparing, ty)
    }

    fn compatible_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        self.0.compatible_type(preparing)
    }

    fn contains_marker(&self) -> bool {
        self.0.contains_marker()
    }

    fn literal_length(&self) -> Option<usize> {
        self.0.literal_length()
    }
}

/// A value of which only the type is known.
pub(crate) struct Typed<'t>(pub &'t CqlType);

impl fmt::Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_marshal_class())
    }
}

impl Assignable for Typed<'_> {
    fn assignment(&self, _: &Preparing<'_>, ty: &CqlType) -> Result<Assignment, QueryError> {
        Ok(assign_type(self.0, ty))
    }

    fn compatible_type(&self, _: &Preparing<'_>) -> Option<CqlType> {
        Some(self.0.clone())
    }

    fn contains_marker(&self) -> bool {
        false
    }
}

/// The first of the known types as which all the others can be read.
pub(crate) fn common_type(types: impl Iterator<Item = Option<CqlType>>) -> Option<CqlType> {
    let known: Vec<CqlType> = types.flatten().map(|ty| ty.freeze()).collect();
    // One pass finds the only possible type: a type that does not fit a candidate rules out all candidates before it.
    let candidate = known.iter().reduce(|best, ty| if is_value_compatible(best, ty) { best } else { ty })?;
    known.iter().all(|other| is_value_compatible(candidate, other)).then(|| candidate.clone())
}

/// How well a value of type `from` fits a receiver of type `to`. A frozen value fits an unfrozen receiver. A value of
/// many cells fits no frozen receiver.
pub(crate) fn assign_type(from: &CqlType, to: &CqlType) -> Assignment {
    if from.is_multi_cell() { assign_hinted(from, to) } else { assign_hinted(from, &to.freeze()) }
}

/// How well a term with a type hint fits a receiver. If the hint is frozen, the receiver must be frozen.
pub(crate) fn assign_hinted(from: &CqlType, to: &CqlType) -> Assignment {
    if from == to {
        Assignment::Exact
    } else if is_value_compatible(to, from) {
        Assignment::Weak
    } else {
        Assignment::No
    }
}

/// Whether bytes of type `other` are valid as `ty`.
pub(crate) fn is_value_compatible(ty: &CqlType, other: &CqlType) -> bool {
    use CqlType::*;
    match (ty, other) {
        _ if ty == other => true,
        (Blob, _) => true,
        (Text, Ascii) => true,
        (Varint, Int | Bigint | Timestamp) => true,
        (Bigint, Timestamp) | (Timestamp, Bigint) => true,
        (Date, Int) | (Time, Bigint) => true,
        (Uuid, Timeuuid) => true,
        _ if ty.is_multi_cell() != other.is_multi_cell() => false,
        (List { element, .. }, List { element: other, .. }) => is_value_compatible(element, other),
        (Set { element, .. }, Set { element: other, .. }) => is_order_compatible(element, other),
        (Map { key, value, .. }, Map { key: other_key, value: other_value, .. }) => {
            is_order_compatible(key, other_key) && is_value_compatible(value, other_value)
        }
        (Tuple(elements), Tuple(others)) => {
            elements.len() >= others.len() && elements.iter().zip(others.iter()).all(|(a, b)| is_value_compatible(a, b))
        }
        (Udt { definition, .. }, Udt { definition: other, .. }) => {
            definition.keyspace == other.keyspace
                && definition.name == other.name
                && definition.fields().len() == other.fields().len()
                && definition.fields().iter().zip(other.fields()).all(|((_, a), (_, b))| is_value_compatible(a, b))
        }
        _ => false,
    }
}

/// Whether values of type `other` are valid as `ty` and have the same order. Elements of sets and keys of maps require
/// this.
fn is_order_compatible(ty: &CqlType, other: &CqlType) -> bool {
    use CqlType::*;
    match (ty, other) {
        _ if ty == other => true,
        (Blob, Ascii | Text) | (Text, Ascii) => true,
        (List { element, .. }, List { element: other, .. }) | (Set { element, .. }, Set { element: other, .. }) => {
            is_order_compatible(element, other)
        }
        (Map { key, value, .. }, Map { key: other_key, value: other_value, .. }) => {
            is_order_compatible(key, other_key) && is_order_compatible(value, other_value)
        }
        (Tuple(elements), Tuple(others)) => {
            elements.len() >= others.len() && elements.iter().zip(others.iter()).all(|(a, b)| is_order_compatible(a, b))
        }
        _ => false,
    }
}
