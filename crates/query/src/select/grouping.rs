//! GROUP BY.

use std::sync::Arc;

use cql::ast::{Select, Selectable};
use model::{Clusterings, Column, ColumnKind, Table};

use crate::QueryError;
use crate::execution::Execution;
use crate::names::find_column;
use crate::preparing::Preparing;
use crate::restrictions::Restrictions;
use crate::row_view::RowView;
use crate::selection::{Input, RowParts, Selector, prepare_grouping};

/// Decides which rows of a partition belong to one group: those with the same first clustering columns. A function may
/// be applied to the last of these columns.
#[derive(Debug)]
pub(super) struct Grouping {
    prefix: usize,
    function: Option<Selector>,
}

const OUT_OF_ORDER: &str =
    "Group by currently only support groups of columns following their declared order in the PRIMARY KEY";

impl Grouping {
    /// Prepares a GROUP BY, if there is one.
    pub fn prepare(
        select: &Select,
        table: &Arc<Table>,
        restrictions: &Restrictions,
        preparing: &mut Preparing<'_>,
    ) -> Result<Option<Grouping>, QueryError> {
        if select.group_by.is_empty() {
            return Ok(None);
        }
        let mut primary_key = table.partition_key().iter().chain(table.clustering());
        let (mut prefix, mut function) = (0, None);
        for selectable in &select.group_by {
            let column = match selectable {
                Selectable::Column(name) => {
                    let column = find_column(table, name)?;
                    if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
                        return Err(QueryError::invalid(format!(
                            "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                            column.name
                        )));
                    }
                    if function.is_some() {
                        let message = "Functions are only supported on the last element of the GROUP BY clause";
                        return Err(QueryError::invalid(message));
                    }
                    column
                }
                _ => {
                    let (selector, columns) = prepare_grouping(selectable, table, preparing)?;
                    function = Some(selector);
                    function_column(&columns)?
                }
            };
            loop {
                let next = primary_key.next().ok_or_else(|| QueryError::invalid(OUT_OF_ORDER))?;
                if next.kind == ColumnKind::Clustering {
                    prefix += 1;
                }
                if next.id == column.id {
                    break;
                }
                if !restrictions.is_equal(next) {
                    return Err(QueryError::invalid(OUT_OF_ORDER));
                }
            }
        }
        if primary_key.next().is_some_and(|column| column.kind == ColumnKind::PartitionKey) {
            return Err(QueryError::invalid("Group by is not supported on only a part of the partition key"));
        }
        if prefix > 0 && select.is_distinct {
            let message = "Grouping on clustering columns is not allowed for SELECT DISTINCT queries";
            return Err(QueryError::invalid(message));
        }
        Ok(Some(Grouping { prefix, function }))
    }

    /// Refuses a function for which the rows of a group may not be adjacent. Cassandra does so at execution.
    pub fn check_function(&self) -> Result<(), QueryError> {
        self.function.as_ref().map_or(Ok(()), Selector::check_monotonic)
    }

    /// Writes the values that all rows of a group, in one partition, share to `out`.
    pub fn key(
        &self,
        clustering: &[u8],
        row: &RowView<'_>,
        execution: &Execution<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        out.clear();
        let copied = self.prefix - usize::from(self.function.is_some());
        for component in Clusterings(clustering).take(copied) {
            model::push_component(component, out);
        }
        if let Some(function) = &self.function {
            let parts = RowParts::default();
            let value = function.evaluate(&Input::Row { row, parts: &parts, execution })?;
            model::push_component(value.as_deref(), out);
        }
        Ok(())
    }
}

/// The only clustering column in a function of GROUP BY.
fn function_column(columns: &[Arc<Column>]) -> Result<Arc<Column>, QueryError> {
    match columns {
        [] => Err(QueryError::invalid("GROUP BY functions must have one clustering column name as parameter")),
        [column] if column.kind == ColumnKind::Clustering => Ok(column.clone()),
        [column] => Err(QueryError::invalid(format!(
            "Group by functions are only supported on clustering columns, got {}",
            column.name
        ))),
        _ => {
            let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
            Err(QueryError::invalid(format!(
                "GROUP BY functions accept only one clustering column as parameter, got: {}",
                names.join(",")
            )))
        }
    }
}
