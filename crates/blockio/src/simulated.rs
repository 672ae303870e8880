//! A disk in memory that knows what would survive a power cut, and fails on request.
//!
//! Writes that were not synced are tracked by sector of 512 bytes, and so are names that were made, moved or removed
//! and not synced. [`crash_image`](SimulatedDisk::crash_image) returns the disk that a machine would find after losing
//! power now: everything synced, and whatever part of the rest the seed selects. Each write is kept, dropped or torn
//! between sectors; each change of a name is kept or dropped. One seed gives one image, and one sequence of calls gives
//! one [`trace`](SimulatedDisk::trace).
//!
//! [`after_process_death`](SimulatedDisk::after_process_death) returns the disk that the next process finds after a
//! kill: everything not synced is there, and can still be lost by a power cut.
//!
//! It is stricter than real file systems: only syncs order anything, and syncing a file does not make its name durable.

mod directories;
mod faults;
mod names;
mod queue;
mod storage;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use directories::SimulatedCalls;
pub use faults::{Fault, Operation};
use faults::{Faults, Verb};
use names::{Names, Node};
use queue::SimulatedQueue;
use storage::Inode;

use crate::directories::DurableDirectories;
use crate::{
    AlignedSlice, BLOCK_SIZE, BlockQueue, BlockWrites, DirectoryEntry, DirectoryLock, Disk, DiskError, DiskErrorKind,
    Durability, File, OpenMode, OpenOptions, Space,
};

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    reads_go_on: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct State {
    names: Names,
    inodes: Vec<Inode>,
    locked: Vec<PathBuf>,
    capacity_bytes: Option<u64>,
    refuses_direct: bool,
    direct_bytes: u64,
    faults: Faults,
    /// The directories that the current process has made durable.
    directories: DurableDirectories,
    /// Reads of files whose path contains this block.
    stalled_reads: Option<String>,
}

impl SimulatedDisk {
    /// An empty disk of no particular size.
    pub fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    /// The disk after a power cut now: everything synced, and the part of the rest that the seed keeps. It has no
    /// pending faults and no locks.
    pub fn crash_image(&self, seed: u64) -> SimulatedDisk {
        let state = self.lock();
        let mut choices = Choices(seed);
        let names = state.names.after_crash(&mut choices);
        let inodes = state.inodes.iter().map(|inode| inode.after_crash(&mut choices)).collect();
        let image = State { names, inodes, capacity_bytes: state.capacity_bytes, ..State::default() };
        SimulatedDisk { state: Arc::new(Mutex::new(image)), reads_go_on: Arc::default() }
    }

    /// The disk as the next process finds it when the current one is killed now. The page cache survives, so all names
    /// and bytes are there, and none of them is more durable than before. It has no pending faults and no locks; what
    /// the killed process still does has no effect on it.
    pub fn after_process_death(&self) -> SimulatedDisk {
        let state = self.lock();
        let left = State {
            names: state.names.clone(),
            inodes: state.inodes.clone(),
            capacity_bytes: state.capacity_bytes,
            ..State::default()
        };
        SimulatedDisk { state: Arc::new(Mutex::new(left)), reads_go_on: Arc::default() }
    }

    /// Makes an operation fail: the one after `skip` others of the kind that the fault applies to.
    pub fn inject(&self, fault: Fault, skip: u64) {
        self.inject_into("", fault, skip);
    }

    /// Like [`inject`](Self::inject), only for files whose path contains `part`; other operations do not count.
    pub fn inject_into(&self, part: &str, fault: Fault, skip: u64) {
        self.lock().faults.inject(fault, skip, part);
    }

    /// Makes every later change of a file or directory whose path contains `part` fail, as on a file system that was
    /// remounted read-only. `None` ends this.
    pub fn refuse_changes(&self, part: Option<&str>) {
        self.lock().faults.refuse_changes(part.map(str::to_owned));
    }

