//! Data of tables in memory: parts that fill are split, and nobody notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memtable::{Memtable, ResidentTable, TrieMemtable, growth_max};
use memtrie::TrieOptions;
use model::{
    Cell, DeletionTime, KeyRange, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, ReadRange,
    RowBuilder, Table, TableBuilder, TableId, push_component,
};
use testkit::{Random, seeds};
use types::CqlType;

use crate::against_model::{LARGE, SMALL, clustering, key, table, update};
use crate::cells::{Seen, read_partition};

fn put(table: &Arc<Table>, p: i32, a: i32, value: &[u8], timestamp: i64) -> PartitionUpdate {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(timestamp));
    builder.cell(table.regulars().index_of("v").expect("the table has v"), &Cell::live(timestamp, value));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), key(p));
    update.row(&clustering(a, "b"), &blob);
    update.build()
}

/// All partitions, as a cursor gives them.
fn partitions(mut cursor: model::BoxCursor<'static>) -> Vec<(Vec<u8>, Seen)> {
    let mut found = Vec::new();
    while cursor.advance_partition().expect("a cursor over memory") {
        let key = cursor.partition().key.bytes().to_vec();
        found.push((key, read_partition(&mut cursor, &[], false)));
    }
    found
}

fn small() -> TrieOptions {
    TrieOptions { blocks_bytes_max: 64 << 10, blobs_bytes_max: 1 << 20, ..TrieOptions::default() }
}

#[test]
fn a_part_that_fills_is_split_and_all_rows_stay() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 2, small());
    let plain = Arc::new(TrieMemtable::new(&table, 1));
    let all = ReadRange::all_rows(KeyRange::all());
    for p in 0..3000 {
        let mut updates = vec![put(&table, p, 1, b"first", 1), put(&table, p, 2, b"second", 1)];
        if p % 7 == 0 {
            let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(p / 2));
            deletion.delete_partition(DeletionTime::new(1, 1000));
            updates.push(deletion.build());
        }
        for update in updates {
            resident.apply(&update).unwrap();
            plain.apply(&update, None).unwrap();
        }
    }
    assert!(resident.part_count() > 4, "{} parts", resident.part_count());
    assert!(partitions(resident.cursor(&table, &all)) == partitions(plain.clone().cursor(&table, &all)));
    assert_eq!(resident.used_bytes(), resident.memory().used_bytes, "the sum of changes is what there is");
    for p in [0, 7, 999, 2999] {
        let range = ReadRange::all_rows(KeyRange::Single(key(p)));
        assert!(partitions(resident.cursor(&table, &range)) == partitions(plain.clone().cursor(&table, &range)));
    }
}

#[test]
fn readers_find_every_row_that_was_there_while_parts_are_split() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 1, small());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (resident, table, done) = (&resident, &table, &done);
            scope.spawn(move || {
                let mut least = 0;
                while !done.load(Ordering::Acquire) {
                    let keys = if reader == 0 { KeyRange::all() } else { KeyRange::Single(key(0)) };
                    let count = partitions(resident.cursor(table, &ReadRange::all_rows(keys))).len();
                    assert!(count >= least, "{count} partitions, {least} before");
                    least = count;
                }
            });
        }
        (0..4000).for_each(|p| resident.apply(&put(&table, p, 1, b"value", 1)).unwrap());
        done.store(true, Ordering::Release);
    });
    assert!(resident.part_count() > 2);
}

#[test]
fn a_partition_larger_than_a_part_is_refused_without_effect() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 1, small());
    let refused = (0..).find(|a| resident.apply(&put(&table, 1, *a, &[7; 1000], 1)).is_err()).unwrap();
    let found = partitions(resident.cursor(&table, &ReadRange::all_rows(KeyRange::all())));
    assert_eq!(found[0].1.rows.len() as i32, refused);
}

