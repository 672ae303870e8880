//! One use of a segment: its id, and what tables still need it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use uuid::Uuid;

use crate::{IntervalSet, LogPosition, PositionInterval};

/// A segment from its activation until it is free again.
#[derive(Debug)]
pub(crate) struct SegmentUse {
    /// The id of this use.
    pub id: i64,
    /// The segment's index in the file.
    pub slot: u32,
    /// How many segments were activated before it in this run; `None` for one found at open.
    pub number: Option<u64>,
    /// The ring position behind its last record, once no more can follow; until then `u64::MAX`.
    closed_at: AtomicU64,
    /// Found at open and not replayed yet: not all that is in it is known.
    replaying: AtomicBool,
    /// Of each table that has had records here.
    dirty: RwLock<HashMap<Uuid, Arc<DirtyRange>, BuildHasherDefault<TableHasher>>>,
    clean: Mutex<HashMap<Uuid, IntervalSet>>,
}

/// Hashes a table's id, which is looked up for every record. Ids are random or times, and chosen by whoever may make tables.
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

/// Offsets of the ends of a table's first and last record in the segment. It stays when the table needs them no more, so that whoever
/// appends may keep it.
#[derive(Debug)]
pub(crate) struct DirtyRange {
    /// What was before it is clean already if the table has had records twice.
    first: AtomicI32,
    /// Or [`CLEAN`].
    last: AtomicI32,
}

/// In place of the end of the last record: the table needs none of them.
const CLEAN: i32 = -1;

impl DirtyRange {
    fn new() -> DirtyRange {
        DirtyRange { first: AtomicI32::new(i32::MAX), last: AtomicI32::new(CLEAN) }
    }

    /// The ends, if the table needs the records.
    fn ends(&self) -> Option<(i32, i32)> {
        let last = self.last.load(Ordering::Acquire);
        (last != CLEAN).then(|| (self.first.load(Ordering::Relaxed), last))
    }

    /// The table does not need records up to the one that ends at `last`, unless there is a later one.
    /// All up to that one have been taken in: whoever flushes has waited for the appends that its interval covers, else one that comes
    /// between would be forgotten.
    fn clean(&self, last: i32) {
        let _ = self.last.compare_exchange(last, CLEAN, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes in a record. Mostly only its end moves; what need not be written is only read.
    pub fn extend(&self, offset: i32) {
        if offset < self.first.load(Ordering::Relaxed) {
            self.first.fetch_min(offset, Ordering::Relaxed);
        }
        if offset > self.last.load(Ordering::Relaxed) {
            // Whoever sees this end sees the first one too.
            self.last.fetch_max(offset, Ordering::Release);
        }
    }
}

impl SegmentUse {
    /// A segment to be filled.
    pub fn new(id: i64, slot: u32, number: u64) -> SegmentUse {
        SegmentUse {
            id,
            slot,
            number: Some(number),
            closed_at: AtomicU64::new(u64::MAX),
            replaying: AtomicBool::new(false),
            dirty: RwLock::default(),
            clean: Mutex::default(),
        }
    }

    /// A segment found at open, to be replayed.
    pub fn found(id: i64, slot: u32) -> SegmentUse {
        let found = SegmentUse { number: None, ..SegmentUse::new(id, slot, 0) };
        found.closed_at.store(0, Ordering::Relaxed);
        found.replaying.store(true, Ordering::Relaxed);
        found
    }

    /// A place in it.
    pub fn at(&self, offset: i32) -> LogPosition {
        LogPosition { segment: self.id, offset }
    }

    /// No record follows the ring position.
    pub fn close(&self, position: u64) {
        self.closed_at.store(position, Ordering::Release);
    }

    pub fn replayed(&self) {
        self.replaying.store(false, Ordering::Release);
    }

    /// A record that ends at `offset` touches the tables.
    pub fn mark_dirty(&self, tables: &[Uuid], offset: i32) {
        tables.iter().for_each(|table| self.range_of(*table).extend(offset));
    }

    /// Where records of the table are to be taken in. Takes no exclusive lock but for a table's first record here.
    pub fn range_of(&self, table: Uuid) -> Arc<DirtyRange> {
        let known = self.dirty.read().unwrap_or_else(PoisonError::into_inner).get(&table).cloned();
        known.unwrap_or_else(|| {
            let mut dirty = self.dirty.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(dirty.entry(table).or_insert_with(|| Arc::new(DirtyRange::new())))
        })
    }

    /// The records of `table` in the interval are in SSTables.
    pub fn mark_clean(&self, table: Uuid, interval: PositionInterval) {
        let start = interval.start.max(self.at(0));
        let end = interval.end.min(self.at(i32::MAX));
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        let set = clean.entry(table).or_default();
        set.add(PositionInterval { start, end });
        let dirty = self.dirty.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = dirty.get(&table)
            && let Some((first, last)) = range.ends()
            && set.covers(self.at(first), self.at(last))
        {
            range.clean(last);
        }
    }

    /// Whether no table needs it and no record can still come in; `horizon` is the durable ring position.
    pub fn is_unused(&self, horizon: u64) -> bool {
        self.closed_at() <= horizon && self.is_clean()
    }

    /// The ring position behind its last record, once no more can follow; until then `u64::MAX`.
    pub fn closed_at(&self) -> u64 {
        self.closed_at.load(Ordering::Acquire)
    }

    /// Whether no table needs what is in it, all of which is known.
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
        let segment = SegmentUse::new(5, 0, 0);
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
        let segment = SegmentUse::new(5, 0, 0);
        segment.mark_dirty(&[a], 100);
        segment.mark_dirty(&[a], 200);
        segment.mark_clean(a, interval(0, 199));
        assert!(!segment.is_clean());
    }

    #[test]
    fn a_table_may_need_the_segment_again() {
        let a = Uuid::from_u128(1);
        let segment = SegmentUse::new(5, 0, 0);
        let range = segment.range_of(a);
        assert!(segment.is_clean(), "no record yet");
        range.extend(100);
        segment.mark_clean(a, interval(0, 150));
        assert!(segment.is_clean());
        range.extend(200);
        assert_eq!(segment.dirty_tables(), [a]);
        segment.mark_clean(a, interval(199, 300));
        assert!(!segment.is_clean(), "nobody said so of what is between");
        segment.mark_clean(a, interval(150, 200));
        assert!(segment.is_clean());
    }
}
