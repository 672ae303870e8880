//! What is left of tables in memory after a purge, for rows and partitions of every size.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtable::{Purge, ResidentTable, for_each_update};
use model::{
    Cell, ClusteringBound, ColumnData, DeletionTime, KeyRange, Liveness, PartitionKey, PartitionUpdateBuilder,
    ReadError, ReadRange, Row, RowBuilder, Side, Slice, Slices, Table,
};
use testkit::{Random, seeds};

use crate::against_model::{
    LARGE, SMALL, Scale, all_clusterings, clustering, expected, key, table, table_with_decimal, update, wide_table,
    wide_table_of_single_rows,
};
use crate::behaviour::put;
use crate::cells::{Partition, RowCells, Seen, read_partition};

/// Drops what was deleted before one time or has expired by another.
#[derive(Clone, Copy)]
struct Rules {
    now_seconds: u32,
    gc_before: u32,
}

impl Rules {
    fn keeps_cell(self, cell: &Cell<'_>) -> bool {
        cell.is_live(self.now_seconds) || (cell.is_tombstone() && cell.local_deletion_time >= self.gc_before)
    }

    fn keeps_liveness(self, liveness: &Liveness) -> bool {
        liveness.is_live(self.now_seconds)
    }

    fn left(self, deletion: DeletionTime) -> DeletionTime {
        if deletion.local_deletion_time < self.gc_before { DeletionTime::LIVE } else { deletion }
    }

    fn row_cells(self, mut row: RowCells) -> RowCells {
        row.deletion = self.left(row.deletion);
        if !self.keeps_liveness(&row.liveness) {
            row.liveness = Liveness::EMPTY;
        }
        row.cells.retain(|_, cell| self.keeps_cell(&cell.cell()));
        row.complex_deletions.retain(|_, deletion| !self.left(*deletion).is_live());
        row
    }

    fn seen(self, seen: Seen) -> Seen {
        let rows = seen.rows.into_iter().map(|(clustering, row)| (clustering, self.row_cells(row)));
        Seen {
            deletion: self.left(seen.deletion),
            static_row: self.row_cells(seen.static_row),
            rows: rows.filter(|(_, row)| !row.is_empty()).collect(),
            ranges: seen.ranges.into_iter().filter(|(_, deletion)| !self.left(*deletion).is_live()).collect(),
        }
    }
}

impl Purge for Rules {
    fn deletion(&mut self, deletion: DeletionTime) -> DeletionTime {
        self.left(deletion)
    }

    fn leaves_alone(&mut self, row: Row<'_>, table: &Table) -> bool {
        row.plain(table).is_some()
    }

    fn row(&mut self, row: Row<'_>, table: &Table, out: &mut Vec<u8>) -> bool {
        let mut builder = RowBuilder::default();
        builder.start(table.columns(row.is_static()), row.is_static());
        if self.keeps_liveness(&row.liveness()) {
            builder.liveness(row.liveness());
        }
        builder.deletion(self.left(row.deletion()));
        for (index, data) in row.kept_columns(table) {
            match data {
                ColumnData::Simple(cell) if self.keeps_cell(&cell) => builder.cell(index, &cell),
                ColumnData::Simple(_) => {}
                ColumnData::Complex(cells) => {
                    builder.complex(index, self.left(cells.deletion));
                    cells.filter(|cell| self.keeps_cell(cell)).for_each(|cell| builder.complex_cell(&cell));
                }
            }
        }
        out.clear();
        let is_something = !builder.is_empty();
        if is_something {
            builder.finish(out);
        }
        is_something
    }
}

fn everything(reversed: bool) -> ReadRange {
    ReadRange { keys: KeyRange::all(), slices: Slices::all(), reversed }
}

/// The same data in a new table.
fn copied(resident: &ResidentTable, table: &Arc<Table>) -> ResidentTable {
    let copy = ResidentTable::new(table, 1, 0);
    let mut cursor = resident.cursor(table, &everything(false));
    let done = for_each_update(&mut cursor, table, |update| {
        copy.apply(&update).expect("room");
        Ok::<(), ReadError>(())
    });
    done.expect("memory");
    copy
}

