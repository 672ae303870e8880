//! A table in memory, in process and without CQL, for what takes too long with a client.
//!
//! - `bench-inmemory overwrites COUNT DIRECTORY`: COUNT overwrites of 7,000 partitions in the steps of the paper's
//!   appendix, and a read for every third of them. It prints a line of JSON for every hundredth part: processor time
//!   and latency of overwrites and reads, and the memory of the table. At the end it prints a line for each figure that
//!   says whether the figure stayed the same from the first quarter to the last.
//! - `bench-inmemory fill MIB DIRECTORY`: MIB MiB of rows, flushed.
//! - `bench-inmemory start DIRECTORY`: a start with the rows of the directory, and a read of every thousandth row.
//!
//! `DIRECTORY` is kept.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::mix;
use blockio::SystemDisk;
use commitlog::SyncMode;
use engine::{Engine, EngineOptions, InMemoryStats, block_on};
use model::{
    Cell, KeyRange, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder, ReadRange, RowBuilder, Table,
    TableBuilder, TableId, TableOptions, Unfiltered,
};
use rustix::time::{ClockId, clock_gettime};
use types::CqlType;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The size of the value in a row that only takes memory.
const VALUE_BYTES: usize = 1_000;
/// The size of the value in a row that is overwritten.
const SMALL_VALUE_BYTES: usize = 104;
const PARTITIONS: u64 = 7_000;
/// The step has no factor in common with the number of partitions.
const STEP: u64 = 2_411;
/// The number of parts of a long run for which figures are printed. Parts are short, so that a merge or a flush slows
/// down few of them, and medians ignore those.
const TOLD: u64 = 100;
/// A constant figure grows by no more than this factor.
const CONSTANT: f64 = 1.1;
/// One operation of this many is timed.
const SAMPLED: u64 = 8;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match *arguments {
        ["overwrites", count, directory] => count.parse().map_err(Into::into).and_then(|count| {
            let engine = open(Path::new(directory))?;
            overwrites(&engine, count)?;
            Ok(engine.shutdown()?)
        }),
        ["fill", mib, directory] => mib.parse().map_err(Into::into).and_then(|mib| fill(Path::new(directory), mib)),
        ["start", directory] => start(Path::new(directory)),
        _ => {
            eprintln!("usage: bench-inmemory overwrites COUNT DIRECTORY | fill MIB DIRECTORY | start DIRECTORY");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn open(directory: &Path) -> Outcome<Arc<Engine>> {
    let mut options = EngineOptions::new(Arc::new(SystemDisk::new()), directory);
    options.commitlog.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    // Data of SSTables stays in the cache until it is evicted: the process would grow until a larger cache is full.
    options.cache_bytes = 1 << 20;
    Ok(Engine::open(options)?)
}

/// `ks.t (key blob PRIMARY KEY, value blob)`, in memory.
fn create(engine: &Engine, size_limit_mb: u64) -> Outcome<Arc<Table>> {
    let class = "org.apache.cassandra.db.compaction.MemoryOnlyStrategy".to_owned();
    let compaction = [("class".to_owned(), class), ("size_limit_in_mb".to_owned(), size_limit_mb.to_string())];
    let options = TableOptions { compaction: compaction.into(), ..TableOptions::default() };
    let id = TableId(uuid::Uuid::from_u128(1));
    let builder = TableBuilder::new("ks", "t", id).partition_key("key", CqlType::Blob);
    let table = Arc::new(builder.regular("value", CqlType::Blob).options(options).build());
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.insert(table.name.clone(), table.clone());
    engine.set_keyspace(keyspace)?;
    Ok(table)
}

fn key(partition: u64) -> PartitionKey {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(partition + 1).to_be_bytes());
    key[8..].copy_from_slice(&partition.to_be_bytes());
    PartitionKey::new(&key)
}

/// Bytes that compress to about a quarter.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes as u64 / 8).flat_map(|word| mix((number << 20) | (word / 8)).to_be_bytes());
    words.collect()
}

fn insertion(table: &Arc<Table>, partition: u64, value: &[u8], timestamp: i64) -> Mutation {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(Liveness::at(timestamp));
    row.cell(0, &Cell::live(timestamp, value));
    let mut blob = Vec::with_capacity(value.len() + 32);
    row.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), key(partition));
    update.row(&[], &blob);
    Mutation::new(vec![update.build()])
}

