//! Data.db past the page cache: the same bytes as through it, and all or nothing whatever fails on the way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk, SystemDisk};
use model::{
    Cell, DeletionTime, Liveness, NO_DELETION_TIME, PartitionHead, PartitionKey, Row, RowBuilder, RowRef, TTL_NONE,
    Unfiltered,
};
use sstable::{
    Component, CompressionParams, Compressor, Descriptor, SSTableError, SSTableId, SSTableWriter, WriterOptions,
    list_tables, remove_leftovers, verify,
};

use crate::bytes_read::{clustering, table};
use crate::fixture::Scratch;

/// Values of a table of several pieces; one row is larger than a piece, so that what is pending has to be moved.
const LARGE: [usize; 9] = [100, 5_000, 400_000, 300_000, 1, 900_000, 90_000, 4_096, 17];

fn lz4(chunk_length: u32) -> CompressionParams {
    let (compressor, options) = (Compressor::Lz4, BTreeMap::new());
    CompressionParams { compressor, options, chunk_length, max_compressed_length: i32::MAX as u32 }
}

/// Bytes that do not compress.
fn value(length: usize) -> Vec<u8> {
    let mut state = length as u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
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
    let scratch = Scratch::new();
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
fn a_table_of_several_pieces_is_there_whole_or_not_at_all() {
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
