//! The cursor over an open table: partitions by index or in file order, slices of rows forward.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use blockio::ReadAhead;
use model::{
    ClusteringBound, DeletionTime, KeyBound, KeyRange, Marker, PartitionHead, PartitionKey, ReadError, ReadRange, Row,
    RowBuilder, RowRef, Side, Slices, StoredRow, Table, Unfiltered, UnfilteredCursor,
};

use types::murmur3;

use super::stored::Stored;
use super::waypoints::Trail;
use super::{DataWindow, Located, ReadMode, SSTableReader};
use crate::data::{UnfilteredHead, Wanted, read_partition_deletion};
use crate::error::{Corruption, SSTableError};
use crate::row_index::{Block, BlockCursor, RowIndexEntry, encode_position};

/// Bytes of rows that are passed over one by one before the row index is asked where to go on: an index block of the default size.
pub(super) const WALK_BYTES: u64 = 16 * 1024;

/// Which partitions are still to come.
enum Plan {
    /// One partition, not looked for yet.
    Single(PartitionKey),
    /// Those from a data position on, up to a bound.
    From {
        position: u64,
        end: KeyBound,
    },
    Done,
}

/// What `unfiltered` answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Current {
    None,
    Row,
    /// A row that is not decoded.
    Stored(Stored),
    /// A marker of the file.
    Marker {
        side: Side,
        before: DeletionTime,
        after: DeletionTime,
    },
    /// The start (`true`) or end of a slice, where a range deletion is cut.
    SliceBorder {
        slice: usize,
        start: bool,
        before: DeletionTime,
        after: DeletionTime,
    },
}

/// The partition that the cursor stands in.
pub(super) struct Partition {
    pub key: PartitionKey,
    pub deletion: DeletionTime,
    /// Data position of the partition.
    pub start: u64,
    /// Data position of the first row or marker; none where the head was not read (the index told enough).
    pub rows_start: Option<u64>,
    pub index: Option<RowIndexEntry>,
    /// Whether the index is known, if there is one.
    pub index_sought: bool,
    static_row: Vec<u8>,
    has_static_row: bool,
}

impl Partition {
    fn new(key: PartitionKey, deletion: DeletionTime, start: u64, rows_start: u64) -> Partition {
        Partition {
            key,
            deletion,
            start,
            rows_start: Some(rows_start),
            index: None,
            index_sought: false,
            static_row: Vec::new(),
            has_static_row: false,
        }
    }

    /// Takes the place of the partition before, of which the key was replaced already.
    fn become_next(&mut self, deletion: DeletionTime, start: u64, rows_start: u64) {
        (self.deletion, self.start, self.rows_start) = (deletion, start, Some(rows_start));
        (self.index, self.index_sought, self.has_static_row) = (None, false, false);
    }
}

/// A cursor over a table's partitions and rows. Owns what it needs; may outlive the reader it came from.
pub struct SSTableCursor {
    pub(super) reader: SSTableReader,
    pub(super) window: DataWindow,
    plan: Plan,
    pub(super) slices: Slices,
    pub(super) unbounded: bool,
    reversed: bool,
    pub(super) partition: Option<Partition>,
    /// Data position of the next unfiltered.
    pub(super) position: u64,
    /// Data position of the unfiltered yielded last.
    pub(super) item: u64,
    /// The unfiltered at `position`, if its head was read into `clustering` already.
    pub(super) peeked: Option<UnfilteredHead>,
    /// Whether `position` is the end of the partition.
    pub(super) at_end: bool,
    pub(super) slice: usize,
    pub(super) slice_begun: bool,
    /// Whether something of the current slice was yielded.
    pub(super) entered: bool,
    /// The range deletion in force at `position`.
    pub(super) open: DeletionTime,
    /// Of a reversed read: where the unfiltered lies that comes next, below; none at the start of the partition.
    pub(super) below: Option<Range<u64>>,
    pub(super) trail: Trail,
    /// The places in the file of the regular columns that are looked at, if the reader said so.
    wanted: Option<Vec<usize>>,
    /// Whether rows are left as they are stored, where they may.
    leaves_stored: bool,
    builder: RowBuilder,
    pub(super) clustering: Vec<u8>,
    row: Vec<u8>,
    pub(super) current: Current,
}

