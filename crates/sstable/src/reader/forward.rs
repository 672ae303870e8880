//! Reading slices of rows forward: the row index gives the block where a slice may start, and rows are read one by one
//! from there.

use std::cmp::Ordering;
use std::mem;

use model::{ClusteringBound, DeletionTime, Side};

use super::SSTableCursor;
use super::cursor::{Current, WALK_BYTES};
use super::partitions::Partition;
use crate::data::UnfilteredHead;
use crate::error::{Corruption, SSTableError};
use crate::row_index::{Block, BlockCursor, encode_position};

impl SSTableCursor {
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

    /// Moves to where the current slice may start, with the row index if that leads further.
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

    /// Starts the current slice. Returns true if a border must be yielded first.
    fn enter_slice(&mut self) -> bool {
        if mem::replace(&mut self.entered, true) {
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

    /// Moves to the next slice. Returns true if the current one must yield a border first.
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

    /// Makes the peeked unfiltered the current one. Returns false if it is an empty row.
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

    /// Skips an unfiltered before the slice, and remembers the range deletion that it may open.
    fn pass_over(&mut self, head: &UnfilteredHead) -> Result<(), SSTableError> {
        if head.is_marker() {
            self.open = self.decode_marker(self.position, head)?.1;
        }
        self.position += head.length() as u64;
        self.peeked = None;
        Ok(())
    }

    /// Implements [`UnfilteredCursor::pass_to`]. It does not decode bodies; after the first blocks it uses the row
    /// index. It does not go past the end of a slice, whose border comes next.
    pub(super) fn try_pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, SSTableError> {
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

    /// Moves to the block of the current partition that contains a position, if that leads further.
    fn seek(&mut self, prefix: &[u8], weight: i8) -> Result<(), SSTableError> {
        let block = self.block_of(prefix, weight)?;
        let start = self.partition.as_ref().map_or(0, |partition| partition.start);
        if start.saturating_add(block.offset) > self.position {
            self.resume_at(block);
        }
        Ok(())
    }

    /// The block of the current partition that contains a position.
    fn block_of(&self, prefix: &[u8], weight: i8) -> Result<Block, SSTableError> {
        let bottom = Block { offset: 0, open: DeletionTime::LIVE };
        let Some(Partition { index: Some(entry), .. }) = &self.partition else { return Ok(bottom) };
        let mut blocks = BlockCursor::new(self.reader.files().rows.pages(self.window.may_block()), entry.root)?;
        let mut encoded = Vec::new();
        encode_position(self.reader.clustering_types(), prefix, weight, &mut encoded);
        match blocks.floor(&encoded)? {
            Some(block) => Ok(block),
            None => Ok(blocks.first()?.unwrap_or(bottom)),
        }
    }

    /// Compares the unfiltered whose head was read last with a bound.
    pub(super) fn compare(&self, head: &UnfilteredHead, bound: &ClusteringBound) -> Ordering {
        let weight = if bound.side == Side::Before { -1 } else { 1 };
        let comparator = self.reader.table().comparator();
        comparator.compare_positions(&self.clustering, head.weight(), &bound.prefix, weight)
    }
}
