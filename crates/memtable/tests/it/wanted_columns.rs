//! A reader that names the columns it uses sees the same values of them, and the same rows, as one that reads
//! everything.

use std::sync::Arc;

use model::{
    BoxCursor, Cell, ClusteringBound, ColumnData, DeletionTime, KeyRange, Liveness, MergeCursor, PartitionUpdate,
    PartitionUpdateBuilder, ReadRange, RowBuilder, Side, Slice, Slices, Table, TableBuilder, TableId, Unfiltered,
    UnfilteredCursor,
};
use testkit::{Random, seeds};
use types::CqlType;

use crate::against_model::{clustering, key};
use crate::kinds::Kind;

const COLUMNS: usize = 120;
const TIMES: usize = 20;

fn table(with_map: bool) -> Arc<Table> {
    let mut builder = TableBuilder::new("k", "wanted", TableId(uuid::Uuid::from_u128(9)))
        .partition_key("p", CqlType::Int)
        .clustering("a", CqlType::Int, false)
        .clustering("b", CqlType::Text, true);
    for column in 0..COLUMNS {
        builder = builder.regular(&format!("v{column:03}"), CqlType::Text);
    }
    if with_map {
        let map = CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Text), frozen: false };
        builder = builder.regular("m", map);
    }
    Arc::new(builder.build())
}

fn cell<'v>(random: &mut Random, timestamp: i64, value: &'v [u8]) -> Cell<'v> {
    match random.below(5) {
        0 => Cell::tombstone(timestamp, 1000),
        1 => Cell::expiring(timestamp, 10, 2000, value),
        _ => Cell::live(timestamp, value),
    }
}

/// A row of all columns, a few cells of one, or the deletion of a row, a range or the partition.
fn update(random: &mut Random, table: &Arc<Table>) -> PartitionUpdate {
    let mut builder = PartitionUpdateBuilder::new(table.clone(), key(1));
    let timestamp = random.below(TIMES) as i64;
    let row_key = clustering(random.below(2) as i32, "b");
    let deletion = DeletionTime::new(timestamp, 1000);
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    match random.below(12) {
        0 => builder.delete_partition(deletion),
        1 => {
            let bound = |side| ClusteringBound::new(row_key.clone(), side);
            builder.delete_range(Slice { start: bound(Side::Before), end: bound(Side::After) }, deletion);
        }
        2 => row.deletion(deletion),
        3..6 => {
            for index in 0..table.regulars().first_complex() {
                if random.one_in(COLUMNS / 2) {
                    row.cell(index, &cell(random, timestamp, b"a value of its own"));
                }
            }
            if let Some(map) = table.regulars().index_of("m") {
                row.complex(map, DeletionTime::LIVE);
                row.complex_cell(&cell(random, timestamp, &[b'm'; 900]).with_path(&random.below(9).to_be_bytes()[4..]));
            }
        }
        kind => {
            let expires = kind == 6;
            row.liveness(match expires {
                true => Liveness { timestamp, ttl: 10, expiration: 2000 },
                false => Liveness::at(timestamp),
            });
            for index in 0..table.regulars().first_complex() {
                let value = &[b'x'; 60];
                let cell =
                    if expires { Cell::expiring(timestamp, 10, 2000, value) } else { Cell::live(timestamp, value) };
                row.cell(index, &cell);
            }
        }
    }
    if !row.is_empty() {
        let mut blob = Vec::new();
        row.finish(&mut blob);
        builder.row(&row_key, &blob);
    }
    if builder.is_empty() {
        builder.delete_partition(DeletionTime::new(0, 1000));
    }
    builder.build()
}

/// What a reader of `wanted` sees, a line for each partition, row and marker; and the bytes of the rows.
fn seen(mut cursor: BoxCursor<'_>, table: &Table, wanted: &[usize]) -> (Vec<String>, usize) {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while cursor.advance_partition().expect("memory") {
        lines.push(format!("{:?}", cursor.partition()));
        while cursor.advance().expect("memory") {
            let row = match cursor.unfiltered() {
                Unfiltered::Row(row) => row,
                marker => {
                    lines.push(format!("{marker:?}"));
                    continue;
                }
            };
            bytes += row.row.as_bytes().len();
            // Before anything expired, and after everything did.
            let is_live = [1500, 2500].map(|now| row.row.is_live(table, now));
            let mut line = format!("{:?} {is_live:?} {:?}", row.clustering, row.row.liveness());
            for (index, data) in row.row.columns(table).filter(|(index, _)| wanted.contains(index)) {
                match data {
                    ColumnData::Simple(cell) => line += &format!(" {index}: {cell:?}"),
                    ColumnData::Complex(cells) => {
                        line += &format!(" {index}: {:?} {:?}", cells.deletion, cells.collect::<Vec<_>>());
                    }
                }
            }
            lines.push(line);
        }
    }
    (lines, bytes)
}

#[test]
fn a_reader_of_some_columns_sees_the_same_rows_and_values_as_a_reader_of_all() {
    let (mut all_bytes, mut wanted_bytes) = (0, 0);
    for seed in seeds(0..40) {
        let random = &mut Random(seed);
        let table = table(seed % 4 == 0);
        for kind in [Kind::Trie, Kind::PaperTrie] {
            let memtable = kind.open(&table, 1);
            for _ in 0..25 {
                memtable.apply(&update(random, &table), None).expect("room");
                let mut wanted: Vec<usize> =
                    (0..random.below(3)).map(|_| random.below(table.regulars().columns.len())).collect();
                wanted.sort_unstable();
                wanted.dedup();
                let reversed = random.one_in(2);
                let range = ReadRange { keys: KeyRange::all(), slices: Slices::all(), reversed };
                let merged = || {
                    let source = memtable.clone().cursor(&table, &range);
                    MergeCursor::new(&table, reversed, vec![source])
                };
                let mut cursor = merged();
                cursor.expect_columns(&Arc::from(wanted.as_slice()));
                let (found, found_bytes) = seen(Box::new(cursor), &table, &wanted);
                let (expected, expected_bytes) = seen(Box::new(merged()), &table, &wanted);
                assert_eq!(found, expected, "seed {seed}, {kind:?}, columns {wanted:?}");
                all_bytes += expected_bytes;
                wanted_bytes += found_bytes;
            }
        }
    }
    println!("{all_bytes} bytes of rows, {wanted_bytes} where columns are named");
    assert!(wanted_bytes < all_bytes, "something was left out");
}
