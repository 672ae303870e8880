//! Partitions in which nearly everything is deleted.

use std::sync::Arc;

use memtable::{Memtable, TrieMemtable};
use memtrie::{Layout, TrieOptions};
use model::{
    BoxCursor, ClusteringBound, DeletionTime, KeyRange, PartitionUpdateBuilder, ReadRange, RowBuilder, Side, Slice,
    Slices, Table, Unfiltered, UnfilteredCursor,
};
use testkit::{Random, seeds};

use crate::against_model::{LARGE, SMALL, clustering, key, table, update};
use crate::behaviour::put;
use crate::cells::{RowCells, read_partition};
use crate::kinds::for_all_kinds;

const ROWS: i32 = 4000;
/// One of this many rows is live.
const GAP: i32 = 400;

fn bound(a: i32, side: Side) -> ClusteringBound {
    ClusteringBound::new(clustering(a, "")[..8].to_vec(), side)
}

/// The next live row at or after `a`, or at or before it, and how many rows and markers a cursor yielded up to it.
fn next_live(memtable: &Arc<dyn Memtable>, table: &Arc<Table>, a: i32, reversed: bool) -> (Vec<u8>, usize) {
    first_live(memtable.clone().cursor(table, &rows_from(table, a, reversed)))
}

fn rows_from(table: &Arc<Table>, a: i32, reversed: bool) -> ReadRange {
    let slice = if reversed {
        Slice { start: ClusteringBound::bottom(), end: bound(a, Side::After) }
    } else {
        Slice { start: bound(a, Side::Before), end: ClusteringBound::top() }
    };
    let slices = Slices::new(vec![slice], table.comparator());
    ReadRange { keys: KeyRange::Single(key(0)), slices, reversed }
}

fn first_live(mut cursor: BoxCursor<'static>) -> (Vec<u8>, usize) {
    assert!(cursor.advance_partition().expect("memory"));
    for steps in 1.. {
        assert!(cursor.advance().expect("memory"), "there is a live row");
        if let Unfiltered::Row(row) = cursor.unfiltered()
            && !row.row.liveness().is_empty()
        {
            return (row.clustering.to_vec(), steps);
        }
    }
    unreachable!("the loop has no end")
}

/// However many rows a range deleted, the next live one comes right after the range's border, and the deleted ones take
/// no memory.
#[test]
fn the_next_live_row_after_deleted_ranges_is_found_at_once() {
    for_all_kinds(|kind| {
        let table = table();
        let [memtable, live_only] = [(); 2].map(|()| kind.open(&table, 1));
        let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
        for a in (0..ROWS).step_by(GAP as usize) {
            let slice = Slice { start: bound(a, Side::After), end: bound(a + GAP, Side::Before) };
            deletion.delete_range(slice, DeletionTime::new(10, 1));
        }
        let deletion = deletion.build();
        // Some rows come before the deletion and some after it; all are shadowed.
        for a in 0..ROWS {
            memtable.apply(&put(&table, 0, &clustering(a, ""), 5, b"value"), None).expect("room");
            if a == ROWS / 2 {
                memtable.apply(&deletion, None).expect("room");
            }
        }
        for a in (0..ROWS).step_by(GAP as usize) {
            live_only.apply(&put(&table, 0, &clustering(a, ""), 5, b"value"), None).expect("room");
        }
        live_only.apply(&deletion, None).expect("room");
        for a in (1..ROWS - GAP).step_by(37) {
            for (reversed, expected) in [(false, (a + GAP - 1) / GAP * GAP), (true, a / GAP * GAP)] {
                let (found, steps) = next_live(&memtable, &table, a, reversed);
                assert_eq!(found, clustering(expected, ""), "from {a}, reversed {reversed}");
                assert!(steps <= 3, "{steps} steps from {a}, reversed {reversed}");
            }
        }
        let (used, least) = (memtable.memory().used_bytes, live_only.memory().used_bytes);
        assert!(used <= least + least / 10, "{used} bytes for what takes {least} with its live rows only");
    });
}

/// Deletes all rows but one of `GAP`: each by itself, the rows between two live ones by a range, or both.
fn delete(memtable: &TrieMemtable, table: &Arc<Table>, by_rows: bool, by_ranges: bool) {
    for first in (0..ROWS).step_by(GAP as usize) {
        let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
        if by_ranges {
            let slice = Slice { start: bound(first, Side::After), end: bound(first + GAP, Side::Before) };
            deletion.delete_range(slice, DeletionTime::new(10, 1));
        }
        for a in first + 1..first + GAP {
            let mut row = RowBuilder::default();
            row.start(table.regulars(), false);
            // It is newer than the range, so it is kept beside it.
            row.deletion(DeletionTime::new(11, 1));
            let mut blob = Vec::new();
            row.finish(&mut blob);
            if by_rows {
                deletion.row(&clustering(a, ""), &blob);
            }
        }
        memtable.apply(&deletion.build(), None).expect("room");
    }
}