impl SSTableCursor {
    pub(super) fn open(reader: SSTableReader, range: &ReadRange, mode: ReadMode) -> Result<Self, SSTableError> {
        let window = DataWindow::new(reader.files().data.clone(), mode);
        reader.check_columns()?;
        let plan = plan(&reader, &range.keys)?;
        Ok(SSTableCursor {
            window,
            reader,
            plan,
            unbounded: range.slices.is_all(),
            slices: range.slices.clone(),
            reversed: range.reversed,
            partition: None,
            position: 0,
            item: 0,
            peeked: None,
            at_end: true,
            slice: 0,
            slice_begun: false,
            entered: false,
            open: DeletionTime::LIVE,
            below: None,
            trail: Trail::default(),
            wanted: None,
            leaves_stored: false,
            builder: RowBuilder::default(),
            clustering: Vec::new(),
            row: Vec::new(),
            current: Current::None,
        })
    }

    /// Reads by `reader`, where nothing was read yet.
    pub(super) fn read_by(&mut self, reader: ReadAhead) {
        self.window.read_by(reader);
    }

    /// Data position of the current partition.
    pub(crate) fn partition_position(&self) -> u64 {
        self.partition.as_ref().map_or(0, |partition| partition.start)
    }

    /// Data position of the current partition's first row or marker, or its end.
    pub(crate) fn rows_position(&self) -> u64 {
        self.partition.as_ref().map_or(0, |partition| partition.rows_start.unwrap_or(partition.start))
    }

    /// Data position of the current row or marker, in forward order.
    pub(crate) fn item_position(&self) -> u64 {
        self.item
    }

    /// Data position behind the current row or marker; at the end of a partition that of its last byte.
    pub(crate) fn next_position(&self) -> u64 {
        self.position
    }

    /// The range deletion in force behind what was yielded last.
    pub(crate) fn open_deletion(&self) -> DeletionTime {
        self.open
    }

    /// Enters the partition at a data position, whatever was before; false behind the data. For whole tables forward.
    pub(crate) fn enter_partition_at(&mut self, position: u64) -> Result<bool, SSTableError> {
        self.partition = None;
        self.plan = Plan::From { position, end: KeyBound::Unbounded };
        self.try_advance_partition()
    }

    /// Goes on at the start of a block of the current partition.
    pub(crate) fn resume_at(&mut self, block: Block) {
        let Some(partition) = &self.partition else { return };
        self.position = partition.start.saturating_add(block.offset);
        self.peeked = None;
        self.at_end = false;
        self.open = block.open;
    }

    fn try_advance_partition(&mut self) -> Result<bool, SSTableError> {
        self.current = Current::None;
        if let Plan::From { position, .. } = self.plan {
            let entered = self.enter_next(position);
            if !matches!(entered, Ok(true)) {
                self.plan = Plan::Done;
            }
            return entered;
        }
        match std::mem::replace(&mut self.plan, Plan::Done) {
            Plan::Single(key) => match self.reader.clone().locate(&key, &mut self.window)? {
                None => Ok(false),
                Some(located) => self.enter_located(key, located).map(|()| true),
            },
            Plan::From { .. } | Plan::Done => {
                self.partition = None;
                Ok(false)
            }
        }
    }

    /// Enters a partition that the index found.
    fn enter_located(&mut self, key: PartitionKey, located: Located) -> Result<(), SSTableError> {
        let has_statics = !self.reader.files().statistics.header.statics.is_empty();
        let Located { data_position, index } = located;
        if let Some(entry) = &index
            && !has_statics
            && !self.unbounded
        {
            // The record holds all that the head of the partition would tell.
            let deletion = entry.deletion;
            self.partition = Some(Partition {
                index,
                index_sought: true,
                rows_start: None,
                ..Partition::new(key, deletion, data_position, data_position)
            });
            self.begin();
            return Ok(());
        }
        let (found, deletion, rows_start) = self.read_key(data_position, Some(&key))?;
        if found != key {
            let name = &self.window.data().name;
            return Err(
                Corruption::new(name, data_position, "the partition that the index names", "another key").into()
            );
        }
        self.partition = Some(Partition::new(key, deletion, data_position, rows_start));
        self.read_static_row(rows_start)?;
        if let Some(partition) = &mut self.partition {
            (partition.index, partition.index_sought) = (index, true);
        }
        self.begin();
        Ok(())
    }

