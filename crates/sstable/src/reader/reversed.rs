//! Reading slices of rows in reverse: the last unfiltered of a slice is found in its block, and each previous one by
//! the stored size of its predecessor.

use std::cmp::Ordering;
use std::ops::Range;

use model::{ClusteringBound, DeletionTime};

use super::SSTableCursor;
use super::cursor::{Current, WALK_BYTES};
use crate::data::UnfilteredHead;
use crate::error::{Corruption, SSTableError};
use crate::index_file::ReadPages;
use crate::row_index::{Block, FileBlocks, encode_position};

/// The position in clustering order up to which the last unfiltered is searched.
#[derive(Clone, Copy)]
struct UpTo<'p> {
    prefix: &'p [u8],
    weight: i8,
    /// Whether an unfiltered at the position itself counts.
    inclusive: bool,
}

impl<'p> UpTo<'p> {
    fn bound(bound: &'p ClusteringBound) -> Self {
        UpTo { prefix: &bound.prefix, weight: bound.side.weight(), inclusive: false }
    }
}

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
            let head = self.read_head_below(&below)?;
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

    /// Reads the head of an unfiltered whose place was given by its successor.
    fn read_head_below(&mut self, below: &Range<u64>) -> Result<UnfilteredHead, SSTableError> {
        let head = self.read_head(below.start)?;
        if head.is_end() || below.start + head.length() as u64 != below.end {
            let (name, length) = (&self.window.data().name, below.end - below.start);
            let expected = format!("an unfiltered of {length} bytes, as the next one says");
            return Err(Corruption::new(name, below.start, expected, format!("one of {}", head.length())).into());
        }
        Ok(head)
    }

    /// Implements [`model::UnfilteredCursor::pass_to`] for a reversed read: moves down to the last unfiltered that is
    /// not after a position. It does not decode bodies; after the first blocks it uses the row index. It does not go
    /// past the start of a slice.
    pub(super) fn pass_down_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, SSTableError> {
        let Some(index) = self.slice.checked_sub(1).filter(|_| self.slice_begun) else { return Ok(None) };
        let start = self.slices.as_slice()[index].start.clone();
        let comparator = self.reader.table().comparator();
        let target = match comparator.compare_positions(prefix, weight, &start.prefix, start.side.weight()) {
            Ordering::Less => UpTo { inclusive: true, ..UpTo::bound(&start) },
            _ => UpTo { prefix, weight, inclusive: true },
        };
        self.current = Current::None;
        let from = self.below.as_ref().map_or(0, |below| below.end);
        let mut sought = false;
        while let Some(below) = self.below.clone() {
            let head = self.read_head_below(&below)?;
            if !self.is_after(&head, &target) {
                break;
            }
            if !sought && from - below.start > WALK_BYTES {
                sought = true;
                self.seek_row_index()?;
                if self.seek_down(&target, below.start)? {
                    break;
                }
            }
            if head.is_marker() {
                self.open = self.decode_marker(below.start, &head)?.0;
            }
            self.step_down(below.start, &head)?;
        }
        Ok(Some(self.open))
    }

    /// Moves to the last unfiltered up to a position with the row index, if that leads further down than a walk from
    /// `limit`.
    fn seek_down(&mut self, target: &UpTo<'_>, limit: u64) -> Result<bool, SSTableError> {
        let Some(blocks) = self.blocks_below(target)? else { return Ok(false) };
        let start = self.partition.as_ref().map_or(0, |partition| partition.start);
        if start.saturating_add(blocks.1.offset).saturating_add(WALK_BYTES) > limit {
            return Ok(false);
        }
        self.find_last_in_blocks(blocks, Some(target), limit)?;
        Ok(true)
    }

    /// The block of the current partition that contains a position; `None` without a row index, or before the first
    /// block.
    fn blocks_below(&self, target: &UpTo<'_>) -> Result<Option<(FileBlocks, Block)>, SSTableError> {
        let Some(entry) = self.partition.as_ref().and_then(|partition| partition.index.as_ref()) else {
            return Ok(None);
        };
        let mut blocks = FileBlocks::new(
            ReadPages { file: self.reader.files().rows.clone(), may_block: self.window.may_block() },
            entry.root,
        )?;
        let mut encoded = Vec::new();
        encode_position(self.reader.clustering_types(), target.prefix, target.weight, &mut encoded);
        Ok(blocks.floor(&encoded)?.map(|block| (blocks, block)))
    }

    /// Finds the last unfiltered of a slice, and the range deletion in force at the slice's end.
    fn begin_slice_reversed(&mut self, index: usize) -> Result<(), SSTableError> {
        self.below = None;
        self.open = DeletionTime::LIVE;
        let Some(partition) = &self.partition else { return Ok(()) };
        let end = self.slices.as_slice()[index].end.clone();
        let up_to = UpTo::bound(&end);
        let limit = (!self.unbounded).then_some(&up_to);
        if partition.index.is_none() {
            let rows_start = partition.rows_start.unwrap_or(partition.start);
            return self.find_last(rows_start, DeletionTime::LIVE, u64::MAX, limit);
        }
        match self.blocks_below(&up_to)? {
            Some(blocks) => self.find_last_in_blocks(blocks, limit, u64::MAX),
            None => Ok(()),
        }
    }

    /// Like `find_last`, from a block on downwards.
    fn find_last_in_blocks(
        &mut self,
        (mut blocks, block): (FileBlocks, Block),
        up_to: Option<&UpTo<'_>>,
        limit: u64,
    ) -> Result<(), SSTableError> {
        let start = self.partition.as_ref().map_or(0, |partition| partition.start);
        let mut from = start.saturating_add(block.offset);
        self.find_last(from, block.open, limit, up_to)?;
        // The position may be before the first unfiltered of the block, which may be the end of the partition.
        while self.below.is_none()
            && let Some(Block { offset, open }) = blocks.previous()?
        {
            let (limit, expected) = (from, self.open);
            from = start.saturating_add(offset);
            self.find_last(from, open, limit, up_to)?;
            if self.open != expected {
                let name = &self.window.data().name;
                let (expected, got) = (format!("{expected:?} open as the row index says"), format!("{:?}", self.open));
                return Err(Corruption::new(name, limit, expected, got).into());
            }
        }
        Ok(())
    }

    /// Walks from the start of a block, where `open` is in force, to the last unfiltered before a data position and up
    /// to a position of the clustering order.
    fn find_last(
        &mut self,
        start: u64,
        open: DeletionTime,
        limit: u64,
        up_to: Option<&UpTo<'_>>,
    ) -> Result<(), SSTableError> {
        self.below = None;
        self.open = open;
        let mut position = start;
        if let Some(up_to) = up_to.filter(|_| self.window.is_cached() && self.has_row_index()) {
            self.trail.begin(self.window.data(), start);
            let comparator = self.reader.table().comparator();
            if let Some(nearest) = self.trail.nearest(comparator, up_to.prefix, up_to.weight) {
                (position, self.open) = nearest;
            }
        }
        while position < limit {
            let head = self.read_head(position)?;
            if head.is_end() || up_to.is_some_and(|up_to| self.is_after(&head, up_to)) {
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

    /// Whether the unfiltered whose head was read last is after a position.
    fn is_after(&self, head: &UnfilteredHead, up_to: &UpTo<'_>) -> bool {
        let comparator = self.reader.table().comparator();
        let order = comparator.compare_positions(&self.clustering, head.weight(), up_to.prefix, up_to.weight);
        order == Ordering::Greater || order == Ordering::Equal && !up_to.inclusive
    }

    fn has_row_index(&self) -> bool {
        self.partition.as_ref().is_some_and(|partition| partition.index.is_some())
    }

    /// Finds the unfiltered before the one at a data position, by the size that the latter stores.
    fn step_down(&mut self, position: u64, head: &UnfilteredHead) -> Result<(), SSTableError> {
        let partition_start = self.partition.as_ref().map_or(0, |partition| partition.start);
        let body = position + head.head_length as u64;
        let size = self.window.decode_sized(body, head.body_length, |input| input.uvint("previous size"))?;
        match position.checked_sub(size) {
            // The first unfiltered stores its distance from the start of its partition.
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

    /// Moves to the next slice downwards. Returns true if the current one must yield a border first.
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
