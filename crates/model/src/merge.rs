//! Merging cursors over the same partitions.
//!
//! The merge yields each partition once, with the newest partition deletion. It yields each row once, reconciled and
//! without what the partition's deletion or a surrounding range deletion deletes; and it yields markers only where the
//! deletion in force changes. A row that only one source has and nothing can shadow is passed on without copying. If a
//! source as a whole is older than a deletion, the merge skips what the deletion shadows there instead of walking it.

use std::cmp::Ordering;
use std::sync::Arc;

use types::Token;

use crate::{
    DeletionTime, LargeRowLimit, Marker, PartitionHead, ReadError, Row, RowMerger, RowRef, RowReservation, StoredRow,
    Table, Unfiltered, UnfilteredCursor,
};

/// A union of cursors that were opened for the same range in the same direction, all of one type or boxed.
pub struct MergeCursor<C> {
    /// Set only if there are no sources.
    table: Option<Arc<Table>>,
    reversed: bool,
    sources: Vec<Source<C>>,
    /// One of the sources that have the current partition.
    first: Option<usize>,
    /// Whether it is the only one.
    is_alone: bool,
    deletion: DeletionTime,
    static_row: StaticRow,
    static_bytes: Vec<u8>,
    /// The range deletion in force at the current position, where newer than the partition's.
    open: DeletionTime,
    current: MergedItem,
    /// The sources that stand on the current position.
    meeting: Vec<usize>,
    merger: RowMerger,
    row_bytes: Vec<u8>,
    /// The prefix of the position to which shadowed sources skip.
    target: Vec<u8>,
    /// The number of positions without a row or marker after which `advance` pauses.
    pause_after: u64,
    /// For merged rows.
    reservation: RowReservation,
}

struct Source<C> {
    cursor: C,
    partition: Stand,
    /// The token of the source's next partition.
    token: Token,
    item: Stand,
    open: DeletionTime,
    /// An upper bound of the source's timestamps.
    max_timestamp: i64,
}

/// The state of a source within a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// On an item that was consumed, or before the first.
    Used,
    /// On an item to be consumed.
    Waiting,
    /// Past the end.
    End,
}

enum StaticRow {
    None,
    OfSource(usize),
    Merged,
}

enum MergedItem {
    None,
    /// The item that the source stands on.
    OfSource(usize),
    /// The row in `row_bytes`, with the clustering of the source.
    Merged(usize),
    /// A marker at the source's position.
    Marker {
        source: usize,
        before: DeletionTime,
        after: DeletionTime,
    },
}

impl<C: UnfilteredCursor> MergeCursor<C> {
    /// Merges `sources`, which were all opened with the same `reversed` and yield rows under `table`.
    pub fn new(table: &Arc<Table>, reversed: bool, sources: Vec<C>) -> Self {
        // With many concurrent readers, each change of the table's reference count is a write to a cache line that all
        // of them share.
        let table = sources.is_empty().then(|| table.clone());
        let sources = sources
            .into_iter()
            .map(|cursor| Source {
                max_timestamp: cursor.max_timestamp(),
                cursor,
                partition: Stand::Used,
                token: Token::MINIMUM,
                item: Stand::End,
                open: DeletionTime::LIVE,
            })
            .collect();
        MergeCursor {
            table,
            reversed,
            sources,
            first: None,
            is_alone: false,
            deletion: DeletionTime::LIVE,
            static_row: StaticRow::None,
            static_bytes: Vec::new(),
            open: DeletionTime::LIVE,
            current: MergedItem::None,
            meeting: Vec::new(),
            merger: RowMerger::default(),
            row_bytes: Vec::new(),
            target: Vec::new(),
            pause_after: u64::MAX,
            reservation: RowReservation::default(),
        }
    }

