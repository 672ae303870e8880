//! `bench-memtable COUNT [KIND]`: COUNT partitions of one row with a value of 100 bytes, put into a memtable of each
//! kind and read back. The program prints one line of JSON per figure, in the thread's processor time, makes updates
//! beforehand and checks answers. `MemtableBench.java` does the same for Cassandra's memtables. Further figures are the
//! next live row of a partition of COUNT rows, of which 99.7 % are deleted, and appends to collections of 100 and of
//! 65,000 elements.
//!
//! A row is read in two ways: as a SELECT by the whole primary key does (`find_row`, and a cursor where `find_row` does
//! not know), with its bytes copied; and through a cursor, as all other reads do. With KIND only that memtable is
//! written and read, for `perf` and callgrind (`put_all`, `find_all`, `read_all`).

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::{mix, partition_key};
use memtable::{Lookup, Memtable, MemtableConfiguration, RowLocation, SparePages, TrieMemtable};
use model::{
    Cell, ClusteringBound, ColumnData, DeletionTime, KeyRange, Liveness, PartitionKey, PartitionUpdate,
    PartitionUpdateBuilder, ReadRange, Row, RowBuilder, Side, Slice, Slices, Table, TableBuilder, TableId, Unfiltered,
    UnfilteredCursor, push_component,
};
use rustix::time::{ClockId, clock_gettime};
use types::{CqlType, murmur3};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BATCH: u64 = 1000;
/// The number of updates that are applied together, as in a batch or from the log.
const TOGETHER: usize = 32;
const VALUE_BYTES: usize = 100;
/// One row of this many is not deleted.
const LIVE_EVERY: u64 = 333;
const LIVE_READS: u64 = 50_000;
/// Elements of the collections to which the benchmark appends. Each grows by a fifth at most, and then the next
/// partition's collection is used.
const COLLECTION_SIZES: [u64; 2] = [100, 65_000];
const APPENDS: u64 = 10_000;

fn main() -> ExitCode {
    let Some(Ok(count)) = std::env::args().nth(1).map(|count| count.parse::<u64>()) else {
        eprintln!("usage: bench-memtable COUNT [KIND]");
        return ExitCode::from(2);
    };
    let only = std::env::args().nth(2);
    for class in ["TrieMemtable", "SkipListMemtable"]
        .into_iter()
        .filter(|class| only.as_deref().is_none_or(|only| only == *class))
    {
        match MemtableConfiguration::parse(class, &BTreeMap::new()) {
            Ok(configuration) => measure(class, &configuration, count),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if only.is_some() {
        return ExitCode::SUCCESS;
    }
    for (how, by_rows, by_ranges) in
        [("undeleted", false, false), ("by rows", true, false), ("by ranges", false, true), ("by both", true, true)]
    {
        next_live_row(how, by_rows, by_ranges, count);
    }
    for size in COLLECTION_SIZES {
        ["list", "set", "map"].iter().for_each(|kind| append_to(kind, size));
    }
    ExitCode::SUCCESS
}

/// Appends elements that a collection does not have yet, behind those that it has.
fn append_to(kind: &str, size: u64) {
    let element = || Arc::new(CqlType::Bigint);
    let ty = match kind {
        "list" => CqlType::List { element: element(), frozen: false },
        "set" => CqlType::Set { element: element(), frozen: false },
        _ => CqlType::Map { key: element(), value: element(), frozen: false },
    };
    let builder = TableBuilder::new("bench", "collections", TableId(uuid::Uuid::from_u128(3)));
    let table = Arc::new(builder.partition_key("p", CqlType::Blob).regular("c", ty).build());
    let memtable = Arc::new(TrieMemtable::new(&table, 1));
    let each = (size / 5).min(APPENDS);
    let mut appending = Duration::ZERO;
    for partition in 0..APPENDS / each {
        let all = elements(&table, kind, partition, 0..size);
        memtable.apply(&all, None).expect("room for the benchmark's elements");
        let appends: Vec<_> = (size..size + each).map(|n| elements(&table, kind, partition, n..n + 1)).collect();
        let start = cpu_time();
        put_all(&*memtable, &appends);
        appending += cpu_time() - start;
        assert_eq!(elements_of(&memtable, &table, partition), size + each);
    }
    say("TrieMemtable", &format!("append to a {kind} of {size}"), appending.as_nanos() as f64 / APPENDS as f64);
}

fn elements(table: &Arc<Table>, kind: &str, partition: u64, numbers: std::ops::Range<u64>) -> PartitionUpdate {
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.complex(0, DeletionTime::LIVE);
    for number in numbers {
        let (number_bytes, list_path) =
            (number.to_be_bytes(), uuid::Uuid::from_fields(number as u32, 0, 0x1000, &[0x80; 8]));
        let (path, value): (&[u8], &[u8]) = match kind {
            "list" => (list_path.as_bytes(), &number_bytes),
            "set" => (&number_bytes, &[]),
            _ => (&number_bytes, &number_bytes),
        };
        row.complex_cell(&Cell::live(5, value).with_path(path));
    }
    let mut blob = Vec::new();
    row.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&partition_key(partition)));
    update.row(&[], &blob);
    update.build()
}

