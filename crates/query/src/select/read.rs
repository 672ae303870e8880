//! Reading rows and building a page of them.
//!
//! A [`Page`] owns the cells of a page, its limits, its groups and the state from which the next page continues. It
//! takes each live row that the filter accepts once, in the order of the read, and ends at a limit, at the page's size
//! or where the request's time or memory ends. It does not know how segments are found (`execute.rs`), how an index
//! gives rows (`by_index.rs`), or how the answer is sent.

mod one_row;

use std::cmp;
use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::PartitionHint;
use model::{
    BoxCursor, Clusterings, ColumnData, KeyBound, KeyRange, PartitionKey, ReadError, ReadRange, Row, Slices, Table,
    TableForm, Unfiltered, UnfilteredCursor, ValuePlaces,
};

use types::Token;

use super::SelectPlan;
use super::execute::Segment;
use super::nearest::NearestRows;
use super::paging::PagingState;
use super::sizes::ReadSizes;
use super::tombstones::Scan;
use super::writer::PlainWriter;
use crate::QueryError;
use crate::budget::{STEPS_PER_CHECK, steps_of_bytes, steps_of_expressions};
use crate::execution::Execution;
use crate::restrictions::{Partitions, RowFilter};
use crate::row_view::{RowView, split_key};
use crate::selection::{Group, Input, RowParts, Selection};

/// The parts of a row that are not stored in its blob.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    pub key: &'a [&'a [u8]],
    pub clustering: &'a [Option<&'a [u8]>],
    pub statics: &'a [Option<ColumnData<'a>>],
}

/// The initial capacity for the cells of a page.
const CELLS_BYTES: Range<usize> = 256..64 << 10;

/// How to continue after a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    NextPartition,
    Stop,
}

/// The numbers of rows to return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub remaining: u64,
    pub per_partition: u64,
    /// The rest of `per_partition` in a partition that an earlier page began.
    pub remaining_in_partition: u64,
    pub page: u64,
}

/// A page that is being built.
pub(super) struct Page<'p> {
    plan: &'p SelectPlan,
    /// The plan's selection in the form for the client.
    selection: &'p Selection,
    plain: Option<&'p PlainWriter>,
    execution: &'p Execution<'p>,
    filter: RowFilter,
    limits: Limits,
    group: Option<Group<'p>>,
    group_key: Vec<u8>,
    /// The clustering of the last row in the group.
    group_clustering: Vec<u8>,
    /// The values by which the group is sorted: those of its first row.
    group_sort_values: Vec<Option<Vec<u8>>>,
    scratch: Scratch,
    /// The rows to be sorted, with the values by which they are sorted.
    sorted: Vec<SortedRow>,
    /// The rows with the most similar vectors, if they are ordered by similarity.
    nearest: Option<Box<NearestRows<'p>>>,
    /// The current range, and counts of what was read in it so far.
    range: ReadRange,
    limits_at_start: Limits,
    live_before: u64,
    tombstones: u64,
    token: Token,
    /// The cost of a row besides its bytes.
    steps_per_row: u64,
    sizes: ReadSizes<'p>,
    /// The bytes of the rows to be sorted.
    sorted_bytes: usize,
    /// How many candidates indexes gave.
    candidate_count: usize,
    pub cells: Vec<u8>,
    pub row_count: usize,
    pub live_rows: u64,
    /// Where the next page starts.
    pub state: Option<PagingState>,
}

struct SortedRow {
    values: Vec<Option<Vec<u8>>>,
    cells: Vec<u8>,
}

impl SortedRow {
    /// The approximate memory of the row, bytes.
    fn size_bytes(&self) -> usize {
        let values: usize =
            self.values.iter().map(|value| size_of_val(value) + value.as_ref().map_or(0, Vec::len)).sum();
        size_of::<SortedRow>() + values + self.cells.len()
    }
}

/// Buffers kept from row to row; they are empty in between.
#[derive(Default)]
struct Scratch {
    clustering: Vec<Option<&'static [u8]>>,
    parts: Vec<&'static [u8]>,
    regulars: Vec<Option<ColumnData<'static>>>,
    key: Vec<u8>,
    row: Vec<u8>,
    places: ValuePlaces,
}

