//! The commit log's tools, on a log of known contents.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::path::Path;
use std::sync::Arc;

use blockio::SimulatedDisk;
use commitlog::{CommitLog, LogOptions};
use tools::log::{Output, describe, dump, verify};

fn log_of_three() -> (SimulatedDisk, CommitLog) {
    let disk = SimulatedDisk::new();
    let options = LogOptions {
        segment_size_bytes: 64 << 10,
        total_space_bytes: 128 << 10,
        log_id: Some(uuid::Uuid::from_u128(1)),
        host_id: Some(uuid::Uuid::from_u128(2)),
        clock: Arc::new(|| 1000),
        ..LogOptions::new("/log")
    };
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    for (table, data) in [(7, "one"), (7, "two"), (8, "three")] {
        let at = log.append(&[uuid::Uuid::from_u128(table)], data.as_bytes()).unwrap();
        log.durable(at.position).wait().unwrap();
    }
    (disk, log)
}

fn printed(print: impl FnOnce(&mut dyn std::io::Write)) -> String {
    let mut out = Vec::new();
    print(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_log_in_use_is_described() {
    let (disk, _log) = log_of_three();
    let text = printed(|out| describe(&disk, Path::new("/log/commitlog.log"), Output::Text, out).unwrap());
    assert_eq!(
        text,
        "/log/commitlog.log\n\
         log 00000000-0000-0000-0000-000000000001, host 00000000-0000-0000-0000-000000000002\n\
         2 segments of 65536 bytes, 1 in use; the file has 81920 bytes\n\
         segment 1000 (slot 0): 3 blocks, 2 below the horizon\n  \
           3 records, 11 bytes of data, 0 cut, 0 damaged places\n  \
           table 00000000-0000-0000-0000-000000000007: 2 records\n  \
           table 00000000-0000-0000-0000-000000000008: 1 records\n"
    );
    let lines = printed(|out| describe(&disk, Path::new("/log/commitlog.log"), Output::Json, out).unwrap());
    let values: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((values[0]["segments_in_use"].as_u64(), values[1]["records"].as_u64()), (Some(1), Some(3)));
}

#[test]
fn records_are_dumped_with_their_positions() {
    let (disk, _log) = log_of_three();
    let text = printed(|out| dump(&disk, Path::new("/log/commitlog.log"), Output::Text, out).unwrap());
    assert_eq!(text.lines().next().unwrap(), "1000:75 tables [00000000-0000-0000-0000-000000000007] 3 bytes 0x6f6e65");
    assert_eq!(text.lines().count(), 3);
    let json = printed(|out| dump(&disk, Path::new("/log/commitlog.log"), Output::Json, out).unwrap());
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(last["data"], "0x7468726565");
}

#[test]
fn damage_is_reported_with_its_offset() {
    let (disk, log) = log_of_three();
    drop(log);
    let text = printed(|out| assert!(verify(&disk, Path::new("/log/commitlog.log"), Output::Text, out).unwrap()));
    assert_eq!(text, "1 segments in use, 3 sound records, 0 damaged places\n");
    disk.flip_bit(Path::new("/log/commitlog.log"), 5 * 4096 + 9, 0).unwrap();
    let text = printed(|out| assert!(!verify(&disk, Path::new("/log/commitlog.log"), Output::Text, out).unwrap()));
    assert!(
        text.starts_with(
            "/log/commitlog.log is damaged at offset 20480: expected block 1 of segment 1000, got checksum "
        ),
        "{text}"
    );
    assert!(text.ends_with("1 segments in use, 2 sound records, 1 damaged places\n"), "{text}");
}
