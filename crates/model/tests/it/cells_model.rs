//! Rows against a map of cells: everything written is read back, and merging is reconciling cell by cell.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::{
    Cell, ColumnData, DeletionTime, Liveness, NO_DELETION_TIME, Row, RowBuilder, RowMerger, Table, TableBuilder,
    TableId, ValuePlaces, reconcile_cells,
};
use types::CqlType;
use uuid::Uuid;

use testkit::Choices;

/// timestamp, ttl, local deletion time, value
type ModelCell = (i64, i32, u32, Vec<u8>);

#[derive(Clone, Debug, PartialEq)]
struct ModelRow {
    liveness: Liveness,
    deletion: DeletionTime,
    /// By column and path (empty in simple columns).
    cells: BTreeMap<(usize, Vec<u8>), ModelCell>,
    complex: BTreeMap<usize, DeletionTime>,
}

const SIMPLE: usize = 5;
const COMPLEX: usize = 2;

fn table() -> Arc<Table> {
    let mut builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    for name in ["a", "b", "c", "d", "e"] {
        builder = builder.regular(name, CqlType::Blob);
    }
    let builder =
        builder.regular("m", CqlType::map(CqlType::Blob, CqlType::Blob)).regular("s", CqlType::set(CqlType::Blob));
    Arc::new(builder.build())
}

fn random_cell(random: &mut Choices) -> ModelCell {
    let timestamp = random.below(6) as i64;
    let value = vec![random.below(3) as u8; random.below(3) as usize];
    match random.below(5) {
        0 => (timestamp, 0, 10 + random.below(3) as u32, Vec::new()),
        1 => (timestamp, 1 + random.below(2) as i32, 20 + random.below(3) as u32, value),
        _ => (timestamp, 0, NO_DELETION_TIME, value),
    }
}

fn random_deletion(random: &mut Choices) -> DeletionTime {
    if random.one_in(3) {
        DeletionTime::new(random.below(5) as i64, 10 + random.below(2) as u32)
    } else {
        DeletionTime::LIVE
    }
}

fn random_row(random: &mut Choices) -> ModelRow {
    let liveness = match random.below(4) {
        0 => Liveness::EMPTY,
        1 => Liveness {
            timestamp: random.below(6) as i64,
            ttl: 1 + random.below(2) as i32,
            expiration: 20 + random.below(3) as u32,
        },
        _ => Liveness::at(random.below(6) as i64),
    };
    let mut row =
        ModelRow { liveness, deletion: random_deletion(random), cells: BTreeMap::new(), complex: BTreeMap::new() };
    // Often all cells share the row's timestamp, which gives the layout without cell flags.
    let shares = random.one_in(2) && !liveness.is_empty();
    for column in 0..SIMPLE {
        if random.one_in(2) {
            let mut cell = random_cell(random);
            if shares {
                (cell.0, cell.1, cell.2) = (liveness.timestamp, liveness.ttl, liveness.expiration);
            }
            row.cells.insert((column, Vec::new()), cell);
        }
    }
    for column in SIMPLE..SIMPLE + COMPLEX {
        if random.one_in(2) {
            let deletion = random_deletion(random);
            if !deletion.is_live() {
                row.complex.insert(column, deletion);
            }
            for path in 0..random.below(4) {
                let cell = random_cell(random);
                // A row keeps no cell that the deletion of its own column deletes.
                if !deletion.deletes(cell.0) {
                    row.cells.insert((column, vec![path as u8]), cell);
                }
            }
        }
    }
    row
}

fn write(row: &ModelRow, table: &Table) -> Option<Vec<u8>> {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.liveness(row.liveness);
    builder.deletion(row.deletion);
    for column in 0..SIMPLE + COMPLEX {
        let cells = row.cells.range((column, Vec::new())..(column + 1, Vec::new()));
        if column >= SIMPLE {
            builder.complex(column, row.complex.get(&column).copied().unwrap_or(DeletionTime::LIVE));
        }
        for ((_, path), (timestamp, ttl, local_deletion_time, value)) in cells {
            let cell =
                Cell { timestamp: *timestamp, ttl: *ttl, local_deletion_time: *local_deletion_time, path, value };
            if column < SIMPLE { builder.cell(column, &cell) } else { builder.complex_cell(&cell) }
        }
    }
    if builder.is_empty() {
        return None;
    }
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    Row::check(&blob, table).unwrap();
    Some(blob)
}