/// An empty vector of another lifetime in the same memory.
fn recycle_values<'b>(mut values: Vec<Option<&[u8]>>) -> Vec<Option<&'b [u8]>> {
    values.clear();
    values.into_iter().map(|_| None).collect()
}

/// An empty vector of another lifetime in the same memory.
fn recycle_parts<'b>(mut parts: Vec<&[u8]>) -> Vec<&'b [u8]> {
    parts.clear();
    parts.into_iter().map(|_| &[][..]).collect()
}

/// An empty vector of another lifetime in the same memory.
fn recycle_data<'b>(mut data: Vec<Option<ColumnData<'_>>>) -> Vec<Option<ColumnData<'b>>> {
    data.clear();
    data.into_iter().map(|_| None).collect()
}

/// Writes a row's columns to `out`, by index in the table's current columns.
fn spread<'r>(table: &Table, is_static: bool, row: Option<Row<'r>>, out: &mut Vec<Option<ColumnData<'r>>>) {
    spread_first(table.columns(is_static).columns.len(), table, row, out);
}

/// As [`spread`], only the first `count` columns, or all if they are fewer.
fn spread_first<'r>(count: usize, table: &Table, row: Option<Row<'r>>, out: &mut Vec<Option<ColumnData<'r>>>) {
    out.clear();
    out.resize_with(count, || None);
    let columns = row.into_iter().flat_map(|row| row.columns(table));
    for (index, data) in columns.take_while(|(index, _)| *index < count) {
        out[index] = Some(data);
    }
}

/// The values by which a row is sorted.
fn sort_values(plan: &SelectPlan, view: &RowView<'_>) -> Vec<Option<Vec<u8>>> {
    let value = |place: usize| view.clustering.get(place).copied().flatten().map(<[u8]>::to_vec);
    plan.ordering.sort.iter().flatten().map(|column| value(column.position)).collect()
}

/// A live row of a partition, or only the partition's static row.
#[derive(Clone, Copy)]
struct RowInput<'a> {
    partition: &'a PartitionKey,
    key: &'a [&'a [u8]],
    statics: &'a [Option<ColumnData<'a>>],
    clustering: &'a [u8],
    row: Option<Row<'a>>,
}

impl<'p> Page<'p> {
    pub fn new(
        (plan, selection): (&'p SelectPlan, &'p Selection),
        execution: &'p Execution<'p>,
        filter: RowFilter,
        limits: Limits,
        partitions: &'p Partitions,
    ) -> Self {
        Page {
            steps_per_row: plan.steps_per_row + steps_of_expressions(filter.comparison_count()),
            sizes: ReadSizes::new(plan, execution, partitions),
            sorted_bytes: 0,
            candidate_count: 0,
            plan,
            selection,
            plain: plan.plain.as_ref().filter(|_| selection.is_plain()),
            execution,
            filter,
            limits,
            group: plan.is_grouping().then(|| selection.group()),
            group_key: Vec::new(),
            group_clustering: Vec::new(),
            group_sort_values: Vec::new(),
            scratch: Scratch::default(),
            sorted: Vec::new(),
            nearest: None,
            range: ReadRange { keys: KeyRange::all(), slices: Slices::all(), reversed: false },
            limits_at_start: limits,
            live_before: 0,
            tombstones: 0,
            token: Token(0),
            cells: Vec::with_capacity(
                plan.usual_size_bytes.load(Ordering::Relaxed).clamp(CELLS_BYTES.start, CELLS_BYTES.end),
            ),
            row_count: 0,
            live_rows: 0,
            state: None,
        }
    }

    /// Makes the page keep the rows with the most similar vectors.
    pub fn order_by_similarity(&mut self, nearest: NearestRows<'p>) {
        self.nearest = Some(Box::new(nearest));
    }

    /// Prefetches the memtables' memory for partitions that are read next.
    pub fn prefetch(&self, keys: &[PartitionKey]) {
        if let [_, _, ..] = keys {
            let keys: Vec<&PartitionKey> = keys.iter().collect();
            self.execution.processor.engine().prefetch(&self.plan.table, &keys);
        }
    }

    /// As [`prefetch`](Self::prefetch), with the places where SSTables probably have partitions.
    pub(super) fn prefetch_hinted(&self, keys: &[&PartitionKey], hints: &[PartitionHint]) {
        self.execution.processor.engine().prefetch_hinted(&self.plan.table, keys, hints);
    }

