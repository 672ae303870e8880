//! The target of a WHERE clause: one row, a range of rows of one partition, or anything else.
//!
//! A [`Target`] is made once, when the statement is prepared. Binding a row or a range avoids the allocations of
//! partitions and slices, which makes reads and writes of one row cheaper.

use std::borrow::Cow;
use std::sync::Arc;

use model::{Column, PartitionKey, Table, push_component};

use super::Restrictions;
use super::clustering::{CLUSTERING_BYTES_MAX, ClusteringKind, ClusteringRestriction, TupleBound, check_value_bytes};
use super::partition::serialize_key;
use super::tuple::TupleTerm;
use crate::QueryError;
use crate::execution::Execution;
use crate::terms::{Bound, Term};

/// The target of a WHERE clause, by how it can be read.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One partition, and one row of it or no particular one.
    Row(RowTarget),
    /// Rows of one partition between two places.
    Slice(Box<SliceTarget>),
    /// Anything else, which [`Restrictions::partitions`] and [`Restrictions::slices`] say when values are known.
    Ranges,
}

impl Restrictions {
    /// The target of the clause. All shortcuts of reads and writes are based on it.
    pub fn target(&self) -> Target {
        let Some(leading) = self.leading_values() else { return Target::Ranges };
        let rest = self.clustering.after_equal(leading.clustering.len());
        let is_whole = leading.clustering.is_empty() || leading.gives_row(&self.table);
        match rest {
            _ if self.filters() => Target::Ranges,
            [] if is_whole => Target::Row(leading),
            [] => Target::Slice(Box::new(leading.into())),
            [slice] => SliceTarget::of(leading, slice).map_or(Target::Ranges, |slice| Target::Slice(Box::new(slice))),
            _ => Target::Ranges,
        }
    }

    /// The partition key and the clustering columns up to the first that is not given by `=`. `None` if the key is not.
    fn leading_values(&self) -> Option<RowTarget> {
        let part = |(column, term): (&Arc<Column>, &Term)| KeyPart { name: column.name.clone(), term: term.clone() };
        Some(RowTarget {
            key: self.partition.equal_terms()?.map(part).collect(),
            clustering: self.clustering.equal_terms().map(part).collect(),
        })
    }
}

/// One partition, and one row of it or its first clustering columns.
#[derive(Clone, Debug)]
pub(crate) struct RowTarget {
    key: Vec<KeyPart>,
    clustering: Vec<KeyPart>,
}

/// The value of a column of a key.
#[derive(Clone, Debug)]
struct KeyPart {
    name: Arc<str>,
    term: Term,
}

impl RowTarget {
    /// The row whose key and clustering have these values, in order.
    pub fn of_values(table: &Table, values: impl Fn(&Column) -> Term) -> RowTarget {
        let part = |column: &Arc<Column>| KeyPart { name: column.name.clone(), term: values(column) };
        RowTarget {
            key: table.partition_key().iter().map(part).collect(),
            clustering: table.clustering().iter().map(part).collect(),
        }
    }

    /// Whether a row is given, not only its partition.
    pub fn gives_row(&self, table: &Table) -> bool {
        self.clustering.len() == table.clustering().len()
    }

    /// How many clustering columns are given.
    pub fn clustering_count(&self) -> usize {
        self.clustering.len()
    }

    /// Whether clustering columns are given.
    pub fn has_clustering(&self) -> bool {
        !self.clustering.is_empty()
    }

    /// The partition.
    pub fn key(&self, execution: &Execution<'_>) -> Result<PartitionKey, QueryError> {
        if let [only] = self.key.as_slice() {
            return only.with_value(execution, |value| serialize_key(&[value]))?;
        }
        let bound = self.key.iter().map(|part| part.term.bind(execution));
        let bound: Vec<Bound<'_>> = bound.collect::<Result<_, _>>()?;
        let values = self.key.iter().zip(&bound).map(|(part, value)| part.value(value));
        serialize_key(&values.collect::<Result<Vec<_>, _>>()?)
    }

