//! Consecutive partitions in token order: how a writer and a reader in file order treat others.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use model::{
    Cell, DeletionTime, Liveness, PartitionHead, PartitionKey, Row, RowBuilder, RowRef, Table, TableBuilder, TableId,
    TableOptions, Unfiltered, UnfilteredCursor,
};
use sstable::{Component, Descriptor, SSTableError, SSTableId, SSTableReader, SSTableWriter, WriterOptions};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::cache;

/// Without compression, and read without checking checksums, so that what is in the file is what is decoded.
fn table() -> Arc<Table> {
    let options = TableOptions { crc_check_chance: 0.0, ..TableOptions::default() };
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(9))).partition_key("key", CqlType::Blob);
    Arc::new(builder.regular("value", CqlType::Blob).options(options).build())
}

fn disk() -> Arc<dyn Disk> {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(Path::new("/t")).unwrap();
    Arc::new(disk)
}

fn create(disk: &Arc<dyn Disk>) -> SSTableWriter {
    let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
    let options = WriterOptions { compression: None, ..WriterOptions::for_table(&table()).unwrap() };
    SSTableWriter::create(disk, &descriptor, &table(), options).unwrap()
}

/// Keys of several lengths, inline and allocated, in token order.
fn keys() -> Vec<PartitionKey> {
    let mut keys: Vec<PartitionKey> =
        (0..200_usize).map(|i| PartitionKey::new(&vec![i as u8; [1, 16, 30, 31, 90][i % 5]])).collect();
    keys.sort();
    keys
}

fn head(key: &PartitionKey) -> PartitionHead<'_> {
    PartitionHead { key, deletion: DeletionTime::LIVE, static_row: None }
}

fn add_row(writer: &mut SSTableWriter) -> Result<(), SSTableError> {
    let (mut builder, mut row) = (RowBuilder::default(), Vec::new());
    builder.start(table().columns(false), false);
    builder.liveness(Liveness::at(7));
    builder.cell(0, &Cell::live(7, b"value"));
    builder.finish(&mut row);
    writer.add(&Unfiltered::Row(RowRef { clustering: &[], row: Row::new(&row) }))
}

fn is_unwritable<T>(result: Result<T, SSTableError>) -> bool {
    matches!(result, Err(SSTableError::Unwritable { .. }))
}

#[test]
fn keys_of_all_lengths_follow_one_another_in_a_scan() {
    let (disk, keys) = (disk(), keys());
    let mut writer = create(&disk);
    for key in &keys {
        writer.begin_partition(&head(key)).unwrap();
        add_row(&mut writer).unwrap();
        writer.end_partition().unwrap();
    }
    let descriptor = writer.finish().unwrap().unwrap();
    let reader = SSTableReader::open(&*disk, &descriptor, &table(), &cache()).unwrap();
    let mut cursor = reader.scan().unwrap();
    for key in &keys {
        assert!(cursor.advance_partition().unwrap());
        assert_eq!(cursor.partition().key, key);
        assert!(cursor.advance().unwrap() && !cursor.advance().unwrap());
    }
    assert!(!cursor.advance_partition().unwrap());
}

#[test]
fn a_partition_out_of_order_is_refused() {
    let (disk, keys) = (disk(), keys());
    for (first, second) in [(1, 1), (1, 0), (150, 3)] {
        let mut writer = create(&disk);
        writer.begin_partition(&head(&keys[first])).unwrap();
        add_row(&mut writer).unwrap();
        writer.end_partition().unwrap();
        assert!(is_unwritable(writer.begin_partition(&head(&keys[second]))));
        writer.begin_partition(&head(&keys[199])).unwrap();
    }
}

#[test]
fn rows_outside_of_a_partition_are_refused() {
    let disk = disk();
    let mut writer = create(&disk);
    assert!(is_unwritable(add_row(&mut writer)));
    assert!(is_unwritable(writer.end_partition()));
    writer.begin_partition(&head(&keys()[0])).unwrap();
    add_row(&mut writer).unwrap();
    writer.end_partition().unwrap();
    assert!(is_unwritable(add_row(&mut writer)));
    assert!(is_unwritable(writer.end_partition()));
}

#[test]
fn a_file_whose_partitions_are_out_of_order_is_damaged() {
    let disk = disk();
    let mut keys: Vec<PartitionKey> = (0..3_u64).map(|i| PartitionKey::new(&i.to_be_bytes())).collect();
    keys.sort();
    let mut writer = create(&disk);
    for key in &keys {
        writer.begin_partition(&head(key)).unwrap();
        add_row(&mut writer).unwrap();
        writer.end_partition().unwrap();
    }
    let descriptor = writer.finish().unwrap().unwrap();
    let file = disk.open(&descriptor.path(Component::Data), OpenOptions::write()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let each = bytes.len() / 3;
    for (order, sound) in [([0, 2, 1], 2), ([0, 1, 1], 2), ([1, 0, 2], 1)] {
        let moved: Vec<u8> = order.iter().flat_map(|i| bytes[i * each..][..each].to_vec()).collect();
        file.write_at(&moved, 0).unwrap();
        let reader = SSTableReader::open(&*disk, &descriptor, &table(), &cache()).unwrap();
        let mut cursor = reader.scan().unwrap();
        let mut read = 0;
        let failure = loop {
            match cursor.advance_partition() {
                Ok(true) => read += 1,
                Ok(false) => panic!("nothing is said of {order:?}"),
                Err(failure) => break failure.to_string(),
            }
        };
        assert_eq!(read, sound, "{order:?}");
        assert!(failure.contains("partitions in token order"), "{failure}");
    }
}
