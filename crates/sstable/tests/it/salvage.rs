//! What is saved of damaged tables is sound, well formed, and everything that the damage does not touch.

use std::collections::BTreeMap;
use std::path::Path;

use model::{DeletionTime, Unfiltered, UnfilteredCursor};
use sstable::{BlockCache, Component, Descriptor, SSTableId, SSTableReader, Salvaged, salvage, verify};
use testkit::TemporaryDirectory;

use crate::fixture::{Fixture, NAMES, disk};

/// Rows by partition and clustering, each with the range deletion in force at it; and the heads of partitions.
type Content = BTreeMap<(Vec<u8>, Vec<u8>), String>;

fn content(fixture: &Fixture, descriptor: &Descriptor) -> Content {
    let cache = BlockCache::new(1 << 20);
    let reader = SSTableReader::open(&*disk(), descriptor, &fixture.table, &cache).unwrap();
    let mut cursor = reader.scan().unwrap();
    let mut content = Content::new();
    while cursor.advance_partition().unwrap() {
        let head = cursor.partition();
        let key = head.key.bytes().to_vec();
        let text = format!("{:?} {:02x?}", head.deletion, head.static_row.map(|row| row.as_bytes().to_vec()));
        content.insert((key.clone(), b"head".to_vec()), text);
        let mut open = DeletionTime::LIVE;
        while cursor.advance().unwrap() {
            match cursor.unfiltered() {
                Unfiltered::Row(row) => {
                    let text = format!("{open:?} {:02x?}", row.row.as_bytes());
                    let mut place = b"row".to_vec();
                    place.extend_from_slice(row.clustering);
                    content.insert((key.clone(), place), text);
                }
                Unfiltered::Marker(marker) => open = marker.after,
            }
        }
    }
    content
}

fn copy(fixture: &Fixture, to: &Path) -> Descriptor {
    for entry in std::fs::read_dir(&fixture.dir).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    Descriptor::new(to, fixture.descriptor.id.clone())
}

/// Salvages a table into `scratch`, checks the result's form, and returns it with its content.
fn save(fixture: &Fixture, damaged: &Descriptor, scratch: &TemporaryDirectory, number: u32) -> (Salvaged, Content) {
    let target = Descriptor::new(&scratch.0, SSTableId::from_sequence(number));
    let salvaged = salvage(&disk(), damaged, &fixture.table, &target).unwrap();
    let Some(table) = &salvaged.table else { return (salvaged, Content::new()) };
    let verified = verify(&*disk(), table, &fixture.table, true).unwrap();
    assert_eq!((verified.partitions, verified.rows), (salvaged.partitions, salvaged.rows));
    let content = content(fixture, table);
    (salvaged, content)
}

#[test]
fn a_sound_table_is_saved_whole() {
    for name in NAMES {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let (salvaged, saved) = save(&fixture, &fixture.descriptor, &scratch, 1);
        assert!(salvaged.losses.is_empty() && salvaged.damaged.is_empty(), "{name}: {salvaged:?}");
        assert_eq!(saved, content(&fixture, &fixture.descriptor), "{name}");
    }
}

#[test]
fn only_what_damage_touches_is_lost() {
    let mut random = testkit::Random(11);
    for name in ["wide_rt", "wide_blocks", "wide16k", "many", "tombs", "statics", "comp_none", "colls"] {
        let fixture = Fixture::load(name);
        let scratch = TemporaryDirectory::create();
        let copied = TemporaryDirectory::create();
        let descriptor = copy(&fixture, &copied.0);
        let whole = content(&fixture, &descriptor);
        let path = descriptor.path(Component::Data);
        let bytes = std::fs::read(&path).unwrap();
        let mut saved_rows = 0;
        for round in 0..12 {
            let at = random.below(bytes.len());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.below(8);
            std::fs::write(&path, &damaged).unwrap();
            let (salvaged, saved) = save(&fixture, &descriptor, &scratch, round + 1);
            assert!(!salvaged.losses.is_empty(), "{name}: a flipped bit at {at} cost nothing");
            for (place, text) in &saved {
                assert_eq!(whole.get(place), Some(text), "{name} {at}: a row that was not there");
            }
            assert!(saved.len() < whole.len(), "{name} {at}");
            saved_rows += saved.len();
        }
        // Tables of several chunks lose only a part.
        if ["wide_rt", "wide_blocks", "wide16k", "many"].contains(&name) {
            assert!(saved_rows > 3 * whole.len(), "{name}: {saved_rows} rows of 12 * {}", whole.len());
        }
    }
}

#[test]
fn damaged_indexes_and_filters_lose_no_rows() {
    for name in ["wide_rt", "kv", "wide_blocks"] {
        let fixture = Fixture::load(name);
        for component in [Component::Partitions, Component::Rows, Component::Filter, Component::Digest, Component::Toc]
        {
            for keep in [None, Some(1)] {
                let (scratch, copied) = (TemporaryDirectory::create(), TemporaryDirectory::create());
                let descriptor = copy(&fixture, &copied.0);
                let path = descriptor.path(component);
                let bytes = std::fs::read(&path).unwrap();
                match keep {
                    None => std::fs::remove_file(&path).unwrap(),
                    Some(length) => std::fs::write(&path, &bytes[..length.min(bytes.len())]).unwrap(),
                }
                let (salvaged, saved) = save(&fixture, &descriptor, &scratch, 1);
                assert!(salvaged.losses.is_empty(), "{name} {component:?}: {salvaged:?}");
                assert_eq!(saved, content(&fixture, &fixture.descriptor), "{name} {component:?}");
            }
        }
    }
}

#[test]
fn a_salvage_without_readable_rows_leaves_no_sstable() {
    let fixture = Fixture::load("kv");
    for component in [Component::Statistics, Component::CompressionInfo, Component::Data] {
        let (scratch, copied) = (TemporaryDirectory::create(), TemporaryDirectory::create());
        let descriptor = copy(&fixture, &copied.0);
        std::fs::write(descriptor.path(component), b"").unwrap();
        let target = Descriptor::new(&scratch.0, SSTableId::from_sequence(1));
        let salvaged = salvage(&disk(), &descriptor, &fixture.table, &target);
        match salvaged {
            Err(error) => assert!(error.to_string().contains(component.name()), "{error}"),
            Ok(salvaged) => assert!(salvaged.table.is_none() && !salvaged.losses.is_empty(), "{component:?}"),
        }
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0, "{component:?}");
    }
}
