//! The threads that flush in the background, and their queue of tables.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::TableId;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::flush::failures;
use crate::lock::lock;
use crate::table::TableStore;
use crate::worker::Worker;

/// Flushes tables on request, if memtables are too large, if the log is short of segments, and periodically.
pub(crate) struct Flusher {
    queue: Arc<Queue>,
    workers: Vec<Worker>,
}

type Queue = (Mutex<Requests>, Condvar);

#[derive(Default)]
struct Requests {
    /// The tables to flush, each once, in the order of the requests.
    waiting: VecDeque<TableId>,
    /// The tables that are being flushed.
    active: HashSet<TableId>,
    /// The tables whose last flush failed, with the time before which they are not retried.
    resting: HashMap<TableId, Instant>,
    completed: u64,
    /// Memory or log space is short, so a thread should examine both.
    cleanup: bool,
    /// Both were examined since the last flush ended, and flushes were found. Another examination would find few more.
    looked: bool,
    stopped: bool,
}

/// The queue of background flushes: Cassandra's `MemtableFlushWriter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushStats {
    /// The number of tables that wait for a thread.
    pub pending: usize,
    /// The number of tables that are being flushed.
    pub active: usize,
    /// The number of flushes since the start, including failed ones.
    pub completed: u64,
}

/// The next task of a thread.
enum Task {
    /// Find the tables that should be flushed.
    Look,
    Flush(TableId),
}

/// The interval at which periodic flushes and the log's space are checked without a request.
const TICK: Duration = Duration::from_secs(1);

impl Flusher {
    /// Creates the queue for this number of threads (`memtable_flush_writers`).
    pub fn new(threads: usize) -> Self {
        Flusher { queue: Arc::default(), workers: (0..threads.max(1)).map(|_| Worker::new()).collect() }
    }

    /// Starts the threads; they end with the engine.
    pub fn start(&self, engine: &Arc<Engine>) -> Result<(), EngineError> {
        self.workers.iter().try_for_each(|worker| {
            let queue = self.queue.clone();
            worker.start("flusher", engine, move |engine| run(&engine, &queue))
        })
    }

    /// Ends the threads after their current work.
    pub fn stop(&self) {
        lock(&self.queue.0).stopped = true;
        self.queue.1.notify_all();
        self.workers.iter().for_each(Worker::join);
    }

    /// The hook that the log calls when it has few free segments. It wakes a thread, which asks the log for the tables
    /// to flush.
    pub fn pressure_hook(&self) -> Arc<dyn Fn() + Send + Sync> {
        let queue = self.queue.clone();
        Arc::new(move || {
            lock(&queue.0).cleanup = true;
            queue.1.notify_one();
        })
    }

    pub fn stats(&self) -> FlushStats {
        let requests = lock(&self.queue.0);
        FlushStats { pending: requests.waiting.len(), active: requests.active.len(), completed: requests.completed }
    }

    /// Whether the table is being flushed or will be, unless it waits because its last flush failed.
    fn has(&self, table: TableId) -> bool {
        let requests = lock(&self.queue.0);
        let is_waiting = requests.waiting.contains(&table) && !requests.resting.contains_key(&table);
        is_waiting || requests.active.contains(&table)
    }

    fn enqueue(&self, table: TableId) {
        let mut requests = lock(&self.queue.0);
        if !requests.waiting.contains(&table) {
            requests.waiting.push_back(table);
            self.queue.1.notify_one();
        }
    }

    /// Makes a thread examine which tables should be flushed, unless that was done and the flushes are running.
    fn look(&self) {
        let mut requests = lock(&self.queue.0);
        if !requests.looked {
            requests.cleanup = true;
            self.queue.1.notify_one();
        }
    }

    fn looked(&self) {
        let mut requests = lock(&self.queue.0);
        requests.looked = !requests.waiting.is_empty() || !requests.active.is_empty();
    }

    /// Records that a flush has ended. If it failed, the table is not retried before `rest` is over.
    fn ended(&self, table: TableId, rest: Option<Duration>) {
        let mut requests = lock(&self.queue.0);
        requests.active.remove(&table);
        if let Some(rest) = rest {
            requests.resting.insert(table, Instant::now() + rest);
        }
        requests.completed += 1;
        requests.looked = false;
        // The table may have been requested again, and be free only now.
        self.queue.1.notify_one();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Requests {
    fn take(&mut self) -> Option<Task> {
        if std::mem::take(&mut self.cleanup) {
            return Some(Task::Look);
        }
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
        let is_free = |table: &TableId| !self.active.contains(table) && !self.resting.contains_key(table);
        let at = self.waiting.iter().position(is_free)?;
        let table = self.waiting.remove(at)?;
        self.active.insert(table);
        Some(Task::Flush(table))
    }
}

/// Waits for a task. Returns `None` when the thread must end.
fn next_task((requests, changed): &Queue) -> Option<Task> {
    let mut requests = lock(requests);
    loop {
        if requests.stopped {
            return None;
        }
        if let Some(task) = requests.take() {
            return Some(task);
        }
        let now = Instant::now();
        let rests = requests.resting.values().map(|until| until.saturating_duration_since(now));
        let wait = rests.fold(TICK, Duration::min);
        let (woken, timeout) = changed.wait_timeout(requests, wait).unwrap_or_else(PoisonError::into_inner);
        requests = woken;
        requests.cleanup |= timeout.timed_out();
    }
}

fn run(engine: &Weak<Engine>, queue: &Queue) {
    while let Some(task) = next_task(queue) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        match task {
            Task::Look => engine.enqueue_flushes(),
            Task::Flush(table) => engine.flush_in_background(table),
        }
    }
}

impl Engine {
    /// Requests a flush of one table.
    pub(crate) fn request_flush(&self, store: &TableStore) {
        self.flusher().enqueue(store.table.load().id);
    }

