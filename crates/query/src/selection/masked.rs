//! Masks of columns in a selection (dynamic data masking).
//!
//! A selection exists in two forms: with the values of the columns, and with masks in their place. The second one is
//! for readers without the permission UNMASK. As in Cassandra a mask hides the value from everything that is computed
//! of it: functions, aggregates and parts of collections have the masked value as their input.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Column, ColumnMask, Table};

use super::{Selection, Selector};
use crate::QueryError;
use crate::budget::steps_of_bytes;
use crate::execution::Execution;
use crate::functions::{self, Function};
use crate::preparing::Preparing;
use crate::row_view::Source;

/// A mask that is ready to be applied to values.
#[derive(Debug)]
pub(crate) struct Mask {
    function: Function,
    /// The arguments after the value.
    arguments: Vec<Option<Vec<u8>>>,
}

impl Mask {
    fn prepare(mask: &ColumnMask, column: &Column, preparing: &Preparing<'_>) -> Result<Mask, QueryError> {
        let function = functions::of_column_mask(mask, &column.ty, preparing)?;
        Ok(Mask { function, arguments: mask.arguments.iter().map(|argument| argument.value.clone()).collect() })
    }

    /// Fails if the mask cannot be applied to any value. Cassandra finds that out when the column is selected.
    fn check(&self) -> Result<(), QueryError> {
        let checked = self.function.checked_argument().and_then(|place| self.arguments.get(place.checked_sub(1)?));
        checked.into_iter().flatten().try_for_each(|value| self.function.check_argument(value))
    }

    /// The masked value that a reader sees; `None` is null.
    pub fn apply(&self, value: Option<&[u8]>, execution: &Execution<'_>) -> Result<Option<Vec<u8>>, QueryError> {
        execution.work(steps_of_bytes(value.map_or(0, <[u8]>::len)))?;
        let constants = self.arguments.iter().map(Option::as_deref);
        let arguments: Vec<Option<&[u8]>> = std::iter::once(value).chain(constants).collect();
        self.function.call(execution, &arguments)
    }
}

/// The form of a selection with masks.
#[derive(Debug)]
pub(crate) struct MaskedSelection {
    pub selection: Selection,
    /// The error of a mask that cannot be applied. The column then cannot be selected at all.
    pub failure: Option<QueryError>,
}

impl Selection {
    /// The form with masks; `None` if no selected column has one.
    pub fn masked(&self, table: &Table, preparing: &Preparing<'_>) -> Result<Option<MaskedSelection>, QueryError> {
        let (mut masks, mut failure) = (HashMap::new(), None);
        for column in &self.used {
            if let Some(mask) = table.masks().get(&column.name) {
                let mask = Mask::prepare(mask, column, preparing)?;
                failure = failure.or_else(|| mask.check().err());
                masks.insert(Source::of(table, column), Arc::new(mask));
            }
        }
        if masks.is_empty() {
            return Ok(None);
        }
        let mut selection = self.clone();
        let arguments = selection.aggregates.iter_mut().flat_map(|call| &mut call.arguments);
        selection.selectors.iter_mut().chain(arguments).for_each(|selector| selector.mask(&masks));
        selection.is_plain &= !selection.selectors.iter().any(|s| matches!(s, Selector::Masked { .. }));
        Ok(Some(MaskedSelection { selection, failure }))
    }
}

impl Selector {
    /// Puts masks in place of the columns that have one.
    fn mask(&mut self, masks: &HashMap<Source, Arc<Mask>>) {
        match self {
            Selector::Column { source, .. } => {
                if let Some(mask) = masks.get(source) {
                    *self = Selector::Masked { column: Box::new(self.clone()), mask: mask.clone() };
                }
            }
            other => other.inner_mut().into_iter().for_each(|inner| inner.mask(masks)),
        }
    }
}
