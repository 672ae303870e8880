//! The log itself: appending, waiting, flushing, closing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use blockio::{BLOCK_SIZE, BlockRing, BlockWrites, DirectoryLock, Disk, Reservation, ReserveError, Seal};
use uuid::Uuid;

use crate::file::LogFile;
use crate::format::{
    Geometry, RECORD_OVERHEAD, RecordHead, Superblock, TABLE_ID_SIZE, advance, body_crc, record_start,
};
use crate::metrics::Counters;
use crate::segment::SegmentUse;
use crate::segments::Segments;
use crate::waiters::{Room, Waiters};
use crate::writer::Writer;
use crate::{
    Durable, LogError, LogMetrics, LogOptions, LogPosition, PositionInterval, Pressure, Replay, RoomChange, SyncMode,
    recovery,
};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Segments of this run that records in memory may belong to: the ring holds one segment's length, so at most two at a time.
const RECENT: u64 = 4;
const SHUT_DOWN: &str = "it was shut down";

/// What appenders, waiters and the writer thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub file: LogFile,
    pub sync: SyncMode,
    /// Records between reservation and device. Segment `n` of this run lies at ring positions from `n * segment size` on.
    pub ring: BlockRing,
    pub waiters: Waiters,
    pub room: Room,
    pub counters: Counters,
    pub signals: Signals,
    /// Segments activated in this run; reservations stay inside them.
    activated: AtomicU64,
    /// The last activated segments, by number modulo [`RECENT`].
    recent: [RwLock<Option<Arc<SegmentUse>>>; RECENT as usize],
    segments: Mutex<Segments>,
    /// Whether a segment may wait to be freed for nothing but its last frames to become durable.
    free_later: AtomicBool,
    failure: OnceLock<Arc<str>>,
    append_timeout: Duration,
    on_pressure: PressureHook,
}

/// The caller's hook; apart because it cannot be printed.
pub(crate) struct PressureHook(Option<Arc<dyn Fn() + Send + Sync>>);

impl fmt::Debug for PressureHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PressureHook")
    }
}

/// How the writer thread is told things.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// It sleeps until something is appended.
    pub idle: AtomicBool,
    /// Somebody waits for room in the ring: do not wait for company.
    pub urgent: AtomicBool,
    /// No more appends; write what there is and exit.
    pub stopping: AtomicBool,
    /// A ring position that somebody wants durable now, whatever the mode.
    pub sync_wanted: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Signals {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// After an append: wakes the writer if it sleeps for one. One of those who find it asleep pays for waking it.
    fn appended(&self) {
        // Pairs with the fence in the writer's `sleep`: either it sees our reservation, or we see it idle.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    fn hurry(&self) {
        self.urgent.store(true, Ordering::Release);
        self.wake();
    }
}

impl Shared {
    pub fn segment_size(&self) -> u64 {
        u64::from(self.file.geometry().segment_size_bytes)
    }

    /// The segment of this run with that number, if records of it may be in memory.
    pub fn recent_segment(&self, number: u64) -> Option<Arc<SegmentUse>> {
        let recent = self.recent_slot(number).read().unwrap_or_else(PoisonError::into_inner);
        recent.as_ref().filter(|segment| segment.number == Some(number)).cloned()
    }

    fn recent_slot(&self, number: u64) -> &RwLock<Option<Arc<SegmentUse>>> {
        &self.recent[(number % RECENT) as usize]
    }

    /// Why the log takes no more records, if so.
    pub fn closed(&self) -> Option<LogError> {
        self.failure.get().map(|reason| LogError::Closed(Arc::clone(reason)))
    }

    /// Closes the log for good; the first reason stays.
    pub fn fail(&self, reason: &str) {
        let _ = self.failure.set(reason.into());
        self.waiters.wake_all();
        self.room.announce();
    }

