//! Going from one segment to the next.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use blockio::{Fault, SimulatedDisk};
use commitlog::{CommitLog, LogInspector, LogOptions, PositionInterval, SyncMode, log_path};
use uuid::Uuid;

const TABLE: Uuid = Uuid::from_u128(1);

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

/// So many records of 10,000 bytes, each on the device before the next: the writer has gone on when the last one is.
fn append(log: &CommitLog, records: u8) {
    for record in 0..records {
        let at = log.append(&[TABLE], &[record; 10_000]).unwrap();
        log.durable(at.position).wait().unwrap();
    }
}

#[test]
fn the_next_segment_is_ready_before_it_is_wanted() {
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
    append(&log, 2);
    assert_eq!(live(&disk), 1, "not half full");
    append(&log, 3);
    assert_eq!(live(&disk), 2);

    // Whoever crosses the border writes nothing: the next write of anybody fails.
    let held = log.hold_wake_ups(Waker::noop());
    disk.inject(Fault::Fail, 0);
    let crossing = log.try_append(&[TABLE], &[9; 20_000]).unwrap();
    assert_eq!(crossing.start.offset, 40, "the first record of its segment");
    assert!(log.closed().is_none());
    drop(held);
    log.durable(crossing.position).wait().unwrap_err();
    drop(log);

    // What was acknowledged is there, and the segment that was ready holds nothing.
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
