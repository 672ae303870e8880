//! Slices of rows in reversed order: blocks from last to first, each gone through forward once to find its rows.

use std::cmp::Ordering;

use model::{ClusteringBound, DeletionTime, Side};

use super::SSTableCursor;
use super::cursor::Current;
use crate::error::{Corruption, SSTableError};
use crate::row_index::{Block, BlockCursor, encode_position};

/// Where a reversed read stands in a partition.
#[derive(Default)]
pub(super) struct Backward {
    /// Data positions of the unfiltereds of the current block that are still to come, first to last.
    items: Vec<u64>,
    /// Earlier blocks; none where the partition has no index.
    blocks: Option<BlockCursor>,
    /// Where the current block starts.
    block_start: u64,
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
            let Some(position) = self.backward().items.pop() else {
                if self.previous_block()? {
                    continue;
                }
                if self.leave_slice_reversed(index) {
                    return Ok(true);
                }
                continue;
            };
            let head = self.read_head(position)?;
            let start = &self.slices.as_slice()[index].start;
            if !self.unbounded && self.compare(&head, start) != Ordering::Greater {
                if self.leave_slice_reversed(index) {
                    return Ok(true);
                }
                continue;
            }
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

    /// Finds the unfiltereds of the last block that the slice touches.
    fn begin_slice_reversed(&mut self, index: usize) -> Result<(), SSTableError> {
        let Some(partition) = &self.partition else { return Ok(()) };
        let start = partition.start;
        let rows_start = partition.rows_start.unwrap_or(start);
        let end = self.slices.as_slice()[index].end.clone();
        let mut blocks = match &partition.index {
            Some(entry) => Some(BlockCursor::new(&self.reader.files().rows, entry.root)?),
            None => None,
        };
        let block = match &mut blocks {
            Some(blocks) => {
                let mut encoded = Vec::new();
                encode_position(
                    self.reader.clustering_types(),
                    &end.prefix,
                    if end.side == Side::Before { -1 } else { 1 },
                    &mut encoded,
                );
                blocks.floor(&encoded)?
            }
            None => Some(Block { offset: rows_start - start, open: DeletionTime::LIVE }),
        };
        self.backward().blocks = blocks;
        self.backward().items.clear();
        self.open = DeletionTime::LIVE;
        match block {
            Some(block) => self.list_block(start, block, u64::MAX, Some(&end)),
            None => Ok(()),
        }
    }

    /// Lists the unfiltereds from the start of a block up to a position, the end of the partition or a bound.
    fn list_block(
        &mut self,
        partition_start: u64,
        block: Block,
        limit: u64,
        bound: Option<&ClusteringBound>,
    ) -> Result<(), SSTableError> {
        let bound = bound.filter(|_| !self.unbounded);
        let start = partition_start.saturating_add(block.offset);
        let mut items = std::mem::take(&mut self.backward().items);
        items.clear();
        let mut position = start;
        self.open = block.open;
        while position < limit {
            let head = self.read_head(position)?;
            if head.is_end() || bound.is_some_and(|bound| self.compare(&head, bound) != Ordering::Less) {
                break;
            }
            if head.is_marker() {
                self.open = self.decode_marker(position, &head)?.1;
            }
            items.push(position);
            position += head.length() as u64;
        }
        let backward = self.backward();
        backward.items = items;
        backward.block_start = start;
        Ok(())
    }

    /// Goes to the block before the current one; false at the first.
    fn previous_block(&mut self) -> Result<bool, SSTableError> {
        let Some(start) = self.partition.as_ref().map(|partition| partition.start) else { return Ok(false) };
        let backward = self.backward();
        let limit = backward.block_start;
        let block = match &mut backward.blocks {
            Some(blocks) => blocks.previous()?,
            None => None,
        };
        let Some(block) = block else { return Ok(false) };
        let expected = self.open;
        self.list_block(start, block, limit, None)?;
        if self.open != expected {
            let name = &self.window.data().name;
            let (expected, got) = (format!("{expected:?} open as the row index says"), format!("{:?}", self.open));
            return Err(Corruption::new(name, limit, expected, got).into());
        }
        Ok(true)
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