/// Whether the partition's row exists and ends as it should.
fn has_row(engine: &Engine, table: &Arc<Table>, partition: u64, value: &[u8]) -> Outcome<bool> {
    let mut cursor = engine.read(table, &ReadRange::all_rows(KeyRange::Single(key(partition))))?;
    if !cursor.advance_partition()? || !cursor.advance()? {
        return Ok(false);
    }
    Ok(matches!(cursor.unfiltered(), Unfiltered::Row(row) if row.row.as_bytes().ends_with(value)))
}

fn stats(engine: &Engine, table: &Table) -> Outcome<InMemoryStats> {
    engine.table_stats(table)?.in_memory.ok_or_else(|| "the table does not live in memory".into())
}

fn fill(directory: &Path, mib: u64) -> Outcome<()> {
    let engine = open(directory)?;
    let table = create(&engine, mib + mib / 4 + 64)?;
    let rows = (mib << 20) / VALUE_BYTES as u64;
    let (started, mut slowest) = (Instant::now(), Duration::ZERO);
    for number in 0..rows {
        let mutation = insertion(&table, number, &value(number, VALUE_BYTES), 1);
        let before = Instant::now();
        block_on(engine.write(&mutation))?;
        slowest = slowest.max(before.elapsed());
    }
    let seconds = started.elapsed().as_secs_f64();
    engine.flush(&table)?;
    let used_mib = stats(&engine, &table)?.used_bytes >> 20;
    println!(
        "{{\"rows\": {rows}, \"seconds\": {seconds:.1}, \"slowest_write_ms\": {:.1}, \"in_memory_mib\": {used_mib}}}",
        slowest.as_secs_f64() * 1e3
    );
    Ok(engine.shutdown()?)
}

fn start(directory: &Path) -> Outcome<()> {
    let (started, cpu) = (Instant::now(), process_seconds());
    let engine = open(directory)?;
    let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), process_seconds() - cpu);
    let schema = engine.schema();
    let table = schema.table("ks", "t").ok_or("there is no table ks.t")?;
    let stats = stats(&engine, table)?;
    if !stats.is_complete {
        return Err("the table was not loaded".into());
    }
    let gib = stats.used_bytes as f64 / f64::from(1 << 30);
    println!(
        "{{\"gib\": {gib:.3}, \"seconds\": {seconds:.2}, \"cpu_seconds\": {cpu_seconds:.2}, \"cpu_seconds_per_gib\": {:.2}, \
         \"committed_mib\": {}}}",
        cpu_seconds / gib,
        stats.committed_bytes >> 20
    );
    let rows = (0..).step_by(1000).map(|number| has_row(&engine, table, number, &value(number, VALUE_BYTES)));
    let found = rows.take_while(|found| matches!(found, Ok(true))).count();
    println!("{{\"rows_found\": {found}}}");
    Ok(engine.shutdown()?)
}

/// Latencies of one kind of operation in one part of a run.
struct Latencies {
    nanos: Vec<u64>,
    cpu_nanos: u64,
    count: u64,
}

impl Latencies {
    /// Makes room for the latencies of `operations` operations and touches that memory, so that the process's later
    /// growth is not the benchmark's.
    fn of(operations: u64) -> Latencies {
        let mut nanos = vec![u64::MAX; (operations / SAMPLED + 1) as usize];
        nanos.clear();
        Latencies { nanos, cpu_nanos: 0, count: 0 }
    }

    fn measure<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let is_sampled = self.count.is_multiple_of(SAMPLED);
        self.count += 1;
        if !is_sampled {
            return operation();
        }
        // The thread's clock is a system call. Where the kernel does not preempt, a thread that waits for the processor
        // may run when a system call ends, and all of them would wait inside the timed section.
        let cpu = thread_nanos();
        let started = Instant::now();
        let outcome = operation();
        self.nanos.push(started.elapsed().as_nanos() as u64);
        self.cpu_nanos += thread_nanos() - cpu;
        outcome
    }

    /// Returns the figures of the part that ends, and begins the next part.
    fn take_figures(&mut self) -> Figures {
        self.nanos.sort_unstable();
        let at = |part: f64| {
            let place = (self.nanos.len() as f64 * part) as usize;
            self.nanos.get(place).copied().unwrap_or(0)
        };
        let cpu_ns = self.cpu_nanos / self.nanos.len().max(1) as u64;
        let figures = Figures { cpu_ns, p50_ns: at(0.5), p99_ns: at(0.99) };
        self.nanos.clear();
        (self.cpu_nanos, self.count) = (0, 0);
        figures
    }
}

