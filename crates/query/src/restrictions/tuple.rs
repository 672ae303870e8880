//! Values of multi-column relations.

use std::borrow::Cow;

use cql::ast::{self, InValues};
use types::{CqlType, collection};

use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::terms::{Bound, InTerms, Term, check_count, prepare};
use crate::{ColumnSpec, QueryError, Value};

/// Values for columns that follow each other.
#[derive(Clone, Debug)]
pub(super) enum TupleTerm {
    /// The value of one column, not written as a tuple.
    Single(Term),
    /// One term per column.
    Terms(Vec<Term>),
    /// A marker for all of them.
    Marker { index: usize, receivers: Vec<ColumnSpec> },
}

/// The receiver of a marker for several columns.
fn tuple_receiver(receivers: &[ColumnSpec], prefix: &str) -> ColumnSpec {
    let names: Vec<&str> = receivers.iter().map(|receiver| &*receiver.name).collect();
    let ty = CqlType::tuple(receivers.iter().map(|receiver| receiver.ty.clone()));
    receivers[0].sibling(format!("{prefix}({})", names.join(",")), ty)
}

impl TupleTerm {
    /// Prepares a tuple or a marker for these columns.
    pub fn prepare(
        value: &ast::Term,
        receivers: &[ColumnSpec],
        preparing: &mut Preparing<'_>,
    ) -> Result<TupleTerm, QueryError> {
        let elements = match value {
            ast::Term::Marker(marker) => {
                preparing.bind(marker, &tuple_receiver(receivers, ""));
                return Ok(TupleTerm::Marker { index: marker.index, receivers: receivers.to_vec() });
            }
            ast::Term::Tuple(elements) => elements.as_slice(),
            other => std::slice::from_ref(other),
        };
        let (expected, got) = (receivers.len(), elements.len());
        if expected != got {
            let message = format!("Expected {expected} elements in value tuple, but got {got}: {value}");
            return Err(QueryError::invalid(message));
        }
        let terms = elements.iter().zip(receivers).map(|(element, receiver)| prepare(element, receiver, preparing));
        Ok(TupleTerm::Terms(terms.collect::<Result<_, _>>()?))
    }

    /// The values, one per column.
    pub fn bind<'v>(&'v self, execution: &'v Execution<'_>) -> Result<Vec<Bound<'v>>, QueryError> {
        match self {
            TupleTerm::Single(term) => Ok(vec![term.bind(execution)?]),
            TupleTerm::Terms(terms) => {
                let bound = terms.iter().map(|term| term.bind(execution)).collect::<Result<Vec<_>, _>>()?;
                match bound.iter().position(|value| *value == Bound::Unset) {
                    Some(place) => {
                        Err(QueryError::invalid(format!("Invalid unset value for tuple field number {place}")))
                    }
                    None => Ok(bound),
                }
            }
            TupleTerm::Marker { index, receivers } => match execution.value(*index)? {
                Value::Null => Ok(receivers.iter().map(|_| Bound::Null).collect()),
                Value::Unset => {
                    let name = tuple_receiver(receivers, "").name;
                    Err(QueryError::invalid(format!("Invalid unset value for tuple {name}")))
                }
                Value::Bytes(bytes) => split_tuple(bytes, receivers),
            },
        }
    }
}

fn split_tuple<'v>(bytes: &'v [u8], receivers: &[ColumnSpec]) -> Result<Vec<Bound<'v>>, QueryError> {
    let mut values = Vec::with_capacity(receivers.len());
    let mut fields = collection::fields(bytes);
    for receiver in receivers {
        values.push(match fields.next().transpose()?.flatten() {
            Some(value) => {
                receiver.ty.validate(value)?;
                Bound::Bytes(Cow::Borrowed(value))
            }
            None => Bound::Null,
        });
    }
    match fields.next() {
        None => Ok(values),
        Some(_) => {
            let (expected, got) = (receivers.len(), collection::fields(bytes).count());
            let message = format!("Tuple value contained too many fields (expected {expected}, got {got})");
            Err(QueryError::invalid(message))
        }
    }
}

/// Alternatives for columns that follow each other.
#[derive(Clone, Debug)]
pub(super) enum TupleIn {
    /// Of one column.
    Single(InTerms),
    /// `IN ((a, b), ?)`.
    Terms(Vec<TupleTerm>),
    /// `IN ?`: a list of tuples.
    Marker { index: usize, receivers: Vec<ColumnSpec> },
}

impl TupleIn {
    /// Prepares the alternatives of `(columns) IN values`.
    pub fn prepare(
        values: &InValues,
        receivers: &[ColumnSpec],
        preparing: &mut Preparing<'_>,
    ) -> Result<TupleIn, QueryError> {
        match values {
            InValues::Marker(marker) => {
                let tuple = tuple_receiver(receivers, "in");
                preparing.bind(marker, &tuple.sibling(tuple.name.clone(), CqlType::list(tuple.ty.clone())));
                Ok(TupleIn::Marker { index: marker.index, receivers: receivers.to_vec() })
            }
            InValues::Terms(terms) => {
                let tuples = terms.iter().map(|term| TupleTerm::prepare(term, receivers, preparing));
                Ok(TupleIn::Terms(tuples.collect::<Result<_, _>>()?))
            }
        }
    }

    /// The alternatives, each one value per column.
    pub fn bind<'v>(&'v self, execution: &'v Execution<'_>) -> Result<Vec<Vec<Bound<'v>>>, QueryError> {
        match self {
            TupleIn::Single(values) => Ok(values.bind(execution)?.into_iter().map(|value| vec![value]).collect()),
            TupleIn::Terms(tuples) => tuples.iter().map(|tuple| tuple.bind(execution)).collect(),
            TupleIn::Marker { index, receivers } => {
                let Value::Bytes(bytes) = execution.value(*index)? else {
                    return Err(QueryError::invalid("Invalid null value for IN restriction"));
                };
                check_count(&CqlType::list(CqlType::Blob), bytes)?;
                execution.work(collection::count(bytes).unwrap_or(0).min(bytes.len()) as u64)?;
                let mut tuples = Vec::new();
                let cut_short = |_| QueryError::invalid("Not enough bytes to read a list");
                for part in collection::elements(bytes).map_err(cut_short)? {
                    tuples.push(match part.map_err(cut_short)? {
                        Some(tuple) => split_tuple(tuple, receivers)?,
                        None => receivers.iter().map(|_| Bound::Null).collect(),
                    });
                }
                Ok(tuples)
            }
        }
    }
}
