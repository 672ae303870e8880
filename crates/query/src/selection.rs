//! The result row that a SELECT makes of each row or group of rows.

mod argument;
mod group;
mod masked;
mod parts;
mod prepare;
mod selector;
mod shown;
mod writetime;

use std::sync::Arc;

use cql::ast::{self, SelectClause, Selectable};
use model::{Column, Table, TableForm};
use types::CqlType;

use crate::budget::steps_of_expressions;
use crate::execution::Execution;
use crate::functions::{Function, refuse_long_numbers};
use crate::names::column_spec;
use crate::preparing::Preparing;
use crate::row_view::Source;
use crate::{ColumnSpec, QueryError, ResultColumns};

pub(crate) use group::Group;
pub(crate) use masked::{Mask, MaskedSelection};
pub(crate) use parts::{Parts, RowParts};
pub(crate) use selector::{Input, Selector};

/// The selectors of a SELECT and the columns of its result.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    selectors: Vec<Selector>,
    /// The columns that the selectors return, before JSON combines them to one.
    columns: Vec<ColumnSpec>,
    metadata: Arc<ResultColumns>,
    is_json: bool,
    is_plain: bool,
    is_wildcard: bool,
    aggregates: Vec<AggregateCall>,
    /// Whether a part of the selection is known before any row is read.
    has_constants: bool,
    /// The number of expressions in the selection.
    expression_count: usize,
    leaf_count: usize,
    used: Vec<Arc<Column>>,
}

/// A call of an aggregate function.
#[derive(Clone, Debug)]
pub(crate) struct AggregateCall {
    pub function: Arc<Function>,
    pub arguments: Vec<Selector>,
}

impl Selection {
    /// The number of its expressions.
    pub fn selector_count(&self) -> usize {
        self.selectors.len()
    }

    /// Prepares the clause after SELECT. The columns in `also`, which ORDER BY needs, are selected after the others and
    /// not returned.
    pub fn prepare(
        clause: &SelectClause,
        table: &Arc<Table>,
        is_json: bool,
        preparing: &mut Preparing<'_>,
    ) -> Result<Selection, QueryError> {
        let mut builder = prepare::Builder::new(table);
        let (mut selectors, mut columns) = (Vec::new(), Vec::new());
        match clause {
            SelectClause::Wildcard => {
                for column in table.named_columns() {
                    columns.push(column_spec(table, &column));
                    selectors.push(builder.column(&column));
                }
            }
            SelectClause::Selectors(clauses) => {
                for clause in clauses {
                    let selector = preparing.expression(|preparing| {
                        prepare::check_names(&clause.selectable, table, preparing)?;
                        builder.prepare(&clause.selectable, None, preparing)
                    })?;
                    let name = match &clause.alias {
                        Some(alias) => alias.as_str().to_owned(),
                        None => selector.name.clone(),
                    };
                    columns.push(ColumnSpec {
                        keyspace: table.keyspace.clone(),
                        table: table.name.clone(),
                        name: name.into(),
                        ty: selector.selector.ty(),
                    });
                    selectors.push(selector.selector);
                }
            }
        }
        let arguments = builder.aggregates.iter().flat_map(|call| &call.arguments);
        let has_constants = selectors.iter().chain(arguments.clone()).any(Selector::has_constants);
        let expression_count = selectors.iter().chain(arguments).map(Selector::count).sum();
        let metadata = match is_json {
            true => vec![ColumnSpec {
                keyspace: table.keyspace.clone(),
                table: table.name.clone(),
                name: "[json]".into(),
                ty: CqlType::Text,
            }],
            false => columns.clone(),
        };
        Ok(Selection {
            is_wildcard: matches!(clause, SelectClause::Wildcard),
            is_plain: !is_json && selectors.iter().all(|selector| matches!(selector, Selector::Column { .. })),
            selectors,
            columns,
            metadata: Arc::new(ResultColumns::new(metadata)),
            is_json,
            aggregates: builder.aggregates,
            has_constants,
            expression_count,
            leaf_count: builder.leaf_count,
            used: builder.used,
        })
    }

    /// The number of expressions in the selection.
    pub fn expression_count(&self) -> usize {
        self.expression_count
    }

    /// The columns of the result.
    pub fn metadata(&self) -> &Arc<ResultColumns> {
        &self.metadata
    }

    /// Whether a group of rows makes one row of the result.
    pub fn is_aggregate(&self) -> bool {
        !self.aggregates.is_empty()
    }

    /// Whether the result consists of unchanged columns.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether the selection is `*`.
    pub fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// The selectors, in order of the result.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Columns that the selectors read.
    pub fn used_columns(&self) -> &[Arc<Column>] {
        &self.used
    }

    /// Computes everything that is known before any row is read. As in Cassandra, an error there fails the SELECT, even
    /// if it reads no rows.
    pub fn check_constants(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        if !self.has_constants {
            return Ok(());
        }
        execution.work(steps_of_expressions(self.expression_count))?;
        let arguments = self.aggregates.iter().flat_map(|call| &call.arguments);
        self.selectors.iter().chain(arguments).try_for_each(|selector| selector.check_constants(execution))
    }

