//! The thread that frees memory: of expired data in tables that live in memory, of tombstones older than
//! `gc_grace_seconds`, and of dropped memtables whose pages no other memtable needed.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use compaction::RowPurge;
use memtable::Purge;
use model::{DeletionTime, Row, Table};

use super::Residents;
use crate::error::EngineError;
use crate::lock::lock;
use crate::worker::Worker;

/// The interval between searches for expired data.
const TICK: Duration = Duration::from_secs(1);
/// Memory of a memtable returns to the system when no other memtable needed it for this time, or twice this time at
/// most. Most tables fill a memtable again within it; memory that was returned has to be faulted in again.
const SPARE_FOR: Duration = Duration::from_secs(60);
/// The thread pauses this many times as long as it worked.
const REST_FACTOR: u32 = 20;

/// The thread ends with the component.
pub(crate) struct Purger {
    stopped: Arc<(Mutex<bool>, Condvar)>,
    worker: Worker,
}

impl Purger {
    pub fn new() -> Self {
        Purger { stopped: Arc::default(), worker: Worker::new() }
    }

    /// Starts the thread.
    fn start(&self, residents: &Arc<Residents>) -> Result<(), EngineError> {
        let stopped = self.stopped.clone();
        self.worker.start("purger", residents, move |residents| run(&residents, &stopped))
    }

    /// Ends the thread after its current work.
    fn stop(&self) {
        *lock(&self.stopped.0) = true;
        self.stopped.1.notify_all();
        self.worker.join();
    }
}

impl Drop for Purger {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(residents: &Weak<Residents>, stopped: &(Mutex<bool>, Condvar)) {
    let mut rest = TICK;
    let mut last_given_back = Instant::now();
    loop {
        let is_stopped = lock(&stopped.0);
        let waited = stopped.1.wait_timeout_while(is_stopped, rest, |stopped| !*stopped);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
        let Some(residents) = residents.upgrade() else { return };
        let started = Instant::now();
        residents.purge(residents.shared.now_seconds());
        if last_given_back.elapsed() >= SPARE_FOR {
            residents.shared.spare_pages().give_back_unneeded();
            last_given_back = Instant::now();
        }
        rest = (started.elapsed() * REST_FACTOR).max(TICK);
    }
}

impl Purge for RowPurgeOf {
    fn deletion(&mut self, deletion: DeletionTime) -> DeletionTime {
        self.0.deletion(deletion)
    }

    fn leaves_alone(&mut self, row: Row<'_>, table: &Table) -> bool {
        self.0.leaves_alone(row, table)
    }

    fn row(&mut self, row: Row<'_>, table: &Table, out: &mut Vec<u8>) -> bool {
        self.0.row(row, table, out)
    }
}

/// Compaction's purge rules, applied to memory.
struct RowPurgeOf(RowPurge);

impl Residents {
    /// Starts the thread that frees memory.
    pub fn start(self: &Arc<Self>) -> Result<(), EngineError> {
        self.purger.start(self)
    }

    /// Ends that thread.
    pub fn stop(&self) {
        self.purger.stop();
    }

    /// Frees memory that is not needed at `now_seconds` in tables that live in memory. The purger does it every second.
    /// Callers that cannot wait for the purger call this.
    pub fn purge(&self, now_seconds: u32) {
        for store in self.shared.stores() {
            // Before the load is complete, older data may arrive that a tombstone here shadows.
            if let Some(resident) = store.resident().filter(|resident| resident.is_complete()) {
                let gc_before = compaction::gc_before(&store.table.load().options, now_seconds);
                let mut purge = RowPurgeOf(RowPurge::new(now_seconds, gc_before));
                resident.data.purge(now_seconds, &mut purge);
                let notices = self.shared.options().in_memory_notices.as_ref();
                store.limit.note_use(&store.table, resident.data.used_bytes(), notices);
            }
        }
    }
}
