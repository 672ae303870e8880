//! Moving a cursor from partition to partition: to a single one, or through all from a position on in file order.

use std::mem;

use model::{DeletionTime, KeyBound, KeyRange, PartitionKey};
use types::murmur3;

use super::cursor::{Current, WALK_BYTES};
use super::{DataWindow, Located, ReadMode, SSTableCursor, SSTableReader};
use crate::data::read_partition_deletion;
use crate::error::{Corruption, SSTableError};
use crate::row_index::{BlockCursor, RowIndexEntry};

/// The partitions still to be read.
pub(super) enum Plan {
    /// One partition that was not looked up yet.
    Single(PartitionKey),
    /// Those from a data position on, up to a bound.
    From {
        position: u64,
        end: KeyBound,
    },
    Done,
}

impl Plan {
    /// The plan for a range of keys.
    pub fn of(reader: &SSTableReader, keys: &KeyRange, mode: ReadMode) -> Result<Plan, SSTableError> {
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
        let mut entries = files.partitions.entries(mode.may_block())?;
        let Some(place) = entries.at_or_after(&encoded)? else { return Ok(Plan::Done) };
        let position = files.data_position(place, mode.may_block())?;
        // The candidate may be the last one before the bound.
        let mut window = DataWindow::new(files.data.clone(), ReadMode::Cached { may_block: mode.may_block() });
        let key = window.decode(position, |input| Ok(PartitionKey::new(input.short_bytes("partition key")?)))?;
        let from = KeyRange::Range { start: start.clone(), end: KeyBound::Unbounded };
        if from.contains(&key) {
            return Ok(Plan::From { position, end: end.clone() });
        }
        match entries.next()? {
            None => Ok(Plan::Done),
            Some(place) => Ok(Plan::From { position: files.data_position(place, mode.may_block())?, end: end.clone() }),
        }
    }
}

/// The current partition of a cursor.
pub(super) struct Partition {
    pub key: PartitionKey,
    pub deletion: DeletionTime,
    /// Data position of the partition.
    pub start: u64,
    /// The data position of the first row or marker; `None` if the head was not read because the index sufficed.
    pub rows_start: Option<u64>,
    pub index: Option<RowIndexEntry>,
    /// Whether the row index was looked up, if there is one.
    pub index_sought: bool,
    pub static_row: Vec<u8>,
    pub has_static_row: bool,
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

    /// Replaces the previous partition, whose key was already replaced.
    fn become_next(&mut self, deletion: DeletionTime, start: u64, rows_start: u64) {
        (self.deletion, self.start, self.rows_start) = (deletion, start, Some(rows_start));
        (self.index, self.index_sought, self.has_static_row) = (None, false, false);
    }
}

impl SSTableCursor {
    /// Enters the partition at a data position, whatever the previous state. Returns false after the data. For whole
    /// tables, forward.
    pub(crate) fn enter_partition_at(&mut self, position: u64) -> Result<bool, SSTableError> {
        self.partition = None;
        self.plan = Plan::From { position, end: KeyBound::Unbounded };
        self.try_advance_partition()
    }

    pub(super) fn try_advance_partition(&mut self) -> Result<bool, SSTableError> {
        self.current = Current::None;
        if let Plan::From { position, .. } = self.plan {
            let entered = self.enter_next(position);
            if !matches!(entered, Ok(true)) {
                self.plan = Plan::Done;
            }
            return entered;
        }
        match mem::replace(&mut self.plan, Plan::Done) {
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
            // The record contains everything in the head of the partition.
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

    /// Enters the next partition in file order, if it is before the end bound; the first one is at `position`.
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

    /// Reads the key and deletion of the partition at a data position, and makes it the current one. Returns where it
    /// continues. The key replaces the previous one in place.
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

    /// Reads the key and deletion of the partition at a data position, and where that continues. `expected` is reused
    /// as the key if it is equal.
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

    /// Reads the static row of the entered partition, if the file has static columns.
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
            mem::swap(&mut partition.static_row, &mut self.row);
            partition.rows_start = Some(rows_start + head.length() as u64);
        }
        Ok(())
    }

    /// Moves to the first row or marker of the entered partition.
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

    /// The end of the current partition, which is the data position of the next one.
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

    /// The data position after the current partition, from its row index.
    fn indexed_end(&self) -> Result<Option<u64>, SSTableError> {
        let Some(Partition { start, index: Some(entry), .. }) = &self.partition else { return Ok(None) };
        let end = BlockCursor::new(self.reader.files().rows.pages(self.window.may_block()), entry.root)?.end()?;
        Ok(end.map(|end| start.saturating_add(end.offset).saturating_add(1)))
    }

    /// Looks up the row index of the current partition, once. Returns true if that found one.
    pub(super) fn seek_row_index(&mut self) -> Result<bool, SSTableError> {
        let Self { partition: Some(partition), reader, window, .. } = self else { return Ok(false) };
        if mem::replace(&mut partition.index_sought, true) {
            return Ok(false);
        }
        let index = reader.row_index(&partition.key, window.may_block())?;
        partition.index = index.filter(|entry| entry.data_position == partition.start);
        Ok(partition.index.is_some())
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
