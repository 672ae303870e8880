//! Which partitions and rows a modification is about.

use std::sync::Arc;

use cql::ast::{Operator, Relation, WhereClause};
use model::{ClusteringBound, Clusterings, Column, PartitionKey, Slices, Table, push_component};

use crate::QueryError;
use crate::execution::Execution;
use crate::names::column_spec;
use crate::preparing::Preparing;
use crate::restrictions::{Reading, Restrictions, serialize_key};
use crate::terms::{Bound, Term, prepare as prepare_term};

/// The longest clustering, bytes, as Cassandra counts it.
const CLUSTERING_BYTES_MAX: usize = 65_535;

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

/// One partition and at most one row.
#[derive(Debug)]
pub(super) struct RowTarget {
    key: Vec<KeyPart>,
    clustering: Vec<KeyPart>,
}

#[derive(Debug)]
struct KeyPart {
    name: Arc<str>,
    term: Term,
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
        let row = RowTarget::prepare(clause, table, preparing)?;
        Ok(row.map_or_else(|| Target::Restricted(Box::new(restrictions)), Target::Row))
    }

    /// Whether clustering columns are given.
    pub fn has_clustering(&self) -> bool {
        match self {
            Target::Row(row) => !row.clustering.is_empty(),
            Target::Restricted(restrictions) => restrictions.has_clustering(),
        }
    }

    /// Whether every column of the primary key is given by `=` or IN.
    pub fn gives_rows(&self, table: &Table) -> bool {
        match self {
            Target::Row(row) => row.clustering.len() == table.clustering().len(),
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
            Target::Row(row) if row.clustering.is_empty() => Ok(Rows::Partition),
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

impl RowTarget {
    /// `None` if the clause does not give the key, and the clustering or nothing of it, by `=`. The clause was checked.
    fn prepare(
        clause: &WhereClause,
        table: &Table,
        preparing: &mut Preparing<'_>,
    ) -> Result<Option<RowTarget>, QueryError> {
        let is_equality =
            |relation: &Relation| matches!(relation, Relation::SingleColumn { operator: Operator::Eq, .. });
        let with_clustering = table.partition_key().len() + table.clustering().len();
        let whole = [table.partition_key().len(), with_clustering].contains(&clause.relations.len());
        if !whole || !clause.relations.iter().all(is_equality) {
            return Ok(None);
        }
        let key = key_parts(table.partition_key(), clause, table, preparing)?;
        let clustering = match clause.relations.len() == with_clustering {
            true => key_parts(table.clustering(), clause, table, preparing)?,
            false => Vec::new(),
        };
        Ok((key.len() + clustering.len() == clause.relations.len()).then_some(RowTarget { key, clustering }))
    }

    /// The row whose key and clustering have these values, in order.
    pub fn of_values(table: &Table, values: impl Fn(&Column) -> Term) -> RowTarget {
        let part = |column: &Arc<Column>| KeyPart { name: column.name.clone(), term: values(column) };
        RowTarget {
            key: table.partition_key().iter().map(part).collect(),
            clustering: table.clustering().iter().map(part).collect(),
        }
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
        let length = clustering.len().saturating_sub(4 * self.clustering.len());
        if length > CLUSTERING_BYTES_MAX {
            let message = format!("Key length of {length} is longer than maximum of {CLUSTERING_BYTES_MAX}");
            return Err(QueryError::invalid(message));
        }
        Ok(clustering)
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

/// The parts of a key in its order, as far as the clause gives them.
fn key_parts(
    columns: &[Arc<Column>],
    clause: &WhereClause,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<Vec<KeyPart>, QueryError> {
    let mut parts = Vec::with_capacity(columns.len());
    for column in columns {
        let given = clause.relations.iter().find_map(|relation| match relation {
            Relation::SingleColumn { column: name, value, .. } if name.as_str() == &*column.name => Some(value),
            _ => None,
        });
        if let Some(value) = given {
            let term = prepare_term(value, &column_spec(table, column), preparing)?;
            parts.push(KeyPart { name: column.name.clone(), term });
        }
    }
    Ok(parts)
}
