//! Where in a block of the row index a read may begin: places that earlier reads came by.
//!
//! A block holds some hundred rows, and nothing in the file tells where in it a row lies: a read walks from its start.
//! What it passes it notes, about once per kibibyte, and keeps the notes in the cache of blocks beside the data, so
//! that the next read of the block walks a kibibyte at most. They take some percent of the data, and go as all that is
//! in the cache goes.

use model::{ClusteringComparator, DeletionTime};

use super::DataFile;
use crate::cache;

/// Bytes of data between two waypoints, at least.
const APART_BYTES: u64 = 1024;
/// Longer prefixes are not noted: they would take too much beside the data.
const PREFIX_BYTES_MAX: usize = 128;
/// A waypoint before its prefix: data position, open deletion, weight and length of the prefix.
const HEAD_BYTES: usize = 8 + 8 + 4 + 1 + 1;

/// A row or marker that was passed.
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

/// The waypoints of an entry of the cache.
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

/// What a walk through a block knows and notes.
#[derive(Default)]
pub(super) struct Trail {
    /// Data position of the block; none where nothing is noted.
    block: Option<u64>,
    known: Option<cache::Block>,
    /// Notes of this walk, behind those that are known.
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
        // The position of the last one is kept in front of all.
        let last = self.known.as_ref().and_then(|known| known.first_chunk::<8>());
        self.last = last.map_or(block, |last| u64::from_be_bytes(*last));
    }

    /// The last waypoint that lies before a position in clustering order: its data position and the deletion in force
    /// there.
    pub fn nearest(&self, comparator: &ClusteringComparator, prefix: &[u8], weight: i8) -> Option<(u64, DeletionTime)> {
        let (_, waypoints) = self.known.as_ref()?.split_first_chunk::<8>()?;
        let before = |waypoint: &Waypoint<'_>| {
            comparator.compare_positions(waypoint.prefix, waypoint.weight, prefix, weight).is_lt()
        };
        let nearest = Waypoints(waypoints).take_while(before).last()?;
        Some((nearest.position, nearest.open))
    }

    /// Notes a row or marker, before which `open` is in force, if it lies far enough behind the last waypoint.
    #[inline]
    pub fn pass(&mut self, position: u64, open: DeletionTime, prefix: &[u8], weight: i8) {
        if self.block.is_some() && position >= self.last + APART_BYTES && prefix.len() <= PREFIX_BYTES_MAX {
            self.last = position;
            Waypoint { position, open, weight, prefix }.write(&mut self.fresh);
        }
    }

    /// Ends the walk, and lets go of what was known.
    pub fn close(&mut self, data: &DataFile) {
        self.end(data);
        self.known = None;
    }

    /// Ends the walk: keeps what was noted.
    pub fn end(&mut self, data: &DataFile) {
        if let Some(block) = self.block.take()
            && !self.fresh.is_empty()
        {
            let known = self.known.as_ref().and_then(|known| known.get(8..)).unwrap_or_default();
            data.keep_waypoints(block, [&self.last.to_be_bytes(), known, &self.fresh].concat());
        }
    }
}
