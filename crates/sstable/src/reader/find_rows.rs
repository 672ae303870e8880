//! Rows of one partition, in either order, without a cursor: see [`super::find`].
//!
//! Rows that are in several tables or come with deletions are left to a cursor, and so is everything that the cache
//! lacks. Deleted ranges without rows are skipped.

use std::ops::Range;
use std::sync::Arc;

use model::{ClusteringComparator, DeletionTime, Row, RowRef, Table};
use types::Token;

use super::cached_window::CachedWindow;
use super::find::{Candidates, RowBuffers, Scratch, Sought, is_simple};
use super::waypoints::Trail;
use super::{DataFile, SSTableReader};
use crate::cache::NotCached;
use crate::data::{Decoder, UnfilteredHead, read_partition_deletion};
use crate::index_file::CachedPages;
use crate::partition_index::PartitionPosition;
use crate::row_index::{Block, BlockCursor, IndexedPartition, encode_position};

/// A place between the rows of a partition: a prefix of the clustering with a weight, -1 before everything that starts
/// with it, 1 after.
#[derive(Clone, Copy, Debug)]
pub struct Edge<'e> {
    /// The serialized prefix.
    pub prefix: &'e [u8],
    /// The weight.
    pub weight: i8,
}

/// The rows of a partition between two places, in clustering order or reversed.
#[derive(Clone, Copy, Debug)]
pub struct PartitionSlice<'s> {
    /// The token of the partition key.
    pub token: Token,
    /// The serialized partition key.
    pub key: &'s [u8],
    /// Their start in clustering order.
    pub start: Edge<'s>,
    /// Their end in clustering order, after `start`.
    pub end: Edge<'s>,
    /// Whether the last row comes first.
    pub reversed: bool,
    /// The most borders of deleted ranges that are skipped.
    pub borders_max: u64,
}

/// Looks up rows in SSTables of a table without static columns, and passes them one by one to `take` until that returns
/// false. Returns true if these were all rows, or as many as were taken. Otherwise a cursor has to be used, and the
/// rows passed so far must be discarded.
pub fn find_rows(
    sstables: &[Arc<SSTableReader>],
    table: &Table,
    slice: &PartitionSlice<'_>,
    take: &mut dyn FnMut(RowRef<'_>) -> bool,
) -> bool {
    let sought = Sought::new(slice.token, slice.key);
    let Some(mut passing) = sought.passing(sstables) else { return false };
    if passing.count_ones() > 1 {
        for (index, sstable) in sstables.iter().enumerate() {
            if passing >> index & 1 != 0 && !sstable.may_count(slice) {
                passing ^= 1 << index;
            }
        }
    }
    if passing == 0 {
        return true;
    }
    let found = Scratch::with(|scratch| match sought.candidates(sstables, passing, &mut scratch.encoded)? {
        Candidates::None => Ok(()),
        Candidates::One(sstable, place) if sstable.gives_rows(table) => {
            let Some(from) = sstable.enter(slice, place, scratch)? else { return Ok(()) };
            let (spill, clustering, buffers, trail) = scratch.split();
            let mut rows = Rows {
                slice,
                window: CachedWindow::new(&sstable.files.data, spill),
                data: &sstable.files.data,
                comparator: table.comparator(),
                decoder: sstable.decoder(),
                clustering,
                buffers,
                trail,
                open: DeletionTime::LIVE,
                borders: 0,
            };
            let found = if slice.reversed { rows.reversed(from, take) } else { rows.forward(from, take) };
            rows.trail.close(&sstable.files.data);
            found
        }
        Candidates::One(..) | Candidates::Several => Err(NotCached),
    });
    found.is_ok()
}

/// A partition, and the position in it where a search begins.
struct Entered<'s> {
    /// Data position of the partition.
    partition: u64,
    /// The data position of the first row to examine.
    position: u64,
    /// The range deletion in force there.
    open: DeletionTime,
    /// The blocks of a large partition; the current one contains `position`.
    blocks: Option<BlockCursor<CachedPages<'s>>>,
}

impl SSTableReader {
    fn may_count(&self, slice: &PartitionSlice<'_>) -> bool {
        let PartitionSlice { start, end, .. } = slice;
        self.counts_everywhere() || self.covers_between((start.prefix, start.weight), (end.prefix, end.weight))
    }

