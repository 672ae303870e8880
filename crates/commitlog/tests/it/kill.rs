//! What a process acknowledged under load is there after the process is killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use blockio::SystemDisk;
use commitlog::{CommitLog, LogError, LogOptions, LogPosition, PositionInterval, SyncMode};
use testkit::TemporaryDirectory;
use uuid::Uuid;

/// Set in the child process: its sync mode.
const MODE: &str = "ESPALIER_TEST_LOG_MODE";
/// Set in the child process: the directory of its log.
const CHILD: &str = "ESPALIER_TEST_LOG_DIRECTORY";
const WRITERS: u64 = 64;
/// Each writer's older records are flushed as newer ones are acknowledged, so that segments are reused.
const TABLES: u128 = 3;

fn options(directory: PathBuf, sync: SyncMode) -> LogOptions {
    LogOptions { segment_size_bytes: 128 << 10, total_space_bytes: 8 * (128 << 10), sync, ..LogOptions::new(directory) }
}

fn mode(name: &str) -> SyncMode {
    if name == "each" { SyncMode::Each } else { SyncMode::Batch }
}

fn data_of(writer: u64, number: u64) -> Vec<u8> {
    let mut data = [writer.to_be_bytes(), number.to_be_bytes()].concat();
    data.resize(16 + (writer * 131 + number * 17) as usize % 1500, number as u8);
    data
}

/// The child process writes until it is killed, and prints each acknowledgement to its standard output.
#[test]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let (log, _) =
        CommitLog::open(Arc::new(SystemDisk::new()), options(directory.into(), mode(&std::env::var(MODE).unwrap())))
            .unwrap();
    let out = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (log, out) = (&log, &out);
            scope.spawn(move || {
                for number in 0u64.. {
                    let table = Uuid::from_u128(u128::from(number) % TABLES);
                    let at = log.append(&[table], &data_of(writer, number)).unwrap();
                    log.durable(at.position).wait().unwrap();
                    writeln!(
                        out.lock().unwrap(),
                        "ack {writer} {number} {} {}",
                        at.position.segment,
                        at.position.offset
                    )
                    .unwrap();
                }
            });
        }
        // Everything far behind counts as flushed; the parent ignores it.
        scope.spawn(|| {
            loop {
                std::thread::sleep(std::time::Duration::from_millis(1));
                if let Some(pressure) = log.pressure() {
                    writeln!(out.lock().unwrap(), "flushed {}", pressure.up_to.segment).unwrap();
                    for table in 0..TABLES {
                        let interval = PositionInterval { start: LogPosition::NONE, end: pressure.up_to };
                        log.flushed(Uuid::from_u128(table), interval).unwrap();
                    }
                }
            }
        });
    });
}

#[test]
fn acknowledged_records_of_a_killed_process_are_replayed() {
    let directory = TemporaryDirectory::create();
    let mut replayed_before = BTreeSet::new();
    for round in 0..4u64 {
        // A log may be opened in another mode than it was written in.
        let mode_name = if round % 2 == 0 { "batch" } else { "each" };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(CHILD, &directory.0)
            .env(MODE, mode_name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = BTreeSet::new();
        let mut flushed = -1;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for (count, line) in (&mut lines).map_while(Result::ok).enumerate() {
            note(&line, &mut acknowledged, &mut flushed);
            if count as u64 == 700 + 900 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(acknowledged.len() > 500);
        let (log, mut replay) =
            CommitLog::open(Arc::new(SystemDisk::new()), options(directory.0.clone(), SyncMode::Batch)).unwrap();
        let mut replayed = BTreeSet::new();
        while let Some(record) = replay.next_record().unwrap() {
            let number = |at: usize| u64::from_be_bytes(record.data[at..at + 8].try_into().unwrap());
            assert_eq!(record.data, data_of(number(0), number(8)));
            replayed.insert((record.position.segment, record.position.offset));
        }
        let lost: Vec<_> =
            acknowledged.iter().filter(|position| position.0 > flushed && !replayed.contains(position)).collect();
        assert_eq!(lost, Vec::<&(i64, i32)>::new());
        assert!(replayed.is_disjoint(&replayed_before));
        log.discard_replayed().unwrap();
        assert!(matches!(log.shutdown(), Ok(()) | Err(LogError::Closed(_))));
        replayed_before = replayed;
    }
}

/// Reads a line of the child's output; the last line may be cut.
fn note(line: &str, acknowledged: &mut BTreeSet<(i64, i32)>, flushed: &mut i64) {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["ack", _, _, segment, offset] => {
            if let (Ok(segment), Ok(offset)) = (segment.parse(), offset.parse()) {
                acknowledged.insert((segment, offset));
            }
        }
        ["flushed", segment] => *flushed = segment.parse().unwrap_or(*flushed),
        _ => {}
    }
}
