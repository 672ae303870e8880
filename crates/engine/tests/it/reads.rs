//! The SSTables that a read uses, and reads that continue whatever happens to SSTables meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, Turn};
use model::{
    BoxCursor, KeyRange, Keyspace, PartitionKey, ReadRange, Slice, Slices, Table, TableBuilder, TableId,
    UnfilteredCursor,
};
use testkit::{Random, TemporaryDirectory};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::{clustering, create_table, delete_partition, insert, open, open_with, rows, small_options};

/// `ks.t (k int, c int, v text, PRIMARY KEY (k, c))`, in which a row is found without reading a static row.
fn create_without_statics(engine: &Engine) -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(9))).partition_key("k", CqlType::Int);
    let table = builder.clustering("c", CqlType::Int, false).regular("v", CqlType::Text).build();
    let table = Arc::new(table);
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.insert(table.name.clone(), table.clone());
    engine.set_keyspace(keyspace).unwrap();
    table
}

type Write<'w> = &'w dyn Fn(&Engine, &Arc<Table>);

/// The bytes of Data.db that a read of partition 1, or of one of its rows, uses after each of these writes was flushed.
fn data_bytes_read(flushes: &[Write<'_>], row: Option<i32>) -> u64 {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_without_statics(&engine);
    for write in flushes {
        write(&engine, &table);
        engine.flush(&table).unwrap();
    }
    let engine = open_with(&small_options(&disk.crash_image(0)));
    let table = engine.schema().table("ks", "t").unwrap().clone();
    let slices =
        row.map_or(Slices::all(), |row| Slices::new(vec![Slice::prefix(&clustering(row))], table.comparator()));
    let keys = KeyRange::Single(PartitionKey::new(&1_i32.to_be_bytes()));
    let range = ReadRange { keys, slices, reversed: false };
    let mut cursor = engine.read_at(&table, &range, 0, Turn::BLOCKING).unwrap();
    while cursor.advance_partition().unwrap() {
        while cursor.advance().unwrap() {}
    }
    engine.table_stats(&table).unwrap().data_bytes_read
}

#[test]
fn a_deletion_of_the_partition_ends_the_search() {
    let write = |timestamp| move |engine: &Engine, table: &Arc<Table>| insert(engine, table, 1, 1, "value", timestamp);
    let delete = |engine: &Engine, table: &Arc<Table>| delete_partition(engine, table, 1, 20);
    let alone = data_bytes_read(&[&delete], None);
    assert!(alone > 0);
    assert_eq!(data_bytes_read(&[&write(10), &delete], None), alone, "all that is older is deleted");
    assert_eq!(data_bytes_read(&[&write(20), &delete], None), alone, "a deletion of the same time wins");
    assert!(data_bytes_read(&[&write(21), &delete], None) > alone);
}

#[test]
fn a_complete_row_ends_the_search() {
    let write =
        |row, timestamp| move |engine: &Engine, table: &Arc<Table>| insert(engine, table, 1, row, "value", timestamp);
    let alone = data_bytes_read(&[&write(1, 20)], Some(1));
    assert!(alone > 0);
    assert_eq!(data_bytes_read(&[&write(1, 10), &write(1, 20)], Some(1)), alone, "no older cell is part of the row");
    assert!(data_bytes_read(&[&write(1, 20), &write(1, 20)], Some(1)) > alone, "of the same time the value decides");
    // The older SSTable has another row too, so that it covers the clustering of the read.
    let two_rows = |engine: &Engine, table: &Arc<Table>| [1, 3].iter().for_each(|row| write(*row, 10)(engine, table));
    let newer = |engine: &Engine, table: &Arc<Table>| [1, 4].iter().for_each(|row| write(*row, 20)(engine, table));
    let incomplete = data_bytes_read(&[&two_rows, &newer], Some(3));
    assert!(incomplete > data_bytes_read(&[&newer], Some(3)), "a row that the newest does not have");
}

/// Another replica may have rows that only the deletion covers, when the row has expired.
#[test]
fn a_complete_row_hides_no_deletion_from_rows_that_are_merged_elsewhere() {
    let disk = SimulatedDisk::new();
    let engine = open_with(&small_options(&disk));
    let table = create_without_statics(&engine);
    delete_partition(&engine, &table, 1, 10);
    engine.flush(&table).unwrap();
    insert(&engine, &table, 1, 1, "value", 20);
    let row = Slices::new(vec![Slice::prefix(&clustering(1))], table.comparator());
    let keys = KeyRange::Single(PartitionKey::new(&1_i32.to_be_bytes()));
    let range = ReadRange { keys, slices: row, reversed: false };
    let deleted_at = |mut cursor: BoxCursor<'static>| {
        assert!(cursor.advance_partition().unwrap());
        cursor.partition().deletion.marked_for_delete_at
    };
    assert_eq!(deleted_at(engine.read(&table, &range).unwrap()), 10);
    assert!(deleted_at(engine.read_at(&table, &range, 0, Turn::BLOCKING).unwrap()) < 10, "an answer needs no deletion");
}

