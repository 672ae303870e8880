//! The engine: tables that keep what is written to them.
//!
//! An [`Engine`] owns a directory. Writes go to the commit log, then into memtables ([`Engine::write`] decides that
//! order); memtables are flushed to SSTables; reads merge both ([`Engine::read`]). The schema is stored in the engine's
//! own tables. There is no async runtime in here: the one async function is a plain future that any executor, or
//! [`block_on`], can drive.
#![forbid(unsafe_code)]

mod block_on;
mod compaction;
mod disk_failure;
mod engine;
mod error;
mod files;
mod flush;
mod in_memory;
mod lock;
mod metrics;
mod options;
mod quarantine;
mod read;
mod recovery;
mod schema;
pub mod system;
mod table;
mod turn;
mod wakers;
mod worker;
mod write;

pub use self::compaction::tasks::{ActiveCompaction, CompactionStats};
pub use block_on::block_on;
pub use commitlog::{Durable, LogHold, LogPlace};
pub use compaction_tasks::{ActiveCompaction, CompactionStats};
pub use disk_access::DiskAccess;
pub use disk_failure::{DiskFailureHook, DiskFailureKind};
pub use engine::{BorrowedSchema, Engine};
pub use error::EngineError;
pub use files::adoption::AdoptedTable;
pub use files::disk_access::DiskAccess;
pub use flush::background::FlushStats;
pub use in_memory::{InMemoryNotice, InMemoryNotices, InMemoryStats};
pub use memtable::{MemtableConfiguration, PutCounts, RowPlace, TrieOptions};
pub use metrics::TableStats;
pub use options::{EngineOptions, MemtableConfigurations, default_memtable_configurations};
pub use quarantine::{QuarantineHook, QuarantinedTable};
pub use read::Sought;
pub use recovery::ReplaySummary;
pub use schema::change::Keyspaces;
pub use schema::schema_rows::SchemaDamage;
pub use sstable::{Edge, PartitionSlice};
pub use turn::Turn;
pub use write::{BegunWrite, Oversized};