    /// Where the rows of a slice have to be searched; `None` if the partition is not here.
    fn enter(
        &self,
        slice: &PartitionSlice<'_>,
        place: PartitionPosition,
        scratch: &mut Scratch,
    ) -> Result<Option<Entered<'_>>, NotCached> {
        match place {
            PartitionPosition::Data(partition) => {
                let version = self.files.descriptor.version;
                let mut window = CachedWindow::new(&self.files.data, &mut scratch.spill);
                let entered = window.decode(partition, |input| {
                    let is_here = input.short_bytes("partition key")? == slice.key;
                    Ok((is_here, read_partition_deletion(version, input)?, input.offset()))
                })?;
                match entered {
                    (false, ..) => Ok(None),
                    (true, deletion, position) if deletion.is_live() => {
                        Ok(Some(Entered { partition, position, open: deletion, blocks: None }))
                    }
                    _ => Err(NotCached),
                }
            }
            PartitionPosition::Rows(record) => {
                let Some(record) = IndexedPartition::of_cached(&self.files.rows, record, slice.key)? else {
                    return Ok(None);
                };
                if !record.deletion.is_live() {
                    return Err(NotCached);
                }
                let edge = if slice.reversed { &slice.end } else { &slice.start };
                scratch.encoded.clear();
                encode_position(self.clustering_types(), edge.prefix, edge.weight, &mut scratch.encoded);
                let mut blocks = BlockCursor::new(CachedPages(&self.files.rows), record.root)?;
                let block = match blocks.floor(&scratch.encoded)? {
                    None if slice.reversed => return Ok(None),
                    None => blocks.first()?,
                    found => found,
                };
                let (partition, block) = (record.data_position, block.ok_or(NotCached)?);
                let position = partition.saturating_add(block.offset);
                Ok(Some(Entered { partition, position, open: block.open, blocks: Some(blocks) }))
            }
        }
    }
}

/// A search of one table.
struct Rows<'r> {
    slice: &'r PartitionSlice<'r>,
    data: &'r DataFile,
    comparator: &'r ClusteringComparator,
    decoder: Decoder<'r>,
    window: CachedWindow<'r>,
    /// The clustering of the row or marker whose head was read last.
    clustering: &'r mut Vec<u8>,
    buffers: RowBuffers<'r>,
    trail: &'r mut Trail,
    /// The range deletion in force at the current position.
    open: DeletionTime,
    /// The borders of deleted ranges that were skipped in the slice.
    borders: u64,
}

