//! `bench-tables PARTITIONS VALUE_BYTES plain|lz4 ROUNDS DIRECTORY`: flushes four memtables of PARTITIONS partitions of
//! one row, a quarter of which the previous memtable has too, and merges their SSTables, ROUNDS times. The program
//! prints one line of JSON per figure: nanoseconds of the thread's processor time per row, in the process and in the
//! kernel. It serves `perf` and callgrind, without a node around it.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::{mix, partition_key};
use blockio::{Disk, SystemDisk};
use compaction::{CompactionInput, compact};
use memtable::{Memtable, TrieMemtable};
use model::{
    Cell, KeyRange, LargeRowLimit, Liveness, PartitionKey, PartitionUpdateBuilder, ReadRange, RowBuilder, Table,
    TableBuilder, TableId, TableOptions,
};
use sstable::{BlockCache, Descriptor, EncodingBase, SSTableId, SSTableReader, SSTableWriter, WriterOptions};
use types::CqlType;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TABLES: u64 = 4;
const TIMESTAMP: i64 = 1_700_000_000_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [partitions, value_bytes, kind, rounds, directory] = arguments.as_slice() else { return usage() };
    let (Ok(partitions), Ok(value_bytes), Ok(rounds)) = (partitions.parse(), value_bytes.parse(), rounds.parse())
    else {
        return usage();
    };
    let compression: &[(&str, &str)] = match kind.as_str() {
        "plain" => &[],
        "lz4" => &[("class", "LZ4Compressor"), ("chunk_length_in_kb", "16")],
        _ => return usage(),
    };
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let compression = compression.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let run = Run { disk, directory: Path::new(directory), table: table(compression), partitions, value_bytes };
    match run.measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: bench-tables PARTITIONS VALUE_BYTES plain|lz4 ROUNDS DIRECTORY");
    ExitCode::from(2)
}

fn table(compression: BTreeMap<String, String>) -> Arc<Table> {
    let options = TableOptions { compression, ..TableOptions::default() };
    let builder = TableBuilder::new("bench", "rows", TableId(uuid::Uuid::from_u128(1)));
    Arc::new(builder.partition_key("key", CqlType::Blob).regular("value", CqlType::Blob).options(options).build())
}

struct Run<'r> {
    disk: Arc<dyn Disk>,
    directory: &'r Path,
    table: Arc<Table>,
    partitions: u64,
    value_bytes: usize,
}

impl Run<'_> {
    fn measure(&self, rounds: u32) -> Result<(), Box<dyn std::error::Error>> {
        self.disk.create_dir_all(self.directory)?;
        let cache = BlockCache::new(1 << 20);
        let mut inputs = Vec::new();
        for number in 0..TABLES {
            let memtable = self.fill(number);
            let (flushed, taken) = spent(|| self.flush(memtable, number));
            self.say("flush", taken, self.partitions);
            inputs.push(Arc::new(SSTableReader::open(&*self.disk, &flushed?, &self.table, &cache)?));
        }
        for _ in 0..rounds {
            let (merged, taken) = spent(|| self.merge(&inputs));
            self.say("compaction", taken, TABLES * self.partitions);
            // When they are dropped, they remove their files.
            drop(merged?);
        }
        Ok(self.disk.remove_dir_all(self.directory)?)
    }

    fn fill(&self, number: u64) -> Arc<TrieMemtable> {
        let memtable = Arc::new(TrieMemtable::new(&self.table, 2));
        let mut value = vec![0; self.value_bytes];
        for index in 0..self.partitions {
            let index = number * self.partitions * 3 / 4 + index;
            // For a codec, half of the value repeats itself.
            for (place, word) in value.chunks_mut(8).enumerate() {
                let word_of = if place % 2 == 0 { mix(index * 1000 + place as u64) } else { 0x0123_4567_89AB_CDEF };
                word.copy_from_slice(&word_of.to_be_bytes()[..word.len()]);
            }
            let timestamp = TIMESTAMP + (number * self.partitions) as i64 * 10 + index as i64;
            let mut builder = RowBuilder::default();
            builder.start(self.table.regulars(), false);
            builder.liveness(Liveness::at(timestamp));
            builder.cell(0, &Cell::live(timestamp, &value));
            let mut row = Vec::new();
            builder.finish(&mut row);
            let mut update = PartitionUpdateBuilder::new(self.table.clone(), PartitionKey::new(&partition_key(index)));
            update.row(&[], &row);
            memtable.apply(&update.build(), None).expect("room for the benchmark's rows");
        }
        memtable
    }

    fn flush(&self, memtable: Arc<TrieMemtable>, number: u64) -> Result<Descriptor, Box<dyn std::error::Error>> {
        let mut options = WriterOptions::for_table(&self.table)?;
        options.estimated_partitions = self.partitions;
        options.base = EncodingBase { timestamp: memtable.statistics().timestamp_min, ..EncodingBase::default() };
        let descriptor = Descriptor::new(self.directory, SSTableId::from_sequence(number as u32 + 1));
        let mut writer = SSTableWriter::create(&self.disk, &descriptor, &self.table, options)?;
        writer.write_all(&mut memtable.cursor(&self.table, &ReadRange::all_rows(KeyRange::all())))?;
        Ok(writer.finish()?.ok_or("nothing was written")?)
    }

    fn merge(&self, tables: &[Arc<SSTableReader>]) -> Result<compaction::Compacted, compaction::CompactionError> {
        let mut next_id = TABLES as u32;
        compact(CompactionInput {
            disk: &self.disk,
            dir: self.directory,
            table: &self.table,
            tables,
            newer: None,
            kept: None,
            overlaps: &|_: &PartitionKey| i64::MAX,
            now_seconds: 1_800_000_000,
            boundaries: Vec::new(),
            column_index_size_bytes: 16 * 1024,
            past_page_cache: true,
            host_id: uuid::Uuid::nil(),
            size_watch: None,
            large_rows: LargeRowLimit::None,
            new_id: &mut || {
                next_id += 1;
                SSTableId::from_sequence(next_id)
            },
            progress: &mut |_| ControlFlow::Continue(()),
        })
    }

    fn say(&self, what: &str, (user, system): (Duration, Duration), rows: u64) {
        let each = |time: Duration| time.as_nanos() as f64 / rows as f64;
        println!(
            "{{\"what\": \"{what}\", \"value_bytes\": {}, \"user_ns\": {:.0}, \"kernel_ns\": {:.0}}}",
            self.value_bytes,
            each(user),
            each(system)
        );
    }
}

/// The processor time of `work`: in the process, and in the kernel.
fn spent<T>(work: impl FnOnce() -> T) -> (T, (Duration, Duration)) {
    let before = times();
    let done = work();
    let after = times();
    let whole = after.0.saturating_sub(before.0);
    // The kernel divides the time by ticks, but knows the sum exactly.
    let kernel = whole.mul_f64((after.2 - before.2) as f64 / (after.1 - before.1).max(1) as f64);
    (done, (whole.saturating_sub(kernel), kernel))
}

/// This thread's exact processor time so far, its ticks, and the ticks in the kernel.
fn times() -> (Duration, u64, u64) {
    let numbers = |name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap_or_default();
        // The name, in brackets, may contain anything.
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.map(|field| field.parse().unwrap_or_default()).collect()
    };
    let (stat, spent) = (numbers("stat"), numbers("schedstat"));
    let ticks = |field: usize| stat.get(field).copied().unwrap_or_default();
    let (user, kernel) = (ticks(11), ticks(12));
    (Duration::from_nanos(spent.first().copied().unwrap_or_default()), user + kernel, kernel)
}
