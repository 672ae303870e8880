//! The simple model: cells, liveness and deletions as they were written, reconciled when asked.

use std::collections::BTreeMap;

use model::{
    Cell, ColumnData, DeletionTime, Liveness, PartitionUpdate, RangeDeletion, Row, Table, Unfiltered, UnfilteredCursor,
    reconcile_cells,
};

#[derive(Clone, PartialEq, Debug)]
pub struct OwnedCell {
    pub timestamp: i64,
    pub ttl: i32,
    pub local_deletion_time: u32,
    pub value: Vec<u8>,
}

impl OwnedCell {
    fn of(cell: &Cell<'_>) -> OwnedCell {
        let Cell { timestamp, ttl, local_deletion_time, value, .. } = *cell;
        OwnedCell { timestamp, ttl, local_deletion_time, value: value.to_vec() }
    }

    pub fn cell(&self) -> Cell<'_> {
        let OwnedCell { timestamp, ttl, local_deletion_time, value } = self;
        Cell { timestamp: *timestamp, ttl: *ttl, local_deletion_time: *local_deletion_time, path: &[], value }
    }
}

/// A row as a reader sees it, or everything written to it.
#[derive(Clone, PartialEq, Debug)]
pub struct RowCells {
    pub liveness: Liveness,
    pub deletion: DeletionTime,
    /// By column and path.
    pub cells: BTreeMap<(usize, Vec<u8>), OwnedCell>,
    pub complex_deletions: BTreeMap<usize, DeletionTime>,
}

impl Default for RowCells {
    fn default() -> Self {
        RowCells {
            liveness: Liveness::EMPTY,
            deletion: DeletionTime::LIVE,
            cells: BTreeMap::new(),
            complex_deletions: BTreeMap::new(),
        }
    }
}

impl RowCells {
    pub fn is_empty(&self) -> bool {
        *self == RowCells::default()
    }

    pub fn write(&mut self, row: Row<'_>, table: &Table) {
        self.deletion = self.deletion.max(row.deletion());
        if row.liveness().supersedes(&self.liveness) {
            self.liveness = row.liveness();
        }
        for (index, data) in row.columns(table) {
            match data {
                ColumnData::Simple(cell) => self.write_cell(index, &cell),
                ColumnData::Complex(cells) => {
                    let deletion = self.complex_deletions.entry(index).or_insert(DeletionTime::LIVE);
                    *deletion = deletion.max(cells.deletion);
                    cells.for_each(|cell| self.write_cell(index, &cell));
                }
            }
        }
    }

    fn write_cell(&mut self, index: usize, cell: &Cell<'_>) {
        let key = (index, cell.path.to_vec());
        let cell = match self.cells.get(&key) {
            Some(existing) => OwnedCell::of(&reconcile_cells(existing.cell(), Cell { path: &[], ..*cell })),
            None => OwnedCell::of(cell),
        };
        self.cells.insert(key, cell);
    }

    /// The differences between the two.
    fn difference(&self, expected: &RowCells) -> Vec<String> {
        let mut differing = Vec::new();
        if (self.liveness, self.deletion) != (expected.liveness, expected.deletion) {
            let RowCells { liveness, deletion, .. } = expected;
            differing.push(format!("{:?}, {:?} for {liveness:?}, {deletion:?}", self.liveness, self.deletion));
        }
        if self.complex_deletions != expected.complex_deletions {
            differing.push(format!("{:?} for {:?}", self.complex_deletions, expected.complex_deletions));
        }
        let keys: std::collections::BTreeSet<_> = self.cells.keys().chain(expected.cells.keys()).collect();
        let short = |cell: Option<&OwnedCell>| cell.map(|c| (c.timestamp, c.ttl, c.local_deletion_time, c.value.len()));
        for key in keys.into_iter().filter(|key| self.cells.get(*key) != expected.cells.get(*key)).take(20) {
            differing.push(format!(
                "{key:?}: {:?} for {:?}",
                short(self.cells.get(key)),
                short(expected.cells.get(key))
            ));
        }
        differing
    }

    /// What remains of the row under a larger deletion.
    pub fn visible(&self, around: DeletionTime) -> RowCells {
        let mut visible = RowCells::default();
        let active = around.max(self.deletion);
        if self.deletion.supersedes(&around) {
            visible.deletion = self.deletion;
        }
        if !active.deletes(self.liveness.timestamp) {
            visible.liveness = self.liveness;
        }
        for (&index, &deletion) in &self.complex_deletions {
            if deletion.supersedes(&active) {
                visible.complex_deletions.insert(index, deletion);
            }
        }
        for ((index, path), cell) in &self.cells {
            let column = self.complex_deletions.get(index).copied().unwrap_or(DeletionTime::LIVE);
            if !active.max(column).deletes(cell.timestamp) {
                visible.cells.insert((*index, path.clone()), cell.clone());
            }
        }
        visible
    }
}

/// Everything written to a partition.
#[derive(Default)]
pub struct Partition {
    pub deletion: Option<DeletionTime>,
    pub static_row: RowCells,
    pub rows: BTreeMap<Vec<u8>, RowCells>,
    pub ranges: Vec<RangeDeletion>,
}