    /// Limits the total size of all files, in bytes.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.lock().capacity_bytes = Some(capacity_bytes);
    }

    /// Makes files that are opened from now on use a page cache, as on a file system without O_DIRECT.
    pub fn refuse_direct(&self) {
        self.lock().refuses_direct = true;
    }

    /// How many bytes bypassed the page cache so far, in files opened with [`OpenOptions::blocks`], not counting
    /// queues.
    pub fn direct_bytes(&self) -> u64 {
        self.lock().direct_bytes
    }

    /// Flips a bit of a file in place, synced or not. `bit` counts from the byte's least significant one.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> Result<(), DiskError> {
        let mut state = self.lock();
        let inode = state.file(path, "flip a bit of")?;
        state.inodes[inode].flip_bit(offset, bit);
        Ok(())
    }

    /// Stalls the device while the result lives: every operation on it blocks.
    pub fn stall(&self) -> Stall<'_> {
        Stall { _state: self.lock() }
    }

    /// Blocks reads of files whose path contains `part` while the result lives.
    pub fn stall_reads(&self, part: &str) -> StalledReads {
        self.lock().stalled_reads = Some(part.to_owned());
        StalledReads(self.clone())
    }

    /// The operations so far.
    pub fn trace(&self) -> Vec<Operation> {
        self.lock().faults.trace().to_vec()
    }

    /// The number of operations so far.
    pub fn operations(&self) -> u64 {
        self.lock().faults.trace().len() as u64
    }

    /// How many of them read a file.
    pub fn reads(&self) -> u64 {
        self.lock().faults.reads()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn file(&self, path: &Path, operation: &'static str) -> Result<usize, DiskError> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Directory) => {
                Err(DiskError::new(operation, path, None, std::io::ErrorKind::IsADirectory.into()))
            }
            None => Err(DiskError::new(operation, path, None, std::io::ErrorKind::NotFound.into())),
        }
    }

    /// Whether files may grow by that many bytes.
    fn has_space_for(&self, growth: u64) -> bool {
        self.capacity_bytes.is_none_or(|capacity| self.used_bytes() + growth <= capacity)
    }

    fn used_bytes(&self) -> u64 {
        self.names.files().map(|inode| self.inodes[inode].len()).sum()
    }

    /// Writes the part that the faults and the space allow.
    fn write(
        &mut self,
        inode: usize,
        path: &Arc<Path>,
        data: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<(), DiskError> {
        let fault = self.faults.next(Verb::Write, path, offset, data);
        let error = |kind: std::io::ErrorKind| Err(DiskError::new("write", path, Some(offset), kind.into()));
        let growth = (offset + data.len() as u64).saturating_sub(self.inodes[inode].len());
        match fault {
            Some(Fault::FlipBit) => {
                let mut flipped = data.to_vec();
                let at = data.len() / 3;
                if let Some(byte) = flipped.get_mut(at) {
                    *byte ^= 1 << (at % 8);
                }
                self.inodes[inode].write(&flipped, offset, durability);
                return Ok(());
            }
            Some(Fault::Misdirect) => {
                self.inodes[inode].write(data, offset + BLOCK_SIZE as u64, durability);
                return Ok(());
            }
            Some(Fault::PowerCut) => {
                // The write was in flight: the image may contain any part of it.
                self.inodes[inode].write(data, offset, Durability::AtNextSync);
                return error(std::io::ErrorKind::Other);
            }
            Some(Fault::ShortWrite) => {
                let half = data.get(..data.len() / 2).unwrap_or_default();
                self.inodes[inode].write(half, offset, Durability::AtNextSync);
                return error(std::io::ErrorKind::Other);
            }
            Some(Fault::Full) => return error(std::io::ErrorKind::StorageFull),
            Some(_) => return error(std::io::ErrorKind::Other),
            None => {}
        }
        if !self.has_space_for(growth) {
            return error(std::io::ErrorKind::StorageFull);
        }
        self.inodes[inode].write(data, offset, durability);
        Ok(())
    }

    /// Records an operation on names, which a fault may prevent.
    fn on_names(&mut self, verb: Verb, operation: &'static str, path: &Path) -> Result<(), DiskError> {
        match self.faults.next(verb, &path.into(), 0, &[]) {
            None => Ok(()),
            Some(Fault::Full) => Err(DiskError::new(operation, path, None, std::io::ErrorKind::StorageFull.into())),
            Some(Fault::OutOfDescriptors) => {
                Err(DiskError::new(operation, path, None, rustix::io::Errno::MFILE.into()))
            }
            Some(_) => Err(DiskError::new(operation, path, None, std::io::ErrorKind::Other.into())),
        }
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let error = |kind: std::io::ErrorKind| Err(DiskError::new("open", path, None, kind.into()));
        state.on_names(Verb::Open, "open", path)?;
        let inode = match (state.names.get(path), options.mode) {
            (Some(Node::Directory), _) => return error(std::io::ErrorKind::IsADirectory),
            (Some(_), OpenMode::CreateNew) => return error(std::io::ErrorKind::AlreadyExists),
            (Some(Node::File(inode)), mode) => {
                if mode == OpenMode::CreateOrTruncate {
                    state.inodes[inode].set_len(0);
                }
                inode
            }
            (None, OpenMode::Read | OpenMode::Write) => return error(std::io::ErrorKind::NotFound),
            (None, _) if !state.names.has_parent(path) => return error(std::io::ErrorKind::NotFound),
            (None, _) if state.faults.refuses_changes(path) => return error(std::io::ErrorKind::ReadOnlyFilesystem),
            (None, _) => {
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.names.set(path, Some(Node::File(inode)));
                inode
            }
        };
        let not_direct = match (options.blocks, state.refuses_direct) {
            (true, false) => None,
            (true, true) => Some("O_DIRECT is refused here"),
            (false, _) => Some("not opened for blocks"),
        };
        drop(guard);
        Ok(Box::new(SimulatedFile { disk: self.clone(), inode, path: path.into(), mode: options.mode, not_direct }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::CreateDirectory, "create directory", path)?;
        if path.ancestors().any(|ancestor| matches!(state.names.get(ancestor), Some(Node::File(_)))) {
            return Err(DiskError::new("create directory", path, None, std::io::ErrorKind::NotADirectory.into()));
        }
        let mut directories = std::mem::take(&mut state.directories);
        let made = directories.make_all(path, &mut SimulatedCalls { state: &mut state });
        state.directories = directories;
        made
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::List, "list", dir)?;
        match state.names.list(dir) {
            Some(entries) => Ok(entries),
            None => Err(DiskError::new("list", dir, None, std::io::ErrorKind::NotFound.into())),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::Rename, "rename", from)?;
        if state.names.get(from).is_none() || !state.names.has_parent(to) {
            return Err(DiskError::new("rename", from, None, std::io::ErrorKind::NotFound.into()));
        }
        state.directories.forget(from);
        state.directories.forget(to);
        state.names.rename(from, to);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::Remove, "remove", path)?;
        state.file(path, "remove")?;
        state.names.set(path, None);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::Remove, "remove", path)?;
        if state.names.get(path).is_none() {
            return Err(DiskError::new("remove", path, None, std::io::ErrorKind::NotFound.into()));
        }
        state.directories.forget(path);
        state.names.remove_tree(path);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::Link, "link", to)?;
        let inode = state.file(from, "link")?;
        if state.names.get(to).is_some() {
            return Err(DiskError::new("link", to, None, std::io::ErrorKind::AlreadyExists.into()));
        }
        if !state.names.has_parent(to) {
            return Err(DiskError::new("link", to, None, std::io::ErrorKind::NotFound.into()));
        }
        state.names.set(to, Some(Node::File(inode)));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let mut state = self.lock();
        state.on_names(Verb::SyncDirectory, "sync directory", dir)?;
        state.names.sync(dir);
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        Ok(self.lock().names.get(path).is_some())
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirectoryLock, DiskError> {
        let mut state = self.lock();
        if state.locked.iter().any(|locked| locked == dir) {
            let text = format!("{} is in use by another process (simulated)", dir.display());
            return Err(DiskError::of_kind(DiskErrorKind::Locked, "lock", dir, None, text));
        }
        state.locked.push(dir.to_path_buf());
        Ok(DirectoryLock::new(SimulatedLock { disk: self.clone(), dir: dir.to_path_buf() }))
    }

    fn lock_file(&self, path: &Path) -> Result<DirectoryLock, DiskError> {
        self.lock_dir(path)
    }

    fn space(&self, _path: &Path) -> Result<Space, DiskError> {
        let state = self.lock();
        let total_bytes = state.capacity_bytes.unwrap_or(1 << 40);
        Ok(Space { free_bytes: total_bytes.saturating_sub(state.used_bytes()), total_bytes })
    }
}

