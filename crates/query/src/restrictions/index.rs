//! Restrictions that a secondary index answers, and when Cassandra uses an index for them.

use engine::IndexedValues;
use model::{Analysis, Column, Index, IndexClass, IndexPart, SasiMode, Table};
use types::CqlType;

use super::clustering::{ClusteringKind, ClusteringRestriction, TupleBound};
use super::column::{ColumnRestriction, Contains, Kind, TermBound};
use super::like::{LikeAnchor, Pattern};
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

/// The values that the index is searched for.
#[derive(Clone, Debug)]
enum IndexedValue {
    One(TupleTerm),
    Entry(Term, Term),
    Between(Option<TupleTerm>, Option<TupleTerm>),
    /// The pattern of a LIKE, and how the index changes text.
    Like(Term, Analysis),
}

/// The values of [`IndexedRestriction`] in an execution.
pub(crate) enum BoundValues {
    One(Vec<u8>),
    Between(Option<Vec<u8>>, Option<Vec<u8>>),
    Term(LikeAnchor, String),
}

impl BoundValues {
    pub fn as_ref(&self) -> IndexedValues<'_> {
        match self {
            BoundValues::One(value) => IndexedValues::One(value),
            BoundValues::Between(first, last) => IndexedValues::Between(first.as_deref(), last.as_deref()),
            BoundValues::Term(anchor, term) => match anchor {
                LikeAnchor::Whole => IndexedValues::Term(term.as_bytes()),
                LikeAnchor::Start => IndexedValues::Beginning(term.as_bytes()),
                LikeAnchor::End => IndexedValues::Ending(term.as_bytes()),
                LikeAnchor::Anywhere => IndexedValues::Containing(term.as_bytes()),
            },
        }
    }
}

impl IndexedRestriction {
    fn of_term(indexes: Indexes<'_>, column: &str, part: IndexPart, term: TupleTerm) -> Option<IndexedRestriction> {
        let index = indexes.find(column, part)?.clone();
        Some(IndexedRestriction { index, value: IndexedValue::One(term) })
    }

    /// The restriction of a column to values between two.
    fn of_slice(
        table: &Table,
        column: &Column,
        start: Option<TupleTerm>,
        end: Option<TupleTerm>,
    ) -> Option<IndexedRestriction> {
        let index = find_of_ranges(table, column)?.clone();
        Some(IndexedRestriction { index, value: IndexedValue::Between(start, end) })
    }

    /// The restriction of a column by LIKE.
    fn of_like(table: &Table, column: &Column, term: &Term) -> Option<IndexedRestriction> {
        let index = find_literal(table, column)?.clone();
        let analysis = index.analysis(&column.ty);
        Some(IndexedRestriction { index, value: IndexedValue::Like(term.clone(), analysis) })
    }

    fn of_contains(indexes: Indexes<'_>, column: &str, contains: &Contains) -> Option<IndexedRestriction> {
        let of_term = |part, term: &Term| Self::of_term(indexes, column, part, TupleTerm::Single(term.clone()));
        let value = contains.values.first().and_then(|value| of_term(IndexPart::Values, value));
        let key = || contains.keys.first().and_then(|key| of_term(IndexPart::Keys, key));
        let entry = || {
            let (key, value) = contains.entries.first()?;
            let index = indexes.find(column, IndexPart::Entries)?.clone();
            Some(IndexedRestriction { index, value: IndexedValue::Entry(key.clone(), value.clone()) })
        };
        value.or_else(key).or_else(entry)
    }

    /// Whether the index is searched for a range of values, whose rows are sorted before the first is read.
    pub fn is_range(&self) -> bool {
        matches!(self.value, IndexedValue::Between(..) | IndexedValue::Like(..))
    }

    /// The values that the index is searched for, in this execution; `None` if one is null or unset.
    pub fn values(&self, execution: &Execution<'_>) -> Result<Option<BoundValues>, QueryError> {
        let bytes = |value: Bound<'_>| match value {
            Bound::Bytes(bytes) => Some(bytes.into_owned()),
            Bound::Null | Bound::Unset => None,
        };
        let first = |term: &TupleTerm| Ok::<_, QueryError>(term.bind(execution)?.into_iter().next().and_then(bytes));
        Ok(match &self.value {
            IndexedValue::One(term) => first(term)?.map(BoundValues::One),
            IndexedValue::Entry(key, value) => {
                let (key, value) = (bytes(key.bind(execution)?), bytes(value.bind(execution)?));
                key.zip(value).map(|(key, value)| BoundValues::One(engine::entry_value(&key, &value)))
            }
            IndexedValue::Like(term, analysis) => {
                let Some(pattern) = bytes(term.bind(execution)?) else { return Ok(None) };
                let pattern = Pattern::read(&pattern, &self.index, *analysis)?;
                pattern.longest().map(|term| BoundValues::Term(pattern.anchor, term.to_owned()))
            }
            IndexedValue::Between(start, end) => {
                let start = start.as_ref().map(first).transpose()?;
                let end = end.as_ref().map(first).transpose()?;
                let is_null = matches!(start, Some(None)) || matches!(end, Some(None));
                (!is_null).then(|| BoundValues::Between(start.flatten(), end.flatten()))
            }
        })
    }
}

