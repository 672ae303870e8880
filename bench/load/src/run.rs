//! The run: workers, the schedule, the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::measure::{Moment, Report, Sample, latencies};
use crate::process::figures;
use crate::session::Client;
use crate::spec::Spec;
use crate::workload::{Own, Worker};

const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// A run stops after this many failures.
const FAILURES_MAX: u64 = 1_000;
const FAILURE_TEXTS_MAX: usize = 5;

/// What all workers share.
struct Shared {
    client: Client,
    started: Instant,
    warmup: Duration,
    measured: Duration,
    stop: AtomicBool,
    done: AtomicU64,
    failures: AtomicU64,
    /// The number of operations that were handed out, which is also the position in the schedule of an open loop.
    taken: AtomicU64,
    pace: Option<Pace>,
}

/// The schedule of an open loop.
struct Pace {
    interval_seconds: f64,
    due: Semaphore,
    workers: usize,
}

/// The results of one worker.
#[derive(Default)]
struct Outcomes {
    /// Tenths of microseconds.
    reads: Vec<u32>,
    writes: Vec<u32>,
    failure_texts: Vec<String>,
}

pub async fn run(spec: Spec) -> Result<Report, String> {
    let client = Client::connect(&spec).await?;
    let mut workers = Vec::with_capacity(spec.in_flight);
    for place in 0..spec.in_flight {
        workers.push(Worker::new(&client, &spec, place as u64).await?);
    }
    let shared = Arc::new(Shared {
        client,
        started: Instant::now(),
        warmup: Duration::from_secs_f64(spec.warmup_seconds),
        measured: if spec.operations.is_some() {
            Duration::from_secs(86_400)
        } else {
            Duration::from_secs_f64(spec.seconds)
        },
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        pace: spec.rate.map(|rate| Pace {
            interval_seconds: 1.0 / rate,
            due: Semaphore::new(0),
            workers: spec.in_flight,
        }),
    });
    let dispatcher = spec.rate.map(|_| on_a_thread(&shared, dispatch));
    let (server_pid, ours) = (spec.server_pid, std::process::id());
    let sampler = on_a_thread(&shared, move |shared| sample(shared, server_pid, ours));
    let tasks: Vec<_> = workers
        .into_iter()
        .enumerate()
        .map(|(place, worker)| tokio::spawn(work(Arc::clone(&shared), worker, share(&spec, place as u64))))
        .collect();
    let mut workers = Vec::with_capacity(tasks.len());
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        let (worker, one) = task.await.map_err(|error| error.to_string())?;
        workers.push(worker);
        outcomes.push(one);
    }
    shared.stop.store(true, Ordering::Release);
    dispatcher.map(thread::JoinHandle::join);
    let sampled = sampler.join().map_err(|_| "the sampler ended early")?;
    let checked = check(&shared, workers, &mut outcomes, spec.check).await;
    Ok(report(&shared, &outcomes, sampled, checked))
}

fn on_a_thread<T: Send + 'static>(
    shared: &Arc<Shared>,
    what: impl FnOnce(&Shared) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || what(&shared))
}

/// The number of operations of worker `place` in a load that is limited by operations. The shares are such that inserts
/// leave no gap.
fn share(spec: &Spec, place: u64) -> u64 {
    spec.operations.map_or(u64::MAX, |operations| Own { place, workers: spec.in_flight as u64 }.count(operations))
}

