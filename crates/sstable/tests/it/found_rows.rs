//! Rows that are looked up without a cursor equal those of a cursor, in files that Cassandra wrote, and in some of ours
//! with what those lack.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use model::{
    Cell, ClusteringBound, Clusterings, DeletionTime, KeyRange, Liveness, Marker, PartitionHead, PartitionKey,
    ReadRange, Row, RowBuilder, RowRef, Side, Slice, Slices, Table, TableBuilder, TableId, Unfiltered,
    UnfilteredCursor, push_component,
};
use sstable::{
    CompressionParams, Compressor, Descriptor, Edge, PartitionSlice, SSTableId, SSTableReader, SSTableWriter,
    WriterOptions, find_rows,
};
use testkit::{Random, seeds};
use types::CqlType;
use uuid::Uuid;

use crate::bytes_read::clustering;
use crate::fixture::{Fixture, NAMES, cache};

const PARTITIONS_MAX: usize = 60;
const SLICES: usize = 25;

/// A clustering and a row.
type Found = (Vec<u8>, Vec<u8>);

/// The rows of a cursor up to the first one with a deletion, whether there is one, and how many borders of deleted
/// ranges.
fn read(sstable: &SSTableReader, range: &ReadRange) -> (Vec<Found>, bool, usize) {
    let (mut rows, mut is_deleted, mut markers) = (Vec::new(), false, 0);
    let mut cursor = sstable.cursor(range).unwrap();
    while cursor.advance_partition().unwrap() {
        is_deleted |= !cursor.partition().deletion.is_live();
        let mut open = DeletionTime::LIVE;
        while cursor.advance().unwrap() {
            match cursor.unfiltered() {
                Unfiltered::Row(row) if !is_deleted && !row.row.has_deletion() && open.is_live() => {
                    rows.push((row.clustering.to_vec(), row.row.as_bytes().to_vec()));
                }
                Unfiltered::Row(_) => is_deleted = true,
                Unfiltered::Marker(marker) => {
                    open = if range.reversed { marker.before } else { marker.after };
                    markers += 1;
                }
            }
        }
    }
    (rows, is_deleted, markers)
}

fn keys(sstable: &SSTableReader) -> Vec<PartitionKey> {
    let mut keys = Vec::new();
    let mut cursor = sstable.scan().unwrap();
    while keys.len() < PARTITIONS_MAX && cursor.advance_partition().unwrap() {
        keys.push(cursor.partition().key.clone());
    }
    keys
}

/// A bound at a row, before or behind it, or at all rows that begin like it.
fn bound(random: &mut Random, rows: &[Found]) -> ClusteringBound {
    let side = if random.one_in(2) { Side::Before } else { Side::After };
    let Some((clustering, _)) = rows.get(random.below(rows.len() + 1)) else {
        return ClusteringBound::new(vec![], side);
    };
    let mut prefix = Vec::new();
    let count = random.below(Clusterings(clustering).count() + 1);
    Clusterings(clustering).take(count).for_each(|component| push_component(component, &mut prefix));
    ClusteringBound::new(if random.one_in(3) { prefix } else { clustering.clone() }, side)
}

/// The outcomes of slices.
#[derive(Default, Debug)]
struct Seen {
    found: usize,
    rows: usize,
    /// How many found rows have a border of a deleted range.
    deleted: usize,
    /// How many look-ups were left to a cursor.
    left: usize,
}

fn compare(name: &str, sstable: SSTableReader, seed: u64) -> Seen {
    let sstable = Arc::new(sstable);
    let table = sstable.table().clone();
    let mut random = Random(seed);
    let mut seen = Seen::default();
    for key in keys(&sstable) {
        let all = ReadRange::all_rows(KeyRange::Single(key.clone()));
        let (known, ..) = read(&sstable, &all);
        for _ in 0..SLICES {
            let slice = Slice { start: bound(&mut random, &known), end: bound(&mut random, &known) };
            if slice.is_empty(table.comparator()) {
                continue;
            }
            let (reversed, limit) = (random.one_in(2), random.below(30));
            let edge = |bound: &ClusteringBound| (bound.prefix.clone(), bound.side.weight());
            let (start, end) = (edge(&slice.start), edge(&slice.end));
            let slices = Slices::new(vec![slice], table.comparator());
            let (expected, is_deleted, markers) = read(&sstable, &ReadRange { slices, reversed, ..all.clone() });
            let place = PartitionSlice {
                token: key.token(),
                key: key.bytes(),
                start: Edge { prefix: &start.0, weight: start.1 },
                end: Edge { prefix: &end.0, weight: end.1 },
                reversed,
                borders_max: 10,
            };
            let mut found: Vec<Found> = Vec::new();
            let is_found = find_rows(std::slice::from_ref(&sstable), &table, &place, &mut |row| {
                found.push((row.clustering.to_vec(), row.row.as_bytes().to_vec()));
                found.len() <= limit
            });
            if is_found {
                let count = expected.len().min(limit + 1);
                assert_eq!(found, expected[..count], "{name}, {place:?}, {limit}");
                assert!(!is_deleted || expected.len() > limit, "{name}, {place:?}, {limit}");
                seen.found += 1;
                seen.rows += count;
                seen.deleted += usize::from(markers > 0);
            } else {
                seen.left += 1;
            }
        }
    }
    seen
}

#[test]
fn rows_of_cassandras_files_are_found_as_a_cursor_finds_them() {
    for name in NAMES {
        let seen = compare(name, Fixture::load(name).open(), name.len() as u64);
        println!("{name}: {seen:?}");
        let has_rows = match name {
            "wide" | "wide16k" | "wide_blocks" | "desc_ck" => seen.rows > 50,
            _ => true,
        };
        assert!(has_rows, "{name}: {seen:?}");
    }
}

