//! The settings of an engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blockio::Disk;
use memtable::MemtableConfiguration;
use model::{LargeRowLimit, RowMemory};
use sstable::{SizeHook, SizeLimits};

/// Memtables by name. An error contains Cassandra's text for why the definition cannot be used.
pub type MemtableConfigurations = BTreeMap<String, Result<MemtableConfiguration, String>>;

/// The definitions of `cassandra_latest.yaml`, for nodes without a configuration: `trie`, which is the `default`, and
/// `skiplist`.
pub fn default_memtable_configurations() -> MemtableConfigurations {
    let trie = MemtableConfiguration::default();
    let all = [("default", trie), ("trie", trie), ("skiplist", MemtableConfiguration::SkipList)];
    all.into_iter().map(|(name, configuration)| (name.to_string(), Ok(configuration))).collect()
}

use crate::files::disk_access::DiskAccess;
use crate::hooks::{DiskFailureHook, HostRows, InMemoryNotices, IndexBuildNotices, QuarantineHook};

/// Settings of an engine. The defaults are those of `conf/espalier.yaml`.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The disk that has the files.
    pub disk: Arc<dyn Disk>,
    /// The directory that contains `data/<keyspace>/<table>-<id>/` and, unless set otherwise, `commitlog/`.
    pub directory: PathBuf,
    /// The commit log's settings.
    pub commitlog: commitlog::LogOptions,
    /// The memory that memtables may use, bytes.
    pub memtable_space_bytes: u64,
    /// The fraction of it at which the largest memtable is flushed, 0 to 1.
    pub memtable_cleanup_threshold: f64,
    /// The number of tables that are flushed at the same time in the background, at least one.
    pub memtable_flush_writers: usize,
    /// The number of shards of a user table's memtable, unless its configuration sets one.
    pub memtable_shards: usize,
    /// The memtables that tables name with `WITH memtable`, or why one cannot be used. Tables use `default` if the name
    /// is unknown.
    pub memtable_configurations: MemtableConfigurations,
    /// The granularity of row indexes, bytes (`column_index_size`).
    pub column_index_size_bytes: u32,
    /// Memory for pages and chunks of SSTables, bytes (`file_cache_size`).
    pub cache_bytes: u64,
    /// Memory for what counters hold, bytes (`counter_cache_size`); 0 means that increments read it from the tables.
    pub counter_cache_bytes: u64,
    /// Whether SSTables go past the kernel's page cache (`disk_access_mode`).
    pub disk_access: DiskAccess,
    /// The number of compactions that run at the same time; 0 disables compaction.
    pub concurrent_compactors: usize,
    /// The bytes per second that all compactions together write, before compression; 0 means no limit.
    pub compaction_throughput_bytes: u64,
    /// The interval at which the compactors examine all tables without a request, beginning at the start. It is
    /// Cassandra's minute.
    pub compaction_check_interval: Duration,
    /// Receives damage of SSTables, and reads and writes of files that the system refuses (`disk_failure_policy`).
    pub on_disk_failure: Option<DiskFailureHook>,
    /// Receives the tables that are quarantined while the engine runs. Those of the start are among
    /// [`Engine::quarantined_tables`](crate::Engine::quarantined_tables).
    pub on_quarantine: Option<QuarantineHook>,
    /// Whether nothing on the disk is changed. The changes of a start (replayed records, leftovers) are then only in
    /// memory, and writes and schema changes are refused.
    pub read_only: bool,
    /// Whether the engine opens although an SSTable of a user's table cannot be read: that table is quarantined, and
    /// all others are served.
    pub opens_damaged: bool,
    /// The memory that all tables in memory may use together, bytes (`max_memory_to_lock_mb`). The sum of their
    /// `size_limit_in_mb` must not exceed it.
    pub max_memory_to_lock_bytes: u64,
    /// Changes of a table in memory are not flushed to save disk space while they are smaller than this, bytes.
    pub in_memory_flush_bytes_min: u64,
    /// If a table in memory has SSTables smaller than this, bytes, its flush writes all of them into one.
    pub in_memory_rewritten_bytes_max: u64,
    /// Receives notices of tables in memory that approach their limits.
    pub in_memory_notices: Option<InMemoryNotices>,
    /// Receives the steps of builds of indexes in the background.
    pub index_build_notices: Option<IndexBuildNotices>,
    /// The sizes above which partitions and collections in new SSTables are reported to `size_hook`.
    pub size_limits: SizeLimits,
    /// Receives them.
    pub size_hook: Option<SizeHook>,
    /// Counts the copies of large rows that flushes, compactions and builds of indexes hold. If it refuses, they fail.
    pub background_rows: Option<Arc<dyn RowMemory>>,
    /// The rows that the host keeps itself, whose deletions are not purged; `None` if it keeps none.
    pub host_rows: Option<Arc<dyn HostRows>>,
}

impl EngineOptions {
    /// The defaults for a directory.
    pub fn new(disk: Arc<dyn Disk>, directory: impl Into<PathBuf>) -> Self {
        let directory: PathBuf = directory.into();
        EngineOptions {
            disk,
            commitlog: commitlog::LogOptions::new(directory.join("commitlog")),
            directory,
            memtable_space_bytes: 512 << 20,
            memtable_cleanup_threshold: 0.33,
            memtable_flush_writers: 2,
            memtable_configurations: default_memtable_configurations(),
            memtable_shards: std::thread::available_parallelism().map_or(2, |cores| cores.get()),
            column_index_size_bytes: 16 << 10,
            cache_bytes: 128 << 20,
            counter_cache_bytes: 50 << 20,
            disk_access: DiskAccess::default(),
            concurrent_compactors: 1,
            compaction_throughput_bytes: 64 << 20,
            compaction_check_interval: Duration::from_secs(60),
            on_disk_failure: None,
            on_quarantine: None,
            read_only: false,
            opens_damaged: true,
            max_memory_to_lock_bytes: u64::MAX,
            in_memory_flush_bytes_min: compaction::FLUSH_BYTES_MIN,
            in_memory_rewritten_bytes_max: compaction::REWRITTEN_BYTES_MAX,
            in_memory_notices: None,
            index_build_notices: None,
            size_limits: SizeLimits::default(),
            size_hook: None,
            background_rows: None,
            host_rows: None,
        }
    }

    /// The limit on copies of large rows for work in the background.
    pub(crate) fn background_rows(&self) -> LargeRowLimit {
        self.background_rows.clone().map_or(LargeRowLimit::None, LargeRowLimit::Memory)
    }

    /// The memtable of a table with the option `memtable = name`. If that is not configured (any more), it is the
    /// default.
    pub(crate) fn memtable_configuration(&self, name: &str) -> MemtableConfiguration {
        let configured = |name: &str| self.memtable_configurations.get(name).and_then(|found| found.clone().ok());
        configured(name).or_else(|| configured("default")).unwrap_or_default()
    }
}
