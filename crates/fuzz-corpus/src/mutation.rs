//! Log records of mutations, for a table with a column of every kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Cell, ColumnData, DeletionTime, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, Row,
    RowBuilder, Schema, Slice, Table, TableBuilder, TableId, push_component,
};
use types::CqlType;
use uuid::Uuid;

/// The table for which records are read.
fn table() -> Table {
    let text = Arc::new(CqlType::Text);
    let list = CqlType::List { element: text.clone(), frozen: false };
    let map = CqlType::Map { key: Arc::new(CqlType::Int), value: text, frozen: false };
    TableBuilder::new("ks", "t", TableId(Uuid::from_u128(7)))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .clustering("d", CqlType::Text, true)
        .static_column("s", CqlType::Text)
        .static_column("sm", map.clone())
        .regular("v", CqlType::Text)
        .regular("w", CqlType::Bigint)
        .regular("l", list)
        .regular("m", map)
        .build()
}

fn schema() -> Schema {
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.insert("t".into(), Arc::new(table()));
    Schema::new(Uuid::nil(), BTreeMap::from([("ks".into(), Arc::new(keyspace))]))
}

/// Decodes a record, and reads every cell of an accepted one.
pub fn record(bytes: &[u8]) {
    let Ok((mutation, _)) = Mutation::read_record(bytes, &schema()) else { return };
    for update in mutation.updates() {
        update.partition_deletion();
        update.static_row().into_iter().for_each(|row| visit(row, update.table()));
        update.rows().for_each(|row| visit(row.row, update.table()));
        assert_eq!(update.range_deletions().count(), update.range_deletion_count());
    }
    let mut again = Vec::new();
    mutation.write_record(&mut again);
    assert_eq!(again.len(), mutation.record_size());
}

fn visit(row: Row<'_>, table: &Table) {
    row.liveness();
    row.deletion();
    row.is_live(table, 1000);
    for (_, data) in row.columns(table) {
        match data {
            ColumnData::Simple(cell) => visit_cell(cell),
            ColumnData::Complex(cells) => cells.for_each(visit_cell),
        }
    }
}

fn visit_cell(cell: Cell<'_>) {
    cell.is_live(1000);
    cell.is_tombstone();
}

/// Records with every kind of content, as seeds.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let table = Arc::new(table());
    let record = |fill: &dyn Fn(&mut PartitionUpdateBuilder)| {
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1i32.to_be_bytes()));
        fill(&mut update);
        let mut record = Vec::new();
        Mutation::new(vec![update.build()]).write_record(&mut record);
        record
    };
    let deletion = DeletionTime::new(20, 5);
    let mut clustering = Vec::new();
    push_component(Some(&2i32.to_be_bytes()), &mut clustering);
    let prefix = clustering.clone();
    push_component(Some(b"text"), &mut clustering);
    let row = |is_static: bool| {
        let set = table.columns(is_static);
        let mut builder = RowBuilder::default();
        builder.start(set, is_static);
        if !is_static {
            builder.liveness(Liveness::at(10));
        }
        for (index, column) in set.columns.iter().enumerate() {
            if column.is_complex() {
                builder.complex(index, deletion);
                let path: &[u8] = if matches!(column.ty, CqlType::Map { .. }) { &[0, 0, 0, 1] } else { &[1; 16] };
                builder.complex_cell(&Cell::live(30, b"element").with_path(path));
            } else if column.ty == CqlType::Bigint {
                builder.cell(index, &Cell::expiring(11, 60, 1000, &[0; 8]));
            } else {
                builder.cell(index, &Cell::live(10, b"value"));
            }
        }
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    };
    vec![
        ("row", record(&|update| update.row(&clustering, &row(false)))),
        ("static-row", record(&|update| update.static_row(&row(true)))),
        ("partition-deletion", record(&|update| update.delete_partition(deletion))),
        ("range-deletion", record(&|update| update.delete_range(Slice::prefix(&prefix), deletion))),
    ]
}