fn read(blob: &[u8], table: &Table) -> ModelRow {
    let row = Row::new(blob);
    let mut model = ModelRow {
        liveness: row.liveness(),
        deletion: row.deletion(),
        cells: BTreeMap::new(),
        complex: BTreeMap::new(),
    };
    let mut insert = |column, cell: Cell<'_>| {
        let value = (cell.timestamp, cell.ttl, cell.local_deletion_time, cell.value.to_vec());
        assert!(model.cells.insert((column, cell.path.to_vec()), value).is_none());
    };
    let mut complex = BTreeMap::new();
    for (column, data) in row.columns(table) {
        match data {
            ColumnData::Simple(cell) => insert(column, cell),
            ColumnData::Complex(cells) => {
                if !cells.deletion.is_live() {
                    complex.insert(column, cells.deletion);
                }
                cells.for_each(|cell| insert(column, cell));
            }
        }
    }
    model.complex = complex;
    model
}

fn reconcile(left: &ModelCell, right: &ModelCell) -> ModelCell {
    let cell = |model: &ModelCell| Cell {
        timestamp: model.0,
        ttl: model.1,
        local_deletion_time: model.2,
        path: &[],
        value: Box::leak(model.3.clone().into_boxed_slice()),
    };
    let best = reconcile_cells(cell(left), cell(right));
    (best.timestamp, best.ttl, best.local_deletion_time, best.value.to_vec())
}

/// Merging, in its simplest form.
fn merge(rows: &[ModelRow], active: DeletionTime) -> ModelRow {
    let deletion = rows.iter().fold(DeletionTime::LIVE, |newest, row| newest.max(row.deletion));
    let all = deletion.max(active);
    let mut merged = ModelRow {
        liveness: Liveness::EMPTY,
        deletion: if deletion.supersedes(&active) { deletion } else { DeletionTime::LIVE },
        cells: BTreeMap::new(),
        complex: BTreeMap::new(),
    };
    for row in rows {
        if row.liveness.supersedes(&merged.liveness) {
            merged.liveness = row.liveness;
        }
        for (column, deletion) in &row.complex {
            let newest = merged.complex.entry(*column).or_insert(DeletionTime::LIVE);
            *newest = newest.max(*deletion);
        }
        for (place, cell) in &row.cells {
            let best = merged.cells.get(place).map_or(cell.clone(), |other| reconcile(other, cell));
            merged.cells.insert(place.clone(), best);
        }
    }
    if all.deletes(merged.liveness.timestamp) {
        merged.liveness = Liveness::EMPTY;
    }
    merged.complex.retain(|_, deletion| deletion.supersedes(&all));
    let complex = merged.complex.clone();
    merged.cells.retain(|(column, _), cell| {
        let deletion = complex.get(column).copied().unwrap_or(DeletionTime::LIVE).max(all);
        !deletion.deletes(cell.0)
    });
    merged
}

#[test]
fn written_rows_are_read_back_and_versions_merge_cell_by_cell() {
    let table = table();
    let mut merger = RowMerger::default();
    for seed in 0..4000 {
        let mut random = Choices(seed);
        let count = 1 + random.below(4) as usize;
        let mut rows: Vec<ModelRow> = (0..count).map(|_| random_row(&mut random)).collect();
        let blobs: Vec<Option<Vec<u8>>> = rows.iter().map(|row| write(row, &table)).collect();
        for (row, blob) in rows.iter().zip(&blobs) {
            if let Some(blob) = blob {
                assert_eq!(read(blob, &table), *row, "seed {seed}");
            }
        }
        rows = rows.into_iter().zip(&blobs).filter(|(_, blob)| blob.is_some()).map(|(row, _)| row).collect();
        let versions: Vec<Row<'_>> = blobs.iter().flatten().map(|blob| Row::new(blob)).collect();
        if versions.is_empty() {
            continue;
        }
        let active = random_deletion(&mut random);
        let mut merged = Vec::new();
        let expected = merge(&rows, active);
        let is_something = merger.merge(&table, &versions, active, &mut merged);
        assert_eq!(is_something, write(&expected, &table).is_some(), "seed {seed}");
        if is_something {
            Row::check(&merged, &table).unwrap();
            assert_eq!(read(&merged, &table), expected, "seed {seed}");
        }
        // The order of the versions makes no difference.
        let mut reversed = Vec::new();
        merger.merge(&table, &versions.into_iter().rev().collect::<Vec<_>>(), active, &mut reversed);
        assert_eq!(merged, reversed, "seed {seed}");
    }
}

