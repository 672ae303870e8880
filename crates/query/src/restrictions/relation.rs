//! Turns a written relation into a restriction of its columns.

use std::sync::Arc;

use cql::ast::{self, Identifier, InValues, Operator, Relation};
use model::{Column, ColumnKind, Table};
use types::CqlType;

use super::clustering::{ClusteringKind, ClusteringRestriction, TupleBound};
use super::column::{ColumnRestriction, Contains, Kind, TermBound};
use super::index::answers_like;
use super::partition::TokenRestriction;
use super::tuple::{TupleIn, TupleTerm};
use crate::names::{column_spec, find_column};
use crate::preparing::Preparing;
use crate::row_view::Source;
use crate::terms::{InTerms, Term, prepare as prepare_term};
use crate::{ColumnSpec, QueryError};

/// A relation, prepared.
pub(super) enum Restriction {
    Column(ColumnRestriction),
    Clustering(ClusteringRestriction),
    Token(TokenRestriction),
}

/// Prepares a relation.
pub(super) fn prepare(
    relation: &Relation,
    table: &Arc<Table>,
    preparing: &mut Preparing<'_>,
) -> Result<Restriction, QueryError> {
    // Cassandra checks nothing else of such a relation.
    if relation.operator() == Operator::Neq {
        return Err(QueryError::invalid(format!("Unsupported \"!=\" relation: {relation}")));
    }
    match relation {
        Relation::SingleColumn { column, operator, value } => {
            let column = find_column(table, column)?;
            let kind = single(&column, *operator, value, relation, table, preparing)?;
            Ok(of_column(table, column, kind))
        }
        Relation::SingleColumnIn { column, values } => {
            let column = find_column(table, column)?;
            check_receiver(&column, Operator::In)?;
            // Cassandra takes an IN of one value for an equality, which may do more.
            let kind = match InTerms::prepare(values, &column_spec(table, &column), preparing)? {
                InTerms::Terms(mut terms) if terms.len() == 1 => Kind::Equal(terms.remove(0)),
                values => Kind::In(values),
            };
            Ok(of_column(table, column, kind))
        }
        Relation::MapElement { column, key, operator, value } => {
            let column = find_column(table, column)?;
            let (key_spec, value_spec) = map_entry_specs(&column, *operator, table)?;
            let entry = (prepare_term(key, &key_spec, preparing)?, prepare_term(value, &value_spec, preparing)?);
            Ok(of_column(table, column, Kind::Contains(Contains { entries: vec![entry], ..Contains::default() })))
        }
        Relation::Token { columns, operator, value } => {
            token(columns, *operator, value, table, preparing).map(Restriction::Token)
        }
        Relation::MultiColumn { columns, operator, value } => {
            let columns = multi_columns(columns, relation, table)?;
            multi(&columns, *operator, value, table, preparing).map(Restriction::Clustering)
        }
        Relation::MultiColumnIn { columns, values } => {
            let columns = multi_columns(columns, relation, table)?;
            multi_in(&columns, values, table, preparing).map(Restriction::Clustering)
        }
    }
}

/// A clustering column's restriction is a multi-column one of one column.
fn of_column(table: &Table, column: Arc<Column>, kind: Kind) -> Restriction {
    if column.kind != ColumnKind::Clustering {
        let source = Source::of(table, &column);
        return Restriction::Column(ColumnRestriction { column, source, kind });
    }
    let tuple = |bound: TermBound| TupleBound { tuple: TupleTerm::Single(bound.term), inclusive: bound.inclusive };
    let kind = match kind {
        Kind::Equal(term) => ClusteringKind::Equal(TupleTerm::Single(term)),
        Kind::In(values) => ClusteringKind::In(TupleIn::Single(values)),
        Kind::Slice { start, end } => ClusteringKind::Slice { start: start.map(tuple), end: end.map(tuple) },
        Kind::Contains(contains) => ClusteringKind::Contains(contains),
        Kind::Like(term) => ClusteringKind::Like(term),
    };
    Restriction::Clustering(ClusteringRestriction { columns: vec![column], kind, is_multi: false })
}

