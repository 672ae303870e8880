//! Conditions with their values, compared with what a row has.
//!
//! Null equals null and nothing else, so `!=` holds between null and a value, and no other operator holds of null. A
//! collection that is stored cell by cell is null if it is empty, on both sides.

use std::cmp::Ordering;

use cql::ast::Operator;
use types::{CqlType, collection};

use super::{ColumnCondition, ExpectedValue, Part};
use crate::execution::Execution;
use crate::row_view::Source;
use crate::selection::{Parts, RowParts};
use crate::terms::{Bound, InTerms, Term};
use crate::{QueryError, Value};

/// A condition with its values in one execution.
pub(in crate::modify) struct BoundCondition<'c> {
    pub condition: &'c ColumnCondition,
    part: BoundPart,
    /// The alternatives, of which one must hold; `None` is null. The error of a value that cannot be compared is the
    /// client's only if the comparison is made, as in Cassandra.
    wanted: Result<Vec<Option<Vec<u8>>>, String>,
}

enum BoundPart {
    Whole,
    Index(i32),
    Key(Vec<u8>),
    Field(usize),
}

fn refuse<T>(message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::invalid(message))
}

const UNSET: &str = "Invalid 'unset' value in condition";

impl ColumnCondition {
    /// The condition in this execution.
    pub fn bind(&self, execution: &Execution<'_>) -> Result<BoundCondition<'_>, QueryError> {
        let part = match &self.part {
            Part::Whole => BoundPart::Whole,
            Part::Field(place) => BoundPart::Field(*place),
            Part::Index(index) => BoundPart::Index(bind_index(index, execution)?),
            Part::Key(key) => BoundPart::Key(match key.bind(execution)? {
                Bound::Null => return refuse("Invalid null value for map element access"),
                // As in Cassandra: a key that no map has.
                Bound::Unset => Vec::new(),
                Bound::Bytes(key) => key.into_owned(),
            }),
        };
        let wanted = match &self.wanted {
            ExpectedValue::In(values) => Ok(self.bind_alternatives(values, execution)?),
            ExpectedValue::Term(term) => self.comparable(term.bind(execution)?).map(|value| vec![value]),
        };
        Ok(BoundCondition { condition: self, part, wanted })
    }

    /// Whether the condition is on all of a collection that is stored cell by cell.
    fn is_on_cells(&self) -> bool {
        matches!(self.part, Part::Whole) && self.column.ty.is_collection() && self.column.ty.is_multi_cell()
    }

    fn bind_alternatives(
        &self,
        values: &InTerms,
        execution: &Execution<'_>,
    ) -> Result<Vec<Option<Vec<u8>>>, QueryError> {
        if let InTerms::Marker { index, .. } = values {
            match execution.value(*index)? {
                Value::Null => return refuse("Invalid null list in IN condition"),
                Value::Unset => return refuse(UNSET),
                Value::Bytes(_) => {}
            }
        }
        let alternatives = values.bind(execution)?.into_iter().filter_map(|value| match value {
            Bound::Unset => None,
            Bound::Null => Some(None),
            Bound::Bytes(bytes) => Some(Some(bytes.into_owned())),
        });
        Ok(alternatives.map(|value| value.filter(|bytes| !self.is_empty_collection(bytes))).collect())
    }

    /// A value that is not an alternative of IN; fails if it cannot be compared.
    fn comparable(&self, value: Bound<'_>) -> Result<Option<Vec<u8>>, String> {
        let operator = self.operator;
        let is_part = matches!(operator, Operator::Contains | Operator::ContainsKey);
        let compares_null = matches!(operator, Operator::Eq | Operator::Neq);
        match value {
            // As in Cassandra: a value that no collection has.
            Bound::Unset if is_part && self.is_on_cells() => Ok(Some(Vec::new())),
            Bound::Unset => Err(UNSET.to_owned()),
            Bound::Null if compares_null => Ok(None),
            Bound::Null => Err(format!("Invalid comparison with null for operator \"{operator}\"")),
            Bound::Bytes(bytes) if is_part || !self.is_empty_collection(&bytes) => Ok(Some(bytes.into_owned())),
            Bound::Bytes(_) if compares_null => Ok(None),
            Bound::Bytes(_) => {
                let kind = match self.column.ty {
                    CqlType::List { .. } => "list",
                    CqlType::Set { .. } => "set",
                    _ => "map",
                };
                Err(format!("Invalid comparison with an empty {kind} for operator \"{operator}\""))
            }
        }
    }

    fn is_empty_collection(&self, bytes: &[u8]) -> bool {
        self.is_on_cells() && collection::count(bytes).is_none_or(|count| count == 0)
    }
}

fn bind_index(index: &Term, execution: &Execution<'_>) -> Result<i32, QueryError> {
    let bytes = match index.bind(execution)? {
        Bound::Unset => return refuse("Invalid unset value for list element access"),
        Bound::Null => None,
        Bound::Bytes(bytes) => <[u8; 4]>::try_from(&*bytes).ok(),
    };
    match bytes {
        Some(bytes) => Ok(i32::from_be_bytes(bytes)),
        None => refuse("Invalid null value for list element access"),
    }
}

impl BoundCondition<'_> {
    /// Whether the condition holds of a column with this serialized value; `None` is null, or that there is no row.
    /// `row` has what earlier conditions found of the row, in which the column is at `source`.
    pub fn holds(
        &self,
        value: Option<&[u8]>,
        row: &RowParts,
        source: Source,
        execution: &Execution<'_>,
    ) -> Result<bool, QueryError> {
        let wanted = self.wanted.as_ref().map_err(QueryError::invalid)?.as_slice();
        execution.work(1 + wanted.len() as u64)?;
        let any_is_met = |ty: &CqlType, found: Option<&[u8]>| {
            wanted.iter().any(|wanted| is_met(self.condition.operator, ty, wanted.as_deref(), found))
        };
        let (ty, operator) = (&self.condition.column.ty, self.condition.operator);
        let is_on_part = matches!(operator, Operator::Contains | Operator::ContainsKey);
        let decoded = match value.filter(|_| is_on_part || !matches!(self.part, BoundPart::Whole)) {
            Some(value) => row.of_value(source, ty, || Ok::<_, QueryError>(Some(value.to_vec())))?,
            None => None,
        };
        let decoded = decoded.as_deref();
        match (&self.part, ty) {
            (BoundPart::Whole, _) if operator == Operator::Contains => contains(ty, value, decoded, wanted, false),
            (BoundPart::Whole, _) if operator == Operator::ContainsKey => contains(ty, value, decoded, wanted, true),
            (BoundPart::Index(index), CqlType::List { element, .. }) => {
                let element_at = |index| match decoded {
                    Some(parts) => parts.at(index),
                    None => value.and_then(|value| element_of(value, index)),
                };
                match usize::try_from(*index) {
                    Ok(index) => Ok(any_is_met(element, element_at(index))),
                    Err(_) if value.is_none() && !ty.is_multi_cell() => Ok(any_is_met(element, None)),
                    Err(_) => refuse(format!("Invalid negative list index {index}")),
                }
            }
            (BoundPart::Key(wanted), CqlType::Map { key, value: ty, .. }) => Ok(any_is_met(
                ty,
                match decoded {
                    Some(parts) => parts.element(wanted),
                    None => value.and_then(|value| entry_of(key, value, wanted)),
                },
            )),
            (BoundPart::Field(place), CqlType::Udt { definition, .. }) => {
                let field = match decoded {
                    Some(parts) => parts.at(*place),
                    None => value.and_then(|value| collection::fields(value).nth(*place)?.ok().flatten()),
                };
                let Some((_, ty)) = definition.fields().get(*place) else { return Ok(false) };
                Ok(any_is_met(ty, field))
            }
            _ => Ok(any_is_met(ty, value)),
        }
    }
}

