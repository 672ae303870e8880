//! Appenders, waiters and flushes at the same time, on a log of a few small segments.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::{CommitLog, Durable, LogError, LogOptions, LogPosition, PositionInterval, SyncMode};
use uuid::Uuid;

use crate::holding_disk::HoldingDisk;

fn options(sync: SyncMode) -> LogOptions {
    LogOptions {
        segment_size_bytes: 32 << 10,
        total_space_bytes: 6 * (32 << 10),
        sync,
        append_timeout: Duration::from_secs(30),
        ..LogOptions::new("/log")
    }
}

/// Eight threads append more than the log holds while another flushes: nothing is lost, doubled or stuck.
#[test]
fn appends_and_flushes_keep_out_of_each_others_way() {
    let ordered = [
        SyncMode::Batch,
        SyncMode::Periodic { period: Duration::from_millis(1) },
        SyncMode::Group { window: Duration::ZERO },
    ];
    // Where every record begins a block, a record at a segment's border might be admitted to the next one. This race is
    // tried more often.
    for sync in ordered.into_iter().chain(std::iter::repeat_n(SyncMode::Each, 10)) {
        let disk = SimulatedDisk::new();
        let (log, _) = CommitLog::open(Arc::new(disk.clone()), options(sync)).unwrap();
        let appended = Mutex::new(BTreeMap::new());
        let flushed_to = Mutex::new(LogPosition::NONE);
        let running = AtomicU64::new(8);
        // The engine's write groups: appends hold this lock shared, and a flush holds it exclusively while it reads the
        // position.
        let group = std::sync::RwLock::new(());
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (log, appended, running, group) = (&log, &appended, &running, &group);
                scope.spawn(move || {
                    for number in 0..400u64 {
                        let table = Uuid::from_u128(u128::from(number % 3));
                        let data =
                            [&[thread as u8], number.to_be_bytes().as_slice(), &vec![7; (number * 37 % 900) as usize]]
                                .concat();
                        let position = loop {
                            let shared = group.read().unwrap();
                            match log.try_append(&[table], &data) {
                                Ok(at) => {
                                    appended.lock().unwrap().insert(at.position, data.clone());
                                    drop(shared);
                                    break at.position;
                                }
                                Err(LogError::NoFreeSegment) => drop(shared),
                                Err(error) => panic!("{error}"),
                            }
                            std::thread::yield_now();
                        };
                        log.durable(position).wait().unwrap();
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            scope.spawn(|| {
                while running.load(Ordering::SeqCst) > 0 && log.closed().is_none() {
                    if log.pressure().is_none() {
                        std::thread::yield_now();
                        continue;
                    }
                    let end = {
                        let _alone = group.write().unwrap();
                        log.position()
                    };
                    let start = std::mem::replace(&mut *flushed_to.lock().unwrap(), end);
                    for table in 0..3 {
                        log.flushed(Uuid::from_u128(table), PositionInterval { start, end }).unwrap();
                    }
                }
            });
        });
        log.sync().unwrap();
        drop(log);
        let image = disk.crash_image(1);
        let (_log, mut replay) = CommitLog::open(Arc::new(image), options(sync)).unwrap();
        let flushed_to = flushed_to.into_inner().unwrap();
        let mut expected = appended.into_inner().unwrap();
        assert_eq!(expected.len(), 8 * 400);
        while let Some(record) = replay.next_record().unwrap() {
            assert_eq!(
                expected.remove(&record.position).as_deref(),
                Some(record.data),
                "{sync:?} at {}",
                record.position
            );
        }
        assert_eq!(
            expected.keys().find(|position| **position > flushed_to),
            None,
            "{sync:?}: lost behind {flushed_to}"
        );
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_flush_wakes_waiters_for_room() {
    let (log, _) = CommitLog::open(Arc::new(SimulatedDisk::new()), options(SyncMode::Batch)).unwrap();
    let table = Uuid::from_u128(1);
    let mut freed = loop {
        let freed = log.space_freed();
        match log.try_append(&[table], &[1; 9000]) {
            Ok(_) => log.sync().unwrap(),
            Err(error) => {
                assert!(matches!(error, LogError::NoFreeSegment));
                // Otherwise a segment is being prepared.
                if log.pressure().is_some_and(|pressure| pressure.free_segments == 0) {
                    break Box::pin(freed);
                }
            }
        }
    };
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    assert_eq!(freed.as_mut().poll(&mut context), Poll::Pending);
    log.flushed(table, PositionInterval { start: LogPosition::NONE, end: log.position() }).unwrap();
    assert!(flag.0.load(Ordering::SeqCst));
    assert_eq!(freed.as_mut().poll(&mut context), Poll::Ready(()));
    log.append(&[table], &[1; 9000]).unwrap();
}

/// A future that moves between tasks wakes the last one; one that is dropped disturbs nothing.
#[test]
fn a_waiter_is_woken_by_its_latest_waker() {
    let sync = SyncMode::Group { window: Duration::from_millis(30) };
    let (log, _) = CommitLog::open(Arc::new(SimulatedDisk::new()), options(sync)).unwrap();
    let at = log.append(&[], b"record").unwrap().position;
    let mut waiting = pin!(log.durable(at));
    let mut dropped = log.durable(at);
    let flags = [(); 3].map(|()| Arc::new(Flag(AtomicBool::new(false))));
    let poll = |future: std::pin::Pin<&mut commitlog::Durable>, flag: &Arc<Flag>| {
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(flag))))
    };
    let first = poll(waiting.as_mut(), &flags[0]);
    let second = poll(waiting.as_mut(), &flags[1]);
    let _ = poll(std::pin::Pin::new(&mut dropped), &flags[2]);
    drop(dropped);
    log.sync().unwrap();
    if first.is_pending() && second.is_pending() {
        while !flags[1].0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(!flags[0].0.load(Ordering::SeqCst));
        assert!(matches!(poll(waiting.as_mut(), &flags[1]), Poll::Ready(Ok(()))));
    }
    assert_eq!(log.metrics().pending_tasks, 0);
}

