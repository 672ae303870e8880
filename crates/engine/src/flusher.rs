//! The thread that flushes in the background.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use model::TableId;

use crate::engine::Engine;
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
    pub fn start(&self, engine: &Arc<Engine>) {
        let requests = self.requests.clone();
        self.worker.start("flusher", engine, move |engine| run(&engine, &requests));
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
        Arc::new(move || requests.1.notify_all())
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
        let (tables, cleanup) = {
            let mut waiting = lock(&requests.0);
            if waiting.tables.is_empty() && !waiting.cleanup && !waiting.stopped {
                let waited = requests.1.wait_timeout(waiting, TICK);
                waiting = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
            if waiting.stopped {
                return;
            }
            (std::mem::take(&mut waiting.tables), std::mem::take(&mut waiting.cleanup))
        };
        let Some(engine) = engine.upgrade() else {
            return;
        };
        // A failed flush keeps its memtable; the next one tries again. `last_failure` tells whoever asks for status.
        let failure = engine.flush_in_background(tables, cleanup).err();
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

    fn flush_in_background(&self, requested: HashSet<TableId>, cleanup: bool) -> Result<(), crate::EngineError> {
        let pressed: HashSet<_> = self.log().pressure().into_iter().flat_map(|pressure| pressure.tables).collect();
        let now = self.now_millis();
        for store in self.stores() {
            let table = store.table.load_full();
            let period = i64::from(table.options.memtable_flush_period_in_ms);
            let active = store.view().active.clone();
            let is_due = period > 0 && !active.memtable.is_empty() && now - active.created_millis >= period;
            if is_due || requested.contains(&table.id) || pressed.contains(&table.id.0) {
                self.flush_store(&store)?;
                self.compact_after_flush(&store);
            }
        }
        if cleanup && self.pool().wants_flush() {
            self.flush_largest()?;
        }
        Ok(())
    }

    /// Flushes the table whose memtable holds most.
    pub(crate) fn flush_largest(&self) -> Result<(), crate::EngineError> {
        let used = |store: &Arc<TableStore>| store.view().active.memtable.memory().used_bytes;
        match self.stores().into_iter().max_by_key(used) {
            Some(largest) => {
                self.flush_store(&largest)?;
                self.compact_after_flush(&largest);
                Ok(())
            }
            None => Ok(()),
        }
    }
}