/// Whether a storage-attached index of values of this type answers ranges, as in Cassandra.
fn has_ranges(ty: &CqlType) -> bool {
    !matches!(
        ty,
        CqlType::Ascii
            | CqlType::Text
            | CqlType::Boolean
            | CqlType::Uuid
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt { .. }
    )
}

/// The indexes of a table.
#[derive(Clone, Copy)]
pub(super) struct Indexes<'t> {
    table: &'t Table,
    /// Whether a storage-attached index goes before a plain one.
    prefers_attached: bool,
}

impl<'t> Indexes<'t> {
    /// The index for single values of a part of a column. As in Cassandra, one of SASI goes before a plain one, and
    /// that before a storage-attached one unless the configuration prefers those.
    fn find(self, column: &str, part: IndexPart) -> Option<&'t Index> {
        let Indexes { table, prefers_attached } = self;
        let all = table.indexes().iter().filter(|index| *index.column == *column && index.part == part);
        let is_divided = |index: &Index| index.class == IndexClass::Sasi && analysis_of(table, index).divides();
        all.filter(|index| !is_divided(index)).min_by_key(|index| match index.class {
            IndexClass::Sasi => 0,
            IndexClass::StorageAttached if prefers_attached => 1,
            IndexClass::Plain => 2,
            IndexClass::StorageAttached => 3,
        })
    }
}

fn analysis_of(table: &Table, index: &Index) -> Analysis {
    table.column(&index.column).map_or(Analysis::NONE, |column| index.analysis(&column.ty))
}

/// The table's index for ranges of values of a column.
fn find_of_ranges<'t>(table: &'t Table, column: &Column) -> Option<&'t Index> {
    let is_text = matches!(column.ty, CqlType::Ascii | CqlType::Text);
    table.indexes().iter().filter(|index| index.column == column.name && index.part == IndexPart::Whole).find(|index| {
        match index.class {
            IndexClass::Plain => false,
            IndexClass::StorageAttached => has_ranges(&column.ty),
            IndexClass::Sasi => !is_text && index.sasi_options().mode() != Some(SasiMode::Contains),
        }
    })
}

/// The table's SASI index of a column of text: one of parts of terms, if there are several.
fn find_literal<'t>(table: &'t Table, column: &Column) -> Option<&'t Index> {
    let is_text = matches!(column.ty, CqlType::Ascii | CqlType::Text);
    let all = table.indexes().iter().filter(|index| index.class == IndexClass::Sasi && index.column == column.name);
    let literal = all.filter(|index| is_text && index.sasi_options().is_literal(is_text));
    literal.min_by_key(|index| index.sasi_options().mode() != Some(SasiMode::Contains))
}

/// Whether a column may be restricted by LIKE.
pub(super) fn answers_like(table: &Table, column: &Column) -> bool {
    find_literal(table, column).is_some()
}

/// The pattern of a LIKE of a column.
pub(super) fn pattern_of(table: &Table, column: &Column, pattern: &[u8]) -> Result<Pattern, QueryError> {
    let index = find_literal(table, column).ok_or_else(|| QueryError::server("LIKE of a column without an index"))?;
    Pattern::read(pattern, index, index.analysis(&column.ty))
}

/// How the indexes of a SELECT analyze the text that they answer for. Without an index, text stays as it is.
#[derive(Clone, Copy, Default)]
pub(super) struct Analyses<'t>(Option<Indexes<'t>>);

impl Analyses<'_> {
    /// The analysis of a part of a column.
    pub fn of(self, column: &str, part: IndexPart) -> Analysis {
        self.0.and_then(|indexes| Some(analysis_of(indexes.table, indexes.find(column, part)?))).unwrap_or_default()
    }
}

/// The table's storage-attached index of a part of a column.
fn find_attached<'t>(table: &'t Table, column: &str, part: IndexPart) -> Option<&'t Index> {
    let is_it =
        |index: &&Index| *index.column == *column && index.part == part && index.class == IndexClass::StorageAttached;
    table.indexes().iter().find(is_it)
}

