//! The change from one segment to the next.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use blockio::{Fault, SimulatedDisk};
use commitlog::{CommitLog, LogError, LogInspector, LogOptions, LogPosition, PositionInterval, SyncMode, log_path};
use uuid::Uuid;

const TABLE: Uuid = Uuid::from_u128(1);
/// The time after which a waiting test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

fn options() -> LogOptions {
    LogOptions {
        segment_size_bytes: 64 << 10,
        total_space_bytes: 4 * (64 << 10),
        sync: SyncMode::Batch,
        ..LogOptions::new("/log")
    }
}

fn live(disk: &SimulatedDisk) -> usize {
    LogInspector::open(disk, &log_path(Path::new("/log"))).unwrap().live().len()
}

/// Appends this many records of 10,000 bytes, each on the device before the next.
fn append(log: &CommitLog, records: u8) {
    for record in 0..records {
        let at = log.append(&[TABLE], &[record; 10_000]).unwrap();
        log.durable(at.position).wait().unwrap();
    }
}

#[test]
fn the_next_segment_is_ready_before_it_is_needed() {
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    append(&log, 2);
    assert_eq!(live(&disk), 1, "not half full");
    append(&log, 3);
    assert_eq!(live(&disk), 2);

    // The thread that crosses the border writes nothing: the next write of any thread fails.
    let held = log.hold_wake_ups(Waker::noop());
    disk.inject(Fault::Fail, 0);
    let crossing = log.try_append(&[TABLE], &[9; 20_000]).unwrap();
    assert_eq!(crossing.start.offset, 40, "the first record of its segment");
    assert!(log.closed().is_none());
    drop(held);
    log.durable(crossing.position).wait().unwrap_err();
    drop(log);

    // What was acknowledged is there, and the prepared segment holds nothing.
    let (log, mut replay) = CommitLog::open(Arc::new(disk.crash_image(7)), options()).unwrap();
    let mut records = 0;
    while let Some(record) = replay.next_record().unwrap() {
        assert_eq!(record.data, [if records < 2 { records } else { records - 2 }; 10_000]);
        records += 1;
    }
    assert_eq!(records, 5);
    log.discard_replayed().unwrap();
    log.shutdown().unwrap();
}

#[test]
fn a_segment_that_was_ready_and_never_used_is_free_again_after_a_shutdown() {
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    append(&log, 5);
    assert_eq!((live(&disk), log.metrics().total_size_bytes), (2, 2 * (64 << 10)));
    // It counts as free: no table has to be flushed for it.
    assert_eq!(log.pressure(), None);
    let start = commitlog::LogPosition::NONE;
    log.flushed(TABLE, PositionInterval { start, end: log.position() }).unwrap();
    log.shutdown().unwrap();
    assert_eq!(live(&disk), 0);
}

/// Reports everything so far as flushed.
fn flush(log: &CommitLog) -> Result<(), LogError> {
    log.flushed(TABLE, PositionInterval { start: LogPosition::NONE, end: log.position() })
}

/// A log without a free segment.
fn full_log(disk: &SimulatedDisk) -> CommitLog {
    let options = LogOptions { append_timeout: Duration::from_millis(200), ..options() };
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    loop {
        match log.append(&[TABLE], &[7; 10_000]) {
            Ok(at) => log.durable(at.position).wait().unwrap(),
            Err(error) => {
                assert!(matches!(error, LogError::NoFreeSegment), "{error}");
                return log;
            }
        }
    }
}

/// Returns the result of `ask` while the device stalls.
fn while_stalled<T: Send>(disk: &SimulatedDisk, ask: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let (send, answer) = mpsc::channel();
        let _stall = disk.stall();
        scope.spawn(move || send.send(ask()));
        answer.recv_timeout(GIVE_UP).expect("an answer though the device stands still")
    })
}

