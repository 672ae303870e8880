//! Writes and reads of Data.db that bypass the page cache: the same bytes as through it, and atomic whatever fails on
//! the way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, Fault, File, OpenOptions, SimulatedDisk, SystemDisk};
use model::{
    Cell, ClusteringBound, DeletionTime, KeyRange, Liveness, NO_DELETION_TIME, PartitionHead, PartitionKey, ReadRange,
    Row, RowBuilder, RowRef, Side, Slice, Slices, TTL_NONE, Unfiltered, UnfilteredCursor,
};
use sstable::{
    Component, CompressionParams, Compressor, Descriptor, ReadMode, SSTableCursor, SSTableError, SSTableId,
    SSTableReader, SSTableWriter, WriterOptions, list_tables, remove_leftovers, verify,
};
use testkit::{Random, TemporaryDirectory};

use crate::bytes_read::{clustering, table};
use crate::fixture::cache;

/// The values of a table of several pieces. One row is larger than a piece, so that pending data has to be moved.
const LARGE: [usize; 9] = [100, 5_000, 400_000, 300_000, 1, 900_000, 90_000, 4_096, 17];

fn lz4(chunk_length: u32) -> CompressionParams {
    let (compressor, options) = (Compressor::Lz4, BTreeMap::new());
    CompressionParams { compressor, options, chunk_length, max_compressed_length: i32::MAX as u32 }
}

/// Incompressible bytes.
fn value(length: usize) -> Vec<u8> {
    let mut random = Random(length as u64);
    (0..length).map(|_| random.number() as u8).collect()
}

/// Writes a partition with a row for each value.
fn write(
    disk: &Arc<dyn Disk>,
    descriptor: &Descriptor,
    values: &[usize],
    options: WriterOptions,
) -> Result<(), SSTableError> {
    let table = table();
    let mut writer = SSTableWriter::create(disk, descriptor, &table, options)?;
    let key = PartitionKey::new(&1_i32.to_be_bytes());
    writer.begin_partition(&PartitionHead { key: &key, deletion: DeletionTime::LIVE, static_row: None })?;
    let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
    for (row, length) in (0..).zip(values) {
        builder.start(table.columns(false), false);
        builder.liveness(Liveness { timestamp: 7, ttl: TTL_NONE, expiration: NO_DELETION_TIME });
        builder.cell(0, &Cell::live(7, &value(*length)));
        blob.clear();
        builder.finish(&mut blob);
        writer.add(&Unfiltered::Row(RowRef { clustering: &clustering(row), row: Row::new(&blob) }))?;
    }
    writer.end_partition()?;
    writer.finish().map(|_| ())
}

fn options(past_page_cache: bool, compression: Option<CompressionParams>) -> WriterOptions {
    WriterOptions { past_page_cache, compression, ..WriterOptions::for_table(&table()).unwrap() }
}

