//! Reading the rows that an index of vectors gives, the most similar first.
//!
//! Each row is merged from all sources, tested by the filter, and compared by its current vector. The search ends when
//! LIMIT rows are kept and the next one would not be better than the worst of them. So deleted and overwritten rows,
//! and rows that the filter rejects, only prolong the search.

use std::collections::HashSet;

use engine::{NearestCandidates, NearestStep};
use model::{KeyRange, ReadRange, Slice, Slices, TableForm};

use super::by_index::CandidateRows;
use super::execute::Segment;
use super::read::Page;
use crate::QueryError;

/// If the restrictions leave no more candidates, all of them are read.
const FEW_CANDIDATES: usize = 500;

impl Page<'_> {
    /// Reads the rows of a segment of which the most similar are kept. `others` are those that another index gives.
    /// Returns true, because the limit is reached at the end only.
    pub(super) fn read_by_similarity(
        &mut self,
        segment: Segment,
        others: Option<CandidateRows>,
    ) -> Result<bool, QueryError> {
        match (self.search_nearest(&segment, others.as_ref())?, others) {
            (Some(candidates), _) => self.read_nearest(segment, candidates).map(|()| true),
            (None, Some(others)) => self.read_candidates(segment, others),
            (None, None) => self.read_all(segment),
        }
    }

    /// A search by similarity in a segment. `None` if it is better to read and sort the segment's rows, or those that
    /// another index gives: for one partition, because graphs are not divided by partitions, and for few rows.
    fn search_nearest(
        &self,
        segment: &Segment,
        others: Option<&CandidateRows>,
    ) -> Result<Option<NearestCandidates>, QueryError> {
        let (plan, execution) = (self.plan(), self.execution());
        let (Some(order), Some(rows)) = (&plan.nearest, self.nearest()) else { return Ok(None) };
        let is_one_partition = matches!(segment.keys, KeyRange::Single(_));
        let has_no_rows = segment.slices.as_slice().is_empty() && plan.table.form() != TableForm::StaticCompact;
        if is_one_partition || has_no_rows || others.is_some_and(|others| others.known_count() <= FEW_CANDIDATES) {
            return Ok(None);
        }
        execution.need_processor()?;
        let (engine, index) = (execution.processor.engine(), order.index());
        let found = engine.nearest_candidates(&plan.table, index, rows.wanted(), &segment.keys, rows.limit())?;
        execution.note(|| match found {
            Some(_) => {
                format!("Executing read on {}.{} using index {}", plan.table.keyspace, plan.table.name, index.name)
            }
            None => format!("Index {} is not built yet", index.name),
        });
        Ok(found)
    }

    /// Reads the rows that a search gives, until the best ones are known.
    fn read_nearest(&mut self, segment: Segment, mut candidates: NearestCandidates) -> Result<(), QueryError> {
        let Segment { keys, slices, .. } = segment;
        let (mut seen, mut held_bytes, mut count) = (HashSet::new(), 0, 0_u64);
        loop {
            match candidates.step()? {
                NearestStep::End => break,
                NearestStep::Nothing(steps) => self.work(steps)?,
                NearestStep::Row(_, score) if self.nearest().is_none_or(|rows| rows.is_settled(score)) => break,
                NearestStep::Row(row, _) => {
                    count += 1;
                    let key = (row.partition.bytes().to_vec(), row.clustering.clone());
                    let key_bytes = size_of_val(&key) + key.0.len() + key.1.as_ref().map_or(0, Vec::len);
                    if seen.insert(key) {
                        self.execution().charge(key_bytes)?;
                        held_bytes += key_bytes;
                        self.read_candidate(row, &slices)?;
                    }
                }
            }
            let search_bytes = candidates.held_bytes();
            self.execution().check_room(search_bytes)?;
        }
        self.execution().release(held_bytes);
        self.execution().note(|| format!("The search by similarity gave {count} candidates"));
        self.set_range(ReadRange { keys, slices, reversed: false });
        Ok(())
    }

    /// Reads a row, or the rows of its partition.
    fn read_candidate(&mut self, row: engine::RowKey, slices: &Slices) -> Result<(), QueryError> {
        let comparator = self.plan().table.comparator();
        let slices = match row.clustering {
            Some(clustering) if !slices.contains(&clustering, comparator) => return self.work(1),
            Some(clustering) if self.may_read_single_rows() => {
                return self.read_row((row.partition, row.hint), &clustering, false).map(drop);
            }
            Some(clustering) => Slices::new(vec![Slice::prefix(&clustering)], comparator),
            None => slices.clone(),
        };
        let range = ReadRange { keys: KeyRange::Single(row.partition), slices, reversed: false };
        self.read_range(range, false).map(drop)
    }
}
