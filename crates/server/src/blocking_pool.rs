//! Threads for work that may hold its thread for long: scans, reads that wait for a device, schema changes.
//!
//! A pool starts threads when they are needed, up to a fixed number. Work that finds no free thread waits in a queue.
//! Each connection has a queue of its own (a [`WorkSource`]), and the pool serves the queues in turn, so that a client
//! with a thousand scans delays another client's scan by one of them and not by a thousand. The work of one source
//! never takes all threads. A source is *paused* while its client does not read its answers; then none of its work
//! begins.
//!
//! The amount of waiting work is limited. Work is dropped before it begins if its client has left, or was answered with
//! a timeout.

use query::Need;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolOptions {
    /// Shown as the name of its threads.
    pub(crate) name: &'static str,
    /// The amount that its threads add to their niceness, so that threads that serve connections come first.
    pub(crate) niceness: i32,
    /// The most threads.
    pub(crate) threads_max: usize,
    /// The most threads that work for the same source at a time.
    pub(crate) threads_per_source_max: usize,
    /// The most pieces of work, of all sources together, that wait for a thread.
    pub(crate) waiting_max: usize,
}

/// A pool of threads, as the module's text describes it. When it is dropped, its threads end after their current work.
pub(crate) struct BlockingPool(Arc<Inner>);

struct Inner {
    options: PoolOptions,
    state: Mutex<State>,
    /// Notified when there is work, or when the pool has been dropped.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    idle: usize,
    waiting: usize,
    /// Sources with work that waits or runs.
    sources: HashMap<u64, SourceState>,
    /// The sources with waiting work, in the order of their turns.
    turns: VecDeque<u64>,
    is_closed: bool,
}

struct SourceState {
    source: Arc<WorkSource>,
    running: usize,
    jobs: VecDeque<Box<dyn Job>>,
}

/// The pools of a server.
pub(crate) struct Pools {
    /// Reads of many partitions, statements whose text is long, and all work that needs more processor time than a turn
    /// of a connection has.
    pub(crate) scans: BlockingPool,
    /// Reads that wait for a device. They occupy a thread, but hardly any processor time.
    pub(crate) devices: BlockingPool,
    /// Schema changes and truncations, which may wait for writes and for one another.
    pub(crate) schema_changes: BlockingPool,
    /// Requests with large values. They wait for the log, and for a processor while they are copied.
    pub(crate) large_writes: BlockingPool,
    /// Writes of traces. If too many wait already, further traces are lost, as in Cassandra.
    pub(crate) traces: BlockingPool,
}

impl Pools {
    pub(crate) fn new() -> Arc<Pools> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let waiting_up_to = |waiting_max, name, niceness, threads_max: usize, threads_per_source_max| {
            BlockingPool::new(PoolOptions { name, niceness, threads_max, threads_per_source_max, waiting_max })
        };
        let pool = |name, niceness, threads_max, threads_per_source_max| {
            waiting_up_to(WAITING_MAX, name, niceness, threads_max, threads_per_source_max)
        };
        let scans = (SCANS_PER_CORE * cores).max(SCANS_MIN);
        // Each of them holds several copies of its values.
        let large_writes = cores.max(2);
        Arc::new(Pools {
            scans: pool("scan", SCAN_NICENESS, scans, scans - 1),
            devices: pool("device-wait", 0, DEVICE_WAITS_MAX, DEVICE_WAITS_MAX * 3 / 4),
            schema_changes: pool("schema-change", SCAN_NICENESS, SCHEMA_CHANGES_MAX, SCHEMA_CHANGES_MAX - 1),
            large_writes: pool("large-write", SCAN_NICENESS, large_writes, large_writes - 1),
            traces: waiting_up_to(TRACES_WAITING_MAX, "trace", SCAN_NICENESS, 1, 1),
        })
    }

    /// The pool for work with this need.
    pub(crate) fn for_need(&self, need: Need) -> &BlockingPool {
        match need {
            Need::Device => &self.devices,
            Need::Processor => &self.scans,
            Need::Requests => &self.schema_changes,
        }
    }

    /// Wakes threads for the waiting work of a source that is no longer paused.
    pub(crate) fn wake(&self) {
        let Pools { scans, devices, schema_changes, large_writes, traces } = self;
        [scans, devices, schema_changes, large_writes, traces].into_iter().for_each(BlockingPool::wake);
    }
}

