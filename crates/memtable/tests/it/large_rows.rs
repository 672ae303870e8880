//! Rows in pieces: what readers see of them, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memtable::Memtable;
use model::{
    Cell, ColumnData, ColumnKind, DeletionTime, KeyRange, Liveness, PartitionUpdate, PartitionUpdateBuilder, ReadRange,
    Row, RowBuilder, RowObserver, Table, TableBuilder, TableId, Unfiltered,
};
use types::CqlType;

use crate::against_model::{clustering, key};
use crate::kinds::{Kind, for_all_kinds};

const COLUMNS: usize = 400;
/// The least number of reads while a row is written again and again.
const READS_MIN: usize = 10;

fn table() -> Arc<Table> {
    let map = CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Text), frozen: false };
    let mut builder = TableBuilder::new("k", "large", TableId(uuid::Uuid::from_u128(9)))
        .partition_key("p", CqlType::Int)
        .clustering("a", CqlType::Int, false)
        .clustering("b", CqlType::Text, true)
        .regular("m", map);
    for column in 0..COLUMNS {
        builder = builder.regular(&format!("v{column:05}"), CqlType::Text);
    }
    Arc::new(builder.build())
}

/// A row in which the columns from `first` on, `step` apart, and all entries of the map have this value.
fn update(table: &Arc<Table>, timestamp: i64, first: usize, step: usize, value: &str) -> PartitionUpdate {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(Liveness::at(timestamp));
    for (index, column) in table.regulars().columns.iter().enumerate() {
        if column.name.starts_with('v') && index >= first && index % step == 0 {
            row.cell(index, &Cell::live(timestamp, value.as_bytes()));
        }
    }
    let map = table.regulars().index_of("m").expect("there");
    row.complex(map, DeletionTime::LIVE);
    for path in 0..200_i32 {
        row.complex_cell(&Cell::live(timestamp, value.as_bytes()).with_path(&path.to_be_bytes()));
    }
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut builder = PartitionUpdateBuilder::new(table.clone(), key(1));
    builder.row(&clustering(1, "x"), &blob);
    builder.build()
}

fn one_column(table: &Arc<Table>, timestamp: i64, name: &str, value: &str) -> PartitionUpdate {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.cell(table.regulars().index_of(name).expect("there"), &Cell::live(timestamp, value.as_bytes()));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut builder = PartitionUpdateBuilder::new(table.clone(), key(1));
    builder.row(&clustering(1, "x"), &blob);
    builder.build()
}

/// The names and values of all cells of all rows.
fn cells(memtable: &Arc<dyn Memtable>, table: &Arc<Table>) -> Vec<(String, String)> {
    let mut cursor = memtable.clone().cursor(table, &ReadRange::all_rows(KeyRange::all()));
    let mut found = Vec::new();
    while cursor.advance_partition().expect("memory") {
        while cursor.advance().expect("memory") {
            let Unfiltered::Row(row) = cursor.unfiltered() else { panic!("no markers here") };
            for (index, data) in row.row.columns(table) {
                let name = &table.regulars().columns[index].name;
                let mut push = |name: String, cell: &Cell<'_>| {
                    found.push((name, String::from_utf8(cell.value.to_vec()).expect("text")));
                };
                match data {
                    ColumnData::Simple(cell) => push(name.to_string(), &cell),
                    ColumnData::Complex(all) => all.for_each(|cell| push(format!("{name}{:?}", cell.path), &cell)),
                }
            }
        }
    }
    found
}

#[test]
fn a_write_of_many_pieces_is_seen_whole_or_not_at_all() {
    for_all_kinds(a_write_of_many_pieces_is_seen_whole_or_not_at_all_of);
}

fn a_write_of_many_pieces_is_seen_whole_or_not_at_all_of(kind: Kind) {
    let table = table();
    let memtable = kind.open(&table, 1);
    memtable.apply(&update(&table, 1, 0, 1, "0000000000000000"), None).expect("room");
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let seen = cells(&memtable, &table);
                        assert_eq!(seen.len(), COLUMNS + 200);
                        assert!(seen.iter().all(|(_, value)| *value == seen[0].1), "one version");
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut version = 2;
        // A reader that fails ends.
        while version < 60 || reads.load(Ordering::Relaxed) < READS_MIN && !readers.iter().any(|r| r.is_finished()) {
            memtable.apply(&update(&table, version, 0, 1, &format!("{version:016}")), None).expect("room");
            version += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    });
}

#[test]
fn a_large_row_outlives_columns_that_come_between_its_columns() {
    for_all_kinds(a_large_row_outlives_columns_that_come_between_its_columns_of);
}

fn a_large_row_outlives_columns_that_come_between_its_columns_of(kind: Kind) {
    let old = table();
    let new = Arc::new(old.to_builder().add("v00100a", CqlType::Text, ColumnKind::Regular).build());
    let memtable = kind.open(&old, 1);
    memtable.apply(&update(&old, 1, 0, 1, "a value of some length"), None).expect("room");
    memtable.table_altered(&new);
    memtable.apply(&one_column(&new, 2, "v00100a", "added"), None).expect("room");
    memtable.apply(&one_column(&new, 2, "v00300", "changed"), None).expect("room");
    // A write with the old schema.
    memtable.apply(&one_column(&old, 3, "v00301", "late"), None).expect("room");
    let mut expected: Vec<(String, String)> = (0..COLUMNS)
        .map(|column| {
            let value = match column {
                300 => "changed",
                301 => "late",
                _ => "a value of some length",
            };
            (format!("v{column:05}"), value.to_owned())
        })
        .collect();
    let simple_cells = |table: &Arc<Table>| {
        let mut seen = cells(&memtable, table);
        seen.retain(|(name, _)| name.starts_with('v'));
        seen
    };
    assert_eq!(simple_cells(&old), expected);
    expected.insert(101, ("v00100a".to_owned(), "added".to_owned()));
    assert_eq!(simple_cells(&new), expected);
}

#[derive(Default)]
struct Counted(Vec<(usize, usize)>);

impl RowObserver for Counted {
    fn row_changed(
        &mut self,
        table: &Table,
        _: &model::PartitionKey,
        _: &[u8],
        before: Option<Row<'_>>,
        after: Option<Row<'_>>,
    ) {
        let cells = |row: Option<Row<'_>>| row.map_or(0, |row| row.columns(table).count());
        self.0.push((cells(before), cells(after)));
    }
}

#[test]
fn an_observer_sees_large_rows_whole() {
    for_all_kinds(an_observer_sees_large_rows_whole_of);
}

fn an_observer_sees_large_rows_whole_of(kind: Kind) {
    let table = table();
    let memtable = kind.open(&table, 1);
    let mut counted = Counted::default();
    memtable.apply(&update(&table, 1, 0, 2, "a value of some length"), Some(&mut counted)).expect("room");
    memtable.apply(&one_column(&table, 2, "v00001", "x"), Some(&mut counted)).expect("room");
    let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(1));
    deletion.delete_partition(DeletionTime::new(1, 1000));
    memtable.apply(&deletion.build(), Some(&mut counted)).expect("room");
    let written = COLUMNS / 2 + 1;
    assert_eq!(counted.0, [(0, written), (written, written + 1), (written + 1, 1)]);
    assert_eq!(cells(&memtable, &table), [("v00001".to_owned(), "x".to_owned())]);
}