    /// Enters the next partition in file order, if it lies before the end bound; the one at `position` if that is the first.
    fn enter_next(&mut self, position: u64) -> Result<bool, SSTableError> {
        let position = if self.partition.is_some() { self.partition_end()? } else { position };
        if position >= self.reader.files().data.length {
            self.partition = None;
            return Ok(false);
        }
        let rows_start = self.read_next(position)?;
        if let (Plan::From { end, .. }, Some(partition)) = (&self.plan, &self.partition)
            && !is_before(end, &partition.key)
        {
            self.partition = None;
            return Ok(false);
        }
        self.read_static_row(rows_start)?;
        if (!self.unbounded || self.reversed)
            && let Some(partition) = &mut self.partition
        {
            let located = self.reader.clone().locate(&partition.key, &mut self.window)?;
            partition.index = located.and_then(|located| located.index);
            partition.index_sought = true;
        }
        self.begin();
        Ok(true)
    }

    /// Reads key and deletion of the partition at a data position, behind the current one if there is one, and makes it the current one; where
    /// it goes on. Its key takes the place of the one before: it is not moved.
    fn read_next(&mut self, position: u64) -> Result<u64, SSTableError> {
        if self.partition.is_none() {
            let (key, deletion, rows_start) = self.read_key(position, None)?;
            self.partition = Some(Partition::new(key, deletion, position, rows_start));
            return Ok(rows_start);
        }
        let version = self.reader.files().descriptor.version;
        let Self { window, partition: Some(partition), .. } = self else { return Ok(position) };
        let (deletion, rows_start, is_behind) = window.decode(position, |input| {
            let stored = input.short_bytes("partition key")?;
            let deletion = read_partition_deletion(version, input)?;
            let token = murmur3::token(stored);
            let is_behind = (partition.key.token(), partition.key.bytes()) < (token, stored);
            if is_behind {
                partition.key.replace(token, stored);
            }
            Ok((deletion, input.offset(), is_behind))
        })?;
        if !is_behind {
            let name = &window.data().name;
            return Err(Corruption::new(name, position, "partitions in token order", "a partition out of order").into());
        }
        partition.become_next(deletion, position, rows_start);
        Ok(rows_start)
    }

    /// Reads key and deletion of the partition at a data position, and where that goes on. `expected` is taken for the key if it is that
    /// one.
    fn read_key(
        &mut self,
        position: u64,
        expected: Option<&PartitionKey>,
    ) -> Result<(PartitionKey, DeletionTime, u64), SSTableError> {
        let version = self.reader.files().descriptor.version;
        self.window.decode(position, |input| {
            let stored = input.short_bytes("partition key")?;
            let deletion = read_partition_deletion(version, input)?;
            let expected = expected.filter(|key| key.bytes() == stored);
            let key = expected.cloned().unwrap_or_else(|| PartitionKey::new(stored));
            Ok((key, deletion, input.offset()))
        })
    }

    /// Reads the static row of the partition that was entered, if the file has such.
    fn read_static_row(&mut self, rows_start: u64) -> Result<(), SSTableError> {
        if self.reader.files().statistics.header.statics.is_empty() {
            return Ok(());
        }
        let head = self.read_head(rows_start)?;
        if head.extended & crate::data::extended::IS_STATIC == 0 {
            return Err(Corruption::new(&self.window.data().name, rows_start, "a static row", "another row").into());
        }
        let has_static_row = self.decode_row(rows_start, &head, true)?;
        if let Some(partition) = &mut self.partition {
            partition.has_static_row = has_static_row;
            std::mem::swap(&mut partition.static_row, &mut self.row);
            partition.rows_start = Some(rows_start + head.length() as u64);
        }
        Ok(())
    }

