//! The hooks through which the engine reports to its host: failures of the disk, on which `disk_failure_policy` acts,
//! tables that are quarantined, tables in memory that approach their limits, and indexes that are built. One hook asks
//! the host: it may keep rows of a table itself.
//!
//! The engine itself continues in any case: the request that encountered the failure fails, a flush keeps its memtable,
//! and a merge keeps its inputs.

use std::fmt;
use std::sync::Arc;

use blockio::DiskErrorKind;
use model::{ReadError, TableId};
use sstable::SSTableError;

use crate::error::EngineError;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFailureKind {
    /// An SSTable has other bytes than were written, or fewer. Other SSTables are sound.
    Corruption,
    /// The system refused a read or a write. A full disk is not such a failure, because it stops flushes and permits
    /// reads. Neither is a process without free descriptors: it has too many open files and connections, and retries.
    FileSystem,
    /// The file of a secondary index cannot be built or read. It holds nothing that its SSTable does not hold: all rows
    /// are read in its place, and it is built again.
    Index,
}

type Listener = dyn Fn(DiskFailureKind, &str) + Send + Sync;

/// Receives each failure with its kind and text, on any thread. It must not block.
#[derive(Clone)]
pub struct DiskFailureHook(pub(crate) Arc<Listener>);

impl DiskFailureHook {
    /// Calls `listener`.
    pub fn new(listener: impl Fn(DiskFailureKind, &str) + Send + Sync + 'static) -> Self {
        DiskFailureHook(Arc::new(listener))
    }
}

impl fmt::Debug for DiskFailureHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskFailureHook")
    }
}

impl DiskFailureKind {
    /// The kind of an error, if it is a failure of the disk.
    pub fn of(error: &EngineError) -> Option<DiskFailureKind> {
        match error {
            EngineError::Read(error) => Self::of_read(error),
            EngineError::Disk(error) => Self::of_disk(error),
            EngineError::SSTable(error) => match &**error {
                SSTableError::Corruption(_) => Some(DiskFailureKind::Corruption),
                SSTableError::Disk(error) => Self::of_disk(error),
                SSTableError::Source(error) => Self::of_read(error),
                _ => None,
            },
            _ => None,
        }
    }

    /// The kind of a cursor's error, if it is a failure of the disk.
    pub fn of_read(error: &ReadError) -> Option<DiskFailureKind> {
        match error {
            ReadError::Corruption { .. } => Some(DiskFailureKind::Corruption),
            ReadError::Io { source, .. } if is_no_failure(source.kind()) => None,
            error if error.would_wait() => None,
            ReadError::Io { .. } => Some(DiskFailureKind::FileSystem),
            _ => None,
        }
    }

    fn of_disk(error: &blockio::DiskError) -> Option<DiskFailureKind> {
        match error.kind() {
            DiskErrorKind::UnexpectedEnd => Some(DiskFailureKind::Corruption),
            DiskErrorKind::Full | DiskErrorKind::Locked | DiskErrorKind::Unsupported | DiskErrorKind::WouldWait => None,
            DiskErrorKind::OutOfDescriptors => None,
            _ => Some(DiskFailureKind::FileSystem),
        }
    }
}

/// Errors of cursors that are not failures of the disk: unsupported formats, and files that cannot be opened for lack
/// of a descriptor.
fn is_no_failure(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::Unsupported | std::io::ErrorKind::ResourceBusy)
}

/// Called from any thread with the error that clients of the table get. It must not block.
#[derive(Clone)]
pub struct QuarantineHook(pub Arc<dyn Fn(&EngineError) + Send + Sync>);

impl fmt::Debug for QuarantineHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuarantineHook")
    }
}

/// A notice that a table in memory approaches its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InMemoryNotice {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// The percentage of the limit that was reached: 80 or 95.
    pub percent: u64,
    /// The table's memory in bytes.
    pub used_bytes: u64,
    /// The table's limit in bytes.
    pub limit_bytes: u64,
}

/// Receives the notices, from any thread.
#[derive(Clone)]
pub struct InMemoryNotices(pub Arc<dyn Fn(&InMemoryNotice) + Send + Sync>);

impl fmt::Debug for InMemoryNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InMemoryNotices")
    }
}

/// A step of the building of indexes in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexBuildNotice {
    /// The missing index files of an SSTable are being built.
    SSTable {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
        /// The id of the SSTable.
        sstable: String,
        /// The bytes of its data, before compression.
        data_bytes: u64,
        /// How many SSTables of the table have index files to be built, with this one.
        remaining: usize,
    },
    /// An index is built for the first time: from now on its table is not read as a whole.
    Complete {
        /// The keyspace.
        keyspace: String,
        /// The index.
        index: String,
    },
}

/// Receives the notices, from any thread. It must not block.
#[derive(Clone)]
pub struct IndexBuildNotices(pub Arc<dyn Fn(&IndexBuildNotice) + Send + Sync>);

impl fmt::Debug for IndexBuildNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexBuildNotices")
    }
}

/// The rows of tables that the host keeps outside of the engine. The host merges them with what the engine reads, so a
/// deletion here may shadow a row there, and a merge must not purge it. Tables in memory have no such rows.
pub trait HostRows: fmt::Debug + Send + Sync {
    /// The least timestamp of the rows of a table, microseconds; `i64::MAX` if there are none. Merges call it from any
    /// thread for each partition, so it must not block.
    fn oldest_timestamp(&self, table: TableId) -> i64;
}
