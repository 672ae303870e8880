//! Salvage of a damaged table: every row whose bytes are proved sound goes into a new table, and the rest is listed.
//!
//! A row is proved by the checksum of the chunk that contains it (if the table has checksums), by being decodable, and
//! by its place in the order. Behind damage the walk continues at the next block of the partition's row index, or at
//! the next partition of the partition index. Both indexes are only hints here: the data that they lead to must still
//! be proved.

use std::cmp::Ordering;
use std::sync::Arc;

use blockio::Disk;
use model::{DeletionTime, Marker, PartitionKey, Side, Table, Unfiltered, UnfilteredCursor};

use crate::big::{BigIndex, open_big};
use crate::cache::BlockCache;
use crate::descriptor::Descriptor;
use crate::error::{Corruption, SSTableError};
use crate::reader::{SSTableCursor, SSTableReader};
use crate::row_index::{Block, BlockCursor, RowIndexEntry};
use crate::writer::{SSTableWriter, WriterOptions};

/// The memory for index pages during a salvage.
const CACHE_BYTES: u64 = 4 << 20;

/// A range of data that could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The serialized key of its partition, if known.
    pub key: Option<Vec<u8>>,
    /// Data position of its first byte.
    pub start: u64,
    /// Data position after its last byte.
    pub end: u64,
    /// The damage.
    pub cause: Corruption,
}

/// The result of a salvage.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// The new table; `None` if nothing could be saved.
    pub table: Option<Descriptor>,
    /// Partitions in it.
    pub partitions: u64,
    /// Rows in it, static rows not counted.
    pub rows: u64,
    /// The ranges that are not in it, in the order of the data.
    pub losses: Vec<Loss>,
    /// Damage of components that are not needed to read the data.
    pub damaged: Vec<Corruption>,
}

/// Writes the sound part of the table `source` into the new table `target`, which covers nothing of any commit log.
///
/// Fails if nothing can be read at all: without Data.db, Statistics.db or (for a compressed table) CompressionInfo.db.
/// A table of the format `big` only has Index.db, so a loss extends to the next partition.
pub fn salvage(
    disk: &Arc<dyn Disk>,
    source: &Descriptor,
    table: &Arc<Table>,
    target: &Descriptor,
) -> Result<Salvaged, SSTableError> {
    let mut salvaged = Salvaged::default();
    let cache = BlockCache::new(CACHE_BYTES);
    let reader = match source.is_big() {
        true => open_big(&**disk, source, table)?,
        false => SSTableReader::open_damaged(&**disk, source, table, &cache, &mut salvaged.damaged)?,
    };
    let mut options = WriterOptions::for_table(table)?;
    let statistics = reader.statistics();
    options.base = statistics.header.base;
    options.compression = reader.files().data.compression().map(|info| info.params.clone());
    options.estimated_partitions = match source.is_big() {
        true => statistics.cardinality.estimate().max(1),
        false => reader.partition_count().max(1),
    };
    options.repaired_at = statistics.stats.repaired_at;
    options.has_legacy_counter_shards = statistics.stats.has_legacy_counter_shards;
    let writer = SSTableWriter::create(disk, target, table, options)?;
    let index = match source.is_big() {
        true => big_positions(&**disk, source, &mut salvaged.damaged)?,
        false => partition_positions(&reader, &mut salvaged.damaged),
    };
    let cursor = reader.scan()?;
    let mut walk = Salvage { reader: &reader, cursor, writer, index, last_key: None, salvaged };
    walk.run()?;
    let Salvage { writer, mut salvaged, .. } = walk;
    salvaged.table = writer.finish()?;
    Ok(salvaged)
}

/// Where the partition index says that partitions start, ascending, with the records of those that have a row index.
fn partition_positions(reader: &SSTableReader, damaged: &mut Vec<Corruption>) -> Vec<(u64, Option<RowIndexEntry>)> {
    let files = reader.files();
    let mut positions = Vec::new();
    let walked = (|| -> Result<(), SSTableError> {
        let mut entries = files.partitions.entries(true)?;
        let mut place = entries.first()?;
        while let Some(found) = place {
            match files.entry(found) {
                Ok(entry) => positions.push(entry),
                Err(SSTableError::Corruption(corruption)) => damaged.push(*corruption),
                Err(error) => return Err(error),
            }
            place = entries.next()?;
        }
        Ok(())
    })();
    if let Err(SSTableError::Corruption(corruption)) = walked
        && !damaged.contains(&corruption)
    {
        damaged.push(*corruption);
    }
    positions.sort_by_key(|(position, _)| *position);
    positions.dedup_by_key(|(position, _)| *position);
    positions
}

