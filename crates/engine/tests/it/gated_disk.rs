//! A disk that holds whoever creates a file of a certain kind until the test lets it go on.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use blockio::{DirectoryEntry, DirectoryLock, Disk, DiskError, File, OpenOptions, SimulatedDisk, Space};

/// When a test that waits in vain gives up.
pub const GIVE_UP: Duration = Duration::from_secs(120);

/// Files whose path contains the text are created when the test says so, in the order that it says, once the gate is
/// closed.
#[derive(Clone, Debug)]
pub struct GatedDisk {
    inner: SimulatedDisk,
    held: &'static str,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: bool,
    arrived: usize,
    /// Of those who arrived, by their number.
    let_go: Vec<usize>,
}

impl GatedDisk {
    pub fn new(inner: &SimulatedDisk, held: &'static str) -> GatedDisk {
        GatedDisk { inner: inner.clone(), held, gate: Arc::default() }
    }

    pub fn close(&self) {
        self.gate.0.lock().unwrap().is_closed = true;
    }

    /// Waits until so many are held.
    pub fn wait_for(&self, count: usize) {
        let gate = self.gate.0.lock().unwrap();
        let (gate, _) = self.gate.1.wait_timeout_while(gate, GIVE_UP, |gate| gate.arrived < count).unwrap();
        assert!(gate.arrived >= count, "{} of {count} came", gate.arrived);
    }

    /// Lets one go, by the number in which it came.
    pub fn let_go(&self, number: usize) {
        self.gate.0.lock().unwrap().let_go.push(number);
        self.gate.1.notify_all();
    }

    /// Lets all go, now and from now on.
    pub fn open_for_all(&self) {
        self.gate.0.lock().unwrap().is_closed = false;
        self.gate.1.notify_all();
    }

    fn pass(&self) {
        let mut gate = self.gate.0.lock().unwrap();
        if !gate.is_closed {
            return;
        }
        let number = gate.arrived;
        gate.arrived += 1;
        self.gate.1.notify_all();
        let is_held = |gate: &mut Gate| gate.is_closed && !gate.let_go.contains(&number);
        drop(self.gate.1.wait_timeout_while(gate, GIVE_UP, is_held).unwrap());
    }
}

impl Disk for GatedDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError> {
        if path.to_string_lossy().contains(self.held) && !self.inner.exists(path)? {
            self.pass();
        }
        self.inner.open(path, options)
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        self.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        self.inner.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        self.inner.remove_dir_all(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.inner.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.inner.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.inner.exists(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirectoryLock, DiskError> {
        self.inner.lock_dir(dir)
    }

    fn lock_file(&self, path: &Path) -> Result<DirectoryLock, DiskError> {
        self.inner.lock_file(path)
    }

    fn space(&self, path: &Path) -> Result<Space, DiskError> {
        self.inner.space(path)
    }
}
