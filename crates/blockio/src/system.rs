//! The real disk: plain system calls, and an io_uring for block writes in flight.

mod direct_write;
mod directories;
mod page_cache;
mod ring_queue;
mod ring_read;

use std::cell::RefCell;
use std::fs;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use direct_write::write_whole_blocks;
use ring_queue::RingQueue;
use ring_read::RingRead;

use crate::queue::PlainQueue;
use crate::{
    AlignedBuffer, AlignedSlice, AsyncBlockRead, BLOCK_SIZE, BlockQueue, BlockWrites, DirectoryEntry, DirectoryLock,
    Disk, DiskError, DiskErrorKind, Durability, File, OpenMode, OpenOptions, Space,
};

/// The name of the lock file in a locked directory. The file stays behind; only the kernel's lock on it counts.
pub(crate) const LOCK_FILE: &str = "espalier.lock";

/// How many bytes one read that bypasses the page cache reads: what prefetching readers request, at any alignment.
const DIRECT_READ_BYTES: usize = 256 * 1024 + BLOCK_SIZE;
/// The same limit for reads into the caller's own memory.
const BLOCKS_READ_BYTES: usize = 4 << 20;

/// `RWF_DONTCACHE` of Linux 6.14: pages that such a read brings into the cache are removed again.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

thread_local! {
    /// The target of direct reads: the device needs aligned memory, and callers pass their own.
    static DIRECT_READ: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(DIRECT_READ_BYTES));
}

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk {
    without_ring: bool,
}

impl SystemDisk {
    /// The file systems of this machine.
    pub fn new() -> SystemDisk {
        SystemDisk::default()
    }

    /// The same with plain system calls only, as where io_uring is forbidden.
    pub fn without_ring() -> SystemDisk {
        SystemDisk { without_ring: true }
    }
}

impl SystemDisk {
    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<SystemFile, DiskError> {
        refuse_pipe(path)?;
        let file = std_options(options.mode).open(path).map_err(|e| DiskError::new("open", path, None, e))?;
        let is_read_only = options.mode == OpenMode::Read;
        let blocks = match options.blocks {
            true => open_direct(path, is_read_only)?,
            false => Blocks::buffered("not opened for blocks"),
        };
        let path = path.to_path_buf();
        Ok(SystemFile { path, file, blocks, is_read_only, without_ring: self.without_ring })
    }
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError> {
        Ok(Box::new(self.open_file(path, options)?))
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        directories::make_durably(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        let error = |e| DiskError::new("list", dir, None, e);
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir).map_err(error)? {
            let entry = entry.map_err(error)?;
            let is_dir = entry.file_type().map_err(error)?.is_dir();
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirectoryEntry { name, is_dir });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        directories::forget(from);
        directories::forget(to);
        fs::rename(from, to).map_err(|e| DiskError::new("rename", from, None, e))
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        fs::remove_file(path).map_err(|e| DiskError::new("remove", path, None, e))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        directories::forget(path);
        fs::remove_dir_all(path).map_err(|e| DiskError::new("remove", path, None, e))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        fs::hard_link(from, to).map_err(|e| DiskError::new("link", to, None, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let handle = fs::File::open(dir).map_err(|e| DiskError::new("open", dir, None, e))?;
        handle.sync_all().map_err(|e| DiskError::new("sync directory", dir, None, e))
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        path.try_exists().map_err(|e| DiskError::new("look up", path, None, e))
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirectoryLock, DiskError> {
        let path = dir.join(LOCK_FILE);
        let error = |e| DiskError::new("lock", &path, None, e);
        let mut file = std_options(OpenMode::WriteOrCreate).open(&path).map_err(error)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                let text = format!("{} is in use by another process ({})", dir.display(), holder.trim());
                return Err(DiskError::of_kind(DiskErrorKind::Locked, "lock", dir, None, text));
            }
            Err(e) => return Err(error(e.into())),
        }
        // The holder's id is for people to read; the lock does not depend on it.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "pid {}", std::process::id());
        Ok(DirectoryLock::new(file))
    }

    fn lock_file(&self, path: &Path) -> Result<DirectoryLock, DiskError> {
        let file = std_options(OpenMode::Write).open(path).map_err(|e| DiskError::new("lock", path, None, e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirectoryLock::new(file)),
            Err(Errno::WOULDBLOCK) => {
                let text = format!("{} is in use by another process", path.display());
                Err(DiskError::of_kind(DiskErrorKind::Locked, "lock", path, None, text))
            }
            Err(e) => Err(DiskError::new("lock", path, None, e.into())),
        }
    }

    fn space(&self, path: &Path) -> Result<Space, DiskError> {
        let stat = rustix::fs::statvfs(path).map_err(|e| DiskError::new("measure", path, None, e.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space { free_bytes: bytes(stat.f_bavail), total_bytes: bytes(stat.f_blocks) })
    }
}

/// Files are readable by their owner only, because they hold what clients wrote.
const FILE_MODE: u32 = 0o600;

/// Refuses a pipe: opening one blocks until its other end is opened.
fn refuse_pipe(path: &Path) -> Result<(), DiskError> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => {
            let text = "it is a pipe, and no file".to_owned();
            Err(DiskError::of_kind(DiskErrorKind::Unsupported, "open", path, None, text))
        }
        _ => Ok(()),
    }
}

