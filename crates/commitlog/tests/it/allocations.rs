//! An append allocates nothing, except for a table's first record in a segment and at a change of segments.

use std::sync::Arc;
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::{CommitLog, LogOptions, SyncMode};
use uuid::Uuid;

const APPENDS: usize = 1000;
const MODES: [SyncMode; 4] = [
    SyncMode::Batch,
    SyncMode::Each,
    SyncMode::Group { window: Duration::from_millis(1) },
    SyncMode::Periodic { period: Duration::from_millis(1) },
];

/// The allocations of each append after the first, and the number of segments that the appends used.
fn allocations(segment_size_bytes: u32, sync: SyncMode, tables: &[u128]) -> (Vec<u64>, usize) {
    let tables: Vec<Uuid> = tables.iter().map(|table| Uuid::from_u128(*table)).collect();
    let options = LogOptions { segment_size_bytes, total_space_bytes: 16 << 20, sync, ..LogOptions::new("/log") };
    let (log, _) = CommitLog::open(Arc::new(SimulatedDisk::new()), options).unwrap();
    log.append(&tables, &[7; 100]).unwrap();
    let mut segments = vec![log.position().segment];
    let mut allocations: Vec<u64> = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        let mut at = None;
        allocations.push(allocation_counter::measure(|| at = log.append(&tables, &[7; 100]).ok()).count_total);
        segments.push(at.unwrap().position.segment);
    }
    segments.dedup();
    (allocations, segments.len())
}

#[test]
fn an_append_allocates_nothing() {
    for sync in MODES {
        for tables in [&[][..], &[1], &[1, 2]] {
            // Room for a block of each record, in `each`.
            let (allocations, segments) = allocations(8 << 20, sync, tables);
            assert_eq!(segments, 1);
            assert_eq!(allocations, [0; APPENDS], "{sync:?}, {} tables", tables.len());
        }
    }
}

/// Over many segments, only those appends allocate that move on to the next segment, and they wait for it.
#[test]
fn only_appends_that_start_a_segment_allocate() {
    for sync in MODES {
        for tables in [&[][..], &[1], &[1, 2]] {
            let (allocations, segments) = allocations(16 << 10, sync, tables);
            let allocating = allocations.iter().filter(|count| **count > 0).count();
            assert!(segments > 5 && allocating < segments, "{sync:?}, {} tables: {allocations:?}", tables.len());
        }
    }
}
