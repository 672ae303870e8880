//! The state that appenders, waiters and the writer thread share: the ring, the segments of the records in it, and the
//! signals.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use blockio::{BLOCK_SIZE, BlockRing, Seal};
use uuid::Uuid;

use crate::file::LogFile;
use crate::format::{BookkeepingEntry, SegmentState, advance, record_start, tables_checksum};
use crate::metrics::Counters;
use crate::progress::Progress;
use crate::record_starts::RecordStarts;
use crate::segment::SegmentUse;
use crate::segments::{Segments, Unneeded};
use crate::signals::Signals;
use crate::space_signal::SpaceSignal;
use crate::tail::Tail;
use crate::waiters::Waiters;
use crate::{FailureHook, LogError, LogOptions, LogPosition, SyncMode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// How many segments of this run are remembered. The ring holds one segment's length, so records in memory belong to at
/// most two.
const RECENT: u64 = 4;

const _: () = assert!(RECENT >= 3, "a position's look-up leaves out one slot, and the ring reaches into two segments");

/// The state that appenders, waiters and the writer thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Identifies this log among those that this process has opened.
    pub instance: u64,
    pub file: LogFile,
    pub sync: SyncMode,
    /// The tables whose records a start must read before it replays any.
    pub preview_tables: Vec<Uuid>,
    /// The checksum of these tables, which a segment's bookkeeping carries as a promise until the segment has a record
    /// of theirs.
    pub without: u32,
    pub tail: Tail,
    pub record_starts: RecordStarts,
    pub waiters: Waiters,
    pub space: SpaceSignal,
    pub counters: Counters,
    pub signals: Signals,
    progress: Mutex<Progress>,
    /// The last activated segments, by number modulo [`RECENT`].
    recent: [RwLock<Option<Arc<SegmentUse>>>; RECENT as usize],
    /// The ids of these segments, for callers that need nothing else. An id is set before the tail says that there is
    /// such a segment, and is replaced long after its positions became durable.
    recent_ids: [AtomicI64; RECENT as usize],
    segments: Mutex<Segments>,
    /// Whether some segment may only be waiting for its last frames to become durable before it can be freed.
    free_later: AtomicBool,
    hooks: Hooks,
}

