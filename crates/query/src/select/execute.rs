//! Execution of a SELECT: the choice of the partitions and rows of a page, and the answer.

use std::cmp::Ordering;

use model::{ClusteringBound, ColumnKind, KeyBound, KeyRange, PartitionKey, Side, Slice, Slices, Table, TableForm};

use super::SelectPlan;
use super::grouping::Grouping;
use super::paging::PagingState;
use super::read::{Limits, Page};
use crate::consistency;
use crate::error::Cause;
use crate::execution::Execution;
use crate::guardrail::{PAGE_SIZE, PARTITION_KEYS_IN_SELECT};
use crate::restrictions::Partitions;
use crate::terms::{Bound, Term};
use crate::{Consistency, MetadataForm, QueryError, ResponseBody, Rows};

/// The number of partitions of an IN that are looked up in memtables together before they are read.
const PREFETCHED_KEYS: usize = 64;

/// Partitions that are read with the same slices.
pub(super) struct Segment {
    pub keys: KeyRange,
    pub slices: Slices,
    /// Whether an earlier page began the partition.
    pub is_resumed: bool,
}

impl SelectPlan {
    /// Reads a page.
    pub fn execute(&self, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
        let (options, processor) = (execution.options, execution.processor);
        consistency::validate_read(options.consistency)?;
        processor.options().guardrails.check_read_level(execution)?;
        let limit = bind_limit(self.limit.as_ref(), execution)?;
        let per_partition_limit = bind_limit(self.per_partition_limit.as_ref(), execution)?;
        let selection = self.selection_for(execution)?;
        selection.check_constants(execution)?;
        self.grouping.as_ref().map_or(Ok(()), Grouping::check_function)?;
        let limits = (limit, per_partition_limit);
        let level = match &self.nearest {
            Some(nearest) => nearest.check(limits, self, execution)?,
            None => options.consistency,
        };
        // As in Cassandra, errors of the filter come first, even if nothing is read (`IN ()`).
        let filter = self.restrictions.filter(execution)?;
        let partitions = self.restrictions.partitions(execution)?;
        self.check_guardrails(&partitions, execution)?;
        let no_partitions = matches!(&partitions, Partitions::Keys(keys) if keys.is_empty());
        let slices = if no_partitions { Slices::none() } else { self.restrictions.slices(execution)? };
        self.warn_of_aggregation(execution);
        execution.limit_time(match &partitions {
            Partitions::Keys(_) => processor.options().read_timeout,
            Partitions::Range(_) => processor.options().range_timeout,
        });
        let reads_nothing = self.reads_nothing(&partitions, &slices);
        let page_size = if reads_nothing { u64::MAX } else { self.page_size(limit, execution)? };
        if !self.names_nothing(&partitions, &slices) {
            // A page is read partition by partition.
            let is_one_read = page_size == u64::MAX && !self.is_grouping();
            self.check_level(level, is_one_read, &partitions, execution)?;
        }
        // An order by similarity has no pages.
        let state = options.paging_state.filter(|_| self.nearest.is_none());
        let state = state.map(|state| PagingState::from_bytes(state, self.shape, &self.table)).transpose()?;
        let read = |selection, filter, slices| {
            let limits = self.limits(limit, per_partition_limit, page_size, state.as_ref());
            let nearest = self.nearest.as_ref().map(|nearest| nearest.rows(limit, execution)).transpose()?;
            let mut page = Page::new((self, selection), execution, filter, limits, &partitions);
            nearest.into_iter().for_each(|nearest| page.order_by_similarity(nearest));
            self.read_page(&partitions, slices, state.as_ref(), &mut page)?;
            Ok(page)
        };
        let mut page = read(selection, filter, slices);
        // An index with a damaged file is not used again until it is rebuilt, but each of the others may have one too.
        for _ in self.table.indexes() {
            if !matches!(page, Err(QueryError { cause: Cause::UnreadableIndex, .. })) {
                break;
            }
            page = read(
                self.selection_for(execution)?,
                self.restrictions.filter(execution)?,
                self.restrictions.slices(execution)?,
            );
        }
        let mut page = page?;
        let next = page.state.take().filter(|state| !is_last(state, &partitions));
        Ok(ResponseBody::Rows(Rows {
            metadata: self.selection.metadata().clone(),
            form: MetadataForm::default(),
            paging_state: next.map(|state| state.to_bytes(self.shape)),
            row_count: page.row_count,
            cells: std::mem::take(&mut page.cells),
        }))
    }