    /// Moves the sources to their next partitions. Returns one source that has the first of these, or `None` at the
    /// end.
    fn meet_partition(&mut self) -> Result<Option<usize>, ReadError> {
        (self.first, self.is_alone) = (None, true);
        let mut least = Token::MINIMUM;
        for (index, source) in self.sources.iter_mut().enumerate() {
            if source.partition == Stand::Used {
                source.advance_partition()?;
            }
            (source.item, source.open) = (Stand::End, DeletionTime::LIVE);
            if source.partition == Stand::Waiting && (self.first.is_none() || source.token <= least) {
                self.is_alone = self.first.is_none() || source.token < least;
                (self.first, least) = (Some(index), source.token);
            }
        }
        if self.is_alone
            && let Some(first) = self.first
        {
            self.sources[first].meet_partition();
            return Ok(self.first);
        }
        // Most tokens differ, so few keys are compared.
        let has_least = |source: &Source<C>| source.partition == Stand::Waiting && source.token == least;
        let keys = self.sources.iter().filter(|source| has_least(source)).map(|source| source.cursor.partition().key);
        let Some(key) = keys.min().cloned() else { return Ok(None) };
        let mut meeting = 0;
        for (index, source) in self.sources.iter_mut().enumerate() {
            if has_least(source) && *source.cursor.partition().key == key {
                source.meet_partition();
                self.first = Some(index);
                meeting += 1;
            }
        }
        self.is_alone = meeting == 1;
        Ok(self.first)
    }

    fn merge_static_rows(&mut self) -> Result<(), ReadError> {
        let deletion = self.deletion;
        let mut rows = Vec::new();
        let mut only = 0;
        for (index, source) in self.sources.iter().enumerate().filter(|(_, source)| source.partition == Stand::Used) {
            if let Some(row) = source.cursor.partition().static_row {
                rows.push(row);
                only = index;
            }
        }
        self.static_row = match rows.as_slice() {
            [] => StaticRow::None,
            [_] if deletion.is_live() => StaticRow::OfSource(only),
            rows => {
                reserve(&mut self.reservation, table_of(&self.sources, &self.table), rows, &mut self.merger)?;
                self.static_bytes.clear();
                match self.merger.merge(table_of(&self.sources, &self.table), rows, deletion, &mut self.static_bytes) {
                    true => StaticRow::Merged,
                    false => StaticRow::None,
                }
            }
        };
        Ok(())
    }

    /// Makes the sources that are older than the deletion in force skip everything before the next position of the
    /// other sources, which is the earliest place where that deletion can end.
    fn pass_over_shadowed(&mut self) -> Result<(), ReadError> {
        let active = self.deletion.max(self.open);
        if active.is_live() {
            return Ok(());
        }
        // A source that contains the deletion in force is not older than it.
        let is_shadowed =
            |source: &Source<C>| source.item == Stand::Waiting && source.max_timestamp < active.marked_for_delete_at;
        if !self.sources.iter().any(is_shadowed) {
            return Ok(());
        }
        let table = table_of(&self.sources, &self.table).clone();
        let others = self.sources.iter().filter(|source| source.item == Stand::Waiting && !is_shadowed(source));
        let reversed = self.reversed;
        let next = others.map(|source| source.cursor.unfiltered()).min_by(|a, b| {
            let order = compare_items(&table, a, b);
            if reversed { order.reverse() } else { order }
        });
        let weight = next.as_ref().map(weight);
        self.target.clear();
        self.target.extend_from_slice(next.as_ref().map(prefix).unwrap_or_default());
        for source in self.sources.iter_mut().filter(|source| is_shadowed(source)) {
            match weight {
                Some(weight) => source.pass_to(&table, reversed, &self.target, weight)?,
                // Nothing ends the deletion of a whole partition.
                None if self.open.is_live() => (source.item, source.open) = (Stand::End, DeletionTime::LIVE),
                None => {}
            }
        }
        Ok(())
    }

