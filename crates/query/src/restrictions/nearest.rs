//! The order by similarity (`ORDER BY … ANN OF`), which Cassandra treats as one more restriction of the WHERE clause.

use std::sync::Arc;

use model::{Column, ColumnKind};
use types::CqlType;

use super::column::{ColumnRestriction, Kind};
use super::{NEEDS_FILTERING, Restrictions};
use crate::{QueryError, vector_index};

const ALL_INDEXED: &str = "ANN ordering by vector requires all restricted column(s) to be indexed";

impl Restrictions {
    /// Adds the column by whose vectors the rows are ordered.
    pub(super) fn add_nearest(&mut self, column: Arc<Column>) -> Result<(), QueryError> {
        let restricted = self.others.iter_mut().find(|restriction| restriction.column.id == column.id);
        if let Some(restriction) = restricted {
            return Err(of_the_same_column(restriction));
        }
        self.nearest = Some(column);
        Ok(())
    }

    /// The column by whose vectors the rows are ordered.
    pub(super) fn nearest(&self) -> Option<&Arc<Column>> {
        self.nearest.as_ref()
    }

    /// Whether an index orders the rows.
    pub(super) fn has_nearest_index(&self) -> bool {
        self.nearest.as_ref().is_some_and(|column| vector_index::find(&self.table, &column.name).is_some())
    }

    /// Whether the rows are ordered by a regular column.
    pub(super) fn is_nearest_regular(&self) -> bool {
        self.nearest.as_ref().is_some_and(|column| column.kind == ColumnKind::Regular)
    }

    /// Refuses an order by similarity without an index, and one of rows that are filtered without an index.
    pub(super) fn check_nearest(&self, column: &Column, allow_filtering: bool) -> Result<(), QueryError> {
        let refuse = |message: &str| Err(QueryError::invalid(message));
        if !matches!(&column.ty, CqlType::Vector { element, .. } if **element == CqlType::Float) {
            return refuse("ANN ordering is only supported on float vector indexes");
        }
        let is_indexed = |name: &str| self.table.indexes().iter().any(|index| *index.column == *name);
        if vector_index::find(&self.table, &column.name).is_none() {
            // As in Cassandra a plain index counts as an index here, but it does not order rows.
            if is_indexed(&column.name) && !allow_filtering {
                return refuse(NEEDS_FILTERING);
            }
            return refuse("ANN ordering by vector requires the column to be indexed");
        }
        if self.partition.needs_filtering() {
            return refuse(ALL_INDEXED);
        }
        if self.others.iter().any(|restriction| !is_indexed(&restriction.column.name)) {
            return refuse(ALL_INDEXED);
        }
        let mut clustering = self.clustering.all().iter().flat_map(|restriction| &restriction.columns);
        let are_read_at_once = self.partition.missing_columns().is_empty() && !self.clustering.needs_filtering();
        if clustering.any(|column| !is_indexed(&column.name)) && !are_read_at_once {
            return refuse(ALL_INDEXED);
        }
        Ok(())
    }
}

/// The error for an order by a column that the WHERE clause restricts too.
fn of_the_same_column(restriction: &ColumnRestriction) -> QueryError {
    let name = &restriction.column.name;
    QueryError::invalid(match restriction.kind {
        Kind::Equal(_) => format!("{name} cannot be restricted by more than one relation if it includes an Equal"),
        Kind::In(_) => format!("{name} cannot be restricted by more than one relation if it includes a IN"),
        Kind::Slice { .. } => {
            format!("Column \"{name}\" cannot be restricted by both an equality and an inequality relation")
        }
        Kind::Like(_) => format!("{name} cannot be restricted by more than one relation if it includes a LIKE"),
        Kind::Contains(_) => {
            format!("Collection column {name} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality")
        }
    })
}
