//! SSTables of the format `big`, versions `nb` and `oa`, which a stock Cassandra 4 or 5.0 node writes. They are found,
//! read in file order, and rewritten as BTI. Their Summary.db and Filter.db are not read, and Index.db by `verify`
//! only.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use model::Table;

use crate::cache::BlockCache;
use crate::descriptor::{Component, Descriptor, SSTableId};
use crate::error::{Corruption, Decoded, SSTableError};
use crate::input::Input;
use crate::new_files::PreparedSSTable;
use crate::reader::{SSTableReader, list_tables};
use crate::writer::{SSTableWriter, WriterOptions};

/// Reads in file order bypass the cache.
const CACHE_BYTES: u64 = 1 << 20;
/// Bytes of Index.db read at a time.
const INDEX_READ_BYTES: usize = 64 * 1024;

/// The complete `big` tables of a directory (those with a TOC.txt), oldest id first. A table of an unsupported version,
/// of this format or of BTI, is an error that names the file, because its rows would silently be missing.
pub fn list_big_tables(disk: &dyn Disk, dir: &Path) -> Result<Vec<Descriptor>, SSTableError> {
    let mut tables = Vec::new();
    for entry in disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        let Some((version, format)) = toc_of(&entry.name) else { continue };
        match Descriptor::of_path(&dir.join(&entry.name)) {
            Some(descriptor) if descriptor.is_big() => tables.push(descriptor),
            Some(_) => {}
            None => {
                let what = format!("version {version} of the format {format}");
                return Err(SSTableError::Unsupported { file: entry.name.clone(), what });
            }
        }
    }
    tables.sort();
    Ok(tables)
}

/// The complete tables of a directory, of every supported format: BTI, then `big`.
pub fn list_all_tables(disk: &dyn Disk, dir: &Path) -> Result<Vec<Descriptor>, SSTableError> {
    let mut tables = list_tables(disk, dir)?;
    tables.extend(list_big_tables(disk, dir)?);
    Ok(tables)
}

/// The tables of a directory that another node wrote, of every supported format. One without a TOC.txt is an error,
/// because its rows would silently be missing.
pub fn list_foreign_tables(disk: &dyn Disk, dir: &Path) -> Result<Vec<Descriptor>, SSTableError> {
    let tables = list_all_tables(disk, dir)?;
    for entry in disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        if let Some(descriptor) = Descriptor::of_path(&dir.join(&entry.name))
            && descriptor.file_name(Component::Data) == entry.name
            && !tables.contains(&descriptor)
        {
            let toc = descriptor.file_name(Component::Toc);
            return Err(Corruption::new(&toc, 0, "a component that every table has", "no such file").into());
        }
    }
    Ok(tables)
}

/// The version and format of the table whose TOC.txt has this name.
fn toc_of(name: &str) -> Option<(&str, &str)> {
    let mut parts = name.splitn(4, '-');
    let (version, id, format, component) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_toc = ["big", "bti"].contains(&format) && component == Component::Toc.name();
    (is_toc && SSTableId::parse(id).is_some()).then_some((version, format))
}

/// Opens a `big` table for reading in file order. Its first and last key are not known.
pub fn open_big(disk: &dyn Disk, descriptor: &Descriptor, table: &Arc<Table>) -> Result<SSTableReader, SSTableError> {
    SSTableReader::open_for_scan(disk, descriptor, table, &BlockCache::new(CACHE_BYTES))
}

/// A reader of Index.db, entry by entry: a key, the position of its partition in the data, and an index of its columns,
/// which is skipped.
pub(crate) struct BigIndex {
    name: String,
    file: Box<dyn File>,
    /// Offset of the next entry.
    position: u64,
    /// Prefetched bytes from `position` on.
    ahead: Vec<u8>,
}

/// One entry of Index.db.
pub(crate) struct BigIndexEntry {
    /// Offset of the entry in Index.db.
    pub offset: u64,
    /// Serialized partition key.
    pub key: Vec<u8>,
    /// Data position of the partition.
    pub data_position: u64,
}