/// Whether a collection has the only wanted value among its keys or its elements.
fn contains(
    ty: &CqlType,
    value: Option<&[u8]>,
    decoded: Option<&Parts>,
    wanted: &[Option<Vec<u8>>],
    is_key: bool,
) -> Result<bool, QueryError> {
    let (Some(value), [Some(wanted)]) = (value, wanted) else { return Ok(false) };
    if let Some(parts) = decoded {
        return Ok(match ty {
            CqlType::Map { .. } if is_key => parts.element(wanted).is_some(),
            CqlType::Map { value: ty, .. } | CqlType::List { element: ty, .. } | CqlType::Set { element: ty, .. } => {
                parts.has_value(ty, wanted)
            }
            _ => false,
        });
    }
    Ok(match ty {
        CqlType::Map { key, value: ty, .. } => collection::entries(value)?.entries().flatten().any(|entry| {
            let (ty, part) = if is_key { (key, entry.0) } else { (ty, entry.1) };
            ty.compare(part, wanted).is_eq()
        }),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            collection::elements(value)?.flatten().flatten().any(|part| element.compare(part, wanted).is_eq())
        }
        _ => false,
    })
}

fn element_of(list: &[u8], index: usize) -> Option<&[u8]> {
    collection::elements(list).ok()?.nth(index)?.ok().flatten()
}

fn entry_of<'v>(ty: &CqlType, map: &'v [u8], wanted: &[u8]) -> Option<&'v [u8]> {
    let mut entries = collection::entries(map).ok()?.entries().flatten();
    entries.find(|(key, _)| ty.compare(key, wanted).is_eq()).map(|(_, value)| value)
}

fn is_met(operator: Operator, ty: &CqlType, wanted: Option<&[u8]>, found: Option<&[u8]>) -> bool {
    let (Some(wanted), Some(found)) = (wanted, found) else {
        let are_both_null = wanted.is_none() && found.is_none();
        return match operator {
            Operator::Eq | Operator::In => are_both_null,
            Operator::Neq => !are_both_null,
            _ => false,
        };
    };
    let order = if found == wanted { Ordering::Equal } else { ty.compare(found, wanted) };
    match operator {
        Operator::Eq | Operator::In => order.is_eq(),
        Operator::Neq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::Lte => order.is_le(),
        Operator::Gt => order.is_gt(),
        Operator::Gte => order.is_ge(),
        Operator::Contains | Operator::ContainsKey | Operator::Like | Operator::IsNot => false,
    }
}
