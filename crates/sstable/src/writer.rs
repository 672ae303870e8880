//! Writing a table: partitions in token order, every component, all or nothing.

mod data;
mod options;
mod pending;
mod sizes;

use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use model::{
    DeletionTime, PartitionHead, PartitionKey, Row, RowReservation, StoredRow, Table, Unfiltered, UnfilteredCursor,
};
use types::murmur3;

pub use options::{COLUMN_INDEX_SIZE_DEFAULT, WriterOptions};
pub use sizes::{Oversize, SizeHook, SizeKind, SizeLimits, SizeWatch};

use crate::data::{Encoder, flag, write_deletion};
use crate::descriptor::{Component, Descriptor};
use crate::error::SSTableError;
use crate::filter::BloomFilterBuilder;
use crate::new_files::{NewFiles, PreparedSSTable};
use crate::page_checksums::{ComponentChecksums, PageChecksums, PageHasher};
use crate::partition_index::{PartitionIndexWriter, PartitionPosition};
use crate::row_index::{Block, RowIndexWriter};
use crate::stats::{PARTITIONER, Position, SerializationHeader, Statistics, StatsCollector};
use data::DataOut;
use sizes::Sizes;

/// Index bytes are written to the disk in pieces of about this size.
const INDEX_WRITE_BYTES: usize = 64 * 1024;

/// A row is encoded into a buffer of its own, and then collected for the device.
const WRITTEN_COPIES: usize = 2;

/// An index file being written.
struct IndexOut {
    file: Box<dyn File>,
    pending: Vec<u8>,
    position: u64,
    checksums: PageHasher,
}

impl IndexOut {
    fn new(file: Box<dyn File>) -> Self {
        IndexOut { file, pending: Vec::new(), position: 0, checksums: PageHasher::default() }
    }

