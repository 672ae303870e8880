//! A reader inside a partition sees later updates of single rows in the order in which they were made, or not at all.

use std::sync::Arc;

use memtrie::{Bounds, Direction, Layout, Pin, TrieOptions};
use model::{
    Cell, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder, Table, TableBuilder, TableId,
};
use types::CqlType;

use crate::layout::partition_path;
use crate::shard::Shard;
use crate::{Memtable, TrieMemtable};

/// The number of rows: more than a node has children, because a cursor lists the children of a node at one time.
const ROWS: i32 = 1000;
const LAYOUTS: [Layout; 2] = [Layout::Adaptive, Layout::Paper];

fn key(number: i32) -> PartitionKey {
    PartitionKey::new(&number.to_be_bytes())
}

fn path(key: &PartitionKey) -> Vec<u8> {
    let mut path = Vec::new();
    partition_path(key, &mut path);
    path
}

fn update(table: &Arc<Table>, partition: i32, row: i32, value: &str) -> PartitionUpdate {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(1));
    builder.cell(0, &Cell::live(i64::from(value == "new") + 1, value.as_bytes()));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let clustering = [4_i32.to_be_bytes(), row.to_be_bytes()].concat();
    let mut update = PartitionUpdateBuilder::new(table.clone(), key(partition));
    update.row(&clustering, &blob);
    update.build()
}

/// A memtable with two partitions of `ROWS` rows.
fn memtable(layout: Layout) -> (Arc<Table>, TrieMemtable) {
    let table = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1)))
        .partition_key("p", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text);
    let table = Arc::new(table.build());
    let memtable = TrieMemtable::with_options(&table, 1, TrieOptions { layout, ..TrieOptions::default() });
    for (partition, row) in (0..2).flat_map(|partition| (0..ROWS).map(move |row| (partition, row))) {
        memtable.apply(&update(&table, partition, row, "old"), None).expect("room");
    }
    (table, memtable)
}

/// For each content of partition 0, in order, whether it is of a new row. `meanwhile` runs after the second content.
fn news(pin: &Pin<'_>, direction: Direction, meanwhile: impl FnOnce()) -> Vec<bool> {
    let mut cursor = pin.tail(&path(&key(0))).cursor(Bounds::ALL, direction);
    let (mut meanwhile, mut news) = (Some(meanwhile), Vec::new());
    while cursor.advance() {
        news.push(cursor.content().windows(3).any(|bytes| bytes == b"new"));
        if news.len() == 2 {
            meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
        }
    }
    news
}

#[test]
fn a_reader_does_not_see_a_row_without_the_row_written_before_it() {
    type Pins = fn(&Shard) -> Pin<'_>;
    let pins: [Pins; 2] = [|shard| shard.trie.pin(), |shard| shard.trie.pin_below(&path(&key(0)))];
    for (layout, make) in LAYOUTS.into_iter().flat_map(|layout| pins.map(|make| (layout, make))) {
        for direction in [Direction::Forward, Direction::Reverse] {
            let (table, memtable) = memtable(layout);
            // The reader has passed the first of the two rows, and has not reached the second.
            let rows = if direction == Direction::Reverse { [ROWS - 1, 1] } else { [0, ROWS - 2] };
            let write = || {
                rows.iter().for_each(|row| _ = memtable.apply(&update(&table, 0, *row, "new"), None).expect("room"));
            };
            let during = news(&make(&memtable.shards()[0]), direction, write);
            assert_eq!(during.len(), ROWS as usize + 1, "the header and the rows");
            assert!(!during.contains(&true), "{layout:?} {direction:?}: the second row is seen without the first");
            let after = news(&make(&memtable.shards()[0]), direction, || {});
            assert_eq!(after.iter().filter(|is_new| **is_new).count(), 2, "{layout:?} {direction:?}");
        }
    }
}

#[test]
fn a_row_is_replaced_without_a_copy_of_a_node_unless_its_partition_is_read() {
    for layout in LAYOUTS {
        let (table, memtable) = memtable(layout);
        let shard = &memtable.shards()[0];
        // Replaced contents are kept until this pin ends.
        let _everything_is_kept = shard.trie.pin_for_single_keys();
        let taken = || shard.with_writer(memtable.layout(), |writer| shard.trie.memory().used + writer.waiting_bytes());
        let copied = || {
            let before = taken();
            memtable.apply(&update(&table, 0, ROWS / 2, "new"), None).expect("room");
            taken() - before
        };
        let alone = copied();
        let beside_another = {
            let _reader = shard.trie.pin_below(&path(&key(1)));
            copied()
        };
        let beside_a_reader = {
            let _reader = shard.trie.pin_below(&path(&key(0)));
            copied()
        };
        assert!(alone <= 64 && beside_another == alone, "{layout:?}: {alone} and {beside_another} bytes");
        assert!(beside_a_reader > 2 * alone, "{layout:?}: {beside_a_reader} bytes, the row takes {alone}");
    }
}
