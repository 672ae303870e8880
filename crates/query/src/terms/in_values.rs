//! The right side of IN.

use cql::ast::InValues;
use types::{CqlType, collection};

use super::{Bound, Term, check_count, prepare};
use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::{ColumnSpec, QueryError, Value};

/// The prepared values of an IN.
#[derive(Clone, Debug)]
pub(crate) enum InTerms {
    /// `IN ?`: a list.
    Marker { index: usize, element: ColumnSpec, ty: CqlType },
    /// `IN (a, b)`.
    Terms(Vec<Term>),
}

impl InTerms {
    /// Prepares the values for `receiver`.
    pub fn prepare(
        values: &InValues,
        receiver: &ColumnSpec,
        preparing: &mut Preparing<'_>,
    ) -> Result<InTerms, QueryError> {
        match values {
            InValues::Marker(marker) => {
                let ty = CqlType::list(receiver.ty.freeze());
                preparing.bind(marker, &receiver.sibling(format!("in({})", receiver.name), ty.clone()));
                Ok(InTerms::Marker { index: marker.index, element: receiver.clone(), ty })
            }
            InValues::Terms(terms) => {
                let terms: Result<Vec<Term>, QueryError> =
                    terms.iter().map(|term| prepare(term, receiver, preparing)).collect();
                Ok(InTerms::Terms(terms?))
            }
        }
    }

    /// The values in this execution, each valid for the receiver.
    pub fn bind<'v>(&'v self, execution: &'v Execution<'_>) -> Result<Vec<Bound<'v>>, QueryError> {
        match self {
            InTerms::Terms(terms) => terms.iter().map(|term| term.bind(execution)).collect(),
            InTerms::Marker { index, element, ty } => {
                let name = &element.name;
                let bytes = match execution.value(*index)? {
                    Value::Null => return Err(QueryError::invalid(format!("Invalid null value for column {name}"))),
                    Value::Unset => return Err(QueryError::invalid(format!("Invalid unset value for column {name}"))),
                    Value::Bytes(bytes) => bytes,
                };
                check_count(ty, bytes)?;
                let cut_short = || QueryError::invalid("Not enough bytes to read a list");
                execution.work(collection::count(bytes).unwrap_or(0).min(bytes.len()) as u64)?;
                let mut parts = collection::elements(bytes).map_err(|_| cut_short())?;
                let mut values = Vec::new();
                for part in parts.by_ref() {
                    match part.map_err(|_| cut_short())? {
                        None => values.push(Bound::Null),
                        Some(value) => {
                            check_count(&element.ty, value)?;
                            element.ty.validate(value)?;
                            values.push(Bound::Bytes(super::literal::normalized(&element.ty, value)?));
                        }
                    }
                }
                if !parts.rest().is_empty() {
                    return Err(QueryError::invalid("Unexpected extraneous bytes after list value"));
                }
                Ok(values)
            }
        }
    }
}