#[test]
fn rows_outside_the_cache_are_left_to_a_cursor() {
    let sstable = Arc::new(Fixture::load("wide").open());
    let table = sstable.table().clone();
    let key = sstable.first_key().clone();
    let edge = |weight: i8| Edge { prefix: &[], weight };
    let slice = PartitionSlice {
        token: key.token(),
        key: key.bytes(),
        start: edge(-1),
        end: edge(1),
        reversed: false,
        borders_max: 0,
    };
    let find = || find_rows(std::slice::from_ref(&sstable), &table, &slice, &mut |_| true);
    let before = sstable.data_bytes_read();
    assert!(!find(), "nothing was read yet");
    assert_eq!(sstable.data_bytes_read(), before, "nor by looking");
    let slices =
        Slices::new(vec![Slice { start: ClusteringBound::bottom(), end: ClusteringBound::top() }], table.comparator());
    read(&sstable, &ReadRange { slices, ..ReadRange::all_rows(KeyRange::Single(key.clone())) });
    assert!(find(), "a cursor read it");
}

/// Writes partitions of rows with deleted ranges among them. Some span blocks of the index and of the data, and some
/// contain rows.
struct Ranges<'r> {
    table: Arc<Table>,
    random: &'r mut Random,
    writer: SSTableWriter,
    /// The deletion in force.
    open: DeletionTime,
}

impl Ranges<'_> {
    fn open(random: &mut Random, has_static: bool) -> SSTableReader {
        let builder = TableBuilder::new("ks", "ranges", TableId(Uuid::from_u128(9)));
        let builder = builder.partition_key("key", CqlType::Int).clustering("row", CqlType::Bigint, random.one_in(2));
        let builder = builder.regular("value", CqlType::Blob);
        let builder = if has_static { builder.static_column("fixed", CqlType::Int) } else { builder };
        let table = Arc::new(builder.build());
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        disk.create_dir_all(Path::new("/t")).unwrap();
        let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
        let chunks = CompressionParams {
            compressor: Compressor::Lz4,
            options: BTreeMap::new(),
            chunk_length: 4096,
            max_compressed_length: i32::MAX as u32,
        };
        let options = WriterOptions {
            column_index_size_bytes: [0, 200, 1_000, 16_384][random.below(4)],
            compression: random.one_in(2).then_some(chunks),
            ..WriterOptions::for_table(&table).unwrap()
        };
        let writer = SSTableWriter::create(&disk, &descriptor, &table, options).unwrap();
        let mut ranges = Ranges { table: table.clone(), random, writer, open: DeletionTime::LIVE };
        let mut keys: Vec<PartitionKey> = (0..8_i32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        keys.sort();
        keys.iter().for_each(|key| ranges.partition(key));
        let descriptor = ranges.writer.finish().unwrap().unwrap();
        SSTableReader::open(&*disk, &descriptor, &table, &cache()).unwrap()
    }

    fn partition(&mut self, key: &PartitionKey) {
        self.writer.begin_partition(&PartitionHead { key, deletion: DeletionTime::LIVE, static_row: None }).unwrap();
        let rows = [1_i64, 5, 60, 300][self.random.below(4)];
        let is_reversed = self.table.clustering()[0].reversed;
        for place in 0..rows {
            let row = if is_reversed { rows - place } else { place };
            self.mark(row, Side::Before);
            // There are few rows in a deleted range, so that some ranges have none.
            if self.random.one_in(if self.open.is_live() { 1 } else { 10 }) {
                self.row(row);
            }
            self.mark(row, Side::After);
        }
        self.go_on(DeletionTime::LIVE, rows + 1 - i64::from(is_reversed) * (rows + 2), Side::After);
        self.writer.end_partition().unwrap();
    }

    /// A range may begin here, end, or change to another one.
    fn mark(&mut self, row: i64, side: Side) {
        let chance = if self.open.is_live() { 25 } else { 12 };
        if self.random.one_in(chance) {
            let ends = self.random.one_in(2);
            let next = DeletionTime::new(100 + self.random.below(50) as i64, 5);
            self.go_on(if ends { DeletionTime::LIVE } else { next }, row, side);
        }
    }

    fn go_on(&mut self, after: DeletionTime, row: i64, side: Side) {
        let before = std::mem::replace(&mut self.open, after);
        if before != after {
            let prefix = clustering(row);
            self.writer.add(&Unfiltered::Marker(Marker { prefix: &prefix, side, before, after })).unwrap();
        }
    }

    fn row(&mut self, row: i64) {
        let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
        builder.start(self.table.columns(false), false);
        builder.liveness(Liveness::at(1_000));
        builder.cell(0, &Cell::live(1_000, &vec![7; self.random.below(300)]));
        builder.finish(&mut blob);
        self.writer.add(&Unfiltered::Row(RowRef { clustering: &clustering(row), row: Row::new(&blob) })).unwrap();
    }
}

#[test]
fn rows_beside_and_under_deleted_ranges_are_found_as_a_cursor_finds_them() {
    let mut all = Seen::default();
    for seed in seeds(0..40) {
        let seen = compare(&format!("seed {seed}"), Ranges::open(&mut Random(seed), false), seed);
        all.found += seen.found;
        all.rows += seen.rows;
        all.deleted += seen.deleted;
        all.left += seen.left;
    }
    println!("{all:?}");
    assert!(all.rows > 5_000 && all.deleted > 300 && all.left > 100, "{all:?}");
}

#[test]
fn a_table_with_static_columns_is_left_to_a_cursor() {
    for seed in seeds(0..3) {
        let seen = compare(&format!("seed {seed}"), Ranges::open(&mut Random(seed), true), seed);
        assert!(seen.found == 0 && seen.left > 50, "{seen:?}");
    }
}