    /// Requests flushes of the tables that use most memory, or that keep segments of the log in use.
    pub(crate) fn request_cleanup(&self) {
        self.flusher().look();
    }

    /// The figures of the queue.
    pub fn flush_stats(&self) -> FlushStats {
        self.flusher().stats()
    }

    /// A failed flush keeps its memtable. It is retried after a delay ([`crate::flush::failures`]) without a further
    /// request, because writers may be waiting for it. `last_flush_failure` gives the reason.
    fn flush_in_background(&self, table: TableId) {
        let store = self.stores().into_iter().find(|store| store.table.load().id == table);
        let flushed = store.map_or(Ok(false), |store| self.flush_and_compact(&store));
        // A quarantined table frees its memory and its part of the log like a flushed one.
        let flushed = contained(flushed);
        let rest = self.flush_failures().delay(table).filter(|_| flushed.is_err());
        self.flusher().ended(table, rest);
        if let Ok(true) = flushed {
            // There may be more work than this table could do.
            self.flusher().look();
        }
        if flushed.is_err() {
            // Some of the writers that wait for room must be woken, because there will be none.
            self.log().wake_room_waiters();
        }
    }

    /// Queues the tables that are due, those that hold the log's oldest segments if it is short of free ones, and the
    /// largest if memory is short.
    fn enqueue_flushes(&self) {
        let flusher = self.flusher();
        let stores = self.stores();
        // The tables of the oldest segments come first, because their flushes free the log soonest.
        let pressed = self.log().pressure().into_iter().flat_map(|pressure| pressure.tables).map(TableId);
        let due = stores.iter().filter(|store| self.is_due(store)).map(|store| store.table.load().id);
        for table in pressed.chain(due) {
            if !flusher.has(table) {
                flusher.enqueue(table);
            }
        }
        // Running flushes will free their memory. Only the rest requires more flushes.
        let (mut largest, flushing): (Vec<_>, Vec<_>) = stores
            .iter()
            .map(|store| (used_bytes(store), store.table.load().id))
            .partition(|(_, table)| !flusher.has(*table));
        let mut freed: u64 = flushing.iter().map(|(bytes, _)| bytes).sum();
        largest.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, table) in largest {
            if !self.pool().wants_flush_without(freed) {
                break;
            }
            flusher.enqueue(table);
            // A table whose last flush failed may free nothing.
            freed += if self.flush_failures().delay(table).is_none() { bytes } else { 0 };
        }
        flusher.looked();
    }

    /// Whether the table's `memtable_flush_period_in_ms` has passed.
    fn is_due(&self, store: &TableStore) -> bool {
        let period = i64::from(store.table.load().options.memtable_flush_period_in_ms);
        let active = store.view().active.clone();
        period > 0 && !active.memtable.is_empty() && self.now_millis() - active.created_millis >= period
    }

    /// Flushes and then requests a compaction. Returns whether there was anything to flush.
    pub(crate) fn flush_and_compact(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let flushed = self.flush_store(store)?;
        self.request_compaction(store);
        Ok(flushed)
    }

    /// Flushes the tables with the largest memtables, one after another, until memtables together are small enough. A
    /// replay needs this before it can continue. Waits between the attempts of a failing flush.
    pub(crate) fn flush_largest(&self) -> Result<(), EngineError> {
        if !self.pool().wants_flush() {
            return Ok(());
        }
        let mut result = Ok(());
        let mut stores = self.stores();
        // The sizes are read once, because they change meanwhile.
        stores.sort_by_cached_key(|store| std::cmp::Reverse(used_bytes(store)));
        for store in stores {
            if !self.pool().wants_flush() {
                break;
            }
            result = result.and(self.flush_or_quarantine(&store));
        }
        result
    }

    /// Flushes a table, or finds that it cannot be flushed. Fails if the table must not be quarantined for that.
    fn flush_or_quarantine(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        for _ in 1..failures::TRIES {
            match contained(self.flush_and_compact(store)) {
                Ok(_) => return Ok(()),
                Err(_) => std::thread::sleep(self.flush_failures().delay(store.table.load().id).unwrap_or_default()),
            }
        }
        contained(self.flush_and_compact(store)).map(|_| ())
    }
}

/// The result of a flush for callers that only need memory and log space to be free again.
pub(crate) fn contained(flushed: Result<bool, EngineError>) -> Result<bool, EngineError> {
    match flushed {
        Err(EngineError::Quarantined { .. }) => Ok(true),
        flushed => flushed,
    }
}

/// The bytes of a table's memtables, including those whose flush failed.
pub(crate) fn used_bytes(store: &TableStore) -> u64 {
    store.view().generations().map(|generation| generation.memtable.memory().used_bytes).sum()
}
