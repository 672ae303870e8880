//! Partitions.db: a trie of the shortest unique prefixes of decorated keys, each with the position of its partition.

use std::sync::{Arc, OnceLock};

use model::PartitionKey;
use types::murmur3;

use crate::cache::{Block, NotCached};
use crate::error::{Corruption, Decoded, SSTableError};
use crate::index_file::{CachedPages, IndexFile, ReadPages};
use crate::input::Input;
use crate::trie::{EntryCursor, PAGE_SIZE, Pages, Payload, TrieBuilder, follow, read_sized, sized_length};

/// Footer: position of the first key, number of keys, position of the root.
const FOOTER_LENGTH: usize = 24;
/// Payload bits from this value on mean that a hash byte precedes the position.
const WITH_HASH: u8 = 8;

/// The position of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartitionPosition {
    /// At a position of the uncompressed data; it has no row index.
    Data(u64),
    /// Its record is at a position of Rows.db.
    Rows(u64),
}

impl PartitionPosition {
    fn to_stored(self) -> i64 {
        match self {
            PartitionPosition::Data(position) => !(position as i64),
            PartitionPosition::Rows(position) => position as i64,
        }
    }

    fn of_stored(stored: i64) -> PartitionPosition {
        if stored < 0 { PartitionPosition::Data(!stored as u64) } else { PartitionPosition::Rows(stored as u64) }
    }
}

/// The byte of a key's hash that the index keeps.
fn hash_byte(hash: (u64, u64)) -> u8 {
    hash.1 as u8
}

/// Takes partitions in order and produces the bytes of Partitions.db.
pub(crate) struct PartitionIndexWriter {
    trie: TrieBuilder,
    count: u64,
    first_key: Vec<u8>,
    last: Last,
    encoded: Vec<u8>,
}

/// The partition added last, which is stored once its successor is known.
#[derive(Default)]
struct Last {
    key: Vec<u8>,
    encoded: Vec<u8>,
    hash: u8,
    place: i64,
    /// The number of bytes that distinguish it from the previous one.
    distinct: usize,
}

impl PartitionIndexWriter {
    pub fn new() -> Self {
        PartitionIndexWriter {
            trie: TrieBuilder::new(0),
            count: 0,
            first_key: Vec::new(),
            last: Last::default(),
            encoded: Vec::new(),
        }
    }

    pub fn add(&mut self, key: &PartitionKey, hash: (u64, u64), place: PartitionPosition) {
        self.encoded.clear();
        bytecomp::encode_decorated_key(key.token(), key.bytes(), &mut self.encoded);
        let mut distinct = 0;
        if self.count == 0 {
            self.first_key = key.bytes().to_vec();
        } else {
            distinct = 1 + self.last.encoded.iter().zip(&self.encoded).take_while(|(a, b)| a == b).count();
            self.store_last(distinct);
        }
        std::mem::swap(&mut self.last.encoded, &mut self.encoded);
        self.last.key.clear();
        self.last.key.extend_from_slice(key.bytes());
        self.last.hash = hash_byte(hash);
        self.last.place = place.to_stored();
        self.last.distinct = distinct;
        self.count += 1;
    }

    fn store_last(&mut self, distinct_from_next: usize) {
        let length = self.last.distinct.max(distinct_from_next).min(self.last.encoded.len());
        let size = sized_length(self.last.place);
        let mut payload = Payload::new(WITH_HASH + size as u8 - 1);
        payload.push(&[self.last.hash]);
        payload.push_sized(self.last.place, size);
        self.trie.add(&self.last.encoded[..length], payload);
    }

    /// Bytes that are ready.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        self.trie.drain(out);
    }

    /// Appends what is left, footer included.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        if self.count > 0 {
            self.store_last(0);
        }
        let root = self.trie.complete();
        let keys_position = self.trie.position();
        self.trie.drain(out);
        for key in [&self.first_key, &self.last.key] {
            out.extend_from_slice(&(key.len() as u16).to_be_bytes());
            out.extend_from_slice(key);
        }
        for number in [keys_position, self.count, root] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// An open Partitions.db.
#[derive(Debug)]
pub(crate) struct PartitionIndex {
    file: Arc<IndexFile>,
    root: u64,
    /// The page of the root, where every search begins, once it was read.
    root_page: OnceLock<Block>,
    key_count: u64,
    first_key: PartitionKey,
    last_key: PartitionKey,
}

