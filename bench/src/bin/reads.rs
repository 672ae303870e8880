//! `bench-reads PARTITIONS SECONDS DIRECTORY [WHAT...]`: reads of SSTables that are in the cache, through a server in
//! this process. It measures what the second half of `tables` measures, without drivers and without Cassandra. The
//! program prints one line of JSON per figure: the processor time of the process less the client's, per read. `WHAT` is
//! `points`, `row`, `forward`, `reversed`, or `memory` for points that no SSTable has; without it all of them run.
//! `DIRECTORY` is written if it does not exist (PARTITIONS partitions in four SSTables, and one partition of a tenth as
//! many rows), and is kept for `perf` and callgrind.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::{WireClient, mix, partition_key};
use blockio::SystemDisk;
use engine::{Engine, EngineOptions};
use query::{Processor, ProcessorOptions};
use rustix::time::{ClockId, clock_gettime};
use server::{Listener, Server, ServerOptions};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

const TABLES: u64 = 4;
const VALUE_BYTES: usize = 100;
const ROWS_READ: usize = 20;
/// The number of requests that are sent at once.
const BATCH: u64 = 32;
const CACHE_BYTES: u64 = 2 << 30;
const KINDS: [&str; 5] = ["memory", "points", "row", "forward", "reversed"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [partitions, seconds, directory, kinds @ ..] = arguments.as_slice() else { return usage() };
    let (Ok(partitions), Ok(seconds)) = (partitions.parse(), seconds.parse()) else { return usage() };
    let named = |kind: &&&str| kinds.is_empty() || kinds.iter().any(|named| named == **kind);
    let kinds: Vec<&str> = KINDS.iter().filter(named).copied().collect();
    match run(Path::new(directory), partitions, Duration::from_secs_f64(seconds), &kinds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: bench-reads PARTITIONS SECONDS DIRECTORY [{}]...", KINDS.join("|"));
    ExitCode::from(2)
}

fn run(directory: &Path, partitions: u64, length: Duration, kinds: &[&str]) -> Outcome<()> {
    let is_written = directory.exists();
    let mut options = EngineOptions::new(Arc::new(SystemDisk::new()), directory);
    options.memtable_space_bytes = 4 << 30;
    options.memtable_cleanup_threshold = 0.9;
    options.cache_bytes = CACHE_BYTES;
    let engine = Engine::open(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server_options = ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() };
    let listener = runtime.block_on(Listener::bind(server_options))?;
    let address = listener.local_addr();
    let processor = Processor::new(engine.clone(), ProcessorOptions::default());
    runtime.spawn(Server::new(listener, Arc::new(processor)).run(std::future::pending()));
    let mut client = WireClient::connect(address)?;
    if !is_written {
        write(&mut client, &engine, partitions)?;
    }
    for kind in kinds {
        let reads = Reads { kind, partitions };
        // The first reads bring the data into the cache.
        reads.timed(&mut client, length.max(Duration::from_micros(partitions)))?;
        let nanos = reads.timed(&mut client, length)?;
        println!("{{\"read\": \"{kind}\", \"cpu_ns\": {nanos:.0}}}");
    }
    drop(client);
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(engine.shutdown()?)
}

fn write(client: &mut WireClient, engine: &Engine, partitions: u64) -> Outcome<()> {
    client.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")?;
    let options = "compaction = {'class': 'UnifiedCompactionStrategy', 'enabled': 'false'}";
    for table in ["points", "memory"] {
        client.query(&format!("CREATE TABLE ks.{table} (key blob PRIMARY KEY, value blob) WITH {options}"))?;
    }
    client.query(&format!(
        "CREATE TABLE ks.wide (key blob, row bigint, value blob, PRIMARY KEY (key, row)) WITH {options}"
    ))?;
    let id = client.prepare("INSERT INTO ks.points (key, value) VALUES (?, ?)")?;
    for table in 0..TABLES {
        insert(client, table * partitions / TABLES..(table + 1) * partitions / TABLES, |client, index| {
            client.execute(&id, &[&partition_key(index), &value(index)]);
        })?;
        engine.flush_all()?;
    }
    let id = client.prepare("INSERT INTO ks.wide (key, row, value) VALUES (?, ?, ?)")?;
    insert(client, 0..partitions / 10, |client, row| {
        client.execute(&id, &[&partition_key(0), &row.to_be_bytes(), &value(row)]);
    })?;
    Ok(engine.flush_all()?)
}

fn insert(client: &mut WireClient, indexes: std::ops::Range<u64>, add: impl Fn(&mut WireClient, u64)) -> Outcome<()> {
    for first in indexes.clone().step_by(BATCH as usize) {
        let batch = first..indexes.end.min(first + BATCH);
        batch.clone().for_each(|index| add(client, index));
        client.send()?;
        for _ in batch {
            client.result()?;
        }
    }
    Ok(())
}

/// For a codec, half of the value repeats itself.
fn value(index: u64) -> Vec<u8> {
    let word = |place: u64| if place.is_multiple_of(2) { mix(index * 1000 + place) } else { 0x0123_4567_89AB_CDEF };
    let mut value: Vec<u8> = (0..VALUE_BYTES.div_ceil(8) as u64).flat_map(|place| word(place).to_be_bytes()).collect();
    value.truncate(VALUE_BYTES);
    value
}

struct Reads<'r> {
    kind: &'r str,
    partitions: u64,
}

impl Reads<'_> {
    /// Nanoseconds of the server per read.
    fn timed(&self, client: &mut WireClient, length: Duration) -> Outcome<f64> {
        let id = client.prepare(&match self.kind {
            "points" => "SELECT key, value FROM ks.points WHERE key = ?".to_owned(),
            "memory" => "SELECT key, value FROM ks.memory WHERE key = ?".to_owned(),
            "row" => "SELECT row, value FROM ks.wide WHERE key = ? AND row = ?".to_owned(),
            "forward" => format!("SELECT row, value FROM ks.wide WHERE key = ? AND row >= ? LIMIT {ROWS_READ}"),
            _ => {
                format!("SELECT row, value FROM ks.wide WHERE key = ? AND row <= ? ORDER BY row DESC LIMIT {ROWS_READ}")
            }
        })?;
        let (start, before) = (Instant::now(), server_time());
        let mut reads = 0;
        while start.elapsed() < length {
            let batch = reads..reads + BATCH;
            let chosen = |read: u64, of: u64| mix(read + 1) % of;
            for read in batch.clone() {
                match self.kind {
                    "points" | "memory" => client.execute(&id, &[&partition_key(chosen(read, self.partitions))]),
                    _ => {
                        let row = chosen(read, self.partitions / 10 - 2 * ROWS_READ as u64) + ROWS_READ as u64;
                        client.execute(&id, &[&partition_key(0), &row.to_be_bytes()]);
                    }
                }
            }
            client.send()?;
            let least = match self.kind {
                "memory" => 0,
                "points" | "row" => VALUE_BYTES,
                _ => ROWS_READ * VALUE_BYTES,
            };
            for _ in batch {
                let size = client.result()?.len();
                if size < least {
                    return Err(format!("an answer of {size} bytes to a read of {}", self.kind).into());
                }
            }
            reads += BATCH;
        }
        Ok((server_time() - before).as_nanos() as f64 / reads as f64)
    }
}

/// The processor time of the process without this thread.
fn server_time() -> Duration {
    let time = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    time(ClockId::ProcessCPUTime) - time(ClockId::ThreadCPUTime)
}
