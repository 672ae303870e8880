//! The threads that flush in the background, and their queue of tables.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::TableId;

use super::{Flush, TimeLimit};
use crate::compaction::Compaction;
use crate::error::EngineError;
use crate::lock::lock;
use crate::quarantine::{Quarantine, TRIES};
use crate::shared::Shared;
use crate::table::TableStore;
use crate::worker::Worker;

/// The requests to the threads.
#[derive(Default)]
pub(crate) struct Queue {
    requests: Mutex<Requests>,
    changed: Condvar,
}

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
    is_examined: bool,
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

impl Flush {
    /// Creates it with the number of threads in the options (`memtable_flush_writers`). The queue is created before the
    /// log, which calls its pressure hook.
    pub fn new(
        shared: &Arc<Shared>,
        compaction: &Arc<Compaction>,
        quarantine: &Arc<Quarantine>,
        queue: Arc<Queue>,
    ) -> Self {
        let threads = shared.options().memtable_flush_writers.max(1);
        let (shared, compaction, quarantine) = (Arc::clone(shared), Arc::clone(compaction), Arc::clone(quarantine));
        let workers = (0..threads).map(|_| Worker::new()).collect();
        Flush { shared, compaction, quarantine, queue, workers, limit: TimeLimit::default() }
    }

    /// Starts the threads; they end with the component.
    pub fn start(self: &Arc<Self>) -> Result<(), EngineError> {
        self.workers.iter().try_for_each(|worker| {
            let queue = self.queue.clone();
            worker.start("flusher", self, move |flush| run(&flush, &queue))
        })
    }

    /// Ends the threads after their current work.
    pub fn stop(&self) {
        self.queue.stop();
        self.workers.iter().for_each(Worker::join);
    }
}

impl Queue {
    fn stop(&self) {
        lock(&self.requests).stopped = true;
        self.changed.notify_all();
    }

    /// The hook that the log calls when it has few free segments. It wakes a thread, which asks the log for the tables
    /// to flush.
    pub fn pressure_hook(self: &Arc<Self>) -> Arc<dyn Fn() + Send + Sync> {
        let queue = self.clone();
        Arc::new(move || {
            lock(&queue.requests).cleanup = true;
            queue.changed.notify_one();
        })
    }

    fn stats(&self) -> FlushStats {
        let requests = lock(&self.requests);
        FlushStats { pending: requests.waiting.len(), active: requests.active.len(), completed: requests.completed }
    }

    /// Whether the table is being flushed or will be, unless it waits because its last flush failed.
    fn has(&self, table: TableId) -> bool {
        let requests = lock(&self.requests);
        let is_waiting = requests.waiting.contains(&table) && !requests.resting.contains_key(&table);
        is_waiting || requests.active.contains(&table)
    }

    fn enqueue(&self, table: TableId) {
        let mut requests = lock(&self.requests);
        if !requests.waiting.contains(&table) {
            requests.waiting.push_back(table);
            self.changed.notify_one();
        }
    }

    /// Makes a thread examine which tables should be flushed, unless that was done and the flushes are running.
    fn request_examination(&self) {
        let mut requests = lock(&self.requests);
        if !requests.is_examined {
            requests.cleanup = true;
            self.changed.notify_one();
        }
    }

    fn note_examined(&self) {
        let mut requests = lock(&self.requests);
        requests.is_examined = !requests.waiting.is_empty() || !requests.active.is_empty();
    }

    /// Records that a flush has ended. If it failed, the table is not retried before `rest` is over.
    fn ended(&self, table: TableId, rest: Option<Duration>) {
        let mut requests = lock(&self.requests);
        requests.active.remove(&table);
        if let Some(rest) = rest {
            requests.resting.insert(table, Instant::now() + rest);
        }
        requests.completed += 1;
        requests.is_examined = false;
        // The table may have been requested again, and be free only now.
        self.changed.notify_one();
    }
}

