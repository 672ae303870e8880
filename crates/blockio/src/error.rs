//! One error for all of the disk: what was tried, where, and what the kernel said.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failed operation on a disk. Cheap to clone, so that a sticky failure can be handed to every later caller.
#[derive(Clone, Debug)]
pub struct DiskError {
    operation: &'static str,
    path: PathBuf,
    offset: Option<u64>,
    source: Arc<io::Error>,
    kind: DiskErrorKind,
}

/// What the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// The file or directory is not there.
    NotFound,
    /// It is there and must not be.
    AlreadyExists,
    /// No space left: stop writing, go on reading.
    Full,
    /// Another process holds the directory.
    Locked,
    /// The file ends before the bytes that were asked for.
    UnexpectedEnd,
    /// The back end or file system cannot do this (no hard links, no O_DIRECT).
    Unsupported,
    /// It would have to wait for the device, on a thread that may not: try again where that is allowed. See
    /// [`without_waiting`](crate::without_waiting).
    WouldWait,
    /// The process or the system has no descriptor left: nothing is wrong with the file; try again when others were
    /// closed.
    OutOfDescriptors,
    /// Anything else the kernel reports; the medium is not to be trusted with this file any more.
    Io,
}

impl DiskError {
    /// An error of `operation` on `path`; the kind follows from `source`.
    pub fn new(operation: &'static str, path: &Path, offset: Option<u64>, source: io::Error) -> DiskError {
        let is_out = [Errno::MFILE, Errno::NFILE].iter().any(|code| source.raw_os_error() == Some(code.raw_os_error()));
        // The code is lost where errors are wrapped on their way up; their kind is not.
        let source = if is_out { io::Error::new(io::ErrorKind::ResourceBusy, source) } else { source };
        let kind = match source.kind() {
            _ if is_out => DiskErrorKind::OutOfDescriptors,
            io::ErrorKind::NotFound => DiskErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => DiskErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::Full,
            io::ErrorKind::UnexpectedEof => DiskErrorKind::UnexpectedEnd,
            io::ErrorKind::Unsupported => DiskErrorKind::Unsupported,
            io::ErrorKind::WouldBlock => DiskErrorKind::WouldWait,
            _ => DiskErrorKind::Io,
        };
        DiskError { operation, path: path.to_path_buf(), offset, source: Arc::new(source), kind }
    }

    /// An error of `operation` on `path` of a kind the kernel has no code for.
    pub fn of_kind(
        kind: DiskErrorKind,
        operation: &'static str,
        path: &Path,
        offset: Option<u64>,
        text: String,
    ) -> DiskError {
        let source = Arc::new(io::Error::other(text));
        DiskError { operation, path: path.to_path_buf(), offset, source, kind }
    }

    /// That a read of the file would have to wait.
    pub fn would_wait(path: &Path, offset: Option<u64>) -> DiskError {
        DiskError::new("read", path, offset, io::ErrorKind::WouldBlock.into())
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> DiskErrorKind {
        self.kind
    }

    /// The operation that failed, as a verb: `read`, `sync`, `rename`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The byte offset in the file, where the operation has one.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// What the kernel said.
    pub fn io_error(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