fn single(
    column: &Arc<Column>,
    operator: Operator,
    value: &ast::Term,
    relation: &Relation,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<Kind, QueryError> {
    let spec = column_spec(table, column);
    match operator {
        Operator::Eq => {
            check_receiver(column, operator)?;
            prepare_term(value, &spec, preparing).map(Kind::Equal)
        }
        Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte => {
            refuse_duration(&column.ty)?;
            check_receiver(column, operator)?;
            Ok(slice(operator, prepare_term(value, &spec, preparing)?))
        }
        Operator::Contains | Operator::ContainsKey => {
            check_receiver(column, operator)?;
            let term = prepare_term(value, &element_spec(&spec, operator == Operator::ContainsKey), preparing)?;
            Ok(Kind::Contains(match operator {
                Operator::ContainsKey => Contains { keys: vec![term], ..Contains::default() },
                _ => Contains { values: vec![term], ..Contains::default() },
            }))
        }
        Operator::Like => {
            let term = prepare_term(value, &spec, preparing)?;
            if answers_like(table, column) {
                return Ok(Kind::Like(term));
            }
            Err(refuse_like(relation))
        }
        Operator::In | Operator::IsNot | Operator::Neq => {
            Err(QueryError::invalid(format!("Unsupported restriction: {relation}")))
        }
    }
}

/// The error for a LIKE of a column without an index for it.
pub(super) fn refuse_like(relation: &Relation) -> QueryError {
    QueryError::invalid(format!(
        "LIKE restriction is only supported on properly indexed columns. {relation} is not valid."
    ))
}

fn slice(operator: Operator, term: Term) -> Kind {
    let inclusive = matches!(operator, Operator::Gte | Operator::Lte);
    let bound = Some(TermBound { term, inclusive });
    match operator {
        Operator::Gt | Operator::Gte => Kind::Slice { start: bound, end: None },
        _ => Kind::Slice { start: None, end: bound },
    }
}

/// Refuses an operator that cannot restrict a column of this type.
fn check_receiver(column: &Column, operator: Operator) -> Result<(), QueryError> {
    let (name, ty) = (&column.name, &column.ty);
    let refuse = |message: String| Err(QueryError::invalid(message));
    let is_contains = matches!(operator, Operator::Contains | Operator::ContainsKey);
    if operator == Operator::ContainsKey && !matches!(ty, CqlType::Map { .. }) {
        return refuse(format!("Cannot use CONTAINS KEY on non-map column {name}"));
    }
    if operator == Operator::Contains && !ty.is_collection() {
        return refuse(format!("Cannot use CONTAINS on non-collection column {name}"));
    }
    if matches!(ty, CqlType::Udt { .. }) && ty.is_multi_cell() {
        return refuse(format!("Non-frozen UDT column '{name}' ({ty}) cannot be restricted by any relation"));
    }
    if ty.is_collection() && ty.is_multi_cell() && !is_contains {
        return refuse(format!("Collection column '{name}' ({ty}) cannot be restricted by a '{operator}' relation"));
    }
    Ok(())
}

fn refuse_duration(ty: &CqlType) -> Result<(), QueryError> {
    if !ty.any(&|inner| *inner == CqlType::Duration) {
        return Ok(());
    }
    let what = match ty {
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => "collections containing durations",
        CqlType::Tuple(_) => "tuples containing durations",
        CqlType::Udt { .. } => "UDTs containing durations",
        _ => "duration columns",
    };
    Err(QueryError::invalid(format!("Slice restrictions are not supported on {what}")))
}

/// The receiver of an element of a collection column.
fn element_spec(column: &ColumnSpec, key: bool) -> ColumnSpec {
    let value = |ty: &CqlType| column.sibling(format!("value({})", column.name), ty.clone());
    match &column.ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => value(element),
        CqlType::Map { key: ty, .. } if key => column.sibling(format!("key({})", column.name), (**ty).clone()),
        CqlType::Map { value: ty, .. } => value(ty),
        _ => column.clone(),
    }
}

fn map_entry_specs(column: &Column, operator: Operator, table: &Table) -> Result<(ColumnSpec, ColumnSpec), QueryError> {
    let name = &column.name;
    let refuse = |message: String| Err(QueryError::invalid(message));
    match &column.ty {
        CqlType::List { .. } => {
            return refuse(format!("Indexes on list entries ({name}[index] = value) are not currently supported."));
        }
        CqlType::Map { frozen: false, .. } => {}
        CqlType::Map { .. } => {
            return refuse(format!("Map-entry equality predicates on frozen map column {name} are not supported"));
        }
        _ => return refuse(format!("Column {name} cannot be used as a map")),
    }
    if operator != Operator::Eq {
        return refuse("Only EQ relations are supported on map entries".to_owned());
    }
    let spec = column_spec(table, column);
    Ok((element_spec(&spec, true), element_spec(&spec, false)))
}

