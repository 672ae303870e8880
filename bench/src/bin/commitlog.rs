//! `bench-commitlog DIRECTORY SECONDS`: the commit log in process, on the disk that holds the directory, beside the
//! costs of the device itself. The program prints one line of JSON per figure. Processor time is that of the whole
//! process.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use blockio::{AlignedBuffer, BLOCK_SIZE, BlockRing, Disk, Durability, Frame, OpenOptions, SystemDisk};
use commitlog::{CommitLog, Durable, LogError, LogHold, LogOptions, LogPosition, PositionInterval, SyncMode};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

const SEGMENT_BYTES: u32 = 32 << 20;
const SEGMENTS: u64 = 4;
const TABLE: Uuid = Uuid::from_u128(1);
const REPLAYED: u64 = 1_000_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(seconds)) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok()))
    else {
        eprintln!("usage: bench-commitlog DIRECTORY SECONDS");
        return ExitCode::from(2);
    };
    let directory = PathBuf::from(directory);
    match all(&directory, Duration::from_secs_f64(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-commitlog: {error}");
            ExitCode::FAILURE
        }
    }
}

fn say(row: &str, figure: &str, value: f64) {
    println!("{{\"row\": \"{row}\", \"figure\": \"{figure}\", \"value\": {value:.2}}}");
}

fn all(directory: &Path, time: Duration) -> Result<(), Failure> {
    SystemDisk::new().create_dir_all(directory)?;
    raw(directory, time)?;
    waking();
    let modes = [
        ("batch", SyncMode::Batch),
        ("each", SyncMode::Each),
        ("group", SyncMode::Group { window: Duration::from_millis(10) }),
        ("periodic", SyncMode::Periodic { period: Duration::from_secs(10) }),
    ];
    for outstanding in [64, 1024] {
        let (operations, cpu) = outstanding_writes(None, 1024, outstanding, time)?;
        let row = format!("off, {outstanding} outstanding of 1 KB");
        say(&row, "operations/s", operations);
        say(&row, "CPU µs/op", cpu);
    }
    for (name, sync) in modes {
        let log = open(directory, sync)?;
        // Fills the log once, so that all blocks are prewritten.
        let mut filled = 0;
        while filled < SEGMENTS * u64::from(SEGMENT_BYTES) {
            append(&log, &[0; 60_000], None)?;
            filled += 60_000;
        }
        log.sync()?;
        if !matches!(sync, SyncMode::Periodic { .. }) {
            one_writer(name, &log, time, false)?;
            if sync == SyncMode::Batch {
                one_writer(name, &log, time, true)?;
            }
        }
        for outstanding in [64, 1024] {
            let before = log.metrics();
            let (operations, cpu) = outstanding_writes(Some(&log), 1024, outstanding, time)?;
            let row = format!("{name}, {outstanding} outstanding of 1 KB");
            let written = log.metrics().completed_tasks - before.completed_tasks;
            say_padding(&row, &log, before.padding_bytes, written);
            say(&row, "operations/s", operations);
            say(&row, "CPU µs/op", cpu);
        }
        if sync == SyncMode::Batch {
            for outstanding in [64, 1024] {
                let (operations, cpu) = waited_for_together(&log, 1024, outstanding, time)?;
                let row = format!("{name}, {outstanding} outstanding of 1 KB, one waiter");
                say(&row, "operations/s", operations);
                say(&row, "CPU µs/op", cpu);
            }
        }
        drop(log);
    }
    replay(directory)
}

fn options(directory: &Path, sync: SyncMode) -> LogOptions {
    LogOptions {
        segment_size_bytes: SEGMENT_BYTES,
        total_space_bytes: SEGMENTS * u64::from(SEGMENT_BYTES),
        sync,
        ..LogOptions::new(directory)
    }
}

fn open(directory: &Path, sync: SyncMode) -> Result<CommitLog, LogError> {
    let (log, mut replay) = CommitLog::open(Arc::new(SystemDisk::new()), options(directory, sync))?;
    while replay.next_record()?.is_some() {}
    log.discard_replayed()?;
    Ok(log)
}

