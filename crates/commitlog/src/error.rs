//! The log's errors, distinguished by what the caller does next.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use blockio::DiskError;

/// A failure of the log.
#[derive(Clone, Debug)]
pub enum LogError {
    /// The log accepts no more records: it was shut down, or a write or sync failed earlier. Refuse writes; reads may
    /// continue.
    Closed(Arc<str>),
    /// The record is too large for this log and will never be accepted.
    TooLarge {
        /// The space that the record would need in the log.
        size_bytes: u64,
        /// The largest record accepted: half a segment, and 253 MiB at most.
        max_bytes: u64,
    },
    /// Every segment holds records of tables that are not flushed. Flush (see
    /// [`CommitLog::pressure`](crate::CommitLog::pressure)) and retry.
    NoFreeSegment,
    /// The disk is full and the log cannot grow. Nothing is lost; retry when there is room or a segment is free.
    DiskFull(DiskError),
    /// The log on disk is damaged. Restore it, or open it with salvage and lose what the report names.
    Corrupt(Box<Corruption>),
    /// The log on disk is sound but cannot be used: it has another format version or belongs to another host.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The options contradict each other.
    InvalidOptions(String),
    /// The disk failed.
    Disk(DiskError),
}

/// The advice that error texts give about damage.
const WAY_OUT: &str = "restore the file, or start with --commitlog-salvage to replay the sound part and list the rest";

/// Damage: its place, and what was found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub path: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// The expected content.
    pub expected: String,
    /// The content found.
    pub got: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is damaged at offset {}: expected {}, got {}",
            self.path.display(),
            self.offset,
            self.expected,
            self.got
        )
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Closed(reason) => write!(f, "the commit log is closed: {reason}"),
            LogError::TooLarge { size_bytes, max_bytes } => {
                write!(f, "a record of {size_bytes} bytes is too large for the maximum size of {max_bytes}")
            }
            LogError::NoFreeSegment => f.write_str("no free commit log segment"),
            LogError::DiskFull(e) => write!(f, "the commit log cannot grow: {e}"),
            LogError::Corrupt(corruption) => write!(f, "{corruption}; {WAY_OUT}"),
            LogError::Refused { path, reason } => write!(f, "the commit log {} is refused: {reason}", path.display()),
            LogError::InvalidOptions(reason) => write!(f, "commit log options: {reason}"),
            LogError::Disk(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::DiskFull(e) | LogError::Disk(e) => Some(e),
            _ => None,
        }
    }
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> LogError {
        LogError::Disk(error)
    }
}