    fn check_guardrails(&self, partitions: &Partitions, execution: &Execution<'_>) -> Result<(), QueryError> {
        let guardrails = &execution.processor.options().guardrails;
        if let Some(page_size) = execution.options.page_size.and_then(|size| usize::try_from(size).ok()) {
            guardrails.page_size.check(&PAGE_SIZE, &self.table.name, page_size, execution)?;
        }
        if let Partitions::Keys(keys) = partitions
            && self.restrictions.has_partition_in()
        {
            let guardrail = guardrails.partition_keys_in_select;
            guardrail.check(&PARTITION_KEYS_IN_SELECT, &self.table.name, keys.len(), execution)?;
        }
        Ok(())
    }

    /// Checks the consistency level of a read of these partitions, which is one read or one for each of them.
    fn check_level(
        &self,
        level: Consistency,
        is_one_read: bool,
        partitions: &Partitions,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        if level.is_serial() && is_one_read && matches!(partitions, Partitions::Keys(keys) if keys.len() > 1) {
            return Err(QueryError::invalid(
                "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time",
            ));
        }
        let (keyspace, data_center) = (&self.table.keyspace, &execution.processor.options().node.data_center);
        let check = match partitions {
            Partitions::Keys(_) => consistency::check_read,
            // A scan at a serial level is a scan at a quorum.
            Partitions::Range(_) => consistency::check_alive,
        };
        check(level, execution.schema, keyspace, data_center)
    }

    fn read_page(
        &self,
        partitions: &Partitions,
        slices: Slices,
        state: Option<&PagingState>,
        page: &mut Page<'_>,
    ) -> Result<(), QueryError> {
        let goes_on = match self.resumed(&slices, state) {
            Some(segment) => page.read(segment)?,
            None => true,
        };
        if goes_on {
            self.read_rest(partitions, slices, state, page)?;
        }
        page.finish()
    }

    /// The rest of the partition that an earlier page began.
    fn resumed(&self, slices: &Slices, state: Option<&PagingState>) -> Option<Segment> {
        let state = state.filter(|state| !state.partition_done)?;
        let slices = match &state.clustering {
            Some(clustering) => slices_after(slices, clustering, &self.table, self.ordering.is_reversed),
            None => slices.clone(),
        };
        Some(Segment { keys: KeyRange::Single(PartitionKey::new(&state.key)), slices, is_resumed: true })
    }

