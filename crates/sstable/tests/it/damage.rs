//! Flipped bits and truncated files: an error or no harm, never a panic, and never a wrong row where there are
//! checksums.

use std::path::Path;

use model::{KeyRange, ReadRange, Slices, Unfiltered, UnfilteredCursor};
use sstable::{Component, CompressionInfo, Descriptor, SSTableError, SSTableReader, verify};
use testkit::{Random, TemporaryDirectory};

use crate::fixture::{Fixture, NAMES, cache, disk};

fn copy(fixture: &Fixture, to: &Path) -> Descriptor {
    for entry in std::fs::read_dir(&fixture.dir).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    Descriptor::new(to, fixture.descriptor.id.clone())
}

/// Everything in a table, as text.
fn content(reader: &SSTableReader, range: &ReadRange) -> Result<Vec<String>, SSTableError> {
    let mut cursor = reader.cursor(range)?;
    let mut lines = Vec::new();
    while cursor.advance_partition()? {
        lines.push(format!("{:?}", cursor.partition()));
        while cursor.advance()? {
            let line = match cursor.unfiltered() {
                Unfiltered::Row(row) => format!("{:02x?} {:02x?}", row.clustering, row.row.as_bytes()),
                marker => format!("{marker:?}"),
            };
            lines.push(line);
        }
    }
    Ok(lines)
}

fn open_and_read(fixture: &Fixture, descriptor: &Descriptor) -> Result<Vec<String>, SSTableError> {
    let reader = SSTableReader::open(&*disk(), descriptor, &fixture.table, &cache())?;
    content(&reader, &ReadRange::all_rows(KeyRange::all()))
}

/// Reads through the indexes, to check that this does not panic.
fn poke(fixture: &Fixture, descriptor: &Descriptor) {
    let Ok(reader) = SSTableReader::open(&*disk(), descriptor, &fixture.table, &cache()) else { return };
    for key in [reader.first_key(), reader.last_key()] {
        for reversed in [false, true] {
            let range = ReadRange { keys: KeyRange::Single(key.clone()), slices: Slices::all(), reversed };
            let _ = content(&reader, &range);
        }
    }
    let _ = verify(&*disk(), descriptor, &fixture.table, true);
}

#[test]
fn sound_tables_verify() {
    for name in NAMES {
        let fixture = Fixture::load(name);
        let verified =
            verify(&*disk(), &fixture.descriptor, &fixture.table, true).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(verified.partitions, fixture.open().partition_count());
    }
}

