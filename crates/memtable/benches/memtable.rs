//! Updates and whole-row point reads of 100-byte values; the answers are checked.
//!
//! `cargo bench -p memtable -- 1000000`. Without a number the run is too small to mean anything.

use std::sync::Arc;
use std::time::Instant;

use memtable::{Memtable, TrieMemtable};
use model::{
    Cell, KeyRange, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, ReadRange, RowBuilder, Slice,
    Slices, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor, push_component,
};
use types::CqlType;

const BATCH: u64 = 10_000;

fn table(with_clustering: bool) -> Arc<Table> {
    let mut builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1))).partition_key("p", CqlType::Blob);
    if with_clustering {
        builder = builder.clustering("c", CqlType::Bigint, false);
    }
    Arc::new(builder.regular("v", CqlType::Blob).build())
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn key(number: u64) -> PartitionKey {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(number + 1).to_be_bytes());
    bytes[8..].copy_from_slice(&mix(!number).to_be_bytes());
    PartitionKey::new(&bytes)
}

fn clustering(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(Some(&number.to_be_bytes()), &mut out);
    out
}

fn update(table: &Arc<Table>, key: PartitionKey, clustering: &[u8], value: &[u8]) -> PartitionUpdate {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(5));
    builder.cell(0, &Cell::live(5, value));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), key);
    update.row(clustering, &blob);
    update.build()
}

/// Makes updates outside of the measured time, a batch at a time.
fn measure(what: &str, count: u64, make: impl Fn(u64) -> PartitionUpdate, memtable: &TrieMemtable) {
    let mut nanos = 0;
    for start in (0..count).step_by(BATCH as usize) {
        let updates: Vec<_> = (start..count.min(start + BATCH)).map(&make).collect();
        let started = Instant::now();
        for update in &updates {
            memtable.apply(update, None).expect("room");
        }
        nanos += started.elapsed().as_nanos();
    }
    println!("{what:46} {:8.1} ns", nanos as f64 / count as f64);
}

fn read(memtable: &Arc<TrieMemtable>, table: &Arc<Table>, range: &ReadRange) -> u64 {
    let mut cursor = memtable.clone().cursor(table, range);
    let mut rows = 0;
    while cursor.advance_partition().expect("memory") {
        while cursor.advance().expect("memory") {
            rows += u64::from(matches!(cursor.unfiltered(), Unfiltered::Row(row) if row.row.as_bytes().len() > 100));
        }
    }
    rows
}

fn measure_reads(
    what: &str,
    count: u64,
    ranges: impl Fn(u64) -> ReadRange,
    memtable: &Arc<TrieMemtable>,
    table: &Arc<Table>,
) {
    let mut nanos = 0;
    for start in (0..count).step_by(BATCH as usize) {
        let ranges: Vec<_> = (start..count.min(start + BATCH)).map(&ranges).collect();
        let started = Instant::now();
        ranges.iter().for_each(|range| assert_eq!(read(memtable, table, range), 1));
        nanos += started.elapsed().as_nanos();
    }
    println!("{what:46} {:8.1} ns", nanos as f64 / count as f64);
}

fn main() {
    let count: u64 = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(1000);
    println!("{count} rows, one value of 100 bytes; per row:");
    let value = [7; 100];
    let simple = table(false);
    let memtable = Arc::new(TrieMemtable::new(&simple, 4));
    measure("put, no clustering", count, |n| update(&simple, key(n), &[], &value), &memtable);
    measure("put again, no clustering", count, |n| update(&simple, key(n), &[], &value), &memtable);
    let mut nanos = 0;
    for start in (0..count).step_by(64) {
        let updates: Vec<_> = (start..count.min(start + 64)).map(|n| update(&simple, key(n), &[], &value)).collect();
        let started = Instant::now();
        memtable.prefetch(&updates.iter().map(PartitionUpdate::key).collect::<Vec<_>>());
        for update in &updates {
            memtable.apply(update, None).expect("room");
        }
        nanos += started.elapsed().as_nanos();
    }
    println!("{:46} {:8.1} ns", "put again, 64 prefetched", nanos as f64 / count as f64);
    let single = |n: u64| ReadRange::all_rows(KeyRange::Single(key(n.wrapping_mul(7_368_787) % count)));
    measure_reads("read, no clustering", count, single, &memtable, &simple);
    let mut nanos = 0;
    for start in (0..count).step_by(64) {
        let keys: Vec<_> = (start..count.min(start + 64)).map(|n| key(n.wrapping_mul(7_368_787) % count)).collect();
        let started = Instant::now();
        memtable.prefetch(&keys.iter().collect::<Vec<_>>());
        for key in keys {
            assert_eq!(read(&memtable, &simple, &ReadRange::all_rows(KeyRange::Single(key))), 1);
        }
        nanos += started.elapsed().as_nanos();
    }
    println!("{:46} {:8.1} ns", "read, 64 prefetched, no clustering", nanos as f64 / count as f64);
    let started = Instant::now();
    assert_eq!(read(&memtable, &simple, &ReadRange::all_rows(KeyRange::all())), count);
    println!("{:46} {:8.1} ns", "scan, no clustering", started.elapsed().as_nanos() as f64 / count as f64);
    println!("{:46} {:8.1} bytes", "memory", memtable.memory().used_bytes as f64 / count as f64);

    let wide = table(true);
    let memtable = Arc::new(TrieMemtable::new(&wide, 4));
    measure("put, each row a partition", count, |n| update(&wide, key(n), &clustering(n), &value), &memtable);
    let memtable = Arc::new(TrieMemtable::new(&wide, 4));
    let partition = |n: u64| key(n % (count / 100).max(1));
    measure("put, 100 rows in a partition", count, |n| update(&wide, partition(n), &clustering(n), &value), &memtable);
    measure("put again", count, |n| update(&wide, partition(n), &clustering(n), &value), &memtable);
    let row = |n: u64| {
        let n = n.wrapping_mul(7_368_787) % count;
        let slices = Slices::new(vec![Slice::prefix(&clustering(n))], wide.comparator());
        ReadRange { keys: KeyRange::Single(partition(n)), slices, reversed: false }
    };
    measure_reads("read a row", count, row, &memtable, &wide);
    let started = Instant::now();
    assert_eq!(read(&memtable, &wide, &ReadRange::all_rows(KeyRange::all())), count);
    println!("{:46} {:8.1} ns", "scan", started.elapsed().as_nanos() as f64 / count as f64);
    println!("{:46} {:8.1} bytes", "memory", memtable.memory().used_bytes as f64 / count as f64);
}
