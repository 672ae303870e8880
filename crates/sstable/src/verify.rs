//! Verification of a table: quick (checksums of files and statistics) and extended (data, and indexes against data).

use std::sync::Arc;

use blockio::Disk;
use model::{DeletionTime, PartitionKey, Table, Unfiltered, UnfilteredCursor};
use types::murmur3;

use crate::big::{BigIndex, open_big};
use crate::cache::BlockCache;
use crate::descriptor::{Component, Descriptor};
use crate::error::{Corruption, SSTableError};
use crate::index_file::ReadPages;
use crate::partition_index::{PartitionPosition, hash_byte_of};
use crate::reader::{SSTableCursor, SSTableReader, listed, read_whole};
use crate::row_index::{Block, FileBlocks, RowIndexEntry, encode_position};

/// The memory for index pages during a verification.
const CACHE_BYTES: u64 = 4 << 20;
/// How many bytes of Data.db are checked against the digest at a time.
const DIGEST_READ_BYTES: usize = 256 * 1024;

/// The contents of a sound table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Partitions walked (extended) or counted in the index.
    pub partitions: u64,
    /// Rows walked; zero unless extended.
    pub rows: u64,
    /// Range tombstone markers walked; zero unless extended.
    pub markers: u64,
}

/// Verifies the table of a descriptor; the first damage found is the error.
///
/// Quick: every component that TOC.txt lists exists and can be parsed, Data.db has its digest, and statistics and index
/// agree on first and last key. Extended: also every partition, row and cell decodes and is in order, the partition
/// index and the row indexes lead to exactly what is there, and the Bloom filter passes every key.
pub fn verify(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    table: &Arc<Table>,
    extended: bool,
) -> Result<Verified, SSTableError> {
    for component in listed(disk, descriptor)? {
        if !disk.exists(&descriptor.path(component))? {
            let name = descriptor.file_name(component);
            return Err(Corruption::new(&name, 0, "a file listed in TOC.txt", "no such file").into());
        }
    }
    if descriptor.is_big() {
        let reader = open_big(disk, descriptor, table)?;
        verify_digest(disk, &reader)?;
        return Walk::new(&reader)?.run_big(BigIndex::open(disk, descriptor)?);
    }
    let reader = SSTableReader::open(disk, descriptor, table, &BlockCache::new(CACHE_BYTES))?;
    verify_digest(disk, &reader)?;
    verify_keys(&reader)?;
    if !extended {
        return Ok(Verified { partitions: reader.partition_count(), ..Verified::default() });
    }
    Walk::new(&reader)?.run()
}

fn verify_digest(disk: &dyn Disk, reader: &SSTableReader) -> Result<(), SSTableError> {
    let descriptor = reader.descriptor();
    let Some(stored) = read_whole(disk, &descriptor.path(Component::Digest))? else { return Ok(()) };
    let data = &reader.files().data;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; DIGEST_READ_BYTES];
    let mut position = 0;
    loop {
        let read = data.file().read_at(&mut buffer, position)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        position += read as u64;
    }
    let computed = hasher.finalize().to_string();
    if stored == computed.as_bytes() {
        return Ok(());
    }
    let expected = format!("digest {}", String::from_utf8_lossy(&stored));
    Err(Corruption::new(&data.name, 0, expected, computed).into())
}

fn verify_keys(reader: &SSTableReader) -> Result<(), SSTableError> {
    let name = reader.descriptor().file_name(Component::Statistics);
    let stats = &reader.statistics().stats;
    for (stored, key) in [(&stats.first_key, reader.first_key()), (&stats.last_key, reader.last_key())] {
        if stored != key.bytes() {
            let (expected, got) = (format!("key {:02x?} as in Partitions.db", key.bytes()), format!("{stored:02x?}"));
            return Err(Corruption::new(&name, 0, expected, got).into());
        }
    }
    Ok(())
}

/// A walk over all data together with the indexes.
struct Walk<'r> {
    reader: &'r SSTableReader,
    data: SSTableCursor,
    partitions_name: String,
    verified: Verified,
}

impl<'r> Walk<'r> {
    fn new(reader: &'r SSTableReader) -> Result<Self, SSTableError> {
        let partitions_name = reader.descriptor().file_name(Component::Partitions);
        Ok(Walk { reader, data: reader.scan()?, partitions_name, verified: Verified::default() })
    }

    fn index_error(&self, offset: u64, expected: String, got: String) -> SSTableError {
        Corruption::new(&self.partitions_name, offset, expected, got).into()
    }

