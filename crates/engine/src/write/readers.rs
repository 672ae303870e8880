//! Threads for reads that precede writes and would have to wait for a device.
//!
//! A write that reads first is driven by a connection, on a thread that must not wait. If it needs data that is not in
//! memory, a thread of this pool reads the data. These threads wait for devices alone: a job never takes a lock on a
//! partition.
//!
//! The jobs of each client wait in a queue of their own, and the queues are served in turn. So a client with a thousand
//! reads delays the read of another by one of them. No client has all threads at a time.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use crate::error::EngineError;
use crate::lock::lock;

/// The number of threads. Further reads wait for one.
const THREADS_MAX: usize = 32;
/// The most threads that read for one client at a time.
const THREADS_PER_CLIENT_MAX: usize = THREADS_MAX * 3 / 4;

type Job = Box<dyn FnOnce() + Send>;

/// The threads, which are started when there are jobs for them.
#[derive(Default)]
pub(super) struct Readers(Arc<JobQueue>);

#[derive(Default)]
struct JobQueue {
    state: Mutex<State>,
    has_changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The clients with jobs that wait or run.
    clients: HashMap<u64, ClientJobs>,
    /// The clients with waiting jobs, in the order of their turns.
    turns: VecDeque<u64>,
    /// The number of jobs that wait, of all clients.
    waiting: usize,
    threads: usize,
    idle_threads: usize,
    is_closed: bool,
}

#[derive(Default)]
struct ClientJobs {
    running: usize,
    waiting: VecDeque<Job>,
}

impl State {
    fn push(&mut self, client: u64, job: Job) {
        let jobs = self.clients.entry(client).or_default();
        if jobs.waiting.is_empty() {
            self.turns.push_back(client);
        }
        jobs.waiting.push_back(job);
        self.waiting += 1;
    }

    /// The next job, and the client that it is for.
    fn next(&mut self) -> Option<(u64, Job)> {
        for _ in 0..self.turns.len() {
            let client = self.turns.pop_front()?;
            let jobs = self.clients.get_mut(&client)?;
            let may_run = jobs.running < THREADS_PER_CLIENT_MAX;
            let job = if may_run { jobs.waiting.pop_front() } else { None };
            if !jobs.waiting.is_empty() {
                self.turns.push_back(client);
            }
            if let Some(job) = job {
                jobs.running += 1;
                self.waiting -= 1;
                return Some((client, job));
            }
        }
        None
    }

    /// A job of this client has ended.
    fn finish(&mut self, client: u64) {
        let Some(jobs) = self.clients.get_mut(&client) else { return };
        debug_assert!(jobs.running > 0, "it was running");
        jobs.running -= 1;
        if jobs.running == 0 && jobs.waiting.is_empty() {
            self.clients.remove(&client);
        }
    }

    /// Takes all jobs that wait, so that they are dropped without the lock.
    fn take_waiting(&mut self) -> Vec<Job> {
        self.turns.clear();
        self.waiting = 0;
        self.clients.values_mut().flat_map(|jobs| std::mem::take(&mut jobs.waiting)).collect()
    }
}

