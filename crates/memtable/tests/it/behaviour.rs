//! The memtable's behaviour in particular situations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memtable::{Memtable, TrieMemtable};
use memtrie::TrieOptions;
use model::{
    Cell, ClusteringBound, ColumnData, ColumnKind, DeletionTime, KeyBound, KeyRange, Liveness, PartitionKey,
    PartitionUpdate, PartitionUpdateBuilder, ReadRange, Row, RowBuilder, RowObserver, Side, Slice, Slices, Table,
    TableBuilder, TableId, Unfiltered, push_component,
};
use types::{CqlType, Token};

use crate::against_model::{clustering, key, table};
use crate::cells::read_partition;
use crate::kinds::{Kind, for_all_kinds};

/// A table without clustering.
pub fn simple_table() -> Arc<Table> {
    let builder = TableBuilder::new("k", "s", TableId(uuid::Uuid::from_u128(7)))
        .partition_key("p", CqlType::Int)
        .regular("v", CqlType::Blob);
    Arc::new(builder.build())
}

fn row_blob(table: &Table, timestamp: i64, value: &[u8]) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(timestamp));
    builder.cell(0, &Cell::live(timestamp, value));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    blob
}

pub fn put(table: &Arc<Table>, p: i32, clustering: &[u8], timestamp: i64, value: &[u8]) -> PartitionUpdate {
    let mut builder = PartitionUpdateBuilder::new(table.clone(), key(p));
    builder.row(clustering, &row_blob(table, timestamp, value));
    builder.build()
}

/// The clusterings and first values of all rows in the range.
fn rows(memtable: &Arc<dyn Memtable>, table: &Arc<Table>, range: &ReadRange) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut cursor = memtable.clone().cursor(table, range);
    let mut found = Vec::new();
    while cursor.advance_partition().expect("memory") {
        while cursor.advance().expect("memory") {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                let value = row.row.columns(table).find_map(|(index, data)| match data {
                    ColumnData::Simple(cell) if index == 0 => Some(cell.value.to_vec()),
                    _ => None,
                });
                found.push((row.clustering.to_vec(), value));
            }
        }
    }
    found
}

#[test]
fn a_table_without_clustering_has_one_row_for_each_partition() {
    for_all_kinds(a_table_without_clustering_has_one_row_for_each_partition_of);
}

fn a_table_without_clustering_has_one_row_for_each_partition_of(kind: Kind) {
    let table = simple_table();
    let memtable = kind.open(&table, 3);
    for p in 0..500 {
        memtable.apply(&put(&table, p, &[], 5, &p.to_be_bytes()), None).expect("room");
    }
    memtable.apply(&put(&table, 7, &[], 4, b"older"), None).expect("room");
    memtable.apply(&put(&table, 8, &[], 6, b"newer"), None).expect("room");
    let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(9));
    deletion.delete_partition(DeletionTime::new(5, 1));
    memtable.apply(&deletion.build(), None).expect("room");
    assert_eq!(rows(&memtable, &table, &ReadRange::all_rows(KeyRange::all())).len(), 499);
    for (p, expected) in [(7, Some(7_i32.to_be_bytes().to_vec())), (8, Some(b"newer".to_vec())), (9, None)] {
        for reversed in [false, true] {
            let range = ReadRange { keys: KeyRange::Single(key(p)), slices: Slices::all(), reversed };
            let found = rows(&memtable, &table, &range);
            assert_eq!(found.first().and_then(|(_, value)| value.clone()), expected);
        }
    }
    // Prefetching changes no answer; some of the keys do not exist.
    let keys: Vec<PartitionKey> = (490..510).map(key).collect();
    memtable.prefetch(&keys.iter().collect::<Vec<_>>());
    let found =
        keys.iter().map(|key| rows(&memtable, &table, &ReadRange::all_rows(KeyRange::Single(key.clone()))).len());
    assert_eq!(found.sum::<usize>(), 10);
    let none = ReadRange { keys: KeyRange::all(), slices: Slices::none(), reversed: false };
    assert_eq!(rows(&memtable, &table, &none), []);
    assert_eq!(memtable.statistics().partition_count, 500);
    assert_eq!(memtable.statistics().timestamp_min, 4);
    assert_eq!(memtable.statistics().local_deletion_time_min, 1);
}