#[test]
fn a_stalled_device_does_not_block_an_append_without_a_segment() {
    let disk = SimulatedDisk::new();
    let log = full_log(&disk);
    flush(&log).unwrap();
    let end = log.position();
    let (refused, position, _) = while_stalled(&disk, || {
        let refused = log.try_append(&[TABLE], &[8; 10_000]).is_err();
        (refused, log.position(), log.pressure())
    });
    assert!(!refused || position == end);
    log.append(&[TABLE], &[9; 10_000]).unwrap();
}

#[test]
fn a_full_log_ends_before_the_first_segment_that_becomes_free() {
    let disk = SimulatedDisk::new();
    drop(full_log(&disk));
    let claimed = Arc::new(AtomicBool::new(false));
    let clock = {
        let claimed = Arc::clone(&claimed);
        move || {
            claimed.store(true, Ordering::SeqCst);
            i64::MAX / 2
        }
    };
    let disk = disk.crash_image(3);
    let options = LogOptions { clock: Arc::new(clock), ..options() };
    let (log, mut replay) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    let mut last = LogPosition::NONE;
    while let Some(record) = replay.next_record().unwrap() {
        last = record.position;
    }
    log.discard_replayed().unwrap();
    assert!(!claimed.load(Ordering::SeqCst) && last <= log.position());
    let end = while_stalled(&disk, || {
        let refused = log.try_append(&[TABLE], b"first").unwrap_err();
        assert!(matches!(refused, LogError::NoFreeSegment), "{refused}");
        while !claimed.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // Its bookkeeping is being written.
        log.position()
    });
    assert!(last <= end && end < log.append(&[TABLE], b"first").unwrap().position);
}

#[test]
fn a_full_disk_is_reported_until_it_or_a_segment_has_space() {
    let disk = SimulatedDisk::new();
    let options = LogOptions { append_timeout: Duration::from_millis(200), ..options() };
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    let prefix = LogInspector::open(&disk, &log_path(Path::new("/log"))).unwrap().geometry().segment_offset(0);
    let room_for = |segments: u64| disk.set_capacity(prefix + segments * (64 << 10) + 4096);
    let until_full = |record: u8| {
        loop {
            match log.append(&[TABLE], &[record; 10_000]) {
                Ok(at) => log.durable(at.position).wait().unwrap(),
                Err(error) => return error,
            }
        }
    };
    room_for(2);
    assert!(matches!(until_full(1), LogError::DiskFull(_)));
    assert!(matches!(log.try_append(&[TABLE], &[2; 10_000]), Err(LogError::DiskFull(_))), "reported at once");
    room_for(3);
    log.try_append(&[TABLE], &[3; 10_000]).expect("the disk has room");
    assert!(matches!(until_full(4), LogError::DiskFull(_)));
    flush(&log).unwrap();
    log.append(&[TABLE], &[5; 10_000]).expect("a segment is free");
    assert!(log.closed().is_none());
}

#[test]
fn a_failed_bookkeeping_write_ends_all_syncs_and_frees_no_segment() {
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    append(&log, 14);
    let oldest = log.oldest_segment();
    disk.inject(Fault::Fail, 0);
    flush(&log).unwrap_err();
    assert_eq!(log.oldest_segment(), oldest, "its bookkeeping says so");
    // All of it is on the device; but it may contain a record that was refused.
    assert!(log.sync().is_err());
}

/// Appends a record of each of these tables, one after another, each on the device before the next. Returns the place
/// of the last one.
fn append_of(log: &CommitLog, tables: &[Uuid]) -> LogPosition {
    let places = tables.iter().map(|table| {
        let at = log.append(&[*table], &[1; 20_000]).unwrap().position;
        log.durable(at).wait().unwrap();
        at
    });
    places.last().unwrap()
}

