//! The `Disk` and `File` traits: all operations on files that the code base uses.

use std::any::Any;
use std::fmt;
use std::path::Path;

use crate::{AlignedBuffer, AlignedSlice, AsyncBlockRead, BlockQueue, DiskError, DiskErrorKind};

/// A place that holds files.
///
/// A name becomes durable (created, renamed, linked, removed) only with [`sync_dir`](Disk::sync_dir) of its directory,
/// and bytes only with [`sync_data`](File::sync_data) of their file. A name or a byte that is found may still be lost:
/// a process that was killed may have left it in the page cache only.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file. Fails with [`DiskErrorKind::NotFound`] or [`DiskErrorKind::AlreadyExists`] as the mode says.
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError>;

    /// Makes `path` a directory, with all its parents. It is no error if it is one already. All of them are durable
    /// when this returns, including those left by a process that was killed before it synced them.
    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError>;

    /// The entries of a directory, sorted by name.
    fn list(&self, dir: &Path) -> Result<Vec<DirectoryEntry>, DiskError>;

    /// Renames a file or directory, replacing a file of the new name. Durable after `sync_dir` of both directories.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Removes a file. Open handles stay usable.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError>;

    /// Removes a directory and everything below it.
    fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError>;

    /// Gives the file `from` a second name `to`, which must not exist.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &Path) -> Result<bool, DiskError>;

    /// Locks `dir` for this process until the lock is dropped. [`DiskErrorKind::Locked`] names the holder.
    fn lock_dir(&self, dir: &Path) -> Result<DirectoryLock, DiskError>;

    /// Locks a file or a block device for this process in the same way.
    fn lock_file(&self, path: &Path) -> Result<DirectoryLock, DiskError>;

    /// The space on the file system that holds `path`.
    fn space(&self, path: &Path) -> Result<Space, DiskError>;
}

/// An open file. Offsets are explicit and methods take `&self`, so one handle serves many threads.
pub trait File: Send + Sync + fmt::Debug {
    /// The name under which it was opened.
    fn path(&self) -> &Path;

    /// Reads at `offset` and returns how many bytes it read: fewer than requested only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError>;

    /// Like [`read_at`](File::read_at), without waiting for the device. Fails with [`DiskErrorKind::WouldWait`] if it
    /// would have to, and where the file cannot tell.
    fn read_at_nowait(&self, _buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        Err(DiskError::would_wait(self.path(), Some(offset)))
    }

    /// Like [`read_at`](File::read_at), for bytes that will probably not be read again: where the system can, pages
    /// that were not in the page cache before do not stay there.
    fn read_once_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.read_at(buffer, offset)
    }

    /// Writes all of `data` at `offset`, growing the file if need be. Durable after `sync_data`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError>;

    /// Like [`read_at`](File::read_at), at a block's start and into the first `length` bytes of a buffer, which are
    /// whole blocks. If the file was opened with [`OpenOptions::blocks`], this bypasses the page cache, in one piece
    /// where the device allows.
    fn read_blocks(&self, buffer: &mut AlignedBuffer, length: usize, offset: u64) -> Result<usize, DiskError> {
        let length = length.min(buffer.len());
        self.read_at(&mut buffer[..length], offset)
    }

    /// Asynchronous reads that bypass the page cache, except for what is in it already. `None` if the file is not read
    /// so, or the system has no means; see [`ReadAhead`](crate::ReadAhead).
    fn async_block_read(&self) -> Option<Box<dyn AsyncBlockRead>> {
        None
    }

    /// Makes all bytes written to the file durable, and its length. A failure is final: everything written since the
    /// last success may be lost, and retrying proves nothing.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// The file's length in bytes; a block device's size.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> Result<(), DiskError>;

    /// Reserves space for a range without changing the file's length. Does nothing where the file system cannot; fails
    /// with [`DiskErrorKind::Full`] where there is no space.
    fn allocate(&self, offset: u64, length: u64) -> Result<(), DiskError>;

    /// Writes whole blocks at an offset that is a multiple of [`BLOCK_SIZE`](crate::BLOCK_SIZE). Bypasses the page
    /// cache if the file was opened with [`OpenOptions::blocks`] and the system allows it. With [`Durability::Durable`]
    /// they are on the device when this returns.
    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, durability: Durability) -> Result<(), DiskError>;

    /// A queue for block writes with several in flight. It belongs to the calling thread, and may outlive this handle.
    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError>;

    /// How `write_blocks` reaches the device, or how a file that is only read is read; for one line in the caller's
    /// log. It may change after the first write or read.
    fn block_writes(&self) -> BlockWrites;

    /// Reads exactly `buffer`; [`DiskErrorKind::UnexpectedEnd`] says how much was expected and read.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let got = self.read_at(buffer, offset)?;
        expect_all(self.path(), offset, buffer.len(), got)
    }

    /// Reads exactly `buffer`, like [`read_at_nowait`](File::read_at_nowait).
    fn read_exact_at_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let got = self.read_at_nowait(buffer, offset)?;
        expect_all(self.path(), offset, buffer.len(), got)
    }

    /// Reads exactly `buffer`, like [`read_once_at`](File::read_once_at).
    fn read_exact_once_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let got = self.read_once_at(buffer, offset)?;
        expect_all(self.path(), offset, buffer.len(), got)
    }
}

