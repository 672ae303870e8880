//! The unfiltered cursor of a skip-list memtable. It reads one version of each partition, taken when it enters the
//! partition.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use model::{
    DeletionTime, KeyBound, KeyRange, Marker, PartitionHead, PartitionKey, ReadError, ReadRange, Row, RowRef, Side,
    Table, Unfiltered, UnfilteredCursor,
};
use types::Token;

use super::SkipListMemtable;
use super::version::{KeptRow, Version, side_of};
use crate::plan::Slice;
use crate::translate::translate;

pub(super) struct SkipListCursor {
    memtable: Arc<SkipListMemtable>,
    table: Arc<Table>,
    keys: KeyRange,
    reversed: bool,
    /// In reading order.
    slices: Arc<[Slice]>,
    /// The partition and its version.
    current: Option<(PartitionKey, Arc<Version>)>,
    static_row: Option<Box<[u8]>>,
    is_done: bool,
    /// The index of the current slice.
    slice: usize,
    /// The position after which to resume; `None` at the start of a slice.
    behind: Option<Box<[u8]>>,
    open: DeletionTime,
    items: VecDeque<Item>,
    item: Option<Item>,
}

enum Item {
    Row(Arc<KeptRow>),
    /// The row translated to the reader's older schema.
    Translated(Arc<KeptRow>, Box<[u8]>),
    Marker {
        prefix: Box<[u8]>,
        side: Side,
        before: DeletionTime,
        after: DeletionTime,
    },
}

/// How many rows and borders are looked up at once.
const ITEMS_AT_ONCE: usize = 64;

impl SkipListCursor {
    pub fn new(memtable: Arc<SkipListMemtable>, table: &Arc<Table>, range: &ReadRange) -> SkipListCursor {
        let slices = range.slices.as_slice().iter();
        let mut slices: Vec<Slice> =
            slices.map(|slice| Slice::of_positions(memtable.layout.newest(), slice, range.reversed)).collect();
        if range.reversed {
            slices.reverse();
        }
        SkipListCursor {
            memtable,
            table: table.clone(),
            keys: range.keys.clone(),
            reversed: range.reversed,
            slices: slices.into(),
            current: None,
            static_row: None,
            is_done: false,
            slice: 0,
            behind: None,
            open: DeletionTime::LIVE,
            items: VecDeque::new(),
            item: None,
        }
    }

    fn next_partition(&self) -> Option<(PartitionKey, Arc<Version>)> {
        match (&self.keys, &self.current) {
            (KeyRange::Single(key), None) => self.memtable.partition(key),
            (KeyRange::Single(_), Some(_)) => None,
            (KeyRange::Range { .. }, Some((last, _))) => self.memtable.partition_after(Bound::Excluded(last)),
            (KeyRange::Range { start, .. }, None) => match start {
                KeyBound::Unbounded => self.memtable.partition_after(Bound::Unbounded),
                KeyBound::Key { key, inclusive: true } => self.memtable.partition_after(Bound::Included(key)),
                KeyBound::Key { key, inclusive: false } => self.memtable.partition_after(Bound::Excluded(key)),
                // The least key of a token is the empty one.
                KeyBound::Token { token, inclusive: true } => {
                    self.memtable.partition_after(Bound::Included(&PartitionKey::with_token(*token, &[])))
                }
                KeyBound::Token { token: Token(i64::MAX), inclusive: false } => None,
                KeyBound::Token { token, inclusive: false } => {
                    self.memtable.partition_after(Bound::Included(&PartitionKey::with_token(Token(token.0 + 1), &[])))
                }
            },
        }
    }

    /// Looks up the next items of the partition. There are none at its end.
    fn refill(&mut self) {
        let Some((_, version)) = self.current.clone() else { return };
        while self.items.is_empty() && self.slice < self.slices.len() {
            let from = &self.slices[self.slice].from;
            if self.behind.is_none() {
                let now = version.open_at(&from.position, !self.reversed);
                if !now.is_live() {
                    let marker = self.marker(&from.prefix, from.side, DeletionTime::LIVE, now);
                    self.items.push_back(marker);
                }
                self.open = now;
            }
            let is_whole = self.rows_and_borders(&version);
            if is_whole {
                if !self.open.is_live() {
                    let to = &self.slices[self.slice].to;
                    let marker = self.marker(&to.prefix, to.side, self.open, DeletionTime::LIVE);
                    self.items.push_back(marker);
                }
                self.open = DeletionTime::LIVE;
                self.slice += 1;
                self.behind = None;
            }
        }
    }

