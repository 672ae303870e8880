//! Tables in memory: parts that fill up are split, and readers and writers do not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memtable::{Memtable, PartOptions, Purge, ResidentTable, TrieMemtable, growth_max};
use memtrie::TrieOptions;
use model::{
    Cell, ClusteringBound, DeletionTime, KeyRange, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder,
    ReadRange, Row, RowBuilder, Side, Slice, Table, TableBuilder, TableId, push_component,
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

/// All partitions, as a cursor yields them.
fn partitions(mut cursor: model::BoxCursor<'static>) -> Vec<(Vec<u8>, Seen)> {
    let mut found = Vec::new();
    while cursor.advance_partition().expect("a cursor over memory") {
        let key = cursor.partition().key.bytes().to_vec();
        found.push((key, read_partition(&mut cursor, &[], false)));
    }
    found
}

/// Parts that are split early, with room to grow meanwhile.
fn early() -> PartOptions {
    PartOptions { split_bytes: 16 << 10, ..PartOptions::default() }
}

/// Parts that are split when they have no more room.
fn late() -> PartOptions {
    let trie = TrieOptions { blocks_bytes_max: 64 << 10, blobs_bytes_max: 1 << 20, ..TrieOptions::default() };
    PartOptions { split_bytes: u64::MAX / 4, trie }
}

fn split_and_compare(options: PartOptions) {
    let table = table();
    let resident = ResidentTable::with_options(&table, 2, options);
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
            resident.apply(&update).expect("room");
            plain.apply(&update, None).expect("room");
        }
        if p % 100 == 99 {
            // However slow the splitting thread is, there are several splits in a row.
            resident.finish_splits();
        }
    }
    assert!(resident.part_count() > 4, "{} parts", resident.part_count());
    assert!(partitions(resident.cursor(&table, &all)) == partitions(plain.clone().cursor(&table, &all)));
    assert_eq!(resident.used_bytes(), resident.memory().used_bytes, "the sum of changes is what there is");
    for p in [0, 7, 999, 2999] {
        let range = ReadRange::all_rows(KeyRange::Single(key(p)));
        assert!(partitions(resident.cursor(&table, &range)) == partitions(plain.clone().cursor(&table, &range)));
    }
    resident.clear();
    assert!(partitions(resident.cursor(&table, &all)).is_empty());
    assert_eq!((resident.used_bytes(), resident.memory().used_bytes), (0, 0));
    resident.apply(&put(&table, 1, 1, b"again", 1)).expect("room");
    assert_eq!(partitions(resident.cursor(&table, &all)).len(), 1);
}

#[test]
fn a_part_that_grows_is_split_and_all_rows_stay() {
    split_and_compare(early());
}

#[test]
fn a_part_that_has_no_room_is_split_and_all_rows_stay() {
    split_and_compare(late());
}

/// Writes, deletions and purges continue while parts are split; in the end everything is there as in a table that was
/// never split.
#[test]
fn writes_during_the_split_of_a_part_are_in_its_halves() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 1, early());
    let plain = Arc::new(TrieMemtable::new(&table, 1));
    let updates: Vec<Vec<_>> = (0..2)
        .map(|writer| {
            let of_partition = |step: i32| {
                // Each partition is written six times by one writer; the third time it is deleted.
                let (p, round) = ((step % 1000) * 2 + writer, step / 1000);
                if round == 3 {
                    let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(p));
                    deletion.delete_partition(DeletionTime::new(1, 1000));
                    return deletion.build();
                }
                put(&table, p, round, &[round as u8; 40], i64::from(round))
            };
            (0..6000).map(of_partition).collect()
        })
        .collect();
    std::thread::scope(|scope| {
        for updates in &updates {
            scope.spawn(|| updates.iter().for_each(|update| resident.apply(update).unwrap()));
        }
        // Walks, but keeps everything.
        scope.spawn(|| (0..50).for_each(|_| resident.purge(3000, &mut KeepsAll)));
    });
    resident.finish_splits();
    for update in updates.iter().flatten() {
        plain.apply(update, None).unwrap();
    }
    let all = ReadRange::all_rows(KeyRange::all());
    assert!(resident.part_count() > 1);
    assert!(partitions(resident.cursor(&table, &all)) == partitions(plain.cursor(&table, &all)));
    assert_eq!(resident.used_bytes(), resident.memory().used_bytes);
}

struct KeepsAll;

impl Purge for KeepsAll {
    fn deletion(&mut self, deletion: DeletionTime) -> DeletionTime {
        deletion
    }

    fn leaves_alone(&mut self, _: Row<'_>, _: &Table) -> bool {
        true
    }

    fn row(&mut self, _: Row<'_>, _: &Table, _: &mut Vec<u8>) -> bool {
        unreachable!("all are left alone")
    }
}

