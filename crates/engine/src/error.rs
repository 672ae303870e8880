//! The engine's errors, classified by what the caller can do next.

use std::cmp::Reverse;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use blockio::DiskErrorKind;
use model::{PartitionUpdate, ReadError};
use sstable::SSTableError;

/// The bytes of keys in a message. It has at least one key.
const KEYS_LENGTH_MAX: usize = 1024;

/// An operation that the engine did not carry out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EngineError {
    /// The table does not exist (any more): resolve the statement again.
    UnknownTable(String),
    /// The write is larger than the log takes in one record: split it. Nothing was written.
    MutationTooLarge {
        /// Its size in the log, bytes.
        size_bytes: u64,
        /// The limit, bytes.
        size_bytes_max: u64,
        /// Of its largest part.
        keyspace: String,
        /// Table and key of its parts, the largest first; of many only some.
        keys: String,
    },
    /// The engine takes no more writes, for the reason given: reads continue; repair the cause and restart.
    ClosedForWrites(String),
    /// Stored data could not be read; other data can.
    Read(Arc<ReadError>),
    /// An SSTable is damaged, or cannot hold what it was to; other tables are sound.
    SSTable(Arc<sstable::SSTableError>),
    /// A file of a secondary index cannot be read and is no longer used: discard what was read so far, and read again.
    /// Reads scan all rows until the file is rebuilt.
    UnreadableIndex(Arc<sstable::SSTableError>),
    /// The write would exceed the limit of a table in memory: delete something, or raise the limit. Nothing was
    /// written.
    InMemoryTableFull {
        /// Keyspace and name.
        table: String,
        /// The bytes it uses.
        used_bytes: u64,
        /// Its limit, bytes.
        limit_bytes: u64,
    },
    /// The options that a change of the schema gives a table cannot be used: choose others. The schema is as it was.
    TableOptions(String),
    /// The change of the schema could not be stored so that the next start reads the same: choose other types or
    /// options. Nothing was changed.
    Unstorable(String),
    /// The table is not served, for the reason given, until the cause is gone and it is repaired; all others are.
    Quarantined {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
        /// Why.
        reason: String,
    },
    /// Log records of a table were set aside when it was quarantined: without them its rows would be wrong.
    SetAside {
        /// The first file that holds them.
        path: PathBuf,
        /// The reason why it was quarantined.
        reason: String,
    },
    /// A side file is damaged, or of another version: put it back as it was, and repair the table again.
    SideFile {
        /// The file.
        path: PathBuf,
        /// The offset of the damage, bytes.
        offset: u64,
        /// The expected content.
        expected: String,
        /// The content found.
        found: String,
    },
    /// This version does not support it.
    Unsupported(String),
    /// The disk refused an operation.
    Disk(Arc<blockio::DiskError>),
    /// A shutdown could not flush these tables, each with the reason; all others are drained.
    NotDrained(Vec<String>),
    /// The node stopped before the table was flushed; the commit log keeps its records.
    OutOfTime,
    /// The data directory cannot be opened as it is.
    Startup(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::UnknownTable(table) => write!(f, "table {table} does not exist"),
            EngineError::MutationTooLarge { size_bytes, size_bytes_max, keyspace, keys } => write!(
                f,
                "Rejected an oversized mutation ({size_bytes}/{size_bytes_max}) for keyspace: {keyspace}. Top keys are: {keys}"
            ),
            EngineError::ClosedForWrites(reason) => write!(f, "the node takes no writes: {reason}"),
            EngineError::Read(error) => write!(f, "{error}"),
            EngineError::SSTable(error) | EngineError::UnreadableIndex(error) => write!(f, "{error}"),
            EngineError::Disk(error) => write!(f, "{error}"),
            EngineError::InMemoryTableFull { table, used_bytes, limit_bytes } => write!(
                f,
                "Table {table} lives in memory and is full: it takes {used_bytes} bytes of its {limit_bytes} (size_limit_in_mb {}); \
                 delete something or raise the limit",
                limit_bytes >> 20
            ),
            EngineError::Quarantined { keyspace, table, reason } => write!(
                f,
                "Table {keyspace}.{table} is quarantined: {reason}; once the cause is gone, `espalier repair-table {keyspace} {table}` \
                 takes it back into service"
            ),
            EngineError::OutOfTime => write!(f, "the node stopped before it was flushed"),
            EngineError::NotDrained(tables) => write!(f, "{}", tables.join("; ")),
            EngineError::SetAside { path, reason } => {
                write!(f, "its log records were set aside in {} because of this: {reason}", path.display())
            }
            EngineError::SideFile { path, offset, expected, found } => {
                write!(f, "{} at offset {offset}: expected {expected}, found {found}", path.display())
            }
            EngineError::Unsupported(reason)
            | EngineError::Startup(reason)
            | EngineError::TableOptions(reason)
            | EngineError::Unstorable(reason) => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for EngineError {}

impl EngineError {
    /// Whether a read would only have to wait for a device, on a thread that may not: see
    /// [`Turn::may_block`](crate::Turn::may_block).
    pub fn would_wait(&self) -> bool {
        let disk = |error: &blockio::DiskError| error.kind() == DiskErrorKind::WouldWait;
        match self {
            EngineError::Read(error) => error.would_wait(),
            EngineError::Disk(error) => disk(error),
            EngineError::SSTable(error) => match &**error {
                SSTableError::Disk(error) => disk(error),
                SSTableError::Source(error) => error.would_wait(),
                _ => false,
            },
            _ => false,
        }
    }

    /// The error of a mutation of these updates that is larger than a log record may be.
    pub(crate) fn too_large(updates: &[PartitionUpdate], size_bytes: u64, size_bytes_max: u64) -> EngineError {
        let mut largest: Vec<_> = updates.iter().collect();
        largest.sort_by_key(|update| Reverse(update.as_bytes().len()));
        let keyspace = largest.first().map_or_else(String::new, |update| update.table().keyspace.to_string());
        let mut keys = String::new();
        for (listed, update) in largest.iter().enumerate() {
            let key = format!("{}.{}", update.table().name, update.table().key_text(update.key()));
            if listed > 0 && keys.len() + key.len() + 2 > KEYS_LENGTH_MAX {
                keys += &format!(" and {} more.", largest.len() - listed);
                break;
            }
            keys += if listed > 0 { ", " } else { "" };
            keys += &key;
        }
        EngineError::MutationTooLarge { size_bytes, size_bytes_max, keyspace, keys }
    }
}

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