    /// An I/O failure on the log's own blocks is sticky; other refusals are not.
    fn failing<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Disk(error)) = &result {
            self.fail(&error.to_string());
        }
        result
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a record of `size` bytes goes that is reserved at `tail`; `None` if the segment has no room for it.
    fn place(&self, tail: u64, size: u64) -> Option<Range<u64>> {
        let number = tail / self.segment_size();
        let start = record_start(tail);
        let end = advance(start, size);
        let fits = end <= (number + 1) * self.segment_size() && number < self.activated.load(Ordering::Acquire);
        fits.then_some(start..end)
    }

    /// Goes on in a fresh segment, unless somebody else did since `activated` was read.
    fn next_segment(&self, activated: u64) -> Result<(), LogError> {
        let mut segments = self.segments();
        if self.activated.load(Ordering::Acquire) != activated {
            return Ok(());
        }
        self.failing(segments.free_if(&self.file, |segment| segment.is_unused(self.waiters.horizon())))?;
        let segment = self.failing(segments.activate(&self.file, activated))?;
        let before = activated.checked_sub(1).and_then(|number| self.recent_segment(number));
        *self.recent_slot(activated).write().unwrap_or_else(PoisonError::into_inner) = Some(segment);
        self.activated.store(activated + 1, Ordering::Release);
        let start = activated * self.segment_size();
        let mut end = start;
        let seal = self.ring.seal(|tail| {
            end = tail.next_multiple_of(BLOCK);
            end.max(start)
        });
        if let Some(before) = before {
            before.close(end);
        }
        let pressed = segments.pressure().is_some();
        drop(segments);
        if seal == Seal::Sealed {
            self.signals.hurry();
        }
        if pressed {
            self.press();
        }
        Ok(())
    }

    /// The ring position behind the last record, which is not the tail where that has just moved to a fresh segment.
    fn data_end(&self) -> u64 {
        let tail = self.ring.tail();
        let before = (tail / self.segment_size()).checked_sub(1).filter(|_| tail.is_multiple_of(self.segment_size()));
        let end = before.and_then(|number| self.recent_segment(number)).map_or(tail, |segment| segment.closed_at());
        end.min(tail)
    }

    fn press(&self) {
        if let Some(hook) = &self.on_pressure.0 {
            hook();
        }
    }

    /// Frees all segments that nothing needs.
    pub fn free_unused(&self) -> Result<(), LogError> {
        let freed = self.segments().free_if(&self.file, |segment| segment.is_unused(self.waiters.horizon()));
        if self.failing(freed)? > 0 {
            self.room.announce();
        }
        Ok(())
    }

    /// Frees segments that only waited for their last frames. Called by the writer when the horizon has moved.
    pub fn free_unused_if_waiting(&self) {
        if self.free_later.swap(false, Ordering::AcqRel) {
            // A failure is sticky and told by `failing`; the writer finds out at its next write.
            let _ = self.free_unused();
        }
    }
}

/// A durable log of opaque records, in one directory that it holds for itself. See the crate's text.
#[derive(Debug)]
pub struct CommitLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    _lock: DirectoryLock,
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where it begins.
    pub start: LogPosition,
    /// Where it ends: the position it is known by.
    pub position: LogPosition,
}

impl CommitLog {
    /// Opens the log in `options.directory`, or makes one. The log takes records at once, but what was in it should be replayed
    /// first: [`Replay`] yields it.
    pub fn open(disk: Arc<dyn Disk>, options: LogOptions) -> Result<(CommitLog, Replay), LogError> {
        let wanted = options.geometry()?;
        disk.create_dir_all(&options.directory)?;
        let lock = disk.lock_dir(&options.directory)?;
        let found = recovery::open_or_create(&*disk, &options, wanted)?;
        let segments = Segments::new(
            Arc::clone(&options.clock),
            found.last_id,
            found.file.geometry().segments,
            found.live.clone(),
        );
        let shared = Arc::new(Shared {
            ring: BlockRing::new(found.file.geometry().segment_size_bytes as usize),
            file: found.file,
            sync: options.sync,
            waiters: Waiters::default(),
            room: Room::default(),
            counters: Counters::default(),
            signals: Signals::default(),
            activated: AtomicU64::new(0),
            recent: Default::default(),
            segments: Mutex::new(segments),
            free_later: AtomicBool::new(false),
            failure: OnceLock::new(),
            append_timeout: options.append_timeout,
            on_pressure: PressureHook(options.on_pressure.clone()),
        });
        let writer = Writer::new(Arc::clone(&shared))?;
        let thread = thread::Builder::new().name("CommitLogWriter".into()).spawn(move || writer.run());
        let thread =
            thread.map_err(|e| LogError::Closed(format!("no thread for the commit log's writer: {e}").into()))?;
        // Nothing has been appended, so that the writer cannot have needed waking before.
        let _ = shared.signals.thread.set(thread.thread().clone());
        let log = CommitLog { shared: Arc::clone(&shared), writer: Mutex::new(Some(thread)), _lock: lock };
        match shared.next_segment(0) {
            // Replay and flushes will free some; a full disk must not keep anyone from reading.
            Ok(()) | Err(LogError::NoFreeSegment | LogError::DiskFull(_)) => {}
            Err(error) => return Err(error),
        }
        let replay = Replay::new(disk, &options, shared, found.live, found.gaps);
        Ok((log, replay))
    }