impl Partition {
    pub fn write(&mut self, update: &PartitionUpdate, table: &Table) {
        self.deletion = Some(self.deletion().max(update.partition_deletion()));
        if let Some(row) = update.static_row() {
            self.static_row.write(row, table);
        }
        for row in update.rows() {
            self.rows.entry(row.clustering.to_vec()).or_default().write(row.row, table);
        }
        self.ranges.extend(update.range_deletions());
    }

    pub fn deletion(&self) -> DeletionTime {
        self.deletion.unwrap_or(DeletionTime::LIVE)
    }

    /// The range deletion at a row, if it is newer than the partition's.
    pub fn range_deletion_at(&self, clustering: &[u8], table: &Table) -> DeletionTime {
        let comparator = table.comparator();
        let newest = self.ranges.iter().filter(|range| {
            comparator.compare_row_to_bound(clustering, &range.slice.start).is_gt()
                && comparator.compare_row_to_bound(clustering, &range.slice.end).is_lt()
        });
        let newest = newest.fold(DeletionTime::LIVE, |newest, range| newest.max(range.deletion));
        if newest.supersedes(&self.deletion()) { newest } else { DeletionTime::LIVE }
    }
}

/// What a cursor yielded of a partition: rows, and the range deletion in force at each of the probed clusterings.
#[derive(PartialEq, Debug)]
pub struct Seen {
    pub deletion: DeletionTime,
    pub static_row: RowCells,
    pub rows: Vec<(Vec<u8>, RowCells)>,
    pub ranges: Vec<(Vec<u8>, DeletionTime)>,
}

impl Seen {
    /// Fails if `expected` differs, with a short description of the difference.
    pub fn assert_is(&self, expected: &Seen, context: &dyn std::fmt::Debug) {
        if self == expected {
            return;
        }
        let ranges = (&self.ranges, &expected.ranges);
        let rows =
            |seen: &Seen| -> Vec<Vec<u8>> { seen.rows.iter().map(|(clustering, _)| clustering.clone()).collect() };
        let mut differing = vec![self.static_row.difference(&expected.static_row)];
        differing.extend(self.rows.iter().zip(&expected.rows).map(|((_, a), (_, b))| a.difference(b)));
        differing.retain(|row| !row.is_empty());
        panic!("{context:?}: rows {:?} for {:?}, ranges {ranges:?}: {differing:?}", rows(self), rows(expected));
    }
}

/// Reads the cursor's current partition, and checks its order and its markers. `probes` are in reading order.
pub fn read_partition(cursor: &mut dyn UnfilteredCursor, probes: &[Vec<u8>], reversed: bool) -> Seen {
    let table = cursor.table().clone();
    let head = cursor.partition();
    let mut static_row = RowCells::default();
    if let Some(row) = head.static_row {
        static_row.write(row, &table);
        static_row.complex_deletions.retain(|_, deletion| !deletion.is_live());
    }
    let mut seen = Seen { deletion: head.deletion, static_row, rows: Vec::new(), ranges: Vec::new() };
    let mut open = DeletionTime::LIVE;
    let mut last: Option<(Vec<u8>, i8)> = None;
    let mut probes = probes.iter().peekable();
    while cursor.advance().expect("memory does not fail") {
        let (prefix, weight) = match cursor.unfiltered() {
            Unfiltered::Row(row) => (row.clustering.to_vec(), 0),
            Unfiltered::Marker(marker) => {
                (marker.prefix.to_vec(), if marker.side == model::Side::Before { -1 } else { 1 })
            }
        };
        let is_after = |a: (&[u8], i8), b: (&[u8], i8)| {
            let order = table.comparator().compare_positions(a.0, a.1, b.0, b.1);
            if reversed { order.is_lt() } else { order.is_gt() }
        };
        if let Some((last, last_weight)) = &last {
            assert!(
                is_after((&prefix, weight), (last, *last_weight)),
                "{prefix:?} {weight} after {last:?} {last_weight}"
            );
        }
        while let Some(probe) = probes.next_if(|probe| is_after((&prefix, weight), (probe, 0))) {
            seen.ranges.push((probe.clone(), open));
        }
        match cursor.unfiltered() {
            Unfiltered::Row(row) => {
                let mut cells = RowCells::default();
                cells.write(row.row, &table);
                cells.complex_deletions.retain(|_, deletion| !deletion.is_live());
                assert!(!cells.is_empty(), "no empty rows");
                seen.rows.push((row.clustering.to_vec(), cells));
            }
            Unfiltered::Marker(marker) => {
                let (from, to) = if reversed { (marker.after, marker.before) } else { (marker.before, marker.after) };
                assert_eq!(from, open, "markers are well nested");
                assert_ne!(from, to);
                open = to;
            }
        }
        last = Some((prefix, weight));
    }
    assert!(open.is_live(), "every range closes");
    seen.ranges.extend(probes.map(|probe| (probe.clone(), DeletionTime::LIVE)));
    seen.ranges.retain(|(_, deletion)| !deletion.is_live());
    seen
}