    /// Fills `meeting` with the sources that stand on the least position. Returns false if no source has anything left.
    fn meet(&mut self) -> bool {
        self.meeting.clear();
        for (index, source) in self.sources.iter().enumerate().filter(|(_, source)| source.item == Stand::Waiting) {
            let order = match self.meeting.first() {
                None => Ordering::Equal,
                Some(&first) => {
                    let order = compare_items(
                        table_of(&self.sources, &self.table),
                        &source.cursor.unfiltered(),
                        &self.sources[first].cursor.unfiltered(),
                    );
                    if self.reversed { order.reverse() } else { order }
                }
            };
            match order {
                Ordering::Less => {
                    self.meeting.clear();
                    self.meeting.push(index);
                }
                Ordering::Equal => self.meeting.push(index),
                Ordering::Greater => {}
            }
        }
        !self.meeting.is_empty()
    }

    /// The source whose row is newer than all others at the current position, if all of them are in stored form: then
    /// nothing of the others remains.
    fn latest_stored(&self) -> Option<usize> {
        let mut latest: Option<(i64, usize)> = None;
        let mut is_alone = true;
        for &index in &self.meeting {
            let timestamp = self.sources[index].cursor.stored()?.timestamp;
            match latest.map(|(other, _)| timestamp.cmp(&other)) {
                None | Some(Ordering::Greater) => (latest, is_alone) = (Some((timestamp, index)), true),
                Some(Ordering::Equal) => is_alone = false,
                Some(Ordering::Less) => {}
            }
        }
        latest.filter(|_| is_alone).map(|(_, index)| index)
    }

    /// Merges the rows at the current position. Returns false if nothing remains.
    fn merge_rows(&mut self) -> Result<bool, ReadError> {
        let first = self.meeting[0];
        let active = self.deletion.max(self.open);
        if active.is_live()
            && let Some(latest) = self.latest_stored()
        {
            self.current = MergedItem::OfSource(latest);
            return Ok(true);
        }
        if self.meeting.len() == 1
            && active.is_live()
            && is_row_without_deletion(&self.sources[first].cursor.unfiltered())
        {
            self.current = MergedItem::OfSource(first);
            return Ok(true);
        }
        for &index in &self.meeting {
            self.sources[index].cursor.decode()?;
        }
        let sources = &self.sources;
        let rows: Vec<Row<'_>> = self
            .meeting
            .iter()
            .filter_map(|&index| match sources[index].cursor.unfiltered() {
                Unfiltered::Row(row) => Some(row.row),
                Unfiltered::Marker(_) => None,
            })
            .collect();
        reserve(&mut self.reservation, table_of(sources, &self.table), &rows, &mut self.merger)?;
        self.row_bytes.clear();
        self.current = MergedItem::Merged(first);
        Ok(self.merger.merge(table_of(sources, &self.table), &rows, active, &mut self.row_bytes))
    }

    /// Applies the markers at the current position. Returns false if they do not change the deletion in force.
    fn merge_markers(&mut self) -> bool {
        for &index in &self.meeting {
            let source = &mut self.sources[index];
            if let Unfiltered::Marker(marker) = source.cursor.unfiltered() {
                source.open = if self.reversed { marker.before } else { marker.after };
            }
        }
        let newest = self.sources.iter().fold(DeletionTime::LIVE, |newest, source| newest.max(source.open));
        let next = if newest.supersedes(&self.deletion) { newest } else { DeletionTime::LIVE };
        let previous = std::mem::replace(&mut self.open, next);
        if previous == next {
            return false;
        }
        let (before, after) = if self.reversed { (next, previous) } else { (previous, next) };
        self.current = MergedItem::Marker { source: self.meeting[0], before, after };
        true
    }
}

