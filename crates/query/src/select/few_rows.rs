//! A SELECT of a few rows of one partition that the cache of SSTables has: answered without a cursor.
//!
//! As with one row ([`super::one_row`]), what is not as simple as that is left to [`SelectPlan::execute`].

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

/// More rows are read with a cursor: what it costs to open one is nothing beside them.
const ROWS_MAX: u64 = 128;
/// Where fewer columns are wanted than there are, and there are more than so many, a cursor does not even copy the
/// others.
const COLUMNS_PASSED_MAX: usize = 16;

/// Buffers that keep their memory from statement to statement.
#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    start: Vec<u8>,
    end: Vec<u8>,
    places: ValuePlaces,
}

/// What a thread may keep of a buffer for the next statement, bytes.
const SCRATCH_BYTES_MAX: usize = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether rows of the table may be looked up, where these of its regular columns are wanted.
pub(super) fn applies(table: &Table, regulars: Option<&[usize]>) -> bool {
    one_row::applies(table) && (regulars.is_none() || table.regulars().columns.len() <= COLUMNS_PASSED_MAX)
}

impl SelectPlan {
    /// Appends the cells of the rows that the statement asks for, if they are few and found at once; how many rows that
    /// are. `None`, and nothing appended, where [`SelectPlan::execute`] has to see.
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

    /// How many rows may be found, and whether there may be more, which are not wanted. `None` if they may be too many.
    fn rows_max(&self, execution: &Execution<'_>) -> Option<(u64, bool)> {
        let limit = |term| bind_limit(term, execution).ok();
        let limit = limit(self.limit.as_ref())?.min(limit(self.per_partition_limit.as_ref())?);
        let page = execution.options.page_size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0);
        // A page that is full says where the next one starts.
        let short_of = page.filter(|page| limit > *page).unwrap_or(u64::MAX).min(ROWS_MAX + 1);
        if limit < short_of {
            return Some((limit, true));
        }
        (!self.is_long.load(Ordering::Relaxed)).then_some((short_of - 1, false))
    }

    /// Notes how long an answer was.
    pub(super) fn note_length(&self, rows: usize, has_more: bool) {
        let is_long = has_more || rows as u64 > ROWS_MAX;
        // All threads look at it: it is written only where it changes.
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
            // More of them are warned of, or fail.
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
