//! A fast path for a SELECT of one row, which is the most frequent statement, or of a few rows of one partition: it is
//! answered without partitions, slices and pages. The engine decides whether the rows are looked up or merged.
//!
//! This duplicates part of the general path. It is justified because a prepared read of one row costs less than half as
//! much here. Everything else is left to [`SelectPlan::execute`]: a value that is null or invalid, a row that is
//! deleted or expires, anything that must wait for a device, and a large answer.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use engine::{Edge, PartitionSlice, RowLocation, RowSelection, Rows, Turn};
use model::{
    BoxCursor, Clusterings, RowRef, Table, TableForm, Unfiltered, UnfilteredCursor, ValuePlaces, push_component,
};
use types::murmur3;

use super::SelectPlan;
use super::execute::bind_limit;
use super::read::Position;
use super::writer::{PlainWriter, RowContext};
use crate::budget::{FREE_ANSWER_BYTES, STEPS_PER_CHECK};
use crate::consistency;
use crate::execution::Execution;
use crate::restrictions::{ROW_VALUES_MAX, RowValues, SliceTarget, check_key, push_key};

/// More rows than this are read with a cursor, because the cost of opening one is then negligible.
const ROWS_MAX: u64 = 128;
/// If only some columns are selected, and the table has more columns than this, a cursor is better: it does not copy
/// the others.
const COLUMNS_PASSED_MAX: usize = 16;

/// The rows to look up.
#[derive(Debug)]
pub(super) struct LookedUp {
    /// The rows.
    pub target: SliceTarget,
    /// Whether it is one row, which the statement reads without a limit.
    pub is_row: bool,
}

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

/// Whether rows of the table can be looked up.
pub(super) fn applies(table: &Table) -> bool {
    let columns_max = table.partition_key().len().max(table.clustering().len());
    !table.has_statics() && table.form() != TableForm::StaticCompact && columns_max <= ROW_VALUES_MAX
}

/// Whether several rows of the table can be looked up when these regular columns are selected.
pub(super) fn applies_to_rows(table: &Table, regulars: Option<&[usize]>) -> bool {
    applies(table) && (regulars.is_none() || table.regulars().columns.len() <= COLUMNS_PASSED_MAX)
}

/// Writes the rows that are found.
struct Answer<'a> {
    plain: &'a PlainWriter,
    context: RowContext<'a>,
    key: &'a [&'a [u8]],
    /// How many rows may be found.
    rows_max: u64,
    /// Whether there may be more rows, which are not wanted.
    is_limit: bool,
    places: &'a mut ValuePlaces,
    cells: &'a mut Vec<u8>,
    /// The length of `cells` before the first row, bytes.
    cells_before: usize,
    count: u64,
    is_answered: bool,
}

impl Answer<'_> {
    /// Takes a row with these values of its clustering. Returns whether more rows are wanted.
    #[inline(always)]
    fn take(&mut self, row: RowRef<'_>, clustering: &[Option<&[u8]>]) -> bool {
        let RowContext { table, now_seconds, cells_max, .. } = self.context;
        // Beyond this an answer needs memory, which `execute` takes before it copies the row.
        self.is_answered = self.count < self.rows_max
            && row.row.as_bytes().len() <= FREE_ANSWER_BYTES
            && (row.row.is_permanent(table) || row.row.is_live(table, now_seconds));
        if self.is_answered {
            let position = Position { key: self.key, clustering, statics: &[] };
            let dead = self.plain.write(self.context, &position, Some(row.row), self.places, self.cells);
            self.is_answered = dead == 0 && self.cells.len() <= cells_max;
            self.count += 1;
        }
        self.is_answered && !(self.is_limit && self.count == self.rows_max)
    }

    /// Takes a row, whose clustering has its values.
    fn take_next(&mut self, row: RowRef<'_>) -> bool {
        let mut clustering = [None; ROW_VALUES_MAX];
        clustering.iter_mut().zip(Clusterings(row.clustering)).for_each(|(place, value)| *place = value);
        self.take(row, &clustering[..self.context.table.clustering().len()])
    }

    /// Takes the rows of a cursor except those that were taken before. `None` if the cursor fails, or returns anything
    /// but rows, which [`SelectPlan::execute`] counts.
    fn take_all(&mut self, mut cursor: BoxCursor<'static>) -> Option<()> {
        self.cells.truncate(self.cells_before);
        (self.count, self.is_answered) = (0, true);
        if self.is_limit {
            cursor.expect_rows(usize::try_from(self.rows_max).unwrap_or(usize::MAX));
        }
        cursor.pause_after(STEPS_PER_CHECK as u32);
        while cursor.advance_partition().ok()? {
            if !cursor.partition().deletion.is_live() {
                return None;
            }
            while cursor.advance().ok()? {
                let Unfiltered::Row(row) = cursor.unfiltered() else { return None };
                if !self.take_next(row) {
                    return Some(());
                }
            }
        }
        Some(())
    }
}

