//! One partition and at most one row, named by `=` alone.

use std::borrow::Cow;
use std::sync::Arc;

use cql::ast::{self, Operator, Relation, WhereClause};
use model::{Column, PartitionKey, Table, push_component};

use crate::QueryError;
use crate::execution::Execution;
use crate::names::column_spec;
use crate::preparing::Preparing;
use crate::restrictions::serialize_key;
use crate::terms::{Bound, Term, prepare as prepare_term};

/// The longest clustering, bytes, as Cassandra counts it.
const CLUSTERING_BYTES_MAX: usize = 65_535;

/// One partition and at most one row.
#[derive(Debug)]
pub(crate) struct RowTarget {
    key: Vec<KeyPart>,
    clustering: Vec<KeyPart>,
}

/// The value of a column of a key.
#[derive(Debug)]
pub(crate) struct KeyPart {
    name: Arc<str>,
    term: Term,
}

impl RowTarget {
    /// `None` if the clause does not give the key, and the clustering or nothing of it, by `=`. The clause was checked.
    pub fn prepare(
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

    /// A partition, and rows of it by the first of their clustering columns.
    pub fn of_parts(key: Vec<KeyPart>, clustering: Vec<KeyPart>) -> RowTarget {
        RowTarget { key, clustering }
    }

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
        let length = clustering.len().saturating_sub(4 * self.clustering.len());
        if length > CLUSTERING_BYTES_MAX {
            let message = format!("Key length of {length} is longer than maximum of {CLUSTERING_BYTES_MAX}");
            return Err(QueryError::invalid(message));
        }
        Ok(clustering)
    }
}

/// A row is looked up without a cursor where its key and its clustering have no more columns than this each.
pub(crate) const ROW_VALUES_MAX: usize = 4;

/// The values of the columns of a row's key and clustering, in order.
pub(crate) struct RowValues<'v> {
    key: Values<'v>,
    clustering: Values<'v>,
}

type Values<'v> = [Cow<'v, [u8]>; ROW_VALUES_MAX];

impl<'v> RowValues<'v> {
    /// `None` if a value is missing or not valid, or there are too many.
    pub fn bind(target: &'v RowTarget, execution: &'v Execution<'_>) -> Option<Self> {
        let values = |parts: &'v [KeyPart]| {
            let mut values: Values<'v> = [const { Cow::Borrowed(&[]) }; ROW_VALUES_MAX];
            for (place, part) in parts.iter().enumerate() {
                let Ok(Bound::Bytes(value)) = part.term.bind(execution) else { return None };
                *values.get_mut(place)? = value;
            }
            Some(values)
        };
        Some(RowValues { key: values(&target.key)?, clustering: values(&target.clustering)? })
    }

    /// Of the key; those behind its last column are empty.
    pub fn key(&self) -> [&[u8]; ROW_VALUES_MAX] {
        self.key.each_ref().map(|value| &**value)
    }

    /// Of the clustering; those behind its last column are empty.
    pub fn clustering(&self) -> [Option<&[u8]>; ROW_VALUES_MAX] {
        self.clustering.each_ref().map(|value| Some(&**value))
    }
}

impl KeyPart {
    pub fn prepare(
        column: &Column,
        value: &ast::Term,
        table: &Table,
        preparing: &mut Preparing<'_>,
    ) -> Result<KeyPart, QueryError> {
        let term = prepare_term(value, &column_spec(table, column), preparing)?;
        Ok(KeyPart { name: column.name.clone(), term })
    }

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
            parts.push(KeyPart::prepare(column, value, table, preparing)?);
        }
    }
    Ok(parts)
}