    /// Reads the rows of a segment. Returns false if the page is full or the limit is reached.
    pub fn read(&mut self, segment: Segment) -> Result<bool, QueryError> {
        self.execution.work(1 + segment.slices.as_slice().len() as u64)?;
        self.sizes.begin_read();
        (self.live_before, self.tombstones) = (self.live_rows, 0);
        let candidates = self.search(&segment)?;
        let goes_on = match candidates {
            _ if self.nearest.is_some() => self.read_by_similarity(segment, candidates)?,
            Some(candidates) => self.read_candidates(segment, candidates)?,
            None => {
                if let KeyRange::Range { .. } = segment.keys {
                    self.execution.need_processor()?;
                }
                self.read_all(segment)?
            }
        };
        let (live, tombstones) = (self.live_rows - self.live_before, self.tombstones);
        self.execution.note(|| format!("Read {live} live rows and {tombstones} tombstone cells"));
        if tombstones > self.execution.processor.options().tombstone_warn_threshold {
            self.plan.warn_of_tombstones(&self.scan(), self.execution);
        }
        self.sizes.end_read(&self.scan());
        Ok(goes_on)
    }

    /// Reads the rows of a segment in order. Returns false if the page is full or the limit is reached.
    pub(super) fn read_all(&mut self, segment: Segment) -> Result<bool, QueryError> {
        let Segment { keys, slices, is_resumed } = segment;
        let range = ReadRange { keys, slices, reversed: self.plan.ordering.is_reversed };
        self.note_read(&range);
        Ok(self.read_range(range, is_resumed)? != Flow::Stop)
    }

    /// Reads the rows of a range.
    pub(super) fn read_range(&mut self, range: ReadRange, is_resumed: bool) -> Result<Flow, QueryError> {
        let Execution { processor, now_seconds, .. } = self.execution;
        let cursor = processor.read(&self.plan.table, &range, *now_seconds, self.execution.turn())?;
        self.read_cursor(cursor, range, is_resumed)
    }

    /// Reads the rows of a cursor over a range.
    fn read_cursor(
        &mut self,
        mut cursor: BoxCursor<'_>,
        range: ReadRange,
        is_resumed: bool,
    ) -> Result<Flow, QueryError> {
        self.rows_expected(&range, is_resumed).iter().for_each(|rows| cursor.expect_rows(*rows));
        self.plan.regulars.iter().for_each(|regulars| cursor.expect_columns(regulars));
        cursor.pause_after(STEPS_PER_CHECK as u32);
        self.range = range;
        let mut static_bytes = Vec::new();
        while cursor.advance_partition()? {
            let head = cursor.partition();
            self.execution.work(self.steps_per_row)?;
            // A key is small, so a size above the limit is noticed with the next row.
            self.sizes.take(head.key.bytes().len() + head.static_row.map_or(0, |row| row.as_bytes().len()));
            self.tombstones += u64::from(!head.deletion.is_live());
            let partition = head.key.clone();
            self.token = partition.token();
            static_bytes.clear();
            if let Some(row) = head.static_row {
                static_bytes.extend_from_slice(row.as_bytes());
            }
            if !is_resumed {
                self.limits.remaining_in_partition = self.limits.per_partition;
            }
            if self.read_partition(&mut cursor, &partition, &static_bytes, is_resumed)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Next)
    }

    /// Whether no more rows of the partition that was read last are returned.
    pub(super) fn is_partition_done(&self) -> bool {
        self.plan.is_distinct || self.limits.remaining_in_partition == 0
    }

    /// Counts candidates that an index gave.
    pub(super) fn count_candidates(&mut self, count: u64) {
        self.candidate_count = self.candidate_count.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
    }

    /// How many more rows the page may have.
    pub(super) fn rows_wanted(&self) -> usize {
        usize::try_from(self.limits.remaining.min(self.limits.page)).unwrap_or(usize::MAX)
    }

    /// Counts the work of a read.
    pub(super) fn work(&self, steps: u64) -> Result<(), QueryError> {
        self.execution.work(steps)
    }

