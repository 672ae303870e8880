//! The storage engine: durable tables.
//!
//! An [`Engine`] owns a directory. Writes go to the commit log, then into memtables ([`Engine::write`]); memtables are
//! flushed to SSTables; reads merge both ([`Engine::read`]). The schema is stored in the engine's own tables. The
//! engine contains no async runtime: its async functions return plain futures, which any executor, or [`block_on`], can
//! drive.
#![forbid(unsafe_code)]

mod block_on;
mod compaction;
mod engine;
mod error;
mod files;
mod flush;
mod hooks;
mod index_stats;
mod indexing;
mod lock;
mod metrics;
mod options;
mod quarantine;
mod read;
mod recovery;
mod residents;
mod schema;
mod schema_rows;
mod shared;
pub mod system;
mod table;
mod transfer;
mod turn;
mod unsettled;
mod wakers;
mod worker;
mod write;

pub use self::compaction::tasks::{ActiveCompaction, CompactionStats};
pub use block_on::{block_on, block_on_until};
pub use commitlog::{Awaited, Durable, LogHold};
pub use engine::{Engine, PendingWrite};
pub use error::EngineError;
pub use files::disk_access::DiskAccess;
pub use flush::FlushStats;
pub use hooks::{
    DiskFailureHook, DiskFailureKind, HostRows, InMemoryNotice, InMemoryNotices, IndexBuildNotice, IndexBuildNotices,
    QuarantineHook,
};
pub use index::{IndexGrowth, Indexer, RowKey, analysed, entry_value, terms};
pub use index_stats::{IndexFileStats, IndexStats};
pub use memtable::{MemtableConfiguration, PutCounts, RowLocation, TrieOptions};
pub use metrics::TableStats;
pub use options::{EngineOptions, MemtableConfigurations, default_memtable_configurations};
pub use quarantine::QuarantinedTable;
pub use read::{IndexCandidates, IndexedValues, NearestCandidates, NearestStep, RowSelection, Rows};
pub use recovery::ReplaySummary;
pub use schema::change::Keyspaces;
pub use schema_rows::SchemaDamage;
pub use shared::BorrowedSchema;
pub use sstable::{Edge, Oversize, PartitionHint, PartitionSlice, SizeHook, SizeKind, SizeLimits};
pub use table::in_memory::InMemoryStats;
pub use transfer::{AdoptedTable, SnapshotInfo};
pub use turn::Turn;
pub use unsettled::Unsettled;
pub use write::{CachedCounters, CounterCacheStats, Derive, Derived, index_growth, may_grow_indexes};