/// The cost of one kind of operation in a part of a run.
struct Figures {
    cpu_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { cpu_ns, p50_ns, p99_ns } = self;
        write!(f, "{{\"cpu_ns\": {cpu_ns}, \"p50_ns\": {p50_ns}, \"p99_ns\": {p99_ns}}}")
    }
}

/// A part of a run.
struct Part {
    write: Figures,
    read: Figures,
    used_bytes: u64,
    committed_bytes: u64,
    process_mib: u64,
}

fn overwrites(engine: &Engine, count: u64) -> Outcome<()> {
    let table = create(engine, 64)?;
    let values: Vec<_> = (0..64).map(|number| value(number, SMALL_VALUE_BYTES)).collect();
    let (mut partition, mut done) = (0, 0);
    let mut parts = Vec::new();
    let part_operations = count.div_ceil(TOLD);
    let (mut writes, mut reads) = (Latencies::of(part_operations), Latencies::of(part_operations));
    for part in 0..TOLD {
        while done < count * (part + 1) / TOLD {
            let value = &values[done as usize % values.len()];
            let mutation = insertion(&table, partition, value, done as i64 + 1);
            writes.measure(|| block_on(engine.write(&mutation)))?;
            if done % 3 == 0 && !reads.measure(|| has_row(engine, &table, partition, value))? {
                return Err(format!("overwrite {done} is not read").into());
            }
            partition = (partition + STEP) % PARTITIONS;
            done += 1;
        }
        let InMemoryStats { used_bytes, committed_bytes, .. } = stats(engine, &table)?;
        let (write, read) = (writes.take_figures(), reads.take_figures());
        let (sstables, process_mib) = (engine.table_stats(&table)?.sstable_count, process_mib()?);
        println!(
            "{{\"overwrites\": {done}, \"write\": {write}, \"read\": {read}, \"used_bytes\": {used_bytes}, \
             \"committed_bytes\": {committed_bytes}, \"sstables\": {sstables}, \"process_mib\": {process_mib}}}"
        );
        parts.push(Part { write, read, used_bytes, committed_bytes, process_mib });
    }
    print_growth(&parts);
    Ok(())
}

type Figure = fn(&Part) -> u64;

/// Prints for each figure by how much its median in the last quarter of a run exceeds that of the first quarter.
fn print_growth(parts: &[Part]) {
    let figures: [(&str, Figure); 7] = [
        ("write p50", |part| part.write.p50_ns),
        ("write p99", |part| part.write.p99_ns),
        ("read p50", |part| part.read.p50_ns),
        ("read p99", |part| part.read.p99_ns),
        ("used bytes", |part| part.used_bytes),
        ("committed bytes", |part| part.committed_bytes),
        ("process", |part| part.process_mib),
    ];
    let quarter = parts.len() / 4;
    for (name, figure) in figures {
        let median = |parts: &[Part]| {
            let mut values: Vec<u64> = parts.iter().map(figure).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0) as f64
        };
        let ratio = median(&parts[parts.len() - quarter..]) / median(&parts[..quarter]).max(1.0);
        let verdict = if ratio <= CONSTANT { "reached" } else { "MISSED" };
        println!(
            "{{\"figure\": \"{name}\", \"last_to_first\": {ratio:.3}, \"wanted\": {CONSTANT}, \"verdict\": \"{verdict}\"}}"
        );
    }
}

fn process_mib() -> Outcome<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident: u64 = pages.split(' ').nth(1).ok_or("statm has no second figure")?.parse()?;
    Ok(resident * 4 / 1024)
}

fn thread_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

fn process_seconds() -> f64 {
    nanos(ClockId::ProcessCPUTime) as f64 / 1e9
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
