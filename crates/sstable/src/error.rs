//! The crate's errors, distinguished by what the caller does next.

use std::borrow::Cow;
use std::fmt;

/// An error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum SSTableError {
    /// The disk failed an operation: the caller applies its disk failure policy.
    Disk(blockio::DiskError),
    /// Bytes are not what they must be: this table is damaged, other tables are not.
    Corruption(Box<Corruption>),
    /// The table is sound but needs a feature that this version lacks.
    Unsupported {
        /// The file or table.
        file: String,
        /// The unsupported feature.
        what: String,
    },
    /// The writer's input cannot be stored in a table (wrong order, value too long): a bug or a limit of the caller.
    Unwritable {
        /// What was wrong with it.
        what: String,
    },
    /// The cursor that a writer reads from failed.
    Source(model::ReadError),
}

/// A place where a file violates its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The keyspace and name of the table, if the file was read as part of one.
    pub table: Option<String>,
    /// Name of the damaged file.
    pub file: String,
    /// Byte offset in it; for Data.db the offset in the uncompressed data unless a chunk itself is damaged.
    pub offset: u64,
    /// The expected content.
    pub expected: Cow<'static, str>,
    /// The content found.
    pub got: Cow<'static, str>,
    /// Whether decoding only ran out of bytes. A caller that has more may retry.
    pub(crate) short: bool,
}

impl Corruption {
    /// Damage of `file` at `offset`, outside of any table.
    pub fn new(
        file: &str,
        offset: u64,
        expected: impl Into<Cow<'static, str>>,
        got: impl Into<Cow<'static, str>>,
    ) -> Box<Corruption> {
        let (file, expected, got) = (file.to_owned(), expected.into(), got.into());
        Box::new(Corruption { table: None, file, offset, expected, got, short: false })
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(table) = &self.table {
            write!(f, "table {table}: ")?;
        }
        write!(f, "{} is corrupt at offset {}: expected {}, got {}", self.file, self.offset, self.expected, self.got)
    }
}

impl std::error::Error for Corruption {}

impl SSTableError {
    /// Adds the name of the table whose files were read to the error.
    pub fn of_table(mut self, table: &model::Table) -> SSTableError {
        if let SSTableError::Corruption(corruption) = &mut self {
            corruption.table.get_or_insert_with(|| format!("{}.{}", table.keyspace, table.name));
        }
        self
    }
}

impl fmt::Display for SSTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SSTableError::Disk(error) => error.fmt(f),
            SSTableError::Corruption(corruption) => corruption.fmt(f),
            SSTableError::Unsupported { file, what } => write!(f, "{file}: {what} is not supported"),
            SSTableError::Unwritable { what } => write!(f, "cannot be written to an sstable: {what}"),
            SSTableError::Source(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SSTableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SSTableError::Disk(error) => Some(error),
            SSTableError::Corruption(corruption) => Some(corruption),
            SSTableError::Source(error) => Some(error),
            _ => None,
        }
    }
}

impl From<blockio::DiskError> for SSTableError {
    /// A file that ends early is damage to the table, not a failure of the disk.
    fn from(error: blockio::DiskError) -> Self {
        if error.kind() != blockio::DiskErrorKind::UnexpectedEnd {
            return SSTableError::Disk(error);
        }
        let name = error.path().file_name().unwrap_or(error.path().as_os_str()).to_string_lossy().into_owned();
        let got = error.io_error().to_string();
        Corruption::new(&name, error.offset().unwrap_or(0), "as many bytes as the table's other files say", got).into()
    }
}

impl From<model::ReadError> for SSTableError {
    fn from(error: model::ReadError) -> Self {
        SSTableError::Source(error)
    }
}

impl From<SSTableError> for model::ReadError {
    fn from(error: SSTableError) -> Self {
        match error {
            SSTableError::Corruption(corruption) => {
                let Corruption { table, file, offset, expected, got, .. } = *corruption;
                model::ReadError::Corruption {
                    table,
                    file,
                    offset,
                    expected: expected.into_owned(),
                    got: got.into_owned(),
                }
            }
            SSTableError::Disk(error) => model::ReadError::Io {
                file: error.path().display().to_string(),
                source: std::io::Error::new(error.io_error().kind(), error.to_string()),
            },
            SSTableError::Source(error) => error,
            SSTableError::Unsupported { ref file, .. } => model::ReadError::Io {
                file: file.clone(),
                source: std::io::Error::new(std::io::ErrorKind::Unsupported, error.to_string()),
            },
            SSTableError::Unwritable { .. } => model::ReadError::Io {
                file: String::new(),
                source: std::io::Error::new(std::io::ErrorKind::InvalidInput, error.to_string()),
            },
        }
    }
}

impl From<Box<Corruption>> for SSTableError {
    fn from(corruption: Box<Corruption>) -> Self {
        SSTableError::Corruption(corruption)
    }
}

/// Result of decoding bytes.
pub(crate) type Decoded<T> = Result<T, Box<Corruption>>;
