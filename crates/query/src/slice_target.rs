//! Rows of one partition between two places: its key and the first clustering columns by `=`, and perhaps the next one
//! by `<`, `<=`, `>` or `>=`.

use cql::ast::{self, Operator, Relation, WhereClause};
use model::{Column, Table, push_component};

use crate::QueryError;
use crate::execution::Execution;
use crate::names::column_spec;
use crate::preparing::Preparing;
use crate::row_target::{KeyPart, RowTarget};
use crate::terms::{Bound, Term, prepare as prepare_term};

/// The longest clustering, bytes, as Cassandra counts it.
const CLUSTERING_BYTES_MAX: usize = 65_535;

/// Rows of one partition.
#[derive(Debug)]
pub(crate) struct SliceTarget {
    /// The partition, and what all of the rows' clusterings begin with.
    pub leading: RowTarget,
    start: Option<Edge>,
    end: Option<Edge>,
}

/// Where the rows begin or end, in clustering order.
#[derive(Debug)]
struct Edge {
    term: Term,
    /// On which side of all rows with the term's value: -1 before them, 1 behind.
    weight: i8,
}

impl SliceTarget {
    /// `None` if the clause says anything else. The clause was checked.
    pub fn prepare(
        clause: &WhereClause,
        table: &Table,
        preparing: &mut Preparing<'_>,
    ) -> Result<Option<SliceTarget>, QueryError> {
        let mut left = clause.relations.len();
        let mut key = Vec::with_capacity(table.partition_key().len());
        for column in table.partition_key() {
            let Some(value) = equal(clause, column) else { return Ok(None) };
            key.push(KeyPart::prepare(column, value, table, preparing)?);
            left -= 1;
        }
        let mut clustering = Vec::new();
        let (mut start, mut end) = (None, None);
        for column in table.clustering() {
            if let Some(value) = equal(clause, column) {
                clustering.push(KeyPart::prepare(column, value, table, preparing)?);
                left -= 1;
                continue;
            }
            for (operator, value) in relations(clause, column) {
                let Some((is_start, weight)) = edge(operator, column.reversed) else { return Ok(None) };
                let term = prepare_term(value, &column_spec(table, column), preparing)?;
                let place = if is_start { &mut start } else { &mut end };
                *place = Some(Edge { term, weight });
                left -= 1;
            }
            break;
        }
        // What is left restricts other columns, or in other ways.
        Ok((left == 0).then(|| SliceTarget { leading: RowTarget::of_parts(key, clustering), start, end }))
    }

    /// Makes both places of prefixes that hold the leading values; their weights. `None` if a value is missing or not
    /// valid.
    pub fn bind(&self, execution: &Execution<'_>, start: &mut Vec<u8>, end: &mut Vec<u8>) -> Option<(i8, i8)> {
        let bind = |edge: &Option<Edge>, otherwise: i8, prefix: &mut Vec<u8>| -> Option<i8> {
            let Some(edge) = edge else { return Some(otherwise) };
            let Ok(Bound::Bytes(value)) = edge.term.bind(execution) else { return None };
            push_component(Some(&*value), prefix);
            Some(edge.weight)
        };
        let weights = (bind(&self.start, -1, start)?, bind(&self.end, 1, end)?);
        (start.len().max(end.len()) <= CLUSTERING_BYTES_MAX).then_some(weights)
    }
}

/// What a clause says of a column.
fn relations<'c>(clause: &'c WhereClause, column: &Column) -> impl Iterator<Item = (Operator, &'c ast::Term)> {
    clause.relations.iter().filter_map(move |relation| match relation {
        Relation::SingleColumn { column: name, operator, value } if name.as_str() == &*column.name => {
            Some((*operator, value))
        }
        _ => None,
    })
}

fn equal<'c>(clause: &'c WhereClause, column: &Column) -> Option<&'c ast::Term> {
    relations(clause, column).find(|(operator, _)| *operator == Operator::Eq).map(|(_, value)| value)
}

/// Whether a comparison says where rows begin in clustering order, and on which side of the value.
fn edge(operator: Operator, is_reversed: bool) -> Option<(bool, i8)> {
    let (is_above, is_inclusive) = match operator {
        Operator::Gt => (true, false),
        Operator::Gte => (true, true),
        Operator::Lt => (false, false),
        Operator::Lte => (false, true),
        _ => return None,
    };
    let is_start = is_above != is_reversed;
    Some((is_start, if is_start == is_inclusive { -1 } else { 1 }))
}