/// A cursor over live rows yields the next one in one step, and nothing else, however the rows before it were deleted.
#[test]
fn a_live_cursor_steps_over_any_number_of_deletions() {
    for layout in [Layout::Adaptive, Layout::Paper] {
        for (by_rows, by_ranges) in [(true, false), (false, true), (true, true)] {
            let table = table();
            let memtable =
                Arc::new(TrieMemtable::with_options(&table, 1, TrieOptions { layout, ..TrieOptions::default() }));
            for a in 0..ROWS {
                memtable.apply(&put(&table, 0, &clustering(a, ""), 5, b"value"), None).expect("room");
            }
            delete(&memtable, &table, by_rows, by_ranges);
            for a in (1..ROWS - GAP).step_by(37) {
                for (reversed, expected) in [(false, (a + GAP - 1) / GAP * GAP), (true, a / GAP * GAP)] {
                    let cursor = memtable.clone().live_cursor(&table, &rows_from(&table, a, reversed));
                    assert_eq!(first_live(cursor), (clustering(expected, ""), 1), "from {a}, reversed {reversed}");
                }
            }
            let mut cursor = memtable.live_cursor(&table, &ReadRange::all_rows(KeyRange::all()));
            assert!(cursor.advance_partition().expect("memory"));
            let mut count = 0;
            while cursor.advance().expect("memory") {
                assert!(matches!(cursor.unfiltered(), Unfiltered::Row(row) if row.row.deletion().is_live()));
                count += 1;
            }
            assert_eq!(count, ROWS / GAP);
        }
    }
}

/// It yields the same as a normal cursor, without the deletions of rows and ranges.
#[test]
fn a_live_cursor_gives_every_row_that_has_something_besides_its_deletion() {
    for seed in seeds(0..12) {
        println!("seed {seed}");
        let table = table();
        let memtable = Arc::new(TrieMemtable::new(&table, 1));
        let random = &mut Random(seed);
        for _ in 0..300 {
            let scale = if random.one_in(10) { LARGE } else { SMALL };
            memtable.apply(&update(random, &table, scale, true), None).expect("room");
        }
        for (p, reversed) in [(0, false), (1, true), (2, false), (2, true)] {
            let range = ReadRange { keys: KeyRange::Single(key(p)), slices: Slices::all(), reversed };
            let rows = |mut cursor: BoxCursor<'static>| -> Vec<(Vec<u8>, RowCells)> {
                assert!(cursor.advance_partition().expect("memory"));
                read_partition(&mut cursor, &[], reversed).rows
            };
            let mut expected = rows(memtable.clone().cursor(&table, &range));
            expected.iter_mut().for_each(|(_, row)| row.deletion = DeletionTime::LIVE);
            expected.retain(|(_, row)| !row.is_empty());
            assert_eq!(rows(memtable.clone().live_cursor(&table, &range)), expected, "partition {p}");
        }
    }
}

/// A partition's deletion looks at its rows, and copies none of them. What it removed is free again.
#[test]
fn a_partitions_deletion_takes_two_steps_for_each_row_that_it_removes() {
    let table = table();
    let memtable = TrieMemtable::new(&table, 1);
    memtable.apply(&put(&table, 1, &clustering(1, ""), 5, b"kept"), None).expect("room");
    let used_bytes = memtable.memory().used_bytes;
    for a in 0..ROWS {
        memtable.apply(&put(&table, 0, &clustering(a, ""), 5, b"value"), None).expect("room");
        let mut row = RowBuilder::default();
        row.start(table.regulars(), false);
        row.deletion(DeletionTime::new(6, 1));
        let mut blob = Vec::new();
        row.finish(&mut blob);
        let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
        deletion.row(&clustering(a, ""), &blob);
        if a % 10 == 0 {
            memtable.apply(&deletion.build(), None).expect("room");
        }
    }
    let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
    deletion.delete_partition(DeletionTime::new(10, 1));
    let counted = types::steps::counted();
    memtable.apply(&deletion.build(), None).expect("room");
    let steps = types::steps::counted() - counted;
    assert!(steps <= 2 * ROWS as u64 + 10, "{steps} steps for {ROWS} rows");
    let left_bytes = memtable.memory().used_bytes - used_bytes;
    assert!(left_bytes < 200, "{left_bytes} bytes are left");
}