#[test]
fn a_failure_reaches_present_and_later_waiters() {
    let disk = SimulatedDisk::new();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reasons);
    let on_failure: commitlog::FailureHook = Arc::new(move |reason| reported.lock().unwrap().push(reason.to_owned()));
    let options = LogOptions { on_failure: Some(on_failure), ..options(SyncMode::Batch) };
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options.clone()).unwrap();
    let at = log.append(&[], b"kept").unwrap().position;
    log.durable(at).wait().unwrap();
    disk.inject(blockio::Fault::Fail, 0);
    let lost = log.append(&[], b"lost").unwrap().position;
    let reported = log.durable(lost).wait().unwrap_err();
    assert!(
        matches!(&reported, LogError::Closed(reason) if reason.contains("/log/commitlog.log at offset")),
        "{reported}"
    );
    assert!(matches!(log.append(&[], b"x"), Err(LogError::Closed(_))));
    assert!(log.durable(lost).wait().is_err() && log.sync().is_err() && log.shutdown().is_err());
    log.durable(at).wait().unwrap();
    drop(log);
    assert!(matches!(&reasons.lock().unwrap()[..], [reason] if reason.contains("/log/commitlog.log at offset")));
    // A shutdown is no failure.
    let (log, _) = CommitLog::open(Arc::new(SimulatedDisk::new()), options).unwrap();
    log.shutdown().unwrap();
    assert!(log.append(&[], b"x").is_err());
    drop(log);
    assert_eq!(reasons.lock().unwrap().len(), 1);
}

/// The kernel's ring itself fails, not a write in it: the outcome of the writes in flight cannot be learnt.
#[test]
fn a_lost_queue_closes_the_log_and_ends_all_waits() {
    for sync in [SyncMode::Batch, SyncMode::Each, SyncMode::Periodic { period: Duration::ZERO }] {
        let disk = SimulatedDisk::new();
        let (log, _) = CommitLog::open(Arc::new(disk.clone()), options(sync)).unwrap();
        let at = log.append(&[], b"kept").unwrap().position;
        log.sync().unwrap();
        disk.inject(blockio::Fault::LoseQueue, 0);
        let lost = log.append(&[], b"lost").unwrap().position;
        let reported = log.sync().unwrap_err();
        assert!(
            matches!(&reported, LogError::Closed(reason) if reason.contains("wait for writes of /log/commitlog.log")),
            "{reported}"
        );
        assert!(matches!(log.append(&[], b"x"), Err(LogError::Closed(_))));
        assert_eq!(log.durable(lost).wait().is_err(), !log.is_periodic());
        log.durable(at).wait().unwrap();
        drop(log);
        let (_log, mut replay) = CommitLog::open(Arc::new(disk.crash_image(1)), options(sync)).unwrap();
        assert_eq!(replay.next_record().unwrap().unwrap().data, b"kept");
    }
}

