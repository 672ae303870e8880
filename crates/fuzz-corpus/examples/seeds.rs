//! Writes the seeds of our own formats into `fuzz/corpus`.
#![allow(clippy::unwrap_used, reason = "a tool for developers who change a format")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use commitlog::{CommitLog, FILE_NAME, LogOptions};
use fuzz_corpus::{index_seeds, key_seeds, plugin_seeds, record_seeds};
use sstable::{Component, CompressionInfo};
use uuid::Uuid;

fn write(target: &str, name: &str, bytes: &[u8]) {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(name), bytes).unwrap();
}

fn main() {
    for (name, record) in record_seeds() {
        write("mutation", name, &record);
        // The payload of blocks: size, tables, CRC of the head, table id, data, CRC of both.
        let mut framed = vec![0];
        framed.extend((record.len() as u32).to_be_bytes());
        framed.extend([0, 1, 0, 0]);
        framed.extend(crc32fast::hash(&framed[1..]).to_be_bytes());
        let table = Uuid::from_u128(7);
        framed.extend(table.as_bytes());
        framed.extend(&record);
        let mut crc = crc32fast::Hasher::new();
        crc.update(table.as_bytes());
        crc.update(&record);
        framed.extend(crc.finalize().to_be_bytes());
        write("log_records", name, &framed);
    }
    for (name, key) in key_seeds() {
        write("byte_comparable", &name, &key);
    }
    let [entries, vectors] = index_seeds().unwrap();
    entries.iter().for_each(|(name, file)| write("index_entries", name, file));
    vectors.iter().for_each(|(name, file)| write("index_vectors", name, file));
    for (name, calls) in plugin_seeds() {
        write("plugin", &name, &calls);
    }
    write("log_file", "three-records", &log_file());
    for name in ["types_empty", "statics", "tombs", "colls", "wide_rt"] {
        write("sstable_data", name, &table_data(name));
    }
}

/// The header and the uncompressed data of a table that Cassandra wrote, in the form that the target takes.
fn table_data(name: &str) -> Vec<u8> {
    let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../sstable/tests/from_cassandra/5.0.8"));
    let read = |component: Component| {
        let directory = fixtures.join(name);
        let names = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let mut of_component = names.filter(|path| path.to_str().unwrap().ends_with(component.name()));
        std::fs::read(of_component.next().unwrap()).unwrap()
    };
    let statistics = read(Component::Statistics);
    let info = CompressionInfo::decode("info", &read(Component::CompressionInfo)).unwrap();
    let data = info.decompress_all("data", &read(Component::Data)).unwrap();
    let mut seed = (statistics.len() as u32).to_be_bytes().to_vec();
    seed.extend(&statistics);
    // The first partitions are enough. The target refuses an incomplete partition at its end.
    seed.extend(&data[..data.len().min(4000)]);
    seed
}

/// A small log as its writer leaves it, without the blocks behind the last used one.
fn log_file() -> Vec<u8> {
    let disk = SimulatedDisk::new();
    let options = LogOptions {
        segment_size_bytes: 16 << 10,
        total_space_bytes: 32 << 10,
        host_id: Some(Uuid::from_u128(1)),
        log_id: Some(Uuid::from_u128(2)),
        clock: Arc::new(|| 1000),
        ..LogOptions::new("/log")
    };
    let (log, mut replay) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    while replay.next_record().unwrap().is_some() {}
    for length in [5, 100, 5000] {
        let position = log.append(&[Uuid::from_u128(7)], &vec![length as u8; length]).unwrap().position;
        log.durable(position).wait().unwrap();
    }
    drop(log);
    let file = disk.open(&Path::new("/log").join(FILE_NAME), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 1).next_multiple_of(4096));
    bytes.truncate(used);
    bytes
}
