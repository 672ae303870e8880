//! The durability of directories: those that are known to survive a power cut, and the steps that make others durable.
//!
//! That a directory exists does not mean that it is durable: the process that made it may have been killed before it
//! synced the parent. A process therefore only trusts directories whose parents it has synced itself, after it saw or
//! made them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::DiskError;

/// The operations for making directories.
pub(crate) trait DirectoryCalls {
    /// Whether the path is a directory now.
    fn is_directory(&mut self, path: &Path) -> bool;

    /// Makes one directory, whose parent exists. It is no error if another thread was faster.
    fn make(&mut self, path: &Path) -> Result<(), DiskError>;

    /// Makes the name of a directory durable. If `was_found`, it may belong to another user, and its parent may not be
    /// open to this process.
    fn sync_name(&mut self, path: &Path, was_found: bool) -> Result<(), DiskError>;
}

/// The directories whose names this process has made durable.
#[derive(Debug, Default)]
pub(crate) struct DurableDirectories {
    known: BTreeSet<PathBuf>,
}

impl DurableDirectories {
    pub const fn new() -> DurableDirectories {
        DurableDirectories { known: BTreeSet::new() }
    }

    /// Makes `path` a directory, with all its parents. All of them are durable when this returns.
    pub fn make_all(&mut self, path: &Path, calls: &mut dyn DirectoryCalls) -> Result<(), DiskError> {
        let is_there = calls.is_directory(path);
        if is_there && self.known.contains(path) {
            return Ok(());
        }
        if let Some(parent) = parent_of(path) {
            self.make_all(parent, calls)?;
            debug_assert!(self.known.contains(parent), "a parent is durable before its child is");
        }
        if !is_there {
            calls.make(path)?;
        }
        calls.sync_name(path, is_there)?;
        self.known.insert(path.to_path_buf());
        Ok(())
    }

    /// Forgets a directory that was moved or removed, and everything below it.
    pub fn forget(&mut self, path: &Path) {
        self.known.retain(|known| !known.starts_with(path));
    }
}

/// The directory that contains `path`; `None` for the root and for the current directory.
pub(crate) fn parent_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the calls made.
    #[derive(Default)]
    struct Calls {
        there: BTreeSet<PathBuf>,
        made: Vec<PathBuf>,
        synced: Vec<PathBuf>,
        fails: bool,
    }

    impl DirectoryCalls for Calls {
        fn is_directory(&mut self, path: &Path) -> bool {
            self.there.contains(path)
        }

        fn make(&mut self, path: &Path) -> Result<(), DiskError> {
            self.there.insert(path.to_path_buf());
            self.made.push(path.to_path_buf());
            Ok(())
        }

        fn sync_name(&mut self, path: &Path, _was_found: bool) -> Result<(), DiskError> {
            if self.fails {
                return Err(DiskError::new("sync directory", path, None, std::io::ErrorKind::Other.into()));
            }
            self.synced.push(path.to_path_buf());
            Ok(())
        }
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn found_and_created_directories_are_synced_once() {
        let mut calls = Calls { there: paths(&["a", "a/b"]).into_iter().collect(), ..Calls::default() };
        let mut directories = DurableDirectories::new();
        for _ in 0..2 {
            directories.make_all(Path::new("a/b/c"), &mut calls).unwrap();
            assert_eq!(calls.made, paths(&["a/b/c"]));
            assert_eq!(calls.synced, paths(&["a", "a/b", "a/b/c"]));
        }
    }

    #[test]
    fn the_next_user_of_a_directory_repeats_a_failed_sync() {
        let mut calls = Calls { fails: true, ..Calls::default() };
        let mut directories = DurableDirectories::new();
        directories.make_all(Path::new("a"), &mut calls).unwrap_err();
        calls.fails = false;
        directories.make_all(Path::new("a"), &mut calls).unwrap();
        assert_eq!((calls.made, calls.synced), (paths(&["a"]), paths(&["a"])));
    }

    #[test]
    fn a_recreated_directory_is_synced_again() {
        let mut calls = Calls::default();
        let mut directories = DurableDirectories::new();
        directories.make_all(Path::new("a/b"), &mut calls).unwrap();
        directories.make_all(Path::new("ab"), &mut calls).unwrap();
        directories.forget(Path::new("a"));
        calls.synced.clear();
        directories.make_all(Path::new("a/b"), &mut calls).unwrap();
        directories.make_all(Path::new("ab"), &mut calls).unwrap();
        assert_eq!(calls.synced, paths(&["a", "a/b"]));
    }
}
