//! An open SSTable: its files under one version of the table's schema, lookups of rows, and cursors over partitions.

mod ahead;
mod blocks;
mod cached_window;
mod cursor;
mod find;
mod find_rows;
mod forward;
mod partitions;
mod prefetch;
mod reversed;
mod stored;
mod waypoints;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockio::{Disk, DiskErrorKind, File, OpenOptions, ReadAhead};
use bytecomp::ClusteringColumnType;
use model::{ClusteringBound, KeyRange, PartitionKey, ReadRange, Side, Slices, Table};
use types::murmur3;

pub use blocks::ReadMode;
pub(crate) use blocks::{Checksums, DataFile, DataWindow, Layout};
pub use cursor::SSTableCursor;
pub use find::{PartitionHint, RowLookup, find_only_row};
pub use find_rows::{Edge, PartitionSlice, find_rows};
pub use prefetch::prefetch_hinted;

use crate::cache::BlockCache;
use crate::clustering::kind;
use crate::compression::CompressionInfo;
use crate::data::{Decoder, FileColumns};
use crate::descriptor::{Component, Descriptor, TEMPORARY};
use crate::error::{Corruption, SSTableError};
use crate::filter::BloomFilter;
use crate::index_file::IndexFile;
use crate::page_checksums::PageChecksums;
use crate::partition_index::{PartitionIndex, PartitionPosition};
use crate::row_index::{RowIndexEntry, clustering_types};
use crate::stats::{CoveredBound, PARTITIONER, Statistics};

/// A smaller range of Data.db is read at once, since there is nothing to overlap.
const READ_DIRECTLY_BYTES: u64 = 1 << 20;

/// Everything about a table that does not depend on the schema.
#[derive(Debug)]
pub(crate) struct Files {
    pub descriptor: Descriptor,
    pub statistics: Statistics,
    pub filter: Option<BloomFilter>,
    pub data: Arc<DataFile>,
    pub partitions: PartitionIndex,
    pub rows: Arc<IndexFile>,
    pub size_on_disk_bytes: u64,
    /// Whether a cursor found damage.
    pub damaged: AtomicBool,
}

/// The table's schema, and the mapping of the file's columns to it.
#[derive(Debug)]
pub(crate) struct View {
    pub table: Arc<Table>,
    pub columns: FileColumns,
    /// The types for encoding positions of rows.
    pub clustering: Vec<ClusteringColumnType>,
    /// The bounds between which all rows lie.
    covered: (ClusteringBound, ClusteringBound),
}

impl View {
    fn new(files: &Files, table: &Arc<Table>) -> Result<Arc<View>, SSTableError> {
        let name = files.descriptor.file_name(Component::Statistics);
        let columns = FileColumns::new(&name, &files.statistics.header, table)?;
        let stats = &files.statistics.stats;
        let covered = (covered_bound(&stats.covered_start), covered_bound(&stats.covered_end));
        Ok(Arc::new(View { table: table.clone(), columns, clustering: clustering_types(table), covered }))
    }
}

/// Prefix and weight.
fn place_of(bound: &ClusteringBound) -> (&[u8], i8) {
    (&bound.prefix, bound.side.weight())
}

fn covered_bound(covered: &CoveredBound) -> ClusteringBound {
    let side = if covered.kind < kind::CLUSTERING { Side::Before } else { Side::After };
    ClusteringBound::new(covered.prefix.clone(), side)
}

/// An open table. Cheap to clone; clones share files and memory. Reads take no locks except those of the cache.
#[derive(Clone, Debug)]
pub struct SSTableReader {
    files: Arc<Files>,
    view: Arc<View>,
}

/// The position of a partition of an open table.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub data_position: u64,
    pub index: Option<RowIndexEntry>,
}

