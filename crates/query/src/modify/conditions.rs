//! IF clauses, which are checked when a statement is prepared, and refused when it is executed.

use cql::ast::{self, ConditionTarget, ConditionValue, Conditions, Identifier, Operator};
use model::{Column, ColumnKind, Table};
use types::CqlType;

use crate::names::{column_spec, find_column};
use crate::preparing::Preparing;
use crate::terms::{InTerms, Term, prepare as prepare_term};
use crate::{ColumnSpec, QueryError};

/// The condition of a modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The modification is not conditional.
    None,
    /// A condition on the row or on columns. `regulars` tells whether it names regular columns.
    Some { regulars: bool },
}

impl Condition {
    /// Whether the modification is conditional.
    pub fn is_some(self) -> bool {
        self != Condition::None
    }

    /// Whether the condition names regular columns.
    pub fn asks_regulars(self) -> bool {
        self == Condition::Some { regulars: true }
    }
}

/// Checks an IF clause.
pub(super) fn prepare(
    conditions: &Conditions,
    table: &Table,
    has_timestamp: bool,
    preparing: &mut Preparing<'_>,
) -> Result<Condition, QueryError> {
    let columns = match conditions {
        Conditions::None => return Ok(Condition::None),
        Conditions::NotExists | Conditions::Exists => return Ok(Condition::Some { regulars: false }),
        Conditions::Columns(columns) => columns,
    };
    if has_timestamp {
        return Err(QueryError::invalid("Cannot provide custom timestamp for conditional updates"));
    }
    let mut regulars = false;
    for condition in columns {
        let column = find_column(table, &condition.column)?;
        check(condition, &column, table, preparing)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            let message = format!("PRIMARY KEY column '{}' cannot have IF conditions", column.name);
            return Err(QueryError::invalid(message));
        }
        regulars |= column.kind == ColumnKind::Regular;
    }
    Ok(Condition::Some { regulars })
}

fn refuse<T>(message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::invalid(message))
}

fn check(
    condition: &ast::Condition,
    column: &Column,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<(), QueryError> {
    if column.ty == CqlType::Counter {
        return refuse("Conditions on counters are not supported");
    }
    let spec = column_spec(table, column);
    let receiver = match &condition.target {
        ConditionTarget::Column => spec,
        ConditionTarget::Element(element) => element_spec(element, &spec, preparing)?,
        ConditionTarget::Field(field) => field_spec(field, &spec)?,
    };
    check_value(condition, &receiver, preparing)
}

fn element_spec(
    element: &ast::Term,
    column: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<ColumnSpec, QueryError> {
    let name = &column.name;
    match &column.ty {
        CqlType::List { element: ty, .. } => {
            let index = column.sibling(format!("idx({name})"), CqlType::Int);
            check_element(prepare_term(element, &index, preparing)?, "list")?;
            Ok(column.sibling(format!("value({name})"), (**ty).clone()))
        }
        CqlType::Map { key, value, .. } => {
            let key = column.sibling(format!("key({name})"), (**key).clone());
            check_element(prepare_term(element, &key, preparing)?, "map")?;
            Ok(column.sibling(format!("value({name})"), (**value).clone()))
        }
        CqlType::Set { .. } => refuse(format!("Invalid element access syntax for set column {name}")),
        _ => refuse(format!("Invalid element access syntax for non-collection column {name}")),
    }
}

/// Checks an index or key that is already known.
fn check_element(element: Term, of: &str) -> Result<(), QueryError> {
    match (&element, of) {
        (Term::Value(None), _) => refuse(format!("Invalid null value for {of} element access")),
        (Term::Value(Some(bytes)), "list") => match <[u8; 4]>::try_from(&**bytes).map(i32::from_be_bytes) {
            Ok(index) if index < 0 => refuse(format!("Invalid negative list index {index}")),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn field_spec(field: &Identifier, column: &ColumnSpec) -> Result<ColumnSpec, QueryError> {
    let name = &column.name;
    let unknown = || format!("Unknown field {} for column {name}", field.as_str());
    match &column.ty {
        CqlType::Udt { definition, .. } => {
            match definition.fields().iter().find(|(known, _)| **known == *field.as_str()) {
                Some((known, ty)) => Ok(column.sibling(format!("{name}.{known}"), ty.clone())),
                None => refuse(unknown()),
            }
        }
        _ => refuse(unknown()),
    }
}

fn check_value(
    condition: &ast::Condition,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<(), QueryError> {
    let (name, operator) = (&condition.column, condition.operator);
    let receiver = match (operator, &receiver.ty) {
        (Operator::ContainsKey, CqlType::Map { key, .. }) => {
            receiver.sibling(format!("key({})", receiver.name), (**key).clone())
        }
        (Operator::ContainsKey, _) => {
            return refuse(format!("Cannot use CONTAINS KEY on non-map column {}", name.as_str()));
        }
        (Operator::Contains, CqlType::List { element: ty, .. } | CqlType::Set { element: ty, .. })
        | (Operator::Contains, CqlType::Map { value: ty, .. }) => {
            receiver.sibling(format!("value({})", receiver.name), (**ty).clone())
        }
        (Operator::Contains, _) => {
            return refuse(format!("Cannot use CONTAINS on non-collection column {}", name.as_str()));
        }
        (Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte, ty) => {
            refuse_durations(operator, ty)?;
            receiver.clone()
        }
        _ => receiver.clone(),
    };
    match &condition.value {
        ConditionValue::In(values) => InTerms::prepare(values, &receiver, preparing).map(drop),
        ConditionValue::Term(term) => match prepare_term(term, &receiver, preparing)? {
            Term::Value(None) if !matches!(operator, Operator::Eq | Operator::Neq) => {
                refuse(format!("Invalid comparison with null for operator \"{operator}\""))
            }
            _ => Ok(()),
        },
    }
}

fn refuse_durations(operator: Operator, ty: &CqlType) -> Result<(), QueryError> {
    if !ty.any(&|inner| *inner == CqlType::Duration) {
        return Ok(());
    }
    match ty {
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => {
            refuse("Slice conditions are not supported on collections containing durations")
        }
        CqlType::Tuple(_) => refuse("Slice conditions are not supported on tuples containing durations"),
        CqlType::Udt { .. } => refuse("Slice conditions are not supported on UDTs containing durations"),
        _ => refuse(format!("Slice conditions ( {operator} ) are not supported on durations")),
    }
}

/// The error for a conditional modification without mistakes.
pub(super) fn not_supported() -> QueryError {
    QueryError::not_supported("a conditional modification (IF)")
}
