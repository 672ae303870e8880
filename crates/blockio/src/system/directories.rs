//! Directories of this machine: readable by their owner only, and made durable before anything relies on them.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::DiskError;
use crate::directories::{DirectoryCalls, DurableDirectories};

/// Directories are open to their owner only, because they hold what clients wrote.
const DIRECTORY_MODE: u32 = 0o700;

/// The directories that this process has made durable. The lock is held while a directory is created and synced, so
/// that no other thread considers it durable too early.
static DURABLE_DIRECTORIES: Mutex<DurableDirectories> = Mutex::new(DurableDirectories::new());

fn durable_directories() -> MutexGuard<'static, DurableDirectories> {
    DURABLE_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a directory and its parents, durably.
pub(super) fn make_durably(path: &Path) -> Result<(), DiskError> {
    durable_directories().make_all(path, &mut SystemCalls)
}

/// Forgets what is known about this name.
pub(super) fn forget(path: &Path) {
    durable_directories().forget(path);
}

struct SystemCalls;

impl DirectoryCalls for SystemCalls {
    fn is_directory(&mut self, path: &Path) -> bool {
        path.is_dir()
    }

    fn make(&mut self, path: &Path) -> Result<(), DiskError> {
        match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made.map_err(|e| DiskError::new("create directory", path, None, e)),
        }
    }

    fn sync_name(&mut self, path: &Path, was_found: bool) -> Result<(), DiskError> {
        let parent = match path.parent() {
            // The root has no name.
            None => return Ok(()),
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
        };
        match fs::File::open(parent).and_then(|parent| parent.sync_all()) {
            Ok(()) => Ok(()),
            Err(e) if was_found && is_not_ours_to_sync(&e) => sync_file_system(path),
            Err(e) => Err(DiskError::new("sync directory", parent, None, e)),
        }
    }
}

/// Whether the directory may not be opened, or its file system has nothing to sync.
fn is_not_ours_to_sync(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::ACCESS | Errno::PERM | Errno::INVAL | Errno::ROFS))
}

/// Syncs the whole file system of a directory, which makes a name durable in a directory that may not be opened.
fn sync_file_system(directory: &Path) -> Result<(), DiskError> {
    let synced = fs::File::open(directory).and_then(|handle| Ok(rustix::fs::syncfs(handle)?));
    match synced {
        // This process cannot have written there.
        Err(e) if is_not_ours_to_sync(&e) => Ok(()),
        synced => synced.map_err(|e| DiskError::new("sync the file system of", directory, None, e)),
    }
}