#[test]
fn shards_begin_at_the_tokens_that_they_are_given_and_are_read_in_order() {
    let table = simple_table();
    let mut tokens: Vec<Token> = (0..100).map(|p| key(p).token()).collect();
    tokens.sort_unstable();
    // The first shard has no token of these, the second one the smallest, and the last one the largest.
    let firsts = [tokens[0], tokens[1], tokens[40], tokens[99]];
    let divided = Arc::new(TrieMemtable::divided(&table, firsts.into(), TrieOptions::default(), &Arc::default()));
    let equal: Arc<dyn Memtable> = Arc::new(TrieMemtable::new(&table, 3));
    for p in 0..100 {
        for memtable in [&(divided.clone() as Arc<dyn Memtable>), &equal] {
            memtable.apply(&put(&table, p, &[], 5, &p.to_be_bytes()), None).expect("room");
        }
    }
    let puts: Vec<u64> = divided.puts().iter().map(|puts| puts.uncontended).collect();
    assert_eq!(puts, [0, 1, 39, 59, 1]);
    let divided: Arc<dyn Memtable> = divided;
    for p in 0..101 {
        let range = ReadRange::all_rows(KeyRange::Single(key(p)));
        assert_eq!(rows(&divided, &table, &range).len(), usize::from(p < 100));
    }
    for (first, last) in [(0, 99), (0, 0), (1, 39), (39, 40), (40, 99), (99, 99)] {
        let bound = |at: usize| KeyBound::Token { token: tokens[at], inclusive: true };
        let range = ReadRange::all_rows(KeyRange::Range { start: bound(first), end: bound(last) });
        let found = rows(&divided, &table, &range);
        assert_eq!((found.len(), &found), (last - first + 1, &rows(&equal, &table, &range)));
    }
}

/// Partitions of many batches, in both directions, as a whole and by slices, also when the reader leaves them early.
#[test]
fn a_partition_larger_than_a_batch_is_read_in_pieces() {
    for_all_kinds(a_partition_larger_than_a_batch_is_read_in_pieces_of);
}

fn a_partition_larger_than_a_batch_is_read_in_pieces_of(kind: Kind) {
    let table = table();
    let memtable = kind.open(&table, 2);
    let count = 3000;
    for p in 0..3 {
        for a in 0..count {
            let value = vec![b'v'; (a as usize * 7) % 300];
            memtable.apply(&put(&table, p, &clustering(a, "x"), 5, &value), None).expect("room");
        }
    }
    let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(1));
    for a in (100..count).step_by(50) {
        let prefix = clustering(a, "x")[..8].to_vec();
        let slice = Slice {
            start: ClusteringBound::new(prefix.clone(), Side::Before),
            end: ClusteringBound::new(prefix, Side::After),
        };
        deletion.delete_range(slice, DeletionTime::new(10, 1));
    }
    memtable.apply(&deletion.build(), None).expect("room");
    let deleted = |a: i32| a >= 100 && a % 50 == 0;
    for reversed in [false, true] {
        for p in 0..3 {
            let range = ReadRange { keys: KeyRange::Single(key(p)), slices: Slices::all(), reversed };
            let mut expected: Vec<_> =
                (0..count).filter(|&a| p != 1 || !deleted(a)).map(|a| clustering(a, "x")).collect();
            if reversed {
                expected.reverse();
            }
            let found: Vec<_> = rows(&memtable, &table, &range).into_iter().map(|(clustering, _)| clustering).collect();
            assert!(found == expected, "partition {p}, reversed {reversed}");
            let mut cursor = memtable.clone().cursor(&table, &range);
            assert!(cursor.advance_partition().expect("memory"));
            let mut probes: Vec<_> = (0..count).map(|a| clustering(a, "x")).collect();
            if reversed {
                probes.reverse();
            }
            let seen = read_partition(&mut *cursor, &probes, reversed);
            assert_eq!(seen.ranges.len(), if p == 1 { count as usize / 50 - 2 } else { 0 });
        }
        // Some rows of each partition, then the next partition.
        let range = ReadRange { keys: KeyRange::all(), slices: Slices::all(), reversed };
        let mut cursor = memtable.clone().cursor(&table, &range);
        let mut partitions = 0;
        while cursor.advance_partition().expect("memory") {
            for _ in 0..700 * partitions {
                assert!(cursor.advance().expect("memory"));
            }
            partitions += 1;
        }
        assert_eq!(partitions, 3);
    }
}

