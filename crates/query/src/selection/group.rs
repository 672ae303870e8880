//! A group of rows that becomes one row of the result.

use super::{Input, RowParts, Selection, Selector};
use crate::QueryError;
use crate::budget::steps_of_bytes;
use crate::execution::Execution;
use crate::functions::Accumulator;
use crate::row_view::RowView;

/// Accumulates the rows of a group. It is reused for the next group.
pub(crate) struct Group<'s> {
    selection: &'s Selection,
    aggregates: Vec<Accumulator>,
    /// The values of the leaves in the group's first row.
    leaves: Vec<Option<Vec<u8>>>,
    rows: u64,
    /// The charged memory of the group, bytes.
    charged_bytes: usize,
}

impl<'s> Group<'s> {
    pub(super) fn new(selection: &'s Selection) -> Self {
        let mut group = Group { selection, aggregates: Vec::new(), leaves: Vec::new(), rows: 0, charged_bytes: 0 };
        group.clear();
        group
    }

    /// Forgets all rows, and releases their memory.
    pub fn start_over(&mut self, execution: &Execution<'_>) {
        execution.release(std::mem::take(&mut self.charged_bytes));
        self.clear();
    }

    fn clear(&mut self) {
        self.aggregates = self.selection.aggregates.iter().filter_map(|call| call.function.accumulator()).collect();
        self.leaves = vec![None; self.selection.leaf_count];
        self.rows = 0;
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row.
    pub fn add(&mut self, row: &RowView<'_>, execution: &Execution<'_>) -> Result<(), QueryError> {
        let parts = RowParts::default();
        let input = Input::Row { row, parts: &parts, execution };
        if self.rows == 0 {
            let mut kept = vec![false; self.leaves.len()];
            for selector in &self.selection.selectors {
                self.charged_bytes += keep_leaves(selector, &input, &mut self.leaves, &mut kept)?;
            }
        }
        self.rows += 1;
        for (call, accumulator) in self.selection.aggregates.iter().zip(&mut self.aggregates) {
            let values = call.arguments.iter().map(|argument| argument.evaluate(&input));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let size_bytes = values.iter().flatten().map(|value| value.len()).sum();
            execution.work(steps_of_bytes(size_bytes) + call.function.steps_of_digits(size_bytes))?;
            let before = accumulator.held_bytes();
            accumulator.add(&values)?;
            let after = accumulator.held_bytes();
            if after > before {
                self.charged_bytes += after - before;
                execution.charge(after - before)?;
            }
        }
        Ok(())
    }

    /// Appends the group's row of the result to `cells`.
    pub fn write_row(&self, execution: &Execution<'_>, cells: &mut Vec<u8>) -> Result<(), QueryError> {
        let parts = RowParts::default();
        let input = Input::Group { leaves: &self.leaves, parts: &parts, aggregates: &self.aggregates, execution };
        self.selection.write_row(&input, cells)
    }
}

/// Keeps the values of a selector's leaves, which several selectors may share. Returns how many bytes were charged for
/// them.
fn keep_leaves(
    selector: &Selector,
    input: &Input<'_, '_>,
    leaves: &mut [Option<Vec<u8>>],
    kept: &mut [bool],
) -> Result<usize, QueryError> {
    match selector {
        Selector::Column { leaf, .. } | Selector::Writetime { leaf, .. } => {
            if kept.get_mut(*leaf).is_none_or(|kept| std::mem::replace(kept, true)) {
                return Ok(0);
            }
            let value = selector.evaluate(input)?;
            let length = value.as_ref().map_or(0, |value| value.len());
            input.execution().charge(length)?;
            if let Some(slot) = leaves.get_mut(*leaf) {
                *slot = value.map(|value| value.into_owned());
            }
            Ok(length)
        }
        Selector::Term { .. } | Selector::Aggregate { .. } => Ok(0),
        Selector::Function { .. }
        | Selector::Elements { .. }
        | Selector::Field { .. }
        | Selector::Element { .. }
        | Selector::Slice { .. }
        | Selector::Masked { .. }
        | Selector::Map { .. } => selector
            .inner()
            .into_iter()
            .try_fold(0, |charged, selector| Ok(charged + keep_leaves(selector, input, leaves, kept)?)),
    }
}