fn elements_of(memtable: &Arc<TrieMemtable>, table: &Arc<Table>, partition: u64) -> u64 {
    let range = ReadRange::all_rows(KeyRange::Single(PartitionKey::new(&partition_key(partition))));
    let mut cursor = memtable.clone().cursor(table, &range);
    assert!(cursor.advance_partition().expect("memory") && cursor.advance().expect("memory"));
    let Unfiltered::Row(row) = cursor.unfiltered() else { panic!("a row") };
    let Some((_, ColumnData::Complex(cells))) = row.row.columns(table).next() else { panic!("a collection") };
    cells.count() as u64
}

/// Finds the next live row from any place of the partition on.
fn next_live_row(how: &str, by_rows: bool, by_ranges: bool, count: u64) {
    let builder = TableBuilder::new("bench", "rows", TableId(uuid::Uuid::from_u128(2)));
    let builder = builder.partition_key("p", CqlType::Blob).clustering("c", CqlType::Bigint, false);
    let table = Arc::new(builder.regular("v", CqlType::Blob).build());
    let memtable = Arc::new(TrieMemtable::new(&table, 1));
    for first in (0..count).step_by(LIVE_EVERY as usize) {
        let mut rows = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&partition_key(0)));
        let mut deletions = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&partition_key(0)));
        for index in first..count.min(first + LIVE_EVERY) {
            rows.row(&clustering(index), &live_row(&table, index));
            if by_rows && index > first {
                let mut row = RowBuilder::default();
                row.start(table.regulars(), false);
                row.deletion(DeletionTime::new(11, 1));
                let mut blob = Vec::new();
                row.finish(&mut blob);
                deletions.row(&clustering(index), &blob);
            }
        }
        memtable.apply(&rows.build(), None).expect("room for the benchmark's rows");
        if by_ranges {
            let bound = |index, side| ClusteringBound::new(clustering(index), side);
            let slice = Slice { start: bound(first, Side::After), end: bound(first + LIVE_EVERY, Side::Before) };
            deletions.delete_range(slice, DeletionTime::new(10, 1));
        }
        if by_rows || by_ranges {
            memtable.apply(&deletions.build(), None).expect("room for the benchmark's rows");
        }
    }
    let last_live = (count - 1) / LIVE_EVERY * LIVE_EVERY;
    let ranges: Vec<(u64, ReadRange)> = (0..LIVE_READS)
        .map(|read| {
            let from = mix(read) % last_live;
            let start = ClusteringBound::new(clustering(from), Side::Before);
            let slices = Slices::new(vec![Slice { start, end: ClusteringBound::top() }], table.comparator());
            let keys = KeyRange::Single(PartitionKey::new(&partition_key(0)));
            let is_deleted = by_rows || by_ranges;
            let expected = if is_deleted { from.next_multiple_of(LIVE_EVERY) } else { from };
            (expected, ReadRange { keys, slices, reversed: false })
        })
        .collect();
    let start = cpu_time();
    for (expected, range) in &ranges {
        let mut cursor = memtable.clone().live_cursor(&table, range);
        assert!(cursor.advance_partition().expect("memory") && cursor.advance().expect("memory"));
        assert_eq!(number_read(cursor.unfiltered(), &table), Some(*expected));
    }
    let nanos = (cpu_time() - start).as_nanos() as f64;
    say("TrieMemtable", &format!("next live row, {how}"), nanos / LIVE_READS as f64);
}

fn clustering(index: u64) -> Vec<u8> {
    let mut clustering = Vec::new();
    push_component(Some(&index.to_be_bytes()), &mut clustering);
    clustering
}

/// The number that `live_row` was given.
fn number_of(row: Row<'_>, table: &Table) -> Option<u64> {
    let (_, ColumnData::Simple(cell)) = row.columns(table).next()? else { return None };
    cell.value.first_chunk().copied().map(u64::from_be_bytes)
}

fn number_read(unfiltered: Unfiltered<'_>, table: &Table) -> Option<u64> {
    let Unfiltered::Row(row) = unfiltered else { return None };
    number_of(row.row, table)
}

