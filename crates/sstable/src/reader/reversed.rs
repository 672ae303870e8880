//! Slices of rows in reversed order: the last unfiltered of a slice is found in its block, and the ones before it by the
//! size that each keeps of the one before.

use std::cmp::Ordering;

use model::{ClusteringBound, DeletionTime, Side};

use super::SSTableCursor;
use super::cursor::Current;
use crate::data::UnfilteredHead;
use crate::error::{Corruption, SSTableError};
use crate::row_index::{Block, BlockCursor, encode_position};

impl SSTableCursor {
    /// Slices are counted down: `slice` is one above the current one.
    pub(super) fn advance_reversed(&mut self) -> Result<bool, SSTableError> {
        loop {
            let Some(index) = self.slice.checked_sub(1) else {
                self.current = Current::None;
                return Ok(false);
            };
            if !self.slice_begun {
                self.slice_begun = true;
                self.begin_slice_reversed(index)?;
                if !self.open.is_live() {
                    self.current = Current::SliceBorder {
                        slice: index,
                        start: false,
                        before: self.open,
                        after: DeletionTime::LIVE,
                    };
                    return Ok(true);
                }
            }
            let Some(below) = self.below.clone() else {
                if self.leave_slice_reversed(index) {
                    return Ok(true);
                }
                continue;
            };
            let position = below.start;
            let head = self.read_head(position)?;
            if head.is_end() || position + head.length() as u64 != below.end {
                let (name, length) = (&self.window.data().name, below.end - position);
                let expected = format!("an unfiltered of {length} bytes, as the next one says");
                return Err(Corruption::new(name, position, expected, format!("one of {}", head.length())).into());
            }
            let start = &self.slices.as_slice()[index].start;
            if !self.unbounded && self.compare(&head, start) != Ordering::Greater {
                if self.leave_slice_reversed(index) {
                    return Ok(true);
                }
                continue;
            }
            self.step_down(position, &head)?;
            if head.is_marker() {
                let (before, after) = self.decode_marker(position, &head)?;
                if after != self.open {
                    let name = &self.window.data().name;
                    let (expected, got) = (format!("a marker that opens {:?}", self.open), format!("{after:?}"));
                    return Err(Corruption::new(name, position, expected, got).into());
                }
                self.open = before;
                self.current = Current::Marker { side: head.side(), before, after };
                return Ok(true);
            }
            if self.decode_row(position, &head, false)? {
                self.current = Current::Row;
                return Ok(true);
            }
        }
    }

    /// Finds the last unfiltered of a slice, and the range deletion in force at the slice's end.
    fn begin_slice_reversed(&mut self, index: usize) -> Result<(), SSTableError> {
        self.below = None;
        self.open = DeletionTime::LIVE;
        let Some(partition) = &self.partition else { return Ok(()) };
        let start = partition.start;
        let end = self.slices.as_slice()[index].end.clone();
        let Some(entry) = &partition.index else {
            let rows_start = partition.rows_start.unwrap_or(start);
            return self.find_last(rows_start, DeletionTime::LIVE, u64::MAX, &end);
        };
        let mut blocks = BlockCursor::new(&self.reader.files().rows, entry.root)?;
        let mut encoded = Vec::new();
        let weight = if end.side == Side::Before { -1 } else { 1 };
        encode_position(self.reader.clustering_types(), &end.prefix, weight, &mut encoded);
        let Some(block) = blocks.floor(&encoded)? else { return Ok(()) };
        let mut limit = start.saturating_add(block.offset);
        self.find_last(limit, block.open, u64::MAX, &end)?;
        // The bound may lie before the first of the block, which may be the end of the partition.
        while self.below.is_none()
            && let Some(Block { offset, open }) = blocks.previous()?
        {
            let (from, expected) = (start.saturating_add(offset), self.open);
            self.find_last(from, open, limit, &end)?;
            if self.open != expected {
                let name = &self.window.data().name;
                let (expected, got) = (format!("{expected:?} open as the row index says"), format!("{:?}", self.open));
                return Err(Corruption::new(name, limit, expected, got).into());
            }
            limit = from;
        }
        Ok(())
    }

    /// Goes from the start of a block, where `open` is in force, to the last unfiltered before a position and a bound.
    fn find_last(
        &mut self,
        start: u64,
        open: DeletionTime,
        limit: u64,
        bound: &ClusteringBound,
    ) -> Result<(), SSTableError> {
        self.below = None;
        self.open = open;
        let mut position = start;
        let is_noted = !self.unbounded && self.window.is_cached() && self.has_row_index();
        if is_noted {
            self.trail.begin(self.window.data(), start);
            let weight = if bound.side == Side::Before { -1 } else { 1 };
            let comparator = self.reader.table().comparator();
            if let Some(nearest) = self.trail.nearest(comparator, &bound.prefix, weight) {
                (position, self.open) = nearest;
            }
        }
        while position < limit {
            let head = self.read_head(position)?;
            if head.is_end() || !self.unbounded && self.compare(&head, bound) != Ordering::Less {
                break;
            }
            self.trail.pass(position, self.open, &self.clustering, head.weight());
            if head.is_marker() {
                self.open = self.decode_marker(position, &head)?.1;
            }
            let end = position + head.length() as u64;
            self.below = Some(position..end);
            position = end;
        }
        self.trail.end(self.window.data());
        Ok(())
    }

    fn has_row_index(&self) -> bool {
        self.partition.as_ref().is_some_and(|partition| partition.index.is_some())
    }

    /// Finds the unfiltered before the one at a data position by the size that it keeps.
    fn step_down(&mut self, position: u64, head: &UnfilteredHead) -> Result<(), SSTableError> {
        let partition_start = self.partition.as_ref().map_or(0, |partition| partition.start);
        let body = position + head.head_length as u64;
        let size = self.window.decode_sized(body, head.body_length, |input| input.uvint("previous size"))?;
        match position.checked_sub(size) {
            // The first unfiltered counts from the start of its partition.
            Some(previous) if previous == partition_start => self.below = None,
            Some(previous) if previous > partition_start => self.below = Some(previous..position),
            _ => {
                let name = &self.window.data().name;
                let (expected, got) = ("the size of what stands before in the partition", format!("{size} bytes"));
                return Err(Corruption::new(name, position, expected, got).into());
            }
        }
        Ok(())
    }

    /// Goes to the next slice downwards; true if the current one has a border to be yielded first.
    fn leave_slice_reversed(&mut self, index: usize) -> bool {
        self.slice = index;
        self.slice_begun = false;
        let open = std::mem::replace(&mut self.open, DeletionTime::LIVE);
        if self.unbounded || open.is_live() {
            return false;
        }
        self.current = Current::SliceBorder { slice: index, start: true, before: DeletionTime::LIVE, after: open };
        true
    }
}
