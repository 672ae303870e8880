//! How an engine is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blockio::Disk;
use memtable::MemtableConfiguration;

/// Memtables by name; an error is Cassandra's words for why the definition cannot be used.
pub type MemtableConfigurations = BTreeMap<String, Result<MemtableConfiguration, String>>;

/// What `cassandra_latest.yaml` has, for whoever configures nothing: `trie`, which is the `default`, and `skiplist`.
pub fn default_memtable_configurations() -> MemtableConfigurations {
    let trie = MemtableConfiguration::default();
    let all = [("default", trie), ("trie", trie), ("skiplist", MemtableConfiguration::SkipList)];
    all.into_iter().map(|(name, configuration)| (name.to_string(), Ok(configuration))).collect()
}

use crate::disk_access::DiskAccess;
use crate::disk_failure::DiskFailureHook;
use crate::in_memory::InMemoryNotices;
use crate::quarantine::QuarantineHook;

/// Settings of an engine. Defaults are those of `conf/espalier.yaml`.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// Holds `data/<keyspace>/<table>-<id>/` and, unless set otherwise, `commitlog/`.
    pub directory: PathBuf,
    /// The commit log's settings.
    pub commitlog: commitlog::LogOptions,
    /// The memory that memtables may hold, bytes.
    pub memtable_space_bytes: u64,
    /// The part of it at which the largest memtable is flushed, 0 to 1.
    pub memtable_cleanup_threshold: f64,
    /// Tables that are flushed at the same time in the background; at least one.
    pub memtable_flush_writers: usize,
    /// Shards of a user table's memtable, where its configuration does not say how many.
    pub memtable_shards: usize,
    /// What tables name by `WITH memtable`, or why it cannot be used. Tables use `default` where nothing else is
    /// there.
    pub memtable_configurations: MemtableConfigurations,
    /// The granularity of row indexes, bytes (`column_index_size`).
    pub column_index_size_bytes: u32,
    /// Memory for pages and chunks of SSTables, bytes (`file_cache_size`).
    pub cache_bytes: u64,
    /// Whether SSTables go past the kernel's page cache (`disk_access_mode`).
    pub disk_access: DiskAccess,
    /// Compactions that run at the same time; 0 switches compaction off.
    pub concurrent_compactors: usize,
    /// Bytes per second that all compactions together write, before compression; 0 is no limit.
    pub compaction_throughput_bytes: u64,
    /// How long after a look at all tables, of which the first is at the start, the compactors look again without
    /// being asked. Cassandra's minute.
    pub compaction_look_every: Duration,
    /// Told of SSTables that are damaged and of files that the system refuses to read or write
    /// (`disk_failure_policy`).
    pub on_disk_failure: Option<DiskFailureHook>,
    /// Is told of tables that are quarantined while the engine runs; those of the start are among
    /// [`Engine::quarantined_tables`](crate::Engine::quarantined_tables).
    pub on_quarantine: Option<QuarantineHook>,
    /// Whether nothing on the disk is changed: what a start writes (replayed records, leftovers) is in memory only,
    /// and writes and changes of the schema are refused.
    pub read_only: bool,
    /// Whether the engine opens although an SSTable of a user's table cannot be read: that table is quarantined, and
    /// all others are served.
    pub opens_damaged: bool,
    /// What all tables in memory may take together, bytes (`max_memory_to_lock_mb`); their `size_limit_in_mb` add up
    /// to no more.
    pub max_memory_to_lock_bytes: u64,
    /// Changes of a table in memory are not flushed for the disk's sake while they are less than this, bytes.
    pub in_memory_flush_bytes_min: u64,
    /// A flush of a table in memory that has less than this in SSTables, bytes, writes all of it into one.
    pub in_memory_rewritten_bytes_max: u64,
    /// Is told of tables in memory that come near their limits.
    pub in_memory_notices: Option<InMemoryNotices>,
}

impl EngineOptions {
    /// Defaults over a directory.
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
            disk_access: DiskAccess::default(),
            concurrent_compactors: 1,
            compaction_throughput_bytes: 64 << 20,
            compaction_look_every: Duration::from_secs(60),
            on_disk_failure: None,
            on_quarantine: None,
            read_only: false,
            opens_damaged: true,
            max_memory_to_lock_bytes: u64::MAX,
            in_memory_flush_bytes_min: compaction::FLUSH_BYTES_MIN,
            in_memory_rewritten_bytes_max: compaction::REWRITTEN_BYTES_MAX,
            in_memory_notices: None,
        }
    }

    /// The memtable that a table of options `memtable = name` has: if that is not configured (any more), the default
    /// one.
    pub(crate) fn memtable_configuration(&self, name: &str) -> MemtableConfiguration {
        let configured = |name: &str| self.memtable_configurations.get(name).and_then(|found| found.clone().ok());
        configured(name).or_else(|| configured("default")).unwrap_or_default()
    }
}
