//! Random histories in any order of arrival, against the model of cells.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtable::{Memtable, TrieMemtable};
use model::{
    Cell, ClusteringBound, DeletionTime, KeyBound, KeyRange, Liveness, PartitionKey, PartitionUpdate,
    PartitionUpdateBuilder, ReadRange, RowBuilder, Side, Slice, Slices, Table, TableBuilder, TableId, push_component,
};
use testkit::{Random, seeds};
use types::CqlType;

use crate::cells::{Partition, Seen, read_partition};

fn map_type() -> CqlType {
    CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Text), frozen: false }
}

pub fn table() -> Arc<Table> {
    let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(1)))
        .partition_key("p", CqlType::Int)
        .clustering("a", CqlType::Int, false)
        .clustering("b", CqlType::Text, true)
        .static_column("s", CqlType::Text)
        .regular("v", CqlType::Text)
        .regular("w", CqlType::Int)
        .regular("m", map_type());
    Arc::new(builder.build())
}

/// As `table`, with a clustering that its path does not give back byte for byte.
pub fn table_with_decimal() -> Arc<Table> {
    let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(2)))
        .partition_key("p", CqlType::Int)
        .clustering("a", CqlType::Varint, false)
        .clustering("b", CqlType::Text, true)
        .static_column("s", CqlType::Text)
        .regular("v", CqlType::Text)
        .regular("w", CqlType::Int)
        .regular("m", map_type());
    Arc::new(builder.build())
}

pub fn key(p: i32) -> PartitionKey {
    PartitionKey::new(&p.to_be_bytes())
}

pub fn clustering(a: i32, b: &str) -> Vec<u8> {
    let mut out = Vec::new();
    // One byte: an int would be invalid, but the same bytes serve the varint table.
    push_component(Some(&a.to_be_bytes()), &mut out);
    push_component(Some(b.as_bytes()), &mut out);
    out
}

fn all_clusterings(table: &Table) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = (0..6).flat_map(|a| ["", "a", "b"].map(|b| clustering(a, b))).collect();
    all.sort_by(|a, b| table.comparator().compare(a, b));
    all
}

fn bound(random: &mut Random) -> ClusteringBound {
    let whole = clustering(random.below(6) as i32, ["", "a", "b"][random.below(3)]);
    let prefix = match random.below(4) {
        0 => Vec::new(),
        1 | 2 => whole[..8].to_vec(),
        _ => whole,
    };
    ClusteringBound::new(prefix, if random.one_in(2) { Side::Before } else { Side::After })
}

fn slice(random: &mut Random, table: &Table) -> Slice {
    let (a, b) = (bound(random), bound(random));
    if table.comparator().compare_bounds(&a, &b).is_lt() {
        Slice { start: a, end: b }
    } else {
        Slice { start: b, end: a }
    }
}

fn deletion(random: &mut Random) -> DeletionTime {
    let timestamp = random.below(30) as i64;
    DeletionTime::new(timestamp, 1000 + random.below(3) as u32)
}

fn cell<'v>(random: &mut Random, value: &'v [u8]) -> Cell<'v> {
    let timestamp = random.below(30) as i64;
    match random.below(6) {
        0 => Cell::tombstone(timestamp, 1000 + random.below(3) as u32),
        1 => Cell::expiring(timestamp, 10, 2000 + random.below(3) as u32, value),
        _ => Cell::live(timestamp, value),
    }
}

fn row(random: &mut Random, table: &Table, is_static: bool, out: &mut Vec<u8>) {
    let mut builder = RowBuilder::default();
    let set = table.columns(is_static);
    builder.start(set, is_static);
    if !is_static && random.one_in(2) {
        builder.liveness(match random.below(3) {
            0 => Liveness { timestamp: random.below(30) as i64, ttl: 10, expiration: 2000 + random.below(3) as u32 },
            _ => Liveness::at(random.below(30) as i64),
        });
    }
    if !is_static && random.one_in(8) {
        builder.deletion(deletion(random));
    }
    for (index, column) in set.columns.iter().enumerate() {
        if random.one_in(3) {
            continue;
        }
        let value = [b"value one".as_slice(), b"two!"][random.below(2)];
        if !column.is_complex() {
            builder.cell(index, &cell(random, &value[..4]));
            continue;
        }
        builder.complex(index, if random.one_in(6) { deletion(random) } else { DeletionTime::LIVE });
        for path in 0..4_i32 {
            if random.one_in(2) {
                builder.complex_cell(&cell(random, value).with_path(&path.to_be_bytes()));
            }
        }
    }
    if builder.is_empty() {
        builder.cell(0, &Cell::live(random.below(30) as i64, b"some"));
    }
    builder.finish(out);
}