    /// Goes to the first row or marker of the partition that was entered.
    fn begin(&mut self) {
        let Some(partition) = &self.partition else { return };
        self.position = partition.rows_start.unwrap_or(partition.start);
        self.peeked = None;
        self.at_end = false;
        self.slice = 0;
        self.slice_begun = false;
        self.entered = false;
        self.open = DeletionTime::LIVE;
        self.below = None;
        if self.reversed {
            self.slice = self.slices.as_slice().len();
        }
    }

    /// Reads the head of the unfiltered at a data position; its clustering goes into `clustering`.
    pub(super) fn read_head(&mut self, position: u64) -> Result<UnfilteredHead, SSTableError> {
        let Self { window, reader, clustering, .. } = self;
        let decoder = reader.decoder();
        let head = window.decode(position, |input| decoder.head(input, clustering))?;
        let data = window.data();
        if position + head.length() as u64 > data.length {
            let got = format!("the end of the data at {}", data.length);
            return Err(Corruption::new(&data.name, position, format!("a row of {} bytes", head.length()), got).into());
        }
        Ok(head)
    }

    /// Decodes the row at a data position into `row`; false if it holds nothing.
    pub(super) fn decode_row(
        &mut self,
        position: u64,
        head: &UnfilteredHead,
        is_static: bool,
    ) -> Result<bool, SSTableError> {
        let Self { window, reader, builder, row, partition, open, wanted, .. } = self;
        if is_static != (head.extended & crate::data::extended::IS_STATIC != 0) {
            let name = &window.data().name;
            return Err(
                Corruption::new(name, position, "a static row only before all others", "one among the rows").into()
            );
        }
        let decoder = reader.decoder();
        let start = position + head.head_length as u64;
        let deletion = partition.as_ref().map_or(DeletionTime::LIVE, |partition| partition.deletion);
        let wanted = wanted.as_ref().map(|places| Wanted { places, active: deletion.max(*open) });
        let is_done = window.decode_sized(start, head.body_length, |input| {
            if wanted.is_none() && !is_static && decoder.plain_row(head, &mut input.clone(), row)? {
                return Ok(true);
            }
            decoder.row(head, input, wanted.as_ref(), builder).map(|()| false)
        })?;
        if is_done {
            return Ok(true);
        }
        row.clear();
        if builder.is_empty() {
            return Ok(false);
        }
        builder.finish(row);
        Ok(true)
    }

    /// The deletions before and after the marker at a data position.
    pub(super) fn decode_marker(
        &mut self,
        position: u64,
        head: &UnfilteredHead,
    ) -> Result<(DeletionTime, DeletionTime), SSTableError> {
        let Self { window, reader, .. } = self;
        let decoder = reader.decoder();
        let start = position + head.head_length as u64;
        window.decode_sized(start, head.body_length, |input| decoder.marker(head, input))
    }

    /// Where the current partition ends: the data position of the next one.
    fn partition_end(&mut self) -> Result<u64, SSTableError> {
        let Some(partition) = &self.partition else { return Ok(self.position) };
        if (self.reversed || !self.at_end)
            && let Some(end) = self.indexed_end()?
        {
            return Ok(end);
        }
        if self.reversed {
            self.position = partition.rows_start.unwrap_or(partition.start);
            self.peeked = None;
            self.at_end = false;
        }
        let from = self.position;
        while !self.at_end {
            if self.position - from > WALK_BYTES
                && self.seek_row_index()?
                && let Some(end) = self.indexed_end()?
            {
                return Ok(end);
            }
            self.peek()?;
            if let Some(head) = self.peeked.take() {
                self.position += head.length() as u64;
            }
        }
        Ok(self.position + 1)
    }

    /// The data position behind the current partition, as its row index says.
    fn indexed_end(&self) -> Result<Option<u64>, SSTableError> {
        let Some(Partition { start, index: Some(entry), .. }) = &self.partition else { return Ok(None) };
        let end = BlockCursor::new(&*self.reader.files().rows, entry.root)?.end()?;
        Ok(end.map(|end| start.saturating_add(end.offset).saturating_add(1)))
    }

