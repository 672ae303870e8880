//! The SSTable files of tables: writing, opening, linking and deleting them.
//!
//! [`TableFiles`] owns what all SSTables of a node share: the disk, the cache, the ids and the settings of writes. A
//! table's directory has a new SSTable as a whole or not at all, and replacing SSTables is one step after a crash too.
//! This module does not know which SSTables a table has (its view does), nor when one is flushed or merged.

pub(crate) mod disk_access;
mod indexes;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{BlockWrites, DirectoryEntry, Disk, OpenOptions};
use commitlog::{IntervalSet, LogPosition, PositionInterval};
use memtable::MemtableStatistics;
use model::{BoxCursor, LargeRowLimit, ReadRange, Table, UnfilteredCursor};
use sstable::{
    BlockCache, CommitLogPosition, Component, Descriptor, EncodingBase, PreparedSSTable, ReadMode, SSTableError,
    SSTableId, SSTableReader, SSTableWriter, WriterOptions, list_big_tables, list_tables, missing_tocs,
    remove_leftovers, remove_tables, replace_tables,
};
use uuid::Uuid;

use crate::error::EngineError;
use crate::lock::lock;
use crate::options::EngineOptions;
use crate::table::TableStore;
use crate::table::indexes::SSTableIndexes;
use indexes::IndexRequests;

/// The directory of snapshots in a table's directory.
pub(crate) const SNAPSHOTS: &str = "snapshots";
/// The directory, in a table's directory, of Data.db files that belong to no SSTable.
const LEFTOVERS: &str = "leftovers";
/// The first character in the name of an incomplete snapshot. No other name begins with it.
pub(crate) const UNFINISHED: char = '.';
/// The file of a snapshot that lists its content, and the times of its creation and expiry.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The directory of a table's snapshot of that name.
pub(crate) fn snapshot_directory(store: &TableStore, name: &str) -> PathBuf {
    store.directory.join(SNAPSHOTS).join(name)
}

/// The directory of a snapshot until it is complete.
pub(crate) fn unfinished_snapshot_directory(store: &TableStore, name: &str) -> PathBuf {
    snapshot_directory(store, &format!("{UNFINISHED}{name}"))
}

/// The size of an SSTable above which it is loaded past the page cache.
const LOADED_DIRECTLY_BYTES: u64 = 1 << 20;
/// The cache for a load: it has room for the index pages that lead to the first positions, and for the blocks there.
const LOAD_CACHE_BYTES: u64 = 256 << 10;

/// The parts that all SSTables of a node share.
pub(crate) struct TableFiles {
    disk: Arc<dyn Disk>,
    cache: BlockCache,
    /// How SSTables are written.
    writes: BlockWrites,
    column_index_size_bytes: u64,
    host_id: Uuid,
    /// The directory of the files of secondary indexes.
    index_directory: PathBuf,
    index_requests: IndexRequests,
    /// The limit on copies of large rows for builds of indexes.
    background_rows: LargeRowLimit,
}

/// Makes the entries of the node's directory and the directories of tables durable: an earlier process may have been
/// killed before it synced them. The entries of a table's directory follow when it is opened.
pub(crate) fn keep_found_names(disk: &dyn Disk, directory: &Path, data: &Path) -> Result<(), EngineError> {
    disk.sync_dir(directory)?;
    if !disk.exists(data)? {
        return Ok(());
    }
    disk.sync_dir(data)?;
    for keyspace in disk.list(data)?.into_iter().filter(|entry| entry.is_dir) {
        disk.sync_dir(&data.join(keyspace.name))?;
    }
    Ok(())
}

/// The SSTables of a directory.
#[derive(Default)]
pub(crate) struct Opened {
    /// Newest first.
    pub sstables: Vec<Arc<SSTableReader>>,
    /// The reasons why others are missing here.
    pub failures: Vec<EngineError>,
    /// The new paths of Data.db files that had no other component.
    pub leftovers: Vec<PathBuf>,
}