/// The positions in Index.db at which partitions start, ascending, up to the first unreadable entry.
fn big_positions(
    disk: &dyn Disk,
    source: &Descriptor,
    damaged: &mut Vec<Corruption>,
) -> Result<Vec<(u64, Option<RowIndexEntry>)>, SSTableError> {
    let mut positions = Vec::new();
    let Some(mut index) = BigIndex::open(disk, source)? else { return Ok(positions) };
    loop {
        match index.next() {
            Ok(Some(entry)) => positions.push((entry.data_position, None)),
            Ok(None) => break,
            Err(error) => {
                damaged.push(damage(error)?);
                break;
            }
        }
    }
    positions.sort_by_key(|(position, _)| *position);
    positions.dedup_by_key(|(position, _)| *position);
    Ok(positions)
}

struct Salvage<'r> {
    reader: &'r SSTableReader,
    cursor: SSTableCursor,
    writer: SSTableWriter,
    index: Vec<(u64, Option<RowIndexEntry>)>,
    last_key: Option<PartitionKey>,
    salvaged: Salvaged,
}

/// A marker that is written once the following unfiltered is known to be sound.
struct PendingMarker {
    prefix: Vec<u8>,
    side: Side,
    before: DeletionTime,
    after: DeletionTime,
}

/// The part of a partition that was written.
#[derive(Default)]
struct WrittenPart {
    /// Position of the last unfiltered seen: prefix and weight.
    last: Option<(Vec<u8>, i8)>,
    pending: Option<PendingMarker>,
    /// The range deletion that is open in the written part, not counting the pending marker.
    open: Option<DeletionTime>,
}

/// The error, if it is damage; anything else ends the salvage.
fn damage(error: SSTableError) -> Result<Corruption, SSTableError> {
    match error {
        SSTableError::Corruption(corruption) => Ok(*corruption),
        error => Err(error),
    }
}

