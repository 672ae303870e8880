//! How much of Data.db is read for a row, for a slice, and for what follows deleted rows: counted, in a large
//! partition.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use model::{
    Cell, ClusteringBound, DeletionTime, KeyRange, Liveness, Marker, NO_DELETION_TIME, PartitionHead, PartitionKey,
    ReadRange, Row, RowBuilder, RowRef, Side, Slice, Slices, TTL_NONE, Table, TableBuilder, TableId, Unfiltered,
    UnfilteredCursor, push_component,
};
use sstable::{
    BlockCache, CompressionParams, Compressor, Descriptor, SSTableCursor, SSTableId, SSTableReader, SSTableWriter,
    WriterOptions,
};
use testkit::Random;
use types::CqlType;
use uuid::Uuid;

const ROWS: i64 = 20_000;
const CHUNK_BYTES: u64 = 4096;
/// Room for the chunk's checksum, and for what LZ4 adds to incompressible bytes.
const STORED_CHUNK_BYTES: u64 = CHUNK_BYTES + 64;
const TIMESTAMP: i64 = 1_000;
/// In a table with holes, one row in this many is live; a range deletion covers those between.
const LIVE_EVERY: i64 = 333;

/// The schema of one large partition, or of several.
pub fn table() -> Arc<Table> {
    let builder = TableBuilder::new("ks", "large", TableId(Uuid::from_u128(7)));
    let builder = builder.partition_key("key", CqlType::Int).clustering("row", CqlType::Bigint, false);
    Arc::new(builder.regular("value", CqlType::Blob).build())
}

pub fn clustering(row: i64) -> Vec<u8> {
    let mut serialized = Vec::new();
    push_component(Some(&row.to_be_bytes()), &mut serialized);
    serialized
}

/// A hundred incompressible bytes.
fn value(row: i64) -> Vec<u8> {
    let mut random = Random(row as u64);
    (0..100).map(|_| random.number() as u8).collect()
}

/// One partition with an index of 1 KiB and chunks of 4 KiB.
struct Large {
    table: Arc<Table>,
    key: PartitionKey,
    disk: Arc<dyn Disk>,
    descriptor: Descriptor,
}

impl Large {
    fn write(with_holes: bool) -> Large {
        Large::write_indexed(with_holes, 1024)
    }

    fn write_indexed(with_holes: bool, column_index_size_bytes: u64) -> Large {
        let table = table();
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        disk.create_dir_all(Path::new("/t")).unwrap();
        let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
        let compression = CompressionParams {
            compressor: Compressor::Lz4,
            options: BTreeMap::new(),
            chunk_length: CHUNK_BYTES as u32,
            max_compressed_length: i32::MAX as u32,
        };
        let options = WriterOptions {
            column_index_size_bytes,
            compression: Some(compression),
            ..WriterOptions::for_table(&table).unwrap()
        };
        let mut writer = SSTableWriter::create(&disk, &descriptor, &table, options).unwrap();
        let key = PartitionKey::new(&1_i32.to_be_bytes());
        writer.begin_partition(&PartitionHead { key: &key, deletion: DeletionTime::LIVE, static_row: None }).unwrap();
        let deletion = DeletionTime::new(TIMESTAMP + 1, 5);
        let mark = |writer: &mut SSTableWriter, row: i64, side, before, after| {
            writer.add(&Unfiltered::Marker(Marker { prefix: &clustering(row), side, before, after })).unwrap();
        };
        let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
        for row in 0..ROWS {
            if with_holes && row % LIVE_EVERY != 0 {
                continue;
            }
            if with_holes && row > 0 {
                mark(&mut writer, row, Side::Before, deletion, DeletionTime::LIVE);
            }
            builder.start(table.columns(false), false);
            builder.liveness(Liveness { timestamp: TIMESTAMP, ttl: TTL_NONE, expiration: NO_DELETION_TIME });
            builder.cell(0, &Cell::live(TIMESTAMP, &value(row)));
            blob.clear();
            builder.finish(&mut blob);
            writer.add(&Unfiltered::Row(RowRef { clustering: &clustering(row), row: Row::new(&blob) })).unwrap();
            if with_holes {
                mark(&mut writer, row, Side::After, DeletionTime::LIVE, deletion);
            }
        }
        if with_holes {
            mark(&mut writer, ROWS, Side::After, deletion, DeletionTime::LIVE);
        }
        writer.end_partition().unwrap();
        let descriptor = writer.finish().unwrap().expect("a partition was written");
        Large { table, key, disk, descriptor }
    }

