//! The error type of all disk operations: what was tried, where, and what the kernel returned.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failed operation on a disk. It is cheap to clone, so that a permanent failure can be returned to every later
/// caller.
#[derive(Clone, Debug)]
pub struct DiskError {
    operation: &'static str,
    path: PathBuf,
    offset: Option<u64>,
    source: Arc<io::Error>,
    kind: DiskErrorKind,
}

/// The kind of a failure, by the possible reaction of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// The file or directory does not exist.
    NotFound,
    /// It exists and must not.
    AlreadyExists,
    /// No space is left: stop writing; reads may continue.
    Full,
    /// Another process has locked the directory.
    Locked,
    /// The file ends before the requested bytes.
    UnexpectedEnd,
    /// The back end or file system does not support this (no hard links, no O_DIRECT).
    Unsupported,
    /// The operation would have to wait for the device, on a thread that may not: retry where waiting is allowed. See
    /// [`File::read_at_nowait`](crate::File::read_at_nowait).
    WouldWait,
    /// The process or the system has no descriptor left. The file is fine: retry when others were closed.
    OutOfDescriptors,
    /// Any other error from the kernel; the file can no longer be trusted.
    Io,
}

impl DiskError {
    /// An error of `operation` on `path`; the kind follows from `source`.
    pub fn new(operation: &'static str, path: &Path, offset: Option<u64>, source: io::Error) -> DiskError {
        let is_out = [Errno::MFILE, Errno::NFILE].iter().any(|code| source.raw_os_error() == Some(code.raw_os_error()));
        // Wrapping the error on its way up loses its code, but not its kind.
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

    /// An error of `operation` on `path`, of a kind that has no error code.
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

    /// The error of a read that would have to wait.
    pub fn would_wait(path: &Path, offset: Option<u64>) -> DiskError {
        DiskError::new("read", path, offset, io::ErrorKind::WouldBlock.into())
    }

    /// The kind of the failure.
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

    /// The kernel's error.
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
