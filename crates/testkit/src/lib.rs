//! Support for the tests of other crates: seeded random numbers, so that a failure is repeated from its seed; temporary
//! directories; and a part of disks for tests.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new directory of a test. It is removed with everything in it when this is dropped.
#[derive(Debug)]
pub struct TemporaryDirectory(pub PathBuf);

impl TemporaryDirectory {
    /// Creates an empty directory.
    ///
    /// # Panics
    ///
    /// If the system refuses that.
    pub fn create() -> TemporaryDirectory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("espalier-test-{}-{number}", std::process::id()));
        // An earlier process with the same id may have been killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary directory can be created");
        TemporaryDirectory(path)
    }

    /// Returns the path of a file or directory in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// SplitMix64: seeded, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number, of 64 bits.
    pub fn number(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// Returns true once in `count` times on average.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns true `percent` times in a hundred on average.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// The choices of a random history: the same generator for tests that count in 64 bits.
#[derive(Clone, Debug)]
pub struct Choices(pub u64);

impl Choices {
    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "choices do not end, so they are no iterator")]
    pub fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The seed of a test: `usual`, or the one in the environment variable `SEED`. The test prints it, so that a run can be
/// repeated.
pub fn seed(usual: u64) -> u64 {
    let seed = seeds(usual..usual + 1).start;
    println!("SEED={seed}");
    seed
}

/// The seeds of a test: `usual`, or only the one in the environment variable `SEED`.
pub fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => usual,
    }
}

/// The methods of `blockio::Disk` that a disk of a test passes to the disk within it: all but `open` and `sync_dir`.
/// Takes the name of the field, and stands in the `impl` block of the trait.
#[macro_export]
macro_rules! pass_to_inner_disk {
    ($field:tt) => {
        fn create_dir_all(&self, path: &::std::path::Path) -> Result<(), ::blockio::DiskError> {
            self.$field.create_dir_all(path)
        }

        fn list(&self, dir: &::std::path::Path) -> Result<Vec<::blockio::DirectoryEntry>, ::blockio::DiskError> {
            self.$field.list(dir)
        }

        fn rename(&self, from: &::std::path::Path, to: &::std::path::Path) -> Result<(), ::blockio::DiskError> {
            self.$field.rename(from, to)
        }

        fn remove_file(&self, path: &::std::path::Path) -> Result<(), ::blockio::DiskError> {
            self.$field.remove_file(path)
        }

        fn remove_dir_all(&self, path: &::std::path::Path) -> Result<(), ::blockio::DiskError> {
            self.$field.remove_dir_all(path)
        }

        fn hard_link(&self, from: &::std::path::Path, to: &::std::path::Path) -> Result<(), ::blockio::DiskError> {
            self.$field.hard_link(from, to)
        }

        fn exists(&self, path: &::std::path::Path) -> Result<bool, ::blockio::DiskError> {
            self.$field.exists(path)
        }

        fn lock_dir(&self, dir: &::std::path::Path) -> Result<::blockio::DirectoryLock, ::blockio::DiskError> {
            self.$field.lock_dir(dir)
        }

        fn lock_file(&self, path: &::std::path::Path) -> Result<::blockio::DirectoryLock, ::blockio::DiskError> {
            self.$field.lock_file(path)
        }

        fn space(&self, path: &::std::path::Path) -> Result<::blockio::Space, ::blockio::DiskError> {
            self.$field.space(path)
        }
    };
}
