//! Rows that are looked up without a cursor are those that a cursor has, in files that Cassandra wrote.

use std::sync::Arc;

use model::{
    ClusteringBound, Clusterings, DeletionTime, KeyRange, PartitionKey, ReadRange, Side, Slice, Slices, Unfiltered,
    UnfilteredCursor, push_component,
};
use sstable::{Edge, PartitionSlice, SSTableReader, find_rows};
use testkit::Random;

use crate::fixture::{Fixture, NAMES};

const PARTITIONS_MAX: usize = 60;
const SLICES: usize = 25;

/// A clustering and a row.
type Found = (Vec<u8>, Vec<u8>);

/// The rows that a cursor has up to the first that comes with a deletion; whether there is one.
fn read(sstable: &SSTableReader, range: &ReadRange) -> (Vec<Found>, bool) {
    let (mut rows, mut is_deleted) = (Vec::new(), false);
    let mut cursor = sstable.cursor(range).unwrap();
    while cursor.advance_partition().unwrap() {
        is_deleted |= !cursor.partition().deletion.is_live();
        let mut open = DeletionTime::LIVE;
        while cursor.advance().unwrap() {
            match cursor.unfiltered() {
                Unfiltered::Row(row) if !is_deleted && !row.row.has_deletion() && open.is_live() => {
                    rows.push((row.clustering.to_vec(), row.row.as_bytes().to_vec()));
                }
                Unfiltered::Row(_) => is_deleted = true,
                Unfiltered::Marker(marker) => open = if range.reversed { marker.before } else { marker.after },
            }
        }
    }
    (rows, is_deleted)
}

fn keys(sstable: &SSTableReader) -> Vec<PartitionKey> {
    let mut keys = Vec::new();
    let mut cursor = sstable.scan().unwrap();
    while keys.len() < PARTITIONS_MAX && cursor.advance_partition().unwrap() {
        keys.push(cursor.partition().key.clone());
    }
    keys
}

/// A place at a row, before or behind it, or at all rows that begin as it does.
fn bound(random: &mut Random, rows: &[Found]) -> ClusteringBound {
    let side = if random.one_in(2) { Side::Before } else { Side::After };
    let Some((clustering, _)) = rows.get(random.below(rows.len() + 1)) else {
        return ClusteringBound::new(vec![], side);
    };
    let mut prefix = Vec::new();
    let count = random.below(Clusterings(clustering).count() + 1);
    Clusterings(clustering).take(count).for_each(|component| push_component(component, &mut prefix));
    ClusteringBound::new(if random.one_in(3) { prefix } else { clustering.clone() }, side)
}

/// How many slices were found, and how many rows in them.
fn compare(name: &str) -> (usize, usize) {
    let sstable = Arc::new(Fixture::load(name).open());
    let table = sstable.table().clone();
    let mut random = Random(name.len() as u64);
    let (mut slices_found, mut rows_found) = (0, 0);
    for key in keys(&sstable) {
        let all = ReadRange::all_rows(KeyRange::Single(key.clone()));
        let (known, _) = read(&sstable, &all);
        for _ in 0..SLICES {
            let slice = Slice { start: bound(&mut random, &known), end: bound(&mut random, &known) };
            if slice.is_empty(table.comparator()) {
                continue;
            }
            let (reversed, limit) = (random.one_in(2), random.below(30));
            let edge = |bound: &ClusteringBound| (bound.prefix.clone(), bound.side.weight());
            let (start, end) = (edge(&slice.start), edge(&slice.end));
            let slices = Slices::new(vec![slice], table.comparator());
            let (expected, is_deleted) = read(&sstable, &ReadRange { slices, reversed, ..all.clone() });
            let place = PartitionSlice {
                token: key.token(),
                key: key.bytes(),
                start: Edge { prefix: &start.0, weight: start.1 },
                end: Edge { prefix: &end.0, weight: end.1 },
                reversed,
                borders_max: 10,
            };
            let mut found: Vec<Found> = Vec::new();
            let is_found = find_rows(std::slice::from_ref(&sstable), &table, &place, &mut |row| {
                found.push((row.clustering.to_vec(), row.row.as_bytes().to_vec()));
                found.len() <= limit
            });
            if is_found {
                let count = expected.len().min(limit + 1);
                assert_eq!(found, expected[..count], "{name}, {place:?}, {limit}");
                assert!(!is_deleted || expected.len() > limit, "{name}, {place:?}, {limit}");
                slices_found += 1;
                rows_found += count;
            }
        }
    }
    (slices_found, rows_found)
}

#[test]
fn rows_of_cassandras_files_are_found_as_a_cursor_finds_them() {
    for name in NAMES {
        let (slices, rows) = compare(name);
        println!("{name}: {slices} slices, {rows} rows");
        let has_rows = match name {
            "wide" | "wide16k" | "wide_blocks" | "desc_ck" => rows > 50,
            _ => true,
        };
        assert!(has_rows, "{name}: {rows} rows");
    }
}

#[test]
fn what_the_cache_lacks_is_left_to_a_cursor() {
    let sstable = Arc::new(Fixture::load("wide").open());
    let table = sstable.table().clone();
    let key = sstable.first_key().clone();
    let edge = |weight: i8| Edge { prefix: &[], weight };
    let slice = PartitionSlice {
        token: key.token(),
        key: key.bytes(),
        start: edge(-1),
        end: edge(1),
        reversed: false,
        borders_max: 0,
    };
    let find = || find_rows(std::slice::from_ref(&sstable), &table, &slice, &mut |_| true);
    let before = sstable.data_bytes_read();
    assert!(!find(), "nothing was read yet");
    assert_eq!(sstable.data_bytes_read(), before, "nor by looking");
    let slices =
        Slices::new(vec![Slice { start: ClusteringBound::bottom(), end: ClusteringBound::top() }], table.comparator());
    read(&sstable, &ReadRange { slices, ..ReadRange::all_rows(KeyRange::Single(key.clone())) });
    assert!(find(), "a cursor read it");
}