#[test]
fn an_sstable_of_other_clusterings_is_not_read() {
    let rows = |from, to| {
        move |engine: &Engine, table: &Arc<Table>| {
            [from, to].iter().for_each(|row| insert(engine, table, 1, *row, "value", 10));
        }
    };
    assert_eq!(data_bytes_read(&[&rows(1, 3)], Some(4)), 0);
    assert!(data_bytes_read(&[&rows(1, 3)], Some(2)) > 0, "it might be there");
    let alone = data_bytes_read(&[&rows(4, 6)], Some(5));
    assert_eq!(data_bytes_read(&[&rows(1, 3), &rows(4, 6), &rows(7, 9)], Some(5)), alone);
    // A deletion of the partition applies to all rows.
    let deleted = |engine: &Engine, table: &Arc<Table>| delete_partition(engine, table, 1, 20);
    assert!(data_bytes_read(&[&deleted], Some(4)) > 0);
}

#[test]
fn a_read_in_progress_continues_while_files_are_deleted_linked_and_imported() {
    type Act = fn(&Engine, &Table) -> Result<(), EngineError>;
    let snapshot: Act = |engine, table| engine.snapshot(table, "s", "").map(|_| ());
    let import: Act = |engine, table| {
        let own = engine.snapshot(table, "s", "")?;
        engine.import(table, &own).map(|_| ())
    };
    // Each operation has the number of SSTables and rows after it.
    let acts = [(Engine::compact as Act, 1, 600), (Engine::truncate, 0, 0), (snapshot, 2, 600), (import, 4, 600)];
    for (act, sstables, left) in acts {
        let directory = TemporaryDirectory::create();
        let engine = open(&directory);
        let table = create_table(&engine);
        engine.set_autocompaction(&table, false).unwrap();
        // The value is larger than the read-ahead of a reader.
        let mut random = Random(1);
        for flush in 0..2 {
            for key in 0..300 {
                let mut value = String::new();
                while value.len() < 4000 {
                    value += &format!("{:x}", random.number());
                }
                insert(&engine, &table, key, flush, &value, 10);
            }
            engine.flush(&table).unwrap();
        }
        let mut cursor = engine.read(&table, &ReadRange::all_rows(KeyRange::all())).unwrap();
        assert!(cursor.advance_partition().unwrap() && cursor.advance().unwrap());
        act(&engine, &table).unwrap();
        assert_eq!(engine.table_stats(&table).unwrap().sstable_count, sstables);
        assert_eq!(rows(&engine, &table).len(), left);
        let mut seen = 1;
        loop {
            while cursor.advance().unwrap() {
                seen += 1;
            }
            if !cursor.advance_partition().unwrap() {
                break;
            }
        }
        assert_eq!(seen, 600);
    }
}
