//! A disk that shows another disk and never changes it: changes stay in memory and disappear with the overlay.
//!
//! It is for examining a node's files, for evidence or rescue, with code that normally writes. Only blocks that were
//! written take memory. Several names of one file on the disk below become separate files once one of them is changed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::queue::PlainQueue;
use crate::system::LOCK_FILE;
use crate::{
    AlignedSlice, BLOCK_SIZE, BlockQueue, BlockWrites, DirectoryEntry, DirectoryLock, Disk, DiskError, DiskErrorKind,
    Durability, File, OpenMode, OpenOptions, Space,
};

/// Another disk, with changes that exist in memory only.
#[derive(Clone)]
pub struct OverlayDisk {
    base: Arc<dyn Disk>,
    names: Arc<Mutex<Names>>,
}

/// The differences from the disk below. A name is in one of these at most.
#[derive(Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<Contents>>,
    directories: BTreeSet<PathBuf>,
    /// Files and directories of the disk below that are hidden, with everything below them.
    removed: HashSet<PathBuf>,
}

/// A file that was written to.
struct Contents {
    base: Option<Box<dyn File>>,
    state: RwLock<Changes>,
}

#[derive(Default)]
struct Changes {
    length: u64,
    /// How many bytes of the file below are still valid.
    base_length: u64,
    /// Changed blocks by number.
    blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
}

impl fmt::Debug for OverlayDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayDisk").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Names {
    fn is_removed(&self, path: &Path) -> bool {
        path.ancestors().any(|ancestor| self.removed.contains(ancestor))
    }

    fn below<'n>(&'n self, directory: &'n Path) -> impl Iterator<Item = PathBuf> + 'n {
        let all = self.files.keys().chain(&self.directories);
        all.filter(move |path| *path != directory && path.starts_with(directory)).cloned()
    }
}

impl Contents {
    fn new(base: Option<Box<dyn File>>) -> Result<Arc<Contents>, DiskError> {
        let length = base.as_ref().map_or(Ok(0), |base| base.len())?;
        let written = Changes { length, base_length: length, blocks: BTreeMap::new() };
        Ok(Arc::new(Contents { base, state: RwLock::new(written) }))
    }

    /// Reads bytes of the file below, and zeros after its end.
    fn read_base(&self, state: &Changes, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
        buffer.fill(0);
        let there = state.base_length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        match &self.base {
            Some(base) if there > 0 => base.read_exact_at(&mut buffer[..there], offset),
            _ => Ok(()),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let length = state.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.read_base(&state, &mut buffer[..length], offset)?;
        let size = BLOCK_SIZE as u64;
        let end = offset + length as u64;
        for (number, block) in state.blocks.range(offset / size..end.div_ceil(size)) {
            let (start, behind) = ((number * size).max(offset), ((number + 1) * size).min(end));
            let from = (start - number * size) as usize;
            let to = (start - offset) as usize;
            let count = (behind - start) as usize;
            buffer[to..to + count].copy_from_slice(&block[from..from + count]);
        }
        Ok(length)
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<(), DiskError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (size, mut rest, mut at) = (BLOCK_SIZE as u64, data, offset);
        while !rest.is_empty() {
            let (number, from) = (at / size, (at % size) as usize);
            let (piece, behind) = rest.split_at(rest.len().min(BLOCK_SIZE - from));
            if !state.blocks.contains_key(&number) {
                let mut block = Box::new([0; BLOCK_SIZE]);
                self.read_base(&state, &mut block[..], number * size)?;
                state.blocks.insert(number, block);
            }
            if let Some(block) = state.blocks.get_mut(&number) {
                block[from..from + piece.len()].copy_from_slice(piece);
            }
            (rest, at) = (behind, at + piece.len() as u64);
        }
        state.length = state.length.max(at);
        Ok(())
    }

    fn set_len(&self, length: u64) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let size = BLOCK_SIZE as u64;
        state.blocks.split_off(&length.div_ceil(size));
        if let Some(last) = state.blocks.get_mut(&(length / size)) {
            last[(length % size) as usize..].fill(0);
        }
        (state.length, state.base_length) = (length, state.base_length.min(length));
    }
}