fn update(random: &mut Random, table: &Arc<Table>, deletions: bool) -> PartitionUpdate {
    let mut builder = PartitionUpdateBuilder::new(table.clone(), key(random.below(3) as i32));
    let mut blob = Vec::new();
    if deletions && random.one_in(25) {
        builder.delete_partition(deletion(random));
    }
    if random.one_in(8) {
        row(random, table, true, &mut blob);
        builder.static_row(&blob);
    }
    while deletions && random.one_in(6) {
        builder.delete_range(slice(random, table), deletion(random));
    }
    let clusterings = all_clusterings(table);
    let most = if random.one_in(4) { 6 } else { 2 };
    for _ in 0..random.below(most) {
        blob.clear();
        row(random, table, false, &mut blob);
        builder.row(&clusterings[random.below(clusterings.len())], &blob);
    }
    if builder.is_empty() {
        blob.clear();
        row(random, table, false, &mut blob);
        builder.row(&clusterings[0], &blob);
    }
    builder.build()
}

fn expected(partition: &Partition, table: &Table, slices: &Slices, probes: &[Vec<u8>]) -> Seen {
    let deletion = partition.deletion();
    let is_in = |clustering: &[u8]| slices.contains(clustering, table.comparator());
    let mut rows = Vec::new();
    let mut ranges = Vec::new();
    for probe in probes.iter().filter(|probe| is_in(probe)) {
        let range = partition.range_deletion_at(probe, table);
        if !range.is_live() {
            ranges.push((probe.clone(), range));
        }
        if let Some(row) = partition.rows.get(probe) {
            let visible = row.visible(deletion.max(range));
            if !visible.is_empty() {
                rows.push((probe.clone(), visible));
            }
        }
    }
    Seen { deletion, static_row: partition.static_row.visible(deletion), rows, ranges }
}

fn check(
    memtable: &Arc<TrieMemtable>,
    partitions: &BTreeMap<PartitionKey, Partition>,
    table: &Arc<Table>,
    range: &ReadRange,
) {
    let mut probes = all_clusterings(table);
    if range.reversed {
        probes.reverse();
    }
    let mut cursor = memtable.clone().cursor(table, range);
    for (key, partition) in partitions.iter().filter(|(key, _)| range.keys.contains(key)) {
        assert!(cursor.advance_partition().expect("memory"), "{key:?}");
        assert_eq!(cursor.partition().key, key);
        let seen = read_partition(&mut *cursor, &probes, range.reversed);
        assert_eq!(seen, expected(partition, table, &range.slices, &probes), "{range:?}");
        assert!(!cursor.advance().expect("memory"), "a partition that ended stays ended");
    }
    assert!(!cursor.advance_partition().expect("memory"));
}

fn random_range(random: &mut Random, table: &Table) -> ReadRange {
    let bound = |random: &mut Random| {
        let key = key(random.below(4) as i32);
        match random.below(3) {
            0 => KeyBound::Unbounded,
            1 => KeyBound::Token { token: key.token(), inclusive: random.one_in(2) },
            _ => KeyBound::Key { key, inclusive: random.one_in(2) },
        }
    };
    let keys = match random.below(3) {
        0 => KeyRange::all(),
        1 => KeyRange::Single(key(random.below(4) as i32)),
        _ => KeyRange::Range { start: bound(random), end: bound(random) },
    };
    let slices = match random.below(3) {
        0 => Slices::all(),
        _ => Slices::new((0..random.below(4)).map(|_| slice(random, table)).collect(), table.comparator()),
    };
    ReadRange { keys, slices, reversed: random.one_in(2) }
}

fn history(seed: u64, table: &Arc<Table>, shards: usize, deletions: bool) {
    println!("seed {seed}");
    let random = &mut Random(seed);
    let memtable = Arc::new(TrieMemtable::new(table, shards));
    let mut partitions: BTreeMap<PartitionKey, Partition> = BTreeMap::new();
    let mut updates: Vec<PartitionUpdate> = (0..60).map(|_| update(random, table, deletions)).collect();
    for update in &updates {
        memtable.apply(update, None).expect("room");
        partitions.entry(update.key().clone()).or_default().write(update, table);
        check(&memtable, &partitions, table, &random_range(random, table));
    }
    // The same in another order, some of it twice, is the same.
    let shuffled = Arc::new(TrieMemtable::new(table, shards));
    while !updates.is_empty() {
        let update = &updates[random.below(updates.len())];
        shuffled.apply(update, None).expect("room");
        if !random.one_in(4) {
            let bytes = update.as_bytes().to_vec();
            updates.retain(|update| update.as_bytes() != bytes);
        }
    }
    for reversed in [false, true] {
        let range = ReadRange { keys: KeyRange::all(), slices: Slices::all(), reversed };
        check(&memtable, &partitions, table, &range);
        check(&shuffled, &partitions, table, &range);
    }
    assert_eq!(memtable.statistics().partition_count, partitions.len() as u64);
}

#[test]
fn histories_without_deletions_agree_with_the_model() {
    for seed in seeds(0..60) {
        history(seed, &table(), 1 + seed as usize % 3, false);
    }
}

#[test]
fn histories_with_deletions_agree_with_the_model() {
    for seed in seeds(100..400) {
        history(seed, &table(), 1 + seed as usize % 3, true);
    }
}

#[test]
fn histories_over_clusterings_that_paths_do_not_give_back_agree_with_the_model() {
    for seed in seeds(500..600) {
        history(seed, &table_with_decimal(), 2, true);
    }
}
