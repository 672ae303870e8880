//! One use of a segment: its id, and the tables that still need it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use uuid::Uuid;

use crate::format::{BookkeepingEntry, DURABLE_BLOCKS_MAX, SegmentState};
use crate::{IntervalSet, LogError, LogPosition, PositionInterval};

/// A segment from its activation until it is free again.
#[derive(Debug)]
pub(crate) struct SegmentUse {
    /// The id of this use.
    pub id: i64,
    /// The segment's index in the file.
    pub slot: u32,
    /// How many segments were activated before it in this run; `None` for one found at open.
    pub number: Option<u64>,
    /// The ring position after its last record, once no more can follow; `u64::MAX` until then.
    closed_at: AtomicU64,
    /// It was found at open and is not replayed yet, so not all of its records are known.
    replaying: AtomicBool,
    /// The checksum of absent tables in its bookkeeping: see [`crate::BookkeepingEntry::without`]. It changes only
    /// while `entry` is held, and only to 0.
    without: AtomicU32,
    /// For a segment found at open: how many of its blocks are known to be durable.
    durable_blocks: AtomicU32,
    /// The other values in its bookkeeping. Held while the bookkeeping of a segment in use is rewritten.
    entry: Mutex<WrittenEntry>,
    /// The range of each table that has had records in this use.
    dirty: RwLock<HashMap<Uuid, Arc<DirtyRange>, BuildHasherDefault<TableHasher>>>,
    clean: Mutex<HashMap<Uuid, IntervalSet>>,
}

/// The values in the bookkeeping of a use.
#[derive(Debug, Default)]
struct WrittenEntry {
    /// See [`crate::BookkeepingEntry::durable_blocks`].
    durable_blocks: u32,
    /// The use has ended. Another one may have begun, so this one writes nothing any more.
    is_free: bool,
}

/// Hashes a table's id, which is looked up for every record. Ids are random or time-based, and chosen by users who may
/// create tables.
#[derive(Debug, Default)]
struct TableHasher(u64);

