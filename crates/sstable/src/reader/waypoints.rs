//! Waypoints: places in a block of the row index where a read may begin, recorded by earlier reads.
//!
//! A block holds some hundred rows, and the file does not record where in the block a row lies, so a read walks from
//! its start. The walk records about one waypoint per kibibyte, and keeps them in the block cache beside the data. The
//! next read of the block then walks a kibibyte at most. Waypoints take a few percent of the data's size, and are
//! evicted like everything in the cache.

use model::{ClusteringComparator, DeletionTime};

use super::DataFile;
use crate::cache;

/// The least number of data bytes between two waypoints.
const APART_BYTES: u64 = 1024;
/// Longer prefixes are not recorded, because they would take too much memory in proportion to the data.
const PREFIX_BYTES_MAX: usize = 128;
/// The size of a waypoint without its prefix: data position, open deletion, weight and length of the prefix.
const HEAD_BYTES: usize = 8 + 8 + 4 + 1 + 1;

/// A row or marker that a walk passed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waypoint<'w> {
    /// Its data position.
    position: u64,
    /// The range deletion in force before it.
    open: DeletionTime,
    weight: i8,
    prefix: &'w [u8],
}

impl Waypoint<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.to_be_bytes());
        out.extend_from_slice(&self.open.marked_for_delete_at.to_be_bytes());
        out.extend_from_slice(&self.open.local_deletion_time.to_be_bytes());
        out.extend_from_slice(&[self.weight as u8, self.prefix.len() as u8]);
        out.extend_from_slice(self.prefix);
    }
}

/// The waypoints in an entry of the cache.
struct Waypoints<'w>(&'w [u8]);

impl<'w> Iterator for Waypoints<'w> {
    type Item = Waypoint<'w>;

    fn next(&mut self) -> Option<Waypoint<'w>> {
        let (head, rest) = self.0.split_first_chunk::<HEAD_BYTES>()?;
        let (position, head) = head.split_first_chunk::<8>()?;
        let (marked_for_delete_at, head) = head.split_first_chunk::<8>()?;
        let (local_deletion_time, head) = head.split_first_chunk::<4>()?;
        let [weight, length] = *head.first_chunk::<2>()?;
        let (prefix, rest) = rest.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(Waypoint {
            position: u64::from_be_bytes(*position),
            open: DeletionTime::new(
                i64::from_be_bytes(*marked_for_delete_at),
                u32::from_be_bytes(*local_deletion_time),
            ),
            weight: weight as i8,
            prefix,
        })
    }
}

/// The known waypoints of a block, and those recorded by a walk through it.
#[derive(Default)]
pub(super) struct Trail {
    /// The data position of the block; `None` where nothing is recorded.
    block: Option<u64>,
    known: Option<cache::Block>,
    /// The waypoints of this walk, after the known ones.
    fresh: Vec<u8>,
    /// Data position of the last waypoint, or of the block.
    last: u64,
}

impl Trail {
    /// Begins a walk through the block at a data position.
    pub fn begin(&mut self, data: &DataFile, block: u64) {
        self.block = Some(block);
        self.fresh.clear();
        self.known = data.waypoints(block);
        // The position of the last waypoint is stored in front of all.
        let last = self.known.as_ref().and_then(|known| known.first_chunk::<8>());
        self.last = last.map_or(block, |last| u64::from_be_bytes(*last));
    }

    /// The last waypoint before a position in clustering order: its data position and the deletion in force there.
    pub fn nearest(&self, comparator: &ClusteringComparator, prefix: &[u8], weight: i8) -> Option<(u64, DeletionTime)> {
        let (_, waypoints) = self.known.as_ref()?.split_first_chunk::<8>()?;
        let before = |waypoint: &Waypoint<'_>| {
            comparator.compare_positions(waypoint.prefix, waypoint.weight, prefix, weight).is_lt()
        };
        let nearest = Waypoints(waypoints).take_while(before).last()?;
        Some((nearest.position, nearest.open))
    }

    /// Records a row or marker, before which `open` is in force, if it is far enough after the last waypoint.
    #[inline]
    pub fn pass(&mut self, position: u64, open: DeletionTime, prefix: &[u8], weight: i8) {
        if self.block.is_some() && position >= self.last + APART_BYTES && prefix.len() <= PREFIX_BYTES_MAX {
            self.last = position;
            Waypoint { position, open, weight, prefix }.write(&mut self.fresh);
        }
    }

    /// Ends the walk, and releases the known waypoints.
    pub fn close(&mut self, data: &DataFile) {
        self.end(data);
        self.known = None;
    }

    /// Ends the walk, and stores what it recorded.
    pub fn end(&mut self, data: &DataFile) {
        if let Some(block) = self.block.take()
            && !self.fresh.is_empty()
        {
            let known = self.known.as_ref().and_then(|known| known.get(8..)).unwrap_or_default();
            data.keep_waypoints(block, [&self.last.to_be_bytes(), known, &self.fresh].concat());
        }
    }
}
