//! Rows written under older column sets and read under newer ones.

use std::sync::Arc;

use model::{
    Cell, ColumnData, ColumnKind, Liveness, Row, RowBuilder, RowMerger, Table, TableBuilder, TableId, ValuePlaces,
};
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

/// Like `read`, but copied without decoding.
fn copied(row: Row<'_>, table: &Table) -> Vec<(String, String)> {
    let columns = &table.regulars().columns;
    let mut places = ValuePlaces::default();
    places.locate(row, table, 0, columns.len());
    let mut values = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let mut slot = Vec::new();
        places.copy(row, std::slice::from_ref(&(index..index + 1)), &mut slot);
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

    // After the column was added again, newer data than the drop is visible and older data is not.
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

    // A reader with an older schema.
    let mut translated = Vec::new();
    assert!(RowMerger::default().translate(Row::new(&newer), &second, &first, &mut translated));
    assert_eq!(names(&read(&translated, &first)), ["b", "d"]);
}

#[test]
fn a_table_made_in_one_go_has_one_column_set() {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let table = builder.regular("a", CqlType::Int).regular("b", CqlType::Int).static_column("s", CqlType::Int).build();
    assert_eq!(table.column_sets(false).count(), 1);
    assert_eq!(table.column_sets(true).count(), 1);
    let altered = table.to_builder().regular("c", CqlType::Int).regular("d", CqlType::Int).build();
    assert_eq!(altered.column_sets(false).count(), 2);
}

fn with_and_without_c() -> (Table, Table, Table) {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let first = builder.regular("a", CqlType::Text).regular("c", CqlType::Text).build();
    let dropped = first.to_builder().drop_column("c", CqlType::Text, 15).build();
    let again = dropped.to_builder().regular("c", CqlType::Text).build();
    (first, dropped, again)
}

fn merged(mut merger: RowMerger, table: &Table, versions: &[&[u8]]) -> Vec<u8> {
    let rows: Vec<Row<'_>> = versions.iter().map(|blob| Row::new(blob)).collect();
    let mut out = Vec::new();
    merger.merge(table, &rows, model::DeletionTime::LIVE, &mut out);
    out
}

#[test]
fn a_dropped_column_is_hidden_and_what_is_newer_survives_a_merge() {
    let (first, dropped, again) = with_and_without_c();
    assert!(dropped.column("c").is_none());
    let shown: Vec<&str> = dropped.regulars().shown().map(|column| &*column.name).collect();
    assert_eq!(shown, ["a"]);
    assert_eq!(dropped.columns_in_select_order().len(), 2);
    for (timestamp, comes_back) in [(15, false), (16, true)] {
        let row = row_of_all(&first, timestamp);
        assert_eq!(names(&read(&row, &dropped)), ["a"]);
        let merged = merged(RowMerger::default(), &dropped, &[&row, &row_of_all(&first, 1)]);
        assert_eq!(names(&read(&merged, &dropped)), ["a"]);
        let expected: &[&str] = if comes_back { &["a", "c"] } else { &["a"] };
        assert_eq!(names(&read(&merged, &again)), expected, "written at {timestamp}");
    }
    assert_ne!(again.column("c").unwrap().id, first.column("c").unwrap().id);
}

#[test]
fn a_row_with_only_a_dropped_column_is_neither_live_nor_empty() {
    let (first, dropped, again) = with_and_without_c();
    let row_of_c = |timestamp| {
        let mut builder = RowBuilder::default();
        builder.start(first.regulars(), false);
        builder.cell(1, &Cell::live(timestamp, b"c"));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    };
    let newer = row_of_c(16);
    assert!(!Row::new(&newer).is_live(&dropped, 0) && !Row::new(&newer).is_empty(&dropped));
    assert!(Row::new(&newer).is_live(&again, 0));
    let older = row_of_c(15);
    assert!(!Row::new(&older).is_live(&again, 0) && Row::new(&older).is_empty(&dropped));
}

/// A memtable merges in this way: in Cassandra too a drop removes nothing from a memtable, and a drop with an earlier
/// time may follow.
#[test]
fn a_merge_of_all_versions_leaves_a_drop_to_the_reader() {
    let (first, dropped, again) = with_and_without_c();
    let row = row_of_all(&first, 10);
    let merged = merged(RowMerger::of_all_written(), &dropped, &[&row, &row_of_all(&first, 1)]);
    assert_eq!(names(&read(&merged, &again)), ["a"]);
    let dropped_earlier = again.to_builder().drop_column("c", CqlType::Text, 5).build();
    let again = dropped_earlier.to_builder().regular("c", CqlType::Text).build();
    assert_eq!(names(&read(&merged, &again)), ["a", "c"]);
    assert_eq!(again.dropped().len(), 1);
    assert_eq!(again.regulars().columns.len(), 2);
}

