//! How far a cursor prefetches, counted in rows copied out of the memtable.

use std::sync::Arc;

use model::{
    Cell, KeyRange, Liveness, PartitionKey, PartitionUpdateBuilder, ReadRange, RowBuilder, Slices, TableBuilder,
    TableId,
};
use types::CqlType;

use crate::fill::{Filler, Item};
use crate::plan::Plan;
use crate::{Memtable, TrieMemtable};

const ROWS: i32 = 200;

/// The rows in each batch of a read of one partition of `ROWS` rows of a kilobyte, of which `expected` will be asked
/// for.
fn batches(expected: Option<usize>, reversed: bool) -> Vec<usize> {
    let table = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1)))
        .partition_key("p", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text);
    let table = Arc::new(table.build());
    let memtable = Arc::new(TrieMemtable::new(&table, 1));
    let key = PartitionKey::new(&1_i32.to_be_bytes());
    for row in 0..ROWS {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        builder.liveness(Liveness::at(1));
        builder.cell(0, &Cell::live(1, &[b'x'; 1024]));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        let clustering = [4_i32.to_be_bytes(), row.to_be_bytes()].concat();
        let mut update = PartitionUpdateBuilder::new(table.clone(), key.clone());
        update.row(&clustering, &blob);
        memtable.apply(&update.build(), None).expect("room");
    }
    let range = ReadRange { keys: KeyRange::Single(key), slices: Slices::all(), reversed };
    let (plan, mut filler) = (Plan::new(memtable, &table, &range, true), Filler::default());
    expected.into_iter().for_each(|rows| filler.batch.expect_rows(rows));
    let (mut stop, mut batches) = (plan.first(), Vec::new());
    loop {
        stop = filler.fill(&plan, stop).expect("memory");
        let rows = filler.batch.items.iter().filter(|item| matches!(item, Item::Row { .. })).count();
        if rows == 0 {
            return batches;
        }
        batches.push(rows);
    }
}

#[test]
fn a_read_with_a_limit_copies_that_many_rows_first_and_further_ones_on_demand() {
    for reversed in [false, true] {
        for limit in [1, 2, 20, 50] {
            let batches = batches(Some(limit), reversed);
            assert_eq!(batches[0], limit, "{batches:?}");
            // It is unknown how many more are wanted, so the first batches are small.
            assert!(batches[1] <= 4, "{batches:?}");
            assert_eq!(batches.iter().sum::<usize>(), ROWS as usize, "{batches:?}");
        }
    }
}

#[test]
fn a_limit_above_the_batch_size_does_not_enlarge_the_first_batch() {
    let unlimited = batches(None, false);
    assert!(unlimited[0] <= 4, "{unlimited:?}");
    for limit in [100, 5_000, usize::MAX] {
        let batches = batches(Some(limit), false);
        assert_eq!(batches[0], unlimited[0], "{batches:?}");
        assert_eq!(batches.iter().sum::<usize>(), ROWS as usize, "{batches:?}");
    }
}

/// The bytes that a read of one column copies of a row of this many, all of them inserted at once and some written
/// again.
fn copied_for_one_column(columns: usize) -> usize {
    let mut builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1)))
        .partition_key("p", CqlType::Int)
        .clustering("c", CqlType::Int, false);
    for column in 0..columns {
        builder = builder.regular(&format!("v{column:05}"), CqlType::Text);
    }
    let table = Arc::new(builder.build());
    let memtable = Arc::new(TrieMemtable::new(&table, 1));
    let key = PartitionKey::new(&1_i32.to_be_bytes());
    let write = |cells: &dyn Fn(&mut RowBuilder)| {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        cells(&mut builder);
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(table.clone(), key.clone());
        update.row(&[4_i32.to_be_bytes(), 1_i32.to_be_bytes()].concat(), &blob);
        memtable.apply(&update.build(), None).expect("room");
    };
    write(&|row| {
        row.liveness(Liveness::at(1));
        (0..columns).for_each(|index| row.cell(index, &Cell::live(1, b"a value")));
    });
    let wanted = columns * 2 / 3;
    write(&|row| row.cell(wanted, &Cell::live(2, b"another")));
    let range = ReadRange { keys: KeyRange::Single(key.clone()), slices: Slices::all(), reversed: false };
    let (plan, mut filler) = (Plan::new(memtable.clone(), &table, &range, true), Filler::default());
    filler.columns_expected = Some(Arc::from([wanted]));
    let first = plan.first();
    filler.fill(&plan, first).expect("memory");
    let Some(Item::Row { row, .. }) = filler.batch.items.get(1) else { panic!("the row") };
    let row = model::Row::new(&filler.batch.bytes[row.clone()]);
    let found = row.columns(&table).find(|(index, _)| *index == wanted);
    assert!(matches!(found, Some((_, model::ColumnData::Simple(cell))) if cell.value == b"another"));
    filler.batch.bytes.len()
}

#[test]
fn a_read_of_one_column_copies_at_most_4_kib_of_a_row_in_pieces_however_wide() {
    for columns in [10, 100, 360, 500, 1_000, 10_000] {
        let bytes = copied_for_one_column(columns);
        println!("{bytes} bytes of a row of {columns} columns");
        assert!(bytes <= 4 << 10, "{bytes} bytes of {columns} columns");
    }
}
