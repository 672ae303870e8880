//! A log on a device; a file of a fixed size stands in for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk, SystemDisk};
use commitlog::{CommitLog, LogError, LogInspector, LogOptions, SyncMode};
use testkit::TemporaryDirectory;
use uuid::Uuid;

const SEGMENT: u32 = 64 << 10;

fn options(device: &Path, directory: impl Into<PathBuf>) -> LogOptions {
    LogOptions {
        device: Some(device.to_path_buf()),
        segment_size_bytes: SEGMENT,
        sync: SyncMode::Batch,
        ..LogOptions::new(directory)
    }
}

fn device(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    disk.create_dir_all(path.parent().unwrap()).unwrap();
    let file = disk.open(path, OpenOptions::create()).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// Old contents of a disk, except for its first blocks.
fn used(length: usize) -> Vec<u8> {
    (0..length).map(|at| if at < 8192 { 0 } else { ((at * 31) >> 3) as u8 }).collect()
}

fn replayed(disk: &Arc<dyn Disk>, options: &LogOptions) -> Vec<Vec<u8>> {
    let (_log, mut replay) = CommitLog::open(Arc::clone(disk), options.clone()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = replay.next_record().unwrap() {
        records.push(record.data.to_vec());
    }
    records
}

fn fills_and_comes_back(disk: Arc<dyn Disk>, path: &Path, directory: &Path) {
    let options = options(path, directory);
    for sync in [SyncMode::Batch, SyncMode::Each] {
        let options = LogOptions { sync, ..options.clone() };
        let (log, mut replay) = CommitLog::open(Arc::clone(&disk), options.clone()).unwrap();
        assert!(replay.next_record().unwrap().is_none());
        let size = disk.open(path, OpenOptions::read()).unwrap().len().unwrap();
        // As many segments as fit; the old contents of the device do not matter.
        assert_eq!(u64::from(log.geometry().segments), (size - 8192) / (u64::from(SEGMENT) + 4096));
        let mut written = Vec::new();
        let refused = loop {
            let data = vec![written.len() as u8; 9000];
            match log.try_append(&[Uuid::from_u128(1)], &data) {
                Ok(at) => log.durable(at.position).wait().unwrap(),
                Err(LogError::NoFreeSegment) => match log.pressure() {
                    Some(pressure) if pressure.free_segments == 0 => break LogError::NoFreeSegment,
                    // The next segment is being prepared.
                    _ => continue,
                },
                Err(error) => break error,
            }
            written.push(data);
        };
        assert!(matches!(refused, LogError::NoFreeSegment), "{refused}");
        assert_eq!(disk.open(path, OpenOptions::read()).unwrap().len().unwrap(), size);
        drop(log);
        assert_eq!(replayed(&disk, &options), written);
        let inspected = LogInspector::open(&*disk, path).unwrap();
        assert_eq!((inspected.live().len(), inspected.damage().unwrap()), (log_segments(size), vec![]));
        let (log, _) = CommitLog::open(Arc::clone(&disk), options).unwrap();
        log.discard_replayed().unwrap();
        log.shutdown().unwrap();
    }
}

/// The number of all segments: the one that was opened last found none free.
fn log_segments(size: u64) -> usize {
    ((size - 8192) / (u64::from(SEGMENT) + 4096)) as usize
}

#[test]
fn a_device_fills_and_comes_back() {
    let disk = SimulatedDisk::new();
    let path = Path::new("/dev/log");
    device(&disk, path, &used(400_000));
    fills_and_comes_back(Arc::new(disk), path, Path::new("/log"));
    let directory = TemporaryDirectory::create();
    let path = directory.join("device");
    device(&SystemDisk::new(), &path, &used(400_000));
    fills_and_comes_back(Arc::new(SystemDisk::new()), &path, &directory.join("log"));
}

#[test]
fn a_device_with_other_content_is_refused_and_unchanged() {
    let disk = SimulatedDisk::new();
    let path = Path::new("/dev/log");
    let mut bytes = used(400_000);
    bytes[5000] = 1;
    device(&disk, path, &bytes);
    for salvage in [false, true] {
        let options = LogOptions { salvage, ..options(path, "/log") };
        match CommitLog::open(Arc::new(disk.clone()), options) {
            Err(LogError::Refused { path: named, reason }) => {
                assert!(named == path && reason.contains("holds something else"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut left = vec![0; bytes.len()];
    disk.open(path, OpenOptions::read()).unwrap().read_exact_at(&mut left, 0).unwrap();
    assert_eq!(left, bytes);
    device(&disk, path, &used(100_000));
    let refused = CommitLog::open(Arc::new(disk), options(path, "/log")).unwrap_err();
    assert!(refused.to_string().contains("commitlog_device of 100000 bytes holds 1 segments"), "{refused}");
}

/// The superblocks are lost; the blocks behind them show that this is a log.
#[test]
fn a_damaged_log_on_a_device_is_refused_and_salvage_restores_it_from_blocks() {
    let disk = SimulatedDisk::new();
    let path = Path::new("/dev/log");
    device(&disk, path, &used(400_000));
    let options = LogOptions { host_id: Some(Uuid::from_u128(3)), ..options(path, "/log") };
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (log, _) = CommitLog::open(Arc::clone(&disk), options.clone()).unwrap();
    let written: Vec<Vec<u8>> = (0..9).map(|number| vec![number; 9000]).collect();
    for data in &written {
        log.durable(log.append(&[Uuid::from_u128(1)], data).unwrap().position).wait().unwrap();
    }
    drop(log);
    disk.open(path, OpenOptions::write()).unwrap().write_at(&[7; 8192], 0).unwrap();
    match CommitLog::open(Arc::clone(&disk), options.clone()) {
        Err(LogError::Refused { reason, .. }) => assert!(reason.contains("start with --commitlog-salvage"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(replayed(&disk, &LogOptions { salvage: true, ..options.clone() }), written);
    assert_eq!(replayed(&disk, &options), written);
}

#[test]
fn two_nodes_do_not_share_a_device() {
    let directory = TemporaryDirectory::create();
    let path = directory.join("device");
    device(&SystemDisk::new(), &path, &used(400_000));
    let (_log, _) = CommitLog::open(Arc::new(SystemDisk::new()), options(&path, directory.join("a"))).unwrap();
    let refused = CommitLog::open(Arc::new(SystemDisk::new()), options(&path, directory.join("b"))).unwrap_err();
    assert!(refused.to_string().contains("is in use by another process"), "{refused}");
}

/// The device stays blank until the new log is complete, whenever the power is cut.
#[test]
fn a_log_is_made_whole_on_a_device_or_not_at_all() {
    for cut in 0..14 {
        for seed in 0..20 {
            let disk = SimulatedDisk::new();
            let path = Path::new("/dev/log");
            device(&disk, path, &used(400_000));
            disk.inject(Fault::PowerCut, cut);
            let made = CommitLog::open(Arc::new(disk.clone()), options(path, "/log")).is_ok();
            let disk = disk.crash_image(seed);
            let opened = CommitLog::open(Arc::new(disk), options(path, "/log"));
            let (log, _) = opened.unwrap_or_else(|error| panic!("cut {cut}, seed {seed}, made {made}: {error}"));
            let at = log.append(&[], b"record").unwrap();
            log.durable(at.position).wait().unwrap();
        }
    }
}
