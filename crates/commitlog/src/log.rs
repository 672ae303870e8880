//! The log itself: appending, waiting, flushing and closing.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use blockio::{BLOCK_SIZE, BlockWrites, DirectoryLock, Disk, QueueMeans, Reservation, ReserveError};
use uuid::Uuid;

use crate::format::{
    BLOCK_HEADER_SIZE, Geometry, RECORD_OVERHEAD, RecordHead, Superblock, TABLE_ID_SIZE, body_crc, record_start,
};
use crate::progress::Progress;
use crate::segment::SegmentUse;
use crate::segments::Segments;
use crate::shared::Shared;
use crate::writer;
use crate::{
    Durable, LogError, LogHold, LogMetrics, LogOptions, LogPosition, LogWait, PositionInterval, Pressure, Replay,
    SpaceFreed, SyncMode, WaitCount, hold, last_mark, recovery,
};

const BLOCK: u64 = BLOCK_SIZE as u64;
const SHUT_DOWN: &str = "it was shut down";

/// A durable log of opaque records in one directory, which it locks while it is open. The crate's text describes it.
#[derive(Debug)]
pub struct CommitLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    append_timeout: Duration,
    queue: QueueMeans,
    _locks: (DirectoryLock, Option<DirectoryLock>),
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
    /// Opens the log in `options.directory`, or makes one. The log accepts records at once, but its old records, which
    /// [`Replay`] yields, should be replayed first.
    pub fn open(disk: Arc<dyn Disk>, options: LogOptions) -> Result<(CommitLog, Replay), LogError> {
        disk.create_dir_all(&options.directory)?;
        let lock = disk.lock_dir(&options.directory)?;
        let device_lock = options.device.as_deref().map(|device| disk.lock_file(device)).transpose()?;
        let found = recovery::open_or_create(&*disk, &options)?;
        let segments = Segments::new(
            Arc::clone(&options.clock),
            found.last_id,
            found.file.geometry().segments,
            found.live.clone(),
        );
        let progress = Progress::new(found.file.file().len()?);
        let shared = Arc::new(Shared::new(found.file, segments, progress, &options));
        let (thread, queue) = start_writer(&shared)?;
        let log = CommitLog {
            shared: Arc::clone(&shared),
            writer: Mutex::new(Some(thread)),
            append_timeout: options.append_timeout,
            queue,
            _locks: (lock, device_lock),
        };
        match shared.prepare_segment().and_then(|is_prepared| if is_prepared { shared.next_segment(0) } else { Ok(()) })
        {
            // Replay and flushes will free some segments; a full disk must not prevent reads.
            Ok(()) | Err(LogError::DiskFull(_)) => {}
            Err(error) => return Err(error),
        }
        let replay = Replay::new(disk, &options, shared, found.live, found.gaps);
        Ok((log, replay))
    }

    /// Makes a few durable writes of one block and returns how long one takes on the log's device. This blocks.
    pub fn time_durable_write(&self) -> Result<Duration, LogError> {
        self.shared.file.time_durable_write()
    }

    /// Makes all further segment ids greater than `seen`. The caller knows such ids from SSTables' intervals and from
    /// truncations, which may be older than the log. Call it before the first append.
    pub fn raise_segment_ids(&self, seen: i64) -> Result<(), LogError> {
        self.shared.raise_segment_ids(seen)
    }

    /// Appends a record that touches `tables`, and waits up to the append timeout for room. On return the record is not
    /// durable and may still fail to become so: see [`durable`](Self::durable). Many threads may append at the same
    /// time; none holds a lock while it copies.
    ///
    /// Fails with [`LogError::TooLarge`], [`LogError::NoFreeSegment`], [`LogError::DiskFull`] or [`LogError::Closed`].
    pub fn append(&self, tables: &[Uuid], record: &[u8]) -> Result<Appended, LogError> {
        let mut waiting: Option<Instant> = None;
        loop {
            let epoch = self.shared.space.epoch();
            let result = self.try_append(tables, record);
            let wait = matches!(result, Err(LogError::NoFreeSegment | LogError::DiskFull(_)));
            let since = *match (wait, &mut waiting) {
                (true, waiting) => waiting.get_or_insert_with(Instant::now),
                (false, None) => return result,
                (false, Some(since)) => since,
            };
            if !wait || !self.shared.space.wait(epoch, since + self.append_timeout) {
                self.shared.counters.allocation_waits.add(since.elapsed());
                return result;
            }
        }
    }

    /// Like [`append`](Self::append), but never waits: [`LogError::NoFreeSegment`] says that there is no room now. To
    /// wait for room after a refusal, call [`space_freed`](Self::space_freed) before the attempt.
    pub fn try_append(&self, tables: &[Uuid], record: &[u8]) -> Result<Appended, LogError> {
        let shared = &*self.shared;
        let head = self.head(tables.len(), record.len()).inspect_err(|_| {
            shared.counters.over_sized_mutations.fetch_add(1, Ordering::Relaxed);
        })?;
        let body_crc = body_crc(tables, record);
        let reservation = self.reserve(head.record_size())?;
        let Range { start, end } = reservation.range();
        debug_assert!(end - start >= head.record_size(), "the reservation holds the record");
        debug_assert!(start / shared.segment_size() == (end - 1) / shared.segment_size(), "in one segment");
        // This must come before the reservation is done. Once all batches of a segment are written, the thread that
        // frees segments must see the marks of all its records.
        let appended = last_mark::mark(shared, tables, start..end)?;
        shared.record_starts.note(record_start(start));
        fill(reservation, &head, tables, record, body_crc);
        shared.counters.completed_tasks.fetch_add(1, Ordering::Relaxed);
        if hold::hold_back(shared, start, end) {
            // Pairs with the fence of a thread that replaces a memtable: either that thread sees this record's mark, or
            // this thread sees the replacement.
            fence(Ordering::SeqCst);
        } else {
            shared.signals.appended(end);
        }
        Ok(appended)
    }

    /// Fails with [`LogError::TooLarge`] if an append of `data_bytes` bytes for `tables` tables would.
    pub fn check_size(&self, tables: usize, data_bytes: usize) -> Result<(), LogError> {
        self.head(tables, data_bytes).map(|_| ())
    }

    fn head(&self, tables: usize, data_bytes: usize) -> Result<RecordHead, LogError> {
        let size_bytes = (RECORD_OVERHEAD + tables * TABLE_ID_SIZE) as u64 + data_bytes as u64;
        let max_bytes = self.record_size_max();
        match (u16::try_from(tables), u32::try_from(data_bytes)) {
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
            let activated = shared.activated();
            match shared.tail.reserve(|tail| shared.place(tail, size)) {
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

    /// Resolves when all records up to `position` are on the device; in `periodic` mode at once. An error means that
    /// they may never be, so the caller must not acknowledge them.
    pub fn durable(&self, position: LogPosition) -> Durable {
        Durable::new(Arc::clone(&self.shared), self.wait_for(position))
    }

    /// The same wait, for a caller that polls it with [`poll_wait`](Self::poll_wait).
    pub fn wait_for(&self, position: LogPosition) -> LogWait {
        LogWait::new(self.durable_from(position))
    }

    /// Polls a wait for a record of this log.
    pub fn poll_wait(&self, wait: &mut LogWait, context: &mut Context<'_>) -> Poll<Result<(), LogError>> {
        wait.poll(&self.shared, context)
    }

    /// Whether appended records are acknowledged without waiting for the device.
    pub fn is_periodic(&self) -> bool {
        matches!(self.shared.sync, SyncMode::Periodic { .. })
    }

    /// Whether a record survives a crash only with all records before it.
    pub fn keeps_order(&self) -> bool {
        !matches!(self.shared.sync, SyncMode::Each)
    }

    /// Whether [`durable`](Self::durable) would resolve at once.
    pub fn is_durable(&self, position: LogPosition) -> bool {
        self.shared.waiters.horizon() >= self.durable_from(position)
    }

    /// The ring position up to which the log must be durable before a record that ends at `position` may be
    /// acknowledged.
    fn durable_from(&self, position: LogPosition) -> u64 {
        match self.shared.sync {
            SyncMode::Periodic { .. } => 0,
            SyncMode::Batch | SyncMode::Group { .. } | SyncMode::Each => self.shared.ring_position(position),
        }
    }

    /// While the result lives, this thread's appends are written together, and waits that are polled with `waker` are
    /// collected.
    pub fn hold_wake_ups(&self, waker: &Waker) -> LogHold {
        LogHold::new(&self.shared, waker)
    }

    /// The end of the log: all records appended before this call end at or before it, and all appended later end after
    /// it.
    pub fn position(&self) -> LogPosition {
        self.shared.position()
    }

    /// Resolves when there may be room again. Call it before an append that may be refused.
    pub fn space_freed(&self) -> SpaceFreed {
        SpaceFreed::new(Arc::clone(&self.shared))
    }

    /// Wakes all tasks that wait for [`space_freed`](Self::space_freed) so that they look again, although there may be
    /// no more room than before.
    pub fn wake_space_waiters(&self) {
        self.shared.space.announce();
    }

    /// Records that the records of `table` in the interval are durable elsewhere: they are in SSTables, or the table is
    /// gone. Frees the segments that nothing else needs. Intervals may come in any order.
    pub fn flushed(&self, table: Uuid, interval: PositionInterval) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.free_later();
        shared.segments().flushed(table, interval);
        shared.free_unused()
    }

    /// Records that everything found at open is durable elsewhere, and frees all segments of the previous run.
    pub fn discard_replayed(&self) -> Result<(), LogError> {
        self.shared.free_if(|segment| segment.number.is_none())
    }

    /// The tables that have records found at open which are not known to be durable elsewhere. The list is complete
    /// once the replay was read to its end.
    pub fn replayed_tables(&self) -> Vec<Uuid> {
        let segments = self.shared.segments();
        let found = segments.live().filter(|segment| segment.number.is_none());
        let mut tables: Vec<Uuid> = found.flat_map(|segment| segment.dirty_tables()).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// Whether the next start would replay records again that were found at this one.
    pub fn has_replayed_segments(&self) -> bool {
        self.shared.segments().has_found()
    }

    /// The id of the oldest segment in use. A start replays records of this segment and later ones.
    pub fn oldest_segment(&self) -> i64 {
        self.shared.segments().oldest_id().unwrap_or(i64::MAX)
    }

    /// The tables to flush so that the log does not run out of segments; `None` while enough segments are free.
    pub fn pressure(&self) -> Option<Pressure> {
        self.shared.segments().pressure()
    }

    /// Makes everything appended before this call durable, whatever the sync mode. Blocks.
    ///
    /// Fails once the log has failed, even if everything is on the device: a record may be there whose append was
    /// already reported as failed.
    pub fn sync(&self) -> Result<(), LogError> {
        let end = self.shared.data_end();
        self.shared.signals.sync_wanted.fetch_max(end, Ordering::AcqRel);
        self.shared.signals.wake();
        Durable::of_all(Arc::clone(&self.shared), end).wait()?;
        self.shared.closed().map_or(Ok(()), Err)
    }

    /// Stops accepting records and makes those in the log durable. If every table has flushed all of them, this also
    /// frees the last segments, so that nothing has to be replayed after a drain. Further calls do nothing.
    pub fn shutdown(&self) -> Result<(), LogError> {
        let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        self.stop(writer);
        if let Some(error) = self.shared.closed() {
            return Err(error);
        }
        self.shared.close(SHUT_DOWN);
        self.shared.free_if(SegmentUse::is_clean)?;
        self.shared.keep_ends()
    }

    /// Closes the log because of a failure outside of it: a record that it holds could not be applied. Makes everything
    /// appended so far durable first, so that a start replays it.
    pub fn fail(&self, reason: &str) {
        // If this fails, the log has already closed for a reason of its own.
        let _ = self.sync();
        self.shared.fail(reason);
    }

    fn stop(&self, writer: JoinHandle<()>) {
        self.shared.signals.stopping.store(true, Ordering::Release);
        self.shared.signals.wake();
        if writer.join().is_err() {
            self.shared.fail("its writer failed");
        }
    }

    /// The id of the node that owns the log.
    pub fn host_id(&self) -> Uuid {
        self.superblock().host_id
    }

    /// The layout in force. It may differ from the options, which take effect when a log with nothing in it is opened.
    pub fn geometry(&self) -> Geometry {
        self.superblock().geometry
    }

    fn superblock(&self) -> &Superblock {
        &self.shared.file.superblock
    }

    /// The largest record that the log accepts, overhead included, in bytes.
    pub fn record_size_max(&self) -> u64 {
        self.shared.file.geometry().record_size_max()
    }

    /// How blocks reach the device; a node should log this after the first write.
    pub fn block_writes(&self) -> BlockWrites {
        self.shared.file.block_writes()
    }

    /// How the log keeps writes in flight; a node should log this.
    pub fn queue_means(&self) -> &QueueMeans {
        &self.queue
    }

    /// The reason why the log accepts no more records, if it is closed.
    pub fn closed(&self) -> Option<LogError> {
        self.shared.closed()
    }

    /// The counters.
    pub fn metrics(&self) -> LogMetrics {
        let live = self.shared.segments().live().count() as u64;
        let (count, total) = self.shared.waiters.waits();
        let waits = WaitCount { count, total };
        self.shared.counters.snapshot(self.shared.waiters.count(), waits, live * self.shared.segment_size())
    }
}

impl Drop for CommitLog {
    /// Writes what was appended; frees nothing.
    fn drop(&mut self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            self.stop(writer);
        }
    }
}

/// Starts the writer thread and waits until it can be woken.
fn start_writer(shared: &Arc<Shared>) -> Result<(JoinHandle<()>, QueueMeans), LogError> {
    let closed = |reason: String| LogError::Closed(reason.into());
    let (started, answer) = mpsc::sync_channel(1);
    let writer = Arc::clone(shared);
    let run = move || {
        // A thread that waits for the device first waits until this thread gets a processor.
        blockio::request_short_slices();
        writer::run(writer, started);
    };
    let thread = thread::Builder::new().name("CommitLogWriter".into()).spawn(run);
    let thread = thread.map_err(|e| closed(format!("no thread for the commit log's writer: {e}")))?;
    let (waker, means) = answer.recv().unwrap_or_else(|_| Err(closed("its writer failed".into())))?;
    shared.signals.woken_by(waker);
    Ok((thread, means))
}

/// Copies a record to its place, stepping over block headers.
fn fill(mut reservation: Reservation<'_>, head: &RecordHead, tables: &[Uuid], record: &[u8], body_crc: u32) {
    let mut at = reservation.range().start;
    let mut put = |mut bytes: &[u8]| {
        while !bytes.is_empty() {
            at = record_start(at);
            let room = BLOCK - at % BLOCK;
            let n = bytes.len().min(room as usize);
            debug_assert!(n > 0 && at % BLOCK >= BLOCK_HEADER_SIZE as u64, "records step over the headers of blocks");
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
    debug_assert_eq!(at, reservation.range().end, "the record fills its reservation");
}
