//! Reading the rows that a secondary index gives.
//!
//! The index gives keys of rows in reading order. Some rows of a partition are read at a time, merged from all sources,
//! and the filter checks their values again: so an entry of a row that was changed, deleted or expired meanwhile gives
//! nothing, and limits, pages and groups are those of any other read.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{IndexCandidates, PartitionHint, RowKey};
use model::{IndexClass, KeyRange, PartitionKey, ReadRange, Slice, Slices, TableForm};

use super::execute::Segment;
use super::read::{Flow, Page};
use crate::QueryError;
use crate::restrictions::IndexedRestriction;

/// The most rows of a partition that are read at a time, and how their number grows.
const ROWS_MAX: usize = 256;
const ROWS_GROWTH: usize = 4;

/// An index with no more candidates is used without examining others.
const FEW_CANDIDATES: usize = 64;

/// The numbers of keys that are read ahead at first, and later, so that the memory of their partitions is prefetched.
const AHEAD: usize = 8;
const AHEAD_MAX: usize = 32;

/// The rows that an index gives, by partition.
pub(super) struct CandidateRows {
    index: Arc<str>,
    candidates: IndexCandidates,
    next: Option<RowKey>,
    /// The rows that follow.
    ahead: VecDeque<RowKey>,
    /// How many are read ahead next; 0 if reading ahead does not pay.
    ahead_count: usize,
    /// The most rows of a partition that are read next.
    rows_max: usize,
    /// A buffer for the rows of a partition.
    rows: Vec<Vec<u8>>,
    /// The number of rows that the index has given.
    count: u64,
}

/// Some rows of one partition.
struct InPartition {
    partition: PartitionKey,
    /// A hint of where an SSTable has the partition.
    hint: Option<PartitionHint>,
    /// The serialized clusterings of the rows; `None` if all of the partition's are asked for.
    rows: Option<Vec<Vec<u8>>>,
}

impl CandidateRows {
    /// How many rows are known: all of them if there are few.
    pub fn known_count(&self) -> usize {
        self.ahead.len() + self.candidates.known_count()
    }

    fn advance(&mut self, page: &Page<'_>) -> Result<(), QueryError> {
        if self.ahead.is_empty() && self.ahead_count > 0 {
            self.read_ahead(page)?;
        }
        self.next = match self.ahead.pop_front() {
            Some(next) => Some(next),
            None => self.candidates.next_key(|steps| page.work(steps))?,
        };
        self.count += u64::from(self.next.is_some());
        Ok(())
    }

    fn read_ahead(&mut self, page: &Page<'_>) -> Result<(), QueryError> {
        let count = self.ahead_count.min(page.rows_wanted());
        while self.ahead.len() < count
            && let Some(row) = self.candidates.next_key(|steps| page.work(steps))?
        {
            self.ahead.push_back(row);
        }
        self.ahead_count = AHEAD_MAX.min(2 * self.ahead_count);
        let mut partitions: Vec<&PartitionKey> = self.ahead.iter().map(|row| &row.partition).collect();
        partitions.dedup();
        if partitions.len() > 1 {
            let hints: Vec<PartitionHint> = self.ahead.iter().filter_map(|row| row.hint).collect();
            page.prefetch_hinted(&partitions, &hints);
        }
        Ok(())
    }

    /// The next rows, all of one partition; `None` at the end.
    fn take(&mut self, page: &Page<'_>, slices: &Slices) -> Result<Option<InPartition>, QueryError> {
        let Some(first) = &self.next else { return Ok(None) };
        let comparator = page.plan().table.comparator();
        let (partition, hint) = (first.partition.clone(), first.hint);
        let mut rows = std::mem::take(&mut self.rows);
        let rows_max = self.rows_max;
        self.rows_max = ROWS_MAX.min(rows_max.saturating_mul(ROWS_GROWTH));
        while let Some(row) = self.next.take_if(|row| row.partition == partition && rows.len() < rows_max) {
            page.work(1)?;
            self.advance(page)?;
            match row.clustering {
                Some(clustering) if slices.contains(&clustering, comparator) => rows.push(clustering),
                Some(_) => {}
                None => return Ok(Some(InPartition { partition, hint, rows: None })),
            }
        }
        // A group must not be read in parts.
        let is_cut = self.is_at(&partition) && page.plan().grouping.is_some();
        Ok(Some(InPartition { partition, hint, rows: (!is_cut).then_some(rows) }))
    }

