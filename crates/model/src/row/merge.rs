//! Reconciling versions of a row.

use std::cmp::Ordering;

use types::CqlType;

use super::builder::Shared;
use super::cells::Scope;
use super::counter::CounterCell;
use super::{Cell, Cells, ColumnData, ComplexCells, Row, RowBuilder};
use crate::{DeletionTime, Liveness, NO_DELETION_TIME, Table};

/// The winner of two cells of the same column and path, by Cassandra's rules: the newer one; at equal timestamps a
/// deleted or expiring cell before a live one, a deleted one before an expiring one, then the later deletion or
/// expiration, then the smaller TTL, then the greater value. Source: `Cells.resolveRegular` of Cassandra 5.0.8.
pub fn reconcile_cells<'a>(left: Cell<'a>, right: Cell<'a>) -> Cell<'a> {
    if cell_order(&left, &right) == Ordering::Less { right } else { left }
}

fn cell_order(left: &Cell<'_>, right: &Cell<'_>) -> Ordering {
    let ends = |cell: &Cell<'_>| cell.local_deletion_time != NO_DELETION_TIME;
    left.timestamp
        .cmp(&right.timestamp)
        .then_with(|| ends(left).cmp(&ends(right)))
        .then_with(|| left.is_tombstone().cmp(&right.is_tombstone()))
        .then_with(|| left.local_deletion_time.cmp(&right.local_deletion_time))
        .then_with(|| right.ttl.cmp(&left.ttl))
        .then_with(|| left.value.cmp(right.value))
}

/// The size of the groups in which a merge of more versions proceeds: within a group each cell is compared with the
/// cells of all others.
const VERSIONS_AT_ONCE: usize = 8;
const _: () = assert!(VERSIONS_AT_ONCE <= u8::BITS as usize, "each version has a bit");

/// Merges versions of one row into a blob under the table's current columns, including dropped ones. It reuses its
/// buffers for all rows.
#[derive(Debug)]
pub struct RowMerger {
    builder: RowBuilder,
    scope: Scope,
}

impl Default for RowMerger {
    /// A merger that removes the cells which a column's drop removed.
    fn default() -> Self {
        RowMerger { builder: RowBuilder::default(), scope: Scope::Kept }
    }
}

impl RowMerger {
    /// A merger that removes nothing, for a memtable. As in Cassandra, a drop removes cells when they are read, flushed
    /// or compacted; until then a later drop of the same column with an earlier time may bring them back.
    pub fn of_all_written() -> Self {
        RowMerger { builder: RowBuilder::default(), scope: Scope::Written }
    }