/// More is appended at once than may be in flight.
#[test]
fn at_most_the_formats_number_of_frames_is_in_flight() {
    for (sync, records, length, frames_max) in [(SyncMode::Batch, 12, 1 << 20, 8), (SyncMode::Each, 100, 10, 32)] {
        let disk = HoldingDisk::new();
        let options = LogOptions { segment_size_bytes: 16 << 20, total_space_bytes: 64 << 20, ..options(sync) };
        let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
        disk.hold();
        let data = vec![7; length];
        let together = log.hold_wake_ups(Waker::noop());
        let positions: Vec<_> = (0..records).map(|_| log.append(&[], &data).unwrap().position).collect();
        drop(together);
        disk.wait_for(frames_max);
        disk.let_all_go();
        for position in positions {
            log.durable(position).wait().unwrap();
        }
        assert_eq!(disk.under_way_most(), frames_max, "{sync:?}");
    }
}

/// The second of two frames completes first: its record is acknowledged in `each`, and waits in the ordered modes.
#[test]
fn a_frame_that_ends_before_the_one_before_it_acknowledges_its_record_in_each_alone() {
    for sync in [SyncMode::Batch, SyncMode::Each] {
        let disk = HoldingDisk::new();
        let options = LogOptions { segment_size_bytes: 256 << 10, total_space_bytes: 1 << 20, ..options(sync) };
        let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
        disk.hold();
        // Long enough to be worth a frame of its own.
        let append = |count| {
            let position = log.append(&[], &[7; 40_000]).unwrap().position;
            disk.wait_for(count);
            log.durable(position)
        };
        let (mut first, mut second) = (append(1), append(2));
        let mut context = Context::from_waker(Waker::noop());
        let mut is_pending = |waiter: &mut Durable| std::pin::Pin::new(waiter).poll(&mut context).is_pending();
        assert!(is_pending(&mut first) && is_pending(&mut second), "{sync:?}");
        disk.let_go(1);
        disk.wait_until_looked_at(1);
        assert!(is_pending(&mut first), "{sync:?}");
        assert_eq!(is_pending(&mut second), sync == SyncMode::Batch, "{sync:?}");
        disk.let_go(0);
        disk.wait_until_looked_at(2);
        assert!(!is_pending(&mut first) && (sync == SyncMode::Each || !is_pending(&mut second)), "{sync:?}");
    }
}

/// The last record is written, and acknowledged in `each`, while an earlier one is not: a sync has to wait for both.
#[test]
fn a_sync_ends_when_all_before_it_is_written_in_any_order() {
    for sync in [SyncMode::Batch, SyncMode::Each] {
        let disk = HoldingDisk::new();
        let options = LogOptions { segment_size_bytes: 256 << 10, total_space_bytes: 1 << 20, ..options(sync) };
        let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
        disk.hold();
        for count in 1..=2 {
            // Long enough to be worth a frame of its own.
            log.append(&[], &[7; 40_000]).unwrap();
            disk.wait_for(count);
        }
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| log.sync());
            while log.metrics().pending_tasks == 0 {
                std::thread::yield_now();
            }
            disk.let_go(1);
            disk.wait_until_looked_at(1);
            let pending = log.metrics().pending_tasks;
            disk.let_all_go();
            assert_eq!(pending, 1, "{sync:?}");
            syncing.join().unwrap().unwrap();
        });
    }
}

/// Under load, something is always appended behind the sync.
#[test]
fn a_sync_ends_when_the_records_before_it_are_written() {
    let disk = HoldingDisk::new();
    let options = options(SyncMode::Periodic { period: Duration::from_secs(3600) });
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    disk.hold();
    log.try_append(&[Uuid::from_u128(1)], b"before").unwrap();
    std::thread::scope(|scope| {
        let (reported, synced) = std::sync::mpsc::channel();
        let log = &log;
        scope.spawn(move || reported.send(log.sync()));
        disk.wait_for(1);
        log.try_append(&[Uuid::from_u128(1)], b"behind").unwrap();
        disk.let_go(0);
        let outcome = synced.recv_timeout(Duration::from_secs(60));
        // With this, the test ends even if a sync waits for too much.
        disk.let_all_go();
        outcome.expect("the frame behind it is held").unwrap();
    });
    log.shutdown().unwrap();
}