/// However large it becomes, it is copied only a few times.
#[test]
fn a_large_partition_has_a_part_of_its_own() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 1, early());
    (0..200).for_each(|p| resident.apply(&put(&table, p, 1, b"small", 1)).unwrap());
    for a in 0..5000 {
        resident.apply(&put(&table, 7, a, &[7; 100], 1)).unwrap();
        if a % 100 == 0 {
            resident.finish_splits();
        }
    }
    let count = resident.part_count();
    assert!((2..=24).contains(&count), "{count} parts");
    let found = partitions(resident.cursor(&table, &ReadRange::all_rows(KeyRange::Single(key(7)))));
    assert_eq!(found[0].1.rows.len(), 5000);
}

#[test]
fn readers_find_every_row_that_was_there_while_parts_are_split() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 1, early());
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
        for p in 0..4000 {
            resident.apply(&put(&table, p, 1, b"value", 1)).unwrap();
            if p % 500 == 0 {
                resident.finish_splits();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert!(resident.part_count() > 2);
}

#[test]
fn a_partition_larger_than_a_part_is_refused_without_effect() {
    let table = table();
    let resident = ResidentTable::with_options(&table, 1, late());
    let refused = (0..).find(|a| resident.apply(&put(&table, 1, *a, &[7; 1000], 1)).is_err()).unwrap();
    let found = partitions(resident.cursor(&table, &ReadRange::all_rows(KeyRange::all())));
    assert_eq!(found[0].1.rows.len() as i32, refused);
}

#[test]
fn no_update_grows_a_table_beyond_its_estimates() {
    for seed in seeds(0..20) {
        println!("seed {seed}");
        let table = table();
        let resident = ResidentTable::new(&table, 1, 0);
        let random = &mut Random(seed);
        for step in 0..1500 {
            let update = match random.below(3) {
                0 => {
                    let text_bytes = if random.one_in(4) { LARGE } else { SMALL };
                    update(random, &table, text_bytes, true)
                }
                _ => put(&table, random.below(50) as i32, random.below(6) as i32, &[7; 40][..random.below(40)], step),
            };
            apply_and_compare(&resident, &update);
        }
    }
}

/// A table of this many int columns, with clustering or without.
fn table_of_ints(columns: usize, clustering: bool) -> Arc<Table> {
    let mut builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(7))).partition_key("p", CqlType::Int);
    if clustering {
        builder = builder.clustering("c", CqlType::Int, false);
    }
    let builder = (0..columns).fold(builder, |builder, column| builder.regular(&format!("v{column}"), CqlType::Int));
    Arc::new(builder.build())
}

/// One row of a table of ints, with these columns set.
fn ints(table: &Arc<Table>, columns: impl Iterator<Item = usize>, timestamp: i64) -> PartitionUpdate {
    ints_of(table, Liveness::at(timestamp), columns, timestamp)
}

/// The same with another liveness.
fn ints_of(
    table: &Arc<Table>,
    liveness: Liveness,
    columns: impl Iterator<Item = usize>,
    timestamp: i64,
) -> PartitionUpdate {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(liveness);
    columns.for_each(|column| row.cell(column, &Cell::live(timestamp, &(timestamp as i32).to_be_bytes())));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut serialized = Vec::new();
    table.clustering().iter().for_each(|_| push_component(Some(&1_i32.to_be_bytes()), &mut serialized));
    let mut update = PartitionUpdateBuilder::new(table.clone(), key(1));
    update.row(&serialized, &blob);
    update.build()
}

/// Applies an update, and checks that it adds no more than each of the two bounds. Returns whether it adds anything.
fn apply_and_compare(resident: &ResidentTable, update: &PartitionUpdate) -> bool {
    let (before, growth, most) = (resident.used_bytes(), resident.growth(update), growth_max(update));
    resident.apply(update).expect("room");
    let grown = resident.used_bytes().saturating_sub(before);
    assert!(grown <= growth && growth <= most, "{grown} bytes, {growth} by looking, at most {most}");
    growth > 0
}

/// Rows in one piece, rows in pieces, and rows that an update cuts: a full table accepts an update that replaces as
/// much.
#[test]
fn overwriting_a_row_of_any_width_does_not_grow_the_table() {
    for (columns, clustering) in [20, 400, 505, 520, 2_000].into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let table = table_of_ints(columns, clustering);
        let resident = ResidentTable::new(&table, 1, 0);
        assert!(apply_and_compare(&resident, &ints(&table, 0..columns, 1)));
        for timestamp in 2..5 {
            let grows = apply_and_compare(&resident, &ints(&table, 0..columns, timestamp));
            assert!(!grows, "{columns} columns, clustering {clustering}");
        }
        // The row becomes newer with some columns, one by one; then other columns get a time of their own, and then
        // another.
        let some = |first: usize| (first..columns).step_by(columns / 10);
        for column in some(0) {
            apply_and_compare(&resident, &ints(&table, column..column + 1, 10 + column as i64));
        }
        for timestamp in [10_000, 10_001] {
            let updates = some(1).map(|column| ints_of(&table, Liveness::EMPTY, column..column + 1, timestamp));
            let grown = updates.filter(|update| apply_and_compare(&resident, update)).count();
            assert!(timestamp == 10_000 || grown == 0, "{columns} columns, clustering {clustering}: {grown} grew");
        }
    }
}