    /// Looks for the row index of the current partition, once; true if that found one.
    pub(super) fn seek_row_index(&mut self) -> Result<bool, SSTableError> {
        let Self { partition: Some(partition), reader, .. } = self else { return Ok(false) };
        if std::mem::replace(&mut partition.index_sought, true) {
            return Ok(false);
        }
        partition.index = reader.row_index(&partition.key)?.filter(|entry| entry.data_position == partition.start);
        Ok(partition.index.is_some())
    }

    /// Reads the head at `position` unless that was done; notes the end of the partition.
    fn peek(&mut self) -> Result<(), SSTableError> {
        if self.peeked.is_none() && !self.at_end {
            let head = self.read_head(self.position)?;
            if head.is_end() {
                self.at_end = true;
            } else {
                self.peeked = Some(head);
            }
        }
        Ok(())
    }

    /// Compares the unfiltered whose head was read last with a bound.
    pub(super) fn compare(&self, head: &UnfilteredHead, bound: &ClusteringBound) -> Ordering {
        let weight = if bound.side == Side::Before { -1 } else { 1 };
        let comparator = self.reader.table().comparator();
        comparator.compare_positions(&self.clustering, head.weight(), &bound.prefix, weight)
    }

    /// Moves to where the current slice may start, by the row index if that leads further.
    fn begin_slice(&mut self) -> Result<(), SSTableError> {
        self.slice_begun = true;
        let (Some(partition), Some(slice)) = (&self.partition, self.slices.as_slice().get(self.slice)) else {
            return Ok(());
        };
        if partition.index.is_none() {
            return Ok(());
        }
        let (start, has_head) = (partition.start, partition.rows_start.is_some());
        let weight = if slice.start.side == Side::Before { -1 } else { 1 };
        let mut block = self.block_of(&slice.start.prefix, weight)?;
        let block_start = start.saturating_add(block.offset);
        let mut leads_on = block_start > self.position || !has_head && self.slice == 0;
        if self.window.is_cached() {
            self.trail.begin(self.window.data(), block_start);
            let comparator = self.reader.table().comparator();
            if let Some((position, open)) = self.trail.nearest(comparator, &slice.start.prefix, weight)
                && (leads_on || position > self.position)
            {
                block = Block { offset: position - start, open };
                leads_on = true;
            }
        }
        if leads_on {
            self.resume_at(block);
        }
        Ok(())
    }

    /// The block of the current partition that a position falls into.
    fn block_of(&self, prefix: &[u8], weight: i8) -> Result<Block, SSTableError> {
        let bottom = Block { offset: 0, open: DeletionTime::LIVE };
        let Some(Partition { index: Some(entry), .. }) = &self.partition else { return Ok(bottom) };
        let mut blocks = BlockCursor::new(&*self.reader.files().rows, entry.root)?;
        let mut encoded = Vec::new();
        encode_position(self.reader.clustering_types(), prefix, weight, &mut encoded);
        match blocks.floor(&encoded)? {
            Some(block) => Ok(block),
            None => Ok(blocks.first()?.unwrap_or(bottom)),
        }
    }

    /// What [`UnfilteredCursor::pass_to`] does. Bodies are not decoded; behind the first blocks the row index leads on. The end of
    /// a slice is not passed: its border comes next.
    fn try_pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, SSTableError> {
        if self.reversed {
            return self.pass_down_to(prefix, weight);
        }
        if !self.unbounded && !self.entered {
            return Ok(None);
        }
        self.current = Current::None;
        let from = self.position;
        let mut sought = false;
        loop {
            self.peek()?;
            let Some(head) = self.peeked else { break };
            let comparator = self.reader.table().comparator();
            if comparator.compare_positions(&self.clustering, head.weight(), prefix, weight).is_ge()
                || !self.unbounded && self.compare(&head, &self.slices.as_slice()[self.slice].end).is_ge()
            {
                break;
            }
            if !sought && self.position - from > WALK_BYTES {
                sought = true;
                self.seek_row_index()?;
                self.seek(prefix, weight)?;
                continue;
            }
            self.pass_over(&head)?;
        }
        Ok(Some(self.open))
    }