/// What a client receives of columns of a row: lengths and values, -1 for none; and how many cells were dead.
fn sent(row: &ModelRow, columns: Range<usize>, now_seconds: u32) -> (Vec<u8>, u64) {
    let (mut bytes, mut dead) = (Vec::new(), 0);
    for column in columns {
        match row.cells.get(&(column, Vec::new())) {
            Some((_, ttl, ends, value)) if *ends == NO_DELETION_TIME || (*ttl != 0 && now_seconds < *ends) => {
                bytes.extend_from_slice(&(value.len() as i32).to_be_bytes());
                bytes.extend_from_slice(value);
            }
            cell => {
                dead += u64::from(cell.is_some());
                bytes.extend_from_slice(&(-1i32).to_be_bytes());
            }
        }
    }
    (bytes, dead)
}

#[test]
fn values_are_copied_as_a_client_sees_them() {
    let table = table();
    let mut places = ValuePlaces::default();
    let mut whole_rows = 0;
    for seed in 0..4000 {
        let mut random = Choices(seed);
        let model = random_row(&mut random);
        let Some(blob) = write(&model, &table) else { continue };
        let (row, now_seconds) = (Row::new(&blob), 19 + random.below(4) as u32);
        let count = random.below(SIMPLE as u64 + 1) as usize;
        places.locate(row, &table, now_seconds, count);
        let start = random.below(count as u64 + 1) as usize;
        let columns = start..start + random.below((count - start) as u64 + 1) as usize;
        let mut copied = Vec::new();
        // In any order, some of them twice.
        let runs: Vec<Range<usize>> = [columns.clone(), 0..random.below(count as u64 + 1) as usize, columns]
            .into_iter()
            .take(1 + random.below(3) as usize)
            .collect();
        let dead = places.copy(row, &runs, &mut copied);
        let expected = runs.iter().map(|run| sent(&model, run.clone(), now_seconds));
        let expected = expected.reduce(|(bytes, dead), (more, more_dead)| ([bytes, more].concat(), dead + more_dead));
        assert_eq!(Some((copied, dead)), expected, "seed {seed}");
        if let Some(slots) = row.slots(&table, now_seconds) {
            whole_rows += 1;
            assert!(slots.starts_with(&sent(&model, 0..SIMPLE, now_seconds).0), "seed {seed}");
        }
        let complex = |(index, data): (usize, ColumnData<'_>)| format!("{index} {data:?}");
        let all = row.columns(&table).filter(|(index, _)| *index >= SIMPLE).map(complex);
        assert!(row.columns(&table).complex().map(complex).eq(all), "seed {seed}");
        if let Some(shared) = row.shared_times() {
            let times = (shared.timestamp, shared.ttl, shared.expiration);
            let mut simple = model.cells.iter().filter(|((column, _), _)| *column < SIMPLE);
            assert!(simple.all(|(_, cell)| (cell.0, cell.1, cell.2) == times), "seed {seed}");
        }
    }
    assert!(whole_rows > 40, "{whole_rows}");
}

#[test]
fn garbage_is_refused_or_read_without_panic() {
    let table = table();
    for seed in 0..2000 {
        let mut random = Choices(seed);
        let mut blob = match write(&random_row(&mut random), &table) {
            Some(blob) => blob,
            None => continue,
        };
        for _ in 0..1 + random.below(3) {
            let at = random.below(blob.len() as u64) as usize;
            blob[at] = random.next() as u8;
        }
        blob.truncate(1 + random.below(blob.len() as u64) as usize);
        let _ = Row::check(&blob, &table);
        let row = Row::new(&blob);
        let _ = (row.liveness(), row.deletion());
        row.columns(&table).take(100).for_each(|(_, data)| {
            if let ColumnData::Complex(cells) = data {
                cells.take(100).for_each(drop);
            }
        });
        let mut places = ValuePlaces::default();
        places.locate(row, &table, 20, SIMPLE);
        places.copy(row, std::slice::from_ref(&(0..SIMPLE)), &mut Vec::new());
    }
}
