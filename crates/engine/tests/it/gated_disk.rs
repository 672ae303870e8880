//! A disk that blocks the creation of files of a certain kind until the test releases it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use blockio::{Disk, DiskError, File, OpenOptions, SimulatedDisk};

/// The time after which a blocked test gives up.
pub const GIVE_UP: Duration = Duration::from_secs(120);

/// After the gate is closed, the creation of files whose path contains the text blocks until the test releases it. The
/// test chooses the order.
#[derive(Clone, Debug)]
pub struct GatedDisk {
    inner: SimulatedDisk,
    held: &'static str,
    /// If set, only creations by threads of this name are held.
    thread: Option<&'static str>,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: bool,
    arrived: usize,
    /// The numbers of the released creations.
    let_go: Vec<usize>,
}

impl GatedDisk {
    pub fn new(inner: &SimulatedDisk, held: &'static str) -> GatedDisk {
        GatedDisk { inner: inner.clone(), held, thread: None, gate: Arc::default() }
    }

    /// Holds only creations by threads of this name.
    pub fn only_of(self, thread: &'static str) -> GatedDisk {
        GatedDisk { thread: Some(thread), ..self }
    }

    pub fn close(&self) {
        self.gate.0.lock().unwrap().is_closed = true;
    }

    /// Waits until `count` creations are blocked.
    pub fn wait_for(&self, count: usize) {
        let gate = self.gate.0.lock().unwrap();
        let (gate, _) = self.gate.1.wait_timeout_while(gate, GIVE_UP, |gate| gate.arrived < count).unwrap();
        assert!(gate.arrived >= count, "{} of {count} came", gate.arrived);
    }

    /// Releases one creation, by its number in order of arrival.
    pub fn let_go(&self, number: usize) {
        self.gate.0.lock().unwrap().let_go.push(number);
        self.gate.1.notify_all();
    }

    /// Releases all creations, now and from now on.
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
        let is_of_thread = self.thread.is_none_or(|name| std::thread::current().name() == Some(name));
        if is_of_thread && path.to_string_lossy().contains(self.held) && !self.inner.exists(path)? {
            self.pass();
        }
        self.inner.open(path, options)
    }

    testkit::pass_to_inner_disk!(inner);

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.inner.sync_dir(dir)
    }
}
