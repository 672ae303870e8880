//! A merge skips what another SSTable deletes: the bytes that it reads are counted.

use std::sync::Arc;

use model::{
    Cell, DeletionTime, Liveness, Marker, PartitionHead, PartitionKey, Row, RowBuilder, RowRef, Side, Unfiltered,
    UnfilteredCursor, push_component,
};
use sstable::{Descriptor, SSTableId, SSTableReader, SSTableWriter, WriterOptions};

use crate::content::{DIR, Generator, merged, open};
use crate::merging::merge;

const ROWS: i32 = 30_000;
const WRITTEN_AT: i64 = 1_000;
const DELETION: DeletionTime = DeletionTime { marked_for_delete_at: 2_000, local_deletion_time: 1_000 };
/// The bytes that a merge prefetches. It reads less than that before it uses the index.
const READ_AHEAD_BYTES: u64 = 256 * 1024;

fn clustering(row: i32) -> Vec<u8> {
    let mut clustering = Vec::new();
    push_component(Some(&row.to_be_bytes()), &mut clustering);
    clustering
}

/// The contents of one SSTable with one partition.
struct Writer<'g> {
    generator: &'g mut Generator,
    writer: SSTableWriter,
}

impl<'g> Writer<'g> {
    fn begin(generator: &'g mut Generator, deletion: DeletionTime) -> Self {
        let descriptor = Descriptor::new(DIR, SSTableId::from_sequence(generator.next_id));
        generator.next_id += 1;
        let options = WriterOptions { compression: None, ..WriterOptions::for_table(&generator.table).unwrap() };
        let mut writer = SSTableWriter::create(&generator.disk, &descriptor, &generator.table, options).unwrap();
        let key = PartitionKey::new(&1_i32.to_be_bytes());
        writer.begin_partition(&PartitionHead { key: &key, deletion, static_row: None }).unwrap();
        Writer { generator, writer }
    }

    fn row(&mut self, row: i32, timestamp: i64) {
        let table = &self.generator.table;
        let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
        builder.start(table.columns(false), false);
        builder.liveness(Liveness::at(timestamp));
        let text = "w".repeat(60);
        let index = table.regulars().columns.iter().position(|column| &*column.name == "w").unwrap();
        builder.cell(index, &Cell::live(timestamp, text.as_bytes()));
        builder.finish(&mut blob);
        self.writer.add(&Unfiltered::Row(RowRef { clustering: &clustering(row), row: Row::new(&blob) })).unwrap();
    }

    fn marker(&mut self, row: i32, side: Side, before: DeletionTime, after: DeletionTime) {
        self.writer.add(&Unfiltered::Marker(Marker { prefix: &clustering(row), side, before, after })).unwrap();
    }

    fn finish(mut self) -> Arc<SSTableReader> {
        self.writer.end_partition().unwrap();
        let descriptor = self.writer.finish().unwrap().unwrap();
        Arc::new(open(&self.generator.disk, &descriptor, &self.generator.table))
    }
}

/// Rows 0 to `ROWS`, with a deleted range in the middle that is older than they are.
fn rows(generator: &mut Generator) -> Arc<SSTableReader> {
    let mut writer = Writer::begin(generator, DeletionTime::LIVE);
    let older = DeletionTime::new(WRITTEN_AT - 1, 900);
    for row in 0..ROWS {
        if row == 10_000 {
            writer.marker(row, Side::Before, DeletionTime::LIVE, older);
        }
        writer.row(row, WRITTEN_AT);
        if row == ROWS - 2 {
            writer.marker(row, Side::After, older, DeletionTime::LIVE);
        }
    }
    let reader = writer.finish();
    assert!(reader.data_length_bytes() > 8 * READ_AHEAD_BYTES);
    reader
}

/// The rows that a merge of the tables leaves, with their markers ("open" and "close").
fn merged_items(generator: &mut Generator, inputs: &[Arc<SSTableReader>]) -> Vec<String> {
    let outputs = merge(generator, inputs, &[], 1_001, Vec::new());
    for output in &outputs {
        sstable::verify(&*generator.disk, output.descriptor(), &generator.table, true).unwrap();
    }
    let mut cursor = merged(&generator.table, &outputs);
    let mut items = Vec::new();
    let number = |prefix: &[u8]| i32::from_be_bytes(prefix[4..8].try_into().unwrap());
    while cursor.advance_partition().unwrap() {
        if !cursor.partition().deletion.is_live() {
            items.push("deleted".into());
        }
        while cursor.advance().unwrap() {
            items.push(match cursor.unfiltered() {
                Unfiltered::Row(row) => number(row.clustering).to_string(),
                Unfiltered::Marker(marker) => {
                    let deletion = |deletion: DeletionTime| match deletion.is_live() {
                        true => "live".to_string(),
                        false => deletion.marked_for_delete_at.to_string(),
                    };
                    format!("{}: {} to {}", number(marker.prefix), deletion(marker.before), deletion(marker.after))
                }
            });
        }
    }
    items
}

#[test]
fn a_partition_that_another_sstable_deletes_is_not_walked() {
    let mut generator = Generator::new(1, 10_000);
    let older = rows(&mut generator);
    let mut writer = Writer::begin(&mut generator, DELETION);
    writer.row(ROWS + 7, 2_001);
    let newer = writer.finish();
    assert_eq!(merged_items(&mut generator, &[older.clone(), newer]), ["deleted", "30007"]);
    let read = older.data_bytes_read();
    assert!(read <= 2 * READ_AHEAD_BYTES, "{read} bytes of {}", older.data_length_bytes());
}

#[test]
fn rows_that_another_sstable_deletes_by_a_range_are_not_walked() {
    let mut generator = Generator::new(2, 10_000);
    let older = rows(&mut generator);
    let mut writer = Writer::begin(&mut generator, DeletionTime::LIVE);
    writer.marker(2, Side::After, DeletionTime::LIVE, DELETION);
    writer.row(20_000, 2_001);
    writer.marker(ROWS - 3, Side::After, DELETION, DeletionTime::LIVE);
    let newer = writer.finish();
    let items = merged_items(&mut generator, &[older.clone(), newer]);
    let expected =
        ["0", "1", "2", "2: live to 2000", "20000", "29997: 2000 to 999", "29998", "29998: 999 to live", "29999"];
    assert_eq!(items, expected);
    // At its start, in the middle where a newer row is, and at its end.
    let read = older.data_bytes_read();
    assert!(read <= 4 * READ_AHEAD_BYTES, "{read} bytes of {}", older.data_length_bytes());
}

#[test]
fn rows_that_are_not_older_than_the_deletion_are_read() {
    let mut generator = Generator::new(3, 10_000);
    let mut writer = Writer::begin(&mut generator, DeletionTime::LIVE);
    (0..ROWS)
        .for_each(|row| writer.row(row, if row == 25_000 { DELETION.marked_for_delete_at + 1 } else { WRITTEN_AT }));
    let mixed = writer.finish();
    let newer = Writer::begin(&mut generator, DELETION).finish();
    assert_eq!(merged_items(&mut generator, &[mixed, newer]), ["deleted", "25000"]);
}
