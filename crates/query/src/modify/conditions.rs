//! IF clauses.

mod compare;

use std::sync::Arc;

use cql::ast::{self, ConditionTarget, ConditionValue, Conditions, Identifier, Operator};
use model::{Column, ColumnKind, Table};
use types::CqlType;

use crate::names::{column_spec, find_column};
use crate::preparing::Preparing;
use crate::terms::{InTerms, Term, prepare as prepare_term};
use crate::{ColumnSpec, QueryError};

pub(super) use compare::BoundCondition;

/// The condition of a modification.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// The modification is not conditional.
    None,
    /// `IF NOT EXISTS`.
    NotExists,
    /// `IF EXISTS`.
    Exists,
    /// `IF column = value AND ...`.
    Columns(Arc<[ColumnCondition]>),
}

/// A condition on a column or a part of it.
#[derive(Debug)]
pub(super) struct ColumnCondition {
    pub column: Arc<Column>,
    part: Part,
    operator: Operator,
    wanted: ExpectedValue,
}

/// The part of a column that is compared.
#[derive(Debug)]
enum Part {
    Whole,
    /// The element of a list at an index.
    Index(Term),
    /// The entry of a map with a key.
    Key(Term),
    /// A field of a user type.
    Field(usize),
}

/// The values that it is compared with.
#[derive(Debug)]
enum ExpectedValue {
    Term(Term),
    In(InTerms),
}

impl Condition {
    /// Whether the modification is conditional.
    pub fn is_some(&self) -> bool {
        !matches!(self, Condition::None)
    }

    /// Whether the condition names regular columns.
    pub fn asks_regulars(&self) -> bool {
        self.columns().iter().any(|condition| condition.column.kind == ColumnKind::Regular)
    }

    /// The conditions on columns.
    pub fn columns(&self) -> &[ColumnCondition] {
        match self {
            Condition::Columns(columns) => columns,
            Condition::None | Condition::NotExists | Condition::Exists => &[],
        }
    }
}

/// Checks and prepares an IF clause.
pub(super) fn prepare(
    conditions: &Conditions,
    table: &Table,
    has_timestamp: bool,
    preparing: &mut Preparing<'_>,
) -> Result<Condition, QueryError> {
    let columns = match conditions {
        Conditions::None => return Ok(Condition::None),
        Conditions::NotExists => return Ok(Condition::NotExists),
        Conditions::Exists => return Ok(Condition::Exists),
        Conditions::Columns(columns) => columns,
    };
    if has_timestamp {
        return Err(QueryError::invalid("Cannot provide custom timestamp for conditional updates"));
    }
    let mut prepared = Vec::with_capacity(columns.len());
    for condition in columns {
        let column = find_column(table, &condition.column)?;
        prepared.push(prepare_column(condition, &column, table, preparing)?);
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            let message = format!("PRIMARY KEY column '{}' cannot have IF conditions", column.name);
            return Err(QueryError::invalid(message));
        }
    }
    Ok(Condition::Columns(prepared.into()))
}

fn refuse<T>(message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::invalid(message))
}

fn prepare_column(
    condition: &ast::Condition,
    column: &Arc<Column>,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<ColumnCondition, QueryError> {
    if column.ty == CqlType::Counter {
        return refuse("Conditions on counters are not supported");
    }
    let spec = column_spec(table, column);
    let (part, receiver) = match &condition.target {
        ConditionTarget::Column => (Part::Whole, spec),
        ConditionTarget::Element(element) => prepare_element(element, &spec, preparing)?,
        ConditionTarget::Field(field) => prepare_field(field, &spec)?,
    };
    let wanted = prepare_wanted(condition, &receiver, preparing)?;
    Ok(ColumnCondition { column: column.clone(), part, operator: condition.operator, wanted })
}

fn prepare_element(
    element: &ast::Term,
    column: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<(Part, ColumnSpec), QueryError> {
    let name = &column.name;
    match &column.ty {
        CqlType::List { element: ty, .. } => {
            let index = column.sibling(format!("idx({name})"), CqlType::Int);
            let index = Part::Index(prepare_term(element, &index, preparing)?);
            Ok((index, column.sibling(format!("value({name})"), (**ty).clone())))
        }
        CqlType::Map { key, value, .. } => {
            let key = column.sibling(format!("key({name})"), (**key).clone());
            let key = Part::Key(prepare_term(element, &key, preparing)?);
            Ok((key, column.sibling(format!("value({name})"), (**value).clone())))
        }
        CqlType::Set { .. } => refuse(format!("Invalid element access syntax for set column {name}")),
        _ => refuse(format!("Invalid element access syntax for non-collection column {name}")),
    }
}

fn prepare_field(field: &Identifier, column: &ColumnSpec) -> Result<(Part, ColumnSpec), QueryError> {
    let name = &column.name;
    let unknown = || format!("Unknown field {} for column {name}", field.as_str());
    match &column.ty {
        CqlType::Udt { definition, .. } => {
            let Some(place) = definition.field_index(field.as_str()) else { return refuse(unknown()) };
            let (known, ty) = &definition.fields()[place];
            Ok((Part::Field(place), column.sibling(format!("{name}.{known}"), ty.clone())))
        }
        _ => refuse(unknown()),
    }
}

fn prepare_wanted(
    condition: &ast::Condition,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<ExpectedValue, QueryError> {
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
        ConditionValue::In(values) => InTerms::prepare(values, &receiver, preparing).map(ExpectedValue::In),
        ConditionValue::Term(term) => prepare_term(term, &receiver, preparing).map(ExpectedValue::Term),
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
