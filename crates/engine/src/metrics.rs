//! Statistics of tables.

use std::sync::Arc;

use memtable::PutCounts;
use model::Table;

use crate::shared::Shared;
use crate::table::TableStore;
use crate::table::in_memory::{InMemoryStats, in_memory_stats};

/// Statistics of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// SSTables that reads use.
    pub sstable_count: usize,
    /// Bytes of their files.
    pub disk_bytes: u64,
    /// Memory for Bloom filters.
    pub filter_bytes: usize,
    /// Memory for chunk offsets and checksums.
    pub metadata_bytes: usize,
    /// Bytes read from the Data.db files of the current SSTables.
    pub data_bytes_read: u64,
    /// Partitions in SSTables, counted once per SSTable.
    pub sstable_partition_count: u64,
    /// Partitions in memtables, counted once per memtable.
    pub memtable_partition_count: u64,
    /// Bytes that memtables use.
    pub memtable_bytes: u64,
    /// Counts of contended and uncontended writes at each shard of the table's memtables since the start.
    pub memtable_puts: Vec<PutCounts>,
    /// Bytes that were taken from the system for them.
    pub memtable_committed_bytes: u64,
    /// Memtables that are being flushed.
    pub pending_flushes: usize,
    /// The figures of a table that lives in memory.
    pub in_memory: Option<InMemoryStats>,
}

impl TableStats {
    /// Cassandra's `AllMemtablesLiveDataSize`: bytes that data and their structure take in memory.
    pub fn all_memtables_live_data_size(&self) -> u64 {
        self.memtable_bytes + self.in_memory.map_or(0, |in_memory| in_memory.used_bytes)
    }

    /// Cassandra's `AllMemtablesOffHeapDataSize`: the bytes taken from the system for that. Nothing is on a heap.
    pub fn all_memtables_off_heap_data_size(&self) -> u64 {
        self.memtable_committed_bytes + self.in_memory.map_or(0, |in_memory| in_memory.committed_bytes)
    }
}

/// Statistics of every table, by keyspace and name.
pub(crate) fn all_table_stats(shared: &Shared) -> Vec<TableStats> {
    let mut all: Vec<_> = shared.stores().iter().map(|store| stats_of(store)).collect();
    all.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
    all
}

/// Statistics of one table.
pub(crate) fn stats_of(store: &TableStore) -> TableStats {
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