impl TableFiles {
    pub fn new(options: &EngineOptions, host_id: Uuid) -> Self {
        let cache = BlockCache::new(options.cache_bytes);
        TableFiles {
            disk: options.disk.clone(),
            cache: if options.disk_access.reads_directly() { cache.with_direct_reads() } else { cache },
            writes: options.disk_access.writes(&*options.disk, &options.directory),
            column_index_size_bytes: u64::from(options.column_index_size_bytes),
            host_id,
            index_directory: options.directory.join("index"),
            index_requests: IndexRequests::default(),
            background_rows: options.background_rows(),
        }
    }

    /// How SSTables are written.
    pub fn writes(&self) -> &BlockWrites {
        &self.writes
    }

    /// Bytes of pages and chunks in memory.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.used_bytes()
    }

    /// Opens the SSTables of a directory, newest first, and returns the errors of those that cannot be opened. The
    /// first flush makes a missing directory: syncing one for each system table would take a tenth of a second at the
    /// first start.
    pub fn open_all(&self, directory: &Path, table: &Arc<Table>) -> Result<Opened, EngineError> {
        let mut opened = Opened::default();
        if !self.disk.exists(directory)? {
            return Ok(opened);
        }
        remove_leftovers(&*self.disk, directory)?;
        opened.leftovers = self.set_lone_data_aside(directory)?;
        self.remove_unfinished_snapshots(directory)?;
        for descriptor in list_tables(&*self.disk, directory)?.iter().rev() {
            match self.open(descriptor, table) {
                Ok(sstable) => opened.sstables.push(sstable),
                Err(error) => opened.failures.push(error),
            }
        }
        // Otherwise there would be rows that no read finds.
        let missing = missing_tocs(&*self.disk, directory)?.into_iter();
        opened.failures.extend(missing.map(|damage| EngineError::from(damage.of_table(table))));
        match list_big_tables(&*self.disk, directory) {
            Ok(big) => opened.failures.extend(big.iter().map(unread)),
            Err(unknown) => opened.failures.push(unknown.of_table(table).into()),
        }
        Ok(opened)
    }

    /// Moves each Data.db file that is the only component of its SSTable to a directory of its own. No write leaves
    /// such a file behind, and it cannot be read: without the other components neither its columns nor the positions of
    /// its partitions are known.
    fn set_lone_data_aside(&self, directory: &Path) -> Result<Vec<PathBuf>, EngineError> {
        let entries = self.disk.list(directory)?;
        let of_sstables = entries.iter().filter(|entry| !entry.is_dir);
        let parts: Vec<_> =
            of_sstables.filter_map(|entry| Some((entry, Descriptor::parse_file_name(&entry.name)?.0))).collect();
        let is_alone = |id: &SSTableId| parts.iter().filter(|(_, other)| other == id).count() == 1;
        let lone = parts.iter().filter(|(entry, id)| entry.name.ends_with("-Data.db") && is_alone(id));
        let (mut moved, aside) = (Vec::new(), directory.join(LEFTOVERS));
        for (entry, _) in lone {
            self.disk.create_dir_all(&aside)?;
            let target = aside.join(&entry.name);
            self.disk.rename(&directory.join(&entry.name), &target)?;
            moved.push(target);
        }
        if !moved.is_empty() {
            self.disk.sync_dir(&aside)?;
            self.disk.sync_dir(directory)?;
        }
        Ok(moved)
    }

    pub fn open(&self, descriptor: &Descriptor, table: &Arc<Table>) -> Result<Arc<SSTableReader>, EngineError> {
        Ok(Arc::new(SSTableReader::open(&*self.disk, descriptor, table, &self.cache)?))
    }

    /// Opens an SSTable again for a reader that reads all of it, at several positions at a time. The new reader reads
    /// past the page cache where writes go past it too: the kernel would read ahead at each position and discard much
    /// of that. Returns the same reader if the SSTable is small or cannot be opened again.
    pub fn for_load(&self, sstable: &Arc<SSTableReader>) -> Arc<SSTableReader> {
        if self.writes != BlockWrites::Direct || sstable.data_length_bytes() < LOADED_DIRECTLY_BYTES {
            return sstable.clone();
        }
        let cache = BlockCache::new(LOAD_CACHE_BYTES).with_direct_reads();
        let opened = SSTableReader::open(&*self.disk, sstable.descriptor(), sstable.table(), &cache);
        opened.map_or_else(|_| sstable.clone(), Arc::new)
    }

    /// Writes the content of a memtable durably, with [`memtable_options`](Self::memtable_options). Returns `None` if
    /// it has none.
    pub fn write(
        &self,
        store: &TableStore,
        table: &Arc<Table>,
        cursor: &mut dyn UnfilteredCursor,
        options: WriterOptions,
    ) -> Result<Option<Arc<SSTableReader>>, EngineError> {
        let descriptor = Descriptor::new(&store.directory, self.new_id());
        let written = self.try_write(&descriptor, table, cursor, options);
        if written.is_err() && self.remove(&store.directory, &[descriptor]).is_err() {
            // The unused table may exist again at the next start.
            store.distrust_files();
        }
        written
    }

    fn try_write(
        &self,
        descriptor: &Descriptor,
        table: &Arc<Table>,
        cursor: &mut dyn UnfilteredCursor,
        options: WriterOptions,
    ) -> Result<Option<Arc<SSTableReader>>, EngineError> {
        self.disk.create_dir_all(&descriptor.dir)?;
        let mut writer = SSTableWriter::create(&self.disk, descriptor, table, options)?;
        writer.write_all(cursor)?;
        match writer.finish()? {
            Some(descriptor) => Ok(Some(self.open(&descriptor, table)?)),
            None => Ok(None),
        }
    }

    /// The options for writing a memtable with this content.
    pub fn memtable_options(
        &self,
        table: &Table,
        statistics: MemtableStatistics,
        intervals: &[PositionInterval],
    ) -> Result<WriterOptions, EngineError> {
        let mut options = WriterOptions::for_table(table)?;
        options.estimated_partitions = statistics.partition_count.max(1);
        options.base = encoding_base(&statistics);
        options.column_index_size_bytes = self.column_index_size_bytes;
        options.past_page_cache = self.writes == BlockWrites::Direct;
        let [regular_min, static_min] = statistics.column_set_min;
        retain_written(table, true, static_min, &mut options.statics);
        retain_written(table, false, regular_min, &mut options.regulars);
        let position = |position: LogPosition| CommitLogPosition { segment: position.segment, offset: position.offset };
        options.commit_log_intervals = intervals.iter().map(|i| (position(i.start), position(i.end))).collect();
        options.originating_host_id = Some(self.host_id);
        Ok(options)
    }

    /// A new, time-based id.
    pub fn new_id(&self) -> SSTableId {
        SSTableId::from_uuid(self.new_timeuuid())
    }

    /// A new time-based UUID of this node.
    pub fn new_timeuuid(&self) -> Uuid {
        let now = uuid::Timestamp::now(uuid::NoContext);
        let node: [u8; 6] = std::array::from_fn(|i| self.host_id.as_bytes()[10 + i]);
        // The clock alone could give two tables the same id. The random half of the clock sequence makes the ids
        // differ.
        let sequence = Uuid::new_v4().as_u128() as u16 & 0x3fff;
        let (seconds, nanos) = now.to_unix();
        Uuid::new_v1(uuid::Timestamp::from_unix_time(seconds, nanos, u128::from(sequence), 14), &node)
    }

    /// Replaces tables with others (the inputs of a merge with its output), on disk and in the store, all or nothing.
    /// Returns the new tables.
    pub fn replace(
        &self,
        store: &TableStore,
        table: &Arc<Table>,
        inputs: &[Arc<SSTableReader>],
        outputs: Vec<PreparedSSTable>,
    ) -> Result<Vec<Arc<SSTableReader>>, EngineError> {
        let stand_ins = store.indexes.stand_ins(inputs, None);
        self.replace_and(store, table, &descriptors_of(inputs), outputs, stand_ins, |opened| {
            store.replace_sstables(inputs, opened)
        })
    }

    /// Like `replace`, with a change of the store in the same moment. `stand_ins` are indexes of the new tables until
    /// they have their own.
    pub fn replace_and(
        &self,
        store: &TableStore,
        table: &Arc<Table>,
        obsolete: &[Descriptor],
        outputs: Vec<PreparedSSTable>,
        stand_ins: SSTableIndexes,
        publish: impl FnOnce(Vec<Arc<SSTableReader>>),
    ) -> Result<Vec<Arc<SSTableReader>>, EngineError> {
        let _no_snapshot = lock(&store.files);
        // Another replacement may have failed half way in the meantime.
        store.check_files()?;
        let replaced = replace_tables(&*self.disk, &store.directory, outputs, obsolete);
        let added = replaced.map_err(|failure| {
            // Only the next start can decide which files count.
            if failure.may_be_decided {
                store.distrust_files();
            }
            EngineError::from(failure.error)
        })?;
        let opened = added.iter().map(|descriptor| self.open(descriptor, table)).collect::<Result<Vec<_>, _>>();
        let opened = opened.inspect_err(|_| store.distrust_files())?;
        store.indexes.set(&opened, stand_ins);
        publish(opened.clone());
        self.forget_indexes(store, table, obsolete);
        Ok(opened)
    }

    /// The part of this node's log that an SSTable covers. It is empty for an SSTable of another node.
    pub fn intervals(&self, sstable: &SSTableReader) -> IntervalSet {
        let stats = &sstable.statistics().stats;
        let mut set = IntervalSet::default();
        if stats.originating_host_id == Some(self.host_id) {
            let position = |p: &CommitLogPosition| LogPosition { segment: p.segment, offset: p.offset };
            for (start, end) in &stats.commit_log_intervals {
                set.add(PositionInterval { start: position(start), end: position(end) });
            }
        }
        set
    }

    /// Deletes the files of SSTables of a directory. Readers that have them open can continue.
    pub fn remove(&self, directory: &Path, sstables: &[Descriptor]) -> Result<(), EngineError> {
        Ok(remove_tables(&*self.disk, directory, sstables)?)
    }

    /// Removes incomplete snapshots and incomplete exports. Called before any is made.
    fn remove_unfinished_snapshots(&self, directory: &Path) -> Result<(), EngineError> {
        let snapshots = directory.join(SNAPSHOTS);
        if !self.disk.exists(&snapshots)? {
            return Ok(());
        }
        let is_unfinished = |entry: &&DirectoryEntry| entry.is_dir && entry.name.starts_with(UNFINISHED);
        for entry in self.disk.list(&snapshots)?.iter().filter(is_unfinished) {
            self.disk.remove_dir_all(&snapshots.join(&entry.name))?;
        }
        Ok(())
    }

    fn component_files(&self, descriptor: &Descriptor) -> Result<Vec<String>, EngineError> {
        let names = self.disk.list(&descriptor.dir)?.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name);
        let is_ours = |name: &String| Descriptor::parse_file_name(name).is_some_and(|(id, _)| id == descriptor.id);
        Ok(names.filter(is_ours).collect())
    }

    /// Links SSTables into `directory`, beside a manifest and the schema. The directory is complete or does not exist.
    /// Until it is complete, its content is in `unfinished`, in the same parent.
    pub fn snapshot(
        &self,
        sstables: &[Arc<SSTableReader>],
        [unfinished, directory]: [&Path; 2],
        schema_cql: &str,
        [created_at, expires_at]: [Option<String>; 2],
    ) -> Result<(), EngineError> {
        self.link(sstables, unfinished)?;
        let data_file =
            |sstable: &Arc<SSTableReader>| format!("\"{}\"", sstable.descriptor().file_name(Component::Data));
        let mut data_files: Vec<String> = sstables.iter().map(data_file).collect();
        data_files.sort();
        let files = data_files.join(", ");
        let time = |time: Option<String>| time.map_or("null".to_owned(), |time| format!("\"{time}\""));
        let (created_at, expires_at) = (time(created_at), time(expires_at));
        let manifest =
            format!("{{\"files\": [{files}], \"created_at\": {created_at}, \"expires_at\": {expires_at}}}\n");
        self.write_whole(&unfinished.join(MANIFEST), manifest.as_bytes())?;
        self.write_whole(&unfinished.join("schema.cql"), schema_cql.as_bytes())?;
        self.disk.sync_dir(unfinished)?;
        self.disk.rename(unfinished, directory)?;
        directory.parent().map_or(Ok(()), |parent| Ok(self.disk.sync_dir(parent)?))
    }

    /// Links SSTables into a new directory. Existing content is from an interrupted attempt.
    pub fn link(&self, sstables: &[Arc<SSTableReader>], directory: &Path) -> Result<(), EngineError> {
        if self.disk.exists(directory)? {
            self.disk.remove_dir_all(directory)?;
        }
        self.disk.create_dir_all(directory)?;
        for descriptor in sstables.iter().map(|sstable| sstable.descriptor()) {
            for name in self.component_files(descriptor)? {
                self.disk.hard_link(&descriptor.dir.join(&name), &directory.join(&name))?;
            }
        }
        Ok(())
    }

    fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<(), EngineError> {
        let file = self.disk.open(path, OpenOptions::create())?;
        file.write_at(bytes, 0)?;
        Ok(file.sync_data()?)
    }
}

