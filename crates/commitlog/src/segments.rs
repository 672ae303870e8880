//! All segments: which are free, which are live and in what order, and which id comes next.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::file::LogFile;
use crate::format::{BookkeepingEntry, SegmentState};
use crate::segment::SegmentUse;
use crate::{Clock, LogError, LogPosition, PositionInterval};

/// The state of all segments, under one lock. An append takes the lock only when its segment is full, so nothing is
/// written to the device under it.
pub(crate) struct Segments {
    clock: Clock,
    /// The greatest id ever seen.
    last_id: i64,
    /// For each slot, whether it is unused.
    free: Vec<bool>,
    /// The segments in use, in order of ids.
    live: VecDeque<Arc<SegmentUse>>,
    /// The segments that nothing needs any more, but whose bookkeeping does not say so yet: after a crash they are
    /// still in use.
    freeing: Vec<Arc<SegmentUse>>,
    next: Next,
}

/// The segment that follows the one being filled.
enum Next {
    /// Not chosen yet.
    Unknown,
    /// Its bookkeeping is being written; this is its id.
    UnderWay(i64),
    /// Its bookkeeping is on the device.
    Prepared(Arc<SegmentUse>),
    /// The disk had no room for it.
    Refused,
}

/// A segment that nothing needs any more, and the nearest one before it that is still needed.
pub(crate) struct Unneeded {
    pub segment: Arc<SegmentUse>,
    /// Its end is known from blocks of `segment`, if that is the one that followed it.
    pub before: Option<Arc<SegmentUse>>,
}

/// A slot taken for a new use that nothing on the device records yet.
pub(crate) struct Claim {
    slot: u32,
    id: i64,
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments(live {:?}, last id {})", self.live, self.last_id)
    }
}

/// The tables to flush so that the oldest segments can be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// The number of segments that can be used at once.
    pub free_segments: u32,
    /// The number of all segments of the log.
    pub segments: u32,
    /// The tables whose records occupy the oldest segments, in the order of those segments.
    pub tables: Vec<Uuid>,
    /// A flush of these tables that covers all records up to this position frees the segments.
    pub up_to: LogPosition,
}

impl Segments {
    /// Starts with what was found at open; `live` is in order of ids.
    pub fn new(clock: Clock, last_id: i64, slots: u32, live: Vec<Arc<SegmentUse>>) -> Segments {
        assert!(live.iter().all(|segment| segment.slot < slots), "a segment in use has a slot of the file");
        assert!(live.is_sorted_by_key(|segment| segment.id), "segments in use are in order of ids");
        let mut free = vec![true; slots as usize];
        for segment in &live {
            if let Some(free) = free.get_mut(segment.slot as usize) {
                *free = false;
            }
        }
        Segments { clock, last_id, free, live: live.into(), freeing: Vec::new(), next: Next::Unknown }
    }

    /// Takes the next segment to fill; `None` if none was [prepared](Self::prepare).
    pub fn take_next(&mut self) -> Option<Arc<SegmentUse>> {
        match std::mem::replace(&mut self.next, Next::Unknown) {
            Next::Prepared(segment) => Some(segment),
            next => {
                self.next = next;
                None
            }
        }
    }

    /// Returns a segment that [`take_next`](Self::take_next) gave and that was not used: it is the next one again.
    pub fn put_back(&mut self, segment: Arc<SegmentUse>) {
        debug_assert!(matches!(self.next, Next::Unknown), "no other segment was prepared meanwhile");
        self.next = Next::Prepared(segment);
    }

    /// Whether the disk had no room when the next segment was to be prepared, and none was freed since.
    pub fn was_refused(&self) -> bool {
        matches!(self.next, Next::Refused)
    }

    /// Begins to prepare the next segment. The caller then writes its bookkeeping without a lock and calls
    /// [`prepared`](Self::prepared). Returns `None` if a segment is already prepared or no slot is free. The file's
    /// first slots are preferred, so that it grows only when it must.
    pub fn prepare(&mut self) -> Option<Claim> {
        if matches!(self.next, Next::UnderWay(_) | Next::Prepared(_)) {
            return None;
        }
        let index = self.free.iter().position(|free| *free)?;
        let slot = u32::try_from(index).ok()?;
        debug_assert!(self.live.iter().chain(&self.freeing).all(|used| used.slot != slot), "a free slot is not in use");
        self.set_free(slot, false);
        let id = self.new_id();
        self.next = Next::UnderWay(id);
        Some(Claim { slot, id })
    }