    /// The first rows within bounds, at most `limit`, and the bytes of Data.db that a new reader read for them.
    fn read(&self, start: ClusteringBound, end: ClusteringBound, reversed: bool, limit: usize) -> (Vec<i64>, u64) {
        let reader =
            SSTableReader::open(&*self.disk, &self.descriptor, &self.table, &BlockCache::new(1 << 20)).unwrap();
        let slices = Slices::new(vec![Slice { start, end }], self.table.comparator());
        let range = ReadRange { slices, reversed, ..ReadRange::all_rows(KeyRange::Single(self.key.clone())) };
        let mut cursor = reader.cursor(&range).unwrap();
        assert!(cursor.advance_partition().unwrap());
        let mut rows = Vec::new();
        while rows.len() < limit && cursor.advance().unwrap() {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                rows.push(i64::from_be_bytes(row.clustering[row.clustering.len() - 8..].try_into().unwrap()));
            }
        }
        (rows, reader.data_bytes_read())
    }
}

fn before(row: i64) -> ClusteringBound {
    ClusteringBound::new(clustering(row), Side::Before)
}

fn after(row: i64) -> ClusteringBound {
    ClusteringBound::new(clustering(row), Side::After)
}

/// Rows all over the partition, including both ends.
fn probes() -> impl Iterator<Item = i64> {
    (0..ROWS).step_by(487).chain([1, ROWS - 1])
}

#[test]
fn one_row_costs_two_chunks_at_most() {
    let large = Large::write(false);
    for row in probes() {
        let (rows, bytes) = large.read(before(row), after(row), false, usize::MAX);
        assert_eq!(rows, [row]);
        assert!(bytes <= 2 * STORED_CHUNK_BYTES, "{bytes} bytes for row {row}");
    }
}

#[test]
fn a_slice_costs_its_chunks_in_either_order() {
    let large = Large::write(false);
    for row in probes() {
        let (rows, bytes) = large.read(before(row), ClusteringBound::top(), false, 20);
        assert_eq!(rows, (row..ROWS.min(row + 20)).collect::<Vec<_>>());
        // 20 rows are 2.3 KB; with the rest of an index block they lie in two chunks.
        assert!(bytes <= 2 * STORED_CHUNK_BYTES, "{bytes} bytes from row {row} on");
        let (rows, bytes) = large.read(ClusteringBound::bottom(), after(row), true, 20);
        assert_eq!(rows, (0..=row).rev().take(20).collect::<Vec<_>>());
        assert!(bytes <= 2 * STORED_CHUNK_BYTES, "{bytes} bytes from row {row} backwards");
    }
}

#[test]
fn the_row_after_a_deleted_range_costs_no_more_than_a_row() {
    let holes = Large::write(true);
    for row in probes().filter(|row| *row <= ROWS / LIVE_EVERY * LIVE_EVERY) {
        let next = (row + LIVE_EVERY - 1) / LIVE_EVERY * LIVE_EVERY;
        let (rows, bytes) = holes.read(before(row), ClusteringBound::top(), false, 1);
        assert_eq!(rows, [next]);
        assert!(bytes <= 2 * STORED_CHUNK_BYTES, "{bytes} bytes for the row after {row}");
    }
}

/// The place of a row or marker, and the deletion in force behind it in reading direction.
type Place = (Vec<u8>, i8, DeletionTime);