impl Hasher for TableHasher {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
            self.0 = (self.0.rotate_left(29) ^ u64::from_le_bytes(whole)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, length: usize) {
        self.0 ^= length as u64;
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// The end offsets of the first and the last record of a table in this segment that the table still needs. The range
/// stays when the table needs none of them, so that appending threads may cache it.
///
/// Both offsets lie in one word. After the range was clean, it starts again at the next record. It never covers the
/// clean part between: the table may have been dropped then and created again under the same id, and no flush would
/// ever report that part as clean.
#[derive(Debug)]
pub(crate) struct DirtyRange(AtomicU64);

/// The table needs no record. No record ends at 0.
const CLEAN: u64 = 0;

const _: () = assert!(size_of::<DirtyRange>() == 8, "both ends lie in one word, so that they change together");

impl DirtyRange {
    fn new() -> DirtyRange {
        DirtyRange(AtomicU64::new(CLEAN))
    }

    /// The end offsets, if the table needs any record.
    fn ends(&self) -> Option<(i32, i32)> {
        let ends = self.0.load(Ordering::Acquire);
        (ends != CLEAN).then(|| unpack(ends))
    }

    /// Marks the range clean if `covers` holds for the ends of its first and last record. All records up to the last
    /// one must already be part of the range. A flush therefore waits for the appends that its interval covers;
    /// otherwise a record that arrives in between would be forgotten.
    fn clean_if(&self, covers: impl Fn(i32, i32) -> bool) {
        let _ = self.0.try_update(Ordering::AcqRel, Ordering::Acquire, |ends| {
            let (first, last) = unpack(ends);
            debug_assert!(ends == CLEAN || 0 < first && first <= last, "the ends of the first and the last record");
            (ends != CLEAN && covers(first, last)).then_some(CLEAN)
        });
    }

    /// Adds a record to the range.
    pub fn extend(&self, offset: i32) {
        debug_assert!(offset > 0, "no record ends at 0, which means that the range is clean");
        let _ = self.0.try_update(Ordering::AcqRel, Ordering::Acquire, |ends| {
            let (first, last) = if ends == CLEAN { (offset, offset) } else { unpack(ends) };
            let extended = pack(first.min(offset), last.max(offset));
            (extended != ends).then_some(extended)
        });
    }
}

fn pack(first: i32, last: i32) -> u64 {
    u64::from(first.cast_unsigned()) << 32 | u64::from(last.cast_unsigned())
}

fn unpack(ends: u64) -> (i32, i32) {
    ((ends >> 32) as i32, ends as i32)
}

impl SegmentUse {
    /// A segment that will be filled.
    pub fn new(id: i64, slot: u32, number: u64, without: u32) -> SegmentUse {
        SegmentUse {
            id,
            slot,
            number: Some(number),
            closed_at: AtomicU64::new(u64::MAX),
            replaying: AtomicBool::new(false),
            without: AtomicU32::new(without),
            durable_blocks: AtomicU32::new(0),
            entry: Mutex::default(),
            dirty: RwLock::default(),
            clean: Mutex::default(),
        }
    }

    /// A segment found at open, to be replayed.
    pub fn found(entry: &BookkeepingEntry) -> SegmentUse {
        let durable_blocks = entry.durable_blocks;
        let found = SegmentUse {
            number: None,
            durable_blocks: AtomicU32::new(durable_blocks),
            entry: Mutex::new(WrittenEntry { durable_blocks, is_free: false }),
            ..SegmentUse::new(entry.id, entry.index, 0, entry.without)
        };
        found.closed_at.store(0, Ordering::Relaxed);
        found.replaying.store(true, Ordering::Relaxed);
        found
    }

    /// The position at an offset of this segment.
    pub fn at(&self, offset: i32) -> LogPosition {
        LogPosition { segment: self.id, offset }
    }

    /// Records that no record follows the ring position.
    pub fn close(&self, position: u64) {
        debug_assert!(self.number.is_some(), "only a segment of this run is closed");
        debug_assert_eq!(self.closed_at(), u64::MAX, "a segment is closed once");
        self.closed_at.store(position, Ordering::Release);
    }

    pub fn replayed(&self) {
        debug_assert!(self.number.is_none(), "only a segment found at open is replayed");
        self.replaying.store(false, Ordering::Release);
    }

    /// The checksum of absent tables in its bookkeeping.
    pub fn without(&self) -> u32 {
        self.without.load(Ordering::Acquire)
    }

    /// Withdraws the promise by calling `write`, unless that was already done.
    pub fn withdraw(&self, write: impl FnOnce() -> Result<(), LogError>) -> Result<(), LogError> {
        let written = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(!written.is_free && written.durable_blocks == 0, "records are still added to it");
        if self.without() != 0 {
            write()?;
            self.without.store(0, Ordering::Release);
            debug_assert_eq!(self.without(), 0, "a promise that was withdrawn is never made again");
        }
        Ok(())
    }

    /// How many of its blocks are known to have been durable when the log was opened; 0 for a segment of this run.
    pub fn durable_blocks(&self) -> u32 {
        self.durable_blocks.load(Ordering::Acquire)
    }

    /// Records that the first `blocks` blocks of a segment found at open are durable.
    pub fn note_durable_blocks(&self, blocks: u32) {
        debug_assert!(self.number.is_none(), "the blocks of this run's segments are counted as they are written");
        self.durable_blocks.fetch_max(blocks, Ordering::AcqRel);
    }

    /// Makes its bookkeeping say that its first `durable_blocks` blocks are durable, by calling `write`. Does nothing
    /// if it says so already, or if the use has ended.
    pub fn write_end(
        &self,
        durable_blocks: u32,
        write: impl FnOnce(BookkeepingEntry) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let durable_blocks = durable_blocks.min(DURABLE_BLOCKS_MAX);
        let mut written = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.is_free && written.durable_blocks < durable_blocks {
            let (index, state, without) = (self.slot, SegmentState::Live, self.without());
            write(BookkeepingEntry { index, state, id: self.id, without, durable_blocks })?;
            written.durable_blocks = durable_blocks;
        }
        Ok(())
    }

    /// Makes its bookkeeping say that the use has ended, by calling `write`.
    pub fn write_free(&self, write: impl FnOnce(BookkeepingEntry) -> Result<(), LogError>) -> Result<(), LogError> {
        let mut written = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(!written.is_free, "a use ends once");
        let (index, state) = (self.slot, SegmentState::Free);
        write(BookkeepingEntry { index, state, id: self.id, without: 0, durable_blocks: 0 })?;
        written.is_free = true;
        Ok(())
    }

    /// Marks that a record that ends at `offset` touches the tables.
    pub fn mark_dirty(&self, tables: &[Uuid], offset: i32) {
        tables.iter().for_each(|table| self.range_of(*table).extend(offset));
    }

    /// The range that records of the table extend. Takes an exclusive lock only for a table's first record in this use.
    pub fn range_of(&self, table: Uuid) -> Arc<DirtyRange> {
        let known = self.dirty.read().unwrap_or_else(PoisonError::into_inner).get(&table).cloned();
        known.unwrap_or_else(|| {
            let mut dirty = self.dirty.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(dirty.entry(table).or_insert_with(|| Arc::new(DirtyRange::new())))
        })
    }

    /// Marks that the records of `table` in the interval are in SSTables.
    pub fn mark_clean(&self, table: Uuid, interval: PositionInterval) {
        let start = interval.start.max(self.at(0));
        let end = interval.end.min(self.at(i32::MAX));
        debug_assert!(start.segment == self.id && end.segment == self.id, "the interval reaches this segment");
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        let set = clean.entry(table).or_default();
        set.add(PositionInterval { start, end });
        let dirty = self.dirty.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = dirty.get(&table) {
            range.clean_if(|first, last| set.covers(self.at(first), self.at(last)));
        }
    }

    /// Whether no table needs the segment and no record can still be added; `horizon` is the durable ring position.
    pub fn is_unused(&self, horizon: u64) -> bool {
        self.closed_at() <= horizon && self.is_clean()
    }

    /// The ring position after its last record, once no more can follow; `u64::MAX` until then.
    pub fn closed_at(&self) -> u64 {
        self.closed_at.load(Ordering::Acquire)
    }

    /// Whether all its records are known and no table needs any of them.
    pub fn is_clean(&self) -> bool {
        !self.replaying.load(Ordering::Acquire) && self.dirty_tables().is_empty()
    }

    /// The tables that need it.
    pub fn dirty_tables(&self) -> Vec<Uuid> {
        let dirty = self.dirty.read().unwrap_or_else(PoisonError::into_inner);
        let needing = dirty.iter().filter(|(_, range)| range.ends().is_some());
        let mut tables: Vec<Uuid> = needing.map(|(table, _)| *table).collect();
        tables.sort();
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: i32, end: i32) -> PositionInterval {
        PositionInterval {
            start: LogPosition { segment: 5, offset: start },
            end: LogPosition { segment: 5, offset: end },
        }
    }

    #[test]
    fn flushes_in_any_order_make_a_segment_unused() {
        let [a, b] = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let segment = SegmentUse::new(5, 0, 0, 0);
        segment.mark_dirty(&[a, b], 100);
        segment.mark_dirty(&[a], 200);
        segment.mark_clean(a, interval(150, 300));
        assert!(!segment.is_clean());
        segment.mark_clean(a, interval(0, 150));
        assert_eq!(segment.dirty_tables(), [b]);
        let all = PositionInterval { start: LogPosition::NONE, end: LogPosition { segment: 9, offset: 0 } };
        segment.mark_clean(b, all);
        assert!(segment.is_clean());
        assert!(!segment.is_unused(u64::MAX - 1), "records may still come in");
        segment.close(500);
        assert!(!segment.is_unused(499) && segment.is_unused(500));
    }

    #[test]
    fn a_record_behind_the_flush_keeps_it() {
        let a = Uuid::from_u128(1);
        let segment = SegmentUse::new(5, 0, 0, 0);
        segment.mark_dirty(&[a], 100);
        segment.mark_dirty(&[a], 200);
        segment.mark_clean(a, interval(0, 199));
        assert!(!segment.is_clean());
    }

    #[test]
    fn a_table_may_need_the_segment_again() {
        let a = Uuid::from_u128(1);
        let segment = SegmentUse::new(5, 0, 0, 0);
        let range = segment.range_of(a);
        assert!(segment.is_clean(), "no record yet");
        range.extend(100);
        segment.mark_clean(a, interval(0, 150));
        assert!(segment.is_clean());
        range.extend(200);
        assert_eq!(segment.dirty_tables(), [a]);
        segment.mark_clean(a, interval(150, 199));
        assert_eq!(segment.dirty_tables(), [a]);
        // No flush reports the part in between as clean: the table was dropped, and did not exist until it was created
        // again under its id.
        range.extend(250);
        segment.mark_clean(a, interval(199, 300));
        assert!(segment.is_clean());
        range.extend(400);
        range.extend(350);
        segment.mark_clean(a, interval(399, 500));
        assert!(!segment.is_clean(), "the record that was taken in last is the first");
        segment.mark_clean(a, interval(340, 399));
        assert!(segment.is_clean());
    }
}
