//! Which partitions and rows a modification is about.

use std::sync::Arc;

use cql::ast::WhereClause;
use model::{ClusteringBound, Clusterings, PartitionKey, Slices, Table};

use crate::QueryError;
use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::restrictions::{self, Reading, Restrictions, RowTarget};

/// What a modification is about.
#[derive(Debug)]
pub(super) enum Target {
    /// One partition, and one row or no particular one: every column given is given by `=`.
    Row(RowTarget),
    /// Any other WHERE clause.
    Restricted(Box<Restrictions>),
}

/// The rows of each partition that a modification is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// None in particular: the partition.
    Partition,
    /// These.
    Clusterings(Vec<Vec<u8>>),
    /// All in these slices.
    Slices(Slices),
}

impl Rows {
    /// How many rows or ranges there are; one where it is the partition.
    pub fn count(&self) -> usize {
        match self {
            Rows::Partition => 1,
            Rows::Clusterings(clusterings) => clusterings.len(),
            Rows::Slices(slices) => slices.as_slice().len(),
        }
    }

    /// Whether no row can be meant: of an IN without values, or of a slice that ends before it begins.
    pub fn is_none(&self) -> bool {
        match self {
            Rows::Partition => false,
            Rows::Clusterings(clusterings) => clusterings.is_empty(),
            Rows::Slices(slices) => slices.as_slice().is_empty(),
        }
    }
}

impl Target {
    /// Checks and prepares a WHERE clause.
    pub fn prepare(
        clause: &WhereClause,
        table: &Arc<Table>,
        reading: Reading,
        preparing: &mut Preparing<'_>,
    ) -> Result<Target, QueryError> {
        let restrictions = Restrictions::prepare(clause, table, reading, preparing)?;
        Ok(match restrictions.target() {
            restrictions::Target::Row(row) => Target::Row(row),
            _ => Target::Restricted(Box::new(restrictions)),
        })
    }

    /// Whether clustering columns are given.
    pub fn has_clustering(&self) -> bool {
        match self {
            Target::Row(row) => row.has_clustering(),
            Target::Restricted(restrictions) => restrictions.has_clustering(),
        }
    }

    /// Whether every column of the primary key is given by `=` or IN.
    pub fn gives_rows(&self, table: &Table) -> bool {
        match self {
            Target::Row(row) => row.gives_row(table),
            Target::Restricted(restrictions) => restrictions.gives_rows(),
        }
    }

    /// Whether a clustering column is given by IN.
    pub fn has_clustering_in(&self) -> bool {
        match self {
            Target::Row(_) => false,
            Target::Restricted(restrictions) => restrictions.has_clustering_in(),
        }
    }

    /// The partitions.
    pub fn keys(&self, execution: &Execution<'_>) -> Result<Vec<PartitionKey>, QueryError> {
        match self {
            Target::Row(row) => Ok(vec![row.key(execution)?]),
            Target::Restricted(restrictions) => restrictions.partition_keys(execution),
        }
    }

    /// The rows.
    pub fn rows(&self, execution: &Execution<'_>) -> Result<Rows, QueryError> {
        match self {
            Target::Row(row) if !row.has_clustering() => Ok(Rows::Partition),
            Target::Row(row) => Ok(Rows::Clusterings(vec![row.clustering(execution)?])),
            Target::Restricted(restrictions) if !restrictions.has_clustering() => Ok(Rows::Partition),
            Target::Restricted(restrictions) if restrictions.gives_rows() => {
                restrictions.clusterings(execution).map(Rows::Clusterings)
            }
            Target::Restricted(restrictions) => {
                let slices = restrictions.slices(execution)?;
                refuse_null_bounds(&slices)?;
                Ok(Rows::Slices(slices))
            }
        }
    }
}

/// A range that ends at null means everything to a SELECT; deleting so is refused, as Cassandra's replicas do.
fn refuse_null_bounds(slices: &Slices) -> Result<(), QueryError> {
    let has_null = |bound: &ClusteringBound| Clusterings(&bound.prefix).any(|component| component.is_none());
    if slices.as_slice().iter().any(|slice| has_null(&slice.start) || has_null(&slice.end)) {
        return Err(QueryError::invalid("Invalid null value for a bound of a range deletion"));
    }
    Ok(())
}
