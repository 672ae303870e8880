//! Rows of `system_schema` that say something else of a table than its layout: the table is served by its layout, and
//! each start reports the difference until the rows are written again.

use std::sync::Arc;

use blockio::SimulatedDisk;
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{DeletionTime, Mutation, PartitionKey, PartitionUpdateBuilder, Slice, push_component};
use types::CqlType;

use crate::fixture::{columns, create_table, insert, open_with, rows, set_cell, small_options, stored_columns};

fn serving(disk: &SimulatedDisk) -> EngineOptions {
    EngineOptions { opens_damaged: true, ..small_options(disk) }
}

/// Deletes the row of column `name` of `ks.t`.
fn delete_column_row(engine: &Engine, name: &str) {
    let table = engine.schema().table("system_schema", "columns").unwrap().clone();
    let mut path = Vec::new();
    ["t", name].iter().for_each(|value| push_component(Some(value.as_bytes()), &mut path));
    let mut update = PartitionUpdateBuilder::new(table, PartitionKey::new(b"ks"));
    update.delete_range(Slice::prefix(&path), DeletionTime::new(engine.next_timestamp_micros(), 1));
    block_on(engine.write(&Mutation::new(vec![update.build()]))).unwrap();
}

fn set_column(engine: &Engine, name: &str, kind: &str, ty: &str) {
    set_cell(engine, "columns", &["t", name], "kind", Some(kind.as_bytes()));
    set_cell(engine, "columns", &["t", name], "type", Some(ty.as_bytes()));
}

fn add_column(engine: &Engine, name: &str) {
    let added = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        let keyspace = Arc::make_mut(keyspaces.get_mut("ks").unwrap());
        let altered = keyspace.tables["t"].to_builder().regular(name, CqlType::Int).build();
        keyspace.tables.insert("t".into(), Arc::new(altered));
        Ok(())
    });
    added.unwrap();
}

#[test]
fn schema_rows_that_contradict_a_layout_are_reported_by_name() {
    type Change = fn(&Engine);
    let cases: [(Change, &str); 6] = [
        (
            |engine| set_column(engine, "comes", "regular", "int"),
            "system.table_layouts lacks the column comes, which system_schema.columns has",
        ),
        (
            |engine| delete_column_row(engine, "v"),
            "system_schema.columns lacks the column v, which system.table_layouts has",
        ),
        (
            |engine| set_column(engine, "v", "regular", "int"),
            "column v is regular int in system_schema.columns and regular text in system.table_layouts",
        ),
        (
            |engine| set_column(engine, "s", "regular", "text"),
            "column s is regular text in system_schema.columns and static text in system.table_layouts",
        ),
        (
            |engine| set_cell(engine, "dropped_columns", &["t", "gone"], "type", Some(b"int")),
            "system.table_layouts lacks the dropped column gone, which system_schema.dropped_columns has",
        ),
        (|engine| set_cell(engine, "columns", &["t", "v"], "clustering_order", Some(b"none")), ""),
    ];
    for (change, expected) in cases {
        let disk = SimulatedDisk::new();
        let engine = open_with(&small_options(&disk));
        let table = create_table(&engine);
        insert(&engine, &table, 1, 1, "kept", 10);
        change(&engine);
        drop(engine);

        if expected.is_empty() {
            open_with(&small_options(&disk));
            continue;
        }
        let refused = Engine::open(small_options(&disk)).map(|_| ()).unwrap_err().to_string();
        let reported = format!("the stored schema is damaged: table ks.t: {expected}; the layout is in force");
        assert!(refused.contains(&reported), "{refused}");

        let engine = open_with(&serving(&disk));
        assert_eq!((engine.faults(), engine.quarantined_tables()), (vec![reported], vec![]));
        assert_eq!(rows(&engine, &table), [(1, 1, "kept".into())]);
        // A change of the table writes its rows again.
        add_column(&engine, "w");
        drop(engine);
        let engine = open_with(&small_options(&disk));
        assert!(engine.faults().is_empty());
        assert_eq!(stored_columns(&engine, "ks").unwrap(), columns(&engine, "ks"));
        let table = engine.schema().table("ks", "t").unwrap().clone();
        assert_eq!(rows(&engine, &table), [(1, 1, "kept".into())]);
    }
}