impl OverlayDisk {
    /// An overlay that shows `base`.
    pub fn new(base: Arc<dyn Disk>) -> OverlayDisk {
        OverlayDisk { base, names: Arc::default() }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_base(&self, names: &Names, path: &Path) -> Result<bool, DiskError> {
        Ok(!names.is_removed(path) && self.base.exists(path)?)
    }

    fn is_there(&self, names: &Names, path: &Path) -> Result<bool, DiskError> {
        let is_new = names.files.contains_key(path) || names.directories.contains(path);
        Ok(is_new || self.is_of_base(names, path)?)
    }

    fn check_parent(&self, names: &Names, path: &Path) -> Result<(), DiskError> {
        match path.parent() {
            Some(parent) if self.is_there(names, parent)? => Ok(()),
            _ => Err(fail(DiskErrorKind::NotFound, "find the directory of", path)),
        }
    }

    /// The contents of a file, prepared for a change.
    fn to_change(&self, names: &mut Names, path: &Path) -> Result<Arc<Contents>, DiskError> {
        if let Some(file) = names.files.get(path) {
            return Ok(file.clone());
        }
        if !self.is_of_base(names, path)? {
            return Err(fail(DiskErrorKind::NotFound, "open", path));
        }
        let file = Contents::new(Some(self.base.open(path, OpenOptions::read())?))?;
        names.files.insert(path.to_path_buf(), file.clone());
        Ok(file)
    }
}

fn fail(kind: DiskErrorKind, operation: &'static str, path: &Path) -> DiskError {
    DiskError::of_kind(kind, operation, path, None, format!("{kind:?}"))
}

impl Disk for OverlayDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError> {
        let mut names = self.names();
        let is_there = self.is_there(&names, path)?;
        if options.mode == OpenMode::Read && !names.files.contains_key(path) {
            return match is_there {
                true => self.base.open(path, options),
                false => Err(fail(DiskErrorKind::NotFound, "open", path)),
            };
        }
        let contents = match (options.mode, is_there) {
            (OpenMode::CreateNew, true) => return Err(fail(DiskErrorKind::AlreadyExists, "create", path)),
            // Other names of the file see the change too.
            (OpenMode::CreateOrTruncate, true) => {
                let contents = self.to_change(&mut names, path)?;
                contents.set_len(0);
                contents
            }
            (OpenMode::CreateOrTruncate | OpenMode::CreateNew | OpenMode::WriteOrCreate, false) => {
                self.check_parent(&names, path)?;
                let contents = Contents::new(None)?;
                names.files.insert(path.to_path_buf(), contents.clone());
                contents
            }
            (OpenMode::Read | OpenMode::Write | OpenMode::WriteOrCreate, _) => self.to_change(&mut names, path)?,
        };
        Ok(Box::new(OverlayFile { path: path.to_path_buf(), contents }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        let mut names = self.names();
        for directory in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
            if names.files.contains_key(directory) {
                return Err(fail(DiskErrorKind::AlreadyExists, "create directory", path));
            }
            if !self.is_there(&names, directory)? {
                names.directories.insert(directory.to_path_buf());
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        let names = self.names();
        let mut entries = match self.is_of_base(&names, dir)? {
            true => self.base.list(dir)?,
            false if names.directories.contains(dir) => Vec::new(),
            false => return Err(fail(DiskErrorKind::NotFound, "list", dir)),
        };
        let new = names.files.keys().map(|path| (path, false)).chain(names.directories.iter().map(|path| (path, true)));
        let new: BTreeMap<String, bool> = new
            .filter(|(path, _)| path.parent() == Some(dir))
            .filter_map(|(path, is_dir)| Some((path.file_name()?.to_string_lossy().into_owned(), is_dir)))
            .collect();
        entries.retain(|entry| !new.contains_key(&entry.name) && !names.is_removed(&dir.join(&entry.name)));
        entries.extend(new.into_iter().map(|(name, is_dir)| DirectoryEntry { name, is_dir }));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut names = self.names();
        self.check_parent(&names, to)?;
        if names.directories.contains(from) {
            let moved: Vec<PathBuf> = names.below(from).chain([from.to_path_buf()]).collect();
            for path in moved {
                let target = path.strip_prefix(from).map_or_else(|_| to.to_path_buf(), |rest| to.join(rest));
                if names.directories.remove(&path) {
                    names.directories.insert(target);
                } else if let Some(file) = names.files.remove(&path) {
                    names.files.insert(target, file);
                }
            }
            return Ok(());
        }
        let file = self.to_change(&mut names, from)?;
        names.files.remove(from);
        names.removed.insert(from.to_path_buf());
        names.files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let mut names = self.names();
        if !self.is_there(&names, path)? {
            return Err(fail(DiskErrorKind::NotFound, "remove", path));
        }
        names.files.remove(path);
        names.removed.insert(path.to_path_buf());
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        let mut names = self.names();
        if !self.is_there(&names, path)? {
            return Err(fail(DiskErrorKind::NotFound, "remove", path));
        }
        let gone: Vec<PathBuf> = names.below(path).chain([path.to_path_buf()]).collect();
        for path in &gone {
            names.files.remove(path);
            names.directories.remove(path);
        }
        names.removed.insert(path.to_path_buf());
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut names = self.names();
        if self.is_there(&names, to)? {
            return Err(fail(DiskErrorKind::AlreadyExists, "link", to));
        }
        self.check_parent(&names, to)?;
        let file = self.to_change(&mut names, from)?;
        names.files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.is_there(&self.names(), path)
    }

    /// Locks the directory below, if it was ever locked; otherwise there is nothing to lock.
    fn lock_dir(&self, dir: &Path) -> Result<DirectoryLock, DiskError> {
        match self.base.lock_file(&dir.join(LOCK_FILE)) {
            Err(error) if error.kind() == DiskErrorKind::NotFound => Ok(DirectoryLock::new(())),
            locked => locked,
        }
    }

    fn lock_file(&self, path: &Path) -> Result<DirectoryLock, DiskError> {
        match self.base.lock_file(path) {
            Err(error) if error.kind() == DiskErrorKind::NotFound => Ok(DirectoryLock::new(())),
            locked => locked,
        }
    }

    fn space(&self, path: &Path) -> Result<Space, DiskError> {
        let below = path.ancestors().find(|ancestor| self.base.exists(ancestor).unwrap_or(false));
        self.base.space(below.unwrap_or(path))
    }
}

/// A file with changes in memory.
struct OverlayFile {
    path: PathBuf,
    contents: Arc<Contents>,
}

impl fmt::Debug for OverlayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl File for OverlayFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.contents.read(buffer, offset)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.contents.read(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError> {
        self.contents.write(data, offset)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.contents.state.read().unwrap_or_else(PoisonError::into_inner).length)
    }

    fn set_len(&self, length: u64) -> Result<(), DiskError> {
        self.contents.set_len(length);
        Ok(())
    }

    fn allocate(&self, _offset: u64, _length: u64) -> Result<(), DiskError> {
        Ok(())
    }

    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, _durability: Durability) -> Result<(), DiskError> {
        self.contents.write(&blocks, offset)
    }

    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError> {
        let file = OverlayFile { path: self.path.clone(), contents: self.contents.clone() };
        Ok(Box::new(PlainQueue::new(Box::new(file), "nothing is written to a device".into())))
    }

