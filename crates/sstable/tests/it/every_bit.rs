//! Small tables, exhaustively. In our tables every flipped bit, every truncation and every missing component is an
//! error or harmless. In Cassandra's tables, whose indexes have no checksums, every flipped bit is, if extended
//! verification runs first.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use model::{KeyBound, KeyRange, PartitionKey, ReadRange, Slice, Slices, Unfiltered, UnfilteredCursor};
use sstable::{
    BlockCache, Component, CompressionParams, Descriptor, SSTableError, SSTableId, SSTableReader, SSTableWriter,
    WriterOptions, verify,
};

use crate::fixture::Fixture;

struct Small {
    fixture: Fixture,
    disk: Arc<dyn Disk>,
    descriptor: Descriptor,
    /// The keys to look up: all existing ones, and some others.
    keys: Vec<PartitionKey>,
    /// The rows to look up one by one.
    rows: Vec<(PartitionKey, Vec<u8>)>,
    sound: Vec<String>,
}

impl Small {
    /// A table of the first partitions of a fixture.
    fn new(name: &str, partitions: usize, rows: usize, is_compressed: bool) -> Small {
        let fixture = Fixture::load(name);
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        let dir = Path::new("/data/ks/t");
        disk.create_dir_all(dir).unwrap();
        let descriptor = Descriptor::new(dir, SSTableId::from_sequence(1));
        let compression = if is_compressed { CompressionParams::from_options(&lz4()).unwrap() } else { None };
        let options = WriterOptions {
            column_index_size_bytes: 60,
            compression,
            ..WriterOptions::for_table(&fixture.table).unwrap()
        };
        let mut writer = SSTableWriter::create(&disk, &descriptor, &fixture.table, options).unwrap();
        let mut cursor = fixture.open().scan().unwrap();
        let mut keys: Vec<PartitionKey> = (0..3_u32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        for _ in 0..partitions {
            assert!(cursor.advance_partition().unwrap(), "{name}");
            keys.push(cursor.partition().key.clone());
            writer.begin_partition(&cursor.partition()).unwrap();
            let mut open = false;
            for count in 0.. {
                if !cursor.advance().unwrap() || count >= rows && !open {
                    break;
                }
                writer.add(&cursor.unfiltered()).unwrap();
                if let Unfiltered::Marker(marker) = cursor.unfiltered() {
                    open = !marker.after.is_live();
                }
            }
            writer.end_partition().unwrap();
        }
        writer.finish().unwrap().unwrap();
        let mut small = Small { fixture, disk, descriptor, keys, rows: Vec::new(), sound: Vec::new() };
        small.sound = small.read().unwrap();
        small
    }

    /// A table as Cassandra wrote it.
    fn of_cassandra(name: &str) -> Small {
        let fixture = Fixture::load(name);
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        let dir = Path::new("/data/ks/t");
        disk.create_dir_all(dir).unwrap();
        let descriptor = Descriptor::new(dir, fixture.descriptor.id.clone());
        let mut keys: Vec<PartitionKey> = (0..3_u32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        let rows_db = std::fs::read(fixture.descriptor.path(Component::Rows)).unwrap();
        let mut rows = Vec::new();
        let mut cursor = fixture.open().scan().unwrap();
        while cursor.advance_partition().unwrap() {
            let key = cursor.partition().key.clone();
            while !rows_db.is_empty() && cursor.advance().unwrap() {
                if let Unfiltered::Row(row) = cursor.unfiltered() {
                    rows.push((key.clone(), row.clustering.to_vec()));
                }
            }
            keys.push(key);
        }
        let mut small = Small { fixture, disk, descriptor, keys, rows, sound: Vec::new() };
        for component in Component::ALL {
            if let Ok(bytes) = std::fs::read(small.fixture.descriptor.path(component)) {
                small.put(component, &bytes);
            }
        }
        small.sound = small.read().unwrap();
        small
    }

    fn verify(&self) -> Result<(), SSTableError> {
        verify(&*self.disk, &self.descriptor, &self.fixture.table, true).map(|_| ())
    }

    /// Everything that reads of all kinds find.
    fn read(&self) -> Result<Vec<String>, SSTableError> {
        let cache = BlockCache::new(1 << 20);
        let reader = SSTableReader::open(&*self.disk, &self.descriptor, &self.fixture.table, &cache)?;
        let mut lines = vec![format!("{:?} {:?}", reader.statistics().stats, reader.statistics().header)];
        let mut ranges = vec![ReadRange::all_rows(KeyRange::all())];
        for key in &self.keys {
            for reversed in [false, true] {
                ranges.push(ReadRange { keys: KeyRange::Single(key.clone()), slices: Slices::all(), reversed });
            }
            let bound = || KeyBound::Key { key: key.clone(), inclusive: true };
            ranges.push(ReadRange::all_rows(KeyRange::Range { start: bound(), end: bound() }));
        }
        for (key, clustering) in &self.rows {
            let slices = Slices::new(vec![Slice::prefix(clustering)], self.fixture.table.comparator());
            ranges.push(ReadRange { keys: KeyRange::Single(key.clone()), slices, reversed: false });
        }
        for range in &ranges {
            let mut cursor = reader.cursor(range)?;
            while cursor.advance_partition()? {
                lines.push(format!("{:?}", cursor.partition()));
                while cursor.advance()? {
                    lines.push(match cursor.unfiltered() {
                        Unfiltered::Row(row) => format!("{:02x?} {:02x?}", row.clustering, row.row.as_bytes()),
                        marker => format!("{marker:?}"),
                    });
                }
            }
        }
        Ok(lines)
    }

    fn bytes(&self, component: Component) -> Option<Vec<u8>> {
        let file = self.disk.open(&self.descriptor.path(component), OpenOptions::read()).ok()?;
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    fn put(&self, component: Component, bytes: &[u8]) {
        let file = self.disk.open(&self.descriptor.path(component), OpenOptions::create()).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    /// Reads the current files. Returns true if that fails with the name of a file of the table.
    fn is_refused(&self, what: &str) -> bool {
        match self.read() {
            Ok(lines) => {
                assert!(lines == self.sound, "{what}: other rows");
                false
            }
            Err(error) => {
                assert!(error.to_string().contains(&self.descriptor.name()), "{what}: {error}");
                true
            }
        }
    }
}

fn lz4() -> std::collections::BTreeMap<String, String> {
    [("class", "LZ4Compressor"), ("chunk_length_in_kb", "4")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

fn tables() -> [(&'static str, Small); 4] {
    [
        ("kv", Small::new("kv", 3, 9, true)),
        ("wide_rt", Small::new("wide_rt", 1, 6, false)),
        ("tombs", Small::new("tombs", 2, 4, true)),
        ("statics", Small::new("statics", 2, 3, false)),
    ]
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    for (name, small) in tables() {
        for component in Component::ALL {
            let Some(bytes) = small.bytes(component) else { continue };
            // A reader decodes it first: the test below tries every bit. Here a few of each region are enough.
            let step = if component == Component::Statistics { 61 } else { 1 };
            for at in (0..bytes.len()).step_by(step) {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    small.put(component, &damaged);
                    let refused = small.is_refused(&format!("{name} {component:?} bit {bit} of byte {at}"));
                    let may_pass = [Component::Digest, Component::Toc].contains(&component);
                    assert!(refused || may_pass, "{name} {component:?}: bit {bit} of byte {at} is not noticed");
                }
            }
            small.put(component, &bytes);
        }
    }
}

#[test]
fn every_bit_and_every_cut_of_statistics_is_found() {
    // What a reader decodes first, without the disk in between: about 40,000 bytes of eight bits.
    let of_cassandra = ["statics_only", "counters", "ttl", "kv"].map(|name| (name, Small::of_cassandra(name)));
    for (name, small) in tables().into_iter().chain(of_cassandra) {
        let mut bytes = small.bytes(Component::Statistics).unwrap();
        let is_refused = |bytes: &[u8]| sstable::Statistics::decode("Statistics.db", bytes).is_err();
        assert!(!is_refused(&bytes));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert!(is_refused(&bytes), "{name}: bit {bit} of byte {at}");
                bytes[at] ^= 1 << bit;
            }
            assert!(is_refused(&bytes[..at]), "{name}: cut to {at}");
        }
    }
}

#[test]
fn every_cut_and_every_missing_component_is_found_or_harmless() {
    for (name, small) in tables() {
        for component in Component::ALL {
            let Some(bytes) = small.bytes(component) else { continue };
            let step = if component == Component::Statistics { 61 } else { 1 };
            let may_pass = [Component::Digest, Component::Toc].contains(&component);
            for length in (0..bytes.len()).step_by(step) {
                small.put(component, &bytes[..length]);
                let refused = small.is_refused(&format!("{name} {component:?} cut to {length}"));
                assert!(refused || may_pass, "{name} {component:?} cut to {length} is not noticed");
            }
            small.disk.remove_file(&small.descriptor.path(component)).unwrap();
            let refused = small.is_refused(&format!("{name} without {component:?}"));
            assert!(refused || component == Component::Toc, "{name} without {component:?}");
            small.put(component, &bytes);
        }
    }
}

#[test]
fn every_flipped_bit_of_cassandras_indexes_is_found_by_extended_verification_or_harmless() {
    // One of the two has a row index.
    for name in ["kv", "desc_ck"] {
        let small = Small::of_cassandra(name);
        small.verify().unwrap();
        let mut found = 0;
        for component in [Component::Partitions, Component::Rows, Component::Filter, Component::CompressionInfo] {
            let bytes = small.bytes(component).unwrap();
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let what = format!("{name} {component:?}: bit {bit} of byte {at}");
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    small.put(component, &damaged);
                    match small.verify() {
                        Ok(()) => assert!(small.read().is_ok_and(|read| read == small.sound), "{what} is not found"),
                        Err(error) => {
                            assert!(error.to_string().contains("da-1-bti-"), "{what}: {error}");
                            found += 1;
                            // Without verification there is an error or rows, never a panic.
                            let _ = if bit == at % 8 { small.read().is_ok() } else { false };
                        }
                    }
                }
            }
            small.put(component, &bytes);
        }
        assert!(found > 500, "{name}: {found}");
    }
}

#[test]
fn every_flipped_bit_of_cassandras_data_is_found_where_it_is_read() {
    for name in ["statics_only", "types_empty", "vectors", "dropped", "ttl"] {
        let small = Small::of_cassandra(name);
        let bytes = small.bytes(Component::Data).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                small.put(Component::Data, &damaged);
                assert!(small.is_refused(name), "{name}: bit {bit} of byte {at} is not noticed");
                assert!(small.verify().is_err(), "{name}: bit {bit} of byte {at} is not found");
            }
        }
    }
}
