//! A table whose Data.db is longer than 4 GiB: positions, offsets and sizes beyond 2^31 and 2^32 are written and found
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;

use blockio::Disk;
use model::{
    Cell, ClusteringBound, DeletionTime, KeyBound, KeyRange, Liveness, NO_DELETION_TIME, PartitionHead, PartitionKey,
    ReadRange, Row, RowBuilder, RowRef, Side, Slice, Slices, TTL_NONE, Table, Unfiltered, UnfilteredCursor,
};
use sstable::{
    BlockCache, Component, CompressionInfo, CompressionParams, Compressor, Descriptor, SSTableId, SSTableReader,
    SSTableWriter, WriterOptions,
};
use testkit::TemporaryDirectory;

use crate::bytes_read::{clustering, table};
use crate::sparse::SparseDisk;

/// The bytes of a value, all zero: they are holes on the disk, and fast for every compressor.
const VALUE_BYTES: usize = 1 << 20;
/// Rows of the large partition: 4.2 GiB.
const LARGE_ROWS: i64 = 4300;
/// The rows of the other partitions: one that fits in a block has no row index.
const SMALL_ROWS: [i64; 2] = [1, 40];
const PARTITIONS: usize = 12;
/// Which of them, in token order, is the large one.
const LARGE: usize = 2;
const SMALL_VALUE_BYTES: usize = 200;

fn row_of(clustering: &[u8]) -> i64 {
    i64::from_be_bytes(clustering[clustering.len() - 8..].try_into().unwrap())
}

/// Distinguishes the rows of one partition from those of another.
fn timestamp(partition: usize) -> i64 {
    1_000 + partition as i64
}

fn rows_of(partition: usize) -> i64 {
    if partition == LARGE { LARGE_ROWS } else { SMALL_ROWS[partition % 2] }
}

struct Large {
    _scratch: TemporaryDirectory,
    table: Arc<Table>,
    keys: Vec<PartitionKey>,
    disk: Arc<dyn Disk>,
    descriptor: Descriptor,
}

