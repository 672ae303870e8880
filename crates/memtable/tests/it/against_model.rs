//! Random histories in any order of arrival, against the model of cells.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtable::Memtable;
use model::{
    Cell, ClusteringBound, DeletionTime, KeyBound, KeyRange, Liveness, PartitionKey, PartitionUpdate,
    PartitionUpdateBuilder, ReadRange, RowBuilder, Side, Slice, Slices, Table, TableBuilder, TableId, push_component,
};
use testkit::{Random, seeds};
use types::CqlType;

use crate::cells::{Partition, Seen, read_partition};
use crate::kinds::{KINDS, Kind};

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

/// Like `table`, with a clustering that its path does not give back byte for byte.
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

/// Many columns, with complex columns of every kind of path, and complex static columns.
pub fn wide_table() -> Arc<Table> {
    let (text, timeuuid) = (|| Arc::new(CqlType::Text), CqlType::Timeuuid);
    let mut builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(3)))
        .partition_key("p", CqlType::Int)
        .clustering("a", CqlType::Int, false)
        .clustering("b", CqlType::Text, true)
        .static_column("s", CqlType::Text)
        .static_column("sm", map_type())
        .regular("l", CqlType::List { element: text(), frozen: false })
        .regular("m", map_type())
        .regular("n", CqlType::Set { element: Arc::new(timeuuid), frozen: false })
        .regular("o", CqlType::Set { element: text(), frozen: false });
    for column in 0..30 {
        builder = builder.regular(&format!("v{column}"), CqlType::Text);
    }
    Arc::new(builder.build())
}

/// The same rows without clustering.
pub fn wide_table_of_single_rows() -> Arc<Table> {
    let mut builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::from_u128(4)))
        .partition_key("p", CqlType::Int)
        .regular("m", map_type())
        .regular("o", CqlType::Set { element: Arc::new(CqlType::Text), frozen: false });
    for column in 0..30 {
        builder = builder.regular(&format!("v{column}"), CqlType::Text);
    }
    Arc::new(builder.build())
}

/// How large rows are.
#[derive(Clone, Copy)]
pub struct Scale {
    /// The most cells in a complex column.
    pub paths: i32,
    /// A value has one of these lengths.
    pub value_bytes: [usize; 3],
}

pub const SMALL: Scale = Scale { paths: 4, value_bytes: [4, 9, 4] };
pub const LARGE: Scale = Scale { paths: 40, value_bytes: [4, 60, 900] };

fn path(ty: &CqlType, number: i32) -> Vec<u8> {
    match ty {
        CqlType::Map { .. } => number.to_be_bytes().to_vec(),
        CqlType::Set { element, .. } if **element == CqlType::Text => format!("{:0>30}", number).into_bytes(),
        _ => {
            let mut uuid = [0; 16];
            uuid[..4].copy_from_slice(&number.to_be_bytes());
            uuid[6] = 0x10;
            uuid.to_vec()
        }
    }
}

pub fn key(p: i32) -> PartitionKey {
    PartitionKey::new(&p.to_be_bytes())
}

pub fn clustering(a: i32, b: &str) -> Vec<u8> {
    let mut out = Vec::new();
    // One byte is an invalid int, but the same bytes serve the varint table.
    push_component(Some(&a.to_be_bytes()), &mut out);
    push_component(Some(b.as_bytes()), &mut out);
    out
}

