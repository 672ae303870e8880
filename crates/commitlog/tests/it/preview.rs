//! A start finds the records that it needs before the replay, without reading all of the log.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use commitlog::{CommitLog, LogError, LogInspector, LogOptions, Replay, log_path};
use uuid::Uuid;

const DATA: Uuid = Uuid::from_u128(1);
const SCHEMA: Uuid = Uuid::from_u128(2);
const TRUNCATIONS: Uuid = Uuid::from_u128(3);
const BLOCK: u64 = 4096;
const SEGMENTS: u64 = 8;

fn options() -> LogOptions {
    LogOptions {
        segment_size_bytes: 64 << 10,
        total_space_bytes: SEGMENTS * (64 << 10),
        preview_tables: vec![SCHEMA, TRUNCATIONS],
        clock: Arc::new(|| 100),
        ..LogOptions::new("/log")
    }
}

fn open(disk: &SimulatedDisk, options: LogOptions) -> (CommitLog, Replay) {
    CommitLog::open(Arc::new(disk.clone()), options).unwrap()
}

/// Appends a durable record.
fn append(log: &CommitLog, tables: &[Uuid], data: &[u8]) {
    let at = log.append(tables, data).unwrap();
    log.durable(at.position).wait().unwrap();
}

/// The records that a preview yields, and how many segments it reads.
fn previewed(disk: &SimulatedDisk, options: LogOptions) -> (Vec<Vec<u8>>, u64) {
    let (_log, replay) = open(disk, options);
    let mut preview = replay.preview();
    let mut found = Vec::new();
    while let Some(record) = preview.next_record().unwrap() {
        found.push(record.data.to_vec());
    }
    (found, preview.report().segments)
}

fn replayed(disk: &SimulatedDisk, salvage: bool) -> Result<usize, LogError> {
    let (_log, mut replay) = open(disk, LogOptions { salvage, ..options() });
    let mut records = 0;
    while replay.next_record()?.is_some() {
        records += 1;
    }
    Ok(records)
}

/// Six segments, of which the first and the fourth have records for the preview.
fn six_segments() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk, options());
    append(&log, &[SCHEMA], b"a");
    for number in 0..16u8 {
        append(&log, &[DATA], &[number; 20_000]);
        if number == 10 {
            append(&log, &[DATA, TRUNCATIONS], b"b");
            append(&log, &[TRUNCATIONS], b"c");
        }
    }
    drop(log);
    disk.crash_image(0)
}

#[test]
fn only_segments_without_a_promise_are_read_twice() {
    let disk = six_segments();
    let all = [b"a", b"b", b"c"].map(|data| data.to_vec());
    let in_use = LogInspector::open(&disk, &log_path(Path::new("/log"))).unwrap().live().len() as u64;
    let previewed = |options| previewed(&disk.crash_image(1), options);
    let (found, segments) = previewed(options());
    assert_eq!((&found[..], segments), (&all[..], 4), "each with the next one, which says how far it goes");
    assert!(in_use > 5);

    // A promise about other tables says nothing about these; nor does any promise when the log is damaged.
    let fewer = LogOptions { preview_tables: vec![TRUNCATIONS], ..options() };
    let (found, segments) = previewed(fewer);
    assert_eq!((&found[..], segments), (&all[1..], in_use));
    let (found, segments) = previewed(LogOptions { salvage: true, ..options() });
    assert_eq!((&found[..], segments), (&all[..], in_use));
    assert_eq!(replayed(&disk, false).unwrap(), 19);
}

#[test]
fn acknowledged_records_are_previewed_after_a_power_cut_at_any_time() {
    for seed in 0..8 {
        let disk = SimulatedDisk::new();
        let (log, _) = open(&disk, options());
        let mut acknowledged = Vec::new();
        for number in 0..40u8 {
            let table = if (u64::from(number) + seed) % 7 == 3 { SCHEMA } else { DATA };
            append(&log, &[table], &[number; 9_000]);
            acknowledged.extend((table == SCHEMA).then(|| vec![number; 9_000]));
            let image = disk.crash_image(seed * 100 + u64::from(number));
            assert_eq!(previewed(&image, options()).0, acknowledged, "seed {seed}, {number}");
        }
    }
}

#[test]
fn a_broken_promise_is_damage_and_salvage_ignores_it() {
    let disk = six_segments();
    let file = disk.open(&log_path(Path::new("/log")), OpenOptions::write()).unwrap();
    let entry = |slot: u64| (2 + slot) * BLOCK;
    let mut promise = [0; 28];
    file.read_exact_at(&mut promise, entry(1)).unwrap();
    assert_ne!(promise[12..16], [0; 4]);
    // The fourth segment's entry from before the record of such a table: the write that changed the entry was lost.
    let mut old = [0; 28];
    file.read_exact_at(&mut old, entry(3)).unwrap();
    assert_eq!(old[12..16], [0; 4]);
    old[12..16].copy_from_slice(&promise[12..16]);
    let log_id = {
        let mut superblock = [0; 64];
        file.read_exact_at(&mut superblock, 0).unwrap();
        crc32fast::hash(&superblock[24..40])
    };
    let mut hasher = crc32fast::Hasher::new_with_initial(log_id);
    hasher.update(&old[..24]);
    old[24..].copy_from_slice(&hasher.finalize().to_be_bytes());
    file.write_at(&old, entry(3)).unwrap();

    assert_eq!(previewed(&disk, options()).0, [b"a"]);
    match replayed(&disk, false) {
        Err(LogError::Corrupt(damage)) => {
            assert_eq!(damage.offset, entry(3));
            assert!(
                damage.got.starts_with("a promise that it has no records like the one at offset "),
                "{}",
                damage.got
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(previewed(&disk, LogOptions { salvage: true, ..options() }).0.len(), 3);
    assert_eq!(replayed(&disk, true).unwrap(), 19);
}

#[test]
fn a_record_whose_promise_cannot_be_withdrawn_is_refused_and_never_replayed() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk, options());
    append(&log, &[DATA], b"first");
    disk.inject(Fault::Fail, 0);
    let refused = log.append(&[SCHEMA], b"refused").unwrap_err();
    assert!(matches!(refused, LogError::Disk(_)), "{refused}");
    assert!(matches!(log.append(&[DATA], b"later").unwrap_err(), LogError::Closed(_)));
    drop(log);
    for seed in 0..8 {
        let image = disk.crash_image(seed);
        assert_eq!((previewed(&image, options()).0, replayed(&image, false).unwrap()), (vec![], 1));
    }
}