#[test]
fn a_set_keeps_the_elements_and_the_deletion_that_are_newer_than_its_drop() {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let first = builder.regular("a", CqlType::Text).regular("m", CqlType::set(CqlType::Int)).build();
    let set_at = |deleted_at, elements: &[(i64, u8)]| {
        let mut builder = RowBuilder::default();
        builder.start(first.regulars(), false);
        builder.complex(1, model::DeletionTime::new(deleted_at, 1));
        elements.iter().for_each(|(at, path)| builder.complex_cell(&Cell::live(*at, b"").with_path(&[0, 0, 0, *path])));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    };
    let dropped = first.to_builder().drop_column("m", CqlType::set(CqlType::Int), 15).build();
    let again = dropped.to_builder().regular("m", CqlType::set(CqlType::Int)).build();
    let (left, right) = (set_at(3, &[(4, 1), (20, 2), (15, 3)]), set_at(18, &[(19, 4)]));
    let blob = merged(RowMerger::default(), &dropped, &[&left, &right]);
    let Some((1, ColumnData::Complex(set))) = Row::new(&blob).columns(&again).next() else { panic!("no set") };
    assert_eq!(set.deletion.marked_for_delete_at, 18);
    assert_eq!(set.map(|cell| (cell.timestamp, cell.path[3])).collect::<Vec<_>>(), [(20, 2), (19, 4)]);
    let blob = merged(RowMerger::default(), &dropped, &[&left]);
    let Some((1, ColumnData::Complex(set))) = Row::new(&blob).columns(&again).next() else { panic!("no set") };
    assert!(set.deletion.is_live());
    assert_eq!(set.count(), 1);
}

/// Tables stored before sets kept dropped columns, and tables with only recorded drops, get places for them.
#[test]
fn a_column_that_is_only_recorded_as_dropped_gets_a_place_in_a_new_set() {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let old = builder.regular("a", CqlType::Text).regular("c", CqlType::Text).build();
    let row = row_of_all(&old, 10);
    let noted = model::DroppedColumn {
        name: "c".into(),
        ty: CqlType::Text,
        kind: model::ColumnKind::Regular,
        dropped_time_micros: 5,
    };
    let first = old.regulars().clone();
    let without = first.columns.iter().filter(|column| &*column.name != "c").cloned().collect();
    let sets = [first, model::ColumnSet { version: 1, columns: without }];
    let stored = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let [statics, regulars] =
        [&[old.statics().clone()][..], &sets].map(|sets| model::ColumnChange::of_sets(sets).unwrap());
    let stored = stored.with_column_changes(statics, regulars, old.next_column_id()).unwrap();
    let table = stored.record_dropped([noted]).build();
    assert_eq!(table.regulars().version, 2);
    assert!(table.column("c").is_none());
    let blob = merged(RowMerger::default(), &table, &[&row]);
    let again = table.to_builder().regular("c", CqlType::Text).build();
    assert_eq!(names(&read(&blob, &again)), ["a", "c"]);
}

#[test]
fn columns_added_and_dropped_together_are_as_one_by_one() {
    let names: Vec<String> = (0..200).map(|n| format!("c{}", n * 37 % 200)).collect();
    let kind = |n: usize| if n.is_multiple_of(3) { ColumnKind::Static } else { ColumnKind::Regular };
    let base = || {
        TableBuilder::new("ks", "t", TableId(Default::default())).partition_key("k", CqlType::Int).clustering(
            "c",
            CqlType::Int,
            false,
        )
    };
    let columns = names.iter().enumerate().map(|(n, name)| (name.as_str(), CqlType::Int, kind(n)));
    let together = base().add_all(columns.clone()).build();
    let one_by_one = columns.fold(base(), |builder, (name, ty, kind)| builder.add(name, ty, kind)).build();
    assert_eq!(together, one_by_one);

    let dropped: Vec<(&str, CqlType)> = names.iter().skip(50).map(|name| (name.as_str(), CqlType::Int)).collect();
    let together = together.to_builder().drop_all(&dropped, 7).build();
    let one_by_one = dropped
        .iter()
        .fold(one_by_one.to_builder(), |builder, (name, ty)| builder.drop_column(name, ty.clone(), 7))
        .build();
    assert_eq!(together, one_by_one);
}
