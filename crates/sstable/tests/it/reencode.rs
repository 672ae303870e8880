//! Decoding a table of Cassandra's and writing it again gives the same bytes.

use model::UnfilteredCursor;
use sstable::{
    Component, CompressionInfo, Descriptor, SSTableId, SSTableReader, SSTableWriter, Statistics, WriterOptions, verify,
};
use testkit::TemporaryDirectory;

use crate::fixture::{Fixture, NAMES, cache, disk};

/// Uncompressed content of Data.db.
fn data(descriptor: &Descriptor) -> Vec<u8> {
    let stored = std::fs::read(descriptor.path(Component::Data)).unwrap();
    let Ok(info) = std::fs::read(descriptor.path(Component::CompressionInfo)) else { return stored };
    let info = CompressionInfo::decode("CompressionInfo.db", &info).unwrap();
    info.decompress_all("Data.db", &stored).unwrap()
}

fn column_index_size(name: &str) -> u64 {
    match name {
        "wide_blocks" | "ttl_2046" | "crc_compacted" => 1024,
        "wide16k" | "statics_only" | "oddnames" => 16 * 1024,
        _ => 4096,
    }
}

fn rewrite(fixture: &Fixture, name: &str, to: &TemporaryDirectory) -> Descriptor {
    rewrite_with(fixture, name, column_index_size(name), to)
}

fn rewrite_with(fixture: &Fixture, name: &str, column_index_size_bytes: u64, to: &TemporaryDirectory) -> Descriptor {
    let disk = disk();
    let reader = fixture.open();
    let descriptor = Descriptor::new(&to.0, SSTableId::from_sequence(7));
    let info = std::fs::read(fixture.descriptor.path(Component::CompressionInfo)).ok();
    let info = info.map(|bytes| CompressionInfo::decode("CompressionInfo.db", &bytes).unwrap());
    let options = WriterOptions {
        compression: info.map(|info| info.params),
        estimated_partitions: reader.partition_count(),
        base: fixture.statistics.header.base,
        column_index_size_bytes,
        ..WriterOptions::for_table(&fixture.table).unwrap()
    };
    let mut writer = SSTableWriter::create(&disk, &descriptor, &fixture.table, options).unwrap();
    let mut cursor = reader.scan().unwrap();
    writer.write_all(&mut cursor).unwrap_or_else(|error| panic!("{name}: {error}"));
    writer.finish().unwrap().unwrap()
}

fn same(name: &str, what: &str, ours: &[u8], theirs: &[u8]) {
    if ours != theirs {
        let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let around = |bytes: &[u8]| format!("{:02x?}", &bytes[at.saturating_sub(8)..(at + 24).min(bytes.len())]);
        panic!(
            "{name}: {what} differs at {at} ({} and {} bytes)\n ours {}\nthere {}",
            ours.len(),
            theirs.len(),
            around(ours),
            around(theirs)
        );
    }
}

#[test]
fn a_decoded_table_is_written_back_byte_for_byte() {
    for name in NAMES {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let written = rewrite(&fixture, name, &scratch);
        same(name, "Data.db", &data(&written), &data(&fixture.descriptor));
        for component in [Component::Partitions, Component::Rows] {
            let bytes = |descriptor: &Descriptor| std::fs::read(descriptor.path(component)).unwrap();
            same(name, component.name(), &bytes(&written), &bytes(&fixture.descriptor));
        }
        if !written.path(Component::CompressionInfo).exists() {
            same(name, "Digest", &digest(&written), &digest(&fixture.descriptor));
        }
        let toc = |descriptor: &Descriptor| std::fs::read_to_string(descriptor.path(Component::Toc)).unwrap();
        assert_eq!(toc(&written).replace("Checksums.db\n", ""), toc(&fixture.descriptor));
        filters_agree(name, &fixture, &written);
        statistics_agree(name, &fixture, &written);
    }
}