/// What a start finds after a bit of the block before the position has flipped: the number of records, or damage.
fn records_after_a_flip(disk: &SimulatedDisk, sync: SyncMode, at: LogPosition) -> Result<usize, LogError> {
    let options = LogOptions { sync, ..options() };
    let disk = disk.crash_image(3);
    let path = log_path(Path::new("/log"));
    let inspected = LogInspector::open(&disk, &path).unwrap();
    let slot = inspected.live().iter().find(|entry| entry.id == at.segment).unwrap().index;
    let offset = inspected.geometry().segment_offset(slot) + at.offset as u64 - 1;
    disk.flip_bit(&path, offset, 2).unwrap();
    let (_log, mut replay) = CommitLog::open(Arc::new(disk), options)?;
    let mut records = 0;
    while replay.next_record()?.is_some() {
        records += 1;
    }
    Ok(records)
}

/// Three records of 20,000 bytes fill a segment of 64 KiB.
#[test]
fn the_end_of_a_segment_is_known_after_the_next_one_was_freed() {
    let modes = [
        SyncMode::Batch,
        SyncMode::Each,
        SyncMode::Group { window: Duration::from_micros(50) },
        SyncMode::Periodic { period: Duration::from_micros(100) },
    ];
    let other = Uuid::from_u128(2);
    for sync in modes {
        let disk = SimulatedDisk::new();
        let options = LogOptions { sync, ..options() };
        let (log, _) = CommitLog::open(Arc::new(disk.clone()), options.clone()).unwrap();
        let last = append_of(&log, &[TABLE; 3]);
        append_of(&log, &[other; 4]);
        log.sync().unwrap();
        let all = PositionInterval { start: LogPosition::NONE, end: log.position() };
        log.flushed(other, all).unwrap();
        let of = |entry: &commitlog::BookkeepingEntry| (entry.id == last.segment, entry.durable_blocks);
        let entries: Vec<_> =
            LogInspector::open(&disk, &log_path(Path::new("/log"))).unwrap().live().iter().map(of).collect();
        assert_eq!(entries[0], (true, (last.offset as u32).div_ceil(4096)), "{sync:?}");
        assert!(entries[1..].iter().all(|entry| *entry == (false, 0)), "{sync:?}: {entries:?}");
        drop(log);
        let damaged = records_after_a_flip(&disk, sync, last);
        assert!(matches!(damaged, Err(LogError::Corrupt(_))), "{sync:?}: {damaged:?}");

        // A start that finds both segments knows the end too, and keeps it when it frees the second one.
        let disk = disk.crash_image(1);
        let (log, mut replay) = CommitLog::open(Arc::new(disk.clone()), options.clone()).unwrap();
        while replay.next_record().unwrap().is_some() {}
        log.flushed(other, PositionInterval { start: LogPosition::NONE, end: log.position() }).unwrap();
        drop(log);
        let damaged = records_after_a_flip(&disk, sync, last);
        assert!(matches!(damaged, Err(LogError::Corrupt(_))), "{sync:?}: {damaged:?}");
    }
}

#[test]
fn a_start_that_frees_the_segment_behind_one_that_it_found_keeps_the_end_of_that_one() {
    let other = Uuid::from_u128(2);
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    let last = append_of(&log, &[TABLE; 3]);
    append_of(&log, &[other]);
    drop(log);
    let disk = disk.crash_image(1);
    let (log, mut replay) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    while replay.next_record().unwrap().is_some() {}
    log.flushed(other, PositionInterval { start: LogPosition::NONE, end: log.position() }).unwrap();
    let damaged = records_after_a_flip(&disk, SyncMode::Batch, last);
    assert!(matches!(damaged, Err(LogError::Corrupt(_))), "{damaged:?}");
}

#[test]
fn a_log_that_is_shut_down_knows_the_ends_of_the_segments_that_stay() {
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    let last = append_of(&log, &[TABLE]);
    log.shutdown().unwrap();
    let damaged = records_after_a_flip(&disk, SyncMode::Batch, last);
    assert!(matches!(damaged, Err(LogError::Corrupt(_))), "{damaged:?}");
}
