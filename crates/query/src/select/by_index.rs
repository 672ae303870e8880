//! Reading the rows that a secondary index gives.
//!
//! The index gives places of rows in reading order. Of each partition some of them are read at a time, as rows merged
//! from all sources, and the filter looks at their values again: so an entry of a row that was changed, deleted or
//! expired meanwhile gives nothing, and limits, pages and groups are those of any other read.

use engine::{IndexCandidates, IndexPlace};
use model::{KeyRange, PartitionKey, ReadRange, Slice, Slices, TableForm};

use super::execute::Segment;
use super::read::{Flow, Page};
use crate::QueryError;

/// The number of rows of a partition that are read at a time.
const ROWS_MAX: usize = 256;

/// The places that an index gives, by partition.
pub(super) struct Places {
    candidates: IndexCandidates,
    next: Option<IndexPlace>,
    /// How many it gave.
    count: u64,
}

/// Some places of one partition.
struct InPartition {
    partition: PartitionKey,
    /// The rows; `None` if all of the partition's are asked for.
    rows: Option<Vec<Slice>>,
}

impl Places {
    fn advance(&mut self) -> Result<(), QueryError> {
        self.next = self.candidates.next_place()?;
        self.count += u64::from(self.next.is_some());
        Ok(())
    }

    /// The next places, all of one partition; `None` behind the last.
    fn take(&mut self, page: &Page<'_>, slices: &Slices) -> Result<Option<InPartition>, QueryError> {
        let Some(first) = &self.next else { return Ok(None) };
        let comparator = page.plan().table.comparator();
        let partition = first.partition.clone();
        let mut rows = Vec::new();
        while let Some(place) = self.next.take_if(|place| place.partition == partition && rows.len() < ROWS_MAX) {
            page.work(1)?;
            self.advance()?;
            match place.clustering {
                Some(clustering) if slices.contains(&clustering, comparator) => rows.push(Slice::prefix(&clustering)),
                Some(_) => {}
                None => return Ok(Some(InPartition { partition, rows: None })),
            }
        }
        // A group must not be read in parts.
        let is_cut = self.is_at(&partition) && page.plan().grouping.is_some();
        Ok(Some(InPartition { partition, rows: (!is_cut).then_some(rows) }))
    }

    fn is_at(&self, partition: &PartitionKey) -> bool {
        self.next.as_ref().is_some_and(|place| place.partition == *partition)
    }

    /// Passes over the rest of a partition.
    fn leave(&mut self, partition: &PartitionKey, page: &Page<'_>) -> Result<(), QueryError> {
        while self.is_at(partition) {
            page.work(1)?;
            self.advance()?;
        }
        Ok(())
    }
}

impl Page<'_> {
    /// The places within a segment that an index gives; `None` if all of the segment is to be read.
    pub(super) fn search(&self, segment: &Segment) -> Result<Option<Places>, QueryError> {
        let plan = self.plan();
        let Some(indexed) = plan.restrictions.indexed() else { return Ok(None) };
        let execution = self.execution();
        let is_static_compact = plan.table.form() == TableForm::StaticCompact;
        let reads_nothing = segment.slices.as_slice().is_empty() && !is_static_compact;
        let Some(values) = indexed.values(execution)?.filter(|_| !reads_nothing) else { return Ok(None) };
        if indexed.is_range() {
            execution.need_processor()?;
        }
        let (table, name) = (&plan.table, &indexed.index.name);
        let engine = execution.processor.engine();
        let (keys, turn) = (&segment.keys, execution.turn());
        let candidates = engine.index_candidates(table, &indexed.index, values.as_ref(), keys, turn)?;
        let Some(candidates) = candidates else {
            execution.note(|| format!("Index {name} is not built yet, or has too many candidates"));
            return Ok(None);
        };
        execution.note(|| format!("Executing read on {}.{} using index {name}", table.keyspace, table.name));
        let mut places = Places { candidates, next: None, count: 0 };
        places.advance()?;
        Ok(Some(places))
    }

    /// Reads the rows at these places. Returns false if the page is full or the limit is reached.
    pub(super) fn read_places(&mut self, segment: Segment, mut places: Places) -> Result<bool, QueryError> {
        let Segment { keys, slices, mut is_resumed } = segment;
        let mut goes_on = true;
        while let Some(InPartition { partition, rows }) = places.take(self, &slices)? {
            let is_whole = rows.is_none();
            let slices = match rows {
                Some(rows) => Slices::new(rows, self.plan().table.comparator()),
                None => slices.clone(),
            };
            if is_whole || !slices.as_slice().is_empty() {
                let range = ReadRange { keys: KeyRange::Single(partition.clone()), slices, reversed: false };
                if self.read_range(range, is_resumed)? == Flow::Stop {
                    goes_on = false;
                    break;
                }
                is_resumed = true;
            }
            if is_whole || (is_resumed && self.is_partition_done()) {
                places.leave(&partition, self)?;
            }
            is_resumed &= places.is_at(&partition);
        }
        let (name, count) = (self.plan().restrictions.indexed().map(|indexed| &indexed.index.name), places.count);
        name.iter().for_each(|name| self.execution().note(|| format!("Index {name} gave {count} candidates")));
        self.set_range(ReadRange { keys, slices, reversed: false });
        Ok(goes_on)
    }
}
