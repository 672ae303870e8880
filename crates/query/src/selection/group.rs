//! A group of rows that makes one row of the result.

use super::{Input, Selection, Selector};
use crate::QueryError;
use crate::execution::Execution;
use crate::functions::Accumulator;
use crate::row_view::RowView;

/// Accumulates the rows of a group; starts over for the next one.
pub(crate) struct Group<'s> {
    selection: &'s Selection,
    aggregates: Vec<Accumulator>,
    /// The values of the leaves in the group's first row.
    leaves: Vec<Option<Vec<u8>>>,
    rows: u64,
}

impl<'s> Group<'s> {
    pub(super) fn new(selection: &'s Selection) -> Self {
        let mut group = Group { selection, aggregates: Vec::new(), leaves: Vec::new(), rows: 0 };
        group.start_over();
        group
    }

    /// Forgets all rows.
    pub fn start_over(&mut self) {
        self.aggregates = self.selection.aggregates.iter().filter_map(|call| call.function.accumulator()).collect();
        self.leaves = vec![None; self.selection.leaf_count];
        self.rows = 0;
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Takes in a row.
    pub fn add(&mut self, row: &RowView<'_>, execution: &Execution<'_>) -> Result<(), QueryError> {
        let input = Input::Row { row, execution };
        if self.rows == 0 {
            for selector in &self.selection.selectors {
                keep_leaves(selector, &input, &mut self.leaves)?;
            }
        }
        self.rows += 1;
        for (call, accumulator) in self.selection.aggregates.iter().zip(&mut self.aggregates) {
            let values = call.arguments.iter().map(|argument| argument.evaluate(&input));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            accumulator.add(&values)?;
        }
        Ok(())
    }

    /// Appends the group's row of the result to `cells`.
    pub fn write_row(&self, execution: &Execution<'_>, cells: &mut Vec<u8>) -> Result<(), QueryError> {
        let input = Input::Group { leaves: &self.leaves, aggregates: &self.aggregates, execution };
        self.selection.write_row(&input, cells)
    }
}

fn keep_leaves(selector: &Selector, input: &Input<'_, '_>, leaves: &mut [Option<Vec<u8>>]) -> Result<(), QueryError> {
    match selector {
        Selector::Column { leaf, .. } | Selector::Writetime { leaf, .. } => {
            let value = selector.evaluate(input)?.map(|value| value.into_owned());
            if let Some(slot) = leaves.get_mut(*leaf) {
                *slot = value;
            }
            Ok(())
        }
        Selector::Term { .. } | Selector::Aggregate { .. } => Ok(()),
        Selector::Function { arguments: inner, .. } | Selector::Elements { elements: inner, .. } => {
            inner.iter().try_for_each(|selector| keep_leaves(selector, input, leaves))
        }
        Selector::Field { receiver, .. } | Selector::Element { receiver, .. } | Selector::Slice { receiver, .. } => {
            keep_leaves(receiver, input, leaves)
        }
        Selector::Map { entries, .. } => entries.iter().try_for_each(|(key, value)| {
            keep_leaves(key, input, leaves)?;
            keep_leaves(value, input, leaves)
        }),
    }
}
