//! How many bytes a change of a large row copies. It is counted as the bytes that the trie allocates while a reader
//! prevents their reuse.

use std::sync::Arc;

use memtrie::{Layout, TrieOptions};
use model::{
    Cell, DeletionTime, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder, Table,
    TableBuilder, TableId,
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

/// The path of the cell at `place`: ascending, or scattered for columns that are not appended to.
fn path(column: &str, place: u32) -> Vec<u8> {
    let scattered = place.wrapping_mul(0x9E37_79B1);
    match column {
        "m" => scattered.to_be_bytes().to_vec(),
        "s" => format!("{scattered:010}").into_bytes(),
        _ => {
            // In a time-based uuid the low half of the time comes first.
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

/// The bytes copied by each of many updates.
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
    let _everything_is_kept = shard.trie.pin_for_single_keys();
    let taken = || shard.with_writer(memtable.layout(), |writer| shard.trie.memory().used + writer.waiting_bytes());
    let bytes = updates.map(|update| {
        let before = taken();
        memtable.apply(&update, None).expect("room");
        taken() - before
    });
    Copied(bytes.collect())
}

#[test]
fn an_append_to_a_collection_of_65000_copies_at_most_three_times_the_bytes_of_one_to_100() {
    let table = table(0);
    for (layout, column) in LAYOUTS.into_iter().flat_map(|layout| ["l", "m", "s"].map(|column| (layout, column))) {
        let appends = |size: u32| {
            let memtable = memtable(&table, layout);
            memtable.apply(&collection(&table, column, 0..size, 1), None).expect("room");
            // The first update appends; the others write the same element again, so that the collection keeps its size.
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

/// A row of many columns, and how one of them is updated.
#[derive(Clone, Copy, Debug)]
struct Shape {
    layout: Layout,
    columns: usize,
    /// The size of each column, in bytes.
    value: usize,
    /// Whether the row was inserted at once or built by updates.
    is_inserted: bool,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Update,
    /// The row becomes newer than its other cells.
    Insert,
    /// Everything gets an expiration.
    Expiring,
    /// The value has this many bytes.
    Value(usize),
}

const CHANGES: [Change; 5] =
    [Change::Update, Change::Insert, Change::Expiring, Change::Value(500), Change::Value(3_000)];

/// The most that an update of one column may copy. Its own new bytes do not count, and a content may take an eighth
/// more than its length.
const COPIED_BYTES_MAX: usize = 4 << 10;

impl Shape {
    /// The bytes that updates copy, one after the other.
    fn copied(&self, table: &Arc<Table>) -> Copied {
        let memtable = memtable(table, self.layout);
        let first = table.regulars().index_of("v0").expect("there");
        let value = vec![1; self.value];
        let all = update(table, |row| {
            if self.is_inserted {
                row.liveness(Liveness::at(1));
            }
            (first..first + self.columns).for_each(|index| row.cell(index, &Cell::live(1, &value)));
        });
        memtable.apply(&all, None).expect("room");
        // A few columns are written again and again, because times of their own take room too.
        let place = |step: usize| first + step % 7 * 7919 % self.columns;
        copied(&memtable, (0..16).map(|step| self.update(table, place(step), 2 + step as i64)))
    }

    fn update(&self, table: &Arc<Table>, index: usize, timestamp: i64) -> PartitionUpdate {
        let value = vec![2; self.new_value()];
        update(table, |row| {
            let mut cell = Cell::live(timestamp, &value);
            match self.change {
                Change::Insert => row.liveness(Liveness::at(timestamp)),
                Change::Expiring => cell = Cell::expiring(timestamp, 60, 1_000, &value),
                Change::Update | Change::Value(_) => {}
            }
            row.cell(index, &cell);
        })
    }

    fn new_value(&self) -> usize {
        if let Change::Value(bytes) = self.change { bytes } else { self.value }
    }

    fn check(&self, table: &Arc<Table>) {
        let copied = self.copied(table);
        let most = COPIED_BYTES_MAX + self.new_value() * 9 / 8;
        assert!(copied.max() <= most, "{} bytes: {self:?}, {:?}", copied.max(), copied.0);
    }
}

/// Rows of 2 to 5 KB, about the size at which rows are cut, in small steps and with values of all lengths; the other
/// properties vary in turn.
#[test]
fn an_update_of_one_column_copies_at_most_4_kib_of_rows_near_the_cutting_size() {
    let of_layout = |layout| [true, false].map(|is_inserted| (layout, is_inserted));
    let rows = LAYOUTS.into_iter().flat_map(of_layout);
    let mut turns = rows.flat_map(|row| CHANGES.map(|change| (row, change))).cycle();
    for value in [0, 1, 4, 15, 60, 300, 900, 1_700] {
        for (row_bytes, turn) in (2_000..5_000).step_by(61).zip(&mut turns) {
            let ((layout, is_inserted), change) = turn;
            let columns = row_bytes / (4 + value);
            Shape { layout, columns, value, is_inserted, change }.check(&table(columns));
        }
    }
}

#[test]
fn an_update_of_one_column_copies_at_most_4_kib_however_wide_the_row() {
    for columns in [10, 100, 1_000, 10_000] {
        let table = table(columns);
        for (layout, change) in LAYOUTS.into_iter().flat_map(|layout| CHANGES.map(|change| (layout, change))) {
            Shape { layout, columns, value: 4, is_inserted: true, change }.check(&table);
        }
    }
}