impl ColumnRestriction {
    fn indexed(&self, indexes: Indexes<'_>) -> Option<IndexedRestriction> {
        let table = indexes.table;
        match &self.kind {
            Kind::Equal(term) => {
                let term = TupleTerm::Single(term.clone());
                IndexedRestriction::of_term(indexes, &self.column.name, IndexPart::Whole, term)
            }
            Kind::Contains(contains) => IndexedRestriction::of_contains(indexes, &self.column.name, contains),
            Kind::Slice { start, end } => {
                let term =
                    |bound: &Option<TermBound>| bound.as_ref().map(|bound| TupleTerm::Single(bound.term.clone()));
                IndexedRestriction::of_slice(table, &self.column, term(start), term(end))
            }
            Kind::Like(term) => IndexedRestriction::of_like(table, &self.column, term),
            Kind::In(_) => None,
        }
    }

    /// Whether storage-attached indexes answer it as a whole.
    fn is_attached(&self, table: &Table) -> bool {
        let has = |part| find_attached(table, &self.column.name, part).is_some();
        match &self.kind {
            Kind::Equal(_) => has(IndexPart::Whole),
            Kind::Slice { .. } => has(IndexPart::Whole) && has_ranges(&self.column.ty),
            Kind::Contains(contains) => contains.is_attached(has),
            Kind::In(_) | Kind::Like(_) => false,
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
    fn is_attached(&self, has: impl Fn(IndexPart) -> bool) -> bool {
        let answers = |is_asked: bool, part| !is_asked || has(part);
        answers(!self.values.is_empty(), IndexPart::Values)
            && answers(!self.keys.is_empty(), IndexPart::Keys)
            && answers(!self.entries.is_empty(), IndexPart::Entries)
    }

    fn condition_count(&self) -> usize {
        self.values.len() + self.keys.len() + self.entries.len()
    }
}

impl ClusteringRestriction {
    pub(super) fn indexed(&self, indexes: Indexes<'_>) -> Option<IndexedRestriction> {
        let [column] = self.columns.as_slice() else { return None };
        let table = indexes.table;
        match &self.kind {
            ClusteringKind::Equal(term) => {
                IndexedRestriction::of_term(indexes, &column.name, IndexPart::Whole, term.clone())
            }
            ClusteringKind::Contains(contains) => IndexedRestriction::of_contains(indexes, &column.name, contains),
            ClusteringKind::Slice { start, end } => {
                let term = |bound: &Option<TupleBound>| bound.as_ref().map(|bound| bound.tuple.clone());
                IndexedRestriction::of_slice(table, column, term(start), term(end))
            }
            ClusteringKind::Like(term) => IndexedRestriction::of_like(table, column, term),
            ClusteringKind::In(_) => None,
        }
    }

    /// Whether storage-attached indexes answer it as a whole.
    fn is_attached(&self, table: &Table) -> bool {
        let [column] = self.columns.as_slice() else { return false };
        let has = |part| find_attached(table, &column.name, part).is_some();
        match &self.kind {
            ClusteringKind::Equal(_) => has(IndexPart::Whole),
            ClusteringKind::Slice { .. } => has(IndexPart::Whole) && has_ranges(&column.ty),
            ClusteringKind::Contains(contains) => contains.is_attached(has),
            ClusteringKind::In(_) | ClusteringKind::Like(_) => false,
        }
    }

    fn condition_count(&self) -> usize {
        match &self.kind {
            ClusteringKind::Contains(contains) => contains.condition_count(),
            _ => self.columns.len(),
        }
    }
}

/// The parts of a WHERE clause that indexes could answer. As in Cassandra, they decide whether ALLOW FILTERING is
/// needed, whether or not an index is used in the end.
#[derive(Debug, Default)]
pub(super) struct IndexUse {
    /// Whether any restriction has an index.
    pub is_possible: bool,
    /// Whether Cassandra would use an index.
    pub is_used: bool,
    /// Whether an index has options that may change text.
    pub has_options: bool,
    /// Whether the restrictions of the partition key are among those that Cassandra filters by.
    pub filters_partition: bool,
    /// Whether those of the clustering columns are.
    pub filters_clustering: bool,
}

impl Restrictions {
    /// The indexes that restrictions may use.
    pub(super) fn table_indexes(&self) -> Indexes<'_> {
        Indexes { table: &self.table, prefers_attached: self.prefers_attached }
    }

    /// Whether any restriction has an index.
    pub(super) fn find_index_use(&mut self) {
        let indexes = self.table_indexes();
        if !indexes.table.indexes().is_empty() {
            let of_partition = self.partition.restricted().any(|restriction| restriction.indexed(indexes).is_some());
            let of_others = self.others.iter().any(|restriction| restriction.indexed(indexes).is_some());
            let is_possible = of_partition || of_others || self.has_clustering_index();
            self.indexes.is_possible = is_possible || self.has_nearest_index();
            self.indexes.has_options = self.table.indexes().iter().any(|index| index.given_options().next().is_some());
        }
    }

    pub(super) fn has_clustering_index(&self) -> bool {
        self.clustering.all().iter().any(|restriction| restriction.indexed(self.table_indexes()).is_some())
    }

    /// How text is changed before rows are compared. As in Cassandra, a plain index leaves all text as it is, unless a
    /// storage-attached one is preferred to it.
    pub(super) fn analyses(&self) -> Analyses<'_> {
        if !self.indexes.is_used || !self.indexes.has_options {
            return Analyses::default();
        }
        let indexes = self.table_indexes();
        let has = |class: IndexClass| {
            let is_it = |found: Option<IndexedRestriction>| found.is_some_and(|it| it.index.class == class);
            let partition = self.partition.restricted().filter(|_| self.indexes.filters_partition);
            let mut clustering = self.clustering.all().iter().filter(|_| self.indexes.filters_clustering);
            partition.chain(&self.others).any(|known| is_it(known.indexed(indexes)))
                || clustering.any(|known| is_it(known.indexed(indexes)))
        };
        let leaves_text = has(IndexClass::Plain) && !(self.prefers_attached && has(IndexClass::StorageAttached));
        Analyses((!leaves_text).then_some(indexes))
    }

