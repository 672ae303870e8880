//! A reader that names the columns it uses sees the same values of them, and the same rows, as one that reads
//! everything.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use model::{
    BoxCursor, Cell, ColumnData, DeletionTime, KeyRange, Liveness, Marker, MergeCursor, PartitionHead, PartitionKey,
    ReadRange, Row, RowBuilder, RowRef, Side, Slices, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor,
    push_component,
};
use sstable::{Descriptor, SSTableId, SSTableReader, SSTableWriter, WriterOptions};
use testkit::{Random, seeds};
use types::CqlType;

use crate::fixture::cache;

const ROWS: i32 = 12;
const PARTITIONS: i32 = 6;

fn table(columns: usize, with_map: bool) -> Arc<Table> {
    let mut builder = TableBuilder::new("k", "wanted", TableId(uuid::Uuid::from_u128(9)))
        .partition_key("p", CqlType::Int)
        .clustering("a", CqlType::Int, false);
    for column in 0..columns {
        // Some types have a fixed length, others not.
        builder = builder.regular(&format!("v{column:05}"), if column % 3 == 0 { CqlType::Int } else { CqlType::Text });
    }
    if with_map {
        let map = CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Text), frozen: false };
        builder = builder.regular("m", map);
    }
    Arc::new(builder.build())
}

fn deletion(random: &mut Random) -> DeletionTime {
    DeletionTime::new(1 + random.below(9) as i64, 1000)
}

/// A row of all columns or of some, of one time or of several, that is live by itself, for a limited time, or by its
/// cells only.
fn row(random: &mut Random, table: &Table) -> Vec<u8> {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    let timestamp = 1 + random.below(9) as i64;
    match random.below(4) {
        0 => {}
        1 => row.liveness(Liveness { timestamp, ttl: 10, expiration: 2000 }),
        _ => row.liveness(Liveness::at(timestamp)),
    }
    if random.one_in(5) {
        row.deletion(deletion(random));
    }
    let (lacks, differs) = (random.one_in(2), random.one_in(2));
    for (index, column) in table.regulars().columns.iter().enumerate() {
        if lacks && !random.one_in(table.regulars().columns.len().div_ceil(8)) {
            continue;
        }
        let timestamp = if differs && random.one_in(3) { 1 + random.below(12) as i64 } else { timestamp };
        let value: &[u8] = if column.ty == CqlType::Int { &[1, 2, 3, index as u8] } else { &[b'x'; 30][..index % 30] };
        let cell = match random.below(if differs { 6 } else { 1 }) {
            1 => Cell::tombstone(timestamp, 1000),
            2 => Cell::expiring(timestamp, 10, 2000, value),
            _ => Cell::live(timestamp, value),
        };
        if column.is_complex() {
            row.complex(index, if random.one_in(2) { deletion(random) } else { DeletionTime::LIVE });
            (0..random.below(4) as u32).for_each(|path| row.complex_cell(&cell.with_path(&path.to_be_bytes())));
        } else {
            row.cell(index, &cell);
        }
    }
    let mut blob = Vec::new();
    if row.is_empty() {
        row.liveness(Liveness::at(timestamp));
    }
    row.finish(&mut blob);
    blob
}

/// Partitions with rows, some of them in deleted ranges.
fn write(random: &mut Random, table: &Arc<Table>) -> SSTableReader {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    disk.create_dir_all(Path::new("/t")).unwrap();
    let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
    let options = WriterOptions::for_table(table).unwrap();
    let mut writer = SSTableWriter::create(&disk, &descriptor, table, options).unwrap();
    let mut keys: Vec<_> = (0..PARTITIONS).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
    keys.sort();
    for key in &keys {
        let of_partition = if random.one_in(3) { deletion(random) } else { DeletionTime::LIVE };
        writer.begin_partition(&PartitionHead { key, deletion: of_partition, static_row: None }).unwrap();
        let mut open = DeletionTime::LIVE;
        for place in 0..ROWS {
            let mut clustering = Vec::new();
            push_component(Some(&place.to_be_bytes()), &mut clustering);
            let next = if random.one_in(3) { deletion(random) } else { DeletionTime::LIVE };
            if next != open && random.one_in(2) {
                let marker = Marker { prefix: &clustering, side: Side::Before, before: open, after: next };
                writer.add(&Unfiltered::Marker(marker)).unwrap();
                open = next;
            }
            let blob = row(random, table);
            writer.add(&Unfiltered::Row(RowRef { clustering: &clustering, row: Row::new(&blob) })).unwrap();
            if place == ROWS - 1 && !open.is_live() {
                let after = DeletionTime::LIVE;
                let marker = Marker { prefix: &clustering, side: Side::After, before: open, after };
                writer.add(&Unfiltered::Marker(marker)).unwrap();
            }
        }
        writer.end_partition().unwrap();
    }
    let descriptor = writer.finish().unwrap().expect("partitions were written");
    SSTableReader::open(&*disk, &descriptor, table, &cache()).unwrap()
}

