//! The log on the machine's own disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blockio::SystemDisk;
use commitlog::{
    CommitLog, LogError, LogInspector, LogOptions, LogPosition, PositionInterval, Replay, SyncMode, Walked, log_path,
};
use testkit::TemporaryDirectory;
use uuid::Uuid;

fn options(directory: &TemporaryDirectory, sync: SyncMode) -> LogOptions {
    LogOptions { segment_size_bytes: 256 << 10, total_space_bytes: 8 << 20, sync, ..LogOptions::new(&directory.0) }
}

fn open(options: &LogOptions) -> (CommitLog, Replay) {
    CommitLog::open(Arc::new(SystemDisk::new()), options.clone()).unwrap()
}

fn replayed(mut replay: Replay) -> BTreeMap<LogPosition, (Vec<Uuid>, Vec<u8>)> {
    let mut records = BTreeMap::new();
    let mut last = LogPosition::NONE;
    while let Some(record) = replay.next_record().unwrap() {
        assert!(last <= record.start && record.start < record.position, "{last} {record:?}");
        last = record.position;
        records.insert(record.position, (record.tables.to_vec(), record.data.to_vec()));
    }
    records
}

const MODES: [SyncMode; 4] = [
    SyncMode::Batch,
    SyncMode::Each,
    SyncMode::Group { window: Duration::from_millis(2) },
    SyncMode::Periodic { period: Duration::from_millis(20) },
];

#[test]
fn records_of_many_threads_are_replayed_in_every_mode() {
    let disks = [SystemDisk::new(), SystemDisk::without_ring()];
    for (disk, sync) in disks.iter().flat_map(|disk| MODES.map(|sync| (disk, sync))) {
        let dir = TemporaryDirectory::create();
        let options = options(&dir, sync);
        let open = |options: &LogOptions| CommitLog::open(Arc::new(*disk), options.clone()).unwrap();
        let (log, replay) = open(&options);
        assert_eq!(replayed(replay).len(), 0);
        let mut appended = BTreeMap::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u8)
                .map(|thread| {
                    let log = &log;
                    scope.spawn(move || {
                        let mut mine = Vec::new();
                        for i in 0..100usize {
                            let tables = vec![Uuid::from_u128(u128::from(thread)); i % 3];
                            let data = vec![thread ^ i as u8; (i * 131 + usize::from(thread) * 977) % 9000];
                            let at = log.append(&tables, &data).unwrap();
                            log.durable(at.position).wait().unwrap();
                            mine.push((at.position, (tables, data)));
                        }
                        mine
                    })
                })
                .collect();
            for thread in threads {
                appended.extend(thread.join().unwrap());
            }
        });
        assert_eq!(appended.len(), 800);
        assert!(appended.keys().all(|position| *position <= log.position()));
        log.sync().unwrap();
        let metrics = log.metrics();
        assert_eq!((metrics.completed_tasks, metrics.pending_tasks), (800, 0));
        drop(log);

        let (log, replay) = open(&options);
        assert!(replayed(replay) == appended, "{sync:?}");
        log.discard_replayed().unwrap();
        log.shutdown().unwrap();
        drop(log);
        let (_log, replay) = open(&options);
        assert_eq!(replayed(replay).len(), 0);
    }
}

#[test]
fn flushed_segments_are_used_again_and_the_log_stays_within_its_space() {
    let dir = TemporaryDirectory::create();
    let options = LogOptions { total_space_bytes: 4 * (256 << 10), ..options(&dir, SyncMode::Batch) };
    let (log, _) = open(&options);
    let table = Uuid::from_u128(7);
    let mut start = log.position();
    for round in 0..12 {
        for _ in 0..4 {
            log.append(&[table], &[round; 60_000]).unwrap();
        }
        let end = log.position();
        log.flushed(table, PositionInterval { start, end }).unwrap();
        start = end;
    }
    log.sync().unwrap();
    let length = std::fs::metadata(commitlog::log_path(&dir.0)).unwrap().len();
    assert!(length <= options.total_space_bytes + (2 + 4) * 4096, "{length}");
    assert!(log.metrics().total_size_bytes <= options.total_space_bytes);
}

/// Stops the other threads of a test, also when it fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An inspection of a log that is being written, and whose segments are reused again and again, sees no damage.
#[test]
fn inspection_finds_no_damage_in_a_log_in_use() {
    for sync in [SyncMode::Batch, SyncMode::Each] {
        let dir = TemporaryDirectory::create();
        let options = LogOptions { total_space_bytes: 4 * (256 << 10), ..options(&dir, sync) };
        let (log, _) = open(&options);
        let table = Uuid::from_u128(7);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        log.append(&[table], &[1; 3000]).unwrap();
                        if let Some(pressure) = log.pressure() {
                            let interval = PositionInterval { start: LogPosition::NONE, end: pressure.up_to };
                            log.flushed(table, interval).unwrap();
                        }
                    }
                });
            }
            let _stopped = StopAtEnd(&stop);
            let mut records = 0;
            // Every segment is used many times.
            while log.metrics().written_bytes < 16 << 20 {
                let inspector = LogInspector::open(&SystemDisk::new(), &log_path(&dir.0)).unwrap();
                let damage = inspector.damage();
                let faults = inspector.segments().map(|segment| -> Result<_, LogError> {
                    let segment = segment?;
                    let mut damaged = segment.verdict.damaged.len();
                    segment.walk(|step| -> Result<(), LogError> {
                        records += usize::from(matches!(step, Walked::Record(_)));
                        damaged += usize::from(matches!(step, Walked::Fault(..)));
                        Ok(())
                    })?;
                    Ok((segment.entry, damaged))
                });
                let faults: Result<Vec<_>, _> = faults.filter(|seen| !matches!(seen, Ok((_, 0)))).collect();
                assert_eq!((damage.unwrap(), faults.unwrap()), (vec![], vec![]), "{sync:?}");
            }
            assert!(records > 0);
        });
    }
}

