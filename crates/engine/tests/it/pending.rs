//! Writes whose record is in the log but not on the device: reads see them only with `periodic`.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::SyncMode;
use engine::block_on;

use crate::fixture::{create_table, insert, insertion, open_with, rows, small_options};

/// The device stalls meanwhile. Reads from memory do not need it.
#[test]
fn a_write_is_visible_when_it_is_durable_and_in_periodic_at_once() {
    let window = Duration::from_micros(50);
    let periodic = SyncMode::Periodic { period: Duration::from_secs(3600) };
    for sync in [SyncMode::Batch, SyncMode::Group { window }, SyncMode::Each, periodic] {
        let disk = SimulatedDisk::new();
        let mut options = small_options(&disk);
        options.commitlog.sync = sync;
        let engine = open_with(&options);
        let table = create_table(&engine);
        insert(&engine, &table, 1, 0, "before", 10);
        let (written, overwritten) = (insertion(&table, 1, 1, "new", 20), insertion(&table, 1, 0, "after", 20));

        let stall = disk.stall();
        let mut writes = [pin!(engine.write(&written)), pin!(engine.write(&overwritten))];
        let mut context = Context::from_waker(Waker::noop());
        let is_pending = writes.each_mut().map(|write| write.as_mut().poll(&mut context).is_pending());
        let seen = rows(&engine, &table);
        drop(stall);
        let after = [(1, 0, "after".to_owned()), (1, 1, "new".to_owned())];
        if sync == periodic {
            assert_eq!((is_pending, &seen[..]), ([false; 2], &after[..]));
            continue;
        }
        assert_eq!((is_pending, seen), ([true; 2], vec![(1, 0, "before".to_owned())]), "{sync:?}");
        writes.into_iter().for_each(|write| block_on(write).unwrap());
        assert_eq!(rows(&engine, &table), after, "{sync:?}");
    }
}