    /// The serialized clustering; empty if none is given.
    pub fn clustering(&self, execution: &Execution<'_>) -> Result<Vec<u8>, QueryError> {
        let mut clustering = Vec::new();
        for part in &self.clustering {
            part.with_value(execution, |value| push_component(Some(value), &mut clustering))?;
        }
        check_value_bytes(clustering.len().saturating_sub(4 * self.clustering.len()))?;
        Ok(clustering)
    }
}

/// A row is looked up without a cursor where its key and its clustering have no more columns than this each.
pub(crate) const ROW_VALUES_MAX: usize = 4;

/// The values of the columns of a row's key and clustering, in order, as the statement or the request has them. Those
/// after the last column are empty.
pub(crate) struct RowValues<'v> {
    pub key: [&'v [u8]; ROW_VALUES_MAX],
    pub clustering: [Option<&'v [u8]>; ROW_VALUES_MAX],
}

impl<'v> RowValues<'v> {
    /// `None` if a value is missing, not valid or computed, or there are too many.
    #[inline]
    pub fn bind(target: &'v RowTarget, execution: &'v Execution<'_>) -> Option<Self> {
        let value = |part: &'v KeyPart| match part.term.bind(execution) {
            Ok(Bound::Bytes(Cow::Borrowed(value))) => Some(value),
            _ => None,
        };
        let mut values = RowValues { key: [&[]; ROW_VALUES_MAX], clustering: [None; ROW_VALUES_MAX] };
        for (place, part) in target.key.iter().enumerate() {
            *values.key.get_mut(place)? = value(part)?;
        }
        for (place, part) in target.clustering.iter().enumerate() {
            *values.clustering.get_mut(place)? = Some(value(part)?);
        }
        Some(values)
    }
}

impl KeyPart {
    fn value<'b>(&self, bound: &'b Bound<'_>) -> Result<&'b [u8], QueryError> {
        let name = &self.name;
        match bound {
            Bound::Bytes(bytes) => Ok(bytes),
            Bound::Null => Err(QueryError::invalid(format!("Invalid null value in condition for column {name}"))),
            Bound::Unset => Err(QueryError::invalid(format!("Invalid unset value for column {name}"))),
        }
    }

    fn with_value<R>(&self, execution: &Execution<'_>, then: impl FnOnce(&[u8]) -> R) -> Result<R, QueryError> {
        Ok(then(self.value(&self.term.bind(execution)?)?))
    }
}

/// Rows of one partition between two places: those with its leading values, and perhaps the next column's between two.
#[derive(Clone, Debug)]
pub(crate) struct SliceTarget {
    /// The partition, and what all of the rows' clusterings begin with.
    pub leading: RowTarget,
    start: Option<Edge>,
    end: Option<Edge>,
}

/// Where the rows begin or end, in clustering order.
#[derive(Clone, Debug)]
struct Edge {
    term: Term,
    /// On which side of all rows with the term's value: -1 before them, 1 after.
    weight: i8,
}

impl SliceTarget {
    /// `None` unless the restriction after the leading values is a slice of one column, and not written as a tuple.
    fn of(leading: RowTarget, restriction: &ClusteringRestriction) -> Option<SliceTarget> {
        let ClusteringRestriction {
            columns,
            kind: ClusteringKind::Slice { start: above, end: below },
            is_multi: false,
        } = restriction
        else {
            return None;
        };
        let [column] = columns.as_slice() else { return None };
        let edge = |bound: &Option<TupleBound>, is_start: bool| match bound {
            None => Some(None),
            Some(TupleBound { tuple: TupleTerm::Single(term), inclusive }) => {
                Some(Some(Edge { term: term.clone(), weight: if is_start == *inclusive { -1 } else { 1 } }))
            }
            Some(_) => None,
        };
        // In a column that sorts downwards the greatest values come first.
        let (first, last) = if column.reversed { (below, above) } else { (above, below) };
        Some(SliceTarget { leading, start: edge(first, true)?, end: edge(last, false)? })
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

impl From<RowTarget> for SliceTarget {
    /// All rows with the leading values.
    fn from(leading: RowTarget) -> SliceTarget {
        SliceTarget { leading, start: None, end: None }
    }
}