/// Scans use a processor most of the time, and wait for a device now and then.
const SCANS_PER_CORE: usize = 2;
const SCANS_MIN: usize = 4;

/// A thread that serves connections gets three times as much processor time as a scan if both always have work.
const SCAN_NICENESS: i32 = 5;

/// The number of reads that devices typically serve at a time.
const DEVICE_WAITS_MAX: usize = 64;

const SCHEMA_CHANGES_MAX: usize = 8;

/// As in Cassandra.
const TRACES_WAITING_MAX: usize = 1000;

/// The most pieces of work that wait for a thread of a pool; further work is refused.
const WAITING_MAX: usize = 4096;

/// The work of one connection in all pools.
pub(crate) struct WorkSource {
    pub(crate) pools: Arc<Pools>,
    id: u64,
    /// Whether its client does not read its answers; then none of its work begins.
    is_paused: AtomicBool,
    waiting: AtomicUsize,
}

impl WorkSource {
    pub(crate) fn new(pools: Arc<Pools>) -> Arc<WorkSource> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        let id = 1 + LAST_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(WorkSource { pools, id, is_paused: AtomicBool::new(false), waiting: AtomicUsize::new(0) })
    }

    /// The number of its connection, from 1.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number of its pieces of work that wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sets whether its client reads too slowly for more work to begin. Returns whether this changed. If the source is
    /// no longer paused, the caller must [wake](BlockingPool::wake) the pools.
    pub(crate) fn set_paused(&self, is_paused: bool) -> bool {
        self.is_paused.load(Ordering::Relaxed) != is_paused
            && self.is_paused.swap(is_paused, Ordering::Relaxed) != is_paused
    }
}

/// Too much work waits for the pool, so the request must be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overloaded;

/// A piece of work, with the channel for its result.
trait Job: Send {
    fn is_abandoned(&self) -> bool;
    fn run(self: Box<Self>);
}

struct Work<F: Future> {
    future: Pin<Box<F>>,
    runtime: Handle,
    outcome: oneshot::Sender<Result<F::Output, Box<dyn Any + Send>>>,
}

impl<F: Future + Send> Job for Work<F>
where
    F::Output: Send,
{
    fn is_abandoned(&self) -> bool {
        self.outcome.is_closed()
    }

    fn run(self: Box<Self>) {
        let Work { future, runtime, outcome } = *self;
        let _ = outcome.send(catch_unwind(AssertUnwindSafe(|| runtime.block_on(future))));
    }
}