    /// Goes to the block of the current partition that a position falls into, if that leads further.
    fn seek(&mut self, prefix: &[u8], weight: i8) -> Result<(), SSTableError> {
        let block = self.block_of(prefix, weight)?;
        let start = self.partition.as_ref().map_or(0, |partition| partition.start);
        if start.saturating_add(block.offset) > self.position {
            self.resume_at(block);
        }
        Ok(())
    }

    pub(crate) fn try_advance(&mut self) -> Result<bool, SSTableError> {
        if self.partition.is_none() {
            return Ok(false);
        }
        if self.reversed {
            return self.advance_reversed();
        }
        loop {
            if self.slice >= self.slices.as_slice().len() {
                self.current = Current::None;
                return Ok(false);
            }
            if !self.slice_begun && !self.unbounded {
                self.begin_slice()?;
            }
            if self.leaves_stored && self.unbounded && self.leave_stored() {
                return Ok(true);
            }
            self.peek()?;
            let Some(head) = self.peeked else {
                if self.leave_slice() {
                    return Ok(true);
                }
                continue;
            };
            if !self.unbounded {
                let slice = &self.slices.as_slice()[self.slice];
                if !self.entered && self.compare(&head, &slice.start) != Ordering::Greater {
                    self.trail.pass(self.position, self.open, &self.clustering, head.weight());
                    self.pass_over(&head)?;
                    continue;
                }
                if self.compare(&head, &slice.end) != Ordering::Less {
                    if self.leave_slice() {
                        return Ok(true);
                    }
                    continue;
                }
                if self.enter_slice() {
                    return Ok(true);
                }
            }
            if self.yield_peeked(&head)? {
                return Ok(true);
            }
        }
    }

    /// Leaves out an unfiltered before the slice; the range deletion it may open is remembered.
    fn pass_over(&mut self, head: &UnfilteredHead) -> Result<(), SSTableError> {
        if head.is_marker() {
            self.open = self.decode_marker(self.position, head)?.1;
        }
        self.position += head.length() as u64;
        self.peeked = None;
        Ok(())
    }

    /// Begins to yield from the current slice; true if that starts with a border to be yielded first.
    fn enter_slice(&mut self) -> bool {
        if std::mem::replace(&mut self.entered, true) {
            return false;
        }
        self.trail.end(self.window.data());
        if self.open.is_live() {
            return false;
        }
        self.current =
            Current::SliceBorder { slice: self.slice, start: true, before: DeletionTime::LIVE, after: self.open };
        true
    }

    /// Goes to the next slice; true if the current one has a border to be yielded first.
    fn leave_slice(&mut self) -> bool {
        if !self.unbounded && self.enter_slice() {
            return true;
        }
        let left = self.slice;
        self.slice += 1;
        self.slice_begun = false;
        self.entered = false;
        if self.unbounded || self.open.is_live() {
            return false;
        }
        self.current = Current::SliceBorder { slice: left, start: false, before: self.open, after: DeletionTime::LIVE };
        true
    }

    /// Makes the peeked unfiltered the current one; false if it is a row without content.
    fn yield_peeked(&mut self, head: &UnfilteredHead) -> Result<bool, SSTableError> {
        let position = self.position;
        self.item = position;
        self.peeked = None;
        if head.is_marker() {
            let (before, after) = self.decode_marker(position, head)?;
            if before != self.open {
                let name = &self.window.data().name;
                let (expected, got) = (format!("a marker that closes {:?}", self.open), format!("{before:?}"));
                return Err(Corruption::new(name, position, expected, got).into());
            }
            self.open = after;
            self.current = Current::Marker { side: head.side(), before, after };
        } else if self.leaves_stored
            && let Some(stored) = self.stored_row(position, head)?
        {
            self.current = Current::Stored(stored);
        } else if self.decode_row(position, head, false)? {
            self.current = Current::Row;
        } else {
            self.position += head.length() as u64;
            return Ok(false);
        }
        self.position += head.length() as u64;
        Ok(true)
    }
}

/// Whether a key lies within an upper bound.
fn is_before(end: &KeyBound, key: &PartitionKey) -> bool {
    match end {
        KeyBound::Unbounded => true,
        KeyBound::Token { token, inclusive } => key.token() < *token || key.token() == *token && *inclusive,
        KeyBound::Key { key: bound, inclusive } => key < bound || key == bound && *inclusive,
    }
}