fn bytes(disk: &dyn Disk, descriptor: &Descriptor, component: Component) -> Vec<u8> {
    let file = disk.open(&descriptor.path(component), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Lengths of tables that end within a block, at its end, in the first block and behind several pieces.
fn contents() -> Vec<Vec<usize>> {
    let small = (3_900..4_100).step_by(7).map(|length| vec![length]);
    small.chain([LARGE.to_vec(), vec![1_000; 700], vec![1_300_000], vec![255_000, 20_000, 600_000]]).collect()
}

#[test]
fn all_but_the_last_block_goes_past_the_page_cache_and_the_bytes_are_the_same() {
    for compression in [None, Some(lz4(16_384)), Some(lz4(4_096)), Some(lz4(1 << 20))] {
        for values in contents() {
            let written = |past_page_cache, refused| {
                let simulated = SimulatedDisk::new();
                let disk: Arc<dyn Disk> = Arc::new(simulated.clone());
                disk.create_dir_all(Path::new("/t")).unwrap();
                if refused {
                    simulated.refuse_direct();
                }
                let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
                write(&disk, &descriptor, &values, options(past_page_cache, compression.clone())).unwrap();
                assert_eq!(verify(&*disk, &descriptor, &table(), true).unwrap().rows, values.len() as u64);
                let of = |component| bytes(&*disk, &descriptor, component);
                (of(Component::Data), of(Component::Digest), simulated.direct_bytes())
            };
            let (data, digest, direct_bytes) = written(true, false);
            assert_eq!(direct_bytes, data.len() as u64 / 4096 * 4096);
            assert!(written(false, false) == (data.clone(), digest.clone(), 0));
            assert!(written(true, true) == (data, digest, 0));
        }
    }
}

#[test]
fn a_disk_of_this_machine_has_the_same_bytes() {
    let scratch = TemporaryDirectory::create();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    for compression in [None, Some(lz4(16_384))] {
        let written = |number, past_page_cache| {
            let descriptor = Descriptor::new(&scratch.0, SSTableId::from_sequence(number));
            write(&disk, &descriptor, &LARGE, options(past_page_cache, compression.clone())).unwrap();
            assert_eq!(verify(&*disk, &descriptor, &table(), true).unwrap().rows, LARGE.len() as u64);
            bytes(&*disk, &descriptor, Component::Data)
        };
        assert!(written(1, true) == written(2, false));
    }
}

#[test]
fn a_table_of_several_pieces_is_complete_or_absent_after_a_crash() {
    let faults = [Fault::PowerCut, Fault::Fail, Fault::ShortWrite, Fault::Full, Fault::FailSync];
    for compression in [None, Some(lz4(16_384))] {
        for fault in faults {
            for step in 0.. {
                let simulated = SimulatedDisk::new();
                let disk: Arc<dyn Disk> = Arc::new(simulated.clone());
                disk.create_dir_all(Path::new("/t")).unwrap();
                let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
                simulated.inject(fault, step);
                let done = write(&disk, &descriptor, &LARGE, options(true, compression.clone())).is_ok();
                let image = simulated.crash_image(step);
                remove_leftovers(&image, Path::new("/t")).unwrap();
                let tables = list_tables(&image, Path::new("/t")).unwrap();
                let is_whole = || verify(&image, &descriptor, &table(), true).is_ok_and(|found| found.rows == 9);
                assert!(tables.is_empty() || is_whole(), "{fault:?} {step}");
                assert!(!done || !tables.is_empty(), "{fault:?} {step}");
                if done {
                    assert!(step > 8, "{fault:?} hits several pieces and components: {step}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_disk_without_room_for_a_table_of_several_pieces_keeps_nothing_of_it() {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(Path::new("/t")).unwrap();
    disk.set_capacity(900_000);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
    let error = write(&shared, &descriptor, &LARGE, options(true, None)).unwrap_err();
    assert!(matches!(&error, SSTableError::Disk(error) if error.kind() == blockio::DiskErrorKind::Full), "{error}");
    assert!(disk.direct_bytes() > 0, "it filled up on the way");
    assert!(disk.list(Path::new("/t")).unwrap().is_empty());
    disk.set_capacity(3_000_000);
    write(&shared, &descriptor, &LARGE, options(true, None)).unwrap();
}

/// Clusterings and rows, and the error behind them.
type Outcome = (Vec<(Vec<u8>, Vec<u8>)>, Option<String>);

fn all_rows(mut cursor: SSTableCursor) -> Outcome {
    let mut rows = Vec::new();
    let mut go_through = || -> Result<(), model::ReadError> {
        while cursor.advance_partition()? {
            while cursor.advance()? {
                if let Unfiltered::Row(row) = cursor.unfiltered() {
                    rows.push((row.clustering.to_vec(), row.row.as_bytes().to_vec()));
                }
            }
        }
        Ok(())
    };
    let failure = go_through().err().map(|error| error.to_string());
    (rows, failure)
}

/// The rows that a merge and a scan read of a table, with a reader that was opened before `change` changed the table,
/// and with a new one.
fn merged_and_scanned(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    (values, compression): (&[usize], Option<CompressionParams>),
    change: impl Fn(&dyn File),
) -> [Outcome; 2] {
    let descriptor = Descriptor::new(dir, SSTableId::from_sequence(1));
    write(disk, &descriptor, values, options(true, compression)).unwrap();
    let reader = SSTableReader::open(&**disk, &descriptor, &table(), &cache()).unwrap();
    change(&*disk.open(&descriptor.path(Component::Data), OpenOptions::write()).unwrap());
    let read = [all_rows(reader.scan_for_merge(&**disk).unwrap()), all_rows(reader.scan().unwrap())];
    for component in disk.list(dir).unwrap() {
        disk.remove_file(&dir.join(component.name)).unwrap();
    }
    read
}

fn disks() -> [(Arc<dyn Disk>, TemporaryDirectory); 3] {
    let simulated = SimulatedDisk::new();
    let scratches = [TemporaryDirectory::create(), TemporaryDirectory::create(), TemporaryDirectory::create()];
    simulated.create_dir_all(&scratches[0].0).unwrap();
    let disks: [Arc<dyn Disk>; 3] =
        [Arc::new(simulated), Arc::new(SystemDisk::new()), Arc::new(SystemDisk::without_ring())];
    let mut scratches = scratches.into_iter();
    disks.map(|disk| (disk, scratches.next().unwrap()))
}

/// Tables of several pieces that are prefetched; rows of many pieces, and rows and chunks that span two.
fn large_contents() -> Vec<Vec<usize>> {
    vec![LARGE.to_vec(), vec![3_000; 700], vec![10, 3_000_000, 10, 700_000, 5]]
}

#[test]
fn a_merge_bypasses_the_page_cache_and_reads_the_same_rows_as_a_scan() {
    for (disk, scratch) in disks() {
        for values in large_contents() {
            for compression in [None, Some(lz4(65_536))] {
                let [merged, scanned] = merged_and_scanned(&disk, &scratch.0, (&values, compression), |_| {});
                assert_eq!(merged.1, None, "{disk:?}");
                assert!(merged == scanned && merged.0.len() == values.len(), "{disk:?}, {} rows", values.len());
            }
        }
    }
}

#[test]
fn damage_and_truncation_stop_a_merge_after_the_rows_before_it() {
    let flip = |at: u64| {
        move |file: &dyn File| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 4], at).unwrap();
        }
    };
    for (disk, scratch) in disks().into_iter().take(2) {
        for compression in [None, Some(lz4(4_096))] {
            let content = (&[3_000; 700][..], compression);
            for at in [262_143, 786_432, 1_100_000] {
                let [merged, scanned] = merged_and_scanned(&disk, &scratch.0, content.clone(), flip(at));
                let (merged_error, scanned_error) = (merged.1.unwrap(), scanned.1.unwrap());
                assert!(merged_error.contains("corrupt") && merged_error == scanned_error, "{merged_error}");
                assert!(merged.0 == scanned.0 && merged.0.len() < 700, "{disk:?}, at {at}");
            }
            for length in [1_000_000, 1_310_720] {
                let cut = |file: &dyn File| file.set_len(length).unwrap();
                let [merged, scanned] = merged_and_scanned(&disk, &scratch.0, content.clone(), cut);
                assert!(merged.1.is_some() && scanned.1.is_some(), "{disk:?}, cut at {length}");
                assert!(merged.0.len() < 700, "{disk:?}, cut at {length}");
            }
        }
    }
}

#[test]
fn a_reader_ahead_begins_anywhere_and_goes_back() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    disk.create_dir_all(Path::new("/t")).unwrap();
    for (id, compression) in [None, Some(lz4(4_096))].into_iter().enumerate() {
        let descriptor = Descriptor::new("/t", SSTableId::from_sequence(id as u32 + 1));
        write(&disk, &descriptor, &[700; 1_500], options(true, compression)).unwrap();
        let reader = SSTableReader::open(&*disk, &descriptor, &table(), &cache()).unwrap();
        for (start, reversed) in [0, 7, 650, 1_301, 1_499].into_iter().flat_map(|row| [(row, false), (row, true)]) {
            let slice =
                Slice { start: ClusteringBound::new(clustering(start), Side::Before), end: ClusteringBound::top() };
            let slices = Slices::new(vec![slice], table().comparator());
            let range = ReadRange { slices, reversed, ..ReadRange::all_rows(KeyRange::all()) };
            let read = |mode| all_rows(reader.cursor_with(&range, mode).unwrap());
            let (rows, failure) = read(ReadMode::Sequential);
            assert_eq!((rows.len(), failure), (1_500 - start as usize, None), "{start} {reversed}");
            assert!(rows == read(ReadMode::Cached { may_block: true }).0, "{start} {reversed}");
        }
    }
}