fn assert_is_compact(resident: &ResidentTable, table: &Arc<Table>) {
    let (used, least) = (resident.used_bytes(), copied(resident, table).used_bytes());
    assert!(used <= least + least / 20 + 256, "{used} bytes, {least} in a new table");
    assert_eq!(used, resident.memory().used_bytes);
}

fn history(seed: u64, table: &Arc<Table>, scale: Scale) {
    println!("seed {seed}");
    let random = &mut Random(seed);
    let resident = ResidentTable::new(table, 1, 0);
    let mut partitions: BTreeMap<PartitionKey, Partition> = BTreeMap::new();
    for _ in 0..50 {
        let update = update(random, table, scale, true);
        resident.apply(&update).expect("room");
        partitions.entry(update.key().clone()).or_default().write(&update, table);
    }
    // Deletions have times 1000 to 1002, expirations 2000 to 2002: everything is purged in the end.
    for (walked, now_seconds, gc_before) in [(1, 1500, 1001), (2, 2001, 1002), (3, 2001, 1002), (4, 2010, 1500)] {
        let mut rules = Rules { now_seconds, gc_before };
        resident.purge(10_000 * walked, &mut rules);
        for reversed in [false, true] {
            let mut probes = all_clusterings(table);
            if reversed {
                probes.reverse();
            }
            let range = everything(reversed);
            let mut cursor = resident.cursor(table, &range);
            for (key, partition) in &partitions {
                let expected = rules.seen(expected(partition, table, &range.slices, &probes));
                let is_gone = expected.deletion.is_live()
                    && expected.static_row.is_empty()
                    && expected.rows.is_empty()
                    && expected.ranges.is_empty();
                if is_gone {
                    continue;
                }
                assert!(cursor.advance_partition().expect("memory"), "{key:?}");
                assert_eq!(cursor.partition().key, key);
                read_partition(&mut *cursor, &probes, reversed).assert_is(&expected, &range);
            }
            while cursor.advance_partition().expect("memory") {
                // The model does not see ranges that lie between possible rows.
                let seen = read_partition(&mut *cursor, &probes, reversed);
                assert!(seen.rows.is_empty() && seen.static_row.is_empty() && seen.deletion.is_live());
            }
        }
        assert_is_compact(&resident, table);
    }
}

#[test]
fn purged_histories_agree_with_the_model() {
    seeds(0..60).for_each(|seed| history(seed, &table(), SMALL));
    seeds(100..130).for_each(|seed| history(seed, &table_with_decimal(), SMALL));
}

#[test]
fn purged_histories_of_large_rows_agree_with_the_model() {
    for seed in seeds(200..210) {
        history(seed, &wide_table(), LARGE);
        history(seed, &wide_table_of_single_rows(), LARGE);
        history(seed, &table_with_decimal(), Scale { paths: 200, ..LARGE });
    }
}

const ROWS: i32 = 20_000;

fn range(from: i32, to: i32, deletion: DeletionTime, table: &Arc<Table>) -> model::PartitionUpdate {
    let bound = |a: i32, side| ClusteringBound::new(clustering(a, "")[..8].to_vec(), side);
    let mut update = PartitionUpdateBuilder::new(table.clone(), key(1));
    update.delete_range(Slice { start: bound(from, Side::Before), end: bound(to, Side::Before) }, deletion);
    update.build()
}