fn token(
    columns: &[Identifier],
    operator: Operator,
    value: &ast::Term,
    table: &Arc<Table>,
    preparing: &mut Preparing<'_>,
) -> Result<TokenRestriction, QueryError> {
    let columns: Vec<Arc<Column>> =
        columns.iter().map(|column| find_column(table, column)).collect::<Result<_, _>>()?;
    check_token_columns(&columns, table)?;
    let spec = column_spec(table, &table.partition_key()[0]);
    let term = prepare_term(value, &spec.sibling("partition key token", CqlType::Bigint), preparing)?;
    match (operator, slice(operator, term.clone())) {
        (Operator::Eq, _) => Ok(TokenRestriction::Equal(term)),
        (Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte, Kind::Slice { start, end }) => {
            Ok(TokenRestriction::Slice { start, end })
        }
        _ => Err(QueryError::invalid(format!("{operator} cannot be used with the token function"))),
    }
}

fn check_token_columns(columns: &[Arc<Column>], table: &Table) -> Result<(), QueryError> {
    let key = table.partition_key();
    if columns.iter().map(|column| column.id).eq(key.iter().map(|column| column.id)) {
        return Ok(());
    }
    let contains = |columns: &[Arc<Column>], column: &Arc<Column>| columns.iter().any(|other| other.id == column.id);
    let message = if !key.iter().all(|column| contains(columns, column)) {
        "The token() function must be applied to all partition key components or none of them".to_owned()
    } else if (1..columns.len()).any(|place| contains(&columns[..place], &columns[place])) {
        "The token() function contains duplicate partition key components".to_owned()
    } else if !columns.iter().all(|column| contains(key, column)) {
        "The token() function must contains only partition key components".to_owned()
    } else {
        let names: Vec<&str> = key.iter().map(|column| &*column.name).collect();
        format!("The token function arguments must be in the partition key order: {}", names.join(", "))
    };
    Err(QueryError::invalid(message))
}

fn multi_columns(
    names: &[Identifier],
    relation: &Relation,
    table: &Arc<Table>,
) -> Result<Vec<Arc<Column>>, QueryError> {
    let mut columns: Vec<Arc<Column>> = Vec::with_capacity(names.len());
    for name in names {
        let column = find_column(table, name)?;
        let name = &column.name;
        if column.kind != ColumnKind::Clustering {
            return Err(QueryError::invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was applied to: {name}"
            )));
        }
        if columns.iter().any(|known| known.id == column.id) {
            return Err(QueryError::invalid(format!("Column \"{name}\" appeared twice in a relation: {relation}")));
        }
        if columns.last().is_some_and(|last| column.position != last.position + 1) {
            return Err(QueryError::invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: {relation}"
            )));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn multi(
    columns: &[Arc<Column>],
    operator: Operator,
    value: &ast::Term,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<ClusteringRestriction, QueryError> {
    let specs: Vec<ColumnSpec> = columns.iter().map(|column| column_spec(table, column)).collect();
    let is_slice = matches!(operator, Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte);
    if operator != Operator::Eq && !is_slice {
        return Err(QueryError::invalid(format!("{operator} cannot be used for multi-column relations")));
    }
    if is_slice {
        columns.iter().try_for_each(|column| refuse_duration(&column.ty))?;
    }
    let tuple = TupleTerm::prepare(value, &specs, preparing)?;
    let inclusive = matches!(operator, Operator::Gte | Operator::Lte);
    let kind = match operator {
        Operator::Eq => ClusteringKind::Equal(tuple),
        Operator::Gt | Operator::Gte => {
            ClusteringKind::Slice { start: Some(TupleBound { tuple, inclusive }), end: None }
        }
        _ => ClusteringKind::Slice { start: None, end: Some(TupleBound { tuple, inclusive }) },
    };
    Ok(ClusteringRestriction { columns: columns.to_vec(), kind, is_multi: true })
}

fn multi_in(
    columns: &[Arc<Column>],
    values: &InValues,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<ClusteringRestriction, QueryError> {
    let specs: Vec<ColumnSpec> = columns.iter().map(|column| column_spec(table, column)).collect();
    let kind = match TupleIn::prepare(values, &specs, preparing)? {
        TupleIn::Terms(mut tuples) if tuples.len() == 1 => ClusteringKind::Equal(tuples.remove(0)),
        values => ClusteringKind::In(values),
    };
    Ok(ClusteringRestriction { columns: columns.to_vec(), kind, is_multi: true })
}
