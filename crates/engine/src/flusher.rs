//! The thread that flushes in the background.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use model::TableId;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::{TableStore, lock};
use crate::worker::Worker;

/// Flushes tables on request, when memtables hold too much, when the log needs its space back, and periodically.
pub(crate) struct Flusher {
    requests: Arc<(Mutex<Requests>, Condvar)>,
    worker: Worker,
}

#[derive(Default)]
struct Requests {
    tables: HashSet<TableId>,
    /// Memory or log is short: look at both.
    cleanup: bool,
    stopped: bool,
}

/// How often periodic flushes and the log's pressure are looked at without being asked.
const TICK: Duration = Duration::from_secs(1);

impl Flusher {
    pub fn new() -> Self {
        Flusher { requests: Arc::default(), worker: Worker::new() }
    }

    /// Starts the thread; it ends with the engine.
    pub fn start(&self, engine: &Arc<Engine>) -> Result<(), EngineError> {
        let requests = self.requests.clone();
        self.worker.start("flusher", engine, move |engine| run(&engine, &requests))
    }

    /// Ends the thread after what it is doing.
    pub fn stop(&self) {
        lock(&self.requests.0).stopped = true;
        self.requests.1.notify_all();
        self.worker.join();
    }

    /// What the log calls when it begins to run out of segments: wakes the thread, which asks the log for more.
    pub fn pressure_hook(&self) -> Arc<dyn Fn() + Send + Sync> {
        let requests = self.requests.clone();
        Arc::new(move || {
            lock(&requests.0).cleanup = true;
            requests.1.notify_all();
        })
    }

    fn request(&self, change: impl FnOnce(&mut Requests)) {
        change(&mut lock(&self.requests.0));
        self.requests.1.notify_all();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(engine: &Weak<Engine>, requests: &(Mutex<Requests>, Condvar)) {
    loop {
        let tables = {
            let mut waiting = lock(&requests.0);
            if waiting.tables.is_empty() && !waiting.cleanup && !waiting.stopped {
                let waited = requests.1.wait_timeout(waiting, TICK);
                waiting = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
            if waiting.stopped {
                return;
            }
            waiting.cleanup = false;
            std::mem::take(&mut waiting.tables)
        };
        let Some(engine) = engine.upgrade() else {
            return;
        };
        // A failed flush keeps its memtable; the next one tries again. `last_flush_failure` tells whoever asks for status.
        let failure = engine.flush_in_background(tables).err();
        engine.note_flush_failure(failure);
    }
}

impl Engine {
    /// Asks for a flush of one table.
    pub(crate) fn request_flush(&self, store: &TableStore) {
        let id = store.table.load().id;
        self.flusher().request(|requests| {
            requests.tables.insert(id);
        });
    }

    /// Asks for a flush of the largest memtable.
    pub(crate) fn request_cleanup(&self) {
        self.flusher().request(|requests| requests.cleanup = true);
    }

    /// Flushes what is asked for and what is due. A table that cannot be flushed keeps none of the others; the first failure is
    /// returned.
    fn flush_in_background(&self, requested: HashSet<TableId>) -> Result<(), EngineError> {
        let pressed: HashSet<_> = self.log().pressure().into_iter().flat_map(|pressure| pressure.tables).collect();
        let now = self.now_millis();
        let mut result = Ok(());
        for store in self.stores() {
            let table = store.table.load_full();
            let period = i64::from(table.options.memtable_flush_period_in_ms);
            let active = store.view().active.clone();
            let is_due = period > 0 && !active.memtable.is_empty() && now - active.created_millis >= period;
            if is_due || requested.contains(&table.id) || pressed.contains(&table.id.0) {
                result = result.and(self.flush_and_compact(&store));
            }
        }
        result.and(self.flush_largest())
    }

    pub(crate) fn flush_and_compact(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        self.flush_store(store)?;
        self.compact_after_flush(store);
        Ok(())
    }

    /// Flushes the tables whose memtables hold most, until memtables together hold little enough. Asked for by writers once;
    /// without being asked again it is tried as long as it fails, because they wait.
    pub(crate) fn flush_largest(&self) -> Result<(), EngineError> {
        if !self.pool().wants_flush() {
            return Ok(());
        }
        let mut result = Ok(());
        let mut stores = self.stores();
        // Read once: it changes meanwhile.
        stores.sort_by_cached_key(|store| std::cmp::Reverse(used_bytes(store)));
        for store in stores {
            if !self.pool().wants_flush() {
                break;
            }
            result = result.and(self.flush_and_compact(&store));
        }
        result
    }
}

/// What a table's memtables hold, with those whose flush failed.
fn used_bytes(store: &TableStore) -> u64 {
    store.view().generations().map(|generation| generation.memtable.memory().used_bytes).sum()
}
