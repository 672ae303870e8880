//! What an append asks of the allocator: nothing. But for the first record of a table in a segment, and a segment's change.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::sync::Arc;
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::{CommitLog, LogOptions, SyncMode};
use uuid::Uuid;

const APPENDS: usize = 1001;

#[test]
fn an_append_allocates_nothing() {
    let modes = [
        SyncMode::Batch,
        SyncMode::Each,
        SyncMode::Group { window: Duration::from_millis(1) },
        SyncMode::Periodic { period: Duration::from_millis(1) },
    ];
    for sync in modes {
        for tables in [&[][..], &[1], &[1, 2]] {
            let tables: Vec<Uuid> = tables.iter().map(|table| Uuid::from_u128(*table)).collect();
            // Room for a block of each record, in `each`.
            let options = LogOptions { segment_size_bytes: 8 << 20, sync, ..LogOptions::new("/log") };
            let (log, _) = CommitLog::open(Arc::new(SimulatedDisk::new()), options).unwrap();
            let mut allocations: Vec<u64> = Vec::with_capacity(APPENDS);
            for _ in 0..APPENDS {
                let append = || {
                    log.append(&tables, &[7; 100]).unwrap();
                };
                allocations.push(allocation_counter::measure(append).count_total);
            }
            allocations.sort_unstable();
            assert_eq!(allocations[APPENDS / 2], 0, "{sync:?}, {} tables", tables.len());
            assert!(allocations[APPENDS * 9 / 10] == 0, "{sync:?}, {} tables: {allocations:?}", tables.len());
        }
    }
}