    fn run(mut self) -> Result<Verified, SSTableError> {
        let files = self.reader.files().clone();
        let mut entries = files.partitions.entries(true)?;
        let mut place = entries.first()?;
        while self.data.advance_partition()? {
            let position = self.data.partition_position();
            let Some(found) = place else {
                let got = format!("the end after {} entries", self.verified.partitions);
                return Err(self.index_error(0, format!("an entry for the partition at {position}"), got));
            };
            let key = self.data.partition().key.clone();
            self.verified.partitions += 1;
            if entries.hash_byte().is_some_and(|hash| hash != hash_byte_of(key.bytes())) {
                return Err(self.index_error(0, format!("the hash of key {:02x?}", key.bytes()), "another".into()));
            }
            if files.partitions.candidate(&key, murmur3::hash128(key.bytes()), true)? != Some(found) {
                let got = "no or another entry".to_owned();
                return Err(self.index_error(0, format!("an entry on the path of key {:02x?}", key.bytes()), got));
            }
            if files.filter.as_ref().is_some_and(|filter| !filter.may_contain(key.bytes())) {
                let name = self.reader.descriptor().file_name(Component::Filter);
                return Err(
                    Corruption::new(&name, 0, format!("key {:02x?}", key.bytes()), "a filter without it").into()
                );
            }
            let entry = self.entry(found, position)?;
            self.rows(entry)?;
            place = entries.next()?;
        }
        if place.is_some() || self.verified.partitions != self.reader.partition_count() {
            let expected = format!("{} partitions as in the data", self.verified.partitions);
            return Err(self.index_error(0, expected, format!("{} announced", self.reader.partition_count())));
        }
        Ok(self.verified)
    }

    /// Walks a `big` table, with its index if it has one.
    fn run_big(mut self, mut index: Option<BigIndex>) -> Result<Verified, SSTableError> {
        let stats = &self.reader.statistics().stats;
        let mut last = None;
        while self.data.advance_partition()? {
            let position = self.data.partition_position();
            let key = self.data.partition().key.clone();
            if self.verified.partitions == 0 && self.has_key_bounds() {
                self.check_key_bound(&stats.first_key, &key)?;
            }
            self.verified.partitions += 1;
            if let Some(index) = &mut index {
                check_big_entry(index, &key, position)?;
            }
            self.rows(None)?;
            last = Some(key);
        }
        if let Some(index) = &mut index
            && let Some(entry) = index.next()?
        {
            let got = format!("another entry, for the key {:02x?}", entry.key);
            return Err(index.damaged(entry.offset, "the end after the last partition's entry".into(), got));
        }
        if let Some(last) = last.filter(|_| self.has_key_bounds()) {
            self.check_key_bound(&stats.last_key, &last)?;
        }
        Ok(self.verified)
    }

    /// Whether Statistics.db has the first and the last key, which it does not before `oa`.
    fn has_key_bounds(&self) -> bool {
        !self.reader.statistics().stats.first_key.is_empty()
    }

    fn check_key_bound(&self, stored: &[u8], key: &PartitionKey) -> Result<(), SSTableError> {
        if stored == key.bytes() {
            return Ok(());
        }
        let name = self.reader.descriptor().file_name(Component::Statistics);
        let (expected, got) = (format!("key {:02x?} as in Data.db", key.bytes()), format!("{stored:02x?}"));
        Err(Corruption::new(&name, 0, expected, got).into())
    }

    /// The row index entry of the current partition, if its place says that there is one.
    fn entry(&self, place: PartitionPosition, position: u64) -> Result<Option<RowIndexEntry>, SSTableError> {
        match place {
            PartitionPosition::Data(found) if found == position => Ok(None),
            PartitionPosition::Data(found) => {
                Err(self.index_error(0, format!("data position {position}"), format!("data position {found}")))
            }
            PartitionPosition::Rows(at) => {
                let entry = RowIndexEntry::read(&self.reader.files().rows, at, true)?;
                let head = self.data.partition();
                let same =
                    entry.key == head.key.bytes() && entry.data_position == position && entry.deletion == head.deletion;
                if same {
                    return Ok(Some(entry));
                }
                let name = self.reader.descriptor().file_name(Component::Rows);
                let expected = format!("key, deletion and position of the partition at {position}");
                Err(Corruption::new(&name, at, expected, format!("{entry:?}")).into())
            }
        }
    }

