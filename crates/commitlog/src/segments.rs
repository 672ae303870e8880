//! All segments: which are free, which are live and in what order, and who gets the next id.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::file::LogFile;
use crate::format::{BookkeepingEntry, SegmentState};
use crate::segment::SegmentUse;
use crate::{Clock, LogError, LogPosition, PositionInterval};

/// Guarded by one lock, which appends take only when their segment is full. Bookkeeping is written under it.
pub(crate) struct Segments {
    clock: Clock,
    /// The greatest id ever seen.
    last_id: i64,
    /// By slot: whether it is in no use.
    free: Vec<bool>,
    /// The segments in use, in order of ids.
    live: VecDeque<Arc<SegmentUse>>,
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments(live {:?}, last id {})", self.live, self.last_id)
    }
}

/// Tables to flush, so that the oldest segments can be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Segments that can be taken at once.
    pub free_segments: u32,
    /// All segments of the log.
    pub segments: u32,
    /// The tables whose records hold the oldest segments; those of the oldest first.
    pub tables: Vec<Uuid>,
    /// A flush of these tables that covers records up to here frees them.
    pub up_to: LogPosition,
}

impl Segments {
    /// From what was found at open; `live` in order of ids.
    pub fn new(clock: Clock, last_id: i64, slots: u32, live: Vec<Arc<SegmentUse>>) -> Segments {
        let mut free = vec![true; slots as usize];
        for segment in &live {
            if let Some(free) = free.get_mut(segment.slot as usize) {
                *free = false;
            }
        }
        Segments { clock, last_id, free, live: live.into() }
    }

    /// Takes the first free slot for a new use; on the device when it returns. The file's first slots are preferred, so that it
    /// grows only when it must.
    pub fn activate(&mut self, file: &LogFile, number: u64) -> Result<Arc<SegmentUse>, LogError> {
        let index = self.free.iter().position(|free| *free).ok_or(LogError::NoFreeSegment)?;
        let slot = u32::try_from(index).map_err(|_| LogError::NoFreeSegment)?;
        reserve_space(file, slot)?;
        let id = (self.clock)().max(self.last_id.saturating_add(1));
        file.write_entry(BookkeepingEntry { index: slot, state: SegmentState::Live, id })?;
        self.last_id = id;
        if let Some(free) = self.free.get_mut(index) {
            *free = false;
        }
        let segment = Arc::new(SegmentUse::new(id, slot, number));
        self.live.push_back(Arc::clone(&segment));
        Ok(segment)
    }

    /// Marks records flushed, and frees what is no longer needed. Answers how many segments that were.
    pub fn flushed(
        &mut self,
        file: &LogFile,
        table: Uuid,
        interval: PositionInterval,
        horizon: u64,
    ) -> Result<u32, LogError> {
        for segment in &self.live {
            if interval.start.segment <= segment.id && segment.id <= interval.end.segment {
                segment.mark_clean(table, interval);
            }
        }
        self.free_if(file, |segment| segment.is_unused(horizon))
    }

    /// Frees the segments that `unused` says are not needed.
    pub fn free_if(&mut self, file: &LogFile, unused: impl Fn(&SegmentUse) -> bool) -> Result<u32, LogError> {
        let mut freed = 0;
        let mut at = 0;
        while let Some(segment) = self.live.get(at) {
            if !unused(segment) {
                at += 1;
                continue;
            }
            file.write_entry(BookkeepingEntry { index: segment.slot, state: SegmentState::Free, id: segment.id })?;
            if let Some(free) = self.free.get_mut(segment.slot as usize) {
                *free = true;
            }
            self.live.remove(at);
            freed += 1;
        }
        Ok(freed)
    }

    /// The segments in use, oldest first.
    pub fn live(&self) -> impl Iterator<Item = &Arc<SegmentUse>> {
        self.live.iter()
    }

    pub fn last_id(&self) -> i64 {
        self.last_id
    }

    pub fn free_count(&self) -> u32 {
        self.free.iter().filter(|free| **free).count() as u32
    }

    /// Fewer free segments than this and the oldest should be flushed: a quarter of the log, at most 8, at least 1.
    pub fn free_wanted(&self) -> u32 {
        (self.free.len() as u32 / 4).clamp(1, 8)
    }

    /// What to flush so that as many segments are free as are wanted.
    pub fn pressure(&self) -> Option<Pressure> {
        let free = self.free_count();
        let missing = self.free_wanted().saturating_sub(free);
        if missing == 0 {
            return None;
        }
        let (mut tables, mut seen) = (Vec::new(), HashSet::new());
        let mut up_to = LogPosition::NONE;
        for segment in self.live.iter().take(missing as usize) {
            tables.extend(segment.dirty_tables().into_iter().filter(|table| seen.insert(*table)));
            up_to = segment.at(i32::MAX);
        }
        Some(Pressure { free_segments: free, segments: self.free.len() as u32, tables, up_to })
    }
}

/// Makes sure at a segment's first use that the disk has room for all of it.
fn reserve_space(file: &LogFile, slot: u32) -> Result<(), LogError> {
    let geometry = file.geometry();
    let end = geometry.segment_offset(slot + 1);
    let length = file.file().len()?;
    if length >= end {
        return Ok(());
    }
    let start = geometry.segment_offset(slot).max(length);
    file.file().allocate(start, end - start).map_err(|e| match e.kind() {
        blockio::DiskErrorKind::Full => LogError::DiskFull(e),
        _ => LogError::Disk(e),
    })
}