    /// Whether Cassandra uses an index for it.
    pub fn uses_index(&self) -> bool {
        self.indexes.is_used
    }

    /// Refuses restrictions of vectors that have an index.
    pub(super) fn refuse_indexed_vectors(&self) -> Result<(), QueryError> {
        let is_refused = |restriction: &ColumnRestriction| {
            let column = &restriction.column;
            matches!(column.ty, CqlType::Vector { .. })
                && self.table.indexes().iter().any(|index| index.column == column.name)
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

    /// Refuses, unless filtering is allowed, a SELECT whose conditions neither a single plain index nor the
    /// storage-attached ones together answer.
    pub(super) fn check_index_filters(&self) -> Result<(), QueryError> {
        let (table, indexes) = (&*self.table, self.table_indexes());
        // The order by similarity is a condition, and an index of vectors is storage-attached.
        let (mut conditions, mut is_indexed, mut is_attached) = (usize::from(self.nearest().is_some()), true, true);
        let mut count = |count: usize, indexed: Option<IndexedRestriction>, attached: bool| {
            conditions += count;
            is_indexed &= indexed.is_some();
            is_attached &= attached;
        };
        let columns = self.partition.restricted().filter(|_| self.indexes.filters_partition).chain(&self.others);
        columns.for_each(|known| count(known.condition_count(), known.indexed(indexes), known.is_attached(table)));
        if self.indexes.filters_clustering {
            let clustering = self.clustering.all().iter();
            clustering
                .for_each(|known| count(known.condition_count(), known.indexed(indexes), known.is_attached(table)));
        }
        let is_identity = conditions == 0 && self.clustering.is_empty();
        if is_identity || (conditions == 1 && is_indexed) || (conditions > 0 && is_attached) {
            return Ok(());
        }
        Err(QueryError::invalid(NEEDS_FILTERING))
    }

    /// The restrictions by which indexes find the rows, if that is better than reading the partitions and slices: those
    /// to one value first, because the rows of a range have to be sorted.
    pub(super) fn useful_indexed(&self) -> Vec<IndexedRestriction> {
        let indexes = self.table_indexes();
        // Rows of a given partition that are given by their clustering are read at once.
        let gives_rows = !self.is_key_range && !self.clustering.is_empty() && !self.filters_clustering;
        if !self.indexes.is_used || gives_rows {
            return Vec::new();
        }
        let of_others = self.others.iter().filter_map(|restriction| restriction.indexed(indexes));
        let of_clustering = self.clustering.all().iter().filter_map(|restriction| restriction.indexed(indexes));
        let of_partition = self.partition.restricted().filter(|_| self.filters_partition);
        let of_partition = of_partition.filter_map(|restriction| restriction.indexed(indexes));
        let mut indexed: Vec<_> = of_others.chain(of_clustering).chain(of_partition).collect();
        indexed.sort_by_key(IndexedRestriction::is_range);
        indexed
    }

    /// The restrictions by which indexes find the rows, those to one value first.
    pub fn indexed(&self) -> &[IndexedRestriction] {
        &self.indexed
    }
}