    fn is_at(&self, partition: &PartitionKey) -> bool {
        self.next.as_ref().is_some_and(|row| row.partition == *partition)
    }

    /// Skips the rest of a partition.
    fn leave(&mut self, partition: &PartitionKey, page: &Page<'_>) -> Result<(), QueryError> {
        while self.is_at(partition) {
            page.work(1)?;
            self.advance(page)?;
        }
        Ok(())
    }
}

impl Page<'_> {
    /// The rows within a segment that an index gives. Of several indexes, the one with about the fewest rows is used,
    /// and the rows that the others do not give are left out. The segment is then the page's range. `None` if all rows
    /// of the segment are to be read.
    pub(super) fn search(&mut self, segment: &Segment) -> Result<Option<CandidateRows>, QueryError> {
        let plan = self.plan();
        let [_, ..] = plan.restrictions.indexed() else { return Ok(None) };
        let is_static_compact = plan.table.form() == TableForm::StaticCompact;
        if segment.slices.as_slice().is_empty() && !is_static_compact {
            return Ok(None);
        }
        let (mut found, mut file_count) = (Vec::new(), 0);
        let mut restrictions = plan.restrictions.indexed();
        if let Some(of_two) = self.common_candidates(restrictions, segment)? {
            found.push(of_two);
            restrictions = &restrictions[2..];
        }
        let is_of_two = !found.is_empty();
        for indexed in restrictions {
            let is_few = |(_, candidates): &(_, IndexCandidates)| candidates.known_count() <= FEW_CANDIDATES;
            if found.iter().any(is_few) {
                break;
            }
            let Some(candidates) = self.candidates(indexed, segment)? else { continue };
            if indexed.index.class == IndexClass::StorageAttached {
                file_count = file_count.max(candidates.sstable_count());
            }
            found.push((indexed.index.name.clone(), candidates));
        }
        if !is_of_two {
            found.sort_by_key(|(_, candidates)| candidates.estimated_count());
        }
        let mut found = found.into_iter();
        let Some((index, mut candidates)) = found.next() else { return Ok(None) };
        let is_many = candidates.known_count() > FEW_CANDIDATES;
        found.filter(|_| is_many).for_each(|(_, other)| candidates.retain_those_of(other));
        let mut rows = CandidateRows {
            ahead_count: if self.reads_ahead(&candidates) { AHEAD } else { 0 },
            rows_max: self.first_rows_max(),
            index,
            candidates,
            next: None,
            ahead: VecDeque::new(),
            rows: Vec::new(),
            count: 0,
        };
        self.set_range(ReadRange { keys: segment.keys.clone(), slices: segment.slices.clone(), reversed: false });
        if let KeyRange::Range { .. } = segment.keys {
            plan.check_index_files(file_count, &self.scan(), self.execution())?;
        }
        let (table, name) = (&plan.table, &rows.index);
        self.execution().note(|| format!("Executing read on {}.{} using index {name}", table.keyspace, table.name));
        rows.advance(self)?;
        Ok(Some(rows))
    }

    /// Whether it pays to prefetch the memory of several partitions together.
    fn reads_ahead(&self, candidates: &IndexCandidates) -> bool {
        let engine = self.execution().processor.engine();
        candidates.known_count() > 1 && (candidates.has_hint() || engine.has_large_memtables(&self.plan().table))
    }

    /// The most rows of the first partition that are read at first: no more than the page may have, because most
    /// candidates are rows of the answer. A group is not read in parts.
    fn first_rows_max(&self) -> usize {
        if self.plan().grouping.is_some() { ROWS_MAX } else { self.rows_wanted().clamp(1, ROWS_MAX) }
    }

    /// The candidates that the indexes of the first two restrictions have both, each for one value. `None` unless all
    /// rows are in a memtable.
    fn common_candidates(
        &self,
        restrictions: &[IndexedRestriction],
        segment: &Segment,
    ) -> Result<Option<(Arc<str>, IndexCandidates)>, QueryError> {
        let [one, other, ..] = restrictions else { return Ok(None) };
        if one.is_range() || other.is_range() {
            return Ok(None);
        }
        let execution = self.execution();
        let (Some(value), Some(other_value)) = (one.values(execution)?, other.values(execution)?) else {
            return Ok(None);
        };
        let sought = [(&one.index, value.as_ref()), (&other.index, other_value.as_ref())];
        let engine = execution.processor.engine();
        let candidates = engine.common_candidates(&self.plan().table, sought, &segment.keys)?;
        Ok(candidates.map(|candidates| (format!("{} and {}", one.index.name, other.index.name).into(), candidates)))
    }

    /// The candidates of one index; `None` if it gives none.
    fn candidates(
        &self,
        indexed: &IndexedRestriction,
        segment: &Segment,
    ) -> Result<Option<IndexCandidates>, QueryError> {
        let (execution, index) = (self.execution(), &indexed.index);
        let Some(values) = indexed.values(execution)? else { return Ok(None) };
        let (engine, turn) = (execution.processor.engine(), execution.turn());
        let candidates = engine.index_candidates(&self.plan().table, index, values.as_ref(), &segment.keys, turn)?;
        if candidates.is_none() {
            // A range of more than a few candidates is sorted where the thread may be blocked.
            if indexed.is_range() {
                execution.need_processor()?;
            }
            execution.note(|| format!("Index {} is not built yet, or has too many candidates", index.name));
        }
        Ok(candidates)
    }

    fn read_slices(&mut self, partition: &PartitionKey, slices: Slices, is_resumed: bool) -> Result<Flow, QueryError> {
        self.read_range(ReadRange { keys: KeyRange::Single(partition.clone()), slices, reversed: false }, is_resumed)
    }

    /// Reads these rows, which [`search`](Self::search) gave for the segment. Returns false if the page is full or the
    /// limit is reached.
    pub(super) fn read_candidates(
        &mut self,
        segment: Segment,
        mut candidates: CandidateRows,
    ) -> Result<bool, QueryError> {
        let Segment { keys, slices, mut is_resumed } = segment;
        let mut goes_on = true;
        let single = self.may_read_single_rows();
        while let Some(InPartition { partition, hint, rows }) = candidates.take(self, &slices)? {
            let is_whole = rows.is_none();
            if rows.as_ref().is_none_or(|rows| !rows.is_empty()) {
                let flow = match rows.as_deref() {
                    Some([only]) if single => self.read_row((partition.clone(), hint), only, is_resumed)?,
                    Some(rows) => {
                        let rows = rows.iter().map(|clustering| Slice::prefix(clustering)).collect();
                        let slices = Slices::new(rows, self.plan().table.comparator());
                        self.read_slices(&partition, slices, is_resumed)?
                    }
                    None => self.read_slices(&partition, slices.clone(), is_resumed)?,
                };
                if flow == Flow::Stop {
                    goes_on = false;
                    break;
                }
                is_resumed = true;
            }
            if is_whole || (is_resumed && self.is_partition_done()) {
                candidates.leave(&partition, self)?;
            }
            is_resumed &= candidates.is_at(&partition);
            if let Some(mut rows) = rows {
                rows.clear();
                candidates.rows = rows;
            }
        }
        let CandidateRows { index, count, .. } = &candidates;
        self.execution().note(|| format!("Index {index} gave {count} candidates"));
        self.count_candidates(*count);
        self.set_range(ReadRange { keys, slices, reversed: false });
        Ok(goes_on)
    }
}
