//! Rows.db: for each large partition a trie of separators between blocks of rows, followed by a record.

use std::sync::Arc;

use bytecomp::ClusteringColumnType;
use bytecomp::separator::{GT_NEXT_COMPONENT, LT_NEXT_COMPONENT, TERMINATOR, write_separator_after};
use model::{DeletionTime, Table};
use types::vint;

use crate::cache::NotCached;
use crate::data::{read_deletion, write_deletion};
use crate::error::{Decoded, SSTableError};
use crate::index_file::{CachedPages, IndexFile, ReadPages};
use crate::input::Input;
use crate::trie::{EntryCursor, PAGE_SIZE, Pages, Payload, TrieBuilder, read_sized, sized_length};

/// Payload bit: a range deletion is open at the start of the block.
const OPEN_MARKER: u8 = 8;
/// Payload bits that give the length of the offset.
const OFFSET_LENGTH: u8 = 7;
/// Longest part of a record after the key: three vints and a deletion.
const RECORD_TAIL_MAX: usize = 3 * vint::VINT_SIZE_MAX + 12;

/// The clustering columns of a table, in the form of the byte-comparable encoder.
pub(crate) fn clustering_types(table: &Table) -> Vec<ClusteringColumnType> {
    let column =
        |column: &Arc<model::Column>| ClusteringColumnType { cql_type: column.ty.clone(), reversed: column.reversed };
    table.clustering().iter().map(column).collect()
}

/// Appends the byte-comparable form of a position: a prefix with a weight of -1 (before), 0 (the row), 1 (after).
pub(crate) fn encode_position(types: &[ClusteringColumnType], prefix: &[u8], weight: i8, out: &mut Vec<u8>) {
    let terminator = match weight {
        -1 => LT_NEXT_COMPONENT,
        0 => TERMINATOR,
        _ => GT_NEXT_COMPONENT,
    };
    bytecomp::encode_serialized_clustering(types, prefix, terminator, out);
}

/// A block of rows in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Start relative to the partition.
    pub offset: u64,
    /// The range deletion in force before its first row or marker.
    pub open: DeletionTime,
}

/// Takes blocks partition by partition and produces the bytes of Rows.db.
pub(crate) struct RowIndexWriter {
    types: Vec<ClusteringColumnType>,
    trie: TrieBuilder,
    block_count: u64,
    /// Last position of the block added last, encoded.
    last: Vec<u8>,
    /// Separator before that block.
    separator: Vec<u8>,
    encoded: Vec<u8>,
}

impl RowIndexWriter {
    pub fn new(table: &Table) -> Self {
        RowIndexWriter {
            types: clustering_types(table),
            trie: TrieBuilder::new(0),
            block_count: 0,
            last: Vec::new(),
            separator: Vec::new(),
            encoded: Vec::new(),
        }
    }

    pub fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Adds a block, given the positions (prefix and weight) of its first and last row or marker.
    pub fn add(&mut self, block: Block, first: (&[u8], i8), last: (&[u8], i8)) -> Result<(), SSTableError> {
        self.separator.clear();
        if self.block_count > 0 {
            self.encoded.clear();
            encode_position(&self.types, first.0, first.1, &mut self.encoded);
            if self.encoded <= self.last {
                return Err(SSTableError::Unwritable { what: "rows that are not in clustering order".into() });
            }
            write_separator_after(&self.last, &self.encoded, &mut self.separator);
        }
        let payload = Self::payload(block)?;
        self.trie.add(&self.separator, payload);
        self.last.clear();
        encode_position(&self.types, last.0, last.1, &mut self.last);
        self.block_count += 1;
        Ok(())
    }

    fn payload(block: Block) -> Result<Payload, SSTableError> {
        let offset = block.offset as i64;
        let size = sized_length(offset);
        let mut payload = Payload::new(size as u8 | if block.open.is_live() { 0 } else { OPEN_MARKER });
        payload.push_sized(offset, size);
        if !block.open.is_live() {
            let mut deletion = Vec::with_capacity(12);
            write_deletion(block.open, &mut deletion)?;
            payload.push(&deletion);
        }
        Ok(payload)
    }

    /// Ends a partition. Returns the position of its record, if it has enough blocks for one. `end` is the offset of
    /// the end-of-partition byte.
    pub fn finish_partition(
        &mut self,
        key: &[u8],
        data_position: u64,
        deletion: DeletionTime,
        end: u64,
    ) -> Result<Option<u64>, SSTableError> {
        let block_count = std::mem::take(&mut self.block_count);
        if block_count < 2 {
            if block_count > 0 {
                self.trie.abandon();
            }
            return Ok(None);
        }
        let end_payload = Self::payload(Block { offset: end, open: DeletionTime::LIVE })?;
        self.trie.add(&self.key_after_all(), end_payload);
        let root = self.trie.complete();
        let position = self.trie.position();
        let out = self.trie.bytes();
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(key);
        let base = position + 2 + key.len() as u64;
        vint::write_uvint(data_position, out);
        vint::write_svint(root as i64 - base as i64, out);
        vint::write_uvint(block_count, out);
        write_deletion(deletion, out)?;
        Ok(Some(position))
    }

