//! ORDER BY … ANN OF: the rows whose vectors are most similar to a given one.
//!
//! The best of the rows that were read and that match the WHERE clause are kept in a heap of LIMIT rows. So filters are
//! applied before the limit, and the memory does not depend on the number of rows. Which rows are read is decided
//! elsewhere: all of them, or those that an index gives.

use std::cmp;
use std::collections::BinaryHeap;
use std::sync::Arc;

use cql::ast::{self, Direction};
use model::{Column, Index, Table};
use types::Similarity;
use types::similarity::read_floats;

use super::SelectPlan;
use crate::execution::Execution;
use crate::names::{column_spec, find_column};
use crate::preparing::Preparing;
use crate::row_view::{RowView, Source};
use crate::terms::{Bound, Term, prepare as prepare_term};
use crate::{Consistency, QueryError, vector_index};

/// The greatest LIMIT of an order by similarity.
const LIMIT_MAX: u64 = 1000;

/// A LIMIT that Cassandra takes as none.
const NO_LIMIT: u64 = i32::MAX as u64;

/// How far a score of an index may be from that of the row, relative to it.
const INEXACTNESS: f32 = 1e-5;

/// An order by similarity in a SELECT.
#[derive(Debug)]
pub(super) struct Nearest {
    column: Arc<Column>,
    source: Source,
    index: Index,
    similarity: Similarity,
    /// The vector to which those of the rows are compared.
    term: Term,
}

/// The ANN OF clauses of an ORDER BY.
pub(super) struct Clauses {
    found: Vec<(Arc<Column>, Term)>,
    error: Option<&'static str>,
}

impl Clauses {
    /// Looks up the columns of an ORDER BY and prepares the vectors in it.
    pub fn prepare(
        clauses: &[ast::Ordering],
        table: &Arc<Table>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Clauses, QueryError> {
        let mut found = Vec::new();
        for clause in clauses {
            let column = find_column(table, &clause.column)?;
            if let Some(term) = &clause.ann_of {
                found.push((column.clone(), prepare_term(term, &column_spec(table, &column), preparing)?));
            }
        }
        let error = match found.as_slice() {
            [] => None,
            [_, _, ..] => Some("Cannot specify more than one ANN ordering"),
            [_] if clauses.len() > 1 => Some("ANN ordering does not support any other ordering"),
            [_] if clauses[0].direction == Direction::Desc => Some("Descending ANN ordering is not supported"),
            [_] => None,
        };
        Ok(Clauses { found, error })
    }

    /// The only column by whose vectors the rows are ordered.
    pub fn column(&self) -> Result<Option<Arc<Column>>, QueryError> {
        match self.error {
            Some(error) => Err(QueryError::invalid(error)),
            None => Ok(self.found.first().map(|(column, _)| column.clone())),
        }
    }

    /// The order, if there is one. Its column was checked with the restrictions.
    pub fn into_order(self, table: &Table) -> Option<Box<Nearest>> {
        let (column, term) = self.found.into_iter().next()?;
        let index = vector_index::find(table, &column.name)?.clone();
        let similarity = index.part.similarity()?;
        let source = Source::of(table, &column);
        Some(Box::new(Nearest { column, source, index, similarity, term }))
    }
}

impl Nearest {
    /// The index that orders the rows.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Checks the level, the limits and the page size of an execution, in the order of Cassandra's checks. Returns the
    /// level at which the rows are read.
    pub fn check(
        &self,
        (limit, per_partition): (u64, u64),
        plan: &SelectPlan,
        execution: &Execution<'_>,
    ) -> Result<Consistency, QueryError> {
        let refuse = |message: &str| Err(QueryError::invalid(message));
        if plan.is_grouping() {
            return refuse("Top-K queries can not be run with aggregation");
        }
        let asked = execution.options.consistency;
        if asked.is_serial() {
            return refuse(&format!(
                "Top-K queries can only be run with consistency level ONE/LOCAL_ONE. Consistency level {asked} was used."
            ));
        }
        let level = match asked {
            Consistency::One | Consistency::LocalOne | Consistency::NodeLocal => asked,
            Consistency::LocalQuorum => Consistency::LocalOne,
            _ => Consistency::One,
        };
        if level != asked {
            execution.warn(format!(
                "Top-K queries can only be run with consistency level ONE / LOCAL_ONE / NODE_LOCAL. Consistency level \
                 {asked} was requested. Downgrading the consistency level to {level}."
            ));
        }
        if limit >= NO_LIMIT {
            return refuse(
                "Top-K queries must have a limit specified and the limit must be less than the query page size",
            );
        }
        // DISTINCT is a limit of one row per partition.
        if per_partition < NO_LIMIT || plan.is_distinct {
            return refuse("Top-K queries do not support per-partition limits");
        }
        if let Some(size) = execution.options.page_size.filter(|size| *size > 0)
            && u64::try_from(size).is_ok_and(|size| size < limit)
        {
            execution.warn(format!(
                "Top-K queries do not support paging and the page size is set to {size}, which is less than LIMIT \
                 {limit}. The page size has been set to {limit} to match the LIMIT."
            ));
        }
        Ok(level)
    }