/// The error for an SSTable of the format `big` in a table's own directory, which is not read.
pub(crate) fn unread(big: &Descriptor) -> EngineError {
    let advice = "move it to another directory and have `espalier sstable import` take it";
    EngineError::Unsupported(format!("{big} is of the format big: {advice}"))
}

pub(crate) fn descriptors_of(sstables: &[Arc<SSTableReader>]) -> Vec<Descriptor> {
    sstables.iter().map(|sstable| sstable.descriptor().clone()).collect()
}

/// A cursor over an SSTable, read under `table`.
pub(crate) fn open_cursor(
    sstable: &Arc<SSTableReader>,
    table: &Arc<Table>,
    range: &ReadRange,
    mode: ReadMode,
) -> Result<BoxCursor<'static>, EngineError> {
    let cursor = match Arc::ptr_eq(sstable.table(), table) {
        true => sstable.cursor_with(range, mode)?,
        false => sstable.with_table(table)?.cursor_with(range, mode)?,
    };
    Ok(Box::new(cursor))
}

/// Removes dropped columns with which no row was written: no column set from version `oldest` on has them.
fn retain_written(table: &Table, is_static: bool, oldest: u32, columns: &mut Vec<usize>) {
    let sets = table.column_sets(is_static);
    let current = &sets.current().columns;
    if !columns.iter().any(|index| current[*index].is_dropped) {
        return;
    }
    let shown = sets.shown_since(oldest);
    columns.retain(|index| !current[*index].is_dropped || shown.contains(&*current[*index].name));
}

fn encoding_base(statistics: &MemtableStatistics) -> EncodingBase {
    let mut base = EncodingBase::default();
    if statistics.timestamp_min != i64::MAX {
        base.timestamp = statistics.timestamp_min;
    }
    if statistics.local_deletion_time_min != u32::MAX {
        base.local_deletion_time = statistics.local_deletion_time_min;
    }
    base.ttl = statistics.ttl_min;
    base
}

impl From<SSTableError> for EngineError {
    fn from(error: SSTableError) -> Self {
        match error {
            SSTableError::Disk(error) => error.into(),
            SSTableError::Source(error) => error.into(),
            error => EngineError::SSTable(Arc::new(error)),
        }
    }
}