/// A stalled disk.
pub struct Stall<'a> {
    _state: MutexGuard<'a, State>,
}

/// Blocked reads.
pub struct StalledReads(SimulatedDisk);

impl Drop for StalledReads {
    fn drop(&mut self) {
        self.0.lock().stalled_reads = None;
        self.0.reads_go_on.notify_all();
    }
}

struct SimulatedLock {
    disk: SimulatedDisk,
    dir: PathBuf,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.disk.lock().locked.retain(|locked| *locked != self.dir);
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    inode: usize,
    path: Arc<Path>,
    mode: OpenMode,
    /// The reason why writes do not bypass the page cache, if they do not.
    not_direct: Option<&'static str>,
}

impl SimulatedFile {
    fn error<T>(&self, operation: &'static str, offset: Option<u64>, kind: std::io::ErrorKind) -> Result<T, DiskError> {
        Err(DiskError::new(operation, &self.path, offset, kind.into()))
    }

    fn write(&self, data: &[u8], offset: u64, durability: Durability) -> Result<(), DiskError> {
        if self.mode == OpenMode::Read {
            return self.error("write", Some(offset), std::io::ErrorKind::PermissionDenied);
        }
        self.disk.lock().write(self.inode, &self.path, data, offset, durability)
    }

    /// Whether the simulated device lets reads of this file wait.
    fn is_stalled(&self, state: &State) -> bool {
        state.stalled_reads.as_ref().is_some_and(|part| self.path.to_string_lossy().contains(part.as_str()))
    }