    pub(super) fn plan(&self) -> &'p SelectPlan {
        self.plan
    }

    /// The rows with the most similar vectors so far.
    pub(super) fn nearest(&self) -> Option<&NearestRows<'p>> {
        self.nearest.as_deref()
    }

    pub(super) fn execution(&self) -> &'p Execution<'p> {
        self.execution
    }

    /// Sets what was read, for warnings.
    pub(super) fn set_range(&mut self, range: ReadRange) {
        self.range = range;
    }

    /// The number of rows that will be read in a segment, if none of them is dead.
    fn rows_expected(&self, range: &ReadRange, is_resumed: bool) -> Option<usize> {
        let is_sorted = self.plan.ordering.sort.is_some() || self.nearest.is_some();
        if !self.filter.is_empty() || self.group.is_some() || is_sorted {
            return None;
        }
        let Limits { remaining, per_partition, remaining_in_partition, page } = self.limits;
        let of_partition = match range.keys {
            KeyRange::Single(_) if is_resumed => remaining_in_partition,
            KeyRange::Single(_) => per_partition,
            KeyRange::Range { .. } => u64::MAX,
        };
        usize::try_from(remaining.min(page).min(of_partition)).ok()
    }

    /// The read of the range so far.
    pub(super) fn scan(&self) -> Scan<'_> {
        Scan {
            range: &self.range,
            filter: &self.filter,
            limits: &self.limits_at_start,
            live_rows: self.live_rows - self.live_before,
            tombstones: self.tombstones,
            token: self.token,
        }
    }

    /// Adds the beginning of a read to the request's trace.
    fn note_read(&self, range: &ReadRange) {
        let table = &self.plan.table;
        self.execution.note(|| {
            if matches!(range.keys, KeyRange::Single(_)) {
                return format!("Executing single-partition query on {}", table.name);
            }
            let sstables = self.execution.processor.engine().table_stats(table).map_or(0, |stats| stats.sstable_count);
            match &range.keys {
                KeyRange::Range { start: KeyBound::Unbounded, end: KeyBound::Unbounded } => {
                    let minimum = format!("min({})", i64::MIN);
                    format!("Executing seq scan across {sstables} sstables for ({minimum}, {minimum}]")
                }
                _ => format!("Executing seq scan across {sstables} sstables"),
            }
        });
    }

    fn read_partition(
        &mut self,
        cursor: &mut BoxCursor<'_>,
        partition: &PartitionKey,
        static_bytes: &[u8],
        is_resumed: bool,
    ) -> Result<Flow, QueryError> {
        let table = &*self.plan.table;
        let now = self.execution.now_seconds;
        let static_row = (!static_bytes.is_empty()).then(|| Row::new(static_bytes));
        let (mut key, mut statics) = (Vec::new(), Vec::new());
        split_key(table, partition.bytes(), &mut key);
        if table.has_statics() {
            spread(table, true, static_row, &mut statics);
        }
        // A table with COMPACT STORAGE and no clustering columns shows the static row, and none of its rows are read.
        let shows_statics = || table.form() == TableForm::StaticCompact;
        if self.range.slices.as_slice().is_empty() && !is_resumed && !shows_statics() {
            let found = RowInput { partition, key: &key, statics: &statics, clustering: &[], row: None };
            let is_live = static_row.is_some_and(|row| row.is_live(table, now));
            return Ok(if is_live && self.is_kept(&found) {
                self.count_statics_of_no_row(partition)
            } else {
                Flow::Next
            });
        }
        let mut any = false;
        while self.advance(cursor)? {
            let Unfiltered::Row(row) = cursor.unfiltered() else {
                self.execution.work(1)?;
                self.count_tombstones(1)?;
                continue;
            };
            let row_bytes = row.clustering.len() + row.row.as_bytes().len();
            self.execution.work(self.steps_per_row + steps_of_bytes(row_bytes))?;
            if !self.sizes.take(row_bytes) {
                return Err(self.sizes.too_much_taken(&self.scan()));
            }
            if !row.row.is_live(table, now) {
                self.count_tombstones(1)?;
                continue;
            }
            let found =
                RowInput { partition, key: &key, statics: &statics, clustering: row.clustering, row: Some(row.row) };
            self.live_rows += 1;
            let (kept, flow) = self.take(&found)?;
            any |= kept;
            match flow {
                Flow::Next => {}
                Flow::NextPartition => break,
                Flow::Stop => return Ok(Flow::Stop),
            }
        }
        let static_only = !any && !is_resumed && self.plan.restrictions.returns_static_only_partitions();
        if static_only && static_row.is_some_and(|row| row.is_live(table, now)) {
            self.live_rows += 1;
            let found = RowInput { partition, key: &key, statics: &statics, clustering: &[], row: None };
            if self.take(&found)?.1 == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        self.end_partition(partition)
    }

    /// If no rows are selected (`k IN ()`), the static columns of a partition count against the page and the LIMIT as a
    /// row does, but they return no row.
    fn count_statics_of_no_row(&mut self, partition: &PartitionKey) -> Flow {
        self.live_rows += 1;
        self.limits.remaining = self.limits.remaining.saturating_sub(1);
        self.limits.page = self.limits.page.saturating_sub(1);
        if self.limits.remaining == 0 {
            return Flow::Stop;
        }
        if self.limits.page == 0 {
            self.end_page(partition, None, true);
            return Flow::Stop;
        }
        Flow::Next
    }

    /// Whether the filter accepts a partition's static row.
    fn is_kept(&self, found: &RowInput<'_>) -> bool {
        let mut regulars = Vec::new();
        spread(&self.plan.table, false, None, &mut regulars);
        let (key, statics, now_seconds) = (found.key, found.statics, self.execution.now_seconds);
        self.filter.matches(&RowView { key, clustering: &[], statics, regulars: &regulars, now_seconds })
    }

    /// Advances to the next row or deletion, however much deleted data lies before it.
    fn advance(&self, cursor: &mut BoxCursor<'_>) -> Result<bool, QueryError> {
        loop {
            match cursor.advance() {
                Err(ReadError::Paused) => self.execution.work(STEPS_PER_CHECK)?,
                outcome => return Ok(outcome?),
            }
        }
    }

    fn count_tombstones(&mut self, count: u64) -> Result<(), QueryError> {
        self.tombstones += count;
        let max = self.execution.processor.options().tombstone_failure_threshold;
        if self.tombstones <= max {
            return Ok(());
        }
        self.plan.warn_of_tombstones(&self.scan(), self.execution);
        Err(self.plan.too_many_tombstones(self.execution))
    }

    /// Adds a row to the page, unless the filter rejects it. Returns whether it was kept, and how to continue.
    fn take(&mut self, found: &RowInput<'_>) -> Result<(bool, Flow), QueryError> {
        let mut clustering = recycle_values(std::mem::take(&mut self.scratch.clustering));
        clustering.extend(Clusterings(found.clustering));
        let position = Position { key: found.key, clustering: &clustering, statics: found.statics };
        let taken = match self.plain {
            Some(plain) if self.filter.is_empty() && self.plan.ordering.sort.is_none() && self.nearest.is_none() => {
                let context = self.sizes.row_context();
                let places = &mut self.scratch.places;
                let tombstones = plain.write(context, &position, found.row, places, &mut self.cells);
                self.count_tombstones(tombstones)?;
                (true, self.count_row(found)?)
            }
            _ => self.take_view(found, &position)?,
        };
        self.scratch.clustering = recycle_values(clustering);
        Ok(taken)
    }

    fn take_view(&mut self, found: &RowInput<'_>, position: &Position<'_>) -> Result<(bool, Flow), QueryError> {
        let mut regulars = recycle_data(std::mem::take(&mut self.scratch.regulars));
        spread_first(self.viewed_regulars(), &self.plan.table, found.row, &mut regulars);
        let view = RowView {
            key: position.key,
            clustering: position.clustering,
            statics: position.statics,
            regulars: &regulars,
            now_seconds: self.execution.now_seconds,
        };
        let taken = if !self.filter.matches(&view) {
            (false, Flow::Next)
        } else if self.group.is_some() {
            (true, self.take_into_group(found, &view)?)
        } else if self.nearest.is_some() {
            (true, self.take_by_similarity(found, &view)?)
        } else if self.plan.ordering.sort.is_some() {
            (true, self.take_to_sort(found, &view)?)
        } else if let Some(plain) = self.plain {
            // Deleted cells are only counted in rows that no filter tests.
            plain.write(self.sizes.row_context(), position, found.row, &mut self.scratch.places, &mut self.cells);
            (true, self.count_row(found)?)
        } else {
            let parts = RowParts::default();
            let input = Input::Row { row: &view, parts: &parts, execution: self.execution };
            self.selection.write_row(&input, &mut self.cells)?;
            (true, self.count_row(found)?)
        };
        self.scratch.regulars = recycle_data(regulars);
        Ok(taken)
    }

    /// How many regular columns, the first ones, a view of a row must have: where plain columns are copied, only those
    /// that the filter tests.
    fn viewed_regulars(&self) -> usize {
        let is_copied =
            self.plain.is_some() && self.group.is_none() && self.nearest.is_none() && self.plan.ordering.sort.is_none();
        let all = self.plan.table.regulars().columns.len();
        if is_copied { self.filter.regulars_end().min(all) } else { all }
    }

    /// Whether the page is full.
    fn is_full(&self) -> bool {
        self.limits.page == 0 || self.cells.len() >= self.sizes.page_max_bytes
    }

    /// Counts a row of the result against the limits.
    fn count_row(&mut self, found: &RowInput<'_>) -> Result<Flow, QueryError> {
        let plan = self.plan;
        self.row_count += 1;
        self.sizes.check_answer(self.cells.len(), self.row_count)?;
        self.limits.remaining -= 1;
        self.limits.remaining_in_partition -= 1;
        self.limits.page -= 1;
        let partition_done = plan.is_distinct
            || found.row.is_none()
            || plan.table.clustering().is_empty()
            || self.limits.remaining_in_partition == 0;
        if self.limits.remaining == 0 {
            return Ok(Flow::Stop);
        }
        if self.is_full() {
            let clustering = (!partition_done).then(|| found.clustering.to_vec());
            self.end_page(found.partition, clustering, partition_done);
            return Ok(Flow::Stop);
        }
        Ok(if partition_done { Flow::NextPartition } else { Flow::Next })
    }

    fn end_page(&mut self, partition: &PartitionKey, clustering: Option<Vec<u8>>, partition_done: bool) {
        self.state = Some(PagingState {
            key: partition.bytes().to_vec(),
            clustering,
            partition_done,
            remaining: self.limits.remaining,
            remaining_in_partition: self.limits.remaining_in_partition,
        });
    }

    fn take_into_group(&mut self, found: &RowInput<'_>, view: &RowView<'_>) -> Result<Flow, QueryError> {
        let mut key = std::mem::take(&mut self.scratch.key);
        if let Some(grouping) = &self.plan.grouping {
            grouping.key(found.clustering, view, self.execution, &mut key)?;
        }
        let is_open = self.group.as_ref().is_some_and(|group| !group.is_empty());
        if is_open && key != self.group_key {
            self.write_group()?;
            if self.limits.remaining == 0 {
                return Ok(Flow::Stop);
            }
            if self.is_full() {
                let partition_done = self.limits.remaining_in_partition == 0;
                let clustering = (!partition_done).then(|| std::mem::take(&mut self.group_clustering));
                self.end_page(found.partition, clustering, partition_done);
                return Ok(Flow::Stop);
            }
            if self.limits.remaining_in_partition == 0 {
                return Ok(Flow::NextPartition);
            }
        }
        std::mem::swap(&mut self.group_key, &mut key);
        self.scratch.key = key;
        self.group_clustering.clear();
        self.group_clustering.extend_from_slice(found.clustering);
        if let Some(group) = &mut self.group {
            if group.is_empty() {
                self.group_sort_values = sort_values(self.plan, view);
            }
            group.add(view, self.execution)?;
        }
        Ok(if self.plan.is_distinct { Flow::NextPartition } else { Flow::Next })
    }

    fn write_group(&mut self) -> Result<(), QueryError> {
        let Some(group) = &mut self.group else { return Ok(()) };
        self.limits.remaining_in_partition = self.limits.remaining_in_partition.saturating_sub(1);
        if self.plan.grouping.is_some() && self.plan.ordering.sort.is_some() {
            let mut cells = Vec::new();
            group.write_row(self.execution, &mut cells)?;
            group.start_over(self.execution);
            let values = std::mem::take(&mut self.group_sort_values);
            return self.keep_to_sort(SortedRow { values, cells });
        }
        group.write_row(self.execution, &mut self.cells)?;
        group.start_over(self.execution);
        self.row_count += 1;
        self.sizes.check_answer(self.cells.len(), self.row_count)?;
        self.limits.remaining -= 1;
        self.limits.page = self.limits.page.saturating_sub(1);
        Ok(())
    }

    /// A group ends with its partition, unless everything is one group.
    fn end_partition(&mut self, partition: &PartitionKey) -> Result<Flow, QueryError> {
        let is_open = self.group.as_ref().is_some_and(|group| !group.is_empty());
        if self.plan.grouping.is_none() || !is_open {
            return Ok(Flow::Next);
        }
        self.write_group()?;
        if self.limits.remaining == 0 {
            return Ok(Flow::Stop);
        }
        if self.is_full() {
            self.end_page(partition, None, true);
            return Ok(Flow::Stop);
        }
        Ok(Flow::Next)
    }

    /// Keeps a row until all rows are there and can be sorted.
    fn keep_to_sort(&mut self, row: SortedRow) -> Result<(), QueryError> {
        self.execution.charge(row.size_bytes())?;
        self.sorted_bytes += row.cells.len();
        self.sorted.push(row);
        self.sizes.check_answer(self.sorted_bytes, self.sorted.len())
    }

    fn take_to_sort(&mut self, found: &RowInput<'_>, view: &RowView<'_>) -> Result<Flow, QueryError> {
        let mut cells = Vec::new();
        let parts = RowParts::default();
        let input = Input::Row { row: view, parts: &parts, execution: self.execution };
        self.selection.write_row(&input, &mut cells)?;
        self.keep_to_sort(SortedRow { values: sort_values(self.plan, view), cells })?;
        self.limits.remaining_in_partition -= 1;
        let done = self.limits.remaining_in_partition == 0 || found.row.is_none();
        Ok(if done { Flow::NextPartition } else { Flow::Next })
    }

    /// Keeps a row if its vector is one of the most similar so far.
    fn take_by_similarity(&mut self, found: &RowInput<'_>, view: &RowView<'_>) -> Result<Flow, QueryError> {
        let Some(nearest) = &mut self.nearest else { return Ok(Flow::Next) };
        if let Some(score) = nearest.score(view) {
            let mut cells = Vec::new();
            let parts = RowParts::default();
            let input = Input::Row { row: view, parts: &parts, execution: self.execution };
            self.selection.write_row(&input, &mut cells)?;
            nearest.keep(score, cells, self.execution)?;
            let (bytes, rows) = nearest.size();
            self.sizes.check_answer(bytes, rows)?;
        }
        let is_done = self.plan.is_distinct || found.row.is_none();
        Ok(if is_done { Flow::NextPartition } else { Flow::Next })
    }

    /// Ends the page: sorts the rows if needed, or writes the only group of an aggregate over everything.
    pub fn finish(&mut self) -> Result<(), QueryError> {
        if self.plan.grouping.is_none() && self.group.is_some() {
            self.write_group()?;
        }
        if let Some(nearest) = self.nearest.take() {
            self.row_count = nearest.size().1;
            nearest.write(&mut self.cells);
        }
        self.plan.note_length(self.row_count.max(self.candidate_count), self.state.is_some());
        if self.cells.capacity() > CELLS_BYTES.start {
            // The reserve is slightly larger, because the next answer may be longer.
            self.plan.usual_size_bytes.store(self.cells.len() + self.cells.len() / 8, Ordering::Relaxed);
        }
        self.sizes.end_answer(self.cells.len() + self.sorted_bytes, self.row_count + self.sorted.len());
        let Some(columns) = &self.plan.ordering.sort else { return Ok(()) };
        self.execution.work(self.sorted.len() as u64)?;
        self.sorted.sort_by(|left, right| {
            let pairs = columns.iter().zip(left.values.iter().zip(&right.values));
            let mut orders = pairs.map(|(column, (left, right))| column.compare(left.as_deref(), right.as_deref()));
            orders.find(|order| order.is_ne()).unwrap_or(cmp::Ordering::Equal)
        });
        let kept = self.sorted.len().min(usize::try_from(self.limits.remaining).unwrap_or(usize::MAX));
        self.sorted.truncate(kept);
        self.cells.reserve_exact(self.sorted.iter().map(|row| row.cells.len()).sum());
        self.row_count += kept;
        // The memory of each row is freed when it is copied.
        self.sorted.drain(..).for_each(|row| self.cells.extend_from_slice(&row.cells));
        Ok(())
    }
}
