//! ORDER BY.

use std::cmp;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use cql::ast::{self, Direction};
use model::{ColumnKind, Table};
use types::CqlType;

use crate::QueryError;
use crate::names::find_column;
use crate::restrictions::Restrictions;

/// The order of the rows of the result.
#[derive(Debug)]
pub(super) struct Ordering {
    /// Whether partitions are read backwards.
    pub is_reversed: bool,
    /// The clustering columns by which rows of several partitions are sorted together, most significant first.
    pub sort: Option<Vec<SortColumn>>,
}

/// A clustering column by which rows are sorted in memory.
#[derive(Debug)]
pub(super) struct SortColumn {
    pub position: usize,
    pub ty: CqlType,
    pub descending: bool,
    /// Whether rows without the column come last. They belong to partitions with only static cells, and come last if
    /// partitions are read backwards.
    pub nulls_last: bool,
}

impl SortColumn {
    /// Compares two values of the column.
    pub fn compare(&self, left: Option<&[u8]>, right: Option<&[u8]>) -> cmp::Ordering {
        let (order, reversed) = match (left, right) {
            (Some(left), Some(right)) => (self.ty.compare(left, right), self.descending),
            (left, right) => (left.is_some().cmp(&right.is_some()), self.nulls_last),
        };
        if reversed { order.reverse() } else { order }
    }
}

const OUT_OF_ORDER: &str =
    "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY";

impl Ordering {
    /// Prepares an ORDER BY.
    pub fn prepare(
        clauses: &[ast::Ordering],
        table: &Arc<Table>,
        restrictions: &Restrictions,
    ) -> Result<Ordering, QueryError> {
        if clauses.is_empty() {
            return Ok(Ordering { is_reversed: false, sort: None });
        }
        if restrictions.uses_index() {
            return Err(QueryError::invalid("ORDER BY with 2ndary indexes is not supported, except for ANN queries."));
        }
        if restrictions.is_key_range() {
            return Err(QueryError::invalid(
                "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
            ));
        }
        let (mut sort, mut directions) = (Vec::new(), Vec::new());
        let mut next = 0;
        for clause in distinct(clauses) {
            let column = find_column(table, &clause.column)?;
            if column.kind != ColumnKind::Clustering {
                return Err(QueryError::invalid(format!(
                    "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {}",
                    column.name
                )));
            }
            let position = column.position.max(0) as usize;
            while next != position {
                let skipped = table.clustering().get(next).filter(|skipped| restrictions.is_equal(skipped));
                skipped.ok_or_else(|| QueryError::invalid(OUT_OF_ORDER))?;
                next += 1;
            }
            next += 1;
            let descending = clause.direction == Direction::Desc;
            let is_reversed = descending != column.reversed;
            directions.push(is_reversed);
            sort.push(SortColumn { position, ty: column.ty.clone(), descending, nulls_last: is_reversed });
        }
        let is_reversed = directions[0];
        if directions.iter().any(|direction| *direction != is_reversed) {
            return Err(QueryError::invalid("Unsupported order by relation"));
        }
        Ok(Ordering { is_reversed, sort: restrictions.is_key_in().then_some(sort) })
    }
}

/// If a column is named twice, the later order counts, at the place of the first one: Cassandra has a map of columns.
fn distinct(clauses: &[ast::Ordering]) -> Vec<&ast::Ordering> {
    let mut kept: Vec<&ast::Ordering> = Vec::with_capacity(clauses.len());
    let mut places: HashMap<&str, usize> = HashMap::new();
    for clause in clauses {
        match places.entry(clause.column.as_str()) {
            Entry::Occupied(place) => kept[*place.get()] = clause,
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(clause);
            }
        }
    }
    kept
}
