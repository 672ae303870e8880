//! What the engine refuses, by what the caller does next.

use std::fmt;
use std::sync::Arc;

use model::ReadError;

/// An operation that the engine did not carry out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EngineError {
    /// The table does not exist (any more): resolve the statement again.
    UnknownTable(String),
    /// The write is larger than the log takes in one record: split it.
    MutationTooLarge {
        /// Its size in the log, bytes.
        size_bytes: u64,
        /// The limit, bytes.
        size_bytes_max: u64,
    },
    /// The engine does not take writes any more, for the reason given: reads go on; restart after mending.
    ClosedForWrites(String),
    /// Stored data could not be read; other data can.
    Read(Arc<ReadError>),
    /// An SSTable is damaged, or cannot hold what it was to; other tables are sound.
    SSTable(Arc<sstable::SSTableError>),
    /// The write would take a table in memory past its limit: delete something, or raise the limit. Nothing was written.
    InMemoryTableFull {
        /// Keyspace and name.
        table: String,
        /// What it takes, bytes.
        used_bytes: u64,
        /// What it may take, bytes.
        limit_bytes: u64,
    },
    /// The tables in memory may not take as much as the change of the schema would let them: choose other limits.
    InMemorySpace(String),
    /// Not possible with what this version has.
    Unsupported(String),
    /// The disk refused an operation.
    Disk(Arc<blockio::DiskError>),
    /// The data directory cannot be opened as it is.
    Startup(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::UnknownTable(table) => write!(f, "table {table} does not exist"),
            EngineError::MutationTooLarge { size_bytes, size_bytes_max } => {
                write!(f, "Mutation of {size_bytes} bytes is too large for the maximum size of {size_bytes_max}")
            }
            EngineError::ClosedForWrites(reason) => write!(f, "the node takes no writes: {reason}"),
            EngineError::Read(error) => write!(f, "{error}"),
            EngineError::SSTable(error) => write!(f, "{error}"),
            EngineError::Disk(error) => write!(f, "{error}"),
            EngineError::InMemoryTableFull { table, used_bytes, limit_bytes } => write!(
                f,
                "Table {table} lives in memory and is full: it takes {used_bytes} bytes of its {limit_bytes} (size_limit_in_mb {}); \
                 delete something or raise the limit",
                limit_bytes >> 20
            ),
            EngineError::Unsupported(reason) | EngineError::Startup(reason) | EngineError::InMemorySpace(reason) => {
                write!(f, "{reason}")
            }
        }
    }
}

impl std::error::Error for EngineError {}

impl From<ReadError> for EngineError {
    fn from(error: ReadError) -> Self {
        EngineError::Read(Arc::new(error))
    }
}

impl From<blockio::DiskError> for EngineError {
    fn from(error: blockio::DiskError) -> Self {
        EngineError::Disk(Arc::new(error))
    }
}
