//! What appenders, waiters and the writer thread share: the ring, the segments that records in it belong to, and
//! signals.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use blockio::{BLOCK_SIZE, BlockRing, Seal};
use uuid::Uuid;

use crate::course::Course;
use crate::file::LogFile;
use crate::format::{BookkeepingEntry, SegmentState, advance, record_start, tables_checksum};
use crate::metrics::Counters;
use crate::record_starts::RecordStarts;
use crate::room::Room;
use crate::segment::SegmentUse;
use crate::segments::Segments;
use crate::signals::Signals;
use crate::tail::Tail;
use crate::waiters::Waiters;
use crate::{FailureHook, LogError, LogOptions, LogPosition, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Segments of this run that records in memory may belong to: the ring holds one segment's length, so at most two at a
/// time.
const RECENT: u64 = 4;

/// What appenders, waiters and the writer thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Which of the logs that this process has opened.
    pub instance: u64,
    pub file: LogFile,
    pub sync: SyncMode,
    /// Tables whose records a start has to see before it replays any.
    pub preview_tables: Vec<Uuid>,
    /// Their checksum: what a segment's bookkeeping promises until it has a record of theirs.
    pub without: u32,
    pub tail: Tail,
    pub record_starts: RecordStarts,
    pub waiters: Waiters,
    pub room: Room,
    pub counters: Counters,
    pub signals: Signals,
    course: Mutex<Course>,
    /// The last activated segments, by number modulo [`RECENT`].
    recent: [RwLock<Option<Arc<SegmentUse>>>; RECENT as usize],
    /// Their ids, for those who need no more. Set before the tail says that there is such a segment, and reused when
    /// positions in it have been durable for long.
    recent_ids: [AtomicI64; RECENT as usize],
    segments: Mutex<Segments>,
    /// Whether a segment may wait to be freed for nothing but its last frames to become durable.
    free_later: AtomicBool,
    hooks: Hooks,
}

/// The caller's hooks; apart because they cannot be printed.
pub(crate) struct Hooks {
    on_pressure: Option<Arc<dyn Fn() + Send + Sync>>,
    on_failure: Option<FailureHook>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

impl Shared {
    pub fn new(file: LogFile, segments: Segments, course: Course, options: &LogOptions) -> Shared {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let segment_size = file.geometry().segment_size_bytes;
        let ring = BlockRing::new(segment_size as usize);
        Shared {
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            record_starts: RecordStarts::new(ring.capacity()),
            tail: Tail::new(ring, u64::from(segment_size)),
            file,
            sync: options.sync,
            preview_tables: options.preview_tables.clone(),
            without: tables_checksum(&options.preview_tables),
            waiters: Waiters::default(),
            room: Room::default(),
            counters: Counters::default(),
            signals: Signals::new(),
            course: Mutex::new(course),
            recent: Default::default(),
            recent_ids: Default::default(),
            segments: Mutex::new(segments),
            free_later: AtomicBool::new(false),
            hooks: Hooks { on_pressure: options.on_pressure.clone(), on_failure: options.on_failure.clone() },
        }
    }

    /// How many segments were activated in this run.
    pub fn activated(&self) -> u64 {
        self.tail.activated()
    }

    pub fn segment_size(&self) -> u64 {
        self.tail.segment_size()
    }

    /// The segment of this run with that number, if records of it may be in memory.
    pub fn recent_segment(&self, number: u64) -> Option<Arc<SegmentUse>> {
        let recent = self.recent_slot(number).read().unwrap_or_else(PoisonError::into_inner);
        recent.as_ref().filter(|segment| segment.number == Some(number)).cloned()
    }

    /// Where segment `number` of this run is, while records of it are in memory.
    pub fn recent_slot(&self, number: u64) -> &RwLock<Option<Arc<SegmentUse>>> {
        &self.recent[(number % RECENT) as usize]
    }

    fn recent_id(&self, number: u64) -> &AtomicI64 {
        &self.recent_ids[(number % RECENT) as usize]
    }

    /// Why the log takes no more records, if so.
    pub fn closed(&self) -> Option<LogError> {
        self.waiters.closed().map(LogError::Closed)
    }

    /// The log takes no more records; the first reason stays. Answers whether this is it.
    pub fn close(&self, reason: &str) -> bool {
        let first = self.waiters.close(reason);
        self.room.announce();
        first
    }