fn plan(reader: &SSTableReader, keys: &KeyRange) -> Result<Plan, SSTableError> {
    let (start, end) = match keys {
        KeyRange::Single(key) => return Ok(Plan::Single(key.clone())),
        KeyRange::Range { start, end } => (start, end),
    };
    let mut encoded = Vec::new();
    match start {
        KeyBound::Unbounded => return Ok(Plan::From { position: 0, end: end.clone() }),
        KeyBound::Token { token, inclusive } => {
            let side = if *inclusive { bytecomp::Side::Before } else { bytecomp::Side::After };
            bytecomp::encode_token_bound(*token, side, &mut encoded);
        }
        KeyBound::Key { key, inclusive } => {
            let side = if *inclusive { bytecomp::Side::Before } else { bytecomp::Side::After };
            bytecomp::encode_key_bound(key.token(), key.bytes(), side, &mut encoded);
        }
    }
    let files = reader.files();
    let mut entries = files.partitions.entries()?;
    let Some(place) = entries.at_or_after(&encoded)? else { return Ok(Plan::Done) };
    let position = files.data_position(place)?;
    // The candidate may be the last one before the bound.
    let mut window = DataWindow::new(files.data.clone(), ReadMode::Cached);
    let key = window.decode(position, |input| Ok(PartitionKey::new(input.short_bytes("partition key")?)))?;
    let from = KeyRange::Range { start: start.clone(), end: KeyBound::Unbounded };
    if from.contains(&key) {
        return Ok(Plan::From { position, end: end.clone() });
    }
    match entries.next()? {
        None => Ok(Plan::Done),
        Some(place) => Ok(Plan::From { position: files.data_position(place)?, end: end.clone() }),
    }
}

impl UnfilteredCursor for SSTableCursor {
    fn table(&self) -> &Arc<Table> {
        self.reader.table()
    }

    fn expect_columns(&mut self, regulars: &Arc<[usize]>) {
        self.wanted = Some(self.reader.decoder().columns.places_of(regulars));
    }

    fn expect_stored(&mut self) {
        let are_alike = self.reader.decoder().columns.are_alike;
        self.leaves_stored = self.wanted.is_none() && !self.reversed && are_alike;
    }

    #[inline]
    fn stored(&self) -> Option<StoredRow<'_>> {
        self.current_stored()
    }

    fn decode(&mut self) -> Result<(), ReadError> {
        if let Current::Stored(stored) = self.current {
            let decoded = self.decode_row(self.item, &stored.head, false);
            decoded.map_err(|error| self.reader.met(error))?;
            self.current = Current::Row;
        }
        Ok(())
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        Ok(self.try_advance_partition().map_err(|error| self.reader.met(error))?)
    }

    #[inline]
    fn partition(&self) -> PartitionHead<'_> {
        let partition = self.partition.as_ref().expect("partition() follows advance_partition() == true");
        PartitionHead {
            key: &partition.key,
            deletion: partition.deletion,
            static_row: partition.has_static_row.then(|| Row::new(&partition.static_row)),
        }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        Ok(self.try_advance().map_err(|error| self.reader.met(error))?)
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        match self.current {
            Current::None => panic!("unfiltered() follows advance() == true"),
            Current::Row => Unfiltered::Row(RowRef { clustering: &self.clustering, row: Row::new(&self.row) }),
            Current::Stored(_) => Unfiltered::Row(RowRef { clustering: &self.clustering, row: Row::new(&[]) }),
            Current::Marker { side, before, after } => {
                Unfiltered::Marker(Marker { prefix: &self.clustering, side, before, after })
            }
            Current::SliceBorder { slice, start, before, after } => {
                let slice = &self.slices.as_slice()[slice];
                let bound = if start { &slice.start } else { &slice.end };
                Unfiltered::Marker(Marker { prefix: &bound.prefix, side: bound.side, before, after })
            }
        }
    }

    fn max_timestamp(&self) -> i64 {
        self.reader.statistics().stats.max_timestamp
    }

    fn pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        Ok(self.try_pass_to(prefix, weight).map_err(|error| self.reader.met(error))?)
    }
}
