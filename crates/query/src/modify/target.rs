//! The partitions and rows that a modification changes.

use std::sync::Arc;

use cql::ast::WhereClause;
use model::{ClusteringBound, Clusterings, PartitionKey, Slices, Table};

use crate::QueryError;
use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::restrictions::{self, Reading, Restrictions, RowTarget};

/// The target of a modification.
#[derive(Debug)]
pub(super) enum ModificationTarget {
    /// One partition, and one row of it or the partition as a whole. All given columns are restricted by `=`.
    Row(RowTarget),
    /// Any other WHERE clause.
    Restricted(Box<Restrictions>),
}

/// The rows of each partition that a modification changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// The partition as a whole.
    Partition,
    /// The rows with these clusterings.
    Clusterings(Vec<Vec<u8>>),
    /// All rows in these slices.
    Slices(Slices),
}

impl Rows {
    /// The number of rows or ranges; one for the partition as a whole.
    pub fn count(&self) -> usize {
        match self {
            Rows::Partition => 1,
            Rows::Clusterings(clusterings) => clusterings.len(),
            Rows::Slices(slices) => slices.as_slice().len(),
        }
    }

    /// Whether the target contains no rows, because of an IN without values or a slice that ends before it begins.
    pub fn is_none(&self) -> bool {
        match self {
            Rows::Partition => false,
            Rows::Clusterings(clusterings) => clusterings.is_empty(),
            Rows::Slices(slices) => slices.as_slice().is_empty(),
        }
    }
}

impl ModificationTarget {
    /// Checks and prepares a WHERE clause.
    pub fn prepare(
        clause: &WhereClause,
        table: &Arc<Table>,
        reading: Reading,
        preparing: &mut Preparing<'_>,
    ) -> Result<ModificationTarget, QueryError> {
        let restrictions = Restrictions::prepare(clause, table, reading, preparing)?;
        Ok(match restrictions.target() {
            restrictions::Target::Row(row) => ModificationTarget::Row(row),
            _ => ModificationTarget::Restricted(Box::new(restrictions)),
        })
    }

    /// Whether clustering columns are restricted.
    pub fn has_clustering(&self) -> bool {
        match self {
            ModificationTarget::Row(row) => row.has_clustering(),
            ModificationTarget::Restricted(restrictions) => restrictions.has_clustering(),
        }
    }

    /// Whether every column of the primary key is restricted by `=` or IN.
    pub fn gives_rows(&self, table: &Table) -> bool {
        match self {
            ModificationTarget::Row(row) => row.gives_row(table),
            ModificationTarget::Restricted(restrictions) => restrictions.gives_rows(),
        }
    }

    /// Whether a partition key column is restricted by IN.
    pub fn has_partition_in(&self) -> bool {
        match self {
            ModificationTarget::Row(_) => false,
            ModificationTarget::Restricted(restrictions) => restrictions.has_partition_in(),
        }
    }

    /// Whether a clustering column is restricted by IN.
    pub fn has_clustering_in(&self) -> bool {
        match self {
            ModificationTarget::Row(_) => false,
            ModificationTarget::Restricted(restrictions) => restrictions.has_clustering_in(),
        }
    }

    /// The keys of the partitions.
    pub fn keys(&self, execution: &Execution<'_>) -> Result<Vec<PartitionKey>, QueryError> {
        match self {
            ModificationTarget::Row(row) => Ok(vec![row.key(execution)?]),
            ModificationTarget::Restricted(restrictions) => restrictions.partition_keys(execution),
        }
    }

    /// The rows in each partition.
    pub fn rows(&self, execution: &Execution<'_>) -> Result<Rows, QueryError> {
        match self {
            ModificationTarget::Row(row) if !row.has_clustering() => Ok(Rows::Partition),
            ModificationTarget::Row(row) => Ok(Rows::Clusterings(vec![row.clustering(execution)?])),
            ModificationTarget::Restricted(restrictions) if !restrictions.has_clustering() => Ok(Rows::Partition),
            ModificationTarget::Restricted(restrictions) if restrictions.gives_rows() => {
                restrictions.clusterings(execution).map(Rows::Clusterings)
            }
            ModificationTarget::Restricted(restrictions) => {
                let slices = restrictions.slices(execution)?;
                refuse_null_bounds(&slices)?;
                Ok(Rows::Slices(slices))
            }
        }
    }
}

/// For a SELECT, a range that ends at null contains all rows. Deleting such a range is refused, as by Cassandra's
/// replicas.
fn refuse_null_bounds(slices: &Slices) -> Result<(), QueryError> {
    let has_null = |bound: &ClusteringBound| Clusterings(&bound.prefix).any(|component| component.is_none());
    if slices.as_slice().iter().any(|slice| has_null(&slice.start) || has_null(&slice.end)) {
        return Err(QueryError::invalid("Invalid null value for a bound of a range deletion"));
    }
    Ok(())
}
