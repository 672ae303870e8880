//! Errors of reading rows.

use std::fmt;

/// A read that failed. The caller refuses the request; other data stays readable.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// Stored bytes are not what was written: the file must be repaired or replaced.
    Corruption {
        /// The keyspace and name of the table, if known.
        table: Option<String>,
        /// The damaged file.
        file: String,
        /// The byte offset in the file.
        offset: u64,
        /// The expected content.
        expected: String,
        /// The content found.
        got: String,
    },
    /// The device or the file system refused a read.
    Io {
        /// The file being read.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The source was closed (table dropped, engine stopped) during the read.
    Closed,
    /// Not a fault: the cursor took the number of steps that its caller permitted
    /// ([`UnfilteredCursor::pause_after`](crate::UnfilteredCursor::pause_after)) without finding a row or marker. The
    /// next call continues.
    Paused,
    /// Not a fault of the data: a row is so large that its copies need memory which other reads have taken
    /// ([`RowMemory`](crate::RowMemory)).
    NoRoom,
    /// Not a fault of the data: a row is so large that copying it takes longer than the reader's thread may
    /// ([`LargeRowLimit::NoLargeRows`](crate::LargeRowLimit::NoLargeRows)).
    LargeRow,
}

impl ReadError {
    /// Whether the only fault is that the read would have to wait for a device, on a thread that may not.
    pub fn would_wait(&self) -> bool {
        matches!(self, ReadError::Io { source, .. } if source.kind() == std::io::ErrorKind::WouldBlock)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Corruption { table, file, offset, expected, got } => {
                if let Some(table) = table {
                    write!(f, "table {table}: ")?;
                }
                write!(f, "corrupt file {file} at offset {offset}: expected {expected}, got {got}")
            }
            ReadError::Io { file, source } => write!(f, "cannot read {file}: {source}"),
            ReadError::Closed => write!(f, "the table was closed while it was read"),
            ReadError::Paused => write!(f, "the read was interrupted"),
            ReadError::NoRoom => write!(f, "there is no memory for a large row"),
            ReadError::LargeRow => write!(f, "a large row is not copied on this thread"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Serialized mutation bytes that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorruptMutation {
    /// Offset in the mutation's bytes.
    pub offset: usize,
    /// The content expected there.
    pub expected: &'static str,
}

impl fmt::Display for CorruptMutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt mutation at offset {}: expected {}", self.offset, self.expected)
    }
}

impl std::error::Error for CorruptMutation {}