    /// Appends a record that touches `tables`, waiting up to the append timeout for room. It is neither durable nor refused
    /// yet: see [`durable`](Self::durable). Many threads may append at once; none holds a lock while it copies.
    ///
    /// Fails with [`LogError::TooLarge`], [`LogError::NoFreeSegment`], [`LogError::DiskFull`] or [`LogError::Closed`].
    pub fn append(&self, tables: &[Uuid], record: &[u8]) -> Result<Appended, LogError> {
        let mut waiting: Option<Instant> = None;
        loop {
            let epoch = self.shared.room.epoch();
            let result = self.try_append(tables, record);
            let wait = matches!(result, Err(LogError::NoFreeSegment | LogError::DiskFull(_)));
            let since = *match (wait, &mut waiting) {
                (true, waiting) => waiting.get_or_insert_with(Instant::now),
                (false, None) => return result,
                (false, Some(since)) => since,
            };
            if !wait || !self.shared.room.wait(epoch, since + self.shared.append_timeout) {
                self.shared.counters.allocation_waits.add(since.elapsed());
                return result;
            }
        }
    }

    /// As [`append`](Self::append), but never waits: [`LogError::NoFreeSegment`] says that there is no room now. Take
    /// [`room`](Self::room) before trying, to wait for some after.
    pub fn try_append(&self, tables: &[Uuid], record: &[u8]) -> Result<Appended, LogError> {
        let shared = &*self.shared;
        let head = self.head(tables, record)?;
        let body_crc = body_crc(tables, record);
        let reservation = self.reserve(head.record_size())?;
        let Range { start, end } = reservation.range();
        let number = start / shared.segment_size();
        let recent = shared.recent_slot(number).read().unwrap_or_else(PoisonError::into_inner);
        let Some(segment) = recent.as_ref() else {
            return Err(LogError::Closed("a segment was lost from memory".into()));
        };
        let at = |position: u64| segment.at((position - number * shared.segment_size()) as i32);
        let appended = Appended { start: at(start), position: at(end) };
        // Before the reservation is done: a segment whose batches are all written is then known to whoever frees it.
        segment.mark_dirty(tables, appended.position.offset);
        drop(recent);
        fill(reservation, &head, tables, record, body_crc);
        shared.counters.completed_tasks.fetch_add(1, Ordering::Relaxed);
        shared.signals.appended();
        Ok(appended)
    }

    fn head(&self, tables: &[Uuid], record: &[u8]) -> Result<RecordHead, LogError> {
        let size_bytes = (RECORD_OVERHEAD + tables.len() * TABLE_ID_SIZE) as u64 + record.len() as u64;
        let max_bytes = self.shared.file.geometry().record_size_max();
        match (u16::try_from(tables.len()), u32::try_from(record.len())) {
            (Ok(tables), Ok(data_size)) if size_bytes <= max_bytes => Ok(RecordHead { data_size, tables }),
            _ => Err(LogError::TooLarge { size_bytes, max_bytes }),
        }
    }

