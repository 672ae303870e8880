//! Indexes of parts of collections.

use std::sync::Arc;

use index::{Indexer, TermRange, entry_value};
use model::{
    Cell, DeletionTime, IndexPart, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder, Table,
    TableBuilder, TableId,
};
use types::CqlType;
use uuid::Uuid;

fn table(ty: CqlType) -> Arc<Table> {
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil())).partition_key("p", CqlType::Int).regular("c", ty);
    Arc::new(table.build())
}

/// An update with these elements of the collection, each a path and a value, and one that is deleted.
fn update(table: &Arc<Table>, elements: &[(&[u8], &[u8])]) -> PartitionUpdate {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.complex(0, DeletionTime::LIVE);
    elements.iter().for_each(|(path, value)| row.complex_cell(&Cell::live(1, value).with_path(path)));
    row.complex_cell(&Cell::tombstone(1, 1).with_path(b"~"));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
    update.row(&[], &blob);
    update.build()
}

/// The terms of the entries that an update gives.
fn terms(table: &Arc<Table>, part: IndexPart, update: &PartitionUpdate) -> Vec<Vec<u8>> {
    let indexer = Indexer::new(table, table.column("c").unwrap(), part);
    let mut terms = Vec::new();
    indexer.of_update(update, &mut Vec::new(), |entry, length| terms.push(entry[..length].to_vec()));
    terms
}

/// The terms of these values.
fn expected(ty: &CqlType, values: &[&[u8]]) -> Vec<Vec<u8>> {
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil())).partition_key("p", CqlType::Int);
    let table = Arc::new(table.regular("c", ty.clone()).build());
    let term = |value: &&[u8]| {
        let mut row = RowBuilder::default();
        row.start(table.regulars(), false);
        row.cell(0, &Cell::live(1, value));
        let mut blob = Vec::new();
        row.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
        update.row(&[], &blob);
        terms(&table, IndexPart::Whole, &update.build()).concat()
    };
    values.iter().map(term).collect()
}

#[test]
fn a_collection_has_an_entry_for_each_element_that_is_no_deletion() {
    let (text, blob) = (CqlType::Text, CqlType::Blob);
    let elements: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
    let list = table(CqlType::list(text.clone()));
    assert_eq!(terms(&list, IndexPart::Values, &update(&list, &elements)), expected(&text, &[b"1", b"2"]));
    let map = table(CqlType::map(text.clone(), blob.clone()));
    let written = update(&map, &elements);
    assert_eq!(terms(&map, IndexPart::Values, &written), expected(&blob, &[b"1", b"2"]));
    assert_eq!(terms(&map, IndexPart::Keys, &written), expected(&text, &[b"a", b"b"]));
    let entries = [entry_value(b"a", b"1"), entry_value(b"b", b"2")];
    let tuple = CqlType::tuple([text.clone(), blob]);
    assert_eq!(terms(&map, IndexPart::Entries, &written), expected(&tuple, &[&entries[0], &entries[1]]));
    let set = table(CqlType::Set { element: text.clone().into(), frozen: false });
    let elements: [(&[u8], &[u8]); 2] = [(b"a", b""), (b"b", b"")];
    assert_eq!(terms(&set, IndexPart::Values, &update(&set, &elements)), expected(&text, &[b"a", b"b"]));
}

#[test]
fn the_terms_of_a_search_are_those_of_the_part() {
    let map = table(CqlType::map(CqlType::Text, CqlType::Int));
    let indexer = |part| Indexer::new(&map, map.column("c").unwrap(), part);
    assert_eq!(indexer(IndexPart::Keys).terms_of(b"a"), TermRange::equal(&CqlType::Text, b"a"));
    assert_eq!(indexer(IndexPart::Values).terms_of(b"\0\0\0\x01"), TermRange::equal(&CqlType::Int, b"\0\0\0\x01"));
}