#[test]
fn every_reader_finds_a_flipped_bit_under_a_checksum() {
    let mut random = Random(1);
    for name in ["colls", "tombs", "crc_compacted", "comp_none", "comp_zstd", "comp_snappy", "comp_deflate", "statics"]
    {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let descriptor = copy(&fixture, &scratch.0);
        let sound = open_and_read(&fixture, &descriptor).unwrap();
        for component in [Component::Data, Component::Statistics] {
            let path = descriptor.path(component);
            let bytes = std::fs::read(&path).unwrap();
            for _ in 0..60 {
                let at = random.below(bytes.len());
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << random.below(8);
                std::fs::write(&path, &damaged).unwrap();
                match open_and_read(&fixture, &descriptor) {
                    Ok(read) => assert_eq!(read, sound, "{name} {component:?} bit flipped at {at}"),
                    Err(error) => assert!(error.to_string().contains(component.name()), "{error}"),
                }
                assert!(verify(&*disk(), &descriptor, &fixture.table, false).is_err(), "{name} {component:?} at {at}");
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn a_flipped_bit_in_a_larger_index_never_panics() {
    // `every_bit.rs` tries every bit of small tables.
    let mut random = Random(2);
    for name in ["wide_blocks", "wide_rt", "wide", "comp_lz4"] {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let descriptor = copy(&fixture, &scratch.0);
        for component in [Component::Partitions, Component::Rows, Component::Filter, Component::CompressionInfo] {
            let path = descriptor.path(component);
            let bytes = std::fs::read(&path).unwrap();
            for _ in 0..if bytes.is_empty() { 0 } else { 4 } {
                let at = random.below(bytes.len());
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << random.below(8);
                std::fs::write(&path, &damaged).unwrap();
                poke(&fixture, &descriptor);
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn cut_and_missing_files_are_errors() {
    let mut random = Random(3);
    for name in ["wide_rt", "comp_none", "colls"] {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let descriptor = copy(&fixture, &scratch.0);
        for component in Component::ALL {
            let path = descriptor.path(component);
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let cuts = (0..12).map(|_| random.below(bytes.len().max(1)));
            for length in cuts.filter(|_| !bytes.is_empty()) {
                std::fs::write(&path, &bytes[..length]).unwrap();
                poke(&fixture, &descriptor);
                if !matches!(component, Component::Toc | Component::Filter | Component::Crc) {
                    let result = verify(&*disk(), &descriptor, &fixture.table, true);
                    assert!(result.is_err(), "{name} {component:?} cut to {length} of {}", bytes.len());
                }
            }
            std::fs::remove_file(&path).unwrap();
            let result = verify(&*disk(), &descriptor, &fixture.table, true);
            assert!(result.is_err() || component == Component::Toc, "{name} without {component:?}");
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn as_many_checksums_are_verified_as_the_table_wants() {
    for (chance, refused_of_16) in [(1.0, 16), (0.5, 8), (0.25, 4), (0.0, 0)] {
        for name in ["comp_none", "comp_zstd"] {
            let mut fixture = Fixture::load(name);
            let options = model::TableOptions { crc_check_chance: chance, ..fixture.table.options.clone() };
            fixture.table = std::sync::Arc::new(fixture.table.to_builder().options(options).build());
            let scratch = TemporaryDirectory::create();
            let descriptor = copy(&fixture, &scratch.0);
            let path = descriptor.path(Component::Data);
            let mut bytes = std::fs::read(&path).unwrap();
            // For a compressed chunk the checksum itself; for data with its checksum elsewhere, a byte of the first
            // block.
            let at = match CompressionInfo::decode(
                "",
                &std::fs::read(descriptor.path(Component::CompressionInfo)).unwrap_or_default(),
            ) {
                Ok(info) => info.offsets.get(1).map_or(bytes.len(), |next| *next as usize) - 1,
                Err(_) => 5,
            };
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let reader = SSTableReader::open(&*disk(), &descriptor, &fixture.table, &cache()).unwrap();
            let refused = (0..16).filter(|_| {
                // The first partition's rows, bypassing the cache: the one damaged block each time.
                let mut cursor = reader.scan().unwrap();
                cursor.advance_partition().is_err_and(|error| error.to_string().contains("checksum"))
            });
            assert_eq!(refused.count(), refused_of_16, "{name} with a chance of {chance}");
        }
    }
}

#[test]
fn data_garbage_without_checksums_never_panics() {
    // Random bytes in uncompressed data, with checksums disabled by the table's crc_check_chance.
    let mut random = Random(5);
    for name in ["comp_none", "crc_compacted"] {
        let mut fixture = Fixture::load(name);
        let options = model::TableOptions { crc_check_chance: 0.0, ..fixture.table.options.clone() };
        fixture.table = std::sync::Arc::new(fixture.table.to_builder().options(options).build());
        let scratch = TemporaryDirectory::create();
        let descriptor = copy(&fixture, &scratch.0);
        let path = descriptor.path(Component::Data);
        let bytes = std::fs::read(&path).unwrap();
        let mut harmful = 0;
        for _ in 0..60 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random.below(40) {
                let at = random.below(bytes.len());
                damaged[at] = random.number() as u8;
            }
            std::fs::write(&path, &damaged).unwrap();
            harmful += usize::from(open_and_read(&fixture, &descriptor).is_err());
            poke(&fixture, &descriptor);
        }
        assert!(harmful > 5, "{name}: some noise breaks the structure");
    }
}