/// Appends, and marks everything as flushed when the log is full.
fn append(log: &CommitLog, data: &[u8], hold: Option<&LogHold>) -> Result<LogPosition, LogError> {
    loop {
        match log.try_append_held(&[TABLE], data, hold) {
            Ok(appended) => return Ok(appended.position),
            Err(LogError::NoFreeSegment) => {
                log.flushed(TABLE, PositionInterval { start: LogPosition::NONE, end: log.position() })?;
                thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Prints how many bytes of padding at the ends of frames each operation wrote.
fn say_padding(row: &str, log: &CommitLog, padding_bytes_before: u64, operations: u64) {
    let padding_bytes = log.metrics().padding_bytes - padding_bytes_before;
    say(row, "padding B/op", padding_bytes as f64 / operations as f64);
}

fn percentiles(row: &str, mut latencies: Vec<Duration>) {
    latencies.sort();
    for (figure, share) in [("p50 µs", 0.5), ("p99 µs", 0.99)] {
        let at = (latencies.len() as f64 * share) as usize;
        say(row, figure, latencies.get(at).map_or(f64::NAN, |latency| latency.as_nanos() as f64 / 1000.0));
    }
}

/// Durable overwrites of prewritten blocks, by one system call each and through a ring.
fn raw(directory: &Path, time: Duration) -> Result<(), Failure> {
    const BLOCKS: u64 = 4096;
    let file = SystemDisk::new().open(&directory.join("raw"), OpenOptions::create().blocks())?;
    let zeros = AlignedBuffer::new(1 << 20);
    for at in (0..BLOCKS * BLOCK_SIZE as u64).step_by(1 << 20) {
        file.write_blocks(zeros.all_blocks(), at, Durability::AtNextSync)?;
    }
    file.sync_data()?;
    // One block, and the sizes of 64 and of 1,024 outstanding writes of 1 KB together.
    for size in [BLOCK_SIZE, 64 << 10, 1 << 20] {
        let places = BLOCKS * BLOCK_SIZE as u64 / size as u64;
        let offset = |number: u64| number % places * size as u64;
        let (start, cpu, mut latencies) = (Instant::now(), cpu_time(), Vec::new());
        while start.elapsed() < time {
            let begun = Instant::now();
            file.write_blocks(zeros.blocks(0..size), offset(latencies.len() as u64), Durability::Durable)?;
            latencies.push(begun.elapsed());
        }
        let row = format!("raw, pwritev2 of {size} B");
        say(&row, "CPU µs/op", (cpu_time() - cpu).as_micros() as f64 / latencies.len() as f64);
        percentiles(&row, latencies);
        for depth in [1, 4] {
            ring(&*file, size, depth, time, &offset)?;
        }
    }
    Ok(())
}

fn ring(
    file: &dyn blockio::File,
    size: usize,
    depth: usize,
    time: Duration,
    offset: &dyn Fn(u64) -> u64,
) -> Result<(), Failure> {
    let mut queue = file.block_queue()?;
    let mut frames: Vec<Frame> = (0..depth).map(|_| frame(size)).collect();
    let mut begun: VecDeque<(u64, Instant)> = VecDeque::new();
    let (start, cpu, mut latencies, mut number) = (Instant::now(), cpu_time(), Vec::new(), 0);
    while start.elapsed() < time || !begun.is_empty() {
        if start.elapsed() < time {
            while let Some(frame) = frames.pop() {
                begun.push_back((offset(number), Instant::now()));
                queue.submit(frame, offset(number), Durability::Durable);
                number += 1;
            }
        }
        queue.wait(None)?;
        while let Some(written) = queue.next_written() {
            written.result?;
            if let Some(at) = begun.iter().position(|(offset, _)| *offset == written.offset) {
                latencies.extend(begun.remove(at).map(|(_, begun)| begun.elapsed()));
            }
            frames.push(written.frame);
        }
    }
    let row = format!("raw, ring of {depth}, {size} B");
    say(&row, "operations/s", latencies.len() as f64 / start.elapsed().as_secs_f64());
    say(&row, "CPU µs/op", (cpu_time() - cpu).as_micros() as f64 / latencies.len() as f64);
    percentiles(&row, latencies);
    Ok(())
}

fn frame(size: usize) -> Frame {
    let ring = Arc::new(BlockRing::new(size));
    drop(ring.reserve(|start| Some(start..start + size as u64)));
    ring.seal(|end| end);
    let batch = ring.take_sealed().and_then(|batch| batch.filled().ok()).expect("a batch that was just filled");
    Arc::new(batch).frame(0..size as u64)
}

/// Half of the time in which a thread wakes another and is woken by it. A durable append of one writer does that twice.
fn waking() {
    const TURNS: u32 = 5000;
    let main = thread::current();
    let other = thread::spawn(move || {
        for _ in 0..TURNS {
            thread::park();
            main.unpark();
        }
    });
    let mut latencies = Vec::new();
    for _ in 0..TURNS {
        // The other thread falls asleep in this time.
        thread::sleep(Duration::from_micros(20));
        let begun = Instant::now();
        other.thread().unpark();
        thread::park_timeout(Duration::from_millis(100));
        latencies.push(begun.elapsed() / 2);
    }
    for _ in 0..TURNS {
        other.thread().unpark();
        if other.is_finished() {
            break;
        }
        thread::sleep(Duration::from_micros(50));
    }
    drop(other);
    percentiles("waking a thread", latencies);
}

/// One writer that waits for each record before it appends the next. The log's thread writes the record, or the writer
/// writes it itself, as a connection of the server does that defers its wake-ups.
fn one_writer(name: &str, log: &CommitLog, time: Duration, writes_itself: bool) -> Result<(), Failure> {
    let hold = writes_itself.then(|| log.hold_wake_ups());
    for size in [100, 1024, 4096] {
        let data = vec![7; size];
        let padding_bytes = log.metrics().padding_bytes;
        let (start, cpu, mut latencies) = (Instant::now(), cpu_time(), Vec::new());
        while start.elapsed() < time {
            let begun = Instant::now();
            let position = append(log, &data, hold.as_ref())?;
            hold.iter().for_each(|hold| drop(hold.write()));
            log.durable(position).wait()?;
            latencies.push(begun.elapsed());
        }
        let row = format!("{name}, 1 writer of {size} B{}", if writes_itself { " itself" } else { "" });
        say_padding(&row, log, padding_bytes, latencies.len() as u64);
        say(&row, "CPU µs/op", (cpu_time() - cpu).as_micros() as f64 / latencies.len() as f64);
        percentiles(&row, latencies);
    }
    Ok(())
}

/// The outstanding writes that were woken.
struct Woken {
    writes: Mutex<Vec<usize>>,
    thread: Thread,
}

struct WakeWrite {
    write: usize,
    woken: Arc<Woken>,
}

impl Wake for WakeWrite {
    fn wake(self: Arc<Self>) {
        let mut writes = self.woken.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(self.write);
        if writes.len() == 1 {
            self.woken.thread.unpark();
        }
    }
}

/// Many writes in flight on one thread, as futures: operations per second and the processor time of each. Without a log
/// each write is complete when it is polled again.
fn outstanding_writes(
    log: Option<&CommitLog>,
    size: usize,
    outstanding: usize,
    time: Duration,
) -> Result<(f64, f64), Failure> {
    let woken = Arc::new(Woken { writes: Mutex::new((0..outstanding).collect()), thread: thread::current() });
    let wakers: Vec<Waker> =
        (0..outstanding).map(|write| Waker::from(Arc::new(WakeWrite { write, woken: Arc::clone(&woken) }))).collect();
    let mut futures: Vec<Option<Durable>> = (0..outstanding).map(|_| None).collect();
    let data = vec![7; size];
    let (start, cpu, mut done) = (Instant::now(), cpu_time(), 0u64);
    let mut ready = Vec::new();
    while start.elapsed() < time {
        std::mem::swap(&mut ready, &mut *woken.writes.lock().unwrap_or_else(PoisonError::into_inner));
        if ready.is_empty() {
            thread::park();
        }
        // Writes that become ready together are passed to the log together, as a connection does. This thread may write
        // them, since it would sleep otherwise.
        let turn = log.map(CommitLog::hold_wake_ups);
        for write in ready.drain(..) {
            let (Some(slot), Some(waker)) = (futures.get_mut(write), wakers.get(write)) else { continue };
            done += 1;
            let Some(log) = log else {
                waker.wake_by_ref();
                continue;
            };
            if let Some(finished) = slot.take() {
                finished.wait()?;
            }
            let mut durable = log.durable(append(log, &data, turn.as_ref())?);
            match Pin::new(&mut durable).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => *slot = Some(durable),
                Poll::Ready(result) => {
                    result?;
                    waker.wake_by_ref();
                }
            }
        }
        turn.iter().for_each(|turn| drop(turn.write()));
    }
    Ok((done as f64 / start.elapsed().as_secs_f64(), (cpu_time() - cpu).as_nanos() as f64 / 1000.0 / done as f64))
}

/// Many writes in flight for which one task waits, as a connection of the server does. The writes of a turn are passed
/// to the log together, and the task waits for the first of them only.
fn waited_for_together(
    log: &CommitLog,
    size: usize,
    outstanding: usize,
    time: Duration,
) -> Result<(f64, f64), Failure> {
    let data = vec![7; size];
    let (start, cpu, mut done) = (Instant::now(), cpu_time(), 0u64);
    let mut under_way = VecDeque::new();
    while start.elapsed() < time {
        let turn = log.hold_wake_ups();
        while under_way.len() < outstanding {
            let wait = log.wait_for(append(log, &data, Some(&turn))?);
            match log.look_at_wait(&wait) {
                Poll::Pending => under_way.push_back(log.place_of_wait(&wait).ok_or("records have no order")?),
                Poll::Ready(result) => {
                    result?;
                    done += 1;
                }
            }
        }
        if let Some(first) = under_way.front() {
            turn.write();
            turn.settled(*first).wait()?;
        }
        while under_way.pop_front_if(|place| turn.is_settled(*place)).is_some() {
            done += 1;
        }
    }
    Ok((done as f64 / start.elapsed().as_secs_f64(), (cpu_time() - cpu).as_nanos() as f64 / 1000.0 / done as f64))
}

/// Reads back a log of records of 100 B.
fn replay(directory: &Path) -> Result<(), Failure> {
    let directory = directory.join("replay");
    let sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    let mut options = options(&directory, sync);
    options.total_space_bytes = 1 << 30;
    let (log, _) = CommitLog::open(Arc::new(SystemDisk::new()), options.clone())?;
    for _ in 0..REPLAYED {
        log.append(&[TABLE], &[7; 100])?;
    }
    drop(log);
    let start = Instant::now();
    let (_log, mut replay) = CommitLog::open(Arc::new(SystemDisk::new()), options)?;
    let mut records = 0;
    while replay.next_record()?.is_some() {
        records += 1;
    }
    if records != REPLAYED {
        return Err(format!("{records} records of {REPLAYED} were replayed").into());
    }
    say("replay of 100 B, the log alone", "operations/s", records as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
