//! `bench-skew ROUNDS [WRITERS]`: updates of memtables by many threads, over all partitions and with half of them on
//! one partition. The program prints one line of JSON for each kind of memtable: processor time and throughput, and how
//! the two workloads compare. Each round makes its updates first; only applying them is measured.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bench::mix;
use memtable::{MemtableConfiguration, PutCounts, SparePages};
use model::{
    Cell, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder, Table, TableBuilder, TableId,
    push_component,
};
use rustix::time::{ClockId, clock_gettime};
use types::CqlType;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PARTITIONS: u64 = 100_000;
const ROWS_OF_A_PARTITION: u64 = 1 << 20;
/// The number of updates of a thread in a round.
const UPDATES: u64 = 5_000;

/// Name, class, parameters.
type Kind = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const KINDS: [Kind; 5] = [
    ("trie", "TrieMemtable", &[]),
    ("trie, paper's layout", "TrieMemtable", &[("layout", "paper")]),
    ("skip list", "SkipListMemtable", &[]),
    ("sharded skip list", "ShardedSkipListMemtable", &[]),
    ("sharded skip list, serialized", "ShardedSkipListMemtable", &[("serialize_writes", "true")]),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Some(Ok(rounds)), Ok(writers)) = (arguments.next(), arguments.next().unwrap_or(Ok(8))) else {
        eprintln!("usage: bench-skew ROUNDS [WRITERS]");
        return ExitCode::from(2);
    };
    for (name, class, parameters) in KINDS {
        let parameters: BTreeMap<String, String> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let configuration = match MemtableConfiguration::parse(class, &parameters) {
            Ok(configuration) => configuration,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let [uniform, skewed] = [false, true].map(|is_skewed| run(configuration, rounds, writers, is_skewed));
        println!(
            "{{\"figure\": \"skew\", \"memtable\": \"{name}\", \"writers\": {writers}, \"updates\": {}, \
             \"uniform_cpu_nanos\": {:.0}, \"skewed_cpu_nanos\": {:.0}, \"cpu_ratio\": {:.3}, \"uniform_per_second\": {:.0}, \
             \"skewed_per_second\": {:.0}, \"throughput_ratio\": {:.3}, \"uniform_contended\": {:.4}, \"skewed_contended\": {:.4}}}",
            rounds * writers * UPDATES,
            uniform.cpu_nanos,
            skewed.cpu_nanos,
            skewed.cpu_nanos / uniform.cpu_nanos,
            uniform.per_second,
            skewed.per_second,
            skewed.per_second / uniform.per_second,
            uniform.contended,
            skewed.contended,
        );
    }
    ExitCode::SUCCESS
}

struct Figures {
    /// Nanoseconds of processor time per update.
    cpu_nanos: f64,
    per_second: f64,
    /// The share of updates that met another one.
    contended: f64,
}

fn run(configuration: MemtableConfiguration, rounds: u64, writers: u64, is_skewed: bool) -> Figures {
    let table = table();
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
    let memtable = configuration.open(&table, cores, &Arc::default(), &Arc::new(SparePages::new(0)));
    let barrier = Barrier::new(writers as usize + 1);
    let cpu_nanos = AtomicU64::new(0);
    let mut wall = Duration::ZERO;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (table, memtable, barrier, cpu_nanos) = (&table, &memtable, &barrier, &cpu_nanos);
            scope.spawn(move || {
                for round in 0..rounds {
                    let first = (round * writers + writer) * UPDATES;
                    let updates: Vec<_> = (first..first + UPDATES).map(|n| update(table, n, is_skewed)).collect();
                    barrier.wait();
                    let before = thread_nanos();
                    updates.iter().for_each(|update| {
                        memtable.apply(update, None).expect("room for the benchmark's rows");
                    });
                    cpu_nanos.fetch_add(thread_nanos() - before, Ordering::Relaxed);
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            barrier.wait();
            let started = Instant::now();
            barrier.wait();
            wall += started.elapsed();
        }
    });
    let count = rounds * writers * UPDATES;
    assert_eq!(memtable.statistics().update_count, count);
    let puts = memtable.puts().into_iter().fold(PutCounts::default(), PutCounts::and);
    Figures {
        cpu_nanos: cpu_nanos.into_inner() as f64 / count as f64,
        per_second: count as f64 / wall.as_secs_f64(),
        contended: puts.contended as f64 / count as f64,
    }
}

fn thread_nanos() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `(p blob, c bigint, v blob, PRIMARY KEY (p, c))`
fn table() -> Arc<Table> {
    let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1))).partition_key("p", CqlType::Blob);
    Arc::new(builder.clustering("c", CqlType::Bigint, false).regular("v", CqlType::Blob).build())
}

fn update(table: &Arc<Table>, number: u64, is_skewed: bool) -> PartitionUpdate {
    let random = mix(number + 1);
    let partition = if is_skewed && random.is_multiple_of(2) { 0 } else { mix(random) % PARTITIONS };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(partition + 1).to_be_bytes());
    key[8..].copy_from_slice(&mix(!partition).to_be_bytes());
    let mut clustering = Vec::new();
    push_component(Some(&(mix(!random) % ROWS_OF_A_PARTITION).to_be_bytes()), &mut clustering);
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(Liveness::at(5));
    row.cell(0, &Cell::live(5, &[7; 100]));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key));
    update.row(&clustering, &blob);
    update.build()
}
