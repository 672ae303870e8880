//! The hex examples of FORMAT.md are the bytes of real files and entries.

use std::sync::Arc;

use index::Indexer;
use model::{Cell, IndexPart, PartitionKey, PartitionUpdateBuilder, RowBuilder, TableBuilder, TableId, push_component};
use types::CqlType;
use uuid::Uuid;

use crate::support::{bytes_of, disk, write};

/// The lines of the code block with that number.
fn block(number: usize) -> Vec<&'static str> {
    let text = include_str!("../../FORMAT.md");
    text.split("```").nth(2 * number + 1).unwrap().lines().skip(1).collect()
}

fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_example_of_an_entry_is_the_entry_of_that_row() {
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil()))
        .partition_key("p", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text);
    let table = Arc::new(table.build());
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.cell(0, &Cell::live(1, b"red"));
    let (mut blob, mut clustering) = (Vec::new(), Vec::new());
    row.finish(&mut blob);
    push_component(Some(&5_i32.to_be_bytes()), &mut clustering);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
    update.row(&clustering, &blob);
    let indexer = Indexer::new(&table, table.column("v").unwrap(), IndexPart::Whole);
    let mut entries = Vec::new();
    indexer.of_update(&update.build(), &mut Vec::new(), |entry, length| entries.push((entry.to_vec(), length)));
    let lines = block(2);
    assert_eq!(entries, [(hex(&lines.join(" ")), hex(lines[0]).len())]);
}

#[test]
fn the_example_of_a_file_is_the_file() {
    let disk = disk();
    write(&disk, [(&b"\x40a\x00\x38\x18"[..], 4)], 1 << 20);
    let bytes = bytes_of(&disk);
    let mut expected = vec![0; bytes.len()];
    for line in block(3) {
        let (offset, rest) = line.split_once(": ").unwrap();
        let (offset, part) = (usize::from_str_radix(offset, 16).unwrap(), hex(rest));
        expected[offset..offset + part.len()].copy_from_slice(&part);
    }
    assert!(bytes == expected, "the footer: {:02x?}", &bytes[8192..]);
}