    fn new_id(&mut self) -> i64 {
        self.last_id = (self.clock)().max(self.last_id.saturating_add(1));
        self.last_id
    }

    /// Whether the bookkeeping of the next segment is being written.
    pub fn is_preparing(&self) -> bool {
        matches!(self.next, Next::UnderWay(_))
    }

    /// Makes all further ids greater than `seen`. If a segment that is still to be filled (its number in this run is
    /// `unfilled` or above) has a lower one, all of these get new ids; the caller then writes their bookkeeping. No
    /// segment may be [under way](Self::is_preparing): its id would be lower than those before it.
    pub fn raise_ids(&mut self, seen: i64, unfilled: u64) -> Vec<Arc<SegmentUse>> {
        assert!(!self.is_preparing(), "the segment that is being prepared would keep its id");
        self.last_id = self.last_id.max(seen);
        let first = self.live.partition_point(|segment| segment.number < Some(unfilled));
        if self.live.range(first..).all(|segment| segment.id > seen) {
            return Vec::new();
        }
        let low = self.live.split_off(first);
        let mut raised = Vec::with_capacity(low.len());
        for (low, number) in low.into_iter().filter_map(|low| Some((low.clone(), low.number?))) {
            let segment = Arc::new(SegmentUse::new(self.new_id(), low.slot, number, low.without()));
            self.live.push_back(Arc::clone(&segment));
            if matches!(&self.next, Next::Prepared(next) if next.id == low.id) {
                self.next = Next::Prepared(Arc::clone(&segment));
            }
            raised.push(segment);
        }
        debug_assert!(self.live.iter().is_sorted_by_key(|segment| segment.id), "segments in use are in order of ids");
        raised
    }

    /// Completes what [`prepare`](Self::prepare) began: segment `number` is the next one, or the slot is free again.
    pub fn prepared(
        &mut self,
        claim: Claim,
        made: Result<(), LogError>,
        number: u64,
        without: u32,
    ) -> Result<(), LogError> {
        debug_assert!(matches!(self.next, Next::UnderWay(id) if id == claim.id), "this claim is being prepared");
        if let Err(error) = made {
            self.set_free(claim.slot, true);
            self.next = if matches!(error, LogError::DiskFull(_)) { Next::Refused } else { Next::Unknown };
            return Err(error);
        }
        let segment = Arc::new(SegmentUse::new(claim.id, claim.slot, number, without));
        debug_assert!(!segment.is_unused(u64::MAX - 1), "a prepared segment is not free");
        self.live.push_back(Arc::clone(&segment));
        self.next = Next::Prepared(segment);
        Ok(())
    }

    fn set_free(&mut self, slot: u32, is_free: bool) {
        if let Some(free) = self.free.get_mut(slot as usize) {
            debug_assert_ne!(*free, is_free, "a slot is taken once, and freed once");
            *free = is_free;
        }
    }

    /// Marks records flushed.
    pub fn flushed(&mut self, table: Uuid, interval: PositionInterval) {
        for segment in &self.live {
            if interval.start.segment <= segment.id && segment.id <= interval.end.segment {
                segment.mark_clean(table, interval);
            }
        }
    }

    /// Removes and returns the segments that `unused` says are not needed. The caller is then the only one to free
    /// them.
    pub fn take_unused(&mut self, unused: impl Fn(&SegmentUse) -> bool) -> Vec<Unneeded> {
        let mut taken = Vec::new();
        let mut before: Option<Arc<SegmentUse>> = None;
        self.live.retain(|segment| {
            let is_unused = unused(segment);
            if is_unused {
                taken.push(Unneeded { segment: Arc::clone(segment), before: before.clone() });
            } else {
                before = Some(Arc::clone(segment));
            }
            !is_unused
        });
        self.freeing.extend(taken.iter().map(|taken| Arc::clone(&taken.segment)));
        taken
    }

    /// Marks a removed segment free, after its bookkeeping says so.
    pub fn freed(&mut self, segment: &SegmentUse) {
        debug_assert!(self.freeing.iter().any(|freeing| freeing.slot == segment.slot), "it was taken out before");
        debug_assert!(self.live.iter().all(|live| live.slot != segment.slot), "a freed segment is not in use");
        self.freeing.retain(|freeing| freeing.slot != segment.slot);
        self.set_free(segment.slot, true);
        let is_next = matches!(&self.next, Next::Prepared(next) if next.id == segment.id);
        if is_next || self.was_refused() {
            self.next = Next::Unknown;
        }
    }