fn std_options(mode: OpenMode) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).mode(FILE_MODE);
    match mode {
        OpenMode::Read => &mut options,
        OpenMode::Write => options.write(true),
        OpenMode::WriteOrCreate => options.write(true).create(true),
        OpenMode::CreateNew => options.write(true).create_new(true),
        OpenMode::CreateOrTruncate => options.write(true).create(true).truncate(true),
    };
    options
}

/// A file, and how to write blocks to it. Plain writes go through the page cache, and so do reads unless the file is
/// only read.
#[derive(Debug)]
struct SystemFile {
    path: PathBuf,
    file: fs::File,
    blocks: Blocks,
    is_read_only: bool,
    without_ring: bool,
}

/// The handle that bypasses the page cache, and why it is not used (which may only turn out at the first write).
#[derive(Debug)]
struct Blocks {
    direct: Option<fs::File>,
    refused: Arc<OnceLock<String>>,
}

impl Blocks {
    fn buffered(reason: &str) -> Blocks {
        Blocks { direct: None, refused: Arc::new(OnceLock::from(reason.to_owned())) }
    }
}

fn open_direct(path: &Path, is_read_only: bool) -> Result<Blocks, DiskError> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(!is_read_only);
    match options.custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
        Ok(file) => Ok(Blocks { direct: Some(file), refused: Arc::default() }),
        Err(e) if is_refusal(&e) => Ok(Blocks::buffered(&format!("O_DIRECT is refused here: {e}"))),
        Err(e) => Err(DiskError::new("open", path, None, e)),
    }
}

/// Whether the error means that this way of access is not supported, rather than that the device failed.
fn is_refusal(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS))
}

impl SystemFile {
    fn error(&self, operation: &'static str, offset: Option<u64>, error: io::Error) -> DiskError {
        DiskError::new(operation, &self.path, offset, error)
    }

    /// The handle for direct writes, or for direct reads of a file that is only read, unless they were refused.
    fn direct(&self) -> Option<&fs::File> {
        self.blocks.direct.as_ref().filter(|_| self.is_direct())
    }

    fn is_direct(&self) -> bool {
        self.blocks.refused.get().is_none()
    }

    /// Sends `what` through the page cache from now on.
    fn refuse_direct(&self, what: &str, error: &io::Error) {
        let _ = self.blocks.refused.set(format!("direct {what} are refused here: {error}"));
    }