/// Reserves memory for merging rows: the merger collects their remaining cells, and the merged row is a copy of those.
fn reserve(
    reservation: &mut RowReservation,
    table: &Table,
    rows: &[Row<'_>],
    merger: &mut RowMerger,
) -> Result<(), ReadError> {
    let bytes = rows.iter().map(|row| row.as_bytes().len()).sum();
    if RowReservation::is_large(bytes) {
        let left_bytes = merger.merged_bytes_max(table, rows).min(bytes);
        reservation.take(2 * left_bytes)?;
        merger.reserve(left_bytes);
    }
    Ok(())
}

/// The table that all sources read; `kept` if there is no source.
fn table_of<'s, C: UnfilteredCursor>(sources: &'s [Source<C>], kept: &'s Option<Arc<Table>>) -> &'s Arc<Table> {
    match (sources.first(), kept) {
        (Some(source), _) => source.cursor.table(),
        (None, kept) => kept.as_ref().expect("a merge of nothing keeps the table"),
    }
}

impl<C: UnfilteredCursor> Source<C> {
    fn advance_partition(&mut self) -> Result<(), ReadError> {
        self.partition = if self.cursor.advance_partition()? { Stand::Waiting } else { Stand::End };
        if self.partition == Stand::Waiting {
            self.token = self.cursor.partition().key.token();
        }
        Ok(())
    }

    /// Marks the source's partition as the current one.
    fn meet_partition(&mut self) {
        (self.partition, self.item) = (Stand::Used, Stand::Used);
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        self.item = if self.cursor.advance()? { Stand::Waiting } else { Stand::End };
        Ok(())
    }

    /// Moves to the first item at or after a position (at or before it, if the cursor is reversed), as far as the
    /// cursor can skip.
    fn pass_to(&mut self, table: &Table, reversed: bool, target: &[u8], target_weight: i8) -> Result<(), ReadError> {
        let item = self.cursor.unfiltered();
        let order = table.comparator().compare_positions(prefix(&item), weight(&item), target, target_weight);
        if (if reversed { order.is_gt() } else { order.is_lt() })
            && let Some(open) = self.cursor.pass_to(target, target_weight)?
        {
            self.open = open;
            self.advance()?;
        }
        Ok(())
    }
}

fn compare_items(table: &Table, left: &Unfiltered<'_>, right: &Unfiltered<'_>) -> Ordering {
    table.comparator().compare_positions(prefix(left), weight(left), prefix(right), weight(right))
}

/// An item's position relative to its prefix.
fn weight(item: &Unfiltered<'_>) -> i8 {
    match item {
        Unfiltered::Row(_) => 0,
        Unfiltered::Marker(marker) => marker.side.weight(),
    }
}

/// A source may have a row together with data that the row's own deletion deletes.
fn is_row_without_deletion(item: &Unfiltered<'_>) -> bool {
    matches!(item, Unfiltered::Row(row) if !row.row.has_deletion())
}

fn prefix<'u>(item: &Unfiltered<'u>) -> &'u [u8] {
    match item {
        Unfiltered::Row(row) => row.clustering,
        Unfiltered::Marker(marker) => marker.prefix,
    }
}

impl<C: UnfilteredCursor> UnfilteredCursor for MergeCursor<C> {
    fn table(&self) -> &Arc<Table> {
        table_of(&self.sources, &self.table)
    }

    fn expect_rows(&mut self, rows: usize) {
        self.sources.iter_mut().for_each(|source| source.cursor.expect_rows(rows));
    }

    fn expect_columns(&mut self, regulars: &Arc<[usize]>) {
        // The hint is for a single source only. With several, a column that one source leaves out may keep a row alive
        // which another source deletes or lets expire.
        if let [only] = self.sources.as_mut_slice() {
            only.cursor.expect_columns(regulars);
        }
    }

    fn expect_stored(&mut self) {
        self.sources.iter_mut().for_each(|source| source.cursor.expect_stored());
    }

    fn pause_after(&mut self, steps: u32) {
        self.pause_after = steps.max(1).into();
    }