impl SelectPlan {
    /// Appends the cells of the selected rows, if they are few and are found without waiting. Returns how many rows
    /// that are. Returns `None`, and appends nothing, if [`SelectPlan::execute`] must answer.
    pub fn find_rows(&self, execution: &Execution<'_>, cells: &mut Vec<u8>) -> Option<usize> {
        let looked_up = self.looked_up.as_ref()?;
        let (rows_max, is_limit) = match looked_up.is_row {
            // A page of one row must say where the next one starts.
            true if execution.options.page_size == Some(1) => return None,
            true => (1, false),
            false => self.rows_max(execution)?,
        };
        if !self.is_plain_read(execution) {
            return None;
        }
        let before = cells.len();
        SCRATCH.with_borrow_mut(|scratch| {
            let found = self.find(looked_up, (rows_max, is_limit), execution, scratch, cells);
            for buffer in [&mut scratch.key, &mut scratch.start, &mut scratch.end] {
                buffer.clear();
                if buffer.capacity() > SCRATCH_BYTES_MAX {
                    buffer.shrink_to(SCRATCH_BYTES_MAX);
                }
            }
            if found.is_none() {
                cells.truncate(before);
            }
            found
        })
    }

    /// Whether the client's options allow a look-up: no tracing, no page except the first, and a possible consistency
    /// level.
    fn is_plain_read(&self, execution: &Execution<'_>) -> bool {
        let options = execution.options;
        let (level, data_center) = (options.consistency, &execution.processor.options().node.data_center);
        execution.trace.is_none()
            && options.paging_state.is_none()
            && consistency::validate_read(level).is_ok()
            && consistency::check_read(level, execution.schema, &self.table.keyspace, data_center).is_ok()
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

    #[inline(always)]
    fn find(
        &self,
        LookedUp { target, is_row }: &LookedUp,
        (rows_max, is_limit): (u64, bool),
        execution: &Execution<'_>,
        Scratch { key, start, end, places }: &mut Scratch,
        cells: &mut Vec<u8>,
    ) -> Option<usize> {
        let (table, now_seconds, options) = (&*self.table, execution.now_seconds, execution.processor.options());
        let values = RowValues::bind(&target.leading, execution)?;
        let of_key = &values.key[..table.partition_key().len()];
        let leading = &values.clustering[..target.leading.clustering_count()];
        let key = serialized_key(of_key, key)?;
        leading.iter().for_each(|value| push_component(*value, start));
        let cells_max = cells.len().saturating_add(options.page_max_bytes.min(FREE_ANSWER_BYTES));
        let mut answer = Answer {
            plain: self.plain.as_ref()?,
            context: RowContext { table, now_seconds, cells_max, grown_by: None },
            key: of_key,
            rows_max,
            is_limit,
            places,
            cells_before: cells.len(),
            cells,
            count: 0,
            is_answered: true,
        };
        let (engine, token) = (execution.processor.engine(), murmur3::token(key));
        // The thread may serve connections; a read that has to wait is left to the general path.
        let turn = Turn::NON_BLOCKING;
        let rows = if *is_row {
            let row = RowSelection::Row(RowLocation { token, key, clustering: start }, None);
            engine.rows(execution.schema, &self.table, &row, now_seconds, turn, &mut |row| answer.take(row, leading))
        } else {
            end.extend_from_slice(start);
            let weights = target.bind(execution, start, end)?;
            if table.comparator().compare_positions(start, weights.0, end, weights.1).is_ge() {
                return None;
            }
            let slice = RowSelection::Slice(PartitionSlice {
                token,
                key,
                start: Edge { prefix: start, weight: weights.0 },
                end: Edge { prefix: end, weight: weights.1 },
                reversed: self.ordering.is_reversed,
                // More borders than this cause a warning or an error.
                borders_max: options.tombstone_warn_threshold.min(options.tombstone_failure_threshold),
            });
            engine.rows(execution.schema, &self.table, &slice, now_seconds, turn, &mut |row| answer.take_next(row))
        };
        match rows.ok()? {
            Rows::Taken => {}
            Rows::Cursor(mut cursor) => {
                self.regulars.iter().for_each(|regulars| cursor.expect_columns(regulars));
                answer.take_all(cursor)?;
            }
        }
        answer.is_answered.then_some(answer.count as usize)
    }
}

/// The serialized partition key of these values, if they are valid. It may be built in `key`.
#[inline(always)]
fn serialized_key<'k>(values: &[&'k [u8]], key: &'k mut Vec<u8>) -> Option<&'k [u8]> {
    check_key(values).ok()?;
    if let [only] = values {
        return Some(only);
    }
    key.clear();
    push_key(values, key);
    Some(key)
}