    /// The shortest key above the last position of the partition and its last separator.
    fn key_after_all(&self) -> Vec<u8> {
        let common = self.last.iter().zip(&self.separator).take_while(|(a, b)| a == b).count();
        let mut key = self.last[..common].to_vec();
        for byte in &self.last[common..] {
            match byte.checked_add(1) {
                Some(next) => {
                    key.push(next);
                    break;
                }
                None => key.push(*byte),
            }
        }
        key
    }

    /// Bytes that are ready.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        self.trie.drain(out);
    }
}

/// The record of an indexed partition, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedPartition {
    /// Where the partition starts in the data.
    pub data_position: u64,
    /// Root of its trie.
    pub root: u64,
    pub block_count: u64,
    /// The partition's deletion.
    pub deletion: DeletionTime,
}

impl IndexedPartition {
    /// The record at `position`, if it is that of `key` and the cache has it in one page. `None` if it is another
    /// key's.
    pub fn of_cached(file: &IndexFile, position: u64, key: &[u8]) -> Result<Option<Self>, NotCached> {
        let page = CachedPages(file).page(position / PAGE_SIZE as u64)?;
        let bytes = page.get((position % PAGE_SIZE as u64) as usize..).ok_or(NotCached)?;
        let (found, record) = Self::parse(file.name(), position, bytes)?;
        Ok((found == key).then_some(record))
    }

    /// Reads key and record.
    fn parse<'b>(file: &'b str, position: u64, bytes: &'b [u8]) -> Decoded<(&'b [u8], Self)> {
        let mut input = Input::new(file, position, bytes);
        let key = input.short_bytes("partition key")?;
        let base = input.offset();
        let data_position = input.uvint("data position")?;
        let root =
            input.svint("root distance")?.checked_add_unsigned(base).filter(|root| (0..base as i64).contains(root));
        let root = root.ok_or_else(|| input.damaged("a root before the record", "another position"))? as u64;
        let block_count = input.uvint("block count")?;
        let deletion = read_deletion(&mut input)?;
        Ok((key, IndexedPartition { data_position, root, block_count, deletion }))
    }
}

/// The record of an indexed partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowIndexEntry {
    /// Serialized partition key.
    pub key: Vec<u8>,
    /// Where the partition starts in the data.
    pub data_position: u64,
    /// Root of its trie.
    pub root: u64,
    pub block_count: u64,
    /// The partition's deletion.
    pub deletion: DeletionTime,
}

impl RowIndexEntry {
    /// Reads the record at `position`.
    pub fn read(file: &IndexFile, position: u64, may_block: bool) -> Result<Self, SSTableError> {
        // Most records lie within a page.
        let page = file.block(position / PAGE_SIZE as u64, may_block)?;
        let bytes = page.get((position % PAGE_SIZE as u64) as usize..).unwrap_or_default();
        match Self::parse(file.name(), position, bytes) {
            Err(corruption) if corruption.short => {}
            parsed => return Ok(parsed?),
        }
        let head = file.read(position, 2, may_block)?;
        let key_length = usize::from(Input::new(file.name(), position, &head).u16("key length")?);
        let bytes = file.read(position, 2 + key_length + RECORD_TAIL_MAX, may_block)?;
        Ok(Self::parse(file.name(), position, &bytes)?)
    }

    fn parse(file: &str, position: u64, bytes: &[u8]) -> Decoded<Self> {
        let (key, record) = IndexedPartition::parse(file, position, bytes)?;
        let IndexedPartition { data_position, root, block_count, deletion } = record;
        Ok(RowIndexEntry { key: key.to_vec(), data_position, root, block_count, deletion })
    }
}

/// Moves over the blocks of one partition.
pub(crate) struct BlockCursor<P: Pages> {
    cursor: EntryCursor<P>,
}

/// A cursor that owns its file.
pub(crate) type FileBlocks = BlockCursor<ReadPages<Arc<IndexFile>>>;

impl<P: Pages> BlockCursor<P> {
    pub fn new(pages: P, root: u64) -> Result<Self, P::Error> {
        Ok(BlockCursor { cursor: EntryCursor::new(pages, root)? })
    }

