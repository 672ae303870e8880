//! What an operator asks for: flush, snapshot, compaction, numbers.

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};

use memtable::PutCounts;
use model::Table;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::files::{snapshot_directory, unfinished_snapshot_directory};
use crate::in_memory::{InMemoryStats, in_memory_stats};
use crate::lock::lock;
use crate::table::TableStore;

/// A table in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// SSTables that reads look at.
    pub sstable_count: usize,
    /// Bytes of their files.
    pub disk_bytes: u64,
    /// Memory for Bloom filters.
    pub filter_bytes: usize,
    /// Memory for chunk offsets and checksums.
    pub metadata_bytes: usize,
    /// Bytes read from Data.db files of today's SSTables.
    pub data_bytes_read: u64,
    /// Partitions in SSTables, counted once per SSTable.
    pub sstable_partition_count: u64,
    /// Partitions in memtables, counted once per memtable.
    pub memtable_partition_count: u64,
    /// Bytes that memtables use.
    pub memtable_bytes: u64,
    /// How writers met at each shard of the table's memtables since the start.
    pub memtable_puts: Vec<PutCounts>,
    /// Bytes that were taken from the system for them.
    pub memtable_committed_bytes: u64,
    /// Memtables that are being flushed.
    pub pending_flushes: usize,
    /// Of a table that lives in memory.
    pub in_memory: Option<InMemoryStats>,
}

impl TableStats {
    /// Cassandra's `AllMemtablesLiveDataSize`: bytes that data and their structure take in memory.
    pub fn all_memtables_live_data_size(&self) -> u64 {
        self.memtable_bytes + self.in_memory.map_or(0, |in_memory| in_memory.used_bytes)
    }

    /// Cassandra's `AllMemtablesOffHeapDataSize`: bytes taken from the system for that. There is no heap: it is all of
    /// it.
    pub fn all_memtables_off_heap_data_size(&self) -> u64 {
        self.memtable_committed_bytes + self.in_memory.map_or(0, |in_memory| in_memory.committed_bytes)
    }
}

impl Engine {
    /// Flushes one table. Blocks on the disk.
    pub fn flush(&self, table: &Table) -> Result<(), EngineError> {
        let store = self.store(table)?;
        self.flush_and_compact(&store).map(|_| ())
    }

    /// Flushes every table that holds anything, and answers the first failure once all were tried. Blocks on the disk.
    pub fn flush_all(&self) -> Result<(), EngineError> {
        let failures = self.flush_each();
        failures.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Flushes every table; those that could not be flushed, and why.
    pub(crate) fn flush_each(&self) -> Vec<(Arc<TableStore>, EngineError)> {
        let stores = self.stores().into_iter();
        stores.filter_map(|store| self.flush_store(&store).err().map(|error| (store, error))).collect()
    }

    /// Links the table's SSTables, memtables flushed first, into `snapshots/<name>` of its directory, with a manifest
    /// and `schema_cql`. Blocks on the disk. Returns the directory, which is there complete or not at all.
    pub fn snapshot(&self, table: &Table, name: &str, schema_cql: &str) -> Result<PathBuf, EngineError> {
        self.snapshot_as_first_of(table, [name.to_owned()], schema_cql)
    }

    /// As [`snapshot`](Self::snapshot), by the first of these names that the table has no snapshot of.
    pub fn snapshot_as_first_of(
        &self,
        table: &Table,
        names: impl IntoIterator<Item = String>,
        schema_cql: &str,
    ) -> Result<PathBuf, EngineError> {
        self.check_writable()?;
        let store = self.store(table)?;
        self.flush_store(&store)?;
        let created_at = timestamp_text(self.now_millis());
        let _no_deletion = keep_files(&store)?;
        let mut taken = String::new();
        for name in names {
            let directory = snapshot_directory(&store, &name);
            if !self.options().disk.exists(&directory)? {
                let unfinished = unfinished_snapshot_directory(&store, &name);
                let sstables = &store.view().sstables;
                self.files().snapshot(sstables, [&unfinished, &directory], schema_cql, &created_at)?;
                return Ok(directory);
            }
            taken = name;
        }
        Err(EngineError::Unsupported(format!("Snapshot {taken} already exists.")))
    }

    /// Links the table's SSTables, memtables flushed first, into a directory of their own, which the next start removes
    /// if the caller does not.
    pub(crate) fn link_for_export(&self, table: &Table) -> Result<PathBuf, EngineError> {
        let store = self.store(table)?;
        self.flush_store(&store)?;
        let directory = unfinished_snapshot_directory(&store, &format!("export-{}", self.files().new_timeuuid()));
        let _no_deletion = keep_files(&store)?;
        self.files().link(&store.view().sstables, &directory)?;
        Ok(directory)
    }

    /// Numbers of one table.
    pub fn table_stats(&self, table: &Table) -> Result<TableStats, EngineError> {
        Ok(self.stats_of(&*self.store(table)?))
    }

    /// Numbers of every table, by keyspace and name.
    pub fn all_table_stats(&self) -> Vec<TableStats> {
        let mut all: Vec<_> = self.stores().iter().map(|store| self.stats_of(store)).collect();
        all.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
        all
    }

    fn stats_of(&self, store: &TableStore) -> TableStats {
        let (table, view): (Arc<Table>, _) = (store.table.load_full(), store.view());
        TableStats {
            keyspace: table.keyspace.to_string(),
            table: table.name.to_string(),
            sstable_count: view.sstables.len(),
            disk_bytes: view.sstables.iter().map(|sstable| sstable.size_on_disk_bytes()).sum(),
            filter_bytes: view.sstables.iter().map(|sstable| sstable.filter_bytes()).sum(),
            metadata_bytes: view.sstables.iter().map(|sstable| sstable.metadata_bytes()).sum(),
            data_bytes_read: view.sstables.iter().map(|sstable| sstable.data_bytes_read()).sum(),
            sstable_partition_count: view.sstables.iter().map(|sstable| sstable.partition_count()).sum(),
            memtable_partition_count: view.generations().map(|g| g.memtable.statistics().partition_count).sum(),
            memtable_bytes: view.generations().map(|g| g.memtable.memory().used_bytes).sum(),
            memtable_puts: store.puts(),
            memtable_committed_bytes: view.generations().map(|g| g.memtable.memory().committed_bytes).sum(),
            pending_flushes: view.frozen.len(),
            in_memory: in_memory_stats(store),
        }
    }

    /// Bytes of SSTables' pages and chunks in memory.
    pub fn cache_bytes(&self) -> u64 {
        self.files().cache_bytes()
    }

    /// Bytes that dropped memtables left, which those that come use before they ask the system.
    pub fn spare_memtable_bytes(&self) -> u64 {
        self.spare_pages().bytes() as u64
    }

    /// Bytes that all memtables use.
    pub fn memtable_bytes(&self) -> u64 {
        self.pool().used_bytes()
    }
}

/// Has the files that the view names stay as long as what is returned lives.
fn keep_files(store: &TableStore) -> Result<MutexGuard<'_, ()>, EngineError> {
    let no_deletion = lock(&store.files);
    store.check_files()?;
    Ok(no_deletion)
}

/// ISO 8601 in UTC with milliseconds, as Cassandra's manifests have it.
fn timestamp_text(millis: i64) -> String {
    types::CqlType::Timestamp.to_json(&millis.to_be_bytes()).trim_matches('"').replacen(' ', "T", 1)
}
