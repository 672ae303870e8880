//! Decoding of single components, for fuzz targets and tests. It is here because the decoders are private. Nothing in
//! the product calls it, so no binary contains it.
//!
//! Each returns an error or `Ok`, never panics, and allocates memory in proportion to its input. The caller provides
//! the disk that receives the bytes, an empty one in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use model::{PartitionKey, UnfilteredCursor};
use types::murmur3;

use crate::cache::BlockCache;
use crate::compression::CompressionInfo;
use crate::descriptor::{Component, Descriptor, SSTableId};
use crate::error::SSTableError;
use crate::filter::BloomFilter;
use crate::index_file::IndexFile;
use crate::page_checksums::PageChecksums;
use crate::partition_index::{PartitionIndex, PartitionIndexWriter, PartitionPosition};
use crate::reader::{Checksums, ReadMode, SSTableReader};
use crate::row_index::{BlockCursor, RowIndexEntry};
use crate::stats::Statistics;

/// The most entries of an index that are walked: random bytes can make a small trie endless.
const ENTRIES_MAX: usize = 10_000;
/// Memory for index pages.
const CACHE_BYTES: u64 = 1 << 20;

fn file_of(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<Box<dyn File>, SSTableError> {
    let file = disk.open(&Path::new("/").join(name), OpenOptions::create())?;
    file.write_at(bytes, 0)?;
    Ok(file)
}

fn index_file(disk: &dyn Disk, component: Component, bytes: &[u8]) -> Result<Arc<IndexFile>, SSTableError> {
    let name = component.name();
    Ok(Arc::new(IndexFile::new(name.into(), file_of(disk, name, bytes)?, BlockCache::new(CACHE_BYTES), None)?))
}

/// Decodes a whole file of the given component by itself. Data.db needs more: see [`data`].
pub fn component(disk: &dyn Disk, component: Component, bytes: &[u8]) -> Result<(), SSTableError> {
    match component {
        Component::Statistics => Statistics::decode(component.name(), bytes).map(drop),
        Component::CompressionInfo => CompressionInfo::decode(component.name(), bytes).map(drop),
        Component::Filter => {
            let filter = BloomFilter::decode(component.name(), bytes)?;
            filter.may_contain(bytes);
            Ok(())
        }
        Component::Crc => Checksums::decode(component.name(), bytes).map(drop),
        Component::Checksums => PageChecksums::decode(component.name(), bytes).map(drop),
        Component::Partitions => partitions(disk, bytes),
        Component::Rows => rows(disk, bytes),
        Component::Data | Component::Digest | Component::Toc => Ok(()),
    }
}

fn partitions(disk: &dyn Disk, bytes: &[u8]) -> Result<(), SSTableError> {
    let index = PartitionIndex::open(Component::Partitions.name(), index_file(disk, Component::Partitions, bytes)?)?;
    let key = PartitionKey::new(bytes.get(..16).unwrap_or(bytes));
    index.candidate(&key, murmur3::hash128(key.bytes()), true)?;
    let mut entries = index.entries(true)?;
    let mut place = entries.first()?;
    for _ in 0..ENTRIES_MAX {
        match place {
            Some(_) => place = entries.next()?,
            None => break,
        }
    }
    Ok(())
}

/// Treats every position of a Rows.db as that of a record.
fn rows(disk: &dyn Disk, bytes: &[u8]) -> Result<(), SSTableError> {
    let file = index_file(disk, Component::Rows, bytes)?;
    let mut first_error = None;
    for position in 0..bytes.len() as u64 {
        if let Err(error) = blocks(&file, position) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

fn blocks(file: &Arc<IndexFile>, position: u64) -> Result<(), SSTableError> {
    let entry = RowIndexEntry::read(file, position, true)?;
    let mut blocks = BlockCursor::new(file.pages(true), entry.root)?;
    blocks.floor(&entry.key)?;
    blocks.end()?;
    let mut block = blocks.first()?;
    // No sound trie has more entries than bytes.
    for _ in 0..ENTRIES_MAX.min(file.length() as usize) {
        match block {
            Some(_) => block = blocks.next()?,
            None => break,
        }
    }
    Ok(())
}

/// Decodes uncompressed data under the header of a Statistics.db.
pub fn data(disk: &dyn Disk, statistics: &[u8], data: &[u8]) -> Result<(), SSTableError> {
    let dir = Path::new("/table");
    disk.create_dir_all(dir)?;
    let descriptor = Descriptor::new(dir, SSTableId::from_sequence(1));
    let write = |component: Component, bytes: &[u8]| -> Result<(), SSTableError> {
        Ok(disk.open(&descriptor.path(component), OpenOptions::create())?.write_at(bytes, 0)?)
    };
    // An index with one entry is enough: a scan follows the data alone.
    let mut index = PartitionIndexWriter::new();
    let key = PartitionKey::new(b"key");
    index.add(&key, murmur3::hash128(key.bytes()), PartitionPosition::Data(0));
    let mut partitions = Vec::new();
    index.finish(&mut partitions);
    write(Component::Statistics, statistics)?;
    write(Component::Data, data)?;
    write(Component::Partitions, &partitions)?;
    write(Component::Rows, &[])?;
    let parsed = Statistics::decode(Component::Statistics.name(), statistics)?;
    let table = Arc::new(parsed.to_table(Component::Statistics.name(), "ks", "t", &[])?);
    let reader = SSTableReader::open(disk, &descriptor, &table, &BlockCache::new(CACHE_BYTES))?;
    for mode in [ReadMode::Sequential, ReadMode::Cached { may_block: true }] {
        let range = model::ReadRange::all_rows(model::KeyRange::all());
        let mut cursor = reader.cursor_with(&range, mode)?;
        while cursor.advance_partition()? {
            while cursor.advance()? {
                let _ = cursor.unfiltered();
            }
        }
    }
    Ok(())
}

/// Decompresses a chunk of a compressed Data.db, as `class` does, into `length` bytes. Its checksum is not checked.
pub fn chunk(class: &str, stored: &[u8], length: usize) -> Result<Vec<u8>, SSTableError> {
    let unknown = || SSTableError::Unsupported { file: "Data.db".into(), what: format!("compressor {class}") };
    let compressor = crate::compression::Compressor::of_class(class, &BTreeMap::new()).ok_or_else(unknown)?;
    let mut out = vec![0; length];
    compressor
        .decompress(stored, &mut out)
        .map_err(|got| crate::error::Corruption::new("Data.db", 0, format!("{length} bytes"), got))?;
    Ok(out)
}