#[test]
fn values_of_many_megabytes_are_kept_and_read() {
    for_all_kinds(values_of_many_megabytes_are_kept_and_read_of);
}

fn values_of_many_megabytes_are_kept_and_read_of(kind: Kind) {
    let table = simple_table();
    let memtable = kind.open(&table, 1);
    let values: Vec<Vec<u8>> = (0..4).map(|i| vec![i; 2_500_000 * i as usize]).collect();
    for (p, value) in values.iter().enumerate() {
        memtable.apply(&put(&table, p as i32, &[], 1, value), None).expect("room");
    }
    for (p, value) in values.iter().enumerate() {
        let found = rows(&memtable, &table, &ReadRange::all_rows(KeyRange::Single(key(p as i32))));
        assert!(found[0].1.as_ref() == Some(value));
    }
    let all: usize = values.iter().map(Vec::len).sum();
    let used = memtable.memory().used_bytes as usize;
    assert!(used > all && used < all + 100_000, "{used} for {all}");
}

/// Ends a test's loops when a thread panics.
struct Failing<'a>(&'a AtomicBool);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One update replaces the whole partition, again and again: a reader sees one version, never parts of two.
#[test]
fn an_update_of_several_rows_is_seen_whole_or_not_at_all() {
    for_all_kinds(an_update_of_several_rows_is_seen_whole_or_not_at_all_of);
}