/// Runs one worker. An operation counts if its intended start lies in the measured time, however late it ends: the
/// operations that a stall at the end delays count with their whole waiting time.
async fn work(shared: Arc<Shared>, mut worker: Worker, share: u64) -> (Worker, Outcomes) {
    let mut outcomes = Outcomes::default();
    let from = shared.started + shared.warmup;
    for _ in 0..share {
        let Some(intended) = shared.next_start().await else { break };
        let outcome = worker.operate(&shared.client).await;
        match outcome {
            Ok(read) if intended >= from => {
                let tenths = u32::try_from(intended.elapsed().as_nanos() / 100).unwrap_or(u32::MAX);
                if read { outcomes.reads.push(tenths) } else { outcomes.writes.push(tenths) }
            }
            Ok(_) => {}
            Err(text) => shared.failed(&mut outcomes, text),
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    (worker, outcomes)
}

impl Shared {
    /// Waits until the next operation may start, and returns its intended start. Returns None when no operation is
    /// left.
    async fn next_start(&self) -> Option<Instant> {
        let intended = match &self.pace {
            Some(pace) => {
                pace.due.acquire().await.ok()?.forget();
                let place = self.taken.fetch_add(1, Ordering::Relaxed);
                self.started + Duration::from_secs_f64(place as f64 * pace.interval_seconds)
            }
            None => Instant::now(),
        };
        let until = self.started + self.warmup + self.measured;
        (intended < until && !self.stop.load(Ordering::Acquire)).then_some(intended)
    }

    fn failed(&self, outcomes: &mut Outcomes, text: String) {
        if outcomes.failure_texts.len() < FAILURE_TEXTS_MAX {
            outcomes.failure_texts.push(text);
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) >= FAILURES_MAX {
            self.stop.store(true, Ordering::Release);
        }
    }
}

/// Releases operations as they fall due. It has a thread of its own, because the runtime's timers only know
/// milliseconds. This thread and the runtime's threads ask for short slices of the processor, so that an operation
/// waits for the server and not for another thread of the client.
fn dispatch(shared: &Shared) {
    let Some(pace) = &shared.pace else { return };
    blockio::request_short_slices();
    let end = shared.warmup + shared.measured;
    let mut released = 0;
    loop {
        let elapsed = shared.started.elapsed();
        let ends = elapsed >= end || shared.stop.load(Ordering::Acquire);
        let due = (elapsed.min(end).as_secs_f64() / pace.interval_seconds) as u64 + 1;
        pace.due.add_permits((due - released) as usize);
        released = due;
        if ends {
            // Operations that are due are still carried out. One more permit for each worker says that no operation
            // follows.
            pace.due.add_permits(pace.workers);
            return;
        }
        let next = Duration::from_secs_f64(due as f64 * pace.interval_seconds).saturating_sub(shared.started.elapsed());
        thread::sleep(next.max(Duration::from_micros(30)));
    }
}

/// The sampler's figures: at both ends of the measured time, and in between.
struct Sampled {
    first: Moment,
    last: Moment,
    seconds: f64,
    operations: u64,
    samples: Vec<Sample>,
}

fn sample(shared: &Shared, server_pid: u32, client_pid: u32) -> Sampled {
    let moment = || Moment { server: figures(server_pid), client: figures(client_pid) };
    let from = shared.started + shared.warmup;
    let until = from + shared.measured;
    let mut samples = Vec::new();
    let mut note = |moment: Moment| {
        samples.push(Sample {
            seconds: shared.started.elapsed().as_secs_f64() - shared.warmup.as_secs_f64(),
            operations: shared.done.load(Ordering::Relaxed),
            server_cpu_seconds: moment.server.cpu_seconds(),
            server_resident_bytes: moment.server.resident_bytes,
        });
    };
    let wait_until = |moment: Instant| {
        while Instant::now() < moment && !shared.stop.load(Ordering::Acquire) {
            thread::sleep(moment.saturating_duration_since(Instant::now()).min(Duration::from_millis(5)));
        }
    };
    wait_until(from);
    let (first, first_done, first_time) = (moment(), shared.done.load(Ordering::Relaxed), Instant::now());
    note(first);
    let mut last;
    loop {
        wait_until((Instant::now() + SAMPLE_EVERY).min(until));
        last = moment();
        note(last);
        if Instant::now() >= until || shared.stop.load(Ordering::Acquire) {
            break;
        }
    }
    let operations = shared.done.load(Ordering::Relaxed) - first_done;
    Sampled { first, last, seconds: first_time.elapsed().as_secs_f64(), operations, samples }
}

/// Reads back what was written, with all workers at once.
async fn check(shared: &Arc<Shared>, workers: Vec<Worker>, outcomes: &mut [Outcomes], limit: usize) -> usize {
    let each = limit.div_ceil(workers.len().max(1));
    let tasks: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let shared = Arc::clone(shared);
            tokio::spawn(async move { worker.check(&shared.client, each).await })
        })
        .collect();
    let mut checked = 0;
    for (task, outcomes) in tasks.into_iter().zip(outcomes) {
        match task.await {
            Ok(Ok(count)) => checked += count,
            Ok(Err(text)) => shared.failed(outcomes, text),
            Err(error) => shared.failed(outcomes, error.to_string()),
        }
    }
    checked
}

fn report(shared: &Shared, outcomes: &[Outcomes], sampled: Sampled, checked: usize) -> Report {
    let reads: Vec<&[u32]> = outcomes.iter().map(|one| one.reads.as_slice()).collect();
    let writes: Vec<&[u32]> = outcomes.iter().map(|one| one.writes.as_slice()).collect();
    let count = |parts: &[&[u32]]| parts.iter().map(|part| part.len() as u64).sum();
    let (first, last) = (sampled.first, sampled.last);
    Report {
        seconds: sampled.seconds,
        operations: sampled.operations,
        reads: count(&reads),
        writes: count(&writes),
        failures: shared.failures.load(Ordering::Relaxed),
        timeouts: shared.client.timeouts(),
        recall: shared.client.recall(),
        failure_texts: outcomes
            .iter()
            .flat_map(|one| one.failure_texts.iter().cloned())
            .take(FAILURE_TEXTS_MAX)
            .collect(),
        checked,
        server_cpu_seconds: last.server.cpu_seconds() - first.server.cpu_seconds(),
        server_system_seconds: last.server.system_seconds - first.server.system_seconds,
        client_cpu_seconds: last.client.cpu_seconds() - first.client.cpu_seconds(),
        server_resident_bytes: last.server.resident_bytes,
        server_written_bytes: last.server.written_bytes.saturating_sub(first.server.written_bytes),
        latency: latencies(&[reads.as_slice(), writes.as_slice()].concat()),
        read_latency: latencies(&reads),
        write_latency: latencies(&writes),
        samples: sampled.samples,
    }
}
