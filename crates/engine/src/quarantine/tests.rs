//! A part of a large batch that is set aside while its table is being quarantined.

use std::time::{Duration, Instant};

use blockio::{Fault, SimulatedDisk};
use model::{Cell, Keyspace, Liveness, PartitionKey, PartitionUpdateBuilder, RowBuilder, TableBuilder};
use types::CqlType;

use super::*;
use crate::{Engine, EngineOptions};

fn update(table: &Arc<Table>, key: i32) -> PartitionUpdate {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(1));
    builder.cell(0, &Cell::live(1, b"value"));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
    update.row(&[], &blob);
    update.build()
}

/// An engine, its disk, and its table with one row.
fn engine() -> (Arc<Engine>, SimulatedDisk, Arc<Table>) {
    let disk = SimulatedDisk::new();
    let mut options = EngineOptions::new(Arc::new(disk.clone()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    let engine = Engine::open(options).unwrap();
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(1))).partition_key("k", CqlType::Int);
    let mut keyspace = Keyspace::new("ks", Default::default(), true);
    keyspace.tables.insert("t".into(), Arc::new(builder.regular("v", CqlType::Text).build()));
    engine.set_keyspace(keyspace).unwrap();
    let table = engine.schema().table("ks", "t").unwrap().clone();
    crate::block_on(engine.write(&Mutation::from(update(&table, 1)))).unwrap();
    (engine, disk, table)
}

/// Quarantines a table while a part of a batch is to be set aside for it. Returns whether the quarantine succeeded,
/// whether the part was set aside, and how many updates side files have.
fn quarantine_beside_a_part(fails: bool) -> (bool, bool, usize) {
    let (engine, disk, table) = engine();
    let store = engine.shared.catalog().any_store(table.id).unwrap().clone();
    let quarantine = Quarantine::new(&engine.shared, &Arc::new(Compaction::new(&engine.shared)));
    // The quarantine waits for this write, with the table out of service already.
    let write = engine.shared.groups().enter();
    let (succeeded, is_aside) = std::thread::scope(|scope| {
        let quarantined = scope.spawn(|| quarantine.quarantine(&store, &EngineError::Startup("a reason".into())));
        while store.is_served() {
            std::thread::yield_now();
        }
        let part = scope.spawn(|| quarantine.set_part_aside(&update(&table, 2)));
        // This gives the part time to be set aside too early.
        let start = Instant::now();
        while !part.is_finished() && start.elapsed() < Duration::from_millis(300) {
            std::thread::yield_now();
        }
        if fails {
            disk.inject_into("/quarantine", Fault::Fail, 0);
        }
        drop(write);
        (quarantined.join().unwrap().is_ok(), part.join().unwrap().unwrap())
    });
    assert_eq!(store.is_served(), !succeeded);
    let mut updates = 0;
    for path in quarantine.side_files().of_table(table.id).unwrap() {
        let (_, mut file) = quarantine.side_files().open(&path).unwrap();
        while file.next_update().unwrap().is_some() {
            updates += 1;
        }
    }
    (succeeded, is_aside, updates)
}

#[test]
fn a_quarantine_that_fails_takes_no_part_of_a_large_batch_with_it() {
    // The part was not set aside, so the batch writes it to the table, which is served again.
    assert_eq!(quarantine_beside_a_part(true), (false, false, 0));
    // The row of the table, and the part.
    assert_eq!(quarantine_beside_a_part(false), (true, true, 2));
}
