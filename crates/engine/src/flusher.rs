//! The threads that flush in the background, and the queue they take tables from.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::TableId;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::flush_failures;
use crate::store::{TableStore, lock};
use crate::worker::Worker;

/// Flushes tables on request, when memtables hold too much, when the log needs its space back, and periodically.
pub(crate) struct Flusher {
    queue: Arc<Queue>,
    workers: Vec<Worker>,
}

type Queue = (Mutex<Requests>, Condvar);

#[derive(Default)]
struct Requests {
    /// Tables to flush, in the order they were asked for; each once.
    waiting: VecDeque<TableId>,
    /// Tables whose flush is under way.
    active: HashSet<TableId>,
    /// Tables whose last flush failed, and until when they are not tried again.
    resting: HashMap<TableId, Instant>,
    completed: u64,
    /// Memory or log is short: look at both.
    cleanup: bool,
    /// It was looked at since the last flush ended, and flushes were found: looking again finds little more.
    looked: bool,
    stopped: bool,
}

/// The queue of flushes in the background: Cassandra's `MemtableFlushWriter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushStats {
    /// Tables that wait for a thread.
    pub pending: usize,
    /// Tables being flushed.
    pub active: usize,
    /// Flushes that ended since the start, failed ones too.
    pub completed: u64,
}

/// What a thread does next.
enum Task {
    /// Find out which tables are to be flushed.
    Look,
    Flush(TableId),
}

/// How often periodic flushes and the log's pressure are looked at without being asked.
const TICK: Duration = Duration::from_secs(1);

impl Flusher {
    /// With so many threads (`memtable_flush_writers`).
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

    /// Ends the threads after what they are doing.
    pub fn stop(&self) {
        lock(&self.queue.0).stopped = true;
        self.queue.1.notify_all();
        self.workers.iter().for_each(Worker::join);
    }

    /// What the log calls when it begins to run out of segments: wakes a thread, which asks the log for more.
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

    /// Whether the table's flush is under way or will be, unless it waits because the last one failed.
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

    /// Has a thread look what is to be flushed, unless it was looked and flushes are under way for it.
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

    /// Notes that a flush has ended; where it failed, the table is not tried again before `rest` is over.
    fn ended(&self, table: TableId, rest: Option<Duration>) {
        let mut requests = lock(&self.queue.0);
        requests.active.remove(&table);
        if let Some(rest) = rest {
            requests.resting.insert(table, Instant::now() + rest);
        }
        requests.completed += 1;
        requests.looked = false;
        // The table may have been asked for again, and only now be free.
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

/// Waits for something to do; `None` when it is time to end.
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
    /// Asks for a flush of one table.
    pub(crate) fn request_flush(&self, store: &TableStore) {
        self.flusher().enqueue(store.table.load().id);
    }

    /// Asks for flushes of what holds most memory, or keeps the log from being used again.
    pub(crate) fn request_cleanup(&self) {
        self.flusher().look();
    }

    /// The queue of flushes in the background.
    pub fn flush_stats(&self) -> FlushStats {
        self.flusher().stats()
    }

    /// A failed flush keeps its memtable. It is retried after a delay ([`crate::flush_failures`]) without a further
    /// request, because writers may be waiting for it. `last_flush_failure` gives the reason.
    fn flush_in_background(&self, table: TableId) {
        let store = self.stores().into_iter().find(|store| store.table.load().id == table);
        let flushed = store.map_or(Ok(false), |store| self.flush_and_compact(&store));
        // A table that was quarantined gives back its memory and its part of the log as one that was flushed.
        let flushed = contained(flushed);
        let rest = self.flush_failures().delay(table).filter(|_| flushed.is_err());
        self.flusher().ended(table, rest);
        if let Ok(true) = flushed {
            // There may be more to do than this table could.
            self.flusher().look();
        }
        if flushed.is_err() {
            // Not all who wait for room go on waiting when there will be none.
            self.log().wake_room_waiters();
        }
    }

    /// Queues the tables that are due, those that hold the log's oldest segments if it is short of free ones, and the
    /// largest if memory is short.
    fn enqueue_flushes(&self) {
        let flusher = self.flusher();
        let stores = self.stores();
        // The oldest segments' tables first: they free the log soonest.
        let pressed = self.log().pressure().into_iter().flat_map(|pressure| pressure.tables).map(TableId);
        let due = stores.iter().filter(|store| self.is_due(store)).map(|store| store.table.load().id);
        for table in pressed.chain(due) {
            if !flusher.has(table) {
                flusher.enqueue(table);
            }
        }
        // What is being flushed gives its memory back; only what is above that needs more flushes.
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
            // One whose last flush failed may give nothing back.
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

    /// Answers whether there was anything to flush.
    pub(crate) fn flush_and_compact(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let flushed = self.flush_store(store)?;
        self.request_compaction(store);
        Ok(flushed)
    }

    /// Flushes the tables whose memtables hold most, one after another, until memtables together hold little enough:
    /// for a replay, which cannot continue before that. Waits between the tries of a flush that fails.
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
            result = result.and(self.flush_or_quarantine(&store));
        }
        result
    }

    /// Flushes a table, or finds that it cannot be flushed. Fails where it is not to be quarantined for that.
    fn flush_or_quarantine(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        for _ in 1..flush_failures::TRIES {
            match contained(self.flush_and_compact(store)) {
                Ok(_) => return Ok(()),
                Err(_) => std::thread::sleep(self.flush_failures().delay(store.table.load().id).unwrap_or_default()),
            }
        }
        contained(self.flush_and_compact(store)).map(|_| ())
    }
}

/// The result of a flush, for callers to whom it matters only that memory and log are free again.
pub(crate) fn contained(flushed: Result<bool, EngineError>) -> Result<bool, EngineError> {
    match flushed {
        Err(EngineError::Quarantined { .. }) => Ok(true),
        flushed => flushed,
    }
}

/// What a table's memtables hold, with those whose flush failed.
pub(crate) fn used_bytes(store: &TableStore) -> u64 {
    store.view().generations().map(|generation| generation.memtable.memory().used_bytes).sum()
}