fn place(item: &Unfiltered<'_>, open: DeletionTime, reversed: bool) -> Place {
    match item {
        Unfiltered::Row(row) => (row.clustering.to_vec(), 0, open),
        Unfiltered::Marker(marker) => {
            let behind = if reversed { marker.before } else { marker.after };
            (marker.prefix.to_vec(), marker.side.weight(), behind)
        }
    }
}

/// A cursor in one direction.
struct Directed {
    cursor: SSTableCursor,
    reversed: bool,
}

impl Directed {
    fn enter(reader: &SSTableReader, range: &ReadRange) -> Directed {
        let mut cursor = reader.cursor(range).unwrap();
        assert!(cursor.advance_partition().unwrap());
        Directed { cursor, reversed: range.reversed }
    }

    /// The next places, at most `limit`; `open` is in force before them.
    fn places(&mut self, limit: usize, mut open: DeletionTime) -> Vec<Place> {
        let mut places = Vec::new();
        while places.len() < limit && self.cursor.advance().unwrap() {
            places.push(place(&self.cursor.unfiltered(), open, self.reversed));
            open = places.last().unwrap().2;
        }
        places
    }
}

#[test]
fn skipped_rows_are_left_out_and_most_of_them_are_not_read() {
    let slices_of = |bounds: &[(i64, i64)]| {
        let slices = bounds.iter().map(|&(start, end)| Slice { start: before(start), end: after(end) }).collect();
        Slices::new(slices, table().comparator())
    };
    let selections =
        [Slices::all(), slices_of(&[(100, ROWS - 100)]), slices_of(&[(0, 9_000), (9_500, 9_600), (9_700, ROWS)])];
    for with_holes in [false, true] {
        let large = Large::write(with_holes);
        for (slices, reversed) in selections.iter().flat_map(|slices| [(slices, false), (slices, true)]) {
            let keys = KeyRange::Single(large.key.clone());
            large.pass_over(&ReadRange { keys, slices: slices.clone(), reversed });
        }
    }
}

impl Large {
    fn open(&self) -> SSTableReader {
        SSTableReader::open(&*self.disk, &self.descriptor, &self.table, &BlockCache::new(1 << 24)).unwrap()
    }

    /// Skips rows from some places of a range to others.
    fn pass_over(&self, range: &ReadRange) {
        let all = Directed::enter(&self.open(), range).places(usize::MAX, DeletionTime::LIVE);
        for (begun, target) in
            [(1, 2), (1, 150), (3, 9_001), (1, 9_599), (7, 9_650), (2, ROWS / 2), (1, ROWS - 1), (1, ROWS + 5)]
        {
            let target = clustering(if range.reversed { ROWS - target } else { target });
            for weight in [-1, 0, 1] {
                self.pass_over_to(range, &all, begun, (&target, weight));
            }
        }
    }

    fn pass_over_to(&self, range: &ReadRange, all: &[Place], begun: usize, (target, weight): (&[u8], i8)) {
        let reader = self.open();
        let mut directed = Directed::enter(&reader, range);
        let read = directed.places(begun, DeletionTime::LIVE);
        let comparator = self.table.comparator();
        let lies_before = |place: &Place| {
            let order = comparator.compare_positions(&place.0, place.1, target, weight);
            if range.reversed { order.is_gt() } else { order.is_lt() }
        };
        if !lies_before(read.last().unwrap()) {
            return;
        }
        let before = reader.data_bytes_read();
        let mut now_open = directed.cursor.pass_to(target, weight).unwrap().expect("the current row is passed over");
        // The border of each slice stops it.
        let mut next = directed.places(1, now_open);
        while next.first().is_some_and(lies_before) {
            now_open = directed.cursor.pass_to(target, weight).unwrap().unwrap_or(next[0].2);
            next = directed.places(1, now_open);
        }
        let bytes = reader.data_bytes_read() - before;
        let expected = all.iter().position(|place| !lies_before(place)).unwrap_or(all.len());
        let in_force = expected.checked_sub(1).map_or(DeletionTime::LIVE, |last| all[last].2);
        next.extend(directed.places(700, next.first().map_or(now_open, |first| first.2)));
        let expected_items = &all[expected..all.len().min(expected + next.len().max(1))];
        assert!(next == expected_items, "after {begun} {weight}, reversed {}", range.reversed);
        if next.first().is_some_and(|first| first.1 == 0) {
            assert_eq!(now_open, in_force, "the deletion in force where the scan continues");
        }
        // In each slice 16 KiB are walked before the index is used, and then a block.
        assert!(bytes <= 3 * (16 * 1024 + 2 * STORED_CHUNK_BYTES), "{bytes} bytes to pass over {expected} items");
    }
}

