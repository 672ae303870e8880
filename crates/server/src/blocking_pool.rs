//! Threads for work that may hold its thread for long: scans, reads that wait for a device, schema changes.
//!
//! A pool has a fixed number of threads at most, started when they are needed. Work that finds none free waits. Each
//! connection has a line of its own for that, and the lines take turns, so that a client with a thousand scans delays
//! another client's scan by one of them and not by a thousand. No line has all threads. A line whose client does not
//! read its answers is passed over until it does.
//!
//! The number of those that wait is limited, and work that nobody waits for any more (its client has gone, or was
//! answered with a timeout) is dropped before it begins.

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

/// How much a pool takes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolOptions {
    /// Shown as the name of its threads.
    pub(crate) name: &'static str,
    /// What its threads add to their niceness, so that threads that serve connections come first.
    pub(crate) niceness: i32,
    /// Threads.
    pub(crate) threads_max: usize,
    /// Threads that work for the same line.
    pub(crate) threads_per_line_max: usize,
    /// Work that waits for a thread, of all lines.
    pub(crate) waiting_max: usize,
}

/// See the module's text. Its threads end when it is dropped and their work is done.
pub(crate) struct BlockingPool(Arc<Inner>);

struct Inner {
    options: PoolOptions,
    state: Mutex<State>,
    /// There is work, or the pool has been dropped.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    idle: usize,
    waiting: usize,
    /// Lines with work that waits or runs.
    lines: HashMap<u64, LineState>,
    /// Of the lines with work that waits: whose turn comes first.
    turns: VecDeque<u64>,
    is_closed: bool,
}

struct LineState {
    line: Arc<Line>,
    running: usize,
    jobs: VecDeque<Box<dyn Job>>,
}

/// The pools of a server.
pub(crate) struct Pools {
    /// Reads of many partitions, statements whose text is long, and what needs more of the processor than a turn.
    pub(crate) scans: BlockingPool,
    /// Reads that wait for a device. They hold a thread and hardly a processor.
    pub(crate) devices: BlockingPool,
    /// Schema changes and truncations, which may wait for writes, and each other.
    pub(crate) schema_changes: BlockingPool,
    /// Requests with large values. They wait for the log, and for a processor while they are copied.
    pub(crate) large_writes: BlockingPool,
    /// Traces that are written. Those that find too many waiting are lost, as in Cassandra.
    pub(crate) traces: BlockingPool,
}

impl Pools {
    pub(crate) fn new() -> Arc<Pools> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let waiting_up_to = |waiting_max, name, niceness, threads_max: usize, threads_per_line_max| {
            BlockingPool::new(PoolOptions { name, niceness, threads_max, threads_per_line_max, waiting_max })
        };
        let pool = |name, niceness, threads_max, threads_per_line_max| {
            waiting_up_to(WAITING_MAX, name, niceness, threads_max, threads_per_line_max)
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

    /// Where work is done that needs this.
    pub(crate) fn for_need(&self, need: Need) -> &BlockingPool {
        match need {
            Need::Device => &self.devices,
            Need::Processor => &self.scans,
            Need::Requests => &self.schema_changes,
        }
    }

    /// A line is not clogged any more.
    pub(crate) fn poke(&self) {
        [&self.scans, &self.devices, &self.schema_changes].into_iter().for_each(BlockingPool::poke);
    }
}

/// Scans want a processor most of the time, and a device's answer now and then.
const SCANS_PER_CORE: usize = 2;
const SCANS_MIN: usize = 4;

/// A thread that serves connections gets three times as much of a processor as a scan, if both want it all the time.
const SCAN_NICENESS: i32 = 5;

/// As many as devices answer at a time.
const DEVICE_WAITS_MAX: usize = 64;

const SCHEMA_CHANGES_MAX: usize = 8;

/// As in Cassandra.
const TRACES_WAITING_MAX: usize = 1000;

/// Work that waits for a thread of a pool; what comes beyond that is refused.
const WAITING_MAX: usize = 4096;

/// The work of one connection in all pools.
pub(crate) struct Line {
    pub(crate) pools: Arc<Pools>,
    id: u64,
    /// Its client does not read its answers: nothing is begun for it.
    is_clogged: AtomicBool,
    waiting: AtomicUsize,
}

impl Line {
    pub(crate) fn new(pools: Arc<Pools>) -> Arc<Line> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Line { pools, id, is_clogged: AtomicBool::new(false), waiting: AtomicUsize::new(0) })
    }

    /// How much of its work waits for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether its client reads too slowly for more work to be begun. Says whether that was news; then the pools are to
    /// be [poked](BlockingPool::poke) if it is not so any more.
    pub(crate) fn set_clogged(&self, is_clogged: bool) -> bool {
        self.is_clogged.load(Ordering::Relaxed) != is_clogged
            && self.is_clogged.swap(is_clogged, Ordering::Relaxed) != is_clogged
    }
}