pub fn all_clusterings(table: &Table) -> Vec<Vec<u8>> {
    if table.clustering().is_empty() {
        return vec![Vec::new()];
    }
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

fn row(random: &mut Random, table: &Table, is_static: bool, scale: Scale, out: &mut Vec<u8>) {
    let mut builder = RowBuilder::default();
    let set = table.columns(is_static);
    builder.start(set, is_static);
    if !is_static && random.one_in(2) {
        builder.liveness(match random.below(3) {
            0 => Liveness { timestamp: random.below(30) as i64, ttl: 10, expiration: 2000 + random.below(3) as u32 },
            _ => Liveness::at(random.below(30) as i64),
        });
    }
    // Without clustering a row's deletion is the partition's.
    if !is_static && !table.clustering().is_empty() && random.one_in(8) {
        builder.deletion(deletion(random));
    }
    // Large rows get much at once, or little by little.
    let most = if scale.paths > 4 && random.one_in(2) { 16 } else { 3 };
    for (index, column) in set.columns.iter().enumerate() {
        if if most == 3 { random.one_in(3) } else { !random.one_in(most) } {
            continue;
        }
        let value = vec![b'a' + random.below(2) as u8; scale.value_bytes[random.below(3)]];
        if !column.is_complex() {
            // The column `w` is an int, so it has four bytes.
            let value = if column.ty == CqlType::Int { &value[..4] } else { &value };
            builder.cell(index, &cell(random, value));
            continue;
        }
        builder.complex(index, if random.one_in(6) { deletion(random) } else { DeletionTime::LIVE });
        for number in 0..scale.paths {
            if random.one_in(if most == 3 { 2 } else { 12 }) {
                let path = path(&column.ty, number);
                builder.complex_cell(&cell(random, &value).with_path(&path));
            }
        }
    }
    if builder.is_empty() {
        builder.cell(0, &Cell::live(random.below(30) as i64, b"some"));
    }
    builder.finish(out);
}

pub fn update(random: &mut Random, table: &Arc<Table>, scale: Scale, deletions: bool) -> PartitionUpdate {
    let has_clustering = !table.clustering().is_empty();
    let mut builder = PartitionUpdateBuilder::new(table.clone(), key(random.below(3) as i32));
    let mut blob = Vec::new();
    if deletions && random.one_in(25) {
        builder.delete_partition(deletion(random));
    }
    if has_clustering && random.one_in(8) {
        row(random, table, true, scale, &mut blob);
        builder.static_row(&blob);
    }
    while deletions && has_clustering && random.one_in(6) {
        builder.delete_range(slice(random, table), deletion(random));
    }
    let clusterings = all_clusterings(table);
    let most = if random.one_in(4) { 6 } else { 2 };
    for _ in 0..random.below(most) {
        blob.clear();
        row(random, table, false, scale, &mut blob);
        builder.row(&clusterings[random.below(clusterings.len())], &blob);
    }
    if builder.is_empty() {
        blob.clear();
        row(random, table, false, scale, &mut blob);
        builder.row(&clusterings[0], &blob);
    }
    builder.build()
}

pub fn expected(partition: &Partition, table: &Table, slices: &Slices, probes: &[Vec<u8>]) -> Seen {
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

/// Checks that a cursor agrees with the model, however many rows the reader said it would ask for.
fn check(
    random: &mut Random,
    memtable: &Arc<dyn Memtable>,
    partitions: &BTreeMap<PartitionKey, Partition>,
    table: &Arc<Table>,
    range: &ReadRange,
) {
    let mut probes = all_clusterings(table);
    if range.reversed {
        probes.reverse();
    }
    let mut cursor = memtable.clone().cursor(table, range);
    if random.one_in(2) {
        cursor.expect_rows(random.below(4));
    }
    for (key, partition) in partitions.iter().filter(|(key, _)| range.keys.contains(key)) {
        assert!(cursor.advance_partition().expect("memory"), "{key:?}");
        assert_eq!(cursor.partition().key, key);
        let seen = read_partition(&mut *cursor, &probes, range.reversed);
        seen.assert_is(&expected(partition, table, &range.slices, &probes), range);
        assert!(!cursor.advance().expect("memory"), "a partition that ended stays ended");
    }
    assert!(!cursor.advance_partition().expect("memory"));
}

fn random_range(random: &mut Random, table: &Table) -> ReadRange {
    let has_clustering = !table.clustering().is_empty();
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
        _ if !has_clustering => Slices::all(),
        0 => Slices::all(),
        _ => Slices::new((0..random.below(4)).map(|_| slice(random, table)).collect(), table.comparator()),
    };
    ReadRange { keys, slices, reversed: random.one_in(2) }
}

fn history(seed: u64, kind: Kind, table: &Arc<Table>, shards: usize, scale: Scale, deletions: bool) {
    println!("seed {seed}, {kind:?}");
    let random = &mut Random(seed);
    let tries = kind.open_tries(table, shards);
    let memtable = tries.clone().map_or_else(|| kind.open(table, shards), |tries| tries as Arc<dyn Memtable>);
    let mut partitions: BTreeMap<PartitionKey, Partition> = BTreeMap::new();
    let mut updates: Vec<PartitionUpdate> = (0..60).map(|_| update(random, table, scale, deletions)).collect();
    let mut used_bytes = 0;
    for update in &updates {
        used_bytes += memtable.apply(update, None).expect("room");
        assert_eq!(memtable.memory().used_bytes, used_bytes as u64, "what updates say they take is what is in use");
        partitions.entry(update.key().clone()).or_default().write(update, table);
        let range = random_range(random, table);
        check(random, &memtable, &partitions, table, &range);
        if let Some(tries) = &tries {
            tries.verify().expect("nothing is kept that is deleted");
        }
    }
    // The same updates in another order, with some of them twice, give the same rows.
    let shuffled = kind.open(table, shards);
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
        check(random, &memtable, &partitions, table, &range);
        check(random, &shuffled, &partitions, table, &range);
    }
    assert_eq!(memtable.statistics().partition_count, partitions.len() as u64);
}

#[test]
fn histories_without_deletions_agree_with_the_model() {
    for seed in seeds(0..60) {
        KINDS.iter().for_each(|kind| history(seed, *kind, &table(), 1 + seed as usize % 3, SMALL, false));
    }
}

#[test]
fn histories_with_deletions_agree_with_the_model() {
    for seed in seeds(100..300) {
        KINDS.iter().for_each(|kind| history(seed, *kind, &table(), 1 + seed as usize % 3, SMALL, true));
    }
}

#[test]
fn histories_over_clusterings_that_are_not_invertible_agree_with_the_model() {
    for seed in seeds(500..560) {
        KINDS.iter().for_each(|kind| history(seed, *kind, &table_with_decimal(), 2, SMALL, true));
    }
}

#[test]
fn histories_of_large_rows_agree_with_the_model() {
    for seed in seeds(1000..1012) {
        for kind in KINDS {
            history(seed, kind, &wide_table(), 1 + seed as usize % 2, LARGE, seed % 4 != 0);
            history(seed, kind, &wide_table_of_single_rows(), 1, LARGE, seed % 4 != 0);
        }
    }
}

#[test]
fn histories_of_large_rows_over_clusterings_that_are_not_invertible_agree_with_the_model() {
    for seed in seeds(1500..1512) {
        let scale = Scale { paths: 200, ..LARGE };
        KINDS.iter().for_each(|kind| history(seed, *kind, &table_with_decimal(), 1, scale, true));
    }
}