impl PartitionIndex {
    pub fn open(name: &str, file: Arc<IndexFile>) -> Result<Self, SSTableError> {
        let wrong = |offset, expected: &'static str, got: u64| Corruption::new(name, offset, expected, got.to_string());
        let Some(footer_position) = file.length().checked_sub(FOOTER_LENGTH as u64) else {
            return Err(wrong(0, "a footer of 24 bytes", file.length()).into());
        };
        let footer = file.read(footer_position, FOOTER_LENGTH, true)?;
        let mut input = Input::new(name, footer_position, &footer);
        let keys_position = input.i64("keys position")? as u64;
        let key_count = input.i64("key count")? as u64;
        let root = input.i64("root position")? as u64;
        if keys_position > footer_position || footer_position - keys_position > 2 * (2 + 65_535) {
            return Err(wrong(footer_position, "the position of the first key", keys_position).into());
        }
        if root >= keys_position {
            return Err(wrong(footer_position, "a root before the keys", root).into());
        }
        if key_count == 0 || key_count > i64::MAX as u64 {
            return Err(wrong(footer_position, "a number of keys above zero", key_count).into());
        }
        let keys = file.read(keys_position, (footer_position - keys_position) as usize, true)?;
        let mut input = Input::new(name, keys_position, &keys);
        let first_key = PartitionKey::new(input.short_bytes("first key")?);
        let last_key = PartitionKey::new(input.short_bytes("last key")?);
        Ok(PartitionIndex { file, root, root_page: OnceLock::new(), key_count, first_key, last_key })
    }

    /// An index without entries, in place of one that cannot be read.
    pub fn unreadable(file: Arc<IndexFile>) -> Self {
        let none = PartitionKey::new(b"");
        PartitionIndex {
            file,
            root: 0,
            root_page: OnceLock::new(),
            key_count: 0,
            first_key: none.clone(),
            last_key: none,
        }
    }

    /// Bytes held in memory besides the cache.
    pub fn memory_bytes(&self) -> usize {
        self.file.memory_bytes() + self.root_page.get().map_or(0, |page| page.len())
    }

    fn root_page(&self, may_block: bool) -> Result<&Block, SSTableError> {
        if let Some(page) = self.root_page.get() {
            return Ok(page);
        }
        let page = self.file.block(self.root / PAGE_SIZE as u64, may_block)?;
        Ok(self.root_page.get_or_init(|| page))
    }

    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    pub fn first_key(&self) -> &PartitionKey {
        &self.first_key
    }

    pub fn last_key(&self) -> &PartitionKey {
        &self.last_key
    }

    /// The place of the partition, if it is here. The key found there must still be compared.
    pub fn candidate(
        &self,
        key: &PartitionKey,
        hash: (u64, u64),
        may_block: bool,
    ) -> Result<Option<PartitionPosition>, SSTableError> {
        let mut encoded = Vec::with_capacity(key.bytes().len() + 16);
        bytecomp::encode_decorated_key(key.token(), key.bytes(), &mut encoded);
        self.search(&self.file.pages(may_block), self.root_page(may_block)?, &encoded, hash)
    }

    /// Like [`PartitionIndex::candidate`], for an encoded key, if the cache has everything it needs.
    pub fn cached_candidate(&self, encoded: &[u8], hash: (u64, u64)) -> Result<Option<PartitionPosition>, NotCached> {
        self.search(&CachedPages(&self.file), self.root_page.get().ok_or(NotCached)?, encoded, hash)
    }

    fn search<P: Pages>(
        &self,
        pages: &P,
        root_page: &[u8],
        encoded: &[u8],
        hash: (u64, u64),
    ) -> Result<Option<PartitionPosition>, P::Error> {
        let found = follow(pages, (self.root, root_page), encoded, |position, bits, bytes| {
            if bits >= WITH_HASH && bytes.first() != Some(&hash_byte(hash)) {
                return Ok(None);
            }
            Ok(Some(self.place(bits, bytes, position)?))
        })?;
        Ok(found.flatten())
    }

    /// A cursor over all places in key order.
    pub fn entries(&self, may_block: bool) -> Result<PlaceCursor<'_>, SSTableError> {
        Ok(PlaceCursor { index: self, cursor: EntryCursor::new(self.file.pages(may_block), self.root)? })
    }

    fn place(&self, bits: u8, bytes: &[u8], position: u64) -> Decoded<PartitionPosition> {
        let (skip, size) = if bits >= WITH_HASH { (1, bits - 7) } else { (0, bits) };
        match bytes.get(skip..skip + usize::from(size)) {
            Some(stored) => Ok(PartitionPosition::of_stored(read_sized(stored))),
            None => {
                let file = self.file.name();
                Err(Corruption::new(file, position, "a payload within its page", "the end of the page"))
            }
        }
    }
}

/// Moves over the entries of Partitions.db.
pub(crate) struct PlaceCursor<'i> {
    index: &'i PartitionIndex,
    cursor: EntryCursor<ReadPages<&'i IndexFile>>,
}

impl PlaceCursor<'_> {
    fn place(&self, found: bool) -> Result<Option<PartitionPosition>, SSTableError> {
        if !found {
            return Ok(None);
        }
        let (bits, bytes) = self.cursor.payload();
        Ok(Some(self.index.place(bits, bytes, self.cursor.position())?))
    }

    /// The hash byte of the current entry, if it has one.
    pub fn hash_byte(&self) -> Option<u8> {
        let (bits, bytes) = self.cursor.payload();
        if bits >= WITH_HASH { bytes.first().copied() } else { None }
    }

    pub fn first(&mut self) -> Result<Option<PartitionPosition>, SSTableError> {
        let found = self.cursor.seek_first()?;
        self.place(found)
    }

    pub fn next(&mut self) -> Result<Option<PartitionPosition>, SSTableError> {
        let found = self.cursor.next()?;
        self.place(found)
    }

    /// The first partition that may be at or after the encoded bound. It may also be the one just before the bound, but
    /// no earlier one.
    pub fn at_or_after(&mut self, encoded: &[u8]) -> Result<Option<PartitionPosition>, SSTableError> {
        let found = self.cursor.seek_candidate(encoded)?;
        self.place(found)
    }
}