    /// Reads through the page cache.
    fn read_buffered(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut got = 0;
        while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error("read", Some(offset + got as u64), e)),
            }
        }
        Ok(got)
    }

    /// Another handle on the same open file.
    fn try_clone(&self) -> Result<SystemFile, DiskError> {
        let clone = |file: &fs::File| file.try_clone().map_err(|e| self.error("open", None, e));
        Ok(SystemFile {
            path: self.path.clone(),
            file: clone(&self.file)?,
            blocks: Blocks {
                direct: self.blocks.direct.as_ref().map(clone).transpose()?,
                refused: Arc::clone(&self.blocks.refused),
            },
            is_read_only: self.is_read_only,
            without_ring: self.without_ring,
        })
    }

    fn write_direct(&self, direct: &fs::File, bytes: &[u8], offset: u64, flags: ReadWriteFlags) -> io::Result<()> {
        write_whole_blocks(bytes, |written| {
            let rest = bytes.get(written..).unwrap_or_default();
            rustix::io::pwritev2(direct.as_fd(), &[io::IoSlice::new(rest)], offset + written as u64, flags)
        })
    }

    /// The same; where the system can, pages that were not in the page cache before do not stay there.
    fn read_once_buffered(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut got = 0;
        while got < buffer.len() {
            let at = offset + got as u64;
            match rustix::io::preadv2(&self.file, &mut [io::IoSliceMut::new(&mut buffer[got..])], at, DONT_CACHE) {
                Ok(0) => return Ok(got),
                Ok(n) => got += n,
                Err(Errno::INTR) => {}
                // The system or the file system does not support it.
                Err(e) if is_refusal(&e.into()) => break,
                Err(e) => return Err(self.error("read", Some(at), e.into())),
            }
        }
        Ok(got + self.read_buffered(&mut buffer[got..], offset + got as u64)?)
    }

    /// Reads the blocks around the requested bytes and copies these out.
    fn read_direct(&self, direct: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        DIRECT_READ.with_borrow_mut(|blocks| {
            let mut got = 0;
            while got < buffer.len() {
                let at = offset + got as u64;
                let skipped = (at % BLOCK_SIZE as u64) as usize;
                let wanted = (skipped + buffer.len() - got).next_multiple_of(BLOCK_SIZE).min(blocks.len());
                match direct.read_at(&mut blocks[..wanted], at - skipped as u64) {
                    // The file may end within a block.
                    Ok(read) if read <= skipped => break,
                    Ok(read) => {
                        let taken = (read - skipped).min(buffer.len() - got);
                        buffer[got..got + taken].copy_from_slice(&blocks[skipped..skipped + taken]);
                        got += taken;
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(got)
        })
    }
}

impl File for SystemFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        if let Some(direct) = self.direct().filter(|_| self.is_read_only) {
            match self.read_direct(direct, buffer, offset) {
                Ok(got) => return Ok(got),
                // The read is repeated below, through the page cache.
                Err(e) if is_refusal(&e) => self.refuse_direct("reads", &e),
                Err(e) => return Err(self.error("read", Some(offset), e)),
            }
        }
        self.read_buffered(buffer, offset)
    }

    // Only what is in the page cache. A direct read always has to wait, and so may any read where the file system does
    // not tell.
    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        if self.is_read_only && self.direct().is_some() {
            return Err(DiskError::would_wait(&self.path, Some(offset)));
        }
        let mut got = 0;
        while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
            let at = offset + got as u64;
            match rustix::io::preadv2(&self.file, &mut [io::IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return Err(DiskError::would_wait(&self.path, Some(at)));
                }
                Err(e) => return Err(self.error("read", Some(at), e.into())),
            }
        }
        Ok(got)
    }

    fn read_once_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        match self.direct() {
            Some(_) => self.read_at(buffer, offset),
            None => self.read_once_buffered(buffer, offset),
        }
    }

    fn read_blocks(&self, buffer: &mut AlignedBuffer, length: usize, offset: u64) -> Result<usize, DiskError> {
        let length = length.min(buffer.len());
        let is_whole = length.is_multiple_of(BLOCK_SIZE) && offset.is_multiple_of(BLOCK_SIZE as u64);
        let mut got = 0;
        if let Some(direct) = self.direct().filter(|_| is_whole) {
            while got < length {
                // A file may end within a block; then its end was read.
                if !got.is_multiple_of(BLOCK_SIZE) {
                    return Ok(got);
                }
                let piece = &mut buffer[got..length.min(got + BLOCKS_READ_BYTES)];
                match direct.read_at(piece, offset + got as u64) {
                    Ok(0) => return Ok(got),
                    Ok(read) => got += read,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // The rest is read below, through the page cache; blocks are written as before.
                    Err(e) if is_refusal(&e) => break,
                    Err(e) => return Err(self.error("read", Some(offset + got as u64), e)),
                }
            }
        }
        Ok(got + self.read_at(&mut buffer[got..length], offset + got as u64)?)
    }

    fn async_block_read(&self) -> Option<Box<dyn AsyncBlockRead>> {
        let is_wanted = self.is_read_only && !self.without_ring;
        is_wanted.then(|| RingRead::new(self)).flatten().map(|read| Box::new(read) as Box<dyn AsyncBlockRead>)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError> {
        self.file.write_all_at(data, offset).map_err(|e| self.error("write", Some(offset), e))
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(|e| self.error("sync", None, e))
    }

    fn len(&self) -> Result<u64, DiskError> {
        let error = |e| self.error("measure", None, e);
        let metadata = self.file.metadata().map_err(error)?;
        if metadata.file_type().is_block_device() {
            return (&self.file).seek(io::SeekFrom::End(0)).map_err(error);
        }
        Ok(metadata.len())
    }

    fn set_len(&self, length: u64) -> Result<(), DiskError> {
        self.file.set_len(length).map_err(|e| self.error("resize", Some(length), e))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<(), DiskError> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, length) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(e) => Err(self.error("allocate", Some(offset), e.into())),
        }
    }

    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, durability: Durability) -> Result<(), DiskError> {
        if !offset.is_multiple_of(BLOCK_SIZE as u64) {
            return Err(self.error("write blocks", Some(offset), io::ErrorKind::InvalidInput.into()));
        }
        if let Some(direct) = self.direct() {
            let flags = match durability {
                Durability::Durable => ReadWriteFlags::DSYNC,
                Durability::AtNextSync => ReadWriteFlags::empty(),
            };
            match self.write_direct(direct, &blocks, offset, flags) {
                Ok(()) => return Ok(()),
                // The write is repeated below, through the page cache.
                Err(e) if is_refusal(&e) => self.refuse_direct("writes", &e),
                Err(e) => return Err(self.error("write blocks", Some(offset), e)),
            }
        }
        self.write_at(&blocks, offset)?;
        match durability {
            Durability::Durable => self.sync_data(),
            Durability::AtNextSync => Ok(()),
        }
    }

    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError> {
        let file = self.try_clone()?;
        let plain = |file, reason| Box::new(PlainQueue::new(Box::new(file), reason));
        if self.without_ring {
            return Ok(plain(file, "as asked for".into()));
        }
        match RingQueue::new(file) {
            Ok(queue) => Ok(Box::new(queue)),
            Err((file, reason)) => Ok(plain(file, reason)),
        }
    }

    fn block_writes(&self) -> BlockWrites {
        match self.blocks.refused.get() {
            None => BlockWrites::Direct,
            Some(reason) => BlockWrites::Buffered { reason: reason.clone() },
        }
    }
}

#[cfg(test)]
mod tests;
