//! What a change of a large row copies, counted in bytes that the trie's memory grows by while a reader keeps all of it from
//! being used again.

use std::sync::Arc;

use model::{
    Cell, DeletionTime, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder, Table, TableBuilder, TableId,
};
use types::CqlType;

use crate::{Memtable, TrieMemtable};

fn table(columns: usize) -> Arc<Table> {
    let text = || Arc::new(CqlType::Text);
    let mut builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1)))
        .partition_key("p", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("l", CqlType::List { element: text(), frozen: false })
        .regular("m", CqlType::Map { key: Arc::new(CqlType::Int), value: text(), frozen: false })
        .regular("s", CqlType::Set { element: text(), frozen: false });
    for column in 0..columns {
        builder = builder.regular(&format!("v{column}"), CqlType::Int);
    }
    Arc::new(builder.build())
}

fn update(table: &Arc<Table>, cells: impl FnOnce(&mut RowBuilder)) -> PartitionUpdate {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    cells(&mut row);
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let clustering = [0, 0, 0, 4, 0, 0, 0, 1];
    let mut builder = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
    builder.row(&clustering, &blob);
    builder.build()
}

/// The path of the cell at `place`: ascending, or all over the place for what is not appended.
fn path(column: &str, place: u32) -> Vec<u8> {
    let scattered = place.wrapping_mul(0x9E37_79B1);
    match column {
        "m" => scattered.to_be_bytes().to_vec(),
        "s" => format!("{scattered:010}").into_bytes(),
        _ => {
            // A time-based uuid: the low half of its time first.
            let mut uuid = [0x55; 16];
            uuid[..4].copy_from_slice(&place.wrapping_mul(50).to_be_bytes());
            uuid[4..8].copy_from_slice(&[0x12, 0x34, 0x11, 0xEE]);
            uuid.to_vec()
        }
    }
}

fn collection(table: &Arc<Table>, column: &str, places: std::ops::Range<u32>, timestamp: i64) -> PartitionUpdate {
    let index = table.regulars().index_of(column).expect("there");
    let mut paths: Vec<Vec<u8>> = places.map(|place| path(column, place)).collect();
    paths.sort_by(|a, b| model::compare_paths(&table.regulars().columns[index].ty, a, b));
    update(table, |row| {
        row.complex(index, DeletionTime::LIVE);
        paths.iter().for_each(|path| row.complex_cell(&Cell::live(timestamp, b"eight by").with_path(path)));
    })
}

/// Bytes copied per update, of many: memory grows in steps.
fn copied(memtable: &TrieMemtable, updates: impl Iterator<Item = PartitionUpdate>) -> usize {
    let trie = &memtable.shards()[0].trie;
    let _everything_is_kept = trie.pin();
    let taken = || trie.memory().used + trie.memory().reusable;
    let (before, mut count) = (taken(), 0);
    for update in updates {
        memtable.apply(&update, None).expect("room");
        count += 1;
    }
    (taken() - before) / count
}

#[test]
fn an_append_to_a_collection_of_65000_copies_at_most_three_times_what_one_to_100_does() {
    let table = table(0);
    for column in ["l", "m", "s"] {
        let appends = |size: u32| {
            let memtable = TrieMemtable::new(&table, 1);
            memtable.apply(&collection(&table, column, 0..size, 1), None).expect("room");
            // The first one appends, the others write the same element again, so that the collection keeps its size.
            copied(&memtable, (2..1_000).map(|timestamp| collection(&table, column, size..size + 1, timestamp)))
        };
        let (few, many) = (appends(100), appends(65_000));
        assert!(many <= 3 * few && many <= 6 << 10, "{column}: {many} bytes, of 100 elements {few}");
    }
}

/// Rows of 80 bytes to 80 KB: those just below the size that is cut are copied whole.
#[test]
fn an_update_of_one_column_copies_at_most_4_kib_however_wide_the_row() {
    for columns in [10, 100, 500, 520, 1_000, 2_000, 10_000] {
        let table = table(columns);
        let memtable = TrieMemtable::new(&table, 1);
        let first = table.regulars().index_of("v0").expect("there");
        let last = first + columns;
        let all = update(&table, |row| {
            (first..last).for_each(|index| row.cell(index, &Cell::live(1, &(index as u32).to_be_bytes())));
        });
        memtable.apply(&all, None).expect("room");
        let one = |index: usize, timestamp| update(&table, |row| row.cell(index, &Cell::live(timestamp, &[1; 4])));
        // Times of their own take room, too: a few columns, again and again.
        let place = |step: usize| first + step % 7 * 7919 % columns;
        let bytes = copied(&memtable, (0..150).map(|step| one(place(step), 2 + step as i64)));
        assert!(bytes <= 4 << 10, "{bytes} bytes of {columns} columns");
    }
}