impl BlockingPool {
    pub(crate) fn new(options: PoolOptions) -> BlockingPool {
        debug_assert!(options.threads_max > 0 && options.threads_per_source_max > 0);
        BlockingPool(Arc::new(Inner { options, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Runs work on a thread of the pool when its source's turn comes. Call it in a runtime, whose timers and sockets
    /// the work may use. The future resolves to the result of the work, and panics if the work panics. If the future is
    /// dropped before the work has begun, the work is dropped too.
    pub(crate) fn run<F>(
        &self,
        source: &Arc<WorkSource>,
        work: F,
    ) -> Result<impl Future<Output = F::Output> + Send + use<F>, Overloaded>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (outcome, received) = oneshot::channel();
        let job = Work { future: Box::pin(work), runtime: Handle::current(), outcome };
        self.0.enqueue(source, Box::new(job))?;
        Ok(async {
            match received.await {
                Ok(Ok(output)) => output,
                Ok(Err(panic)) => resume_unwind(panic),
                // The work was dropped, which only happens when the process ends. Nothing waits for its result then.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Wakes threads for the waiting work of a source that is no longer paused.
    pub(crate) fn wake(&self) {
        if self.0.lock().waiting > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(self: &Arc<Inner>, source: &Arc<WorkSource>, job: Box<dyn Job>) -> Result<(), Overloaded> {
        let mut dropped = Vec::new();
        let mut state = self.lock();
        if state.waiting >= self.options.waiting_max {
            state.drop_abandoned(&mut dropped);
        }
        let needs_thread = state.idle == 0 && state.threads < self.options.threads_max;
        let is_full = state.waiting >= self.options.waiting_max;
        if is_full || (needs_thread && self.start_thread(&mut state).is_err() && state.threads == 0) {
            return Err(Overloaded);
        }
        state.push(source, job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn start_thread(self: &Arc<Inner>, state: &mut State) -> std::io::Result<()> {
        let inner = self.clone();
        std::thread::Builder::new().name(self.options.name.into()).spawn(move || {
            blockio::add_niceness(inner.options.niceness);
            inner.work();
        })?;
        state.threads += 1;
        Ok(())
    }

    /// The loop of a thread: runs work until the pool is closed and has none left.
    fn work(&self) {
        let mut dropped = Vec::new();
        let mut state = self.lock();
        loop {
            if let Some((id, job)) = state.next(self.options.threads_per_source_max, &mut dropped) {
                drop(state);
                dropped.clear();
                job.run();
                state = self.lock();
                state.finish(id);
                // The source may have had all the threads that it may have; now another of its works may begin.
                if state.waiting > 0 && state.idle > 0 {
                    self.changed.notify_one();
                }
            } else if !dropped.is_empty() {
                drop(state);
                dropped.clear();
                state = self.lock();
            } else if state.is_closed {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl State {
    fn push(&mut self, source: &Arc<WorkSource>, job: Box<dyn Job>) {
        let state = self.sources.entry(source.id).or_insert_with(|| SourceState {
            source: source.clone(),
            running: 0,
            jobs: VecDeque::new(),
        });
        if state.jobs.is_empty() {
            self.turns.push_back(source.id);
        }
        state.jobs.push_back(job);
        source.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting += 1;
    }

    /// The next work to run, and the id of its source. Abandoned work is moved to `dropped`, so that the caller drops
    /// it without holding the lock.
    fn next(&mut self, threads_per_source_max: usize, dropped: &mut Vec<Box<dyn Job>>) -> Option<(u64, Box<dyn Job>)> {
        for _ in 0..self.turns.len() {
            let id = self.turns.pop_front()?;
            let state = self.sources.get_mut(&id)?;
            while state.jobs.front().is_some_and(|job| job.is_abandoned()) {
                dropped.extend(state.jobs.pop_front());
                state.source.waiting.fetch_sub(1, Ordering::Relaxed);
                self.waiting -= 1;
            }
            let may_begin = state.running < threads_per_source_max && !state.source.is_paused.load(Ordering::Relaxed);
            let job = if may_begin { state.jobs.pop_front() } else { None };
            if job.is_some() {
                state.running += 1;
                state.source.waiting.fetch_sub(1, Ordering::Relaxed);
                self.waiting -= 1;
            }
            if !state.jobs.is_empty() {
                self.turns.push_back(id);
            } else if state.running == 0 {
                self.sources.remove(&id);
            }
            if let Some(job) = job {
                return Some((id, job));
            }
        }
        None
    }

    /// Records that work of this source has ended.
    fn finish(&mut self, id: u64) {
        let Some(state) = self.sources.get_mut(&id) else { return };
        state.running -= 1;
        if state.running == 0 && state.jobs.is_empty() {
            self.sources.remove(&id);
        }
    }

    fn drop_abandoned(&mut self, dropped: &mut Vec<Box<dyn Job>>) {
        for state in self.sources.values_mut() {
            let (abandoned, kept) = state.jobs.drain(..).partition(|job| job.is_abandoned());
            let abandoned: VecDeque<_> = abandoned;
            state.jobs = kept;
            state.source.waiting.fetch_sub(abandoned.len(), Ordering::Relaxed);
            self.waiting -= abandoned.len();
            dropped.extend(abandoned);
        }
        let sources = &self.sources;
        self.turns.retain(|id| sources.get(id).is_some_and(|state| !state.jobs.is_empty()));
        self.sources.retain(|_, state| state.running > 0 || !state.jobs.is_empty());
    }
}

#[cfg(test)]
mod tests;
