//! The counters show which waits there were, and for what.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::{CommitLog, LogError, LogOptions};
use uuid::Uuid;

const TABLE: Uuid = Uuid::from_u128(1);

fn open(disk: &SimulatedDisk) -> CommitLog {
    let options = LogOptions {
        segment_size_bytes: 64 << 10,
        total_space_bytes: 2 * (64 << 10),
        append_timeout: Duration::from_millis(1),
        ..LogOptions::new("/log")
    };
    CommitLog::open(Arc::new(disk.clone()), options).unwrap().0
}

#[test]
fn an_append_is_pending_until_the_device_has_the_record() {
    let disk = SimulatedDisk::new();
    let log = open(&disk);
    let before = log.metrics();
    assert_eq!((before.pending_tasks, before.waiting_on_commit.count), (0, 0));
    let stalled = disk.stall();
    let at = log.append(&[TABLE], b"record").unwrap();
    let mut durable = pin!(log.durable(at.position));
    assert!(durable.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let waiting = log.metrics();
    assert_eq!((waiting.pending_tasks, waiting.waiting_on_commit.count, waiting.completed_tasks), (1, 0, 1));
    drop(stalled);
    while log.metrics().pending_tasks > 0 {
        thread::yield_now();
    }
    let after = log.metrics();
    assert_eq!(after.waiting_on_commit.count, 1, "{after:?}");
    assert!(after.waiting_on_commit.total > Duration::ZERO && after.waiting_on_flush.count > 0, "{after:?}");
    assert_eq!(after.total_size_bytes, 64 << 10);
    // One block: its header, the record's head, its table's id, the six bytes, their checksum.
    assert_eq!((after.frames, after.written_bytes, after.padding_bytes), (1, 4096, 4096 - (40 + 12 + 16 + 6 + 4)));
}

#[test]
fn timed_out_waits_and_too_large_records_are_counted() {
    let disk = SimulatedDisk::new();
    let log = open(&disk);
    assert!(matches!(log.append(&[TABLE], &[0; 40_000]).unwrap_err(), LogError::TooLarge { .. }));
    assert_eq!(log.metrics().over_sized_mutations, 1);
    let all_bytes = 2 * (64 << 10);
    let refused = loop {
        match log.append(&[TABLE], &[7; 10_000]) {
            Ok(at) => log.durable(at.position).wait().unwrap(),
            // The next segment was not prepared yet.
            Err(LogError::NoFreeSegment) if log.metrics().total_size_bytes < all_bytes => {}
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, LogError::NoFreeSegment), "{refused}");
    let metrics = log.metrics();
    assert!(metrics.waiting_on_segment_allocation.count > 0, "{metrics:?}");
    assert!(metrics.waiting_on_segment_allocation.total >= Duration::from_millis(1), "{metrics:?}");
    assert_eq!(metrics.total_size_bytes, all_bytes);
}