    fn reserve(&self, size: u64) -> Result<Reservation<'_>, LogError> {
        let shared = &*self.shared;
        loop {
            if let Some(closed) = shared.closed() {
                return Err(closed);
            }
            if shared.signals.stopping.load(Ordering::Acquire) {
                return Err(LogError::Closed(SHUT_DOWN.into()));
            }
            let activated = shared.activated.load(Ordering::Acquire);
            match shared.ring.reserve(|tail| shared.place(tail, size)) {
                Ok(reservation) => return Ok(reservation),
                Err(ReserveError::Full) => {
                    shared.signals.hurry();
                    return Err(LogError::NoFreeSegment);
                }
                Err(ReserveError::Refused) => match shared.next_segment(activated) {
                    Ok(()) => {}
                    Err(error) => {
                        shared.signals.hurry();
                        shared.press();
                        return Err(error);
                    }
                },
            }
        }
    }

    /// Resolves when all records up to `position` are on the device; in `periodic` mode at once. An error means that they may
    /// never be: do not acknowledge.
    pub fn durable(&self, position: LogPosition) -> Durable {
        let target = match self.shared.sync {
            SyncMode::Periodic { .. } => 0,
            SyncMode::Batch | SyncMode::Group { .. } => self.ring_position(position),
        };
        Durable::new(Arc::clone(&self.shared), target)
    }

    /// The ring position of a place in the log; 0 for one in a segment that left memory, and is durable therefore.
    fn ring_position(&self, position: LogPosition) -> u64 {
        let activated = self.shared.activated.load(Ordering::Acquire);
        for number in (0..activated).rev().take(RECENT as usize - 1) {
            if let Some(segment) = self.shared.recent_segment(number).filter(|segment| segment.id == position.segment) {
                debug_assert_eq!(segment.number, Some(number));
                return number * self.shared.segment_size() + u64::try_from(position.offset).unwrap_or(0);
            }
        }
        0
    }

    /// The end of the log: all records appended before this call end at or before it, all appended after it behind it.
    pub fn position(&self) -> LogPosition {
        loop {
            let activated = self.shared.activated.load(Ordering::Acquire);
            let Some(last) = activated.checked_sub(1) else {
                return LogPosition { segment: self.shared.segments().last_id(), offset: i32::MAX };
            };
            let tail = self.shared.ring.tail();
            let number = (tail / self.shared.segment_size()).min(last);
            if let Some(segment) = self.shared.recent_segment(number) {
                let offset = tail - number * self.shared.segment_size();
                return segment.at(i32::try_from(offset).unwrap_or(i32::MAX));
            }
        }
    }

    /// Resolves when there may be room again. Take it before an append that may be refused.
    pub fn room(&self) -> RoomChange {
        RoomChange::new(Arc::clone(&self.shared))
    }

    /// The records of `table` in the interval are durable elsewhere (in SSTables, or their table is gone). Frees the segments that
    /// nothing else needs. Intervals may come in any order.
    pub fn flushed(&self, table: Uuid, interval: PositionInterval) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.free_later.store(true, Ordering::Release);
        let freed = shared.segments().flushed(&shared.file, table, interval, shared.waiters.horizon());
        if shared.failing(freed)? > 0 {
            shared.room.announce();
        }
        Ok(())
    }

    /// Everything that was found at open is durable elsewhere: frees all segments from before it.
    pub fn discard_replayed(&self) -> Result<(), LogError> {
        let shared = &*self.shared;
        let freed = shared.segments().free_if(&shared.file, |segment| segment.number.is_none());
        if shared.failing(freed)? > 0 {
            shared.room.announce();
        }
        Ok(())
    }

    /// The tables to flush so that the log does not run out of segments; `None` while enough are free.
    pub fn pressure(&self) -> Option<Pressure> {
        self.shared.segments().pressure()
    }

    /// Makes everything appended before this call durable, whatever the mode. Waits.
    pub fn sync(&self) -> Result<(), LogError> {
        let end = self.shared.data_end();
        self.shared.signals.sync_wanted.fetch_max(end, Ordering::AcqRel);
        self.shared.signals.wake();
        Durable::new(Arc::clone(&self.shared), end).wait()
    }

    /// Takes no more records, makes those there are durable and, where every table has flushed all of them, frees the last
    /// segments: a log that was shut down after a drain has nothing to replay. Further calls do nothing.
    pub fn shutdown(&self) -> Result<(), LogError> {
        let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        self.stop(writer);
        if let Some(error) = self.shared.closed() {
            return Err(error);
        }
        self.shared.fail(SHUT_DOWN);
        let freed = self.shared.segments().free_if(&self.shared.file, SegmentUse::is_clean);
        freed.map(|_| ())
    }

    fn stop(&self, writer: JoinHandle<()>) {
        self.shared.signals.stopping.store(true, Ordering::Release);
        self.shared.signals.wake();
        if writer.join().is_err() {
            self.shared.fail("its writer failed");
        }
    }

    /// Who and how large the log is.
    pub fn host_id(&self) -> Uuid {
        self.superblock().host_id
    }

    /// The layout in force; it may differ from the options until a log with nothing in it is opened.
    pub fn geometry(&self) -> Geometry {
        self.superblock().geometry
    }

    fn superblock(&self) -> &Superblock {
        &self.shared.file.superblock
    }

    /// The largest record it takes, overhead included, in bytes.
    pub fn record_size_max(&self) -> u64 {
        self.shared.file.geometry().record_size_max()
    }

    /// How blocks reach the device; worth a line in the node's log after the first write.
    pub fn block_writes(&self) -> BlockWrites {
        self.shared.file.block_writes()
    }

    /// Why it takes no more records, if so.
    pub fn closed(&self) -> Option<LogError> {
        self.shared.closed()
    }

    /// The counters.
    pub fn metrics(&self) -> LogMetrics {
        let live = self.shared.segments().live().count() as u64;
        self.shared.counters.snapshot(self.shared.waiters.count(), live * self.shared.segment_size())
    }
}

impl Drop for CommitLog {
    /// Writes what was appended; nothing is freed.
    fn drop(&mut self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            self.stop(writer);
        }
    }
}

/// Copies a record into its place, stepping over the headers of blocks.
fn fill(mut reservation: Reservation<'_>, head: &RecordHead, tables: &[Uuid], record: &[u8], body_crc: u32) {
    let mut at = reservation.range().start;
    let mut put = |mut bytes: &[u8]| {
        while !bytes.is_empty() {
            at = record_start(at);
            let room = BLOCK - at % BLOCK;
            let n = bytes.len().min(room as usize);
            let (now, rest) = bytes.split_at(n);
            reservation.bytes(at..at + n as u64).copy_from_slice(now);
            at += n as u64;
            bytes = rest;
        }
    };
    put(&head.encode());
    for table in tables {
        put(table.as_bytes());
    }
    put(record);
    put(&body_crc.to_be_bytes());
}