    fn limit_large_rows(&mut self, limit: LargeRowLimit) {
        self.reservation.set_limit(limit);
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        self.current = MergedItem::None;
        self.open = DeletionTime::LIVE;
        self.static_row = StaticRow::None;
        let Some(first) = self.meet_partition()? else { return Ok(false) };
        let head = self.sources[first].cursor.partition();
        let (mut deletion, mut has_static_row) = (head.deletion, head.static_row.is_some());
        if !self.is_alone {
            for source in self.sources.iter().filter(|source| source.partition == Stand::Used) {
                let head = source.cursor.partition();
                deletion = deletion.max(head.deletion);
                has_static_row |= head.static_row.is_some();
            }
        }
        self.deletion = deletion;
        if has_static_row {
            self.merge_static_rows()?;
        }
        Ok(true)
    }

    fn partition(&self) -> PartitionHead<'_> {
        PartitionHead {
            key: self.sources[self.first.expect("partition() follows advance_partition() == true")]
                .cursor
                .partition()
                .key,
            deletion: self.deletion,
            static_row: match self.static_row {
                StaticRow::None => None,
                StaticRow::OfSource(index) => self.sources[index].cursor.partition().static_row,
                StaticRow::Merged => Some(Row::new(&self.static_bytes)),
            },
        }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        // A static row borrowed from a source is invalid after the source's first step.
        if let StaticRow::OfSource(index) = self.static_row {
            self.static_bytes.clear();
            if let Some(row) = self.sources[index].cursor.partition().static_row {
                self.static_bytes.extend_from_slice(row.as_bytes());
            }
            self.static_row = StaticRow::Merged;
        }
        let mut steps_left = self.pause_after;
        loop {
            self.current = MergedItem::None;
            if self.is_alone
                && let Some(first) = self.first
                && self.deletion.is_live()
                && self.open.is_live()
            {
                // Most rows are like this: no other version, and nothing that deletes them.
                let source = &mut self.sources[first];
                if source.item == Stand::Used {
                    source.advance()?;
                }
                if source.item == Stand::End {
                    return Ok(false);
                }
                if source.cursor.stored().is_some() || is_row_without_deletion(&source.cursor.unfiltered()) {
                    source.item = Stand::Used;
                    self.current = MergedItem::OfSource(first);
                    return Ok(true);
                }
            }
            for source in self.sources.iter_mut().filter(|source| source.item == Stand::Used) {
                source.advance()?;
            }
            self.pass_over_shadowed()?;
            if !self.meet() {
                return Ok(false);
            }
            let is_row = matches!(self.sources[self.meeting[0]].cursor.unfiltered(), Unfiltered::Row(_));
            let is_something = if is_row { self.merge_rows()? } else { self.merge_markers() };
            for &index in &self.meeting {
                self.sources[index].item = Stand::Used;
            }
            if is_something {
                return Ok(true);
            }
            // Every source at this position is consumed, so the next call continues after it.
            steps_left -= 1;
            if steps_left == 0 {
                return Err(ReadError::Paused);
            }
        }
    }

    fn stored(&self) -> Option<StoredRow<'_>> {
        match self.current {
            MergedItem::OfSource(index) => self.sources[index].cursor.stored(),
            _ => None,
        }
    }

    fn decode(&mut self) -> Result<(), ReadError> {
        match self.current {
            MergedItem::OfSource(index) => self.sources[index].cursor.decode(),
            _ => Ok(()),
        }
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        match &self.current {
            MergedItem::OfSource(index) => self.sources[*index].cursor.unfiltered(),
            MergedItem::Merged(index) => Unfiltered::Row(RowRef {
                clustering: prefix(&self.sources[*index].cursor.unfiltered()),
                row: Row::new(&self.row_bytes),
            }),
            MergedItem::Marker { source, before, after } => match self.sources[*source].cursor.unfiltered() {
                Unfiltered::Marker(marker) => Unfiltered::Marker(Marker { before: *before, after: *after, ..marker }),
                row => row,
            },
            MergedItem::None => panic!("unfiltered() follows advance() == true"),
        }
    }
}