    /// Adds rows and borders of the slice in reading order. Returns false if there may be more.
    fn rows_and_borders(&mut self, version: &Version) -> bool {
        let (slices, behind) = (self.slices.clone(), self.behind.take());
        let slice = &slices[self.slice];
        let from = behind.as_deref().unwrap_or(&slice.from.position);
        let (low, high) = if self.reversed { (&*slice.to.position, from) } else { (from, &*slice.to.position) };
        debug_assert!(low <= high, "a slice is read from {low:02x?} to {high:02x?}");
        let (rows, borders) = (version.rows(low, high), version.borders(low, high));
        if self.reversed { self.join(rows.rev(), borders.rev()) } else { self.join(rows, borders) }
    }

    fn join<'v>(
        &mut self,
        rows: impl Iterator<Item = (&'v Arc<[u8]>, &'v Arc<KeptRow>)>,
        borders: impl Iterator<Item = (&'v Arc<[u8]>, &'v Arc<super::version::KeptBorder>)>,
    ) -> bool {
        let (mut rows, mut borders) = (rows.peekable(), borders.peekable());
        for _ in 0..ITEMS_AT_ONCE {
            let is_row = match (rows.peek(), borders.peek()) {
                (None, None) => return true,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((row, _)), Some((border, _))) => (row < border) != self.reversed,
            };
            let position = if is_row {
                let Some((position, kept)) = rows.next() else { return true };
                let item = self.row(kept);
                self.items.push_back(item);
                position
            } else {
                let Some((position, kept)) = borders.next() else { return true };
                let now = if self.reversed { kept.border.before } else { kept.border.after };
                let marker = self.marker(&kept.prefix, side_of(position), self.open, now);
                self.items.push_back(marker);
                self.open = now;
                position
            };
            debug_assert!(
                self.behind.as_deref().is_none_or(|behind| (&**position > behind) != self.reversed),
                "items come in order",
            );
            self.behind = Some((**position).into());
        }
        false
    }

    fn row(&self, kept: &Arc<KeptRow>) -> Item {
        match self.under_reader(Row::new(&kept.row)) {
            None => Item::Row(kept.clone()),
            Some(row) => Item::Translated(kept.clone(), row),
        }
    }

    /// The row under the reader's schema, if it was written under a newer one.
    fn under_reader(&self, row: Row<'_>) -> Option<Box<[u8]>> {
        let versions = self.table.column_sets(row.is_static()).count();
        if (row.column_set_version() as usize) < versions {
            return None;
        }
        let mut out = Vec::new();
        translate(row, &self.memtable.newest(&self.table), &self.table, &mut out);
        Some(out.into())
    }

    fn marker(&self, prefix: &[u8], side: Side, said: DeletionTime, now: DeletionTime) -> Item {
        debug_assert!(said != now, "a marker changes the deletion that is in force");
        let (before, after) = if self.reversed { (now, said) } else { (said, now) };
        Item::Marker { prefix: prefix.into(), side, before, after }
    }
}

impl UnfilteredCursor for SkipListCursor {
    fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        if self.is_done {
            return Ok(false);
        }
        let next = self.next_partition().filter(|(key, _)| self.keys.contains(key));
        let Some((key, version)) = next else {
            self.is_done = true;
            return Ok(false);
        };
        debug_assert!(self.current.as_ref().is_none_or(|(last, _)| *last < key), "partitions come in token order");
        let static_row = version.static_row.as_deref();
        self.static_row = static_row.map(|row| self.under_reader(Row::new(row)).unwrap_or_else(|| row.into()));
        self.current = Some((key, version));
        (self.slice, self.behind, self.open) = (0, None, DeletionTime::LIVE);
        self.items.clear();
        self.item = None;
        Ok(true)
    }

    fn partition(&self) -> PartitionHead<'_> {
        let (key, version) = self.current.as_ref().expect("partition() follows advance_partition() == true");
        PartitionHead { key, deletion: version.deletion, static_row: self.static_row.as_deref().map(Row::new) }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        if self.is_done {
            return Ok(false);
        }
        if self.items.is_empty() {
            self.refill();
        }
        self.item = self.items.pop_front();
        Ok(self.item.is_some())
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        match self.item.as_ref().expect("unfiltered() follows advance() == true") {
            Item::Row(kept) => Unfiltered::Row(RowRef { clustering: &kept.clustering, row: Row::new(&kept.row) }),
            Item::Translated(kept, row) => Unfiltered::Row(RowRef { clustering: &kept.clustering, row: Row::new(row) }),
            Item::Marker { prefix, side, before, after } => {
                Unfiltered::Marker(Marker { prefix, side: *side, before: *before, after: *after })
            }
        }
    }
}