/// What a reader of `wanted` sees, a line for each partition, row and marker; and the bytes of the rows.
fn seen(mut cursor: BoxCursor<'_>, table: &Table, wanted: &[usize]) -> (Vec<String>, usize) {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while cursor.advance_partition().unwrap() {
        lines.push(format!("{:?}", cursor.partition()));
        while cursor.advance().unwrap() {
            let Unfiltered::Row(RowRef { clustering, row }) = cursor.unfiltered() else {
                lines.push(format!("{:?}", cursor.unfiltered()));
                continue;
            };
            bytes += row.as_bytes().len();
            // Before anything expired, and after everything did.
            let is_live = [1500, 2500].map(|now| row.is_live(table, now));
            let mut line = format!("{clustering:?} {is_live:?} {:?}", row.liveness());
            for (index, data) in row.columns(table).filter(|(index, _)| wanted.contains(index)) {
                match data {
                    ColumnData::Simple(cell) => line += &format!(" {index}: {cell:?}"),
                    ColumnData::Complex(cells) => {
                        line += &format!(" {index}: {:?} {:?}", cells.deletion, cells.collect::<Vec<_>>());
                    }
                }
            }
            lines.push(line);
        }
    }
    (lines, bytes)
}

#[test]
fn a_reader_of_some_columns_sees_the_same_rows_and_values_as_a_reader_of_all() {
    let (mut all_bytes, mut wanted_bytes) = (0, 0);
    for seed in seeds(0..24) {
        let random = &mut Random(seed);
        // Missing columns are bits up to 64, and lists above.
        let table = table([3, 63, 64, 200][seed as usize % 4], seed % 3 == 0);
        let reader = write(random, &table);
        for _ in 0..4 {
            let mut wanted: Vec<usize> =
                (0..random.below(4)).map(|_| random.below(table.regulars().columns.len())).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let reversed = random.one_in(2);
            let range = ReadRange { keys: KeyRange::all(), slices: Slices::all(), reversed };
            let merged = || MergeCursor::new(&table, reversed, vec![Box::new(reader.cursor(&range).unwrap())]);
            let mut cursor = merged();
            cursor.expect_columns(&Arc::from(wanted.as_slice()));
            let (found, found_bytes) = seen(Box::new(cursor), &table, &wanted);
            let (expected, expected_bytes) = seen(Box::new(merged()), &table, &wanted);
            assert_eq!(found, expected, "seed {seed}, columns {wanted:?}");
            all_bytes += expected_bytes;
            wanted_bytes += found_bytes;
        }
    }
    println!("{all_bytes} bytes of rows, {wanted_bytes} where columns are named");
    assert!(wanted_bytes < all_bytes * 3 / 4, "{wanted_bytes} of {all_bytes} bytes of rows");
}

/// The bytes of Data.db for each row of this many columns of which three are set.
fn sparse_row_bytes(columns: usize) -> f64 {
    const ROWS: i32 = 2_000;
    let table = table(columns, false);
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    disk.create_dir_all(Path::new("/t")).unwrap();
    let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
    let options = WriterOptions { compression: None, ..WriterOptions::for_table(&table).unwrap() };
    let mut writer = SSTableWriter::create(&disk, &descriptor, &table, options).unwrap();
    let key = PartitionKey::new(&[1]);
    writer.begin_partition(&PartitionHead { key: &key, deletion: DeletionTime::LIVE, static_row: None }).unwrap();
    let (mut builder, mut blob, mut clustering) = (RowBuilder::default(), Vec::new(), Vec::new());
    for row in 0..ROWS {
        builder.start(table.regulars(), false);
        builder.liveness(Liveness::at(1));
        // Each has a fixed length; all columns take turns.
        let first = row as usize % (columns / 9);
        (0..3).for_each(|place| builder.cell(3 * first + place * (columns / 9) * 3, &Cell::live(1, &[1, 2, 3, 4])));
        blob.clear();
        builder.finish(&mut blob);
        clustering.clear();
        push_component(Some(&row.to_be_bytes()), &mut clustering);
        writer.add(&Unfiltered::Row(RowRef { clustering: &clustering, row: Row::new(&blob) })).unwrap();
    }
    writer.end_partition().unwrap();
    let descriptor = writer.finish().unwrap().expect("a partition was written");
    let reader = SSTableReader::open(&*disk, &descriptor, &table, &cache()).unwrap();
    reader.data_length_bytes() as f64 / f64::from(ROWS)
}

#[test]
fn the_size_of_a_row_depends_on_its_set_columns() {
    let [few, many, most] = [9, 999, 9_999].map(sparse_row_bytes);
    println!("{few} bytes for 3 of 9 columns, {many} for 3 of 999, {most} for 3 of 9,999");
    // Naming the columns takes two bytes each, and two for their number.
    assert!(many <= few + 8.0 && most <= few + 8.0, "{few} for 3 of 9 columns, {many} of 999, {most} of 9,999");
}