/// The hash byte that the index keeps for a key; for verification.
pub(crate) fn hash_byte_of(key: &[u8]) -> u8 {
    hash_byte(murmur3::hash128(key))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blockio::{Disk, File, OpenOptions, SimulatedDisk, SystemDisk};
    use testkit::Random;

    use super::*;
    use crate::cache::BlockCache;

    fn open(bytes: &[u8]) -> Result<PartitionIndex, SSTableError> {
        let disk = SimulatedDisk::new();
        let file: Box<dyn File> = disk.open(Path::new("/Partitions.db"), OpenOptions::create_new()).unwrap();
        file.write_at(bytes, 0).unwrap();
        let file = IndexFile::new("Partitions.db".into(), file, BlockCache::new(1 << 20), None)?;
        PartitionIndex::open("Partitions.db", Arc::new(file))
    }

    #[test]
    fn places_far_beyond_four_gigabytes_are_found() {
        let mut keys: Vec<PartitionKey> = (0..3000_u32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        keys.sort();
        let place = |index: usize| match index % 3 {
            0 => PartitionPosition::Rows((index as u64) << (index % 30)),
            _ => PartitionPosition::Data((index as u64) << (index % 38)),
        };
        let mut writer = PartitionIndexWriter::new();
        for (index, key) in keys.iter().enumerate() {
            writer.add(key, murmur3::hash128(key.bytes()), place(index));
        }
        let mut bytes = Vec::new();
        writer.finish(&mut bytes);
        let index = open(&bytes).unwrap();
        assert_eq!((index.first_key(), index.last_key()), (&keys[0], &keys[2999]));
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(index.candidate(key, murmur3::hash128(key.bytes()), true).unwrap(), Some(place(number)));
        }
        let mut entries = index.entries(true).unwrap();
        let mut found = entries.first().unwrap();
        for number in 0..keys.len() {
            assert_eq!(found, Some(place(number)));
            found = entries.next().unwrap();
        }
        assert_eq!(found, None);
    }

    /// Places near every power of two where a position needs another byte, or another sign.
    fn boundaries() -> impl Iterator<Item = PartitionPosition> {
        let beside = |bits: u32| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1];
        let positions = [7, 8, 15, 16, 23, 24, 31, 32, 39, 40, 47].into_iter().flat_map(beside);
        positions.flat_map(|position| [PartitionPosition::Data(position), PartitionPosition::Rows(position)])
    }

    #[test]
    fn an_index_behind_four_gigabytes_of_index_is_read() {
        let path = std::env::temp_dir().join(format!("espalier-sstable-{}-Partitions.db", std::process::id()));
        let mut keys: Vec<PartitionKey> =
            (0..boundaries().count() as u32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        keys.sort();
        for start in [(1_u64 << 31) - 4096, (1 << 32) - 4096, 5 << 30] {
            let mut writer = PartitionIndexWriter { trie: TrieBuilder::new(start), ..PartitionIndexWriter::new() };
            for (key, place) in keys.iter().zip(boundaries()) {
                writer.add(key, murmur3::hash128(key.bytes()), place);
            }
            let mut bytes = Vec::new();
            writer.finish(&mut bytes);
            let file = SystemDisk::new().open(&path, OpenOptions::create()).unwrap();
            file.write_at(&bytes, start).unwrap();
            let file = IndexFile::new("Partitions.db".into(), file, BlockCache::new(1 << 20), None).unwrap();
            let index = PartitionIndex::open("Partitions.db", Arc::new(file)).unwrap();
            assert!(index.root > start);
            let mut entries = index.entries(true).unwrap();
            let mut found = entries.first().unwrap();
            for (key, place) in keys.iter().zip(boundaries()) {
                assert_eq!(index.candidate(key, murmur3::hash128(key.bytes()), true).unwrap(), Some(place));
                assert_eq!(found, Some(place));
                found = entries.next().unwrap();
            }
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn noise_is_refused_or_harmless() {
        let mut random = Random(1);
        for length in 0..400 {
            let mut bytes: Vec<u8> = (0..length).map(|_| random.number() as u8).collect();
            if length >= 60 {
                // A plausible footer makes the random bytes before it be walked.
                let keys = length as u64 - 28;
                bytes.truncate(length - 28);
                bytes.extend_from_slice(&[0; 4]);
                for number in [keys, 3, keys - 1] {
                    bytes.extend_from_slice(&number.to_be_bytes());
                }
            }
            let Ok(index) = open(&bytes) else { continue };
            let key = PartitionKey::new(b"key");
            let _ = index.candidate(&key, murmur3::hash128(key.bytes()), true);
            let Ok(mut entries) = index.entries(true) else { continue };
            let _ = entries.first();
            let _ = entries.next();
        }
    }
}