#[test]
fn no_update_adds_more_than_it_could_and_none_that_should_add_nothing_does() {
    for seed in seeds(0..20) {
        println!("seed {seed}");
        let table = table();
        let resident = ResidentTable::new(&table, 1);
        let random = &mut Random(seed);
        for step in 0..1500 {
            let update = match random.below(3) {
                0 => {
                    let text_bytes = if random.one_in(4) { LARGE } else { SMALL };
                    update(random, &table, text_bytes, true)
                }
                _ => put(&table, random.below(50) as i32, random.below(6) as i32, &[7; 40][..random.below(40)], step),
            };
            let (before, grows, most) = (resident.used_bytes(), resident.grows(&update), growth_max(&update));
            resident.apply(&update).unwrap();
            let after = resident.used_bytes();
            assert!(after <= before + most, "{} bytes, at most {most}", after - before);
            assert!(grows || after <= before, "grew by {}", after.saturating_sub(before));
        }
    }
}

const SMALL_ROWS: i32 = 100_000;

/// Bytes for each of many rows of two columns and 12 bytes of values, beyond keys, values and a timestamp.
fn overhead_bytes(clustering: bool) -> u64 {
    let mut builder =
        TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(5))).partition_key("p", CqlType::Bigint);
    if clustering {
        builder = builder.clustering("c", CqlType::Bigint, false);
    }
    let table = Arc::new(builder.regular("a", CqlType::Text).regular("b", CqlType::Int).build());
    let resident = ResidentTable::new(&table, 1);
    let mut row = RowBuilder::default();
    for number in 0..SMALL_ROWS {
        row.start(table.regulars(), false);
        row.liveness(Liveness::at(i64::from(number)));
        row.cell(0, &Cell::live(i64::from(number), b"a string"));
        row.cell(1, &Cell::live(i64::from(number), &number.to_be_bytes()));
        let mut blob = Vec::new();
        row.finish(&mut blob);
        // A hundred rows to a partition, or one.
        let partition = i64::from(if clustering { number / 100 } else { number });
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&partition.to_be_bytes()));
        let mut serialized = Vec::new();
        if clustering {
            push_component(Some(&i64::from(number).to_be_bytes()), &mut serialized);
        }
        update.row(&serialized, &blob);
        resident.apply(&update.build()).expect("room");
    }
    const DATA_BYTES: u64 = 8 + 8 + 4 + size_of::<i64>() as u64;
    resident.used_bytes() / SMALL_ROWS as u64 - DATA_BYTES
}

#[test]
fn a_small_row_takes_at_most_40_bytes_more_than_its_data() {
    for clustering in [false, true] {
        let bytes = overhead_bytes(clustering);
        println!("{bytes} bytes, with clustering: {clustering}");
        assert!(bytes <= 40, "{bytes} bytes, with clustering: {clustering}");
    }
}

/// Bytes that a row takes in which three columns are set, of so many.
fn sparse_row_bytes(columns: usize) -> u64 {
    let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(6))).partition_key("p", CqlType::Bigint);
    let builder =
        (0..columns).fold(builder, |builder, column| builder.regular(&format!("v{column:04}"), CqlType::Text));
    let table = Arc::new(builder.build());
    let resident = ResidentTable::new(&table, 1);
    for number in 0..1_000_i64 {
        let mut row = RowBuilder::default();
        row.start(table.regulars(), false);
        row.liveness(Liveness::at(number));
        (0..3).for_each(|cell| row.cell(cell * (columns - 1) / 2, &Cell::live(number, b"a string")));
        let mut blob = Vec::new();
        row.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&number.to_be_bytes()));
        update.row(&[], &blob);
        resident.apply(&update.build()).expect("room");
    }
    resident.used_bytes() / 1_000
}

#[test]
fn a_row_costs_by_the_columns_that_are_set() {
    let (few, many) = (sparse_row_bytes(3), sparse_row_bytes(1_000));
    assert!(many <= few + 8, "{many} bytes of 1,000 columns, {few} of 3");
}