    /// Reads the partitions after the one in which an earlier page ended.
    fn read_rest(
        &self,
        partitions: &Partitions,
        slices: Slices,
        state: Option<&PagingState>,
        page: &mut Page<'_>,
    ) -> Result<(), QueryError> {
        let segment = |keys, slices| Segment { keys, slices, is_resumed: false };
        let keys = match partitions {
            Partitions::Range(range) => {
                page.read(segment(range_after(range, state), slices))?;
                return Ok(());
            }
            Partitions::Keys(keys) => keys.as_slice(),
        };
        let left = match state {
            Some(state) => {
                let place = keys.iter().position(|key| key.bytes() == state.key);
                let place = place.ok_or_else(|| QueryError::protocol("Invalid value for the paging state"))?;
                &keys[place + 1..]
            }
            None => keys,
        };
        if let [only] = left {
            page.read(segment(KeyRange::Single(only.clone()), slices))?;
            return Ok(());
        }
        for keys in left.chunks(PREFETCHED_KEYS) {
            page.prefetch(keys);
            for key in keys {
                if !page.read(segment(KeyRange::Single(key.clone()), slices.clone()))? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether there is certainly nothing to read. Such a SELECT has no pages. If static columns are selected, an empty
    /// list of rows is read all the same.
    fn reads_nothing(&self, partitions: &Partitions, slices: &Slices) -> bool {
        !self.is_grouping() && self.names_nothing(partitions, slices)
    }

    /// Whether the restrictions select no partition or no row.
    fn names_nothing(&self, partitions: &Partitions, slices: &Slices) -> bool {
        let reads_statics =
            self.table.form() == TableForm::StaticCompact || (self.restrictions.gives_rows() && self.fetches_statics());
        let no_partitions = matches!(partitions, Partitions::Keys(keys) if keys.is_empty());
        no_partitions || (slices.as_slice().is_empty() && !reads_statics)
    }

    /// Whether static columns are read. If only the key is selected, all columns are read.
    fn fetches_statics(&self) -> bool {
        let columns = || self.selection.used_columns().iter().chain(self.restrictions.other_columns());
        let any = |kind: ColumnKind| columns().any(|column| column.kind == kind);
        any(ColumnKind::Static) || (self.table.has_statics() && !any(ColumnKind::Regular))
    }

    /// The rows per page; `u64::MAX` if the result has no pages.
    fn page_size(&self, limit: u64, execution: &Execution<'_>) -> Result<u64, QueryError> {
        let asked = execution.options.page_size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0);
        let asked = asked.filter(|_| self.nearest.is_none());
        if asked.is_some() && self.ordering.sort.is_some() {
            return Err(QueryError::invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either \
                 remove the ORDER BY or the IN and sort client side, or disable paging for this query",
            ));
        }
        let pages = asked.filter(|size| limit > *size && (!self.is_grouping() || self.grouping.is_some()));
        Ok(pages.unwrap_or(u64::MAX))
    }

    fn limits(&self, limit: u64, per_partition: u64, page: u64, state: Option<&PagingState>) -> Limits {
        let everything_is_one_group = self.is_grouping() && self.grouping.is_none();
        let remaining = match state {
            _ if everything_is_one_group => u64::MAX,
            Some(state) => state.remaining.min(limit),
            None => limit,
        };
        // If rows are sorted afterwards, they are limited before only for plain columns, because a computation may fail
        // on a row that would be left out.
        let is_cut = self.ordering.sort.is_some() && self.selection.is_plain();
        let per_partition = if is_cut { per_partition.min(limit) } else { per_partition };
        let left = state.map_or(per_partition, |state| state.remaining_in_partition.min(per_partition));
        Limits { remaining, per_partition, remaining_in_partition: left, page }
    }

    fn warn_of_aggregation(&self, execution: &Execution<'_>) {
        if !self.is_grouping() {
            return;
        }
        if self.restrictions.is_partition_free() {
            execution.warn("Aggregation query used without partition key");
        } else if self.restrictions.is_key_in() {
            execution.warn("Aggregation query used on multiple partition keys (IN restriction)");
        }
    }
}

/// The value of a LIMIT; `u64::MAX` without one.
pub(super) fn bind_limit(term: Option<&Term>, execution: &Execution<'_>) -> Result<u64, QueryError> {
    let Some(term) = term else { return Ok(u64::MAX) };
    match term.bind(execution)? {
        Bound::Unset => Ok(u64::MAX),
        Bound::Null => Err(QueryError::invalid("Invalid null value of limit")),
        Bound::Bytes(bytes) => {
            let limit = bytes.as_ref().try_into().map(i32::from_be_bytes);
            let limit = limit.map_err(|_| QueryError::invalid("Invalid limit value"))?;
            match u64::try_from(limit) {
                Ok(limit) if limit > 0 => Ok(limit),
                _ => Err(QueryError::invalid("LIMIT must be strictly positive")),
            }
        }
    }
}

/// The part of a range after the partition in which a page ended.
fn range_after(range: &KeyRange, state: Option<&PagingState>) -> KeyRange {
    match (range, state) {
        (KeyRange::Range { end, .. }, Some(state)) => {
            let start = KeyBound::Key { key: PartitionKey::new(&state.key), inclusive: false };
            KeyRange::Range { start, end: end.clone() }
        }
        _ => range.clone(),
    }
}

/// The part of `slices` after a clustering, in reading order.
fn slices_after(slices: &Slices, clustering: &[u8], table: &Table, is_reversed: bool) -> Slices {
    let comparator = table.comparator();
    let side = if is_reversed { Side::Before } else { Side::After };
    let bound = ClusteringBound::new(clustering.to_vec(), side);
    let cut = |slice: &Slice| {
        let mut slice = slice.clone();
        if is_reversed && comparator.compare_bounds(&bound, &slice.end) == Ordering::Less {
            slice.end = bound.clone();
        } else if !is_reversed && comparator.compare_bounds(&bound, &slice.start) == Ordering::Greater {
            slice.start = bound.clone();
        }
        slice
    };
    Slices::new(slices.as_slice().iter().map(cut).collect(), comparator)
}

/// Whether a page with this end was certainly the last one.
fn is_last(state: &PagingState, partitions: &Partitions) -> bool {
    match partitions {
        Partitions::Keys(keys) => state.partition_done && keys.last().is_some_and(|key| key.bytes() == state.key),
        Partitions::Range(_) => false,
    }
}