    /// The id of the oldest segment that a start would find in use now, if any.
    pub fn oldest_id(&self) -> Option<i64> {
        self.live.front().into_iter().chain(&self.freeing).map(|segment| segment.id).min()
    }

    /// Whether a start would still find a segment in use that this run found at its own start.
    pub fn has_found(&self) -> bool {
        self.live.iter().chain(&self.freeing).any(|segment| segment.number.is_none())
    }

    /// The segments in use, oldest first.
    pub fn live(&self) -> impl Iterator<Item = &Arc<SegmentUse>> {
        self.live.iter()
    }

    /// The greatest id of the segments used so far, or an id between it and that of the next one.
    pub fn last_used_id(&self) -> i64 {
        match &self.next {
            Next::UnderWay(id) => id - 1,
            Next::Prepared(segment) => segment.id - 1,
            Next::Unknown | Next::Refused => self.last_id,
        }
    }

    /// The number of segments that hold no records.
    pub fn free_count(&self) -> u32 {
        let next = matches!(self.next, Next::UnderWay(_) | Next::Prepared(_));
        let free = self.free.iter().filter(|free| **free).count() as u32 + u32::from(next);
        debug_assert!(free as usize <= self.free.len(), "the prepared segment's slot is not free as well");
        free
    }

    /// The oldest segments should be flushed when fewer segments than this are free: a quarter of the log, at most 8,
    /// at least 1.
    pub fn free_wanted(&self) -> u32 {
        (self.free.len() as u32 / 4).clamp(1, 8)
    }

    /// The tables to flush so that enough segments are free; `None` if they are.
    pub fn pressure(&self) -> Option<Pressure> {
        let free = self.free_count();
        let missing = self.free_wanted().saturating_sub(free);
        if missing == 0 {
            return None;
        }
        let (mut tables, mut seen) = (Vec::new(), HashSet::new());
        debug_assert!(missing as usize <= self.free.len());
        let mut up_to = LogPosition::NONE;
        for segment in self.live.iter().take(missing as usize) {
            tables.extend(segment.dirty_tables().into_iter().filter(|table| seen.insert(*table)));
            up_to = segment.at(i32::MAX);
        }
        Some(Pressure { free_segments: free, segments: self.free.len() as u32, tables, up_to })
    }
}

impl Claim {
    /// Writes the segment's bookkeeping with a promise; it is on the device when this returns.
    pub fn make(&self, file: &LogFile, without: u32) -> Result<(), LogError> {
        assert!(self.slot < file.geometry().segments, "the slot is one of the file's");
        reserve_space(file, self.slot)?;
        let (index, state) = (self.slot, SegmentState::Live);
        file.write_entry(BookkeepingEntry { index, state, id: self.id, without, durable_blocks: 0 })
    }
}

/// Reserves disk space for the whole segment at its first use.
fn reserve_space(file: &LogFile, slot: u32) -> Result<(), LogError> {
    let geometry = file.geometry();
    let end = geometry.segment_offset(slot + 1);
    let length = file.file().len()?;
    if length >= end {
        return Ok(());
    }
    let start = geometry.segment_offset(slot).max(length);
    debug_assert!(start < end);
    file.file().allocate(start, end - start).map_err(|e| match e.kind() {
        blockio::DiskErrorKind::Full => LogError::DiskFull(e),
        _ => LogError::Disk(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_ids_keep_the_order_of_the_segments_that_are_still_to_be_filled() {
        let mut segments = Segments::new(Arc::new(|| 10), 0, 4, Vec::new());
        let prepare = |segments: &mut Segments, number| {
            let claim = segments.prepare().unwrap();
            segments.prepared(claim, Ok(()), number, 0).unwrap();
        };
        prepare(&mut segments, 0);
        let current = segments.take_next().unwrap();
        prepare(&mut segments, 1);
        assert!(segments.raise_ids(current.id - 1, 0).is_empty(), "both are greater");
        let raised: Vec<i64> = segments.raise_ids(90_000, 0).iter().map(|segment| segment.id).collect();
        assert_eq!(raised, [90_001, 90_002]);
        assert_eq!(segments.live().map(|segment| segment.id).collect::<Vec<_>>(), raised);
        assert_eq!(segments.take_next().unwrap().id, 90_002, "the prepared segment is the raised one");
        assert!(segments.raise_ids(95_000, 2).is_empty(), "segments with records keep their ids");
    }
}