impl Large {
    fn write(compression: Option<CompressionParams>) -> Large {
        let (scratch, table) = (TemporaryDirectory::create(), table());
        let disk: Arc<dyn Disk> = Arc::new(SparseDisk::new());
        let descriptor = Descriptor::new(&scratch.0, SSTableId::from_sequence(1));
        let options = WriterOptions {
            column_index_size_bytes: 1024,
            compression,
            estimated_partitions: PARTITIONS as u64,
            ..WriterOptions::for_table(&table).unwrap()
        };
        let mut writer = SSTableWriter::create(&disk, &descriptor, &table, options).unwrap();
        let mut keys: Vec<PartitionKey> =
            (0..PARTITIONS as i32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        keys.sort();
        let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
        for (partition, key) in keys.iter().enumerate() {
            writer.begin_partition(&PartitionHead { key, deletion: DeletionTime::LIVE, static_row: None }).unwrap();
            let value = vec![0; if partition == LARGE { VALUE_BYTES } else { SMALL_VALUE_BYTES }];
            let timestamp = timestamp(partition);
            builder.start(table.columns(false), false);
            builder.liveness(Liveness { timestamp, ttl: TTL_NONE, expiration: NO_DELETION_TIME });
            builder.cell(0, &Cell::live(timestamp, &value));
            blob.clear();
            builder.finish(&mut blob);
            for row in 0..rows_of(partition) {
                writer.add(&Unfiltered::Row(RowRef { clustering: &clustering(row), row: Row::new(&blob) })).unwrap();
            }
            writer.end_partition().unwrap();
        }
        let descriptor = writer.finish().unwrap().expect("partitions were written");
        Large { _scratch: scratch, table, keys, disk, descriptor }
    }

    fn open(&self) -> SSTableReader {
        SSTableReader::open(&*self.disk, &self.descriptor, &self.table, &BlockCache::new(16 << 20)).unwrap()
    }

    /// The first rows of a slice, at most `limit`, each compared with the one that was written.
    fn rows(&self, reader: &SSTableReader, partition: usize, slices: Slices, reversed: bool, limit: usize) -> Vec<i64> {
        let range = ReadRange { keys: KeyRange::Single(self.keys[partition].clone()), slices, reversed };
        let mut cursor = reader.cursor(&range).unwrap();
        assert!(cursor.advance_partition().unwrap(), "partition {partition}");
        let mut rows = Vec::new();
        while rows.len() < limit && cursor.advance().unwrap() {
            let Unfiltered::Row(found) = cursor.unfiltered() else { panic!("a marker") };
            assert_eq!(found.row.liveness().timestamp, timestamp(partition));
            rows.push(row_of(found.clustering));
        }
        rows
    }

    fn slice(&self, first: i64, last: i64) -> Slices {
        let start = ClusteringBound::new(clustering(first), Side::Before);
        let end = ClusteringBound::new(clustering(last), Side::After);
        Slices::new(vec![Slice { start, end }], self.table.comparator())
    }

    /// Checks reads by key, in both directions, at both ends and where positions need another bit.
    fn check(&self) {
        let reader = self.open();
        assert!(reader.data_length_bytes() > 1 << 32);
        assert!(reader.size_on_disk_bytes() > 1 << 32);
        assert_eq!(reader.partition_count(), PARTITIONS as u64);
        let size = &reader.statistics().stats.estimated_partition_size;
        assert!(size.percentile(1.0) > 1 << 32, "the largest partition by Statistics.db");
        let at = |position: u64| position as i64 / VALUE_BYTES as i64;
        for row in [0, at(1 << 31) - 1, at(1 << 31), at(1 << 32) - 1, at(1 << 32), at(1 << 32) + 1, LARGE_ROWS - 1] {
            assert_eq!(self.rows(&reader, LARGE, self.slice(row, row), false, 9), [row]);
        }
        for middle in [at(1 << 31), at(1 << 32)] {
            let slice = self.slice(middle - 2, middle + 1);
            let rows: Vec<i64> = (middle - 2..=middle + 1).collect();
            assert_eq!(self.rows(&reader, LARGE, slice.clone(), false, 9), rows);
            assert_eq!(self.rows(&reader, LARGE, slice, true, 9), rows.into_iter().rev().collect::<Vec<_>>());
        }
        assert_eq!(self.rows(&reader, LARGE, Slices::all(), true, 2), [LARGE_ROWS - 1, LARGE_ROWS - 2]);
        for partition in (0..PARTITIONS).filter(|partition| *partition != LARGE) {
            let rows: Vec<i64> = (0..rows_of(partition)).collect();
            assert_eq!(self.rows(&reader, partition, Slices::all(), false, 99), rows);
            let last = rows_of(partition) - 1;
            assert_eq!(self.rows(&reader, partition, self.slice(last, last), true, 9), [last]);
        }
        self.check_partitions_behind(&reader);
    }

    /// A range that begins behind the large partition is found by its bound, without a scan.
    fn check_partitions_behind(&self, reader: &SSTableReader) {
        let start = KeyBound::Key { key: self.keys[LARGE].clone(), inclusive: false };
        let keys = KeyRange::Range { start, end: KeyBound::Unbounded };
        let mut cursor = reader.cursor(&ReadRange::all_rows(keys)).unwrap();
        for key in &self.keys[LARGE + 1..] {
            assert!(cursor.advance_partition().unwrap());
            assert_eq!(cursor.partition().key, key);
        }
        assert!(!cursor.advance_partition().unwrap());
    }
}

#[test]
fn data_beyond_four_gigabytes_is_found() {
    Large::write(None).check();
}

#[test]
fn chunks_beyond_four_gigabytes_are_found() {
    // Chunks are stored uncompressed, so that file offsets grow with positions.
    let params = CompressionParams {
        compressor: Compressor::Noop,
        options: BTreeMap::new(),
        chunk_length: 1 << 20,
        max_compressed_length: i32::MAX as u32,
    };
    let large = Large::write(Some(params));
    large.check();
    let bytes = std::fs::read(large.descriptor.path(Component::CompressionInfo)).unwrap();
    let info = CompressionInfo::decode("CompressionInfo.db", &bytes).unwrap();
    assert!(info.data_length > 1 << 32);
    assert!(*info.offsets.last().unwrap() > 1 << 32);
}