impl Rows<'_> {
    fn forward(&mut self, from: Entered<'_>, take: &mut dyn FnMut(RowRef<'_>) -> bool) -> Result<(), NotCached> {
        let mut position = self.go_near(&from, self.slice.start)?;
        while let Some(head) = self.head(position)?.filter(|head| self.is_before_start(head)) {
            self.trail.pass(position, self.open, self.clustering, head.weight());
            self.pass(position, &head)?;
            position += head.length() as u64;
        }
        self.cross_edge();
        while let Some(item) = self.item(position)? {
            match item.content {
                Content::Row if !take(self.row()) => break,
                Content::Row | Content::Nothing => {}
                Content::Marker(_, after) => {
                    self.borders += 1;
                    self.open = after;
                }
            }
            position += item.length;
        }
        self.end()
    }

    fn reversed(&mut self, mut from: Entered<'_>, take: &mut dyn FnMut(RowRef<'_>) -> bool) -> Result<(), NotCached> {
        let mut below = self.last_before_end(&mut from)?;
        self.cross_edge();
        while let Some(place) = below {
            let Some(item) = self.item(place.start)? else { break };
            if item.length != place.end - place.start {
                return Err(NotCached);
            }
            match item.content {
                Content::Row if !take(self.row()) => break,
                Content::Row | Content::Nothing => {}
                Content::Marker(before, _) => {
                    self.borders += 1;
                    self.open = before;
                }
            }
            below = match place.start.checked_sub(item.previous_size) {
                // The first row stores its distance from the start of its partition.
                Some(previous) if previous == from.partition => None,
                Some(previous) if previous > from.partition && item.previous_size > 0 => Some(previous..place.start),
                _ => return Err(NotCached),
            };
        }
        self.end()
    }

    /// The place of the last row or marker that is not after the end of the slice.
    fn last_before_end(&mut self, from: &mut Entered<'_>) -> Result<Option<Range<u64>>, NotCached> {
        loop {
            let mut last = None;
            let mut position = self.go_near(from, self.slice.end)?;
            while let Some(head) = self.head(position)? {
                if self.is_after_end(&head) {
                    break;
                }
                self.trail.pass(position, self.open, self.clustering, head.weight());
                self.pass(position, &head)?;
                let end = position + head.length() as u64;
                last = Some(position..end);
                position = end;
            }
            self.trail.end(self.data);
            if last.is_some() {
                return Ok(last);
            }
            // The end may lie before the first row of its block, which may be the end of the partition.
            let Some(blocks) = &mut from.blocks else { return Ok(None) };
            let Some(Block { offset, open }) = blocks.previous()? else { return Ok(None) };
            (from.position, from.open) = (from.partition.saturating_add(offset), open);
        }
    }

    /// Moves to the last waypoint of earlier reads before `edge` in the block where the search begins, or to the start
    /// of that block.
    fn go_near(&mut self, from: &Entered<'_>, edge: Edge<'_>) -> Result<u64, NotCached> {
        self.open = from.open;
        if from.blocks.is_none() {
            return Ok(from.position);
        }
        self.trail.begin(self.data, from.position);
        let nearest = self.trail.nearest(self.comparator, edge.prefix, edge.weight);
        Ok(nearest.map_or(from.position, |(position, open)| {
            self.open = open;
            position
        }))
    }

    /// The head of the row or marker at a data position; `None` at the end of the partition.
    fn head(&mut self, position: u64) -> Result<Option<UnfilteredHead>, NotCached> {
        let Self { window, decoder, clustering, .. } = self;
        let head = window.decode(position, |input| decoder.head(input, clustering))?;
        Ok((!head.is_end()).then_some(head))
    }

    /// Whether the row or marker whose head was read last is before the slice.
    fn is_before_start(&self, head: &UnfilteredHead) -> bool {
        let Edge { prefix, weight } = self.slice.start;
        self.comparator.compare_positions(self.clustering, head.weight(), prefix, weight).is_le()
    }

    /// Whether it is after the slice.
    fn is_after_end(&self, head: &UnfilteredHead) -> bool {
        let Edge { prefix, weight } = self.slice.end;
        self.comparator.compare_positions(self.clustering, head.weight(), prefix, weight).is_ge()
    }

    /// Skips a row, or a marker, whose deletion is then in force.
    fn pass(&mut self, position: u64, head: &UnfilteredHead) -> Result<(), NotCached> {
        if head.is_marker() {
            self.open = self.marker(position, head)?.1;
        }
        Ok(())
    }

    /// The deletions before and after a marker.
    fn marker(&mut self, position: u64, head: &UnfilteredHead) -> Result<(DeletionTime, DeletionTime), NotCached> {
        let Self { window, decoder, .. } = self;
        window.decode(position + head.head_length as u64, |input| {
            decoder.marker(head, &mut input.part(head.body_length, "marker body")?)
        })
    }

    /// Also counts the place where the slice cuts a deleted range.
    fn cross_edge(&mut self) {
        self.borders += u64::from(!self.open.is_live());
    }

    fn end(&mut self) -> Result<(), NotCached> {
        self.cross_edge();
        if self.borders <= self.slice.borders_max { Ok(()) } else { Err(NotCached) }
    }

    /// Reads the row or marker at a data position in one step; `None` at the end of the partition and of the slice.
    fn item(&mut self, position: u64) -> Result<Option<Item>, NotCached> {
        let Self { window, decoder, clustering, comparator, buffers, slice, open, .. } = self;
        let beyond = if slice.reversed { slice.start } else { slice.end };
        window.decode(position, |input| {
            let head = decoder.head(input, clustering)?;
            if head.is_end() {
                // Only damage can lead to this place in a reversed read.
                return Ok(if slice.reversed { Err(NotCached) } else { Ok(None) });
            }
            let order = comparator.compare_positions(clustering, head.weight(), beyond.prefix, beyond.weight);
            let is_beyond = if slice.reversed { order.is_le() } else { order.is_ge() };
            if is_beyond {
                return Ok(Ok(None));
            }
            let previous_size = input.clone().uvint("previous size")?;
            let content = if head.is_marker() {
                let (before, after) = decoder.marker(&head, &mut input.part(head.body_length, "marker body")?)?;
                Content::Marker(before, after)
            } else if !is_simple(&head) || !open.is_live() {
                return Ok(Err(NotCached));
            } else if buffers.decode(decoder, &head, input)? {
                Content::Row
            } else {
                Content::Nothing
            };
            Ok(Ok(Some(Item { content, length: head.length() as u64, previous_size })))
        })?
    }

    /// The row that was decoded last.
    fn row(&self) -> RowRef<'_> {
        RowRef { clustering: self.clustering, row: Row::new(self.buffers.row) }
    }
}

/// A row or marker within the slice.
struct Item {
    content: Content,
    length: u64,
    /// The stored size of the previous row or marker.
    previous_size: u64,
}

enum Content {
    Row,
    /// An empty row.
    Nothing,
    /// The deletions before and after a marker.
    Marker(DeletionTime, DeletionTime),
}