    /// An accumulator for groups of rows.
    pub fn group(&self) -> Group<'_> {
        Group::new(self)
    }

    /// Appends the result row of `input` to `cells`. Fails before `cells` becomes larger than a statement may hold.
    pub fn write_row(&self, input: &Input<'_, '_>, cells: &mut Vec<u8>) -> Result<(), QueryError> {
        if self.is_json {
            return self.write_json(input, cells);
        }
        let mut room_bytes = input.execution().room_bytes();
        for selector in &self.selectors {
            let value = selector.evaluate(input)?;
            let length = cells.len() + value.as_ref().map_or(0, |value| value.len());
            if length > room_bytes {
                input.execution().check_room(length)?;
                room_bytes = input.execution().room_bytes();
            }
            types::collection::write_part(value.as_deref(), cells);
        }
        Ok(())
    }

    fn write_json(&self, input: &Input<'_, '_>, cells: &mut Vec<u8>) -> Result<(), QueryError> {
        let mut text = String::from("{");
        for (place, (selector, column)) in self.selectors.iter().zip(&self.columns).enumerate() {
            if place > 0 {
                text.push_str(", ");
            }
            text.push_str(&json_name(&column.name));
            text.push_str(": ");
            match selector.evaluate(input)? {
                Some(value) => {
                    refuse_long_numbers(&column.ty, &value)?;
                    input.execution().check_room(cells.len() + text.len() + value.len())?;
                    text.push_str(&column.ty.to_json(&value));
                }
                None => text.push_str("null"),
            }
        }
        text.push('}');
        types::collection::write_part(Some(text.as_bytes()), cells);
        Ok(())
    }
}

/// The name of a column as a JSON key. As in CQL, a name with capitals has its own double quotes.
fn json_name(name: &str) -> String {
    let quoted = if name.to_lowercase() == *name { name.to_owned() } else { format!("\"{name}\"") };
    serde_json::Value::String(quoted).to_string()
}

/// Whether a selection reads static columns, and no others except the partition key.
pub(crate) fn selects_only_statics(clause: &SelectClause, table: &Table) -> bool {
    let SelectClause::Selectors(selectors) = clause else { return false };
    // Of such a table all columns that can be selected are static.
    if table.form() == TableForm::StaticCompact {
        return false;
    }
    let selects = |is_wanted: &dyn Fn(Source) -> bool| {
        selectors
            .iter()
            .any(|selector| prepare::selects(&selector.selectable, table, is_wanted, &|_| Ok(())).unwrap_or_default())
    };
    selects(&|source| matches!(source, Source::Static(_)))
        && !selects(&|source| !matches!(source, Source::Static(_) | Source::PartitionKey(_)))
}

/// Looks up columns and functions of a selection without preparing it. Like Cassandra, it looks up only those that must
/// be examined before the restrictions, to find out whether only static columns are selected.
pub(crate) fn check_names(
    clause: &SelectClause,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<(), QueryError> {
    match clause {
        SelectClause::Selectors(selectors) if table.has_statics() && table.form() != TableForm::StaticCompact => {
            preparing.expression(|preparing| check_names_for_statics(selectors, table, preparing))
        }
        _ => Ok(()),
    }
}

fn check_names_for_statics(
    selectors: &[ast::Selector],
    table: &Table,
    preparing: &Preparing<'_>,
) -> Result<(), QueryError> {
    let look_up = |selectable: &Selectable| prepare::check_names(selectable, table, preparing);
    // The first pass looks for a static column. If there is one, the second pass looks for a column that is neither
    // static nor part of the partition key.
    let look_for = |is_wanted: &dyn Fn(Source) -> bool| -> Result<bool, QueryError> {
        for selector in selectors {
            look_up(&selector.selectable)?;
            if prepare::selects(&selector.selectable, table, is_wanted, &look_up)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if look_for(&|source| matches!(source, Source::Static(_)))? {
        look_for(&|source| !matches!(source, Source::Static(_) | Source::PartitionKey(_)))?;
    }
    Ok(())
}

/// Prepares a function in GROUP BY: its call on one clustering column.
pub(crate) fn prepare_grouping(
    selectable: &Selectable,
    table: &Arc<Table>,
    preparing: &mut Preparing<'_>,
) -> Result<(Selector, Vec<Arc<Column>>), QueryError> {
    let mut builder = prepare::Builder::new(table);
    let selector = preparing.expression(|preparing| builder.prepare(selectable, None, preparing))?.selector;
    if let Some(call) = builder.aggregates.first() {
        let message = format!(
            "Aggregate functions are not supported within the GROUP BY clause, got: {}",
            call.function.qualified_name()
        );
        return Err(QueryError::invalid(message));
    }
    Ok((selector, builder.used))
}
