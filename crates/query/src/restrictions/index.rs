//! Restrictions that a secondary index answers, and when Cassandra takes an index for them.

use model::{Index, IndexPart, Table};
use types::CqlType;

use super::clustering::{ClusteringKind, ClusteringRestriction};
use super::column::{ColumnRestriction, Contains, Kind};
use super::tuple::TupleTerm;
use super::{NEEDS_FILTERING, Restrictions};
use crate::QueryError;
use crate::execution::Execution;
use crate::terms::{Bound, Term};

const IN_WITH_INDEX: &str = "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported";

/// A restriction for which there is an index.
#[derive(Clone, Debug)]
pub(crate) struct IndexedRestriction {
    pub index: Index,
    value: IndexedValue,
}

/// The value that the index is searched for.
#[derive(Clone, Debug)]
enum IndexedValue {
    One(TupleTerm),
    Entry(Term, Term),
}

impl IndexedRestriction {
    fn of_term(table: &Table, column: &str, part: IndexPart, term: TupleTerm) -> Option<IndexedRestriction> {
        let index = find(table, column, part)?.clone();
        Some(IndexedRestriction { index, value: IndexedValue::One(term) })
    }

    fn of_contains(table: &Table, column: &str, contains: &Contains) -> Option<IndexedRestriction> {
        let of_term = |part, term: &Term| Self::of_term(table, column, part, TupleTerm::Single(term.clone()));
        let value = contains.values.first().and_then(|value| of_term(IndexPart::Values, value));
        let key = || contains.keys.first().and_then(|key| of_term(IndexPart::Keys, key));
        let entry = || {
            let (key, value) = contains.entries.first()?;
            let index = find(table, column, IndexPart::Entries)?.clone();
            Some(IndexedRestriction { index, value: IndexedValue::Entry(key.clone(), value.clone()) })
        };
        value.or_else(key).or_else(entry)
    }

    /// The value that the index is searched for, in this execution; `None` if it is null or unset.
    pub fn value(&self, execution: &Execution<'_>) -> Result<Option<Vec<u8>>, QueryError> {
        let bytes = |value: Bound<'_>| match value {
            Bound::Bytes(bytes) => Some(bytes.into_owned()),
            Bound::Null | Bound::Unset => None,
        };
        match &self.value {
            IndexedValue::One(term) => Ok(term.bind(execution)?.into_iter().next().and_then(bytes)),
            IndexedValue::Entry(key, value) => {
                let (key, value) = (bytes(key.bind(execution)?), bytes(value.bind(execution)?));
                Ok(key.zip(value).map(|(key, value)| engine::entry_value(&key, &value)))
            }
        }
    }
}

/// The table's index of a part of a column.
fn find<'t>(table: &'t Table, column: &str, part: IndexPart) -> Option<&'t Index> {
    table.indexes().iter().find(|index| *index.column == *column && index.part == part)
}

impl ColumnRestriction {
    fn indexed(&self, table: &Table) -> Option<IndexedRestriction> {
        match &self.kind {
            Kind::Equal(term) => {
                let term = TupleTerm::Single(term.clone());
                IndexedRestriction::of_term(table, &self.column.name, IndexPart::Whole, term)
            }
            Kind::Contains(contains) => IndexedRestriction::of_contains(table, &self.column.name, contains),
            Kind::In(_) | Kind::Slice { .. } => None,
        }
    }

    fn condition_count(&self) -> usize {
        match &self.kind {
            Kind::Contains(contains) => contains.condition_count(),
            _ => 1,
        }
    }
}

impl Contains {
    fn condition_count(&self) -> usize {
        self.values.len() + self.keys.len() + self.entries.len()
    }
}

impl ClusteringRestriction {
    pub(super) fn indexed(&self, table: &Table) -> Option<IndexedRestriction> {
        let [column] = self.columns.as_slice() else { return None };
        match &self.kind {
            ClusteringKind::Equal(term) => {
                IndexedRestriction::of_term(table, &column.name, IndexPart::Whole, term.clone())
            }
            ClusteringKind::Contains(contains) => IndexedRestriction::of_contains(table, &column.name, contains),
            ClusteringKind::In(_) | ClusteringKind::Slice { .. } => None,
        }
    }