/// Rows and markers that a range selects, at most `limit`.
fn selected(reader: &SSTableReader, range: &ReadRange, limit: usize) -> Vec<Place> {
    Directed::enter(reader, range).places(limit, DeletionTime::LIVE)
}

#[test]
fn reads_that_start_at_waypoints_find_the_same_rows() {
    for (with_holes, index_bytes) in [(false, 16 << 10), (true, 16 << 10), (true, 64 << 10), (false, 3 << 10)] {
        let large = Large::write_indexed(with_holes, index_bytes);
        let cache = BlockCache::new(1 << 26);
        let open =
            |cache: &BlockCache| SSTableReader::open(&*large.disk, &large.descriptor, &large.table, cache).unwrap();
        let warm = open(&cache);
        let mut random = Random(index_bytes);
        let mut row = || random.below(ROWS as usize + 10) as i64;
        let bound = |row: i64| if row % 2 == 0 { before(row / 2 * 2) } else { after(row) };
        for _ in 0..1500 {
            // Close together, so that they share few blocks.
            let near = |row: i64| row % 1200;
            let (a, b, c) = (near(row()), near(row()), near(row()));
            let slices = vec![
                Slice { start: bound(a.min(b)), end: bound(a.max(b)) },
                Slice { start: bound(c), end: bound(c + 5) },
            ];
            let slices = Slices::new(slices, large.table.comparator());
            let keys = KeyRange::Single(large.key.clone());
            let range = ReadRange { slices, reversed: row() % 2 == 0, ..ReadRange::all_rows(keys) };
            let limit = 1 + row() as usize % 40;
            // A separate cache has no waypoints.
            let expected = selected(&open(&BlockCache::new(1 << 20)), &range, limit);
            assert!(selected(&warm, &range, limit) == expected, "{with_holes} {index_bytes} {a} {b} {c}");
        }
    }
}

#[test]
fn the_notes_of_reads_about_a_block_are_small() {
    let large = Large::write_indexed(false, 16 << 10);
    let cache = BlockCache::new(1 << 26);
    let reader = SSTableReader::open(&*large.disk, &large.descriptor, &large.table, &cache).unwrap();
    let read = |from: i64| {
        let slices = Slices::new(vec![Slice { start: before(from), end: after(from) }], large.table.comparator());
        let range = ReadRange { slices, ..ReadRange::all_rows(KeyRange::Single(large.key.clone())) };
        assert_eq!(selected(&reader, &range, 9).len(), 1);
    };
    let whole = ReadRange::all_rows(KeyRange::Single(large.key.clone()));
    assert_eq!(selected(&reader, &whole, usize::MAX).len(), ROWS as usize);
    (0..ROWS).step_by(140).take(2).for_each(read);
    let before = cache.used_bytes();
    (0..ROWS).for_each(read);
    let noted = cache.used_bytes() - before;
    // About fourteen a block, each with its clustering and head.
    assert!(noted > ROWS as u64, "{noted} bytes noted");
    assert!(noted < reader.data_length_bytes() / 20, "{noted} bytes noted of {}", reader.data_length_bytes());
}