    fn block_writes(&self) -> BlockWrites {
        BlockWrites::Buffered { reason: "the node only reads its disk".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimulatedDisk;
    use testkit::Random;

    fn filled() -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        for directory in ["/d/a", "/d/b"] {
            disk.create_dir_all(Path::new(directory)).unwrap();
            for name in ["x", "y"] {
                let file = disk.open(&Path::new(directory).join(name), OpenOptions::create()).unwrap();
                file.write_at(&vec![7; 10_000], 0).unwrap();
            }
        }
        disk
    }

    /// All names and bytes.
    fn shown(disk: &dyn Disk, directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        for entry in disk.list(directory).unwrap() {
            let path = directory.join(&entry.name);
            if entry.is_dir {
                found.push((path.clone(), Vec::new()));
                found.extend(shown(disk, &path));
            } else {
                let file = disk.open(&path, OpenOptions::read()).unwrap();
                let mut bytes = vec![0; file.len().unwrap() as usize];
                file.read_exact_at(&mut bytes, 0).unwrap();
                found.push((path, bytes));
            }
        }
        found
    }

    /// Makes one random change, and returns the error kind if it fails.
    fn change(disk: &dyn Disk, random: &mut Random) -> Result<(), DiskErrorKind> {
        let path = |random: &mut Random| {
            let (directory, name) = (["a", "b", "new"][random.below(3)], ["x", "y", "z"][random.below(3)]);
            Path::new("/d").join(directory).join(name)
        };
        let (first, second, what) = (path(random), path(random), random.below(9));
        let (offset, byte) = (random.below(12_000) as u64, random.below(250) as u8);
        let modes = [OpenMode::Write, OpenMode::WriteOrCreate, OpenMode::CreateNew, OpenMode::CreateOrTruncate];
        let mode = modes[random.below(4)];
        let open = |path: &Path, mode| disk.open(path, OpenOptions { mode, blocks: false });
        let result = match what {
            0..3 => open(&first, mode).and_then(|file| file.write_at(&vec![byte; 1 + usize::from(byte) * 30], offset)),
            3 | 4 => open(&first, mode).and_then(|file| file.set_len(offset)),
            5 => disk.remove_file(&first),
            6 => disk.rename(&first, &second),
            7 => disk.hard_link(&first, &second),
            _ => disk.create_dir_all(Path::new("/d/new")),
        };
        result.map_err(|error| error.kind())
    }

    #[test]
    fn an_overlay_behaves_as_a_disk_and_does_not_change_the_disk_below() {
        for seed in testkit::seeds(0..60) {
            let (base, model) = (filled(), filled());
            let overlay = OverlayDisk::new(Arc::new(base.clone()));
            let (mut one, mut other) = (Random(seed), Random(seed));
            for step in 0..40 {
                let (changed, expected) = (change(&overlay, &mut one), change(&model, &mut other));
                assert_eq!(changed.is_ok(), expected.is_ok(), "seed {seed}, step {step}: {changed:?} {expected:?}");
                assert!(shown(&overlay, Path::new("/d")) == shown(&model, Path::new("/d")), "seed {seed}, step {step}");
            }
            assert!(shown(&base, Path::new("/d")) == shown(&filled(), Path::new("/d")), "seed {seed}");
        }
    }
}
