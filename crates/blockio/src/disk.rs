//! The `Disk` and `File` traits: the few things the house does with files.

use std::any::Any;
use std::fmt;
use std::path::Path;

use crate::{AlignedBuffer, AlignedSlice, BlockQueue, DiskError, DiskErrorKind, ReadUnderWay};

/// A place that holds files.
///
/// A name becomes durable (created, renamed, linked, removed) only with [`sync_dir`](Disk::sync_dir) of its directory;
/// bytes only with [`sync_data`](File::sync_data) of their file. That a name or a byte is found says nothing: a process
/// that was killed may have left it in the page cache alone.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file. Fails with [`DiskErrorKind::NotFound`] or [`DiskErrorKind::AlreadyExists`] as the mode says.
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError>;

    /// Makes `path` a directory, with all that lead to it. No error if it is one already. All of them are durable when
    /// it returns, also those that a process left behind which was killed before it synced them.
    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError>;

    /// What a directory holds, sorted by name.
    fn list(&self, dir: &Path) -> Result<Vec<DirectoryEntry>, DiskError>;

    /// Gives a file or directory another name, replacing a file of that name. Durable after `sync_dir` of both
    /// directories.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Removes a file. Open handles stay usable.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError>;

    /// Removes a directory and all below it.
    fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError>;

    /// Gives the file `from` a second name `to`, which must not exist.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &Path) -> Result<bool, DiskError>;

    /// Takes `dir` for this process until the lock is dropped. [`DiskErrorKind::Locked`] names the holder.
    fn lock_dir(&self, dir: &Path) -> Result<DirectoryLock, DiskError>;

    /// Takes a file or a block device for this process, likewise.
    fn lock_file(&self, path: &Path) -> Result<DirectoryLock, DiskError>;

    /// Room on the file system that holds `path`.
    fn space(&self, path: &Path) -> Result<Space, DiskError>;
}

/// An open file. Offsets are explicit and methods take `&self`: one handle serves many threads.
pub trait File: Send + Sync + fmt::Debug {
    /// The name it was opened under.
    fn path(&self) -> &Path;

    /// Reads at `offset` and answers how many bytes it got: fewer than asked only at the end of the file. Fails with
    /// [`DiskErrorKind::WouldWait`] where it would have to wait for the device, on a thread that may not.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError>;

    /// As [`read_at`](File::read_at), of bytes that nobody is expected to come back to: where the system can do so,
    /// those that were not in the page cache before do not stay there.
    fn read_once_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.read_at(buffer, offset)
    }

    /// Writes all of `data` at `offset`, growing the file if need be. Durable after `sync_data`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError>;

    /// As [`read_at`](File::read_at) at a block's start into the first `length` bytes of a buffer, whole blocks: past
    /// the page cache, and in one piece where the device allows, if the file was opened with
    /// [`OpenOptions::blocks`].
    fn read_blocks(&self, buffer: &mut AlignedBuffer, length: usize, offset: u64) -> Result<usize, DiskError> {
        let length = length.min(buffer.len());
        self.read_at(&mut buffer[..length], offset)
    }

    /// Reads past the page cache that go on by themselves, but for what lies in it. None if the file is not read so, or
    /// the system has no means: see [`ReadAhead`](crate::ReadAhead).
    fn read_under_way(&self) -> Option<Box<dyn ReadUnderWay>> {
        None
    }

    /// Makes all bytes written to the file durable, and its length. A failure is final: what was written since the last
    /// success may be lost, and trying again proves nothing.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// The file's length in bytes; a block device's size.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file holds no byte.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, length: u64) -> Result<(), DiskError>;

    /// Reserves room for a range without changing the file's length. Does nothing where the file system cannot;
    /// fails with [`DiskErrorKind::Full`] where there is no room.
    fn allocate(&self, offset: u64, length: u64) -> Result<(), DiskError>;

    /// Writes whole blocks at an offset that is a multiple of [`BLOCK_SIZE`](crate::BLOCK_SIZE), past the page cache
    /// where the file was opened with [`OpenOptions::blocks`] and the system allows. With [`Durability::Durable`]
    /// they are on the device when it returns.
    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, durability: Durability) -> Result<(), DiskError>;

    /// A queue for block writes of which several are under way. It belongs to the calling thread, and may outlive this
    /// handle.
    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError>;

    /// How `write_blocks` reaches the device, or reads of a file that is only read; for one line in the caller's log.
    /// It may change after the first write or read.
    fn block_writes(&self) -> BlockWrites;

    /// Reads exactly `buffer`; [`DiskErrorKind::UnexpectedEnd`] says what was expected and got.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let got = self.read_at(buffer, offset)?;
        expect_all(self.path(), offset, buffer.len(), got)
    }

    /// Reads exactly `buffer` as [`read_once_at`](File::read_once_at) does.
    fn read_exact_once_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let got = self.read_once_at(buffer, offset)?;
        expect_all(self.path(), offset, buffer.len(), got)
    }
}

/// Fails if fewer bytes came than were wanted.
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
    /// What is expected to be there, and what will be done with it.
    pub mode: OpenMode,
    /// Past the page cache where possible: [`File::write_blocks`], and every read of a file that is opened for reading
    /// only.
    pub blocks: bool,
}

/// What is expected to be there, and what will be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing; its bytes stay.
    Write,
    /// An existing file whose bytes stay, or a new empty one; for reading and writing.
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

    /// An existing file or a new one, for reading and writing.
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

    /// To be written in whole blocks, or only read, past the page cache where possible.
    pub const fn blocks(self) -> OpenOptions {
        OpenOptions { mode: self.mode, blocks: true }
    }
}

/// Whether `write_blocks` returns before or after the device holds the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On the device when it returns.
    Durable,
    /// On the device after the next `sync_data`.
    AtNextSync,
}

/// How block writes reach the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockWrites {
    /// Past the page cache, each durable write by itself (O_DIRECT and RWF_DSYNC).
    Direct,
    /// Through the page cache, followed by fdatasync; `reason` says why.
    Buffered {
        /// Why not directly.
        reason: String,
    },
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The last part of its path. Names that are not UTF-8 are none of ours and are left out of listings.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Room on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What we may still fill.
    pub free_bytes: u64,
    /// Its size.
    pub total_bytes: u64,
}

/// A directory or file held by this process; dropping it lets go.
pub struct DirectoryLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl DirectoryLock {
    /// Wraps whatever keeps the back end's lock while it lives.
    pub fn new(held: impl Any + Send + Sync) -> DirectoryLock {
        DirectoryLock { _held: Box::new(held) }
    }
}

impl fmt::Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryLock")
    }
}