    fn read_now(&self, mut state: MutexGuard<'_, State>, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let fault = state.faults.next(Verb::Read, &self.path, offset, &[]);
        let mut got = state.inodes[self.inode].read(buffer, offset);
        match fault {
            None => {}
            Some(Fault::ShortRead) => got /= 2,
            Some(Fault::FlipBit) => {
                if let Some(byte) = buffer.get_mut(got / 3) {
                    *byte ^= 1;
                }
            }
            Some(_) => return self.error("read", Some(offset), std::io::ErrorKind::Other),
        }
        Ok(got)
    }
}

impl File for SimulatedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let waited = self.disk.reads_go_on.wait_while(self.disk.lock(), |state| self.is_stalled(state));
        self.read_now(waited.unwrap_or_else(PoisonError::into_inner), buffer, offset)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let state = self.disk.lock();
        if self.is_stalled(&state) {
            return Err(DiskError::would_wait(&self.path, Some(offset)));
        }
        self.read_now(state, buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError> {
        self.write(data, offset, Durability::AtNextSync)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let mut state = self.disk.lock();
        match state.faults.next(Verb::Sync, &self.path, 0, &[]) {
            None => {
                state.inodes[self.inode].sync();
                Ok(())
            }
            Some(fault) => {
                // As on Linux, the pages are clean from now on, and not on the device.
                if fault == Fault::FailSync {
                    state.inodes[self.inode].forget_unsynced();
                }
                self.error("sync", None, std::io::ErrorKind::Other)
            }
        }
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.disk.lock().inodes[self.inode].len())
    }

    fn set_len(&self, length: u64) -> Result<(), DiskError> {
        let mut state = self.disk.lock();
        match state.faults.next(Verb::SetLength, &self.path, length, &[]) {
            Some(Fault::Full) => return self.error("resize", Some(length), std::io::ErrorKind::StorageFull),
            Some(_) => return self.error("resize", Some(length), std::io::ErrorKind::Other),
            None => {}
        }
        if !state.has_space_for(length.saturating_sub(state.inodes[self.inode].len())) {
            return self.error("resize", Some(length), std::io::ErrorKind::StorageFull);
        }
        state.inodes[self.inode].set_len(length);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<(), DiskError> {
        let mut state = self.disk.lock();
        match state.faults.next(Verb::Allocate, &self.path, offset, &[]) {
            Some(Fault::Full) => return self.error("allocate", Some(offset), std::io::ErrorKind::StorageFull),
            Some(_) => return self.error("allocate", Some(offset), std::io::ErrorKind::Other),
            None => {}
        }
        let growth = (offset + length).saturating_sub(state.inodes[self.inode].len());
        if state.has_space_for(growth) {
            Ok(())
        } else {
            self.error("allocate", Some(offset), std::io::ErrorKind::StorageFull)
        }
    }

    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, durability: Durability) -> Result<(), DiskError> {
        if !offset.is_multiple_of(BLOCK_SIZE as u64) {
            return self.error("write blocks", Some(offset), std::io::ErrorKind::InvalidInput);
        }
        self.write(&blocks, offset, durability)?;
        if self.not_direct.is_none() {
            self.disk.lock().direct_bytes += blocks.len() as u64;
        }
        Ok(())
    }

    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError> {
        Ok(Box::new(SimulatedQueue::new(self.disk.clone(), self.inode, self.path.clone())))
    }

    fn block_writes(&self) -> BlockWrites {
        match self.not_direct {
            None => BlockWrites::Direct,
            Some(reason) => BlockWrites::Buffered { reason: reason.into() },
        }
    }
}

/// A stream of choices from a seed (SplitMix64).
#[derive(Debug)]
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[cfg(test)]
mod tests;
