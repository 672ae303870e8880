//! Rows that pass through a merge in stored form: the result equals that of decoded rows, to the last timestamp.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use compaction::{CompactionInput, PurgeCursor, compact};
use model::{
    BoxCursor, Cell, ColumnData, ColumnKind, DeletionTime, LargeRowLimit, Liveness, Marker, MergeCursor, PartitionHead,
    PartitionKey, Row, RowBuilder, RowRef, Side, Table, TableBuilder, TableId, TableOptions, Unfiltered,
    UnfilteredCursor, push_component,
};
use sstable::{
    Descriptor, EncodingBase, SSTableId, SSTableReader, SSTableWriter, WriterOptions, replace_tables, verify,
};
use testkit::Random;
use types::CqlType;
use uuid::Uuid;

use crate::content::{DIR, disk, open};

const NOW: u32 = 2000;
const PARTITIONS: i32 = 8;
const ROWS: i32 = 5;
/// Few, so that several rows have the same age.
const TIMESTAMPS: usize = 12;

/// The kind of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Statics,
    /// No clustering column, so that a partition is a row.
    Single,
    /// The last inputs have a column that the first lack.
    Added,
    /// A column in the inputs is dropped, at a time between those of its cells.
    Dropped,
    Counter,
    Map,
}

const KINDS: [Kind; 7] =
    [Kind::Plain, Kind::Statics, Kind::Single, Kind::Added, Kind::Dropped, Kind::Counter, Kind::Map];

fn schema(kind: Kind, gc_grace_seconds: i32) -> Arc<Table> {
    let options = TableOptions { gc_grace_seconds, ..TableOptions::default() };
    let table = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("pk", CqlType::Int);
    let table = if kind == Kind::Single { table } else { table.clustering("ck", CqlType::Int, false) };
    let table = if kind == Kind::Statics { table.static_column("s", CqlType::Int) } else { table };
    let table = match kind {
        Kind::Counter => table.regular("v", CqlType::Counter),
        _ => table.regular("v", CqlType::Int).regular("w", CqlType::Text),
    };
    let table = if kind == Kind::Map { table.regular("x", CqlType::map(CqlType::Int, CqlType::Int)) } else { table };
    Arc::new(table.options(options).build())
}

/// The table at the time of the compaction.
fn altered(kind: Kind, table: &Arc<Table>) -> Arc<Table> {
    match kind {
        Kind::Added => Arc::new(table.to_builder().add("x", CqlType::Blob, ColumnKind::Regular).build()),
        Kind::Dropped => Arc::new(table.to_builder().drop_column("v", CqlType::Int, TIMESTAMPS as i64 / 2).build()),
        _ => table.clone(),
    }
}

struct Inputs {
    random: Random,
    disk: Arc<dyn Disk>,
    kind: Kind,
}

impl Inputs {
    fn chance(&mut self, percent: usize) -> bool {
        self.random.chance(percent)
    }

    fn timestamp(&mut self) -> i64 {
        1 + self.random.below(TIMESTAMPS) as i64
    }

    fn deletion(&mut self) -> DeletionTime {
        DeletionTime::new(self.timestamp(), 1000 + self.random.below(100) as u32)
    }

    fn value(&mut self, ty: &CqlType) -> Vec<u8> {
        let number = self.random.below(50) as i32;
        match ty {
            CqlType::Int => number.to_be_bytes().to_vec(),
            CqlType::Counter => self.context(),
            // Empty values have an encoding of their own.
            _ => vec![b'v'; [0, 1, 3, 200][number as usize % 4]],
        }
    }

    /// One global shard, of one of three nodes.
    fn context(&mut self) -> Vec<u8> {
        let (node, clock) = (self.random.below(3) as u8, self.random.below(5) as i64);
        [&[0, 1, 0x80, 0][..], &[node; 16], &clock.to_be_bytes(), &(clock * 10).to_be_bytes()].concat()
    }