/// Fails if fewer bytes were read than requested.
fn expect_all(path: &Path, offset: u64, wanted: usize, got: usize) -> Result<(), DiskError> {
    if got == wanted {
        return Ok(());
    }
    let text = format!("the file ends early: expected {wanted} bytes, got {got}");
    Err(DiskError::of_kind(DiskErrorKind::UnexpectedEnd, "read", path, Some(offset), text))
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether the file must exist, and how it will be used.
    pub mode: OpenMode,
    /// Bypass the page cache where possible: for [`File::write_blocks`], and for every read of a file opened for
    /// reading only.
    pub blocks: bool,
}

/// Whether a file must exist, and how it will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing; its bytes are kept.
    Write,
    /// An existing file, whose bytes are kept, or a new empty one; for reading and writing.
    WriteOrCreate,
    /// A new file; an existing one is an error. For reading and writing.
    CreateNew,
    /// A new file, or an existing one emptied; for reading and writing.
    CreateOrTruncate,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub const fn read() -> OpenOptions {
        OpenOptions { mode: OpenMode::Read, blocks: false }
    }

    /// An existing file, for reading and writing.
    pub const fn write() -> OpenOptions {
        OpenOptions { mode: OpenMode::Write, blocks: false }
    }

    /// An existing file or a new one, for reading and writing. For tests.
    #[doc(hidden)]
    pub const fn write_or_create() -> OpenOptions {
        OpenOptions { mode: OpenMode::WriteOrCreate, blocks: false }
    }

    /// A new file, which must not exist.
    pub const fn create_new() -> OpenOptions {
        OpenOptions { mode: OpenMode::CreateNew, blocks: false }
    }

    /// A new file, or an existing one emptied.
    pub const fn create() -> OpenOptions {
        OpenOptions { mode: OpenMode::CreateOrTruncate, blocks: false }
    }

    /// Bypass the page cache where possible, for a file that is written in whole blocks or only read.
    pub const fn blocks(self) -> OpenOptions {
        OpenOptions { mode: self.mode, blocks: true }
    }
}

/// Whether `write_blocks` returns before or after the device holds the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The bytes are on the device when it returns.
    Durable,
    /// The bytes are on the device after the next `sync_data`.
    AtNextSync,
}

/// How block writes reach the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockWrites {
    /// Bypassing the page cache, with each durable write by itself (O_DIRECT and RWF_DSYNC).
    Direct,
    /// Through the page cache, followed by fdatasync; `reason` says why.
    Buffered {
        /// The reason why writes are not direct.
        reason: String,
    },
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The last part of its path. Names that are not UTF-8 cannot be ours, and listings leave them out.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The bytes that this process may still use.
    pub free_bytes: u64,
    /// Its size.
    pub total_bytes: u64,
}

/// A lock on a directory or file for this process, released when it is dropped.
pub struct DirectoryLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl DirectoryLock {
    /// Wraps whatever holds the back end's lock while it lives.
    pub fn new(held: impl Any + Send + Sync) -> DirectoryLock {
        DirectoryLock { _held: Box::new(held) }
    }
}

impl fmt::Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryLock")
    }
}