    /// Makes room for large versions of this many bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.builder.reserve(bytes);
    }

    /// A limit for the bytes of values and paths in the merge of `versions`: for a column with one value, those of the
    /// longest version. It reads all cells once.
    #[cold]
    pub fn merged_bytes_max(&self, table: &Table, versions: &[Row<'_>]) -> usize {
        let is_static = versions.first().is_some_and(Row::is_static);
        let columns = &table.columns(is_static).columns;
        let (mut longest, mut others) = (vec![0; columns.len()], 0);
        for row in versions {
            for (index, data) in Cells::new(*row, table, self.scope) {
                match data {
                    // A merged counter may have the shards of all versions.
                    ColumnData::Simple(cell) if matches!(columns[index].ty, CqlType::Counter) => {
                        others += cell.value.len();
                    }
                    ColumnData::Simple(cell) => longest[index] = longest[index].max(cell.value.len()),
                    ColumnData::Complex(cells) => {
                        others += cells.map(|cell| cell.path.len() + cell.value.len()).sum::<usize>();
                    }
                }
            }
        }
        longest.iter().sum::<usize>() + others
    }

    /// Appends to `out` the merge of `versions` (all static or all regular) without what `active`, a deletion of the
    /// partition or of a range around the row, deletes. Appends nothing and returns false if nothing is left.
    ///
    /// The cost is n log n for n cells in all versions: a batch may have as many versions as statements.
    pub fn merge(&mut self, table: &Table, versions: &[Row<'_>], active: DeletionTime, out: &mut Vec<u8>) -> bool {
        if versions.len() > VERSIONS_AT_ONCE {
            return self.merge_in_groups(table, versions, active, out);
        }
        let is_something = self.collect(table, versions, active);
        match is_something {
            true => self.builder.finish(out),
            false => self.builder.release(),
        }
        is_something
    }

    /// Merges groups of a few versions, and then their results.
    fn merge_in_groups(
        &mut self,
        table: &Table,
        versions: &[Row<'_>],
        active: DeletionTime,
        out: &mut Vec<u8>,
    ) -> bool {
        // Deletions of all versions apply before cells are reconciled, otherwise a counter would keep deleted counts.
        let deletion = versions.iter().fold(DeletionTime::LIVE, |newest, row| newest.max(row.deletion()));
        let mut merged: Vec<Vec<u8>> = Vec::with_capacity(versions.len() / VERSIONS_AT_ONCE + 2);
        for group in versions.chunks(VERSIONS_AT_ONCE) {
            let mut blob = Vec::new();
            if self.merge(table, group, deletion.max(active), &mut blob) {
                merged.push(blob);
            }
        }
        if deletion.supersedes(&active) {
            let is_static = versions.first().is_some_and(Row::is_static);
            let mut blob = Vec::new();
            self.builder.start(table.columns(is_static), is_static);
            self.builder.deletion(deletion);
            self.builder.finish(&mut blob);
            merged.push(blob);
        }
        let merged: Vec<Row<'_>> = merged.iter().map(|blob| Row::new(blob)).collect();
        self.merge(table, &merged, active, out)
    }

    /// Like `merge`, for a piece of a row and a change to it: appends a piece. Returns its number of cells.
    pub fn merge_piece(&mut self, table: &Table, versions: &[Row<'_>], out: &mut Vec<u8>) -> usize {
        let is_some = self.collect(table, versions, DeletionTime::LIVE);
        let cells = self.builder.cell_count();
        match is_some {
            true => self.builder.finish_piece(out),
            false => self.builder.release(),
        }
        cells
    }

    /// Merges `versions` into the builder. Returns false if nothing is left.
    fn collect(&mut self, table: &Table, versions: &[Row<'_>], active: DeletionTime) -> bool {
        debug_assert!(versions.len() <= VERSIONS_AT_ONCE, "{} versions", versions.len());
        let is_static = versions.first().is_some_and(Row::is_static);
        self.builder.start(table.columns(is_static), is_static);
        let mut liveness = Liveness::EMPTY;
        let mut deletion = DeletionTime::LIVE;
        for row in versions {
            let other = row.liveness();
            if other.supersedes(&liveness) {
                liveness = other;
            }
            deletion = deletion.max(row.deletion());
        }
        let active = if deletion.supersedes(&active) {
            self.builder.deletion(deletion);
            deletion
        } else {
            active
        };
        if !liveness.is_empty() && !active.deletes(liveness.timestamp) {
            self.builder.liveness(liveness);
        } else if let Some(oldest) = versions.iter().map(|row| Shared::of_row(*row)).min() {
            // Later additions to a row are usually small, so most cells have the oldest version's times.
            self.builder.usual(oldest);
        }
        match versions {
            [row] => self.copy_columns(table, *row, active),
            _ => self.merge_columns(table, is_static, versions, active),
        }
        !self.builder.is_empty()
    }

    /// Appends to `out` the row as it reads under `reader`, an older schema of the same table than `writer`, without
    /// columns that `reader` does not know. Appends nothing and returns false if nothing is left.
    pub fn translate(&mut self, row: Row<'_>, writer: &Table, reader: &Table, out: &mut Vec<u8>) -> bool {
        let is_static = row.is_static();
        let (written, read) = (writer.columns(is_static), reader.columns(is_static));
        self.builder.start(read, is_static);
        self.builder.liveness(row.liveness());
        self.builder.deletion(row.deletion());
        for (index, data) in row.kept_columns(writer) {
            let column = &written.columns[index];
            let place = read.index_of_kind(&column.name, column.is_complex());
            match (place, data) {
                (None, _) => {}
                (Some(place), ColumnData::Simple(cell)) => self.builder.cell(place, &cell),
                (Some(place), ColumnData::Complex(cells)) => {
                    self.builder.complex(place, cells.deletion);
                    cells.for_each(|cell| self.builder.complex_cell(&cell));
                }
            }
        }
        if self.builder.is_empty() {
            return false;
        }
        self.builder.finish(out);
        true
    }

    fn copy_columns(&mut self, table: &Table, row: Row<'_>, active: DeletionTime) {
        for (index, data) in Cells::new(row, table, self.scope) {
            match data {
                ColumnData::Simple(cell) if active.deletes(cell.timestamp) => {}
                ColumnData::Simple(cell) => self.builder.cell(index, &cell),
                ColumnData::Complex(cells) => {
                    let active = self.begin_complex(index, cells.deletion, active);
                    cells
                        .filter(|cell| !active.deletes(cell.timestamp))
                        .for_each(|cell| self.builder.complex_cell(&cell));
                }
            }
        }
    }

    /// Begins a complex column. Returns the deletion that applies to its cells.
    fn begin_complex(&mut self, index: usize, deletion: DeletionTime, active: DeletionTime) -> DeletionTime {
        let own = if deletion.supersedes(&active) { deletion } else { DeletionTime::LIVE };
        self.builder.complex(index, own);
        deletion.max(active)
    }

    fn merge_columns(&mut self, table: &Table, is_static: bool, versions: &[Row<'_>], active: DeletionTime) {
        let mut sources: Vec<Source<'_, '_>> =
            versions.iter().map(|row| Source::new(Cells::new(*row, table, self.scope))).collect();
        let mut complex: Vec<ComplexCells<'_>> = Vec::new();
        while let Some(index) = sources.iter().filter_map(Source::index).min() {
            if matches!(table.columns(is_static).columns[index].ty, CqlType::Counter) {
                self.merge_counter(index, &mut sources, active);
                continue;
            }
            let mut simple: Option<Cell<'_>> = None;
            for source in &mut sources {
                match source.take(index) {
                    Some(ColumnData::Simple(cell)) => {
                        simple = Some(simple.map_or(cell, |best| reconcile_cells(best, cell)));
                    }
                    Some(ColumnData::Complex(cells)) => complex.push(cells),
                    None => {}
                }
            }
            if let Some(cell) = simple.filter(|cell| !active.deletes(cell.timestamp)) {
                self.builder.cell(index, &cell);
            }
            if !complex.is_empty() {
                let ty = &table.columns(is_static).columns[index].ty;
                self.merge_complex(ty, index, &mut complex, active);
                complex.clear();
            }
        }
    }

    /// Merges a counter. Deletions are applied before reconciliation, so that deleted shards do not count.
    fn merge_counter(&mut self, index: usize, sources: &mut [Source<'_, '_>], active: DeletionTime) {
        let mut merged: Option<CounterCell<'_>> = None;
        for source in sources {
            if let Some(ColumnData::Simple(cell)) = source.take(index)
                && !active.deletes(cell.timestamp)
            {
                merged = Some(match merged {
                    None => CounterCell::new(cell),
                    Some(merged) => merged.merge(cell),
                });
            }
        }
        if let Some(merged) = merged {
            self.builder.cell(index, &merged.cell());
        }
    }

    fn merge_complex(&mut self, ty: &CqlType, index: usize, versions: &mut [ComplexCells<'_>], active: DeletionTime) {
        let deletion = versions.iter().fold(DeletionTime::LIVE, |deletion, cells| deletion.max(cells.deletion));
        let active = self.begin_complex(index, deletion, active);
        let mut heads: Vec<Option<Cell<'_>>> = versions.iter_mut().map(Iterator::next).collect();
        while let Some((cell, holders)) = first_cell(ty, &heads) {
            for (number, head) in heads.iter_mut().enumerate() {
                if holders & 1 << number != 0 {
                    *head = versions[number].next();
                }
            }
            if !active.deletes(cell.timestamp) {
                self.builder.complex_cell(&cell);
            }
        }
    }
}

/// The cell with the first path among the next cells of up to [`VERSIONS_AT_ONCE`] versions, reconciled, and the bits
/// of the versions that have this path.
fn first_cell<'a>(ty: &CqlType, heads: &[Option<Cell<'a>>]) -> Option<(Cell<'a>, u8)> {
    let mut first: Option<(Cell<'a>, u8)> = None;
    for (number, head) in heads.iter().enumerate() {
        let Some(cell) = *head else { continue };
        let own = 1 << number;
        let order = first.map_or(Ordering::Less, |(first, _)| compare_paths(ty, cell.path, first.path));
        first = match (order, first) {
            (Ordering::Equal, Some((first, holders))) => Some((reconcile_cells(first, cell), holders | own)),
            (Ordering::Greater, _) => first,
            _ => Some((cell, own)),
        };
    }
    first
}

/// The order of the cells' paths within a complex column of type `ty`.
pub fn compare_paths(ty: &CqlType, left: &[u8], right: &[u8]) -> Ordering {
    match ty {
        CqlType::List { .. } => CqlType::Timeuuid.compare(left, right),
        CqlType::Set { element, .. } => element.compare(left, right),
        CqlType::Map { key, .. } => key.compare(left, right),
        // Fields of a user type are identified by a big-endian u16.
        _ => left.cmp(right),
    }
}

/// One version's columns, with the next one already decoded.
struct Source<'a, 't> {
    head: Option<(usize, ColumnData<'a>)>,
    rest: Cells<'a, 't>,
}

impl<'a, 't> Source<'a, 't> {
    fn new(mut rest: Cells<'a, 't>) -> Self {
        Source { head: rest.next(), rest }
    }

    fn index(&self) -> Option<usize> {
        self.head.as_ref().map(|(index, _)| *index)
    }

    fn take(&mut self, index: usize) -> Option<ColumnData<'a>> {
        if self.index() != Some(index) {
            return None;
        }
        std::mem::replace(&mut self.head, self.rest.next()).map(|(_, data)| data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::cells::SLOTS_READ;
    use crate::{TableBuilder, TableId};

    const COLUMNS: usize = 1_000;

    /// A row of the columns whose index is a multiple of `step`.
    fn row(table: &Table, step: usize, timestamp: i64) -> Vec<u8> {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        builder.liveness(Liveness::at(timestamp));
        let value = |index: usize| [timestamp as u8, index as u8];
        (0..COLUMNS).step_by(step).for_each(|index| builder.cell(index, &Cell::live(timestamp, &value(index))));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    }

    #[test]
    fn merging_two_rows_reads_each_slot_of_both_once() {
        let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::nil())).partition_key("p", CqlType::Int);
        let builder = (0..COLUMNS).fold(builder, |builder, index| builder.regular(&format!("v{index}"), CqlType::Blob));
        let table = builder.build();
        // Dense and sparse rows: a dense row has a slot for every column, a sparse one for the columns that are set.
        for (older, newer, slots) in [(1, 1, 2_000), (1, 2, 1_500), (1, 250, 1_004), (400, 250, 7)] {
            let (older, newer) = (row(&table, older, 1), row(&table, newer, 2));
            let mut merged = Vec::new();
            let before = SLOTS_READ.get();
            RowMerger::default().merge(&table, &[Row::new(&older), Row::new(&newer)], DeletionTime::LIVE, &mut merged);
            assert_eq!(SLOTS_READ.get() - before, slots);
        }
    }

    /// What a row says, however it is written.
    fn said(row: &[u8], table: &Table) -> String {
        if row.is_empty() {
            return "nothing".to_owned();
        }
        let row = Row::new(row);
        let columns = row.written_columns(table).map(|(index, data)| match data {
            ColumnData::Simple(cell) => format!("{index}: {cell:?}"),
            ColumnData::Complex(cells) => format!("{index}: {:?} {:?}", cells.deletion, cells.collect::<Vec<_>>()),
        });
        format!("{:?} {:?} {:?}", row.liveness(), row.deletion(), columns.collect::<Vec<_>>())
    }

    /// A version of a row with a few cells, elements and deletions.
    fn random_version(table: &Table, random: &mut testkit::Random) -> Vec<u8> {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        let deletion =
            |random: &mut testkit::Random| DeletionTime::new(random.below(30) as i64, random.below(9) as u32);
        if random.one_in(4) {
            builder.liveness(Liveness::at(random.below(40) as i64));
        }
        if random.one_in(12) {
            builder.deletion(deletion(random));
        }
        for index in 0..3 {
            if random.one_in(3) {
                builder.cell(index, &Cell::live(random.below(40) as i64, &[random.below(5) as u8]));
            }
        }
        let column_deletion = if random.one_in(6) { deletion(random) } else { DeletionTime::LIVE };
        builder.complex(3, column_deletion);
        for path in 0..6_i32 {
            if random.one_in(3) {
                let value = [random.below(5) as u8];
                let cell = match random.below(3) {
                    0 => Cell::tombstone(random.below(40) as i64, 7),
                    _ => Cell::live(random.below(40) as i64, &value),
                };
                builder.complex_cell(&cell.with_path(&path.to_be_bytes()));
            }
        }
        if builder.is_empty() {
            builder.liveness(Liveness::at(1));
        }
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    }

    #[test]
    fn many_versions_merge_to_the_same_row_as_one_by_one() {
        let builder = TableBuilder::new("k", "t", TableId(uuid::Uuid::nil())).partition_key("p", CqlType::Int);
        let builder = (0..3).fold(builder, |builder, index| builder.regular(&format!("v{index}"), CqlType::Blob));
        let table = builder.regular("w", CqlType::map(CqlType::Int, CqlType::Blob)).build();
        for seed in 0..200 {
            let mut random = testkit::Random(seed);
            let count = 1 + random.below(120);
            let versions: Vec<Vec<u8>> = (0..count).map(|_| random_version(&table, &mut random)).collect();
            let active =
                if random.one_in(2) { DeletionTime::new(random.below(20) as i64, 1) } else { DeletionTime::LIVE };
            let rows: Vec<Row<'_>> = versions.iter().map(|version| Row::new(version)).collect();
            let (mut merger, mut at_once, mut one_by_one) = (RowMerger::of_all_written(), Vec::new(), Vec::new());
            merger.merge(&table, &rows, active, &mut at_once);
            for row in &rows {
                let before = std::mem::take(&mut one_by_one);
                let both = [Row::new(&before), *row];
                let both = if before.is_empty() { &both[1..] } else { &both };
                merger.merge(&table, both, active, &mut one_by_one);
            }
            assert_eq!(said(&at_once, &table), said(&one_by_one, &table), "seed {seed}, {count} versions");
        }
    }
}
