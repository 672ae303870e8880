//! Rows written under older column sets, read under newer ones.

use std::sync::Arc;

use model::{Cell, ColumnData, Liveness, Row, RowBuilder, RowMerger, Table, TableBuilder, TableId, ValuePlaces};
use types::{CqlType, collection};
use uuid::Uuid;

fn row_of_all(table: &Table, timestamp: i64) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(timestamp));
    for (index, column) in table.regulars().columns.iter().enumerate() {
        builder.cell(index, &Cell::live(timestamp, column.name.as_bytes()));
    }
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    blob
}

fn read(blob: &[u8], table: &Table) -> Vec<(String, String)> {
    let value = |data| match data {
        ColumnData::Simple(cell) => String::from_utf8(Cell::value_of(&cell)).unwrap(),
        ColumnData::Complex(_) => unreachable!(),
    };
    let row = Row::new(blob);
    let name = |index: usize| table.regulars().columns[index].name.to_string();
    let read: Vec<_> = row.columns(table).map(|(index, data)| (name(index), value(data))).collect();
    assert_eq!(copied(row, table), read);
    read
}

/// As `read`, but copied without decoding.
fn copied(row: Row<'_>, table: &Table) -> Vec<(String, String)> {
    let columns = &table.regulars().columns;
    let mut places = ValuePlaces::default();
    places.locate(row, table, 0, columns.len());
    let mut values = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let mut slot = Vec::new();
        places.copy(row, index..index + 1, &mut slot);
        if let Some(value) = collection::read_part(&mut slot.as_slice()).unwrap() {
            values.push((column.name.to_string(), String::from_utf8(value.to_vec()).unwrap()));
        }
    }
    values
}

trait ValueOf {
    fn value_of(&self) -> Vec<u8>;
}

impl ValueOf for Cell<'_> {
    fn value_of(&self) -> Vec<u8> {
        self.value.to_vec()
    }
}

fn names(pairs: &[(String, String)]) -> Vec<&str> {
    pairs.iter().map(|(name, value)| if name == value { name.as_str() } else { "mixed up" }).collect()
}

#[test]
fn columns_added_dropped_and_added_again_read_right_under_every_schema() {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let first = Arc::new(builder.regular("b", CqlType::Text).regular("d", CqlType::Text).build());
    let old = row_of_all(&first, 10);
    let second = first.to_builder().regular("a", CqlType::Text).regular("c", CqlType::Text).build();
    assert_eq!(names(&read(&old, &second)), ["b", "d"]);
    let newer = row_of_all(&second, 20);
    assert_eq!(names(&read(&newer, &second)), ["a", "b", "c", "d"]);

    let third = second.to_builder().drop_column("b", CqlType::Text, 15).build();
    assert_eq!(names(&read(&old, &third)), ["d"]);
    assert_eq!(names(&read(&newer, &third)), ["a", "c", "d"]);

    // Added again: what is newer than the drop is seen, what is older is not.
    let fourth = third.to_builder().regular("b", CqlType::Text).build();
    assert_eq!(names(&read(&old, &fourth)), ["d"]);
    assert_eq!(names(&read(&newer, &fourth)), ["a", "b", "c", "d"]);
    assert_ne!(fourth.column("b").unwrap().id, first.column("b").unwrap().id);

    // A merge writes under the newest set.
    let mut merged = Vec::new();
    let versions = [Row::new(&old), Row::new(&newer)];
    assert!(RowMerger::default().merge(&fourth, &versions, model::DeletionTime::LIVE, &mut merged));
    assert_eq!(Row::new(&merged).column_set_version(), fourth.regulars().version);
    assert_eq!(names(&read(&merged, &fourth)), ["a", "b", "c", "d"]);

    // A reader that still holds an older schema.
    let mut translated = Vec::new();
    assert!(RowMerger::default().translate(Row::new(&newer), &second, &first, &mut translated));
    assert_eq!(names(&read(&translated, &first)), ["b", "d"]);
}

#[test]
fn a_table_made_in_one_go_has_one_column_set() {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let table = builder.regular("a", CqlType::Int).regular("b", CqlType::Int).static_column("s", CqlType::Int).build();
    assert_eq!(table.column_sets(false).all().len(), 1);
    assert_eq!(table.column_sets(true).all().len(), 1);
    let altered = table.to_builder().regular("c", CqlType::Int).regular("d", CqlType::Int).build();
    assert_eq!(altered.column_sets(false).all().len(), 2);
}