/// The caller's hooks, separate because they do not implement `Debug`.
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
    pub fn new(file: LogFile, segments: Segments, progress: Progress, options: &LogOptions) -> Shared {
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
            space: SpaceSignal::default(),
            counters: Counters::default(),
            signals: Signals::new(),
            progress: Mutex::new(progress),
            recent: Default::default(),
            recent_ids: Default::default(),
            segments: Mutex::new(segments),
            free_later: AtomicBool::new(false),
            hooks: Hooks { on_pressure: options.on_pressure.clone(), on_failure: options.on_failure.clone() },
        }
    }

    /// The number of segments activated in this run.
    pub fn activated(&self) -> u64 {
        self.tail.activated()
    }

    pub fn segment_size(&self) -> u64 {
        self.tail.segment_size()
    }

    /// The segment with that number in this run, if its records may be in memory.
    pub fn recent_segment(&self, number: u64) -> Option<Arc<SegmentUse>> {
        let recent = self.recent_slot(number).read().unwrap_or_else(PoisonError::into_inner);
        recent.as_ref().filter(|segment| segment.number == Some(number)).cloned()
    }

    /// The slot that holds segment `number` of this run while its records are in memory.
    pub fn recent_slot(&self, number: u64) -> &RwLock<Option<Arc<SegmentUse>>> {
        &self.recent[(number % RECENT) as usize]
    }

    fn recent_id(&self, number: u64) -> &AtomicI64 {
        &self.recent_ids[(number % RECENT) as usize]
    }

    /// The reason why the log accepts no more records, if it is closed.
    pub fn closed(&self) -> Option<LogError> {
        self.waiters.closed().map(LogError::Closed)
    }

    /// Closes the log for records. The first reason stays; returns whether this call set it.
    pub fn close(&self, reason: &str) -> bool {
        let first = self.waiters.close(reason);
        self.space.announce();
        first
    }

    /// Closes the log because of a failure.
    pub fn fail(&self, reason: &str) {
        if let (true, Some(hook)) = (self.close(reason), &self.hooks.on_failure) {
            hook(reason);
        }
    }

    /// Closes the log if the result is an I/O failure on the log's own blocks, because such a failure is permanent.
    /// Other errors pass through.
    pub fn failing<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Disk(error)) = &result {
            self.fail(&error.to_string());
        }
        result
    }

    /// The log's progress, for a thread that issues frames.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless another thread holds the lock.
    pub fn try_progress(&self) -> Option<MutexGuard<'_, Progress>> {
        self.progress.try_lock().ok()
    }

    /// The segments. The lock is taken to change segments, never for an append inside one.
    pub fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The range for a record of `size` bytes that is reserved at `tail`, if the segment has room for it.
    pub fn place(&self, tail: u64, size: u64) -> Range<u64> {
        let start = record_start(if self.sync == SyncMode::Each { tail.next_multiple_of(BLOCK) } else { tail });
        let end = advance(start, size);
        debug_assert!(tail <= start && !start.is_multiple_of(BLOCK), "a record does not begin in a block's header");
        debug_assert!(end - start >= size, "headers only add to a record's length");
        start..end
    }

    /// Moves on to the next segment, unless another thread did so since `activated` was read. Usually the next segment
    /// is prepared; otherwise the writer is asked to prepare it and announces it as room. This function writes nothing
    /// itself, so that a stalled device does not block appenders. The exception is a disk that was full at the last
    /// attempt: each caller then tries again itself, and gets the error or the segment.
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
        debug_assert_eq!(segment.number, Some(activated), "the prepared segment follows the last activated one");
        self.recent_id(activated).store(segment.id, Ordering::Relaxed);
        *self.recent_slot(activated).write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&segment));
        let Some((seal, end)) = self.tail.next_segment() else {
            segments.put_back(segment);
            return Err(LogError::NoFreeSegment);
        };
        debug_assert!(end <= activated * self.segment_size(), "the records end inside the segment before");
        debug_assert!(self.activated() > activated);
        if let Some(before) = activated.checked_sub(1).and_then(|number| self.recent_segment(number)) {
            before.close(end);
        }
        drop(segments);
        // The previous segment may only be waiting for its last frames.
        self.free_later();
        // In `batch` the appending thread signals the writer or writes itself; nothing waits for more records.
        if seal == Seal::Sealed && self.sync != SyncMode::Batch {
            self.signals.hurry();
        }
        self.press();
        Ok(())
    }

    /// Makes the ids of new segments greater than `seen`. The segments without any record get such ids too.
    pub fn raise_segment_ids(&self, seen: i64) -> Result<(), LogError> {
        let unfilled = self.tail.ring.tail().div_ceil(self.segment_size());
        debug_assert!(unfilled <= self.activated(), "the tail is in an activated segment, or at its end");
        let raised = loop {
            let mut segments = self.segments();
            if !segments.is_preparing() {
                break segments.raise_ids(seen, unfilled);
            }
            drop(segments);
            // Another thread writes the bookkeeping of the next segment, which is one block.
            std::thread::yield_now();
        };
        for segment in raised {
            if let Some(number) = segment.number.filter(|number| *number < self.activated()) {
                self.recent_id(number).store(segment.id, Ordering::Relaxed);
                *self.recent_slot(number).write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&segment));
            }
            let (index, state) = (segment.slot, SegmentState::Live);
            let entry =
                BookkeepingEntry { index, state, id: segment.id, without: segment.without(), durable_blocks: 0 };
            self.failing(self.file.write_entry(entry))?;
        }
        Ok(())
    }

    /// Puts the next segment's bookkeeping on the device before it is needed, and announces it as room. Returns false
    /// if one is prepared, another thread is preparing one, or no segment is free.
    pub fn prepare_segment(&self) -> Result<bool, LogError> {
        let Some(claim) = self.segments().prepare() else { return Ok(false) };
        let made = claim.make(&self.file, self.without);
        let mut segments = self.segments();
        // No thread moves on to another segment while one is being prepared.
        let prepared = segments.prepared(claim, made, self.activated(), self.without);
        drop(segments);
        self.failing(prepared)?;
        self.space.announce();
        Ok(true)
    }

    /// Whether the segment's bookkeeping says that it has no record of the tables that a start must read first.
    pub fn is_promised(&self, segment: &SegmentUse) -> bool {
        self.without != 0 && segment.without() == self.without
    }

    /// Withdraws the promise in the segment's bookkeeping before a record of such tables can be acknowledged. Does
    /// nothing if none of `tables` is one that a start must read first.
    pub fn withdraw_promise(&self, segment: &SegmentUse, tables: &[Uuid]) -> Result<(), LogError> {
        if segment.without() == 0 || !tables.iter().any(|table| self.preview_tables.contains(table)) {
            return Ok(());
        }
        let (index, state) = (segment.slot, SegmentState::Live);
        let entry = BookkeepingEntry { index, state, id: segment.id, without: 0, durable_blocks: 0 };
        segment.withdraw(|| self.failing(self.file.write_entry(entry)))
    }

    /// Prepares the next segment because a thread waits for one or soon will. The writer calls this, or a thread that
    /// writes in its place.
    pub fn make_room(&self) -> Result<(), LogError> {
        self.free_unused()?;
        match self.prepare_segment() {
            Err(LogError::DiskFull(_)) => {
                // Every waiting thread now tries again, and gets the error itself.
                self.space.announce();
                Ok(())
            }
            prepared => prepared.map(|_| ()),
        }
    }

    /// The ring position after the last record. It differs from the tail just after the tail has moved to a new
    /// segment.
    pub fn data_end(&self) -> u64 {
        // Moving to the next segment moves the tail before it closes the previous segment.
        let _unchanged = self.segments();
        let tail = self.tail.ring.tail();
        let before = (tail / self.segment_size()).checked_sub(1).filter(|_| tail.is_multiple_of(self.segment_size()));
        let end = before.and_then(|number| self.recent_segment(number)).map_or(tail, |segment| segment.closed_at());
        debug_assert!(tail - end.min(tail) <= self.segment_size(), "the tail is in the segment after the last record");
        end.min(tail)
    }

    /// The ring position of a log position; 0 for one in a segment that has left memory, and is therefore durable.
    pub fn ring_position(&self, position: LogPosition) -> u64 {
        let activated = self.activated();
        // A caller that has a position has seen its segment activated. At most one later activation is in progress, and
        // it uses the slot left out here.
        for number in (0..activated).rev().take(RECENT as usize - 1) {
            if self.recent_id(number).load(Ordering::Relaxed) == position.segment {
                return number * self.segment_size() + u64::try_from(position.offset).unwrap_or(0);
            }
        }
        0
    }

    /// The end of the log: all records appended before this call end at or before it, and all appended later end after
    /// it.
    pub fn position(&self) -> LogPosition {
        loop {
            let activated = self.activated();
            let Some(last) = activated.checked_sub(1) else {
                let segments = self.segments();
                // The first segment may have been activated while this thread waited for the lock. Then its id is the
                // last one, and its records lie before its end.
                if self.activated() > activated {
                    continue;
                }
                return LogPosition { segment: segments.last_used_id(), offset: i32::MAX };
            };
            let tail = self.tail.ring.tail();
            let number = (tail / self.segment_size()).min(last);
            if let Some(segment) = self.recent_segment(number) {
                let offset = tail - number * self.segment_size();
                debug_assert!(offset <= self.segment_size() || number == last, "the tail is in this segment");
                return segment.at(i32::try_from(offset).unwrap_or(i32::MAX));
            }
        }
    }

    /// Calls the caller's hook if the log needs flushes.
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

    /// Frees the segments that `unused` says are not needed, and announces the room.
    pub fn free_if(&self, unused: impl Fn(&SegmentUse) -> bool) -> Result<(), LogError> {
        let taken = self.segments().take_unused(unused);
        for Unneeded { segment, before } in &taken {
            if let Some(before) = before {
                self.keep_end(before)?;
            }
            segment.write_free(|entry| self.failing(self.file.write_entry(entry)))?;
            self.segments().freed(segment);
        }
        if !taken.is_empty() {
            self.space.announce();
        }
        Ok(())
    }

    /// Writes to a segment's bookkeeping how many of its blocks are durable. The first frame of the next segment says
    /// that too, but a start does not read a segment that is free.
    fn keep_end(&self, segment: &SegmentUse) -> Result<(), LogError> {
        let durable_blocks = match segment.number {
            None => segment.durable_blocks(),
            Some(number) => {
                let durable = self.waiters.horizon().min(segment.closed_at());
                let blocks = durable.saturating_sub(number * self.segment_size()).div_ceil(BLOCK);
                debug_assert!(blocks * BLOCK <= self.segment_size(), "its records end inside it");
                u32::try_from(blocks).unwrap_or(u32::MAX)
            }
        };
        segment.write_end(durable_blocks, |entry| self.failing(self.file.write_entry(entry)))
    }

    /// Writes the ends of all segments that stay in use when the log is shut down: no later block states them.
    pub fn keep_ends(&self) -> Result<(), LogError> {
        let live: Vec<_> = self.segments().live().cloned().collect();
        live.iter().try_for_each(|segment| self.keep_end(segment))
    }

    /// Notes that a segment may soon be unused but is not durable yet; segments are checked again when the horizon
    /// moves.
    pub fn free_later(&self) {
        self.free_later.store(true, Ordering::Release);
    }

    /// Frees the segments that were only waiting for their last frames. The writer calls this when the horizon has
    /// moved.
    pub fn free_unused_if_waiting(&self) {
        if self.free_later.swap(false, Ordering::AcqRel) {
            // A failure is permanent and recorded by `failing`; the writer meets it at its next write.
            let _ = self.free_unused();
        }
    }
}