/// The whole of a small file; `None` if it does not exist.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, SSTableError> {
    let file = match disk.open(path, OpenOptions::read()) {
        Ok(file) => file,
        Err(error) if error.kind() == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let length = file.len()?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

/// Opens a component that a table must have.
fn open_component(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    component: Component,
    cache: &BlockCache,
) -> Result<Box<dyn File>, SSTableError> {
    disk.open(&descriptor.path(component), cache.open_options()).map_err(|error| match error.kind() {
        DiskErrorKind::NotFound => {
            let name = descriptor.file_name(component);
            Corruption::new(&name, 0, "a component that every table has", "no such file").into()
        }
        _ => error.into(),
    })
}

/// Records damage and continues without the component; other errors stay errors.
fn tolerate<T>(result: Result<T, SSTableError>, damaged: &mut Vec<Corruption>) -> Result<Option<T>, SSTableError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(SSTableError::Corruption(corruption)) => {
            damaged.push(*corruption);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn read_checksums(disk: &dyn Disk, descriptor: &Descriptor) -> Result<Option<PageChecksums>, SSTableError> {
    match read_whole(disk, &descriptor.path(Component::Checksums))? {
        Some(bytes) => Ok(Some(PageChecksums::decode(&descriptor.file_name(Component::Checksums), &bytes)?)),
        None => Ok(None),
    }
}

/// Reads a small component and verifies it; `None` if it does not exist.
fn read_checked(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    component: Component,
    checksums: &PageChecksums,
) -> Result<Option<Vec<u8>>, SSTableError> {
    let bytes = read_whole(disk, &descriptor.path(component))?;
    if let (Some(bytes), Some(checksums)) = (&bytes, checksums.of(component)) {
        checksums.check(&descriptor.file_name(component), bytes)?;
    }
    Ok(bytes)
}

/// Fails unless all components exist with which the table was written.
fn check_presence(disk: &dyn Disk, descriptor: &Descriptor, checksums: &PageChecksums) -> Result<(), SSTableError> {
    let written = checksums.components().map(|component| (component, "a component that Checksums.db lists"));
    let listed = listed(disk, descriptor)?.into_iter().map(|component| (component, "a file listed in TOC.txt"));
    for (component, expected) in written.chain(listed) {
        if !disk.exists(&descriptor.path(component))? {
            return Err(Corruption::new(&descriptor.file_name(component), 0, expected, "no such file").into());
        }
    }
    Ok(())
}

fn open_filter(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    checksums: &PageChecksums,
) -> Result<Option<BloomFilter>, SSTableError> {
    match read_checked(disk, descriptor, Component::Filter, checksums)? {
        Some(bytes) => Ok(Some(BloomFilter::decode(&descriptor.file_name(Component::Filter), &bytes)?)),
        None => Ok(None),
    }
}

/// The tables of a directory that are complete (have a TOC.txt), oldest id first.
pub fn list_tables(disk: &dyn Disk, dir: &Path) -> Result<Vec<Descriptor>, SSTableError> {
    let mut tables = Vec::new();
    for entry in disk.list(dir)?.iter().filter(|entry| !entry.is_dir && !entry.name.ends_with(TEMPORARY)) {
        if let Some((id, component)) = Descriptor::parse_file_name(&entry.name)
            && Component::of_name(component) == Some(Component::Toc)
        {
            tables.push(Descriptor::new(dir, id));
        }
    }
    tables.sort();
    Ok(tables)
}

impl SSTableReader {
    /// Opens the table of a descriptor. Rows are read under `table`; blocks and index pages are read through `cache`.
    pub fn open(
        disk: &dyn Disk,
        descriptor: &Descriptor,
        table: &Arc<Table>,
        cache: &BlockCache,
    ) -> Result<SSTableReader, SSTableError> {
        let mut damaged = Vec::new();
        let opened = SSTableReader::open_damaged(disk, descriptor, table, cache, &mut damaged);
        let opened = opened.and_then(|reader| match damaged.into_iter().next() {
            Some(corruption) => Err(Box::new(corruption).into()),
            None => Ok(reader),
        });
        opened.map_err(|error| error.of_table(table))
    }

    /// Opens a table for reading in file order only, without reading its filter and indexes.
    pub(crate) fn open_for_scan(
        disk: &dyn Disk,
        descriptor: &Descriptor,
        table: &Arc<Table>,
        cache: &BlockCache,
    ) -> Result<SSTableReader, SSTableError> {
        let statistics = read_statistics(disk, descriptor)?;
        let data = open_data(disk, descriptor, &PageChecksums::default(), table.options.crc_check_chance, cache)?;
        let empty = |component| -> Result<Arc<IndexFile>, SSTableError> {
            let stand_in = open_component(disk, descriptor, Component::Data, cache)?;
            Ok(Arc::new(IndexFile::empty(descriptor.file_name(component), stand_in, cache.clone())))
        };
        let files = Files {
            descriptor: descriptor.clone(),
            statistics,
            filter: None,
            size_on_disk_bytes: data.file_length(),
            data: Arc::new(data),
            partitions: PartitionIndex::unreadable(empty(Component::Partitions)?),
            rows: empty(Component::Rows)?,
            damaged: AtomicBool::new(false),
        };
        let view = View::new(&files, table)?;
        Ok(SSTableReader { files: Arc::new(files), view })
    }

    /// Opens a table whose filter or indexes may be damaged: their damage is added to `damaged`, and they are treated
    /// as empty.
    pub(crate) fn open_damaged(
        disk: &dyn Disk,
        descriptor: &Descriptor,
        table: &Arc<Table>,
        cache: &BlockCache,
        damaged: &mut Vec<Corruption>,
    ) -> Result<SSTableReader, SSTableError> {
        let statistics = read_statistics(disk, descriptor)?;
        let name = |component| descriptor.file_name(component);
        let checksums = tolerate(read_checksums(disk, descriptor), damaged)?.flatten().unwrap_or_default();
        tolerate(check_presence(disk, descriptor, &checksums), damaged)?;
        let filter = tolerate(open_filter(disk, descriptor, &checksums), damaged)?.flatten();
        let data = open_data(disk, descriptor, &checksums, table.options.crc_check_chance, cache)?;
        if let Some(checksums) = checksums.of(Component::Data) {
            let whole = checksums.check_length(&name(Component::Data), data.file_length()).map_err(SSTableError::from);
            tolerate(whole, damaged)?;
        }
        let mut open_index = |component| -> Result<Arc<IndexFile>, SSTableError> {
            let opened = open_component(disk, descriptor, component, cache).and_then(|file| {
                IndexFile::new(name(component), file, cache.clone(), checksums.of(component).cloned())
            });
            let file = match tolerate(opened, damaged)? {
                Some(file) => file,
                None => {
                    let stand_in = open_component(disk, descriptor, Component::Data, cache)?;
                    IndexFile::empty(name(component), stand_in, cache.clone())
                }
            };
            Ok(Arc::new(file))
        };
        let partitions_file = open_index(Component::Partitions)?;
        let rows = open_index(Component::Rows)?;
        let size_on_disk_bytes = data.file_length() + partitions_file.length() + rows.length();
        let partitions = PartitionIndex::open(&name(Component::Partitions), partitions_file.clone());
        let partitions = tolerate(partitions, damaged)?.unwrap_or_else(|| PartitionIndex::unreadable(partitions_file));
        let files = Files {
            descriptor: descriptor.clone(),
            statistics,
            filter,
            data: Arc::new(data),
            partitions,
            rows,
            size_on_disk_bytes,
            damaged: AtomicBool::new(false),
        };
        let view = View::new(&files, table)?;
        Ok(SSTableReader { files: Arc::new(files), view })
    }

    /// The same open files, read under another version of the schema.
    pub fn with_table(&self, table: &Arc<Table>) -> Result<SSTableReader, SSTableError> {
        self.files.data.set_crc_check_chance(table.options.crc_check_chance);
        Ok(SSTableReader { files: self.files.clone(), view: View::new(&self.files, table)? })
    }

    /// Whether both are the same open files, under any schema.
    pub fn is_same(&self, other: &SSTableReader) -> bool {
        Arc::ptr_eq(&self.files, &other.files)
    }

    /// The unique number of these open files, which is the same under every version of the schema.
    pub fn number(&self) -> u64 {
        self.files.data.number()
    }

    /// Whether a read of these open files found damage.
    pub fn is_damaged(&self) -> bool {
        self.files.damaged.load(Ordering::Relaxed)
    }

    /// Adds the table's name to an error of a read, and records damage.
    fn record_error(&self, error: SSTableError) -> SSTableError {
        if matches!(error, SSTableError::Corruption(_)) {
            self.files.damaged.store(true, Ordering::Relaxed);
        }
        error.of_table(self.table())
    }

    /// The schema that rows are read under.
    pub fn table(&self) -> &Arc<Table> {
        &self.view.table
    }

    /// The table's descriptor.
    pub fn descriptor(&self) -> &Descriptor {
        &self.files.descriptor
    }

    /// The contents of Statistics.db.
    pub fn statistics(&self) -> &Statistics {
        &self.files.statistics
    }

    /// The first partition's key.
    pub fn first_key(&self) -> &PartitionKey {
        self.files.partitions.first_key()
    }

    /// The last partition's key.
    pub fn last_key(&self) -> &PartitionKey {
        self.files.partitions.last_key()
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> u64 {
        self.files.partitions.key_count()
    }

    /// Bytes of Data.db and the indexes on disk.
    pub fn size_on_disk_bytes(&self) -> u64 {
        self.files.size_on_disk_bytes
    }

    /// Bytes of the data before compression.
    pub fn data_length_bytes(&self) -> u64 {
        self.files.data.length
    }

    /// Bytes of the Bloom filter in memory.
    pub fn filter_bytes(&self) -> usize {
        self.files.filter.as_ref().map_or(0, BloomFilter::size_bytes)
    }

    /// Bytes of chunk offsets and checksums in memory.
    pub fn metadata_bytes(&self) -> usize {
        let indexes = self.files.partitions.memory_bytes() + self.files.rows.memory_bytes();
        indexes + self.files.data.metadata_bytes()
    }

    /// Bytes read from Data.db since the table was opened.
    pub fn data_bytes_read(&self) -> u64 {
        self.files.data.bytes_read()
    }

    /// Whether any partition of the range may be here, by the table's first and last key and its Bloom filter.
    pub fn may_contain(&self, keys: &KeyRange) -> bool {
        match keys {
            KeyRange::Single(key) => {
                self.first_key() <= key && key <= self.last_key() && self.filter_passes(murmur3::hash128(key.bytes()))
            }
            KeyRange::Range { start, end } => range_may_meet(start, end, self.first_key(), self.last_key()),
        }
    }

    /// Whether anything that `range` selects may be here: its partitions, and its rows by the clusterings that the
    /// table covers (unless a partition deletion or a static row could matter).
    pub fn may_match(&self, range: &ReadRange) -> bool {
        self.may_contain(&range.keys) && self.covers_rows(&range.slices)
    }

    fn covers_rows(&self, slices: &Slices) -> bool {
        slices.is_all()
            || self.counts_everywhere()
            || slices.as_slice().iter().any(|slice| self.covers_between(place_of(&slice.start), place_of(&slice.end)))
    }

    /// Whether the table's contents affect rows outside of the clusterings that it covers.
    fn counts_everywhere(&self) -> bool {
        let Statistics { stats, header, .. } = &self.files.statistics;
        stats.has_partition_level_deletions || !header.statics.is_empty()
    }

    /// Whether rows and deletions between two places (prefix and weight) are among those that the table covers.
    fn covers_between(&self, start: (&[u8], i8), end: (&[u8], i8)) -> bool {
        let compare = |place: (&[u8], i8), bound: &ClusteringBound| {
            let comparator = self.view.table.comparator();
            comparator.compare_positions(place.0, place.1, &bound.prefix, bound.side.weight())
        };
        // The covered rows lie between the bounds; a slice that only touches one of them shares no row.
        compare(start, &self.view.covered.1).is_lt() && compare(end, &self.view.covered.0).is_gt()
    }

    fn filter_passes(&self, hash: (u64, u64)) -> bool {
        self.files.filter.as_ref().is_none_or(|filter| filter.may_contain_hash(hash))
    }

    /// A cursor over what `range` selects, through the cache. It may wait for the device.
    pub fn cursor(&self, range: &ReadRange) -> Result<SSTableCursor, SSTableError> {
        self.cursor_with(range, ReadMode::Cached { may_block: true })
    }

    /// A cursor over everything, which prefetches and bypasses the cache.
    pub fn scan(&self) -> Result<SSTableCursor, SSTableError> {
        self.cursor_with(&ReadRange::all_rows(KeyRange::all()), ReadMode::Sequential)
    }

    /// Like [`scan`](Self::scan), for a merge. Data that is not in the kernel's page cache is prefetched and bypasses
    /// it, where the system allows that.
    pub fn scan_for_merge(&self, disk: &dyn Disk) -> Result<SSTableCursor, SSTableError> {
        let mut cursor = self.scan()?;
        if self.files.data.file_length() >= READ_DIRECTLY_BYTES {
            let path = self.files.descriptor.path(Component::Data);
            cursor.read_by(ReadAhead::new(disk.open(&path, OpenOptions::read().blocks())?));
        }
        Ok(cursor)
    }

    /// A cursor over what `range` selects, reading according to `mode`.
    pub fn cursor_with(&self, range: &ReadRange, mode: ReadMode) -> Result<SSTableCursor, SSTableError> {
        SSTableCursor::open(self.clone(), range, mode).map_err(|error| self.record_error(error))
    }

    /// Refuses to read under a schema that lacks a column of the file.
    pub(crate) fn check_columns(&self) -> Result<(), SSTableError> {
        match &self.view.columns.unknown {
            None => Ok(()),
            Some(what) => {
                let file = self.files.descriptor.file_name(Component::Statistics);
                Err(SSTableError::Unsupported { file, what: what.clone() })
            }
        }
    }

    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub(crate) fn clustering_types(&self) -> &[ClusteringColumnType] {
        &self.view.clustering
    }

    pub(crate) fn decoder(&self) -> Decoder<'_> {
        Decoder { base: self.files.statistics.header.base, columns: &self.view.columns, table: &self.view.table }
    }

    /// Finds a partition: Bloom filter, trie with its hash byte, then the key where it is stored.
    pub(crate) fn locate(&self, key: &PartitionKey, window: &mut DataWindow) -> Result<Option<Located>, SSTableError> {
        if key < self.first_key() || key > self.last_key() {
            return Ok(None);
        }
        let hash = murmur3::hash128(key.bytes());
        if !self.filter_passes(hash) {
            return Ok(None);
        }
        match self.files.partitions.candidate(key, hash, window.may_block())? {
            None => Ok(None),
            Some(PartitionPosition::Data(position)) => {
                let found = window.decode(position, |input| Ok(input.short_bytes("partition key")? == key.bytes()))?;
                Ok(found.then_some(Located { data_position: position, index: None }))
            }
            Some(PartitionPosition::Rows(position)) => {
                let entry = RowIndexEntry::read(&self.files.rows, position, window.may_block())?;
                let found = entry.key == key.bytes();
                Ok(found.then_some(Located { data_position: entry.data_position, index: Some(entry) }))
            }
        }
    }

    /// The row index of a partition, if it has one; this does not read the data.
    pub(crate) fn row_index(&self, key: &PartitionKey, may_block: bool) -> Result<Option<RowIndexEntry>, SSTableError> {
        if key < self.first_key() || key > self.last_key() {
            return Ok(None);
        }
        match self.files.partitions.candidate(key, murmur3::hash128(key.bytes()), may_block)? {
            Some(PartitionPosition::Rows(position)) => {
                let entry = RowIndexEntry::read(&self.files.rows, position, may_block)?;
                Ok((entry.key == key.bytes()).then_some(entry))
            }
            _ => Ok(None),
        }
    }
}

impl Files {
    /// Data position of the partition at a place of the index.
    pub fn data_position(&self, place: PartitionPosition, may_block: bool) -> Result<u64, SSTableError> {
        match place {
            PartitionPosition::Data(position) => Ok(position),
            PartitionPosition::Rows(position) => {
                Ok(RowIndexEntry::read(&self.rows, position, may_block)?.data_position)
            }
        }
    }

    /// Data position of the partition at a place of the index, and its record if it has a row index.
    pub fn entry(&self, place: PartitionPosition) -> Result<(u64, Option<RowIndexEntry>), SSTableError> {
        match place {
            PartitionPosition::Data(position) => Ok((position, None)),
            PartitionPosition::Rows(position) => {
                let entry = RowIndexEntry::read(&self.rows, position, true)?;
                Ok((entry.data_position, Some(entry)))
            }
        }
    }
}

fn range_may_meet(start: &model::KeyBound, end: &model::KeyBound, first: &PartitionKey, last: &PartitionKey) -> bool {
    let whole = |start: &model::KeyBound, end: &model::KeyBound, key: &PartitionKey| {
        KeyRange::Range { start: start.clone(), end: end.clone() }.contains(key)
    };
    whole(start, &model::KeyBound::Unbounded, last) && whole(&model::KeyBound::Unbounded, end, first)
}

/// Reads the Statistics.db of a table without opening the rest.
pub fn read_statistics(disk: &dyn Disk, descriptor: &Descriptor) -> Result<Statistics, SSTableError> {
    let name = descriptor.file_name(Component::Statistics);
    let bytes = read_whole(disk, &descriptor.path(Component::Statistics))?
        .ok_or_else(|| Corruption::new(&name, 0, "a Statistics.db", "no such file"))?;
    let statistics = Statistics::decode_version(descriptor.version, &name, &bytes)?;
    if statistics.partitioner != PARTITIONER {
        let what = format!("partitioner {}", statistics.partitioner);
        return Err(SSTableError::Unsupported { file: name, what });
    }
    Ok(statistics)
}

fn open_data(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    sums: &PageChecksums,
    crc_check_chance: f64,
    cache: &BlockCache,
) -> Result<DataFile, SSTableError> {
    let name = |component| descriptor.file_name(component);
    let layout = match read_checked(disk, descriptor, Component::CompressionInfo, sums)? {
        Some(bytes) => Layout::Compressed(CompressionInfo::decode(&name(Component::CompressionInfo), &bytes)?),
        None => {
            if listed(disk, descriptor)?.contains(&Component::CompressionInfo) {
                let missing =
                    Corruption::new(&name(Component::CompressionInfo), 0, "a file listed in TOC.txt", "no such file");
                return Err(missing.into());
            }
            let checksums = read_checked(disk, descriptor, Component::Crc, sums)?;
            Layout::Plain(checksums.map(|bytes| Checksums::decode(&name(Component::Crc), &bytes)).transpose()?)
        }
    };
    let file = open_component(disk, descriptor, Component::Data, cache)?;
    DataFile::new(name(Component::Data), file, layout, crc_check_chance, cache.clone())
}

/// The components that TOC.txt lists; empty if there is no TOC.txt.
pub(crate) fn listed(disk: &dyn Disk, descriptor: &Descriptor) -> Result<Vec<Component>, SSTableError> {
    let bytes = read_whole(disk, &descriptor.path(Component::Toc))?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(|line| Component::of_name(line.trim())).collect())
}