    /// An empty heap for the rows of an execution.
    pub fn rows(&self, limit: u64, execution: &Execution<'_>) -> Result<NearestRows<'_>, QueryError> {
        let name = &self.column.name;
        let bytes = match self.term.bind(execution)? {
            Bound::Bytes(bytes) => bytes,
            Bound::Null => return Err(QueryError::invalid(format!("Unsupported null value for column {name}"))),
            Bound::Unset => return Err(QueryError::invalid(format!("Unsupported unset value for column {name}"))),
        };
        if limit > LIMIT_MAX {
            return Err(QueryError::invalid(format!(
                "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than {LIMIT_MAX}. LIMIT was \
                 {limit}"
            )));
        }
        let mut wanted = Vec::new();
        read_floats(&bytes, &mut wanted);
        vector_index::check(self.similarity, &wanted)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(NearestRows { order: self, wanted, limit, vector: Vec::new(), kept: BinaryHeap::new(), taken: 0, bytes: 0 })
    }
}

/// The rows of the answer so far: those with the most similar vectors.
pub(super) struct NearestRows<'n> {
    order: &'n Nearest,
    wanted: Vec<f32>,
    limit: usize,
    /// A buffer for the vector of a row.
    vector: Vec<f32>,
    kept: BinaryHeap<RankedRow>,
    /// How many rows were kept at some time.
    taken: u64,
    /// The bytes of the kept rows' cells.
    bytes: usize,
}

/// A row of the answer. The greatest one is left out first.
struct RankedRow {
    score: f32,
    /// The number of rows that were kept before.
    taken: u64,
    cells: Vec<u8>,
}

impl Ord for RankedRow {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        other.score.total_cmp(&self.score).then(self.taken.cmp(&other.taken))
    }
}

impl PartialOrd for RankedRow {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RankedRow {}

impl NearestRows<'_> {
    /// How similar the row's vector is, if the row belongs to the best so far.
    pub fn score(&mut self, row: &RowView<'_>) -> Option<f32> {
        let Nearest { column, source, similarity, .. } = self.order;
        let value = row.value(*source, &column.ty)?;
        self.vector.clear();
        read_floats(&value, &mut self.vector);
        if self.vector.len() != self.wanted.len() || similarity.check(&self.vector).is_err() {
            return None;
        }
        let score = similarity.score(&self.vector, &self.wanted);
        let is_better = |worst: &RankedRow| score.total_cmp(&worst.score).is_gt();
        (!self.is_full() || self.kept.peek().is_some_and(is_better)).then_some(score)
    }

    fn is_full(&self) -> bool {
        self.kept.len() >= self.limit
    }

    /// Whether the answer has all its rows, and no row with a lower score than this would replace one of them.
    pub fn is_settled(&self, score: f32) -> bool {
        let is_worse = |worst: &RankedRow| score < worst.score - INEXACTNESS * (1.0 + worst.score.abs());
        self.is_full() && self.kept.peek().is_none_or(is_worse)
    }

    /// The vector to which those of the rows are compared.
    pub fn wanted(&self) -> &[f32] {
        &self.wanted
    }

    /// How many rows are asked for.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Keeps a row with this score, and leaves out the one with the least if there are too many.
    pub fn keep(&mut self, score: f32, cells: Vec<u8>, execution: &Execution<'_>) -> Result<(), QueryError> {
        execution.charge(size_of::<RankedRow>() + cells.len())?;
        self.bytes += cells.len();
        self.kept.push(RankedRow { score, taken: self.taken, cells });
        self.taken += 1;
        if self.kept.len() > self.limit
            && let Some(RankedRow { cells, .. }) = self.kept.pop()
        {
            self.bytes -= cells.len();
            execution.release(size_of::<RankedRow>() + cells.len());
        }
        Ok(())
    }

    /// The bytes of the kept rows' cells, and their number.
    pub fn size(&self) -> (usize, usize) {
        (self.bytes, self.kept.len())
    }

    /// Appends the cells of the rows, the most similar first.
    pub fn write(self, cells: &mut Vec<u8>) {
        cells.reserve_exact(self.bytes);
        self.kept.into_sorted_vec().iter().for_each(|row| cells.extend_from_slice(&row.cells));
    }
}