    fn flush(&mut self, least: usize) -> Result<(), SSTableError> {
        if self.pending.len() >= least {
            self.file.write_at(&self.pending, self.position)?;
            self.checksums.update(&self.pending);
            self.position += self.pending.len() as u64;
            self.pending.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ComponentChecksums, SSTableError> {
        self.flush(0)?;
        self.file.sync_data()?;
        Ok(self.checksums.finish())
    }
}

/// The partition being written, or the one written last. It is updated in place: moving it would make the processor
/// wait until the previous rows are written to memory.
struct CurrentPartition {
    is_open: bool,
    key: PartitionKey,
    deletion: DeletionTime,
    /// Data position.
    start: u64,
    /// The offset, relative to the partition, of the last unfiltered, or zero.
    previous_start: u64,
    has_rows: bool,
    /// The range deletion in force.
    open: DeletionTime,
    block: Option<Block>,
}

impl CurrentPartition {
    fn none() -> Self {
        CurrentPartition {
            is_open: false,
            key: PartitionKey::new(b""),
            deletion: DeletionTime::LIVE,
            start: 0,
            previous_start: 0,
            has_rows: false,
            open: DeletionTime::LIVE,
            block: None,
        }
    }

    fn begin(&mut self, head: &PartitionHead<'_>, start: u64) {
        self.key.clone_from(head.key);
        (self.deletion, self.start, self.previous_start) = (head.deletion, start, 0);
        (self.has_rows, self.open, self.block) = (false, DeletionTime::LIVE, None);
        self.is_open = true;
    }
}

/// An unfiltered being written.
#[derive(Clone, Copy)]
struct UnfilteredStart {
    /// Offset, relative to the partition.
    offset: u64,
    /// The distance from the previous unfiltered, or from the partition's start.
    previous_size: u64,
}

/// The positions of unfiltereds in the open partition. The buffers are reused for all partitions.
#[derive(Default)]
struct Positions {
    first: Position,
    last: Position,
    block_first: Position,
}

/// Writes one table. If it is dropped before [`SSTableWriter::finish`], it removes what it wrote.
pub struct SSTableWriter {
    /// These are closed before `new_files` are removed.
    files: Option<OpenFiles>,
    new_files: NewFiles,
    table: Arc<Table>,
    options: WriterOptions,
    header: SerializationHeader,
    encoder: Encoder,
    stats: StatsCollector,
    filter: Option<BloomFilterBuilder>,
    partition: CurrentPartition,
    positions: Positions,
    partition_count: u64,
    sizes: Option<Sizes>,
    reservation: RowReservation,
}

struct OpenFiles {
    data: DataOut,
    partitions: IndexOut,
    partition_index: PartitionIndexWriter,
    rows: IndexOut,
    row_index: RowIndexWriter,
}

impl SSTableWriter {
    /// Begins the table of a descriptor.
    pub fn create(
        disk: &Arc<dyn Disk>,
        descriptor: &Descriptor,
        table: &Arc<Table>,
        options: WriterOptions,
    ) -> Result<Self, SSTableError> {
        let mut new_files = NewFiles::new(disk, descriptor);
        let mut reservation = RowReservation::default();
        reservation.set_limit(options.large_rows.clone());
        let data_file = OpenOptions { blocks: options.past_page_cache, ..OpenOptions::create() };
        let files = OpenFiles {
            data: DataOut::new(new_files.create_as(Component::Data, data_file)?, options.compression.clone())?,
            partitions: IndexOut::new(new_files.create(Component::Partitions)?),
            partition_index: PartitionIndexWriter::new(),
            rows: IndexOut::new(new_files.create(Component::Rows)?),
            row_index: RowIndexWriter::new(table),
        };
        Ok(SSTableWriter {
            files: Some(files),
            new_files,
            table: table.clone(),
            header: options.header(table),
            encoder: Encoder::new(table, options.base, &options.statics, &options.regulars),
            stats: StatsCollector::new(),
            filter: BloomFilterBuilder::new(options.estimated_partitions, table.options.bloom_filter_fp_chance),
            partition: CurrentPartition::none(),
            positions: Positions::default(),
            partition_count: 0,
            sizes: options.size_watch.clone().map(Sizes::new),
            reservation,
            options,
        })
    }

    /// The descriptor of the future table.
    pub fn descriptor(&self) -> &Descriptor {
        self.new_files.descriptor()
    }

    /// The number of partitions written so far, not counting the open one.
    pub fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// Bytes of data so far, before compression.
    pub fn data_length_bytes(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.data.position())
    }

    /// Writes everything that a cursor yields, except rows and partitions of which dropped columns leave nothing.
    pub fn write_all(&mut self, cursor: &mut dyn UnfilteredCursor) -> Result<(), SSTableError> {
        let table = self.table.clone();
        let is_left = |row: Row<'_>| table.dropped().is_empty() || !row.is_empty(&table);
        while cursor.advance_partition()? {
            let head = cursor.partition();
            let mut begun =
                table.dropped().is_empty() || !head.deletion.is_live() || head.static_row.is_some_and(&is_left);
            if begun {
                self.begin_partition(&head)?;
            }
            while cursor.advance()? {
                let unfiltered = cursor.unfiltered();
                if matches!(&unfiltered, Unfiltered::Row(row) if !is_left(row.row)) {
                    continue;
                }
                if !std::mem::replace(&mut begun, true) {
                    self.begin_partition(&cursor.partition())?;
                }
                self.add(&unfiltered)?;
            }
            if begun {
                self.end_partition()?;
            }
        }
        Ok(())
    }

    /// Begins a partition, whose key must be above the previous one.
    pub fn begin_partition(&mut self, head: &PartitionHead<'_>) -> Result<(), SSTableError> {
        debug_assert!(!self.partition.is_open, "the partition before was ended");
        if self.partition_count > 0 && self.partition.key >= *head.key {
            return Err(SSTableError::Unwritable { what: "partitions that are not in token order".into() });
        }
        let key = head.key.bytes();
        if key.len() > usize::from(u16::MAX) {
            return Err(SSTableError::Unwritable { what: format!("a partition key of {} bytes", key.len()) });
        }
        let Some(files) = &mut self.files else { return Err(finished()) };
        let start = files.data.position();
        let out = files.data.end();
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(key);
        write_deletion(head.deletion, out)?;
        self.stats.begin_partition(key, head.deletion);
        if self.encoder.has_statics() {
            self.encoder.static_row(&self.table, head.static_row, &mut self.stats, out)?;
        } else if head.static_row.is_some_and(|row| !row.is_empty(&self.table)) {
            return Err(SSTableError::Unwritable { what: "a static row in a table without static columns".into() });
        }
        self.partition.begin(head, start);
        if let Some(sizes) = &mut self.sizes {
            sizes.begin_partition(&self.table, head);
        }
        Ok(())
    }

    /// Adds a row or marker to the open partition, in clustering order.
    pub fn add(&mut self, unfiltered: &Unfiltered<'_>) -> Result<(), SSTableError> {
        let (prefix, weight) = match unfiltered {
            Unfiltered::Row(row) => (row.clustering, 0),
            Unfiltered::Marker(marker) => (marker.prefix, if marker.side == model::Side::Before { -1 } else { 1 }),
        };
        let begun = self.begin_unfiltered(prefix, weight)?;
        if let Some(sizes) = &mut self.sizes {
            sizes.add(&self.table, &self.partition.key, unfiltered);
        }
        let (Some(files), partition) = (&mut self.files, &mut self.partition) else { return Err(finished()) };
        let (previous_size, out) = (begun.previous_size, files.data.end());
        match unfiltered {
            Unfiltered::Row(row) => {
                let row_bytes = row.row.as_bytes().len();
                if RowReservation::is_large(row_bytes) {
                    self.reservation.take(WRITTEN_COPIES * row_bytes).map_err(SSTableError::Source)?;
                }
                self.encoder.row(&self.table, row.clustering, row.row, previous_size, &mut self.stats, out)?;
            }
            Unfiltered::Marker(marker) => {
                if marker.before != partition.open {
                    let what = format!("a marker that closes {:?} where {:?} is open", marker.before, partition.open);
                    return Err(SSTableError::Unwritable { what });
                }
                partition.open = marker.after;
                self.encoder.marker(marker, previous_size, &mut self.stats, out)?;
            }
        }
        self.end_unfiltered(begun)
    }

    /// Adds a row in the stored form of another SSTable to the open partition, in clustering order.
    pub fn add_stored(&mut self, row: &StoredRow<'_>) -> Result<(), SSTableError> {
        let begun = self.begin_unfiltered(row.clustering, 0)?;
        if RowReservation::is_large(row.cells.len()) {
            self.reservation.take(row.cells.len()).map_err(SSTableError::Source)?;
        }
        let Some(files) = &mut self.files else { return Err(finished()) };
        self.encoder.stored_row(row, begun.previous_size, &mut self.stats, files.data.end())?;
        self.end_unfiltered(begun)
    }

    fn begin_unfiltered(&mut self, prefix: &[u8], weight: i8) -> Result<UnfilteredStart, SSTableError> {
        let (Some(files), partition @ CurrentPartition { is_open: true, .. }) = (&mut self.files, &mut self.partition)
        else {
            return Err(finished());
        };
        let offset = files.data.position() - partition.start;
        if partition.block.is_none() {
            partition.block = Some(Block { offset, open: partition.open });
            set(&mut self.positions.block_first, prefix, weight);
        }
        set(&mut self.positions.last, prefix, weight);
        if !std::mem::replace(&mut partition.has_rows, true) {
            set(&mut self.positions.first, prefix, weight);
        }
        Ok(UnfilteredStart { offset, previous_size: offset - partition.previous_start })
    }

    fn end_unfiltered(&mut self, begun: UnfilteredStart) -> Result<(), SSTableError> {
        let (Some(files), partition) = (&mut self.files, &mut self.partition) else { return Err(finished()) };
        partition.previous_start = begun.offset;
        let end = files.data.position() - partition.start;
        // The row index cannot store an open deletion with a negative timestamp, so the block lasts until it is closed.
        if let Some(block) = partition.block
            && end - block.offset >= self.options.column_index_size_bytes
            && partition.open.has_whole_form()
        {
            close_block(&mut files.row_index, partition, &self.positions)?;
        }
        files.data.store_whole_chunks()
    }

    /// Ends the open partition.
    pub fn end_partition(&mut self) -> Result<(), SSTableError> {
        let (Some(files), partition @ CurrentPartition { is_open: true, .. }) = (&mut self.files, &mut self.partition)
        else {
            return Err(finished());
        };
        partition.is_open = false;
        if !partition.open.is_live() {
            return Err(SSTableError::Unwritable { what: "a range deletion that is never closed".into() });
        }
        let end = files.data.position() - partition.start;
        files.data.end().push(flag::END_OF_PARTITION);
        files.data.store_whole_chunks()?;
        if files.row_index.block_count() > 0 && partition.block.is_some() {
            close_block(&mut files.row_index, partition, &self.positions)?;
        }
        let CurrentPartition { key, deletion, start, has_rows, .. } = &*partition;
        let (deletion, start, has_rows) = (*deletion, *start, *has_rows);
        let record = files.row_index.finish_partition(key.bytes(), start, deletion, end)?;
        files.row_index.drain(&mut files.rows.pending);
        files.rows.flush(INDEX_WRITE_BYTES)?;
        let hash = murmur3::hash128(key.bytes());
        if let Some(sizes) = &mut self.sizes {
            sizes.end_partition(&self.table, key, end + 1, self.new_files.descriptor());
        }
        files.partition_index.add(key, hash, record.map_or(PartitionPosition::Data(start), PartitionPosition::Rows));
        files.partition_index.drain(&mut files.partitions.pending);
        files.partitions.flush(INDEX_WRITE_BYTES)?;
        if let Some(filter) = &mut self.filter {
            filter.add_hash(hash);
        }
        let ends = has_rows.then_some((&self.positions.first, &self.positions.last));
        self.stats.end_partition(end + 1, ends, self.table.comparator());
        self.partition_count += 1;
        Ok(())
    }

    /// Completes all files under their temporary names; `None` if no partition was written (the files are then
    /// removed).
    pub fn prepare(mut self) -> Result<Option<PreparedSSTable>, SSTableError> {
        let Some(files) = self.files.take().filter(|_| self.partition_count > 0) else { return Ok(None) };
        let OpenFiles { data, mut partitions, partition_index, rows, .. } = files;
        partition_index.finish(&mut partitions.pending);
        let done = data.finish()?;
        let mut checksums = PageChecksums::default();
        checksums.add(Component::Data, ComponentChecksums { length: done.file_length, crcs: Vec::new() });
        checksums.add(Component::Partitions, partitions.finish()?);
        checksums.add(Component::Rows, rows.finish()?);
        let filter = self.filter.take().map(|filter| (Component::Filter, filter.finish().encode()));
        let info = done.compression_info.as_ref().map(|info| (Component::CompressionInfo, info.encode()));
        let crcs = done.checksums.map(|crcs| (Component::Crc, crcs));
        for (component, bytes) in filter.into_iter().chain(info).chain(crcs) {
            checksums.add(component, ComponentChecksums::of(&bytes));
            self.new_files.write(component, &bytes)?;
        }
        self.new_files.write(Component::Checksums, &checksums.encode())?;
        self.new_files.write(Component::Digest, done.digest.to_string().as_bytes())?;
        let statistics = self.statistics(done.compression_ratio);
        self.new_files.prepare(statistics).map(Some)
    }

    fn statistics(&mut self, compression_ratio: f64) -> Statistics {
        let collector = std::mem::replace(&mut self.stats, StatsCollector::new());
        let (mut stats, cardinality) = collector.finish(self.header.clustering_classes.clone());
        stats.compression_ratio = compression_ratio;
        stats.commit_log_intervals = std::mem::take(&mut self.options.commit_log_intervals);
        stats.originating_host_id = self.options.originating_host_id;
        stats.repaired_at = self.options.repaired_at;
        stats.sstable_level = self.options.sstable_level;
        stats.has_legacy_counter_shards = self.options.has_legacy_counter_shards;
        let (first, last) = (PartitionKey::new(&stats.first_key), PartitionKey::new(&stats.last_key));
        // One node owns the whole ring.
        stats.token_space_coverage =
            (i128::from(last.token().0) - i128::from(first.token().0)).max(1) as f64 / 2_f64.powi(64);
        Statistics {
            partitioner: PARTITIONER.into(),
            bloom_filter_fp_chance: self.table.options.bloom_filter_fp_chance,
            cardinality,
            stats,
            header: self.header.clone(),
        }
    }

    /// Completes the table and makes it visible; `None` if no partition was written.
    pub fn finish(self) -> Result<Option<Descriptor>, SSTableError> {
        match self.prepare()? {
            Some(prepared) => prepared.commit().map(Some),
            None => Ok(None),
        }
    }
}

fn set(position: &mut Position, prefix: &[u8], weight: i8) {
    position.0.clear();
    position.0.extend_from_slice(prefix);
    position.1 = weight;
}

fn close_block(
    index: &mut RowIndexWriter,
    partition: &mut CurrentPartition,
    positions: &Positions,
) -> Result<(), SSTableError> {
    let Some(block) = partition.block.take() else { return Ok(()) };
    let (first, last) = (&positions.block_first, &positions.last);
    index.add(block, (&first.0, first.1), (&last.0, last.1))
}

fn finished() -> SSTableError {
    SSTableError::Unwritable { what: "rows outside of a partition, or after the end".into() }
}
