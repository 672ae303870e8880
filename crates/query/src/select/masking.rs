//! The effects of column masks on a SELECT (dynamic data masking).

use std::sync::Arc;

use cql::ast::Select;
use model::Table;

use super::SelectPlan;
use crate::QueryError;
use crate::execution::Execution;
use crate::names::columns_in_hash_order;
use crate::preparing::Preparing;
use crate::selection::{MaskedSelection, Selection};

/// The part of a plan that only tables with masks have.
#[derive(Debug)]
pub(super) struct Masking {
    /// The selection of readers who see masks; `None` if no selected column has a mask.
    masked: Option<MaskedSelection>,
    /// The masked columns in the WHERE clause, by name.
    restricted: Vec<Arc<str>>,
}

impl Masking {
    /// `None` if the table has no masks.
    pub fn prepare(
        select: &Select,
        table: &Table,
        selection: &Selection,
        preparing: &Preparing<'_>,
    ) -> Result<Option<Box<Masking>>, QueryError> {
        if table.masks().is_empty() {
            return Ok(None);
        }
        let is_restricted = |name: &str| {
            let columns = select.where_clause.relations.iter().flat_map(|relation| relation.columns());
            let ordered = select.order_by.iter().filter(|order| order.ann_of.is_some()).map(|order| &order.column);
            columns.chain(ordered).any(|column| column.as_str() == name)
        };
        // The order of the names in Cassandra's messages.
        let masked = columns_in_hash_order(table).into_iter().filter(|column| table.masks().contains_key(&column.name));
        let restricted = masked.map(|column| column.name.clone()).filter(|name| is_restricted(name)).collect();
        Ok(Some(Box::new(Masking { masked: selection.masked(table, preparing)?, restricted })))
    }

    /// Whether the selection has two forms.
    pub fn changes_selection(&self) -> bool {
        self.masked.is_some()
    }
}

impl SelectPlan {
    /// The masked columns in the WHERE clause. They reveal values, so that they need a permission of their own.
    pub fn masked_restrictions(&self) -> &[Arc<str>] {
        self.masking.as_ref().map_or(&[], |masking| &masking.restricted)
    }

    /// The form of the selection for the client of this execution.
    pub(super) fn selection_for(&self, execution: &Execution<'_>) -> Result<&Selection, QueryError> {
        let Some(masked) = self.masking.as_ref().and_then(|masking| masking.masked.as_ref()) else {
            return Ok(&self.selection);
        };
        if let Some(failure) = &masked.failure {
            return Err(failure.clone());
        }
        let is_clear = execution.processor.sees_clear_values(execution.client, &self.table);
        Ok(if is_clear { &self.selection } else { &masked.selection })
    }
}