    /// Closes the log because of a failure.
    pub fn fail(&self, reason: &str) {
        if let (true, Some(hook)) = (self.close(reason), &self.hooks.on_failure) {
            hook(reason);
        }
    }

    /// An I/O failure on the log's own blocks is sticky; other refusals are not.
    pub fn failing<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Disk(error)) = &result {
            self.fail(&error.to_string());
        }
        result
    }

    /// How far the log is; for whoever issues frames.
    pub fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless somebody else has it.
    pub fn try_course(&self) -> Option<MutexGuard<'_, Course>> {
        self.course.try_lock().ok()
    }

    /// The segments; the lock is taken for a segment's change, never for an append inside one.
    pub fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a record of `size` bytes goes that is reserved at `tail`, if the segment has room for it.
    pub fn place(&self, tail: u64, size: u64) -> Range<u64> {
        let start = record_start(if self.sync == SyncMode::Each { tail.next_multiple_of(BLOCK) } else { tail });
        start..advance(start, size)
    }

    /// Goes on in the next segment, unless somebody else did since `activated` was read. Mostly it was prepared; else
    /// the writer is asked to, which tells it as room. Writes nothing itself, so that a device that stalls does not
    /// hold who appends; but where the disk was full the last time: whoever comes then looks for himself, and is
    /// told that it is, or goes on.
    pub fn next_segment(&self, activated: u64) -> Result<(), LogError> {
        let mut segments = self.segments();
        if self.activated() != activated {
            return Ok(());
        }
        let Some(segment) = segments.take_next() else {
            let was_refused = segments.was_refused();
            drop(segments);
            if was_refused && self.prepare_segment()? {
                return Ok(());
            }
            self.signals.want_segment();
            return Err(LogError::NoFreeSegment);
        };
        self.recent_id(activated).store(segment.id, Ordering::Relaxed);
        *self.recent_slot(activated).write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&segment));
        let Some((seal, end)) = self.tail.go_on() else {
            segments.put_back(segment);
            return Err(LogError::NoFreeSegment);
        };
        if let Some(before) = activated.checked_sub(1).and_then(|number| self.recent_segment(number)) {
            before.close(end);
        }
        drop(segments);
        // The one before may wait for nothing but its last frames.
        self.free_later();
        // In `batch` whoever appended tells the writer himself, or writes: nothing waits for company.
        if seal == Seal::Sealed && self.sync != SyncMode::Batch {
            self.signals.hurry();
        }
        self.press();
        Ok(())
    }

    /// New segments get ids greater than `seen`, and so does the one to be filled first, in its place, as long as it
    /// has no record.
    pub fn raise_segment_ids(&self, seen: i64) -> Result<(), LogError> {
        let unfilled = self.tail.ring.tail().div_ceil(self.segment_size());
        let raised = self.segments().raise_ids(seen, unfilled);
        let Some(raised) = raised else { return Ok(()) };
        if let Some(number) = raised.number.filter(|number| *number < self.activated()) {
            self.recent_id(number).store(raised.id, Ordering::Relaxed);
            *self.recent_slot(number).write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&raised));
        }
        let (index, state) = (raised.slot, SegmentState::Live);
        let entry = BookkeepingEntry { index, state, id: raised.id, without: raised.without() };
        self.failing(self.file.write_entry(entry))
    }

    /// Has the next segment's bookkeeping on the device before it is wanted, and tells it as room; false where there is
    /// one, somebody else is at it, or no segment is free.
    pub fn prepare_segment(&self) -> Result<bool, LogError> {
        let Some(claim) = self.segments().prepare() else { return Ok(false) };
        let made = claim.make(&self.file, self.without);
        let mut segments = self.segments();
        // Nobody goes on in a segment while one is being prepared.
        let prepared = segments.prepared(claim, made, self.activated(), self.without);
        drop(segments);
        self.failing(prepared)?;
        self.room.announce();
        Ok(true)
    }

    /// Whether the segment's bookkeeping says that it has no record of the tables that a start has to see first.
    pub fn is_promised(&self, segment: &SegmentUse) -> bool {
        self.without != 0 && segment.without() == self.without
    }

    /// Before a record of the tables can be acknowledged, the bookkeeping of its segment promises no more that there is
    /// none of them: if they are such as a start has to see first.
    pub fn withdraw_promise(&self, segment: &SegmentUse, tables: &[Uuid]) -> Result<(), LogError> {
        if segment.without() == 0 || !tables.iter().any(|table| self.preview_tables.contains(table)) {
            return Ok(());
        }
        let (index, state) = (segment.slot, SegmentState::Live);
        let entry = BookkeepingEntry { index, state, id: segment.id, without: 0 };
        segment.withdraw(|| self.failing(self.file.write_entry(entry)))
    }

    /// Looks for a segment to go on in, because somebody waits for one or soon will. Called by the writer, or who
    /// writes in its place.
    pub fn make_room(&self) -> Result<(), LogError> {
        self.free_unused()?;
        match self.prepare_segment() {
            Err(LogError::DiskFull(_)) => {
                // Whoever waits looks for himself now, and is told why.
                self.room.announce();
                Ok(())
            }
            prepared => prepared.map(|_| ()),
        }
    }

    /// The ring position behind the last record, which is not the tail where that has just moved to a fresh segment.
    pub fn data_end(&self) -> u64 {
        // A segment's change moves the tail before it closes the segment before.
        let _unchanged = self.segments();
        let tail = self.tail.ring.tail();
        let before = (tail / self.segment_size()).checked_sub(1).filter(|_| tail.is_multiple_of(self.segment_size()));
        let end = before.and_then(|number| self.recent_segment(number)).map_or(tail, |segment| segment.closed_at());
        end.min(tail)
    }

    /// The ring position of a place in the log; 0 for one in a segment that left memory, and is durable therefore.
    pub fn ring_position(&self, position: LogPosition) -> u64 {
        let activated = self.activated();
        // Whoever has a position has seen its segment activated; of later activations at most one is under way, in the
        // slot left out.
        for number in (0..activated).rev().take(RECENT as usize - 1) {
            if self.recent_id(number).load(Ordering::Relaxed) == position.segment {
                return number * self.segment_size() + u64::try_from(position.offset).unwrap_or(0);
            }
        }
        0
    }

    /// The end of the log: all records appended before this call end at or before it, all appended after it behind it.
    pub fn position(&self) -> LogPosition {
        loop {
            let activated = self.activated();
            let Some(last) = activated.checked_sub(1) else {
                let segments = self.segments();
                // While the lock was waited for, the first segment may have become one: then its id is the last, and
                // its records lie before its end.
                if self.activated() > activated {
                    continue;
                }
                return LogPosition { segment: segments.last_used_id(), offset: i32::MAX };
            };
            let tail = self.tail.ring.tail();
            let number = (tail / self.segment_size()).min(last);
            if let Some(segment) = self.recent_segment(number) {
                let offset = tail - number * self.segment_size();
                return segment.at(i32::try_from(offset).unwrap_or(i32::MAX));
            }
        }
    }

    /// Tells the caller's hook if the log wants flushes.
    pub fn press(&self) {
        let is_short = self.segments().pressure().is_some();
        if let Some(hook) = self.hooks.on_pressure.as_ref().filter(|_| is_short) {
            hook();
        }
    }

    /// Frees all segments that nothing needs.
    pub fn free_unused(&self) -> Result<(), LogError> {
        self.free_if(|segment| segment.is_unused(self.waiters.horizon()))
    }

    /// Frees the segments that `unused` says are not needed, and tells those who wait for room.
    pub fn free_if(&self, unused: impl Fn(&SegmentUse) -> bool) -> Result<(), LogError> {
        let taken = self.segments().take_unused(unused);
        for segment in &taken {
            let (index, state) = (segment.slot, SegmentState::Free);
            let entry = BookkeepingEntry { index, state, id: segment.id, without: 0 };
            self.failing(self.file.write_entry(entry))?;
            self.segments().freed(segment);
        }
        if !taken.is_empty() {
            self.room.announce();
        }
        Ok(())
    }

    /// A segment may soon be unused that is not durable yet: look again when the horizon moves.
    pub fn free_later(&self) {
        self.free_later.store(true, Ordering::Release);
    }

    /// Frees segments that only waited for their last frames. Called by the writer when the horizon has moved.
    pub fn free_unused_if_waiting(&self) {
        if self.free_later.swap(false, Ordering::AcqRel) {
            // A failure is sticky and told by `failing`; the writer finds out at its next write.
            let _ = self.free_unused();
        }
    }
}
