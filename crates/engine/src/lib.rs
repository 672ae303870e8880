//! The engine: tables that keep what is written to them.
//!
//! An [`Engine`] owns a directory. Writes go to the commit log, then into memtables ([`Engine::write`] decides that
//! order); memtables are flushed to SSTables; reads merge both ([`Engine::read`]). The schema is stored in the engine's
//! own tables. There is no async runtime in here: the one async function is a plain future that any executor, or
//! [`block_on`], can drive.
#![forbid(unsafe_code)]

mod admin;
mod adopt;
mod block_on;
mod by_table_id;
mod compact;
mod compaction_tasks;
mod disk_access;
mod disk_failure;
mod drop_table;
mod engine;
mod error;
mod files;
mod flush;
mod flush_failures;
mod flush_size;
mod flusher;
mod import;
mod in_memory;
mod log_host;
mod merges;
mod newest_first;
mod options;
mod quarantine;
mod read;
mod recovery;
mod replay_threads;
mod schema_change;
mod schema_check;
mod schema_rows;
mod store;
pub mod system;
mod truncate;
mod turn;
mod wakers;
mod worker;
mod write;

pub use admin::TableStats;
pub use adopt::AdoptedTable;
pub use block_on::block_on;
pub use blockio::{may_wait, to_wait, without_waiting};
pub use commitlog::{Awaited, Durable, LogHold};
pub use compaction_tasks::{ActiveCompaction, CompactionStats};
pub use disk_access::DiskAccess;
pub use disk_failure::{DiskFailureHook, DiskFailureKind};
pub use engine::Engine;
pub use error::EngineError;
pub use flusher::FlushStats;
pub use in_memory::{InMemoryNotice, InMemoryNotices, InMemoryStats};
pub use memtable::{MemtableConfiguration, PutCounts, RowPlace, TrieOptions};
pub use options::{EngineOptions, MemtableConfigurations, default_memtable_configurations};
pub use quarantine::{QuarantineHook, QuarantinedTable};
pub use read::Sought;
pub use recovery::ReplaySummary;
pub use schema_change::Keyspaces;
pub use schema_rows::SchemaDamage;
pub use sstable::{Edge, PartitionSlice};
pub use turn::Turn;
pub use write::BegunWrite;