/// The pool has too much to do: the request is to be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overloaded;

/// Work with its way back.
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
        debug_assert!(options.threads_max > 0 && options.threads_per_line_max > 0);
        BlockingPool(Arc::new(Inner { options, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Has work done by a thread of the pool when its line's turn comes; called in a runtime, whose timers and sockets
    /// the work may use. The future is what comes of it, and ends with a panic if the work does. The work is dropped if
    /// the future is dropped before it has begun.
    pub(crate) fn run<F>(
        &self,
        line: &Arc<Line>,
        work: F,
    ) -> Result<impl Future<Output = F::Output> + Send + use<F>, Overloaded>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (outcome, received) = oneshot::channel();
        let job = Work { future: Box::pin(work), runtime: Handle::current(), outcome };
        self.0.enqueue(line, Box::new(job))?;
        Ok(async {
            match received.await {
                Ok(Ok(output)) => output,
                Ok(Err(panic)) => resume_unwind(panic),
                // The process is ending, and all that wait with it.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// A line is not clogged any more.
    pub(crate) fn poke(&self) {
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

    fn enqueue(self: &Arc<Inner>, line: &Arc<Line>, job: Box<dyn Job>) -> Result<(), Overloaded> {
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
        state.push(line, job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn start_thread(self: &Arc<Inner>, state: &mut State) -> std::io::Result<()> {
        let inner = self.clone();
        std::thread::Builder::new().name(self.options.name.into()).spawn(move || {
            blockio::start_later(inner.options.niceness);
            inner.work();
        })?;
        state.threads += 1;
        Ok(())
    }

    /// A thread's life.
    fn work(&self) {
        let mut dropped = Vec::new();
        let mut state = self.lock();
        loop {
            if let Some((id, job)) = state.next(self.options.threads_per_line_max, &mut dropped) {
                drop(state);
                dropped.clear();
                job.run();
                state = self.lock();
                state.finish(id);
                // A line that had all the threads it may have has one fewer now.
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
    fn push(&mut self, line: &Arc<Line>, job: Box<dyn Job>) {
        let state = self.lines.entry(line.id).or_insert_with(|| LineState {
            line: line.clone(),
            running: 0,
            jobs: VecDeque::new(),
        });
        if state.jobs.is_empty() {
            self.turns.push_back(line.id);
        }
        state.jobs.push_back(job);
        line.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting += 1;
    }

    /// The next work to be done, and its line. What nobody waits for any more is put into `dropped`, for the caller to
    /// drop without the lock.
    fn next(&mut self, threads_per_line_max: usize, dropped: &mut Vec<Box<dyn Job>>) -> Option<(u64, Box<dyn Job>)> {
        for _ in 0..self.turns.len() {
            let id = self.turns.pop_front()?;
            let state = self.lines.get_mut(&id)?;
            while state.jobs.front().is_some_and(|job| job.is_abandoned()) {
                dropped.extend(state.jobs.pop_front());
                state.line.waiting.fetch_sub(1, Ordering::Relaxed);
                self.waiting -= 1;
            }
            let may_begin = state.running < threads_per_line_max && !state.line.is_clogged.load(Ordering::Relaxed);
            let job = if may_begin { state.jobs.pop_front() } else { None };
            if job.is_some() {
                state.running += 1;
                state.line.waiting.fetch_sub(1, Ordering::Relaxed);
                self.waiting -= 1;
            }
            if !state.jobs.is_empty() {
                self.turns.push_back(id);
            } else if state.running == 0 {
                self.lines.remove(&id);
            }
            if let Some(job) = job {
                return Some((id, job));
            }
        }
        None
    }

    /// Work of this line has ended.
    fn finish(&mut self, id: u64) {
        let Some(state) = self.lines.get_mut(&id) else { return };
        state.running -= 1;
        if state.running == 0 && state.jobs.is_empty() {
            self.lines.remove(&id);
        }
    }

    fn drop_abandoned(&mut self, dropped: &mut Vec<Box<dyn Job>>) {
        for state in self.lines.values_mut() {
            let (abandoned, kept) = state.jobs.drain(..).partition(|job| job.is_abandoned());
            let abandoned: VecDeque<_> = abandoned;
            state.jobs = kept;
            state.line.waiting.fetch_sub(abandoned.len(), Ordering::Relaxed);
            self.waiting -= abandoned.len();
            dropped.extend(abandoned);
        }
        let lines = &self.lines;
        self.turns.retain(|id| lines.get(id).is_some_and(|state| !state.jobs.is_empty()));
        self.lines.retain(|_, state| state.running > 0 || !state.jobs.is_empty());
    }
}

#[cfg(test)]
mod tests;
