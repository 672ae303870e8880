//! Partitions of which nearly all is deleted.

use std::sync::Arc;

use memtable::Memtable;
use model::{
    ClusteringBound, DeletionTime, KeyRange, PartitionUpdateBuilder, ReadRange, Side, Slice, Slices, Table, Unfiltered,
};

use crate::against_model::{clustering, key, table};
use crate::behaviour::put;
use crate::kinds::for_all_kinds;

const ROWS: i32 = 4000;
/// One of so many rows is live.
const GAP: i32 = 400;

fn bound(a: i32, side: Side) -> ClusteringBound {
    ClusteringBound::new(clustering(a, "")[..8].to_vec(), side)
}

/// The next live row at or after `a`, or at or before it, and how many rows and markers a cursor gave until it.
fn next_live(memtable: &Arc<dyn Memtable>, table: &Arc<Table>, a: i32, reversed: bool) -> (Vec<u8>, usize) {
    let slice = if reversed {
        Slice { start: ClusteringBound::bottom(), end: bound(a, Side::After) }
    } else {
        Slice { start: bound(a, Side::Before), end: ClusteringBound::top() }
    };
    let slices = Slices::new(vec![slice], table.comparator());
    let mut cursor = memtable.clone().cursor(table, &ReadRange { keys: KeyRange::Single(key(0)), slices, reversed });
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

/// However many rows ranges deleted, the next live one is behind the border of the range, and they take no memory.
#[test]
fn the_next_live_row_is_at_hand_behind_deleted_ranges() {
    for_all_kinds(|kind| {
        let table = table();
        let [memtable, live_only] = [(); 2].map(|()| kind.open(&table, 1));
        let mut deletion = PartitionUpdateBuilder::new(table.clone(), key(0));
        for a in (0..ROWS).step_by(GAP as usize) {
            let slice = Slice { start: bound(a, Side::After), end: bound(a + GAP, Side::Before) };
            deletion.delete_range(slice, DeletionTime::new(10, 1));
        }
        let deletion = deletion.build();
        // Some rows come before the deletion, some after it, and are shadowed all the same.
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