    /// Walks the rows of the current partition together with its blocks.
    fn rows(&mut self, entry: Option<RowIndexEntry>) -> Result<(), SSTableError> {
        let start = self.data.partition_position();
        let mut blocks = match &entry {
            Some(entry) => Some(BlockWalk::new(self.reader, entry)?),
            None => None,
        };
        let mut open = DeletionTime::LIVE;
        let mut last: Option<(Vec<u8>, i8)> = None;
        while self.data.advance()? {
            let (prefix, weight, after) = match self.data.unfiltered() {
                Unfiltered::Row(row) => (row.clustering, 0, open),
                Unfiltered::Marker(marker) => {
                    (marker.prefix, if marker.side == model::Side::Before { -1 } else { 1 }, marker.after)
                }
            };
            let position = self.data.item_position();
            if let Some((last_prefix, last_weight)) = &last {
                let order =
                    self.reader.table().comparator().compare_positions(last_prefix, *last_weight, prefix, weight);
                if order != std::cmp::Ordering::Less {
                    let name = &self.reader.files().data.name;
                    return Err(Corruption::new(name, position, "rows in clustering order", "one out of order").into());
                }
            }
            if let Some(blocks) = &mut blocks {
                blocks.meet(position - start, open, prefix, weight)?;
            }
            match weight {
                0 => self.verified.rows += 1,
                _ => self.verified.markers += 1,
            }
            let (prefix_kept, _) = last.get_or_insert_default();
            prefix_kept.clear();
            prefix_kept.extend_from_slice(prefix);
            last.as_mut().expect("just set").1 = weight;
            open = after;
        }
        if !open.is_live() {
            let name = &self.reader.files().data.name;
            let position = self.data.next_position();
            return Err(Corruption::new(name, position, "every range deletion closed", format!("{open:?}")).into());
        }
        match blocks {
            Some(blocks) => blocks.end(self.data.next_position() - start),
            None => Ok(()),
        }
    }
}

/// Checks that the index's next entry is that of the partition at a data position.
fn check_big_entry(index: &mut BigIndex, key: &PartitionKey, position: u64) -> Result<(), SSTableError> {
    let expected = || format!("an entry of key {:02x?} for the partition at {position}", key.bytes());
    let at = index.position();
    match index.next()? {
        Some(entry) if entry.key == key.bytes() && entry.data_position == position => Ok(()),
        Some(entry) => {
            let got = format!("one of key {:02x?} for {}", entry.key, entry.data_position);
            Err(index.damaged(entry.offset, expected(), got))
        }
        None => Err(index.damaged(at, expected(), "the end of the file".into())),
    }
}

/// The blocks of one partition, compared with its rows.
struct BlockWalk<'r> {
    name: String,
    types: &'r [bytecomp::ClusteringColumnType],
    blocks: FileBlocks,
    /// A second cursor for look-ups, so that the walk keeps its place.
    floor: FileBlocks,
    current: Option<Block>,
    next: Option<Block>,
    seen: u64,
    entry: &'r RowIndexEntry,
    encoded: Vec<u8>,
}

impl<'r> BlockWalk<'r> {
    fn new(reader: &'r SSTableReader, entry: &'r RowIndexEntry) -> Result<Self, SSTableError> {
        let rows = ReadPages { file: reader.files().rows.clone(), may_block: true };
        let mut blocks = FileBlocks::new(rows.clone(), entry.root)?;
        let next = blocks.first()?;
        Ok(BlockWalk {
            name: reader.descriptor().file_name(Component::Rows),
            types: reader.clustering_types(),
            blocks,
            floor: FileBlocks::new(rows.clone(), entry.root)?,
            current: None,
            next,
            seen: 0,
            entry,
            encoded: Vec::new(),
        })
    }

    fn error(&self, expected: String, got: String) -> SSTableError {
        Corruption::new(&self.name, self.entry.root, expected, got).into()
    }

    /// Checks an unfiltered at `offset`, before which `open` is in force.
    fn meet(&mut self, offset: u64, open: DeletionTime, prefix: &[u8], weight: i8) -> Result<(), SSTableError> {
        if let Some(next) = self.next
            && next.offset <= offset
        {
            if next.offset != offset || next.open != open {
                return Err(self.error(format!("a block at {offset} with {open:?} open"), format!("{next:?}")));
            }
            self.current = Some(next);
            self.seen += 1;
            self.next = self.blocks.next()?;
        }
        self.encoded.clear();
        encode_position(self.types, prefix, weight, &mut self.encoded);
        let found = self.floor.floor(&self.encoded)?.map(|block| block.offset);
        let expected = self.current.map(|block| block.offset);
        if found.is_none() || found != expected {
            return Err(self.error(format!("the row at {offset} in the block at {expected:?}"), format!("{found:?}")));
        }
        Ok(())
    }

    /// Checks the end of the partition at `offset`.
    fn end(mut self, offset: u64) -> Result<(), SSTableError> {
        let is_end = self.next.is_some_and(|next| next.offset == offset && next.open.is_live());
        if !is_end || self.seen != self.entry.block_count || self.blocks.next()?.is_some() {
            let expected = format!("{} blocks and an end entry for {offset}", self.seen);
            return Err(self.error(expected, format!("{} blocks, {:?}", self.entry.block_count, self.next)));
        }
        Ok(())
    }
}