    fn block(&self, found: bool) -> Result<Option<Block>, P::Error> {
        if !found {
            return Ok(None);
        }
        let (bits, bytes) = self.cursor.payload();
        let mut input = Input::new(self.cursor.file(), self.cursor.position(), bytes);
        let length = usize::from(bits & OFFSET_LENGTH);
        let offset = read_sized(input.take(length, "block offset")?);
        if offset < 0 {
            return Err(input.damaged("a block offset", offset.to_string()).into());
        }
        let open = if bits & OPEN_MARKER != 0 { read_deletion(&mut input)? } else { DeletionTime::LIVE };
        Ok(Some(Block { offset: offset as u64, open }))
    }

    pub fn first(&mut self) -> Result<Option<Block>, P::Error> {
        let found = self.cursor.seek_first()?;
        self.block(found)
    }

    /// The entry after the last block, whose offset is that of the end-of-partition byte.
    pub fn end(&mut self) -> Result<Option<Block>, P::Error> {
        let found = self.cursor.seek_last()?;
        self.block(found)
    }

    /// The block that contains an encoded position; the end entry for a position after all blocks.
    pub fn floor(&mut self, encoded: &[u8]) -> Result<Option<Block>, P::Error> {
        let found = self.cursor.seek_floor(encoded)?;
        self.block(found)
    }

    pub fn next(&mut self) -> Result<Option<Block>, P::Error> {
        let found = self.cursor.next()?;
        self.block(found)
    }

    pub fn previous(&mut self) -> Result<Option<Block>, P::Error> {
        let found = self.cursor.previous()?;
        self.block(found)
    }
}

#[cfg(test)]
mod tests {
    use blockio::{Disk, OpenOptions, SystemDisk};
    use model::{TableBuilder, TableId, push_component};
    use types::CqlType;
    use uuid::Uuid;

    use super::*;
    use crate::cache::BlockCache;

    fn prefix(row: i64) -> Vec<u8> {
        let mut prefix = Vec::new();
        push_component(Some(&row.to_be_bytes()), &mut prefix);
        prefix
    }

    /// Offsets of blocks near the powers of two where one needs another byte, every other one with an open deletion.
    fn blocks() -> Vec<Block> {
        let bits = [7, 8, 15, 16, 23, 24, 31, 32, 39, 40, 47];
        let offsets = bits.into_iter().flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let open = |number| if number % 2 == 0 { DeletionTime::LIVE } else { DeletionTime::new(number, 5) };
        offsets.zip(0_i64..).map(|(offset, number)| Block { offset, open: open(number) }).collect()
    }

    #[test]
    fn blocks_of_a_huge_partition_behind_four_gigabytes_of_index_are_found() {
        let path = std::env::temp_dir().join(format!("espalier-sstable-{}-Rows.db", std::process::id()));
        let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil()));
        let table = builder.partition_key("p", CqlType::Int).clustering("c", CqlType::Bigint, false).build();
        let (end, data_position) = ((1 << 48) + 9, (1 << 33) + 1);
        for start in [(1_u64 << 31) - 4096, (1 << 32) - 4096, 5 << 30] {
            let mut writer = RowIndexWriter { trie: TrieBuilder::new(start), ..RowIndexWriter::new(&table) };
            // Block n has the rows 10 n to 10 n + 5.
            for (block, row) in blocks().into_iter().zip((0..).step_by(10)) {
                writer.add(block, (&prefix(row), 0), (&prefix(row + 5), 0)).unwrap();
            }
            let record = writer.finish_partition(b"key", data_position, DeletionTime::LIVE, end).unwrap().unwrap();
            let mut bytes = Vec::new();
            writer.drain(&mut bytes);
            let file = SystemDisk::new().open(&path, OpenOptions::create()).unwrap();
            file.write_at(&bytes, start).unwrap();
            let file = Arc::new(IndexFile::new("Rows.db".into(), file, BlockCache::new(1 << 20), None).unwrap());
            let entry = RowIndexEntry::read(&file, record, true).unwrap();
            assert!(entry.root >= start);
            assert_eq!((&entry.key[..], entry.data_position), (&b"key"[..], data_position));
            let mut cursor = BlockCursor::new(file.pages(true), entry.root).unwrap();
            for (block, row) in blocks().into_iter().zip((0..).step_by(10)) {
                let mut encoded = Vec::new();
                encode_position(&clustering_types(&table), &prefix(row + 3), 0, &mut encoded);
                let found = cursor.floor(&encoded).unwrap().unwrap();
                assert_eq!((found.offset, found.open), (block.offset, block.open));
            }
            assert_eq!(cursor.end().unwrap().unwrap().offset, end);
        }
        std::fs::remove_file(path).unwrap();
    }
}