#[test]
fn row_indexes_of_every_granularity_lead_to_their_rows() {
    for name in NAMES {
        let fixture = Fixture::load(name);
        let sound = verify(&*disk(), &fixture.descriptor, &fixture.table, true).unwrap();
        // Every row a block, almost every row, and the coarsest that Cassandra's users set.
        let index_bytes = [0, 64, 64 * 1024].map(|granularity| {
            let scratch = TemporaryDirectory::create();
            let written = rewrite_with(&fixture, name, granularity, &scratch);
            assert_eq!(verify(&*disk(), &written, &fixture.table, true).unwrap(), sound, "{name} by {granularity}");
            std::fs::metadata(written.path(Component::Rows)).unwrap().len()
        });
        assert!(index_bytes.is_sorted_by(|finer, coarser| finer >= coarser), "{name}: {index_bytes:?}");
        let has_large_partitions = sound.rows + sound.markers > 2 * sound.partitions;
        assert!(index_bytes[0] > 0 || !has_large_partitions, "{name}");
    }
}

fn digest(descriptor: &Descriptor) -> Vec<u8> {
    std::fs::read(descriptor.path(Component::Digest)).unwrap()
}

fn filters_agree(name: &str, fixture: &Fixture, written: &Descriptor) {
    let ours = std::fs::read(written.path(Component::Filter)).unwrap();
    let theirs = std::fs::read(fixture.descriptor.path(Component::Filter)).unwrap();
    // Cassandra sizes the filter by an estimate, which differs from the number of partitions after a compaction.
    if ours.len() == theirs.len() {
        same(name, "Filter.db", &ours, &theirs);
    } else {
        assert!(name.starts_with("comp_") || name == "crc_compacted", "{name}: {} and {}", ours.len(), theirs.len());
    }
}

/// Everything is equal except what depends on the node that wrote the table.
fn statistics_agree(name: &str, fixture: &Fixture, written: &Descriptor) {
    let bytes = std::fs::read(written.path(Component::Statistics)).unwrap();
    let mut ours = Statistics::decode("Statistics.db", &bytes).unwrap();
    let theirs = &fixture.statistics;
    let stats = &mut ours.stats;
    stats.commit_log_intervals = theirs.stats.commit_log_intervals.clone();
    stats.originating_host_id = theirs.stats.originating_host_id;
    assert!((stats.token_space_coverage - theirs.stats.token_space_coverage).abs() < 1e-15, "{name}");
    assert!((stats.compression_ratio - theirs.stats.compression_ratio).abs() < 0.05, "{name}");
    stats.token_space_coverage = theirs.stats.token_space_coverage;
    stats.compression_ratio = theirs.stats.compression_ratio;
    assert_eq!(ours.stats.estimated_tombstone_drop_time, theirs.stats.estimated_tombstone_drop_time, "{name}");
    assert_eq!(ours.cardinality.encode(), theirs.cardinality.encode(), "{name}");
    assert_eq!(ours.header, theirs.header, "{name}");
    assert_eq!(ours.stats, theirs.stats, "{name}");
}

#[test]
fn a_written_table_reads_as_the_one_it_was_written_from() {
    for name in ["colls", "wide", "tombs", "ttl", "counters"] {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let written = rewrite(&fixture, name, &scratch);
        let reader = SSTableReader::open(&*disk(), &written, &fixture.table, &cache()).unwrap();
        let (mut ours, mut theirs) = (reader.scan().unwrap(), fixture.open().scan().unwrap());
        while theirs.advance_partition().unwrap() {
            assert!(ours.advance_partition().unwrap());
            assert_eq!(ours.partition().key, theirs.partition().key);
            while theirs.advance().unwrap() {
                assert!(ours.advance().unwrap());
                assert_eq!(format!("{:?}", ours.unfiltered()), format!("{:?}", theirs.unfiltered()));
            }
            assert!(!ours.advance().unwrap());
        }
        assert!(!ours.advance_partition().unwrap());
    }
}
