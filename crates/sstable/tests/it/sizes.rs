//! What a writer reports of large partitions and collections.

use std::path::Path;
use std::sync::{Arc, Mutex};

use blockio::{Disk, SimulatedDisk};
use model::{
    Cell, DeletionTime, Liveness, Marker, PartitionHead, PartitionKey, Row, RowBuilder, RowRef, Side, Table,
    TableBuilder, TableId, Unfiltered, push_component,
};
use sstable::{
    Component, Descriptor, Oversize, SSTableId, SSTableReader, SSTableWriter, SizeHook, SizeKind, SizeLimits,
    SizeWatch, WriterOptions,
};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::cache;

const NOW: u32 = 1000;

fn table() -> Arc<Table> {
    let set = CqlType::Set { element: Arc::new(CqlType::Text), frozen: false };
    let builder = TableBuilder::new("ks", "T", TableId(Uuid::from_u128(9))).partition_key("key", CqlType::Text);
    let builder = builder.clustering("c", CqlType::Text, false).static_column("fixed", set.clone());
    Arc::new(builder.regular("elements", set).regular("value", CqlType::Text).build())
}

fn row(table: &Table, is_static: bool, write: impl FnOnce(&mut RowBuilder)) -> Vec<u8> {
    let (mut builder, mut row) = (RowBuilder::default(), Vec::new());
    builder.start(table.columns(is_static), is_static);
    write(&mut builder);
    builder.finish(&mut row);
    row
}

/// Two live elements of five bytes, one that has expired and one that was deleted.
fn elements(builder: &mut RowBuilder, column: usize) {
    builder.complex(column, DeletionTime::new(5, 5));
    for path in [b"first", b"other"] {
        builder.complex_cell(&Cell::live(7, b"").with_path(path));
    }
    builder.complex_cell(&Cell::expiring(7, 10, NOW, b"").with_path(b"then"));
    builder.complex_cell(&Cell::tombstone(7, 5).with_path(b"until"));
}

/// Writes one partition with all kinds of tombstones; the reports, and the partition's bytes.
fn write(limits: SizeLimits) -> (Vec<Oversize>, u64) {
    let (table, disk) = (table(), SimulatedDisk::new());
    disk.create_dir_all(Path::new("/t")).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let found: Arc<Mutex<Vec<Oversize>>> = Arc::default();
    let received = found.clone();
    let hook = SizeHook(Arc::new(move |oversize: &Oversize| received.lock().unwrap().push(oversize.clone())));
    let size_watch = Some(SizeWatch { limits, now_seconds: NOW, hook });
    let options = WriterOptions { size_watch, compression: None, ..WriterOptions::for_table(&table).unwrap() };
    let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
    let mut writer = SSTableWriter::create(&disk, &descriptor, &table, options).unwrap();
    let (key, fixed) = (PartitionKey::new(b"it's"), row(&table, true, |builder| elements(builder, 0)));
    let static_row = Some(Row::new(&fixed));
    writer.begin_partition(&PartitionHead { key: &key, deletion: DeletionTime::new(1, 1), static_row }).unwrap();
    let mut clustering = Vec::new();
    push_component(Some(b"c"), &mut clustering);
    let expired = row(&table, false, |builder| {
        builder.liveness(Liveness { timestamp: 7, ttl: 10, expiration: NOW });
        builder.deletion(DeletionTime::new(2, 2));
        builder.cell(0, &Cell::tombstone(7, 5));
        elements(builder, 1);
    });
    writer.add(&Unfiltered::Row(RowRef { clustering: &clustering, row: Row::new(&expired) })).unwrap();
    let [first, second, none] = [DeletionTime::new(3, 3), DeletionTime::new(4, 4), DeletionTime::LIVE];
    for (prefix, before, after) in [(b"d", none, first), (b"e", first, second), (b"f", second, none)] {
        let mut bytes = Vec::new();
        push_component(Some(prefix), &mut bytes);
        let marker = Marker { prefix: &bytes, side: Side::Before, before, after };
        writer.add(&Unfiltered::Marker(marker)).unwrap();
    }
    writer.end_partition().unwrap();
    let descriptor = writer.finish().unwrap().unwrap();
    let reader = SSTableReader::open(&*disk, &descriptor, &table, &cache()).unwrap();
    let found = found.lock().unwrap().clone();
    (found, reader.data_length_bytes())
}

fn oversize(kind: SizeKind, value: u64, what: &str) -> Oversize {
    Oversize { kind, value, what: what.into() }
}

#[test]
fn all_that_is_above_its_limit_is_reported_in_cassandras_words() {
    let zero = SizeLimits { partition_bytes: 0, partition_tombstones: 0, collection_bytes: 0, collection_items: 0 };
    let (found, bytes) = write(zero);
    let path = Descriptor::new("/t", SSTableId::from_sequence(1)).path(Component::Data);
    let partition = format!("ks.T:it's on sstable {}", path.display());
    let fixed = "fixed in row 'it''s' in table ks.\"T\"";
    let elements = "elements in row ('it''s', 'c') in table ks.\"T\"";
    let collection_bytes = 12 + 2 * (20 + 5);
    // The partition, two collections with a deletion, an expired and a deleted element each, a row that has expired,
    // its deletion, its deleted cell, and two ranges, each with a begin and an end.
    let tombstones = 1 + 2 * 3 + 2 + 1 + 4;
    let expected = [
        oversize(SizeKind::CollectionBytes, collection_bytes, fixed),
        oversize(SizeKind::CollectionItems, 2, fixed),
        oversize(SizeKind::CollectionBytes, collection_bytes, elements),
        oversize(SizeKind::CollectionItems, 2, elements),
        oversize(SizeKind::PartitionBytes, bytes, &partition),
        oversize(SizeKind::PartitionTombstones, tombstones, &partition),
    ];
    assert_eq!(found, expected);
    // At their limits, and just above them.
    let at = |below| SizeLimits {
        partition_bytes: bytes - below,
        partition_tombstones: tombstones - below,
        collection_bytes: collection_bytes - below,
        collection_items: 2 - below,
    };
    assert!(write(at(0)).0.is_empty());
    assert_eq!(write(at(1)).0, expected);
    assert_eq!(write(at(1).without_collections()).0, expected[4..]);
    assert!(write(SizeLimits::default()).0.is_empty());
}