    fn odd_cell<'v>(&mut self, value: &'v [u8]) -> Cell<'v> {
        let timestamp = self.timestamp();
        match self.random.below(4) {
            0 => Cell::tombstone(timestamp, 1000 + self.random.below(100) as u32),
            1 => Cell::expiring(timestamp, 50, 1000 + self.random.below(2000) as u32, value),
            _ => Cell::live(timestamp, value),
        }
    }

    /// Mostly rows that may be passed on in stored form.
    fn row(&mut self, table: &Table, is_static: bool) -> Vec<u8> {
        let mut builder = RowBuilder::default();
        builder.start(table.columns(is_static), is_static);
        let timestamp = self.timestamp();
        let is_plain = self.chance(70);
        if !is_static && (is_plain || self.chance(70)) {
            let mut liveness = Liveness::at(timestamp);
            if !is_plain && self.chance(30) {
                (liveness.ttl, liveness.expiration) = (50, 1000 + self.random.below(2000) as u32);
            }
            builder.liveness(liveness);
        }
        if !is_static && !is_plain && self.chance(20) {
            builder.deletion(self.deletion());
        }
        for (index, column) in table.columns(is_static).columns.iter().enumerate() {
            if column.is_complex() {
                builder.complex(index, DeletionTime::LIVE);
                builder.complex_cell(&Cell::live(timestamp, &[0; 4]).with_path(&[0; 4]));
            } else if is_plain || self.chance(70) {
                let value = self.value(&column.ty);
                let is_odd = !is_plain && self.chance(50) && self.kind != Kind::Counter;
                let cell = if is_odd { self.odd_cell(&value) } else { Cell::live(timestamp, &value) };
                builder.cell(index, &cell);
            }
        }
        let mut bytes = Vec::new();
        if !builder.is_empty() {
            builder.finish(&mut bytes);
        }
        bytes
    }

    fn write(&mut self, table: &Arc<Table>, number: u32) -> Descriptor {
        let descriptor = Descriptor::new(DIR, SSTableId::from_sequence(number));
        let options = WriterOptions {
            // For some inputs this is later than some of their rows, so deltas are not always small.
            base: EncodingBase { timestamp: self.timestamp(), ..EncodingBase::default() },
            column_index_size_bytes: 64,
            ..WriterOptions::for_table(table).unwrap()
        };
        let mut writer = SSTableWriter::create(&self.disk, &descriptor, table, options).unwrap();
        let mut keys: Vec<_> = (0..PARTITIONS).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        keys.sort();
        for (place, key) in keys.iter().enumerate() {
            // Some partitions are in one input only.
            if if place % 2 == 0 { place as u32 % 4 != number % 4 } else { self.chance(30) } && place > 0 {
                continue;
            }
            let deletion = if self.chance(10) { self.deletion() } else { DeletionTime::LIVE };
            let static_row = if table.has_statics() { self.row(table, true) } else { Vec::new() };
            let static_row = (!static_row.is_empty()).then(|| Row::new(&static_row));
            writer.begin_partition(&PartitionHead { key, deletion, static_row }).unwrap();
            self.write_rows(table, &mut writer);
            writer.end_partition().unwrap();
        }
        writer.finish().unwrap().unwrap()
    }

    fn write_rows(&mut self, table: &Arc<Table>, writer: &mut SSTableWriter) {
        let has_clustering = self.kind != Kind::Single;
        for row in 0..if has_clustering { ROWS } else { 1 } {
            let mut clustering = Vec::new();
            if has_clustering {
                push_component(Some(&row.to_be_bytes()), &mut clustering);
            }
            let deletion = self.deletion();
            let is_deleted = has_clustering && self.chance(8);
            let mut marker = |side, before, after| {
                let marker = Marker { prefix: &clustering, side, before, after };
                writer.add(&Unfiltered::Marker(marker)).unwrap();
            };
            if is_deleted {
                marker(Side::Before, DeletionTime::LIVE, deletion);
                marker(Side::After, deletion, DeletionTime::LIVE);
            } else if self.chance(70) {
                let bytes = self.row(table, false);
                if !bytes.is_empty() {
                    let row = RowRef { clustering: &clustering, row: Row::new(&bytes) };
                    writer.add(&Unfiltered::Row(row)).unwrap();
                }
            }
        }
    }
}

fn describe(row: Row<'_>, table: &Table) -> String {
    let mut text = format!("{:?} {:?}", row.liveness(), row.deletion());
    for (index, data) in row.kept_columns(table) {
        match data {
            ColumnData::Simple(cell) => text += &format!(" {index}: {cell:?}"),
            ColumnData::Complex(cells) => {
                text += &format!(" {index}: {:?} {:?}", cells.deletion, cells.collect::<Vec<_>>());
            }
        }
    }
    text
}

/// Everything that a cursor yields, and how many rows it left in stored form.
fn description(cursor: &mut dyn UnfilteredCursor) -> (Vec<String>, usize) {
    let (mut description, mut stored_rows) = (Vec::new(), 0);
    let table = cursor.table().clone();
    while cursor.advance_partition().unwrap() {
        let PartitionHead { key, deletion, static_row } = cursor.partition();
        let head = format!("{key:?} {deletion:?} {:?}", static_row.map(|row| describe(row, &table)));
        let is_nothing = deletion.is_live() && static_row.is_none();
        let start = description.len();
        description.push(head);
        while cursor.advance().unwrap() {
            let stored = cursor.stored().map(|row| (row.timestamp, row.clustering.to_vec()));
            stored_rows += usize::from(stored.is_some());
            cursor.decode().unwrap();
            assert!(cursor.stored().is_none());
            description.push(match cursor.unfiltered() {
                Unfiltered::Marker(marker) => format!("{marker:?}"),
                Unfiltered::Row(RowRef { clustering, row }) => {
                    if let Some(stored) = stored {
                        assert_eq!(stored, (row.liveness().timestamp, clustering.to_vec()));
                    }
                    format!("{clustering:?} {}", describe(row, &table))
                }
            });
        }
        if is_nothing && description.len() == start + 1 {
            description.pop();
        }
    }
    (description, stored_rows)
}