#[test]
fn a_full_log_refuses_appends_until_a_flush() {
    let dir = TemporaryDirectory::create();
    let options = LogOptions {
        total_space_bytes: 2 * (256 << 10),
        append_timeout: Duration::from_millis(30),
        ..options(&dir, SyncMode::Batch)
    };
    let (log, _) = open(&options);
    let [quiet, busy] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let start = log.position();
    log.append(&[quiet], b"first").unwrap();
    let refused = loop {
        if let Err(error) = log.append(&[busy], &[1; 50_000]) {
            break error;
        }
    };
    assert!(matches!(refused, LogError::NoFreeSegment), "{refused}");
    let pressure = log.pressure().unwrap();
    assert_eq!(pressure.tables, [quiet, busy]);
    assert_eq!(pressure.free_segments, 0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let before = Instant::now();
            loop {
                match log.append(&[busy], &[2; 50_000]) {
                    Ok(_) => return,
                    Err(error) => assert!(before.elapsed() < Duration::from_secs(20), "{error}"),
                }
            }
        });
        for table in [quiet, busy] {
            log.flushed(table, PositionInterval { start, end: log.position() }).unwrap();
        }
        waiter.join().unwrap();
    });
    assert!(log.metrics().waiting_on_segment_allocation.count > 0);
}

#[test]
fn a_record_above_half_a_segment_is_refused_with_its_sizes() {
    let dir = TemporaryDirectory::create();
    let (log, _) = open(&options(&dir, SyncMode::Batch));
    assert_eq!(log.record_size_max(), 128 << 10);
    let most = (128 << 10) - 16 - 16;
    log.append(&[Uuid::nil()], &vec![1; most]).unwrap();
    match log.append(&[Uuid::nil()], &vec![1; most + 1]) {
        Err(LogError::TooLarge { size_bytes, max_bytes }) => {
            assert_eq!((size_bytes, max_bytes), ((128 << 10) + 1, 128 << 10))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_log_on_the_directory_is_refused() {
    let dir = TemporaryDirectory::create();
    let options = options(&dir, SyncMode::Batch);
    let (log, _) = open(&options);
    let second = CommitLog::open(Arc::new(SystemDisk::new()), options.clone());
    assert!(matches!(&second, Err(LogError::Disk(e)) if e.kind() == blockio::DiskErrorKind::Locked), "{second:?}");
    drop(log);
    open(&options);
}

#[test]
fn another_hosts_log_is_refused() {
    let dir = TemporaryDirectory::create();
    let ours = LogOptions { host_id: Some(Uuid::from_u128(1)), ..options(&dir, SyncMode::Batch) };
    drop(open(&ours));
    let theirs = LogOptions { host_id: Some(Uuid::from_u128(2)), ..ours.clone() };
    let refused = CommitLog::open(Arc::new(SystemDisk::new()), theirs);
    assert!(matches!(refused, Err(LogError::Refused { .. })), "{refused:?}");
    let unasked = LogOptions { host_id: None, ..ours };
    assert_eq!(open(&unasked).0.host_id(), Uuid::from_u128(1));
}

#[test]
fn a_closed_log_refuses_appends() {
    let dir = TemporaryDirectory::create();
    let (log, _) = open(&options(&dir, SyncMode::Periodic { period: Duration::from_secs(10) }));
    let at = log.append(&[Uuid::nil()], b"kept").unwrap();
    log.shutdown().unwrap();
    assert!(matches!(log.append(&[], b"x"), Err(LogError::Closed(_))));
    log.shutdown().unwrap();
    drop(log);
    let (_log, replay) = open(&options(&dir, SyncMode::Batch));
    assert_eq!(replayed(replay).into_keys().collect::<Vec<_>>(), [at.position]);
}

#[test]
fn another_layout_takes_effect_once_the_log_is_empty() {
    let dir = TemporaryDirectory::create();
    let small = options(&dir, SyncMode::Batch);
    let large = LogOptions { segment_size_bytes: 512 << 10, ..small.clone() };
    let (log, _) = open(&small);
    log.append(&[Uuid::nil()], b"kept").unwrap();
    let id = log.position().segment;
    drop(log);
    let (log, replay) = open(&large);
    assert_eq!(log.geometry().segment_size_bytes, 256 << 10);
    assert_eq!(replayed(replay).len(), 1);
    log.discard_replayed().unwrap();
    log.shutdown().unwrap();
    drop(log);
    let (log, _) = open(&large);
    assert_eq!(log.geometry().segment_size_bytes, 512 << 10);
    assert!(log.position().segment > id);
}
