//! The examples of `row/FORMAT.md` are what the code writes.

use std::sync::Arc;

use model::{Cell, Liveness, RowBuilder, Table, TableBuilder, TableId};
use types::CqlType;
use uuid::Uuid;

fn table() -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil()));
    let builder = builder.partition_key("k", CqlType::Int).regular("a", CqlType::Int).regular("b", CqlType::Text);
    Arc::new(builder.build())
}

/// The hex of each `row` block, without comments and blanks.
fn examples() -> Vec<Vec<u8>> {
    let text = include_str!("../../src/row/FORMAT.md");
    let blocks = text.split("```row\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let hex_of = |line: &str| {
        let bytes =
            line.split("  ").next().unwrap_or("").split(" ").take_while(|word| {
                word.len() % 2 == 0 && word.chars().all(|c| c.is_ascii_hexdigit()) && !word.is_empty()
            });
        bytes.collect::<String>()
    };
    let parse =
        |hex: String| (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    blocks.map(|block| parse(block.lines().map(hex_of).collect())).collect()
}

#[test]
fn the_examples_of_the_format_document_are_what_is_written() {
    let (table, examples) = (table(), examples());
    assert_eq!(examples.len(), 2);
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(5));
    builder.cell(0, &Cell::live(5, &7i32.to_be_bytes()));
    builder.cell(1, &Cell::live(5, b"x"));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    assert_eq!(blob, examples[0]);

    builder.start(table.regulars(), false);
    builder.cell(0, &Cell::tombstone(6, 9));
    builder.cell(1, &Cell::live(5, b"x"));
    blob.clear();
    builder.finish(&mut blob);
    assert_eq!(blob, examples[1]);
}
