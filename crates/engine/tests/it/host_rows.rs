//! Rows that the host keeps outside of the engine: deletions that may shadow one of them outlast every merge.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use blockio::SimulatedDisk;
use engine::{Engine, HostRows};
use model::{Table, TableId};

use crate::fixture::{create_table, delete_partition, insert, open_with, rows, small_options};

/// Deletions of this time were made in 1970, long before gc_grace_seconds.
const DELETED: i64 = 10;
const DELETED_PARTITIONS: u64 = 11;
const LATER: i64 = 2_000_000_000_000_000;

/// A host whose oldest row has this timestamp, in every table.
#[derive(Debug)]
struct Host(AtomicI64);

impl HostRows for Host {
    fn oldest_timestamp(&self, _: TableId) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

fn open_beside(host: &Arc<Host>) -> Arc<Engine> {
    let mut options = small_options(&SimulatedDisk::new());
    options.host_rows = Some(host.clone());
    open_with(&options)
}

fn partition_count(engine: &Engine, table: &Arc<Table>) -> u64 {
    engine.table_stats(table).unwrap().sstable_partition_count
}

#[test]
fn a_merge_purges_a_deletion_once_the_host_has_no_row_that_it_may_shadow() {
    let host = Arc::new(Host(AtomicI64::new(i64::MIN)));
    let engine = open_beside(&host);
    let table = create_table(&engine);
    (1..=DELETED_PARTITIONS).for_each(|key| delete_partition(&engine, &table, key as i32, DELETED));
    engine.flush(&table).unwrap();
    for (round, (oldest, kept)) in
        [(i64::MIN, DELETED_PARTITIONS), (DELETED, DELETED_PARTITIONS), (DELETED + 1, 0)].into_iter().enumerate()
    {
        host.0.store(oldest, Ordering::Release);
        insert(&engine, &table, 0, round as i32, "stays", LATER);
        engine.flush(&table).unwrap();
        engine.compact(&table).unwrap();
        assert_eq!(partition_count(&engine, &table), 1 + kept, "the host's oldest row is of {oldest}");
        assert_eq!(rows(&engine, &table).len(), round + 1);
    }
}

#[test]
fn an_expired_sstable_is_not_dropped_while_the_host_has_rows_that_it_may_shadow() {
    let host = Arc::new(Host(AtomicI64::new(DELETED)));
    let engine = open_beside(&host);
    let table = create_table(&engine);
    delete_partition(&engine, &table, 1, DELETED);
    engine.flush(&table).unwrap();
    // Writes fill segments of the log until the segment with the deletion is free, so that the log keeps nothing.
    for round in 0..400 {
        insert(&engine, &table, 3, round % 7, &"v".repeat(9000), LATER + i64::from(round));
    }
    engine.flush_all().unwrap();
    engine.compact(&table).unwrap();
    assert_eq!(engine.compaction_stats().expired_sstables, 0);
    assert_eq!(partition_count(&engine, &table), 2);
}