/// A partition that takes many stretches: ranges, row deletions and rows, some of which stay.
#[test]
fn a_purge_frees_parts_of_a_large_partition_and_finally_all_of_it() {
    let table = table();
    let resident = ResidentTable::new(&table, 1, 0);
    let empty = resident.used_bytes();
    for a in 0..ROWS {
        resident.apply(&put(&table, 1, &clustering(a, ""), 5, b"value")).expect("room");
    }
    let deletion = |a: i32| DeletionTime::new(10, if a % 5 == 0 { 2000 } else { 1000 });
    (0..ROWS).step_by(2).for_each(|a| resident.apply(&range(a, a + 1, deletion(a), &table)).expect("room"));
    let full = resident.used_bytes();
    let mut rules = Rules { now_seconds: 1500, gc_before: 1500 };
    resident.purge(1500, &mut rules);
    assert!(resident.used_bytes() < full - (full - empty) / 7, "{} of {full}", resident.used_bytes());
    assert_is_compact(&resident, &table);
    let mut cursor = resident.cursor(&table, &everything(true));
    assert!(cursor.advance_partition().expect("memory"));
    let probes: Vec<_> = (0..ROWS).rev().map(|a| clustering(a, "")).collect();
    let seen = read_partition(&mut *cursor, &probes, true);
    assert_eq!(seen.rows.len() as i32, ROWS / 2);
    let left: Vec<_> = (0..ROWS).rev().filter(|a| a % 10 == 0).map(|a| (clustering(a, ""), deletion(a))).collect();
    assert!(seen.ranges == left, "{} ranges, {} expected", seen.ranges.len(), left.len());
    drop(cursor);
    resident.apply(&range(-1, ROWS, DeletionTime::new(20, 2000), &table)).expect("room");
    resident.purge(3000, &mut Rules { now_seconds: 3000, gc_before: 3000 });
    assert!(resident.used_bytes() <= empty + 100, "{} bytes", resident.used_bytes() - empty);
}

/// The bytes that each of `count` deletions leaves, including the nodes that lead to it. One row in `every` exists and
/// is deleted.
fn tombstone_bytes(count: i32, every: i32, delete: impl Fn(i32, &Arc<Table>) -> model::PartitionUpdate) -> f64 {
    let table = table();
    let resident = ResidentTable::new(&table, 1, 0);
    resident.apply(&put(&table, 1, &clustering(-1, ""), 5, b"stays")).expect("room");
    let before = resident.used_bytes();
    let rows = || (0..count).map(|row| row * every);
    rows().for_each(|a| resident.apply(&put(&table, 1, &clustering(a, ""), 5, &[b'v'; 100])).expect("room"));
    rows().for_each(|a| resident.apply(&delete(a, &table)).expect("room"));
    let mut cursor = resident.cursor(&table, &everything(false));
    assert!(cursor.advance_partition().expect("memory"));
    let probes: Vec<_> = (-1..count * every).map(|a| clustering(a, "")).collect();
    let seen = read_partition(&mut *cursor, &probes, false);
    assert_eq!(seen.rows.iter().filter(|(_, row)| !row.liveness.is_empty()).count(), 1, "the one that stays");
    (resident.used_bytes() - before) as f64 / f64::from(count)
}

#[test]
fn the_remains_of_deleted_rows_are_small() {
    let at = |a: i32| DeletionTime::new(1_700_000_000_000_000 + i64::from(a), 1_700_000_000);
    let of_range = |a, table: &Arc<Table>| range(a, a + 1, at(a), table);
    let of_prefix = |a, table: &Arc<Table>| {
        let bound = |side| ClusteringBound::new(clustering(a, "")[..8].to_vec(), side);
        let mut update = PartitionUpdateBuilder::new(table.clone(), key(1));
        update.delete_range(Slice { start: bound(Side::Before), end: bound(Side::After) }, at(a));
        update.build()
    };
    let of_row = |a, table: &Arc<Table>| {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        builder.deletion(at(a));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(table.clone(), key(1));
        update.row(&clustering(a, ""), &blob);
        update.build()
    };
    let of_all = |_, table: &Arc<Table>| range(0, 10_000, at(0), table);
    let of_run = |a, table: &Arc<Table>| range(a, a + 1, at(0), table);
    let left = [
        ("a row of a run", tombstone_bytes(10_000, 1, of_row), 24.0),
        ("a range by itself", tombstone_bytes(10_000, 2, of_range), 24.5),
        ("one that touches the next", tombstone_bytes(10_000, 1, of_range), 24.0),
        ("all of a prefix", tombstone_bytes(10_000, 2, of_prefix), 24.5),
        ("rows that one range deletes", tombstone_bytes(10_000, 1, of_all), 0.01),
        ("ranges of one time that touch", tombstone_bytes(10_000, 1, of_run), 0.01),
    ];
    println!("{left:?}");
    left.iter().for_each(|(what, bytes, limit)| assert!(bytes <= limit, "{what}: {bytes} bytes"));
}
