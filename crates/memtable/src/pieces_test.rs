//! What a change of a large row copies, counted in bytes that the trie takes while a reader keeps all of it from being used again.

use std::sync::Arc;

use memtrie::{Layout, TrieOptions};
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

const LAYOUTS: [Layout; 2] = [Layout::Adaptive, Layout::Paper];

fn memtable(table: &Arc<Table>, layout: Layout) -> TrieMemtable {
    TrieMemtable::with_options(table, 1, TrieOptions { layout, ..TrieOptions::default() })
}

/// Bytes copied by each of many updates.
struct Copied(Vec<usize>);

impl Copied {
    fn mean(&self) -> usize {
        self.0.iter().sum::<usize>() / self.0.len()
    }

    fn max(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

fn copied(memtable: &TrieMemtable, updates: impl Iterator<Item = PartitionUpdate>) -> Copied {
    let shard = &memtable.shards()[0];
    let _everything_is_kept = shard.trie.pin();
    let taken = || shard.with_writer(memtable.layout(), |writer| shard.trie.memory().used + writer.waiting_bytes());
    let bytes = updates.map(|update| {
        let before = taken();
        memtable.apply(&update, None).expect("room");
        taken() - before
    });
    Copied(bytes.collect())
}

#[test]
fn an_append_to_a_collection_of_65000_copies_at_most_three_times_what_one_to_100_does() {
    let table = table(0);
    for (layout, column) in LAYOUTS.into_iter().flat_map(|layout| ["l", "m", "s"].map(|column| (layout, column))) {
        let appends = |size: u32| {
            let memtable = memtable(&table, layout);
            memtable.apply(&collection(&table, column, 0..size, 1), None).expect("room");
            // The first one appends, the others write the same element again, so that the collection keeps its size.
            copied(&memtable, (2..1_000).map(|timestamp| collection(&table, column, size..size + 1, timestamp)))
        };
        let (few, many) = (appends(100), appends(65_000));
        println!(
            "{layout:?} {column}: {} and {} bytes, at most {} and {}",
            few.mean(),
            many.mean(),
            few.max(),
            many.max()
        );
        assert!(
            many.mean() <= 3 * few.mean(),
            "{layout:?} {column}: {} bytes, of 100 elements {}",
            many.mean(),
            few.mean()
        );
        assert!(few.max().max(many.max()) <= 6 << 10, "{layout:?} {column}: {} and {} bytes", few.max(), many.max());
    }
}

/// Rows of 80 bytes to 80 KB. One that is not in pieces is copied whole, and cut by the update that takes it above 4 KiB: that one writes it with what
/// leads to its pieces, once in its life.
#[test]
fn an_update_of_one_column_copies_at_most_4_kib_however_wide_the_row() {
    let widths = [10, 100, 500, 520, 1_000, 2_000, 10_000];
    for (layout, columns) in LAYOUTS.into_iter().flat_map(|layout| widths.map(|columns| (layout, columns))) {
        let table = table(columns);
        let memtable = memtable(&table, layout);
        let first = table.regulars().index_of("v0").expect("there");
        let last = first + columns;
        let all = update(&table, |row| {
            (first..last).for_each(|index| row.cell(index, &Cell::live(1, &(index as u32).to_be_bytes())));
        });
        memtable.apply(&all, None).expect("room");
        let one = |index: usize, timestamp| update(&table, |row| row.cell(index, &Cell::live(timestamp, &[1; 4])));
        // Times of their own take room, too: a few columns, again and again.
        let place = |step: usize| first + step % 7 * 7919 % columns;
        let copied = copied(&memtable, (0..150).map(|step| one(place(step), 2 + step as i64)));
        println!("{layout:?}: {} bytes of {columns} columns, at most {}", copied.mean(), copied.max());
        let above = copied.0.iter().filter(|bytes| **bytes > 4 << 10).count();
        let cuts = usize::from((500..1_000).contains(&columns));
        assert!(above <= cuts && copied.max() <= 8 << 10, "{layout:?}: {} bytes of {columns} columns", copied.max());
    }
}