/// The processor time of putting `count` rows, whose updates are made beforehand.
fn putting_time(table: &Arc<Table>, count: u64, put: impl Fn(&[PartitionUpdate])) -> Duration {
    let mut putting = Duration::ZERO;
    for first in (0..count).step_by(BATCH as usize) {
        let updates: Vec<_> = (first..count.min(first + BATCH)).map(|index| update(table, index)).collect();
        let start = cpu_time();
        put(&updates);
        putting += cpu_time() - start;
    }
    putting
}

fn measure(name: &str, configuration: &MemtableConfiguration, count: u64) {
    // `(p blob PRIMARY KEY, v blob)`
    let builder = TableBuilder::new("bench", "rows", TableId(uuid::Uuid::from_u128(1)));
    let table = Arc::new(builder.partition_key("p", CqlType::Blob).regular("v", CqlType::Blob).build());
    // Every memtable has memory of its own.
    let none_spare = Arc::new(SparePages::new(0));
    let memtable = configuration.open(&table, 1, &Arc::default(), &none_spare);
    let putting = putting_time(&table, count, |updates| put_all(&*memtable, updates));
    let per_row = |time: Duration| time.as_nanos() as f64 / count as f64;
    say(name, "memtable: put", per_row(putting));
    let held = memtable.memory().committed_bytes;
    say(name, "memtable: rows per GiB", count as f64 * (1u64 << 30) as f64 / held as f64);
    let start = cpu_time();
    find_all(&memtable, &table, count);
    say(name, "memtable: whole-row read", per_row(cpu_time() - start));
    let start = cpu_time();
    read_all(&memtable, &table, count);
    say(name, "memtable: whole-row read, cursor", per_row(cpu_time() - start));
    drop(memtable);
    let memtable = configuration.open(&table, 1, &Arc::default(), &none_spare);
    let putting = putting_time(&table, count, |updates| put_together(&*memtable, updates));
    say(name, "memtable: put, 32 at a time", per_row(putting));
}

#[inline(never)]
fn put_all(memtable: &dyn Memtable, updates: &[PartitionUpdate]) {
    for update in updates {
        memtable.apply(update, None).expect("room for the benchmark's rows");
    }
}

/// Puts updates together, as a batch and the replay of the log do.
#[inline(never)]
fn put_together(memtable: &dyn Memtable, updates: &[PartitionUpdate]) {
    for updates in updates.chunks(TOGETHER) {
        let keys: Vec<&PartitionKey> = updates.iter().map(PartitionUpdate::key).collect();
        memtable.prefetch(&keys);
        put_all(memtable, updates);
    }
}

#[inline(never)]
fn find_all(memtable: &Arc<dyn Memtable>, table: &Arc<Table>, count: u64) {
    let mut copied = Vec::new();
    for index in 0..count {
        let probe = mix(index) % count;
        let key = partition_key(probe);
        let location = RowLocation { token: murmur3::token(&key), key: &key, clustering: &[] };
        copied.clear();
        let lookup = memtable.find_row(table, location, &mut |row| copied.extend_from_slice(row.as_bytes()));
        match lookup {
            Lookup::Found => assert_eq!(number_of(Row::new(&copied), table), Some(probe)),
            Lookup::Unknown => read(memtable, table, probe),
            Lookup::Absent => panic!("row {probe} was put"),
        }
    }
}

#[inline(never)]
fn read_all(memtable: &Arc<dyn Memtable>, table: &Arc<Table>, count: u64) {
    for index in 0..count {
        read(memtable, table, mix(index) % count);
    }
}

fn read(memtable: &Arc<dyn Memtable>, table: &Arc<Table>, probe: u64) {
    let range = ReadRange::all_rows(KeyRange::Single(PartitionKey::new(&partition_key(probe))));
    let mut cursor = memtable.clone().cursor(table, &range);
    assert!(cursor.advance_partition().expect("memory") && cursor.advance().expect("memory"));
    assert_eq!(number_read(cursor.unfiltered(), table), Some(probe));
}

fn update(table: &Arc<Table>, index: u64) -> PartitionUpdate {
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&partition_key(index)));
    update.row(&[], &live_row(table, index));
    update.build()
}

/// A row that contains its number.
fn live_row(table: &Table, index: u64) -> Vec<u8> {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&index.to_be_bytes());
    let mut row = RowBuilder::default();
    row.start(table.regulars(), false);
    row.liveness(Liveness::at(5));
    row.cell(0, &Cell::live(5, &value));
    let mut blob = Vec::new();
    row.finish(&mut blob);
    blob
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn say(peer: &str, figure: &str, value: f64) {
    println!("{{\"peer\": \"{peer}\", \"figure\": \"{figure}\", \"value\": {value:.2}}}");
}