impl Readers {
    /// Runs a job for this client on one of the threads. If the future is dropped before a thread begins the job, it is
    /// not run.
    pub async fn run<R: Send + 'static>(
        &self,
        client: u64,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, EngineError> {
        let slot = Arc::new(Slot { state: Mutex::new((JobState::Awaited, None)) });
        let sender = Sender(Arc::clone(&slot));
        let job = Box::new(move || {
            if !sender.has_receiver() {
                return;
            }
            if let Ok(result) = catch_unwind(AssertUnwindSafe(job)) {
                sender.send(result);
            }
        });
        self.0.add(client, job);
        poll_fn(|context| {
            let (outcome, waker) = &mut *lock(&slot.state);
            match std::mem::replace(outcome, JobState::Awaited) {
                JobState::Done(result) => Poll::Ready(Ok(result)),
                JobState::Lost => {
                    Poll::Ready(Err(EngineError::ClosedForWrites("a read before a write was lost".into())))
                }
                JobState::Awaited => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Ends the threads. Jobs that no thread has begun are lost.
    pub fn stop(&self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        let jobs = state.take_waiting();
        drop(state);
        self.0.has_changed.notify_all();
        drop(jobs);
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl JobQueue {
    fn add(self: &Arc<Self>, client: u64, job: Job) {
        let mut state = lock(&self.state);
        if state.is_closed {
            drop(state);
            return drop(job);
        }
        state.push(client, job);
        if state.waiting > state.idle_threads && state.threads < THREADS_MAX {
            let shop = Arc::clone(self);
            // If a thread cannot be started, the others are enough.
            let started = thread::Builder::new().name("write-reader".into()).spawn(move || shop.work());
            state.threads += usize::from(started.is_ok());
            if state.threads == 0 {
                let lost = state.take_waiting();
                drop(state);
                return drop(lost);
            }
        }
        drop(state);
        self.has_changed.notify_one();
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        while !state.is_closed {
            if let Some((client, job)) = state.next() {
                drop(state);
                job();
                state = lock(&self.state);
                state.finish(client);
                continue;
            }
            state.idle_threads += 1;
            state = self.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle_threads -= 1;
        }
        state.threads -= 1;
    }
}

/// The place for the result of a job.
struct Slot<R> {
    state: Mutex<(JobState<R>, Option<Waker>)>,
}

enum JobState<R> {
    Awaited,
    Done(R),
    /// The job was dropped, or it panicked; the panic hook reported that.
    Lost,
}

/// Stores the result. If this is dropped before, the result is lost.
struct Sender<R>(Arc<Slot<R>>);

impl<R> Sender<R> {
    /// Whether the caller still waits for the result.
    fn has_receiver(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn send(&self, result: R) {
        self.put(JobState::Done(result));
    }

    fn put(&self, outcome: JobState<R>) {
        let mut state = lock(&self.0.state);
        state.0 = outcome;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<R> Drop for Sender<R> {
    fn drop(&mut self) {
        let is_awaited = matches!(lock(&self.0.state).0, JobState::Awaited);
        // A result that was taken leaves `Awaited` behind, which is not read again.
        if is_awaited {
            self.put(JobState::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Context;

    use super::*;

    #[test]
    fn jobs_have_results_unless_they_panic_or_the_threads_have_ended() {
        let readers = Readers::default();
        let results: Vec<_> = (0..100).map(|number| crate::block_on(readers.run(0, move || number + 1))).collect();
        assert!(results.into_iter().map(Result::unwrap).eq(1..101));
        let panicked: Result<(), _> = crate::block_on(readers.run(0, || std::panic::resume_unwind(Box::new(()))));
        assert!(panicked.is_err());
        assert_eq!(crate::block_on(readers.run(0, || 5)).unwrap(), 5, "the thread lives on");
        readers.stop();
        assert!(crate::block_on(readers.run(0, || 5)).is_err());
    }

    #[test]
    fn a_job_that_nobody_waits_for_any_more_is_not_run() {
        let (readers, barrier) = (Readers::default(), Arc::new(std::sync::Barrier::new(THREADS_MAX + 1)));
        let began = Arc::new(AtomicUsize::new(0));
        let mut context = Context::from_waker(Waker::noop());
        let mut begin = |client: usize, holds: bool| {
            let (barrier, began) = (Arc::clone(&barrier), Arc::clone(&began));
            let mut job = Box::pin(readers.run(client as u64, move || {
                began.fetch_add(1, Ordering::Relaxed);
                if holds {
                    barrier.wait();
                }
            }));
            assert!(job.as_mut().poll(&mut context).is_pending());
            job
        };
        let held: Vec<_> = (0..THREADS_MAX).map(|client| begin(client, true)).collect();
        let (given_up, awaited) = (begin(0, false), begin(0, false));
        drop(given_up);
        barrier.wait();
        held.into_iter().for_each(|job| crate::block_on(job).unwrap());
        crate::block_on(awaited).unwrap();
        readers.stop();
        assert_eq!(began.load(Ordering::Relaxed), THREADS_MAX + 1, "the one that was given up did not run");
    }

    #[test]
    fn a_client_with_many_jobs_leaves_threads_to_others() {
        let (readers, barrier) = (Readers::default(), Arc::new(std::sync::Barrier::new(THREADS_PER_CLIENT_MAX + 1)));
        let mut context = Context::from_waker(Waker::noop());
        let mut begin = |job: Box<dyn FnOnce() + Send>| {
            let mut running = Box::pin(readers.run(1, job));
            assert!(running.as_mut().poll(&mut context).is_pending());
            running
        };
        let hold = || {
            let barrier = Arc::clone(&barrier);
            Box::new(move || {
                barrier.wait();
            })
        };
        let mut jobs: Vec<_> = (0..THREADS_PER_CLIENT_MAX).map(|_| begin(hold())).collect();
        jobs.extend((0..1_000).map(|_| begin(Box::new(|| ()))));
        assert_eq!(crate::block_on(readers.run(2, || 5)).unwrap(), 5, "while the other client waits for threads");
        assert!(lock(&readers.0.state).waiting >= 1_000);
        barrier.wait();
        jobs.into_iter().for_each(|job| crate::block_on(job).unwrap());
        readers.stop();
    }

    #[test]
    fn clients_have_their_turns() {
        let (mut state, taken) = (State::default(), Arc::new(Mutex::new(Vec::new())));
        for (client, number) in [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4), (3, 5)] {
            let taken = Arc::clone(&taken);
            state.push(client, Box::new(move || lock(&taken).push(number)));
        }
        while let Some((client, job)) = state.next() {
            job();
            state.finish(client);
        }
        assert_eq!(*lock(&taken), [0, 3, 5, 1, 4, 2]);
        assert!(state.clients.is_empty() && state.waiting == 0);
    }

    #[test]
    fn many_jobs_run_at_the_same_time() {
        let readers = Readers::default();
        let barrier = Arc::new(std::sync::Barrier::new(THREADS_MAX));
        thread::scope(|scope| {
            for client in 0..THREADS_MAX as u64 {
                let (readers, barrier) = (&readers, Arc::clone(&barrier));
                scope.spawn(move || crate::block_on(readers.run(client, move || barrier.wait())).unwrap());
            }
        });
        assert_eq!(lock(&readers.0.state).threads, THREADS_MAX);
    }
}
