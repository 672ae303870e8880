//! `MASKED WITH` of columns (dynamic data masking).

use std::fmt;
use std::sync::Arc;

use cql::ast::{self, ColumnDefinition, Identifier};
use model::{ColumnMask, MaskArgument, Table};
use types::CqlType;

use crate::execution::Execution;
use crate::functions::{self, Function, is_mask};
use crate::preparing::Preparing;
use crate::terms::{Assignable, Bound, Typed, prepare as prepare_term};
use crate::{ColumnSpec, QueryError};

const DISABLED: &str = "Cannot mask columns because dynamic data masking is not enabled. You can enable it with the \
                        dynamic_data_masking_enabled property on cassandra.yaml";

/// Refuses masks where the configuration does not allow any.
pub(super) fn check_enabled<'m>(
    mut masks: impl Iterator<Item = &'m ast::ColumnMask>,
    execution: &Execution<'_>,
) -> Result<(), QueryError> {
    match execution.processor.options().dynamic_data_masking_enabled || masks.next().is_none() {
        true => Ok(()),
        false => Err(QueryError::invalid(DISABLED)),
    }
}

/// The masks of columns as written.
pub(super) fn written(columns: &[ColumnDefinition]) -> impl Iterator<Item = &ast::ColumnMask> {
    columns.iter().filter_map(|column| column.mask.as_ref())
}

/// The mask of a column of this type in a table of `keyspace`, as it is stored.
pub(super) fn resolve(
    mask: &ast::ColumnMask,
    column: &Identifier,
    ty: &CqlType,
    keyspace: &str,
    execution: &Execution<'_>,
) -> Result<ColumnMask, QueryError> {
    let processor = execution.processor;
    let mut preparing = Preparing::new(processor.schema(), Some(keyspace), processor.virtual_tables(), &[]);
    preparing.expression(|preparing| {
        let function = find_function(mask, column, ty, preparing)?;
        let resolved = |(place, term)| {
            let receiver = ColumnSpec {
                keyspace: keyspace.into(),
                table: "--dummy--".into(),
                name: "(dummy)".into(),
                ty: function.arguments.get(place + 1).cloned().unwrap_or(CqlType::Blob),
            };
            argument(term, receiver, preparing, execution)
        };
        let arguments = mask.arguments.iter().enumerate().map(resolved).collect::<Result<_, _>>()?;
        Ok(ColumnMask { function: function.name.as_str().into(), arguments })
    })
}

/// The function that a mask names. Its result must have the type of the column.
fn find_function(
    mask: &ast::ColumnMask,
    column: &Identifier,
    ty: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<Arc<Function>, QueryError> {
    let refuse = |message: String| Err(QueryError::invalid(message));
    let (value, shown) = (Typed(ty), Shown(mask));
    let written = mask.arguments.iter().map(|argument| argument as &dyn Assignable);
    let arguments: Vec<&dyn Assignable> = std::iter::once(&value as &dyn Assignable).chain(written).collect();
    let Some(function) = functions::resolve(&mask.function, &arguments, Some(ty), preparing)? else {
        return refuse(format!(
            "Unable to find masking function for {}, no declared function matches the signature {shown}",
            column.as_str()
        ));
    };
    if function.is_aggregate() {
        return refuse(format!("Aggregate function {shown} cannot be used for masking table columns"));
    }
    if !is_mask(&function) {
        return refuse(format!("Not-masking function {shown} cannot be used for masking table columns"));
    }
    if function.returns != *ty {
        let (returns, column) = (&function.returns, column.as_str());
        return refuse(format!(
            "Masking function {shown} return type is {returns}. This is different to the type of the masked column \
             {column} of type {ty}. Masking functions can only be attached to table columns if they return the same \
             data type as the masked column."
        ));
    }
    Ok(function)
}

fn argument(
    term: &ast::Term,
    receiver: ColumnSpec,
    preparing: &mut Preparing<'_>,
    execution: &Execution<'_>,
) -> Result<MaskArgument, QueryError> {
    let prepared = prepare_term(term, &receiver, preparing)?;
    if prepared.contains_marker() {
        return Err(QueryError::invalid("Bind variables cannot be arguments of masking functions"));
    }
    let value = match prepared.bind(execution)? {
        Bound::Bytes(bytes) => Some(bytes.into_owned()),
        Bound::Null | Bound::Unset => None,
    };
    Ok(MaskArgument { ty: receiver.ty, value })
}

/// `ALTER TABLE ... ALTER column MASKED WITH ...`, or `DROP MASKED`.
pub(super) fn alter(
    table: &Table,
    column: &Identifier,
    mask: Option<&ast::ColumnMask>,
    if_column_exists: bool,
    execution: &Execution<'_>,
) -> Result<Table, QueryError> {
    let name = column.as_str();
    let Some(known) = table.stored_column(name) else {
        return match if_column_exists {
            true => Ok(table.clone()),
            false => {
                let table = &table.name;
                Err(QueryError::invalid(format!("Column with name '{name}' doesn't exist on table '{table}'")))
            }
        };
    };
    let mask = mask.map(|mask| resolve(mask, column, &known.ty, &table.keyspace, execution)).transpose()?;
    Ok(table.to_builder().mask(name, mask).build())
}

/// A mask as messages show it.
struct Shown<'m>(&'m ast::ColumnMask);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.0.arguments.iter().map(ToString::to_string).collect();
        write!(f, "{}({})", self.0.function, arguments.join(", "))
    }
}