impl BigIndex {
    /// Opens Index.db. `None` if the table has none.
    pub fn open(disk: &dyn Disk, descriptor: &Descriptor) -> Result<Option<BigIndex>, SSTableError> {
        let name = format!("{}-Index.db", descriptor.name());
        let path = descriptor.dir.join(&name);
        if !disk.exists(&path)? {
            return Ok(None);
        }
        let file = disk.open(&path, OpenOptions::read())?;
        Ok(Some(BigIndex { name, file, position: 0, ahead: Vec::new() }))
    }

    /// The position of the next entry.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// An error about the entry at `offset`.
    pub fn damaged(&self, offset: u64, expected: String, got: String) -> SSTableError {
        Corruption::new(&self.name, offset, expected, got).into()
    }

    /// Reads the next entry; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<BigIndexEntry>, SSTableError> {
        loop {
            let mut input = Input::new(&self.name, self.position, &self.ahead);
            match read_entry(&mut input) {
                Ok((key, data_position, columns)) => {
                    let key = key.to_vec();
                    let (consumed, offset) = (input.consumed(), self.position);
                    self.ahead.drain(..consumed);
                    self.pass_over(consumed, columns)?;
                    return Ok(Some(BigIndexEntry { offset, key, data_position }));
                }
                Err(corruption) if corruption.short => {
                    let had = self.ahead.len();
                    self.read_ahead()?;
                    match (self.ahead.len() > had, had) {
                        (true, _) => {}
                        (false, 0) => return Ok(None),
                        (false, _) => return Err(corruption.into()),
                    }
                }
                Err(corruption) => return Err(corruption.into()),
            }
        }
    }

    fn read_ahead(&mut self) -> Result<(), SSTableError> {
        let had = self.ahead.len();
        self.ahead.resize(had + INDEX_READ_BYTES, 0);
        let read = self.file.read_at(&mut self.ahead[had..], self.position + had as u64);
        self.ahead.truncate(had + *read.as_ref().unwrap_or(&0));
        read?;
        Ok(())
    }

    /// Continues after an entry's index of columns, part of which may already have been read.
    fn pass_over(&mut self, entry: usize, columns: u64) -> Result<(), SSTableError> {
        let start = self.position + entry as u64;
        let end = start.checked_add(columns).filter(|end| self.file.len().is_ok_and(|length| *end <= length));
        let Some(end) = end else {
            return Err(self.damaged(start, "an index of columns within the file".into(), format!("{columns} bytes")));
        };
        let read = columns.min(self.ahead.len() as u64) as usize;
        self.ahead.drain(..read);
        self.position = end;
        Ok(())
    }
}

/// Reads the key, the data position, and the length of the index of columns that follows.
fn read_entry<'a>(input: &mut Input<'a>) -> Decoded<(&'a [u8], u64, u64)> {
    let key = input.short_bytes("partition key")?;
    Ok((key, input.uvint("data position")?, input.uvint("length of the index of columns")?))
}

/// Rewrites a `big` table, which the caller has verified, as the BTI table `target` that belongs to no node. `None` if
/// there is nothing in it.
pub(crate) fn rewrite_big(
    disk: &Arc<dyn Disk>,
    source: &Descriptor,
    table: &Arc<Table>,
    target: &Descriptor,
) -> Result<Option<PreparedSSTable>, SSTableError> {
    let reader = open_big(&**disk, source, table)?;
    let statistics = reader.statistics();
    let mut options = WriterOptions::for_table(table)?;
    options.base = statistics.header.base;
    options.estimated_partitions = statistics.cardinality.estimate().max(1);
    options.has_legacy_counter_shards = statistics.stats.has_legacy_counter_shards;
    let mut writer = SSTableWriter::create(disk, target, table, options)?;
    writer.write_all(&mut reader.scan()?)?;
    writer.prepare()
}