#[test]
fn a_deletion_that_frees_more_than_it_takes_does_not_grow_the_table() {
    let table = table();
    let resident = ResidentTable::new(&table, 1, 0);
    for a in 0..100 {
        (1..3).for_each(|p| resident.apply(&put(&table, p, a, &[7; 100], 10)).expect("room"));
    }
    resident.apply(&put(&table, 1, 100, &[7; 8_000], 10)).expect("room");
    let delete = |p: i32, timestamp: i64, what: &dyn Fn(&mut PartitionUpdateBuilder, DeletionTime)| {
        let mut update = PartitionUpdateBuilder::new(table.clone(), key(p));
        what(&mut update, DeletionTime::new(timestamp, 1000));
        update.build()
    };
    let all = |update: &mut PartitionUpdateBuilder, deletion| update.delete_partition(deletion);
    let row = |a: i32| {
        let table = &table;
        move |update: &mut PartitionUpdateBuilder, deletion| {
            let mut row = RowBuilder::default();
            row.start(table.regulars(), false);
            row.deletion(deletion);
            let mut blob = Vec::new();
            row.finish(&mut blob);
            update.row(&clustering(a, "b"), &blob);
        }
    };
    let rows = |from: i32, to: i32| {
        move |update: &mut PartitionUpdateBuilder, deletion| {
            let bound = |a: i32, side| ClusteringBound::new(clustering(a, "")[..8].to_vec(), side);
            update.delete_range(Slice { start: bound(from, Side::Before), end: bound(to, Side::After) }, deletion);
        }
    };
    let grows = |update: &PartitionUpdate| resident.growth(update) > 0;
    assert!(grows(&delete(3, 20, &all)), "there is nothing to free");
    assert!(grows(&delete(1, 9, &all)), "all is newer");
    assert!(grows(&delete(1, 20, &rows(1, 2))), "two small rows are not surely more than what the range takes");
    let frees = [delete(1, 20, &row(100)), delete(1, 20, &rows(0, 49)), delete(1, 20, &all), delete(2, 20, &all)];
    for update in &frees {
        let before = resident.used_bytes();
        assert!(!apply_and_compare(&resident, update));
        assert!(resident.used_bytes() < before);
    }
    assert!(frees.iter().all(grows), "nothing is left to free");
}

#[test]
fn deleting_the_only_row_of_a_partition_does_not_grow_the_table() {
    for columns in [20, 2_000] {
        let table = table_of_ints(columns, false);
        let resident = ResidentTable::new(&table, 1, 0);
        let delete = |timestamp| {
            let mut update = PartitionUpdateBuilder::new(table.clone(), key(1));
            update.delete_partition(DeletionTime::new(timestamp, 1000));
            update.build()
        };
        assert!(apply_and_compare(&resident, &delete(1)), "of nothing");
        assert!(apply_and_compare(&resident, &ints(&table, 0..columns, 5)));
        assert!(!apply_and_compare(&resident, &delete(6)), "{columns} columns");
        assert!(!apply_and_compare(&resident, &ints(&table, 0..columns, 4)), "shadowed, it takes nothing");
    }
}

const SMALL_ROWS: i32 = 100_000;

/// The bytes for each of many rows of two columns and 12 bytes of values, beyond keys, values and a timestamp.
fn overhead_bytes(clustering: bool) -> u64 {
    let mut builder =
        TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(5))).partition_key("p", CqlType::Bigint);
    if clustering {
        builder = builder.clustering("c", CqlType::Bigint, false);
    }
    let table = Arc::new(builder.regular("a", CqlType::Text).regular("b", CqlType::Int).build());
    let resident = ResidentTable::new(&table, 1, 0);
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

/// The bytes of a row of this many columns of which three are set.
fn sparse_row_bytes(columns: usize) -> u64 {
    let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(6))).partition_key("p", CqlType::Bigint);
    let builder =
        (0..columns).fold(builder, |builder, column| builder.regular(&format!("v{column:04}"), CqlType::Text));
    let table = Arc::new(builder.build());
    let resident = ResidentTable::new(&table, 1, 0);
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