impl Salvage<'_> {
    fn run(&mut self) -> Result<(), SSTableError> {
        let length = self.reader.files().data.length;
        let mut position = 0;
        while position < length {
            position = match self.partition(position)? {
                Some(next) => next,
                None => {
                    let next = self.index.partition_point(|(start, _)| *start <= position);
                    self.index.get(next).map_or(length, |(start, _)| *start)
                }
            };
        }
        Ok(())
    }

    /// Saves the partition at a data position. Returns where the next one starts, unless that is damaged.
    fn partition(&mut self, position: u64) -> Result<Option<u64>, SSTableError> {
        let entered = self.cursor.enter_partition_at(position).and_then(|entered| match entered {
            true => self.check_key(position),
            false => Ok(()),
        });
        if let Err(error) = entered {
            let cause = damage(error)?;
            self.lose(None, position, self.next_start(position), cause);
            return Ok(None);
        }
        let head = self.cursor.partition();
        let key = head.key.clone();
        self.writer.begin_partition(&head)?;
        let mut written = WrittenPart::default();
        let complete = self.rows(position, &key, &mut written)?;
        self.close(&mut written)?;
        self.writer.end_partition()?;
        self.salvaged.partitions += 1;
        self.last_key = Some(key);
        Ok(complete.then(|| self.cursor.next_position() + 1))
    }

    fn check_key(&self, position: u64) -> Result<(), SSTableError> {
        let key = self.cursor.partition().key;
        if self.last_key.as_ref().is_none_or(|last| last < key) {
            return Ok(());
        }
        let name = &self.reader.files().data.name;
        Err(Corruption::new(name, position, "partitions in token order", "a partition out of order").into())
    }

    /// Saves the rows of the entered partition. Returns whether its end was reached.
    fn rows(&mut self, start: u64, key: &PartitionKey, written: &mut WrittenPart) -> Result<bool, SSTableError> {
        loop {
            let at = self.cursor.next_position();
            let advanced = self.cursor.try_advance().and_then(|more| {
                if more {
                    self.check_order(at, written)?;
                }
                Ok(more)
            });
            match advanced {
                Ok(true) => self.add(written)?,
                Ok(false) => {
                    self.flush(written)?;
                    return Ok(true);
                }
                Err(error) => {
                    let cause = damage(error)?;
                    self.close(written)?;
                    let resumed = self.resume(start, at);
                    let end = resumed.map_or_else(|| self.next_start(start.max(at)), |block| start + block.offset);
                    self.lose(Some(key.bytes().to_vec()), at, end, cause);
                    if resumed.is_none() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn check_order(&self, at: u64, written: &WrittenPart) -> Result<(), SSTableError> {
        let (prefix, weight) = position_of(&self.cursor.unfiltered());
        let Some((last, last_weight)) = &written.last else { return Ok(()) };
        let comparator = self.reader.table().comparator();
        if comparator.compare_positions(last, *last_weight, prefix, weight) == Ordering::Less {
            return Ok(());
        }
        let name = &self.reader.files().data.name;
        Err(Corruption::new(name, at, "rows in clustering order", "one out of order").into())
    }

    /// Writes the pending marker and the current unfiltered, which are both sound.
    fn add(&mut self, written: &mut WrittenPart) -> Result<(), SSTableError> {
        self.flush(written)?;
        let open = written.open.unwrap_or(DeletionTime::LIVE);
        let unfiltered = self.cursor.unfiltered();
        let (prefix, weight) = position_of(&unfiltered);
        written.last = Some((prefix.to_vec(), weight));
        match unfiltered {
            Unfiltered::Row(row) => {
                let in_force = self.cursor.open_deletion();
                if open != in_force {
                    // The walk resumed inside a range deletion, which begins with the first row seen.
                    let marker = Marker { prefix: row.clustering, side: Side::Before, before: open, after: in_force };
                    self.writer.add(&Unfiltered::Marker(marker))?;
                    written.open = Some(in_force);
                }
                self.writer.add(&unfiltered)?;
                self.salvaged.rows += 1;
            }
            Unfiltered::Marker(marker) => {
                let pending =
                    PendingMarker { prefix: prefix.to_vec(), side: marker.side, before: open, after: marker.after };
                written.pending = Some(pending);
            }
        }
        Ok(())
    }

    /// Writes the pending marker.
    fn flush(&mut self, written: &mut WrittenPart) -> Result<(), SSTableError> {
        let Some(PendingMarker { prefix, side, before, after }) = written.pending.take() else { return Ok(()) };
        if before != after {
            self.writer.add(&Unfiltered::Marker(Marker { prefix: &prefix, side, before, after }))?;
            written.open = Some(after);
        }
        Ok(())
    }

    /// Ends the range deletion that is open where the sound part ends.
    fn close(&mut self, written: &mut WrittenPart) -> Result<(), SSTableError> {
        let opens = written.pending.take().map(|pending| PendingMarker { after: DeletionTime::LIVE, ..pending });
        let open = written.open.unwrap_or(DeletionTime::LIVE);
        written.pending = opens.or_else(|| match &written.last {
            Some((prefix, 0)) if !open.is_live() => Some(PendingMarker {
                prefix: prefix.clone(),
                side: Side::After,
                before: open,
                after: DeletionTime::LIVE,
            }),
            _ => None,
        });
        if let Some(pending) = &written.pending {
            written.last = Some((pending.prefix.clone(), if pending.side == Side::Before { -1 } else { 1 }));
        }
        self.flush(written)
    }

    /// Moves the cursor to the first block of the partition at `start` that begins after `failed`.
    fn resume(&mut self, start: u64, failed: u64) -> Option<Block> {
        let at = self.index.binary_search_by_key(&start, |(position, _)| *position).ok()?;
        let entry = self.index[at].1.as_ref()?;
        let mut blocks = BlockCursor::new(self.reader.files().rows.pages(true), entry.root).ok()?;
        let mut found = blocks.first().ok()?;
        let mut left = entry.block_count;
        while let Some(block) = found {
            // The entry after the last block is that of the partition's end.
            left = left.checked_sub(1)?;
            if start.checked_add(block.offset)? > failed {
                self.cursor.resume_at(block);
                return Some(block);
            }
            found = blocks.next().ok()?;
        }
        None
    }

    /// Where the first partition after a data position starts, as far as the index shows.
    fn next_start(&self, position: u64) -> u64 {
        let next = self.index.partition_point(|(start, _)| *start <= position);
        self.index.get(next).map_or(self.reader.files().data.length, |(start, _)| *start)
    }

    fn lose(&mut self, key: Option<Vec<u8>>, start: u64, end: u64, cause: Corruption) {
        self.salvaged.losses.push(Loss { key, start, end, cause });
    }
}

fn position_of<'u>(unfiltered: &Unfiltered<'u>) -> (&'u [u8], i8) {
    match unfiltered {
        Unfiltered::Row(row) => (row.clustering, 0),
        Unfiltered::Marker(marker) => (marker.prefix, if marker.side == Side::Before { -1 } else { 1 }),
    }
}
