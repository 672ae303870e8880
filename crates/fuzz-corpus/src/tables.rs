//! The components of SSTables, each by itself.

use blockio::SimulatedDisk;
use sstable::{Component, decode};

const COMPRESSORS: [&str; 4] = ["LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor"];
/// A length above that of any chunk in the corpus.
const CHUNK_BYTES_MAX: usize = 1 << 16;

pub fn statistics(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::Statistics, bytes);
}

pub fn compression_info(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::CompressionInfo, bytes);
}

pub fn filter(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::Filter, bytes);
}

pub fn crc(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::Crc, bytes);
}

pub fn checksums(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::Checksums, bytes);
}

pub fn partitions(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::Partitions, bytes);
}

pub fn rows(bytes: &[u8]) {
    let _ = decode::component(&SimulatedDisk::new(), Component::Rows, bytes);
}

/// `u32` length of a Statistics.db, big-endian, the Statistics.db, uncompressed data.
pub fn data(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return };
    let length = u32::from_be_bytes(*length) as usize;
    if let Some((statistics, data)) = rest.split_at_checked(length) {
        let _ = decode::data(&SimulatedDisk::new(), statistics, data);
    }
}

/// A byte for the compressor, `u16` length of the chunk, big-endian, the compressed chunk.
pub fn chunk(bytes: &[u8]) {
    let [compressor, high, low, stored @ ..] = bytes else { return };
    let class = COMPRESSORS[usize::from(*compressor) % COMPRESSORS.len()];
    let length = usize::from(u16::from_be_bytes([*high, *low])).min(CHUNK_BYTES_MAX);
    let _ = decode::chunk(class, stored, length);
}