/// The writer learns of appends that a thread held back when the thread releases them, when it waits, and when another
/// thread appends.
#[test]
fn held_appends_are_written() {
    let (log, _) = CommitLog::open(Arc::new(SimulatedDisk::new()), options(SyncMode::Batch)).unwrap();
    for _ in 0..20 {
        let held = log.hold_wake_ups(std::task::Waker::noop());
        let positions: Vec<_> = (0..10u8).map(|number| log.append(&[], &[number; 10]).unwrap().position).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| log.durable(log.append(&[], b"other").unwrap().position).wait().unwrap());
        });
        drop(held);
        for position in positions {
            log.durable(position).wait().unwrap();
        }
    }
    // Waiting releases them.
    let _held = log.hold_wake_ups(std::task::Waker::noop());
    log.durable(log.append(&[], b"last").unwrap().position).wait().unwrap();
}

/// Appends that are worth a frame of their own are written while the thread appends more, although it holds wake-ups
/// back.
#[test]
fn many_held_appends_are_written_while_the_thread_holds_wake_ups() {
    let disk = HoldingDisk::new();
    let options = LogOptions { segment_size_bytes: 2 << 20, total_space_bytes: 8 << 20, ..options(SyncMode::Batch) };
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    disk.hold();
    let _held = log.hold_wake_ups(Waker::noop());
    let positions: Vec<_> = (0..40).map(|_| log.append(&[], &[7; 10_000]).unwrap().position).collect();
    disk.wait_for(1);
    disk.let_all_go();
    positions.into_iter().for_each(|position| log.durable(position).wait().unwrap());
}

/// A log with one frame written, so that the next frame lies in the middle of a segment.
fn begun_log(disk: &HoldingDisk) -> CommitLog {
    let options = LogOptions { segment_size_bytes: 256 << 10, total_space_bytes: 4 << 20, ..options(SyncMode::Batch) };
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    log.durable(log.append(&[], b"first").unwrap().position).wait().unwrap();
    disk.hold();
    disk.let_all_go();
    log
}

/// The number of frames that bypassed the writer's queue; only a leading thread writes such frames.
fn led(log: &CommitLog, disk: &HoldingDisk, before: u64) -> u64 {
    log.metrics().frames - before - disk.came()
}

#[test]
fn a_waiting_thread_writes_its_held_appends_while_the_writer_sleeps() {
    let disk = HoldingDisk::new();
    let log = begun_log(&disk);
    let before = log.metrics().frames;
    // The writer may not be asleep yet.
    let has_led = (0..200).any(|_| {
        let _held = log.hold_wake_ups(Waker::noop());
        let position = log.append(&[], b"held back").unwrap().position;
        log.durable(position).wait().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        led(&log, &disk, before) > 0
    });
    assert!(has_led);
    // Other waiters are woken and continue.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let _held = log.hold_wake_ups(Waker::noop());
                    log.durable(log.append(&[], &[7; 100]).unwrap().position).wait().unwrap();
                }
            });
        }
    });
}

/// Appends across a segment border are two frames: the leading thread writes both.
#[test]
fn a_waiting_thread_writes_on_both_sides_of_a_segment_border() {
    let disk = HoldingDisk::new();
    let log = begun_log(&disk);
    let append = || log.append(&[], &[7; 10_000]).unwrap().position;
    // Once around the log: only the writer writes blocks that were never written before.
    for _ in 0..500 {
        log.durable(append()).wait().unwrap();
    }
    // The writer may not be asleep at one of the borders.
    let has_led_both = (0..20_000).any(|_| {
        let before = append();
        log.durable(before).wait().unwrap();
        if before.offset < 235_000 {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
        let (frames, came) = (log.metrics().frames, disk.came());
        let _held = log.hold_wake_ups(Waker::noop());
        let positions = [append(), append(), append()];
        positions.iter().for_each(|position| log.durable(*position).wait().unwrap());
        positions[2].segment > before.segment && (log.metrics().frames - frames, disk.came() - came) == (2, 0)
    });
    assert!(has_led_both);
}

#[test]
fn a_write_that_fails_in_the_writers_place_closes_the_log_as_the_writers_own_does() {
    for _ in 0..10 {
        let disk = HoldingDisk::new();
        let log = begun_log(&disk);
        let held = log.hold_wake_ups(Waker::noop());
        let lost = log.append(&[], b"lost").unwrap().position;
        disk.inject(blockio::Fault::Fail);
        let reported = log.durable(lost).wait().unwrap_err();
        assert!(
            matches!(&reported, LogError::Closed(reason) if reason.contains("/log/commitlog.log at offset")),
            "{reported}"
        );
        drop(held);
        assert!(log.sync().is_err() && matches!(log.append(&[], b"x"), Err(LogError::Closed(_))));
        assert!(log.shutdown().is_err());
    }
}