fn purged<'a>(
    table: &Arc<Table>,
    inputs: &[Arc<SSTableReader>],
    gc_before: u32,
    overlaps: &'a dyn compaction::Overlaps,
) -> PurgeCursor<'a, MergeCursor<BoxCursor<'static>>> {
    let source = |reader: &Arc<SSTableReader>| -> BoxCursor<'static> {
        Box::new(reader.with_table(table).unwrap().scan().unwrap())
    };
    let merged = MergeCursor::new(table, false, inputs.iter().map(source).collect());
    PurgeCursor::new(merged, NOW, gc_before, overlaps)
}

#[test]
fn rows_that_pass_as_they_are_stored_are_those_that_were_written() {
    let mut passed = KINDS.map(|_| 0);
    for (kind, passed) in KINDS.iter().zip(&mut passed) {
        for seed in 0..25 {
            let gc_grace_seconds = [0, 950, 100_000][seed as usize % 3];
            let oldest_outside = [i64::MAX, TIMESTAMPS as i64 / 2][seed as usize / 3 % 2];
            let mut inputs = Inputs { random: Random(seed), disk: disk(), kind: *kind };
            let before = schema(*kind, gc_grace_seconds);
            let after = altered(*kind, &before);
            let written = (1..5).map(|number| {
                let table = if number > 2 && *kind == Kind::Added { &after } else { &before };
                let descriptor = inputs.write(table, number);
                Arc::new(open(&inputs.disk, &descriptor, &after))
            });
            let readers: Vec<_> = written.collect();
            let overlaps = |_: &PartitionKey| oldest_outside;
            let gc_before = NOW.saturating_sub(gc_grace_seconds as u32);
            let (expected, none) = description(&mut purged(&after, &readers, gc_before, &overlaps));
            assert_eq!(none, 0, "nobody asked for them");
            let mut leaving = purged(&after, &readers, gc_before, &overlaps);
            leaving.expect_stored();
            let (left, count) = description(&mut leaving);
            assert_eq!(left, expected, "{kind:?} seed {seed}");
            *passed += count;

            let compacted = compact(CompactionInput {
                disk: &inputs.disk,
                dir: Path::new(DIR),
                table: &after,
                tables: &readers,
                newer: None,
                kept: None,
                overlaps: &overlaps,
                now_seconds: NOW,
                boundaries: Vec::new(),
                column_index_size_bytes: 128,
                past_page_cache: true,
                host_id: Uuid::nil(),
                size_watch: None,
                large_rows: LargeRowLimit::None,
                new_id: &mut || SSTableId::from_sequence(9),
                progress: &mut |_| ControlFlow::Continue(()),
            });
            let obsolete: Vec<_> = readers.iter().map(|reader| reader.descriptor().clone()).collect();
            let added = replace_tables(&*inputs.disk, Path::new(DIR), compacted.unwrap().tables, &obsolete).unwrap();
            let [descriptor] = added.as_slice() else { panic!("one table of {} things", expected.len()) };
            verify(&*inputs.disk, descriptor, &after, true).unwrap();
            let merged = open(&inputs.disk, descriptor, &after);
            assert_eq!(description(&mut merged.scan().unwrap()).0, expected, "{kind:?} seed {seed}");
            check_statistics(&merged, &after, &expected, (*kind, seed));
        }
    }
    for (kind, passed) in KINDS.iter().zip(passed) {
        let may_pass = !matches!(kind, Kind::Dropped | Kind::Counter | Kind::Map);
        assert!(if may_pass { passed > 30 } else { passed == 0 }, "{kind:?}: {passed}");
    }
}

/// Statistics.db is the same as if the rows had been written again.
fn check_statistics(merged: &SSTableReader, table: &Arc<Table>, expected: &[String], which: (Kind, u64)) {
    let disk = disk();
    let descriptor = Descriptor::new(DIR, SSTableId::from_sequence(1));
    let header = &merged.statistics().header;
    let all = &table.regulars().columns;
    let regulars = (0..all.len()).filter(|index| header.regulars.iter().any(|c| *c.name == *all[*index].name));
    let options = WriterOptions {
        base: header.base,
        regulars: regulars.collect(),
        column_index_size_bytes: 128,
        ..WriterOptions::for_table(table).unwrap()
    };
    let mut writer = SSTableWriter::create(&disk, &descriptor, table, options).unwrap();
    writer.write_all(&mut merged.scan().unwrap()).unwrap();
    let written = open(&disk, &writer.finish().unwrap().unwrap(), table);
    assert_eq!(description(&mut written.scan().unwrap()).0, expected, "{which:?}");
    let comparable = |reader: &SSTableReader| {
        let mut stats = reader.statistics().stats.clone();
        (stats.originating_host_id, stats.compression_ratio) = (None, 0.0);
        stats
    };
    assert_eq!(comparable(merged), comparable(&written), "{which:?}");
}