    fn condition_count(&self) -> usize {
        match &self.kind {
            ClusteringKind::Contains(contains) => contains.condition_count(),
            _ => self.columns.len(),
        }
    }
}

/// What of a WHERE clause indexes could answer. It decides, as in Cassandra, what needs ALLOW FILTERING, whether or not
/// an index is used in the end.
#[derive(Debug, Default)]
pub(super) struct IndexUse {
    /// Whether any restriction has an index.
    pub is_possible: bool,
    /// Whether Cassandra would use an index.
    pub is_used: bool,
    /// Whether the restrictions of the partition key are among those that Cassandra filters by.
    pub filters_partition: bool,
    /// Whether those of the clustering columns are.
    pub filters_clustering: bool,
}

impl Restrictions {
    /// Whether any restriction has an index.
    pub(super) fn find_index_use(&mut self) {
        let table = &*self.table;
        if !table.indexes().is_empty() {
            let of_partition = self.partition.restricted().any(|restriction| restriction.indexed(table).is_some());
            let of_others = self.others.iter().any(|restriction| restriction.indexed(table).is_some());
            self.indexes.is_possible = of_partition || of_others || self.has_clustering_index();
        }
    }

    pub(super) fn has_clustering_index(&self) -> bool {
        self.clustering.all().iter().any(|restriction| restriction.indexed(&self.table).is_some())
    }

    /// Whether Cassandra uses an index for it.
    pub fn uses_index(&self) -> bool {
        self.indexes.is_used
    }

    /// Refuses restrictions of vectors that have an index.
    pub(super) fn refuse_indexed_vectors(&self) -> Result<(), QueryError> {
        let is_refused = |restriction: &ColumnRestriction| {
            let column = &restriction.column;
            matches!(column.ty, CqlType::Vector { .. }) && find(&self.table, &column.name, IndexPart::Whole).is_some()
        };
        match self.others.iter().any(is_refused) {
            true => Err(QueryError::invalid("Vector indexes only support ANN queries")),
            false => Ok(()),
        }
    }

    /// Refuses an IN of the partition key where an index is used.
    pub(super) fn check_index_use(&self) -> Result<(), QueryError> {
        if self.indexes.is_used && self.partition.has_in() {
            return Err(QueryError::invalid(IN_WITH_INDEX));
        }
        Ok(())
    }

    /// Refuses a SELECT that leaves out rows which no single index leaves out, unless filtering is allowed.
    pub(super) fn check_index_filters(&self) -> Result<(), QueryError> {
        let (mut conditions, mut is_indexed) = (0, true);
        let mut count = |count: usize, indexed: Option<IndexedRestriction>| {
            conditions += count;
            is_indexed &= indexed.is_some();
        };
        if self.indexes.filters_partition {
            self.partition.restricted().for_each(|known| count(known.condition_count(), known.indexed(&self.table)));
        }
        if self.indexes.filters_clustering {
            self.clustering.all().iter().for_each(|known| count(known.condition_count(), known.indexed(&self.table)));
        }
        self.others.iter().for_each(|known| count(known.condition_count(), known.indexed(&self.table)));
        let is_identity = conditions == 0 && self.clustering.is_empty();
        if is_identity || (conditions == 1 && is_indexed) {
            return Ok(());
        }
        Err(QueryError::invalid(NEEDS_FILTERING))
    }

    /// The restriction by which an index finds the rows, if that is better than reading the partitions and slices.
    pub(super) fn best_indexed(&self) -> Option<IndexedRestriction> {
        let table = &*self.table;
        // Rows of a given partition that are given by their clustering are read at once.
        let gives_rows = !self.is_key_range && !self.clustering.is_empty() && !self.filters_clustering;
        if !self.indexes.is_used || gives_rows {
            return None;
        }
        let of_others = self.others.iter().find_map(|restriction| restriction.indexed(table));
        let of_clustering = || self.clustering.all().iter().find_map(|restriction| restriction.indexed(table));
        let of_partition = || {
            let mut restricted = self.partition.restricted().filter(|_| self.filters_partition);
            restricted.find_map(|restriction| restriction.indexed(table))
        };
        of_others.or_else(of_clustering).or_else(of_partition)
    }

    /// The restriction by which an index finds the rows.
    pub fn indexed(&self) -> Option<&IndexedRestriction> {
        self.indexed.as_ref()
    }
}
