//! FORMAT.md's worked bytes are those of a real log.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use commitlog::{CommitLog, LogOptions, LogPosition};
use uuid::Uuid;

/// The bytes of the file that FORMAT.md dumps.
fn example() -> Vec<u8> {
    let disk = SimulatedDisk::new();
    let options = LogOptions {
        segment_size_bytes: 64 << 10,
        total_space_bytes: 128 << 10,
        log_id: Some(Uuid::from_u128(0x0011_2233_4455_4677_8899_aabb_ccdd_eeff)),
        host_id: Some(Uuid::from_u128(0x1111_1111_1111_4111_8111_1111_1111_1111)),
        clock: Arc::new(|| 1000),
        preview_tables: vec![Uuid::from_u128(0x3333_3333_3333_4333_8333_3333_3333_3333)],
        ..LogOptions::new("/log")
    };
    let (log, _replay) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    let at = log.append(&[Uuid::from_u128(0x2222_2222_2222_4222_8222_2222_2222_2222)], b"hello").unwrap();
    assert_eq!(at.position, LogPosition { segment: 1000, offset: 77 });
    log.durable(at.position).wait().unwrap();
    drop(log);
    let file = disk.open(&commitlog::log_path(Path::new("/log")), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// The bytes of a dump in FORMAT.md: the part of each line before the `;`, without the offset.
fn dumped(name: &str) -> Vec<u8> {
    let text = include_str!("../../FORMAT.md");
    let dump = text.split_once(&format!("```hex {name}\n")).unwrap().1.split_once("```").unwrap().0;
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let (offset, rest) = line.split_once(':').unwrap();
        assert_eq!(usize::from_str_radix(offset, 16).unwrap(), bytes.len(), "{line}");
        let hex = rest.split(';').next().unwrap();
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

#[test]
fn the_worked_bytes_are_those_of_a_log() {
    let file = example();
    for (name, offset, length) in [("superblock", 0, 64), ("bookkeeping", 2 * 4096, 28), ("block", 4 * 4096, 77)] {
        let bytes = &file[offset..offset + length];
        assert_eq!(shown(&dumped(name)), shown(bytes), "{name}");
        assert!(file[offset + length..offset - offset % 4096 + 4096].iter().all(|byte| *byte == 0), "{name}");
    }
    assert_eq!(file[..4096], file[4096..8192]);
}