impl Drop for Flush {
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
fn next_task(Queue { requests, changed }: &Queue) -> Option<Task> {
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

fn run(flush: &Weak<Flush>, queue: &Queue) {
    while let Some(task) = next_task(queue) {
        let Some(flush) = flush.upgrade() else {
            return;
        };
        match task {
            Task::Look => flush.enqueue_flushes(),
            Task::Flush(table) => flush.flush_in_background(table),
        }
    }
}

impl Flush {
    /// Requests a flush of one table.
    pub fn request(&self, store: &TableStore) {
        self.queue.enqueue(store.table.load().id);
    }

    /// Requests flushes of the tables that use most memory, or that keep segments of the log in use.
    pub fn request_cleanup(&self) {
        self.queue.request_examination();
    }

    /// The figures of the queue.
    pub fn stats(&self) -> FlushStats {
        self.queue.stats()
    }

    /// A failed flush keeps its memtable. It is retried after a delay ([`crate::quarantine`]) without a further
    /// request, because writers may be waiting for it. `last_flush_failure` gives the reason.
    fn flush_in_background(&self, table: TableId) {
        let store = self.shared.catalog().any_store(table).cloned();
        let flushed = store.map_or(Ok(false), |store| self.flush_and_compact(&store));
        // A quarantined table frees its memory and its part of the log like a flushed one.
        let flushed = contained(flushed);
        let rest = self.quarantine.flush_failures().delay(table).filter(|_| flushed.is_err());
        self.queue.ended(table, rest);
        if let Ok(true) = flushed {
            // There may be more work than this table could do.
            self.queue.request_examination();
        }
        if flushed.is_err() {
            // Some of the writers that wait for room must be woken, because there will be none.
            self.shared.log().wake_space_waiters();
        }
    }

    /// Queues the tables that are due, those that hold the log's oldest segments if it is short of free ones, and the
    /// largest if memory is short.
    fn enqueue_flushes(&self) {
        let queue = &self.queue;
        let stores = self.shared.stores();
        // The tables of the oldest segments come first, because their flushes free the log soonest.
        let pressed = self.shared.log().pressure().into_iter().flat_map(|pressure| pressure.tables).map(TableId);
        let due = stores.iter().filter(|store| self.is_due(store)).map(|store| store.table.load().id);
        for table in pressed.chain(due) {
            if !queue.has(table) {
                queue.enqueue(table);
            }
        }
        // Running flushes will free their memory. Only the rest requires more flushes.
        let (mut largest, flushing): (Vec<_>, Vec<_>) = stores
            .iter()
            .map(|store| (store.used_bytes(), store.table.load().id))
            .partition(|(_, table)| !queue.has(*table));
        let mut freed: u64 = flushing.iter().map(|(bytes, _)| bytes).sum();
        largest.sort_by_key(|(bytes, _)| Reverse(*bytes));
        for (bytes, table) in largest {
            if !self.shared.pool().wants_flush_without(freed) {
                break;
            }
            queue.enqueue(table);
            // A table whose last flush failed may free nothing.
            freed += if self.quarantine.flush_failures().delay(table).is_none() { bytes } else { 0 };
        }
        queue.note_examined();
    }

    /// Whether the table's `memtable_flush_period_in_ms` has passed.
    fn is_due(&self, store: &TableStore) -> bool {
        let period = i64::from(store.table.load().options.memtable_flush_period_in_ms);
        let active = store.view().active.clone();
        period > 0 && !active.memtable.is_empty() && self.shared.now_millis() - active.created_millis >= period
    }

    /// Flushes every table. Returns those that could not be flushed, with the errors.
    ///
    /// Tables whose content is not in the log come first, and then the largest, so that a flush that runs out of time
    /// leaves little to replay. A small flush mostly waits for the device, so several run at a time.
    pub fn flush_each(&self) -> Vec<(Arc<TableStore>, EngineError)> {
        let mut stores = self.shared.stores();
        stores.sort_by_cached_key(|store| (store.is_all_logged(), Reverse(store.used_bytes())));
        let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let flush_some = || {
            while let Some(store) = stores.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.flush_store(store) {
                    lock(&failures).push((store.clone(), error));
                }
            }
        };
        std::thread::scope(|scope| {
            let others = (1..self.workers.len()).map(|_| std::thread::Builder::new().spawn_scoped(scope, flush_some));
            // Without further threads, this one does all of it.
            let _others: Vec<_> = others.take_while(Result::is_ok).collect();
            flush_some();
        });
        failures.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which remaining flushes of logged data are given up.
    pub fn end_at(&self, time: Instant) {
        self.limit.set(time);
    }

    /// Requests a flush of the largest memtable if memtables use more memory than they should.
    pub fn request_if_wanted(&self) {
        if self.shared.pool().wants_flush() {
            self.request_cleanup();
        }
    }

    /// Repeats `attempt` until the log has room for it. If no segment is free, only flushes make room: if one of them
    /// fails, this fails too.
    pub fn retry_while_full(&self, mut attempt: impl FnMut() -> Result<bool, EngineError>) -> Result<(), EngineError> {
        loop {
            let space_freed = self.shared.log().space_freed();
            if attempt()? {
                return Ok(());
            }
            if let Some(failure) = self.quarantine.flush_failures().any().filter(|_| self.shared.is_log_full()) {
                return Err(failure);
            }
            self.request_cleanup();
            crate::block_on(space_freed);
        }
    }

    /// Flushes and then requests a compaction. Returns whether there was anything to flush.
    pub fn flush_and_compact(&self, store: &Arc<TableStore>) -> Result<bool, EngineError> {
        let flushed = self.flush_store(store)?;
        self.compaction.request(store);
        Ok(flushed)
    }

    /// Flushes the tables with the largest memtables, one after another, until memtables together are small enough. A
    /// replay needs this before it can continue. Waits between the attempts of a failing flush.
    pub fn flush_largest(&self) -> Result<(), EngineError> {
        if !self.shared.pool().wants_flush() {
            return Ok(());
        }
        let mut result = Ok(());
        let mut stores = self.shared.stores();
        // The sizes are read once, because they change meanwhile.
        stores.sort_by_cached_key(|store| Reverse(store.used_bytes()));
        for store in stores {
            if !self.shared.pool().wants_flush() {
                break;
            }
            result = result.and(self.flush_or_quarantine(&store));
        }
        result
    }

    /// Flushes a table, or finds that it cannot be flushed. Fails if the table must not be quarantined for that.
    fn flush_or_quarantine(&self, store: &Arc<TableStore>) -> Result<(), EngineError> {
        for _ in 1..TRIES {
            match contained(self.flush_and_compact(store)) {
                Ok(_) => return Ok(()),
                Err(_) => std::thread::sleep(
                    self.quarantine.flush_failures().delay(store.table.load().id).unwrap_or_default(),
                ),
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
