//! Statements about a row as a whole, checked against its cells.

use std::sync::Arc;

use model::{Cell, ColumnData, DeletionTime, Liveness, Row, RowBuilder, RowMerger, Table, TableBuilder, TableId};
use types::CqlType;
use uuid::Uuid;

use testkit::Choices;

const COLUMNS: usize = 3;

/// With a column that was added later, or not.
fn tables() -> [Arc<Table>; 2] {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let table = ["a", "b", "c"].into_iter().fold(builder, |builder, name| builder.regular(name, CqlType::Blob)).build();
    let added = table.to_builder().regular("d", CqlType::Blob).build();
    [Arc::new(table), Arc::new(added)]
}

fn random_row(random: &mut Choices, table: &Table) -> Option<Vec<u8>> {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    let timestamp = random.below(4) as i64;
    let (ttl, expiration) = if random.one_in(6) { (5, 20) } else { (0, model::NO_DELETION_TIME) };
    if !random.one_in(4) {
        builder.liveness(Liveness { timestamp, ttl, expiration });
    }
    if random.one_in(8) {
        builder.deletion(DeletionTime::new(random.below(4) as i64, 10));
    }
    let lacks = random.one_in(3);
    for index in 0..table.regulars().columns.len() {
        let value = vec![random.below(3) as u8; random.below(3) as usize];
        match random.below(12) {
            0 => builder.cell(index, &Cell::live(random.below(4) as i64, &value)),
            1 => builder.cell(index, &Cell::tombstone(timestamp, 9)),
            _ if lacks && random.one_in(2) => {}
            _ if ttl != 0 => builder.cell(index, &Cell::expiring(timestamp, ttl, expiration, &value)),
            _ => builder.cell(index, &Cell::live(timestamp, &value)),
        }
    }
    if builder.is_empty() {
        return None;
    }
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    Some(blob)
}

#[test]
fn a_large_merged_row_takes_hardly_more_memory_than_it_is_long() {
    const VALUE_BYTES: usize = 400_000;
    let [table, _] = tables();
    let row = |timestamp, columns: &[usize]| {
        let mut builder = RowBuilder::default();
        builder.start(table.regulars(), false);
        columns.iter().for_each(|index| builder.cell(*index, &Cell::live(timestamp, &[7; VALUE_BYTES])));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    };
    let (older, newer) = (row(1, &[0, 2]), row(2, &[1]));
    let mut merged = Vec::new();
    let versions = [Row::new(&older), Row::new(&newer)];
    assert!(RowMerger::default().merge(&table, &versions, DeletionTime::LIVE, &mut merged));
    assert!(merged.len() > COLUMNS * VALUE_BYTES);
    assert!(merged.capacity() < merged.len() + merged.len() / 10, "{} for {}", merged.capacity(), merged.len());
}

#[test]
fn a_row_that_replaces_another_equals_their_merge() {
    let tables = tables();
    let (mut replaced, mut merged_otherwise) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Choices(seed);
        let [of_older, of_newer] = [(); 2].map(|()| &tables[random.below(2) as usize]);
        let (Some(older), Some(newer)) = (random_row(&mut random, of_older), random_row(&mut random, of_newer)) else {
            continue;
        };
        let table = &tables[1];
        let (older, newer) = (Row::new(&older), Row::new(&newer));
        let mut merged = Vec::new();
        RowMerger::of_all_written().merge(table, &[older, newer], DeletionTime::LIVE, &mut merged);
        if newer.replaces(&older, table) {
            assert_eq!(newer.as_bytes(), merged, "seed {seed}");
            replaced += 1;
        } else {
            merged_otherwise += u32::from(newer.as_bytes() == merged);
        }
    }
    println!("{replaced} replaced, {merged_otherwise} others did as well");
    assert!(replaced > 100 && merged_otherwise > 0, "{replaced}, {merged_otherwise}");
}

#[test]
fn statements_about_a_whole_row_hold_for_each_of_its_cells() {
    let [table, _] = tables();
    let (mut with_one_time, mut permanent) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Choices(seed);
        let Some(blob) = random_row(&mut random, &table) else { continue };
        let row = Row::new(&blob);
        let cells = || {
            row.columns(&table).map(|(_, data)| match data {
                ColumnData::Simple(cell) => cell,
                ColumnData::Complex(_) => panic!("a complex column"),
            })
        };
        if let Some(times) = row.only_times(&table) {
            assert!(row.liveness().is_empty() || row.liveness() == times, "seed {seed}");
            assert!(row.deletion().is_live());
            for cell in cells() {
                let of_cell =
                    Liveness { timestamp: cell.timestamp, ttl: cell.ttl, expiration: cell.local_deletion_time };
                assert_eq!(of_cell, times, "seed {seed}");
            }
            with_one_time += 1;
        }
        if row.is_permanent(&table) {
            let lasts = |cell: Cell<'_>| cell.is_live(u32::MAX - 1);
            assert!(row.liveness().is_live(u32::MAX - 1) && cells().all(lasts), "seed {seed}");
            assert!(cells().count() <= COLUMNS);
            permanent += 1;
        }
    }
    assert!(with_one_time > 1000 && permanent > 1000, "{with_one_time}, {permanent}");
}

#[test]
fn a_builder_keeps_no_memory_of_a_large_row() {
    let [table, _] = tables();
    let (value, mut builder, mut blob) = (vec![7; 5 << 20], RowBuilder::default(), Vec::new());
    for length in [10, value.len(), 10] {
        builder.start(table.regulars(), false);
        builder.cell(1, &Cell::live(1, &value[..length]));
        blob.clear();
        builder.finish(&mut blob);
        let cells: Vec<_> = Row::new(&blob).columns(&table).collect();
        assert!(matches!(&cells[..], [(1, ColumnData::Simple(cell))] if cell.value.len() == length));
        assert!(builder.kept_bytes() < 1 << 20, "{} bytes", builder.kept_bytes());
    }
}
