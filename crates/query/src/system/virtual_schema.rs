//! `system_virtual_schema`: the virtual tables, described in the shape of `system_schema`.

use engine::system::table_id;
use model::{Column, ColumnKind, Table, TableBuilder, TableOptions};
use types::CqlType;

use super::{Definition, RowList};
use crate::Processor;

/// The tables of this keyspace.
pub(super) fn tables() -> Vec<Definition> {
    let keyspace = "system_virtual_schema";
    let build = |name: &str, comment: &str, clustering: &[&str], regular: &[(&str, CqlType)]| {
        let mut builder = TableBuilder::new(keyspace, name, table_id(keyspace, name));
        builder = builder.partition_key("keyspace_name", CqlType::Text);
        builder = clustering.iter().fold(builder, |builder, column| builder.clustering(column, CqlType::Text, false));
        builder = regular.iter().fold(builder, |builder, (column, ty)| builder.regular(column, ty.clone()));
        builder.options(TableOptions { comment: comment.into(), ..TableOptions::default() }).build()
    };
    let columns = [
        ("clustering_order", CqlType::Text),
        ("column_name_bytes", CqlType::Blob),
        ("kind", CqlType::Text),
        ("position", CqlType::Int),
        ("type", CqlType::Text),
    ];
    vec![
        (keyspace, build("keyspaces", "virtual keyspace definitions", &[], &[]), keyspaces),
        (
            keyspace,
            build("tables", "virtual table definitions", &["table_name"], &[("comment", CqlType::Text)]),
            table_rows,
        ),
        (
            keyspace,
            build("columns", "virtual column definitions", &["table_name", "column_name"], &columns),
            column_rows,
        ),
    ]
}

fn keyspaces(processor: &Processor, rows: &mut RowList) {
    processor.virtual_tables().keyspace_names().for_each(|name| rows.add(name.as_bytes(), &[], &[]));
}

fn each_table(processor: &Processor, mut visit: impl FnMut(&Table)) {
    let tables = processor.virtual_tables();
    tables.keyspace_names().flat_map(|keyspace| tables.tables(keyspace)).for_each(|table| visit(table));
}

fn table_rows(processor: &Processor, rows: &mut RowList) {
    each_table(processor, |table| {
        let comment = Some(table.options.comment.clone().into_bytes());
        rows.add(table.keyspace.as_bytes(), &[table.name.as_bytes()], &[("comment", comment)]);
    });
}

fn column_rows(processor: &Processor, rows: &mut RowList) {
    each_table(processor, |table| {
        for column in table.columns_in_select_order() {
            let clustering = [table.name.as_bytes(), column.name.as_bytes()];
            rows.add(table.keyspace.as_bytes(), &clustering, &column_values(&column));
        }
    });
}

fn column_values(column: &Column) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let (kind, order) = match column.kind {
        ColumnKind::PartitionKey => ("partition_key", "none"),
        ColumnKind::Clustering => ("clustering", if column.reversed { "desc" } else { "asc" }),
        ColumnKind::Static => ("static", "none"),
        ColumnKind::Regular => ("regular", "none"),
    };
    let text = |text: &str| Some(text.as_bytes().to_vec());
    vec![
        ("clustering_order", text(order)),
        ("column_name_bytes", text(&column.name)),
        ("kind", text(kind)),
        ("position", Some(column.position.to_be_bytes().to_vec())),
        ("type", text(&column.ty.to_string())),
    ]
}
