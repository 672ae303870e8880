//! The fuzzing entry points: real files are accepted, and a few wrong bytes never cause a panic.

use sstable::{Component, CompressionInfo, decode};
use testkit::Random;

use crate::fixture::{Fixture, NAMES};

/// Flips bits, truncates, and copies parts over others.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut mutated = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        if mutated.is_empty() {
            break;
        }
        let (at, from) = (random.below(mutated.len()), random.below(mutated.len()));
        match random.below(5) {
            0 => mutated.truncate(at),
            1 => mutated[at] = random.number() as u8,
            2 => mutated[at] = 0xFF,
            3 => mutated[at] ^= 1 << random.below(8),
            _ => {
                let length = (1 + random.below(16)).min(mutated.len() - at.max(from));
                mutated.copy_within(from..from + length, at);
            }
        }
    }
    mutated
}

/// Corrects the checksums of a Statistics.db, so that the code behind them is reached.
fn mend_checksums(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?) as usize);
    let positions: Vec<usize> = (0..4).filter_map(|index| word(bytes, 12 + 8 * index)).collect();
    for (index, start) in positions.iter().enumerate() {
        let end = positions.get(index + 1).copied().unwrap_or(bytes.len());
        if let Some(body) = bytes.get_mut(*start..end).filter(|body| body.len() >= 4) {
            let (body, crc) = body.split_at_mut(body.len() - 4);
            crc.copy_from_slice(&crc32fast::hash(body).to_be_bytes());
        }
    }
}

fn read(fixture: &Fixture, component: Component) -> Option<Vec<u8>> {
    std::fs::read(fixture.descriptor.path(component)).ok()
}

#[test]
fn components_alone() {
    let mut random = Random(1);
    for name in NAMES {
        let fixture = Fixture::load(name);
        for component in Component::ALL {
            let Some(bytes) = read(&fixture, component).filter(|bytes| bytes.len() < 20_000) else { continue };
            // Not every position of Rows.db is that of a record.
            assert!(
                component == Component::Rows
                    || decode::component(&blockio::SimulatedDisk::new(), component, &bytes).is_ok(),
                "{name} {component:?}"
            );
            for _ in 0..if component == Component::Rows { 2 } else { 12 } {
                let mut mutated = mutate(&bytes, &mut random);
                if component == Component::Statistics && mutated.len() == bytes.len() {
                    mend_checksums(&mut mutated);
                }
                let _ = decode::component(&blockio::SimulatedDisk::new(), component, &mutated);
            }
        }
    }
}

#[test]
fn data_under_its_header() {
    let mut random = Random(2);
    for name in NAMES {
        let fixture = Fixture::load(name);
        let statistics = read(&fixture, Component::Statistics).unwrap();
        let stored = read(&fixture, Component::Data).unwrap();
        let data = match read(&fixture, Component::CompressionInfo) {
            Some(info) => CompressionInfo::decode("i", &info).unwrap().decompress_all("d", &stored).unwrap(),
            None => stored,
        };
        decode::data(&blockio::SimulatedDisk::new(), &statistics, &data)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let data = &data[..data.len().min(3000)];
        let mut refused = 0;
        for _ in 0..40 {
            refused += usize::from(
                decode::data(&blockio::SimulatedDisk::new(), &statistics, &mutate(data, &mut random)).is_err(),
            );
            let mut mutated = mutate(&statistics, &mut random);
            mend_checksums(&mut mutated);
            let _ = decode::data(&blockio::SimulatedDisk::new(), &mutated, data);
        }
        assert!(refused > 0, "{name}: some damage breaks the structure");
    }
}

#[test]
fn chunks_of_every_compressor() {
    let mut random = Random(3);
    for (name, class) in [
        ("kv", "LZ4Compressor"),
        ("comp_snappy", "SnappyCompressor"),
        ("comp_deflate", "DeflateCompressor"),
        ("comp_zstd", "ZstdCompressor"),
    ] {
        let fixture = Fixture::load(name);
        let stored = read(&fixture, Component::Data).unwrap();
        let info = CompressionInfo::decode("i", &read(&fixture, Component::CompressionInfo).unwrap()).unwrap();
        let end = info.offsets.get(1).map_or(stored.len(), |offset| *offset as usize);
        let (body, length) = (&stored[..end - 4], info.chunk_data_length(0));
        assert_eq!(decode::chunk(class, body, length).unwrap().len(), length);
        for _ in 0..200 {
            let _ = decode::chunk(class, &mutate(body, &mut random), length);
        }
    }
}