fn an_update_of_several_rows_is_seen_whole_or_not_at_all_of(kind: Kind) {
    let table = table();
    let memtable = kind.open(&table, 1);
    let row_count = 8;
    let version = |timestamp: i64| {
        let mut builder = PartitionUpdateBuilder::new(table.clone(), key(0));
        if timestamp % 3 == 0 {
            builder.delete_partition(DeletionTime::new(timestamp - 1, 1));
        }
        for a in 0..row_count {
            let b = if timestamp % 2 == 0 { "even" } else { "odd" };
            let blob = row_blob(&table, timestamp, &timestamp.to_be_bytes());
            builder.row(&clustering(a, b), &blob);
        }
        let other = if timestamp % 2 == 0 { "odd" } else { "even" };
        for a in 0..row_count {
            builder.delete_range(Slice::prefix(&clustering(a, other)), DeletionTime::new(timestamp, 1));
        }
        builder.build()
    };
    memtable.apply(&version(1), None).expect("room");
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reversed in [false, true] {
            let (memtable, table, done, reads) = (&memtable, &table, &done, &reads);
            scope.spawn(move || {
                let range = ReadRange { keys: KeyRange::Single(key(0)), slices: Slices::all(), reversed };
                let mut last = Vec::new();
                let _failing = Failing(done);
                while !done.load(Ordering::Relaxed) {
                    let found = rows(memtable, table, &range);
                    assert_eq!(found.len(), row_count as usize);
                    let version = found[0].1.clone().expect("a value");
                    assert!(found.iter().all(|(_, value)| value.as_ref() == Some(&version)), "one version");
                    assert!(version >= last, "never back");
                    last = version;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut timestamp = 1;
        // Until the readers have read enough, with a minimum of writes.
        while (timestamp < 300 || reads.load(Ordering::Relaxed) < 300) && !done.load(Ordering::Relaxed) {
            timestamp += 1;
            memtable.apply(&version(timestamp), None).expect("room");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_full_memtable_refuses_an_update_without_any_effect() {
    let table = table();
    let limits = TrieOptions { blocks_bytes_max: 128 << 10, blobs_bytes_max: 256 << 10, ..TrieOptions::default() };
    let memtable: Arc<dyn Memtable> = Arc::new(TrieMemtable::with_options(&table, 1, limits));
    let all = ReadRange::all_rows(KeyRange::all());
    let mut written = 0;
    loop {
        let mut builder = PartitionUpdateBuilder::new(table.clone(), key(written % 5));
        for b in ["one", "two", "three"] {
            builder.row(&clustering(written, b), &row_blob(&table, 1, &[b'x'; 100]));
        }
        if memtable.apply(&builder.build(), None).is_err() {
            break;
        }
        written += 1;
    }
    assert!(written > 100);
    assert_eq!(rows(&memtable, &table, &all).len(), 3 * written as usize);
    let used = memtable.memory();
    assert!(memtable.apply(&put(&table, 1, &clustering(-1, "big"), 1, &vec![0; 300_000]), None).is_err());
    assert_eq!(memtable.memory().used_bytes, used.used_bytes);
    assert_eq!(rows(&memtable, &table, &all).len(), 3 * written as usize);
}

#[test]
fn rows_are_read_under_older_and_newer_schemas_than_they_were_written_under() {
    for_all_kinds(rows_are_read_under_older_and_newer_schemas_than_they_were_written_under_of);
}

fn rows_are_read_under_older_and_newer_schemas_than_they_were_written_under_of(kind: Kind) {
    let old = table();
    let new = Arc::new(
        old.to_builder().add("z", CqlType::Int, ColumnKind::Regular).drop_column("w", CqlType::Int, 50).build(),
    );
    let memtable = kind.open(&old, 1);
    let row = |table: &Table, timestamp: i64, names: &[&str]| {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        let mut cells: Vec<_> =
            names.iter().map(|name| (table.regulars().index_of(name).expect("there"), name)).collect();
        cells.sort();
        cells.iter().for_each(|(index, name)| builder.cell(*index, &Cell::live(timestamp, name.as_bytes())));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    };
    let write = |table: &Arc<Table>, a: i32, blob: &[u8]| {
        let mut builder = PartitionUpdateBuilder::new(table.clone(), key(0));
        builder.row(&clustering(a, ""), blob);
        memtable.apply(&builder.build(), None).expect("room");
    };
    let names = |table: &Arc<Table>| -> Vec<Vec<String>> {
        let mut cursor = memtable.clone().cursor(table, &ReadRange::all_rows(KeyRange::all()));
        assert!(cursor.advance_partition().expect("memory"));
        let mut all = Vec::new();
        while cursor.advance().expect("memory") {
            let Unfiltered::Row(row) = cursor.unfiltered() else { panic!("no markers here") };
            let name = |index: usize| table.regulars().columns[index].name.to_string();
            all.push(row.row.columns(table).map(|(index, _)| name(index)).collect());
        }
        all
    };
    write(&old, 1, &row(&old, 10, &["v", "w"]));
    write(&old, 2, &row(&old, 90, &["v", "w"]));
    assert_eq!(names(&new), [vec!["v"], vec!["v"]]);
    memtable.table_altered(&new);
    write(&new, 1, &row(&new, 20, &["z"]));
    // A write with the old schema.
    write(&old, 3, &row(&old, 30, &["v"]));
    assert_eq!(names(&new), [vec!["v", "z"], vec!["v"], vec!["v"]]);
    // In the old schema `w` is not dropped, and no memtable applies a drop.
    assert_eq!(names(&old), [vec!["v", "w"], vec!["v", "w"], vec!["v"]]);
}

/// Clustering, row before, row after.
type Change = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

#[derive(Default)]
struct Watcher(Vec<Change>);

impl RowObserver for Watcher {
    fn row_changed(
        &mut self,
        _: &Table,
        _: &PartitionKey,
        clustering: &[u8],
        before: Option<Row<'_>>,
        after: Option<Row<'_>>,
    ) {
        let bytes = |row: Option<Row<'_>>| row.map(|row| row.as_bytes().to_vec());
        self.0.push((clustering.to_vec(), bytes(before), bytes(after)));
    }
}

#[test]
fn an_observer_sees_every_changed_row() {
    for_all_kinds(an_observer_sees_every_changed_row_of);
}

fn an_observer_sees_every_changed_row_of(kind: Kind) {
    let table = table();
    let memtable = kind.open(&table, 1);
    let apply = |update: &PartitionUpdate| {
        let mut watcher = Watcher::default();
        memtable.apply(update, Some(&mut watcher)).expect("room");
        watcher.0
    };
    let (first, second) = (row_blob(&table, 5, b"first"), row_blob(&table, 6, b"second"));
    let at = clustering(1, "a");
    assert_eq!(apply(&put(&table, 0, &at, 5, b"first")), [(at.clone(), None, Some(first.clone()))]);
    assert_eq!(apply(&put(&table, 0, &at, 4, b"older")), []);
    assert_eq!(apply(&put(&table, 0, &at, 6, b"second")), [(at.clone(), Some(first), Some(second.clone()))]);
    let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
    deletion.delete_range(Slice::all(), DeletionTime::new(7, 1));
    assert_eq!(apply(&deletion.build()), [(at.clone(), Some(second), None)]);
    assert_eq!(apply(&put(&table, 0, &at, 7, b"shadowed")), []);
}

/// A clustering of several components with nulls and empty values is read as it was written.
#[test]
fn clusterings_come_back_as_they_were_written() {
    for_all_kinds(clusterings_come_back_as_they_were_written_of);
}

fn clusterings_come_back_as_they_were_written_of(kind: Kind) {
    let table = table();
    let memtable = kind.open(&table, 1);
    let mut written = Vec::new();
    for a in [Some([].as_slice()), Some(&[0, 0, 0, 9])] {
        for b in [Some([].as_slice()), Some(b"\x00".as_slice()), Some(b"\xff\x00\xfe"), Some(b"b")] {
            let mut clustering = Vec::new();
            push_component(a, &mut clustering);
            push_component(b, &mut clustering);
            memtable.apply(&put(&table, 0, &clustering, 1, b""), None).expect("room");
            written.push(clustering);
        }
    }
    written.sort_by(|a, b| table.comparator().compare(a, b));
    let found = rows(&memtable, &table, &ReadRange::all_rows(KeyRange::all()));
    assert_eq!(found.into_iter().map(|(clustering, _)| clustering).collect::<Vec<_>>(), written);
}

/// Deletions that arrive between two batches of a read apply to the rest of the partition: a marker covers a row that
/// they removed here, so that an older version of it elsewhere stays deleted.
#[test]
fn a_deletion_between_two_batches_covers_the_rest_of_the_partition() {
    for_all_kinds(a_deletion_between_two_batches_covers_the_rest_of_the_partition_of);
}

fn a_deletion_between_two_batches_covers_the_rest_of_the_partition_of(kind: Kind) {
    let table = table();
    let count = 2000;
    type Delete = fn(&mut PartitionUpdateBuilder);
    let whole: Delete = |builder| builder.delete_partition(DeletionTime::new(50, 1));
    let range: Delete = |builder| {
        let end = ClusteringBound::new(clustering(1900, "x")[..8].to_vec(), Side::Before);
        let start = ClusteringBound::new(clustering(100, "x")[..8].to_vec(), Side::Before);
        builder.delete_range(Slice { start, end }, DeletionTime::new(50, 1));
    };
    let cases = [(whole, 0, count), (range, 100, 1900)];
    for (delete, first, end) in cases {
        for reversed in [false, true] {
            for slices in [
                Slices::all(),
                Slices::new(
                    vec![
                        Slice::prefix(&clustering(7, "x")),
                        Slice {
                            start: ClusteringBound::new(clustering(20, "x")[..8].to_vec(), Side::After),
                            end: ClusteringBound::top(),
                        },
                    ],
                    table.comparator(),
                ),
            ] {
                let memtable = kind.open(&table, 1);
                for a in 0..count {
                    memtable.apply(&put(&table, 0, &clustering(a, "x"), 5, &[b'v'; 100]), None).expect("room");
                }
                let range = ReadRange { keys: KeyRange::all(), slices: slices.clone(), reversed };
                let mut cursor = memtable.clone().cursor(&table, &range);
                assert!(cursor.advance_partition().expect("memory"));
                let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
                delete(&mut deletion);
                memtable.apply(&deletion.build(), None).expect("room");
                let mut probes: Vec<_> =
                    (0..count).map(|a| clustering(a, "x")).filter(|c| slices.contains(c, table.comparator())).collect();
                if reversed {
                    probes.reverse();
                }
                let seen = read_partition(&mut *cursor, &probes, reversed);
                let rows: Vec<&Vec<u8>> = seen.rows.iter().map(|(clustering, _)| clustering).collect();
                let covered: Vec<&Vec<u8>> = seen.ranges.iter().map(|(clustering, _)| clustering).collect();
                assert_eq!(!covered.is_empty(), kind.reads_on(), "a version read to its end knows nothing of it");
                assert!(!rows.is_empty());
                for a in (0..count).filter(|&a| probes.contains(&clustering(a, "x"))) {
                    let at = clustering(a, "x");
                    let is_deleted = (first..end).contains(&a);
                    assert!(
                        rows.contains(&&at) || (is_deleted && covered.contains(&&at)),
                        "{a} is neither seen nor covered"
                    );
                    assert!(is_deleted || !covered.contains(&&at), "{a} is covered without being deleted");
                }
            }
        }
    }
}

/// An update of two rows arrives after a reader of all partitions has seen the first row: it gets the second one as the
/// update found it, in each partition that is small, wherever the batches of the read end.
#[test]
fn a_read_of_all_partitions_sees_each_small_partition_in_one_version() {
    for_all_kinds(|kind| {
        for (slices, deletes) in [(Slices::all(), false), (Slices::all(), true), (two_slices(), false)] {
            sees_small_partitions_in_one_version(kind, &slices, deletes);
        }
    });
}

fn two_slices() -> Slices {
    let slices = (1..3).map(|a| Slice::prefix(&clustering(a, "x")[..8])).collect();
    Slices::new(slices, table().comparator())
}

fn sees_small_partitions_in_one_version(kind: Kind, slices: &Slices, deletes: bool) {
    let table = table();
    let memtable = kind.open(&table, 2);
    let write = |p: i32, timestamp: i64, value: &[u8]| {
        let mut builder = PartitionUpdateBuilder::new(table.clone(), key(p));
        if deletes && timestamp == 5 {
            builder.delete_partition(DeletionTime::new(1, 1));
            builder.delete_range(Slice::prefix(&clustering(7, "x")[..8]), DeletionTime::new(2, 1));
        }
        (1..3).for_each(|a| builder.row(&clustering(a, "x"), &row_blob(&table, timestamp, value)));
        memtable.apply(&builder.build(), None).expect("room");
    };
    let count = 400;
    (0..count).for_each(|p| write(p, 5, &vec![b'o'; 40 + p as usize * 7 % 300]));
    let range = ReadRange { keys: KeyRange::all(), slices: slices.clone(), reversed: false };
    let mut cursor = memtable.clone().cursor(&table, &range);
    let mut read = 0;
    while cursor.advance_partition().expect("memory") {
        let p = i32::from_be_bytes(cursor.partition().key.bytes().try_into().expect("an int"));
        let mut timestamps = Vec::new();
        while cursor.advance().expect("memory") {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                timestamps.push(row.row.liveness().timestamp);
                write(p, 6, b"new");
            }
        }
        assert_eq!(timestamps, [5, 5], "partition {p}");
        read += 1;
    }
    assert_eq!(read, count);
}

/// Threads write one partition and others at the same time, some of them the same rows: nothing is lost, and the counts
/// match the writes.
#[test]
fn concurrent_writers_lose_no_update() {
    for_all_kinds(|kind| {
        let table = table();
        let memtable = kind.open(&table, 2);
        let (writers, writes) = (6, 400);
        let grown = std::sync::atomic::AtomicI64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let (memtable, table, grown) = (&memtable, &table, &grown);
                scope.spawn(move || {
                    for n in 0..writes {
                        let p = if n % 2 == 0 { 0 } else { n % 7 };
                        // Rows of its own, and one that all threads write.
                        let own = clustering(writer * writes + n, "own");
                        let shared = clustering(n % 5, "shared");
                        let mut builder = PartitionUpdateBuilder::new(table.clone(), key(p));
                        builder.row(&own, &row_blob(table, 1, b"own"));
                        builder.row(&shared, &row_blob(table, i64::from(n), &n.to_be_bytes()));
                        let growth = memtable.apply(&builder.build(), None).expect("room");
                        grown.fetch_add(growth, Ordering::Relaxed);
                    }
                });
            }
        });
        let found = rows(&memtable, &table, &ReadRange::all_rows(KeyRange::all()));
        let own = found.iter().filter(|(_, value)| value.as_deref() == Some(b"own")).count();
        assert_eq!(own, (writers * writes) as usize);
        let newest =
            |p: i32, a: i32| (0..writes).filter(|n| n % 5 == a && p == if n % 2 == 0 { 0 } else { n % 7 }).max();
        for p in 0..7 {
            let found = rows(&memtable, &table, &ReadRange::all_rows(KeyRange::Single(key(p))));
            for a in 0..5 {
                let at = clustering(a, "shared");
                let value = found.iter().find(|(clustering, _)| *clustering == at).and_then(|(_, value)| value.clone());
                assert_eq!(value, newest(p, a).map(|n| n.to_be_bytes().to_vec()));
            }
        }
        let updates = (writers * writes) as u64;
        assert_eq!((memtable.statistics().update_count, memtable.statistics().partition_count), (updates, 7));
        assert_eq!(memtable.memory().used_bytes as i64, grown.into_inner());
        let puts = memtable.puts().into_iter().reduce(memtable::PutCounts::and).expect("a shard");
        assert_eq!(puts.uncontended + puts.contended, updates);
    });
}
