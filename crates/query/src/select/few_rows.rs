//! A fast path for a SELECT of a few rows of one partition in cached SSTables: it is answered without a cursor.
//!
//! As for one row ([`super::one_row`]), everything else is left to [`SelectPlan::execute`].

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use engine::{Edge, PartitionSlice};
use model::{Clusterings, Table, ValuePlaces, push_component};
use types::murmur3;

use super::SelectPlan;
use super::execute::bind_limit;
use super::one_row::{self, serialized_key};
use super::read::Position;
use super::writer::RowContext;
use crate::execution::Execution;
use crate::restrictions::{ROW_VALUES_MAX, RowValues};

/// More rows than this are read with a cursor, because the cost of opening one is then negligible.
const ROWS_MAX: u64 = 128;
/// If only some columns are selected, and the table has more columns than this, a cursor is better: it does not copy
/// the others.
const COLUMNS_PASSED_MAX: usize = 16;

/// Buffers that keep their memory from statement to statement.
#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    start: Vec<u8>,
    end: Vec<u8>,
    places: ValuePlaces,
}

/// The memory that a thread may keep in a buffer for the next statement, bytes.
const SCRATCH_BYTES_MAX: usize = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether rows of the table can be looked up when these regular columns are selected.
pub(super) fn applies(table: &Table, regulars: Option<&[usize]>) -> bool {
    one_row::applies(table) && (regulars.is_none() || table.regulars().columns.len() <= COLUMNS_PASSED_MAX)
}

impl SelectPlan {
    /// Appends the cells of the selected rows, if they are few and are found without waiting. Returns how many rows
    /// that are. Returns `None`, and appends nothing, if [`SelectPlan::execute`] must answer.
    pub fn find_rows(&self, execution: &Execution<'_>, cells: &mut Vec<u8>) -> Option<usize> {
        self.few_rows.as_ref()?;
        if execution.processor.engine().is_in_memory(&self.table) || !self.is_looked_up(execution) {
            return None;
        }
        let rows_max = self.rows_max(execution)?;
        let before = cells.len();
        SCRATCH.with_borrow_mut(|scratch| {
            let found = self.find_slice(rows_max, execution, scratch, cells);
            for buffer in [&mut scratch.key, &mut scratch.start, &mut scratch.end] {
                buffer.clear();
                buffer.shrink_to(SCRATCH_BYTES_MAX);
            }
            if found.is_none() {
                cells.truncate(before);
            }
            found
        })
    }

    /// The most rows to look up, and whether there may be further rows that are not selected. `None` if there may be
    /// too many.
    fn rows_max(&self, execution: &Execution<'_>) -> Option<(u64, bool)> {
        let limit = |term| bind_limit(term, execution).ok();
        let limit = limit(self.limit.as_ref())?.min(limit(self.per_partition_limit.as_ref())?);
        let page = execution.options.page_size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0);
        // A full page must say where the next one starts, which only a cursor does.
        let short_of = page.filter(|page| limit > *page).unwrap_or(u64::MAX).min(ROWS_MAX + 1);
        if limit < short_of {
            return Some((limit, true));
        }
        (!self.is_long.load(Ordering::Relaxed)).then_some((short_of - 1, false))
    }

    /// Records whether an answer was long.
    pub(super) fn note_length(&self, rows: usize, has_more: bool) {
        let is_long = has_more || rows as u64 > ROWS_MAX;
        // All threads read this flag, so it is written only when it changes.
        if self.is_long.load(Ordering::Relaxed) != is_long {
            self.is_long.store(is_long, Ordering::Relaxed);
        }
    }

    fn find_slice(
        &self,
        (rows_max, is_limit): (u64, bool),
        execution: &Execution<'_>,
        scratch: &mut Scratch,
        cells: &mut Vec<u8>,
    ) -> Option<usize> {
        let (target, plain) = (self.few_rows.as_ref()?, self.plain.as_ref()?);
        let Scratch { key, start, end, places } = scratch;
        let (table, now_seconds, options) = (&*self.table, execution.now_seconds, execution.processor.options());
        let values = RowValues::bind(&target.leading, execution)?;
        let (of_key, of_clustering) = (values.key(), values.clustering());
        let of_key = &of_key[..table.partition_key().len()];
        let key = serialized_key(of_key, key)?;
        for prefix in [&mut *start, &mut *end] {
            let leading = &of_clustering[..target.leading.clustering_count()];
            leading.iter().for_each(|value| push_component(*value, prefix));
        }
        let weights = target.bind(execution, start, end)?;
        if table.comparator().compare_positions(start, weights.0, end, weights.1).is_ge() {
            return None;
        }
        let slice = PartitionSlice {
            token: murmur3::token(key),
            key,
            start: Edge { prefix: start, weight: weights.0 },
            end: Edge { prefix: end, weight: weights.1 },
            reversed: self.ordering.is_reversed,
            // More borders than this cause a warning or an error.
            borders_max: options.tombstone_warn_threshold.min(options.tombstone_failure_threshold),
        };
        let cells_max = cells.len().saturating_add(self.page_max_bytes(execution));
        let context = RowContext { table, now_seconds, cells_max };
        let (mut count, mut is_answered) = (0, true);
        let is_found = execution.processor.engine().find_rows(table, &slice, &mut |row| {
            is_answered = count < rows_max && (row.row.is_permanent(table) || row.row.is_live(table, now_seconds));
            if is_answered {
                let mut clustering = [None; ROW_VALUES_MAX];
                clustering.iter_mut().zip(Clusterings(row.clustering)).for_each(|(place, value)| *place = value);
                let clustering = &clustering[..table.clustering().len()];
                let position = Position { key: of_key, clustering, statics: &[] };
                is_answered = plain.write(context, &position, Some(row.row), places, cells) == 0;
                is_answered &= cells.len() <= cells_max;
                count += 1;
            }
            is_answered && !(is_limit && count == rows_max)
        });
        (is_found && is_answered).then_some(count as usize)
    }
}
