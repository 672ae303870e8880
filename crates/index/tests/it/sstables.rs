//! Indexes of real SSTables: built while the rows are written, and from a scan.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use index::{
    Batch, Candidates, IndexBuilder, IndexFile, Indexer, KeyBounds, Origin, SORTED_BYTES_MAX, Source, decode_row_key,
    file_name,
};
use memtable::{Memtable, TrieMemtable};
use model::{
    Cell, ColumnData, IndexPart, KeyRange, PartitionKey, PartitionUpdateBuilder, ReadRange, Row, RowBuilder, RowRef,
    Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor, push_component,
};
use sstable::{
    BlockCache, Descriptor, PartitionHint, ReadMode, SSTableError, SSTableId, SSTableReader, SSTableWriter,
    WriterOptions,
};
use testkit::{Random, seed};
use types::CqlType;
use uuid::Uuid;

use crate::rows::{COLUMNS, Written, random_row, table, update};

const DATA: &str = "/data";
const INDEX: &str = "/index";

/// A memtable with these rows, of which later ones overwrite earlier ones.
fn memtable(table: &Arc<Table>, rows: &[Written]) -> Arc<TrieMemtable> {
    let memtable = TrieMemtable::new(table, 2);
    for row in rows {
        memtable.apply(&update(table, row), None).unwrap();
    }
    Arc::new(memtable)
}

fn write_sstable(disk: &Arc<dyn Disk>, table: &Arc<Table>, memtable: &Arc<TrieMemtable>) -> Arc<SSTableReader> {
    let descriptor = Descriptor::new(Path::new(DATA), SSTableId::from_sequence(1));
    let options = WriterOptions::for_table(table).unwrap();
    let mut writer = SSTableWriter::create(disk, &descriptor, table, options).unwrap();
    writer.write_all(&mut memtable.clone().cursor(table, &all())).unwrap();
    let descriptor = writer.finish().unwrap().unwrap();
    Arc::new(SSTableReader::open(&**disk, &descriptor, table, &BlockCache::new(1 << 20)).unwrap())
}

fn all() -> ReadRange {
    ReadRange::all_rows(KeyRange::all())
}

/// Builds the indexes of all columns from a cursor; the bytes of the files.
fn build(disk: &Arc<dyn Disk>, indexers: &[Indexer], cursor: &mut dyn UnfilteredCursor) -> Vec<Vec<u8>> {
    let mut builder = IndexBuilder::create(disk, Path::new(INDEX), indexers, || true).unwrap();
    builder.scan(cursor).unwrap();
    builder.finish(&origin()).unwrap();
    let bytes = |indexer: &Indexer| {
        let path = Path::new(INDEX).join(file_name(indexer.key()));
        let file = disk.open(&path, OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    indexers.iter().map(bytes).collect()
}

fn origin() -> Origin {
    Origin { sstable: SSTableId::from_sequence(1), data_bytes: 1 }
}

fn setting() -> (Arc<dyn Disk>, Arc<Table>, Vec<Indexer>) {
    let disk = SimulatedDisk::new();
    [DATA, INDEX].into_iter().for_each(|path| disk.create_dir_all(Path::new(path)).unwrap());
    let table = table();
    let indexers =
        COLUMNS.iter().map(|name| Indexer::new(&table, table.column(name).unwrap(), IndexPart::Whole)).collect();
    (Arc::new(disk), table, indexers)
}

#[test]
fn a_scan_of_an_sstable_builds_the_indexes_of_the_rows_that_were_written_to_it() {
    let (disk, table, indexers) = setting();
    let mut random = Random(seed(11));
    let rows: Vec<Written> = (0..800).map(|_| random_row(&mut random)).collect();
    let memtable = memtable(&table, &rows);
    let written = build(&disk, &indexers, &mut memtable.clone().cursor(&table, &all()));
    let sstable = write_sstable(&disk, &table, &memtable);
    let mut cursor = sstable.cursor_with(&all(), ReadMode::Cached { may_block: true }).unwrap();
    let scanned = build(&disk, &indexers, &mut cursor);
    assert!(written == scanned, "both give the same files");
}

/// The rows of an SSTable as a reader finds them.
fn rows_of(sstable: &Arc<SSTableReader>, table: &Table) -> Vec<Written> {
    let mut cursor = sstable.cursor_with(&all(), ReadMode::Cached { may_block: true }).unwrap();
    let mut rows = Vec::new();
    let value = |row: Row<'_>, place: usize| {
        row.columns(table).find_map(|(index, data)| match data {
            ColumnData::Simple(cell) if index == place && !cell.is_tombstone() => Some(cell.value.to_vec()),
            _ => None,
        })
    };
    while cursor.advance_partition().unwrap() {
        let (key, fixed) =
            (cursor.partition().key.clone(), cursor.partition().static_row.and_then(|row| value(row, 0)));
        while cursor.advance().unwrap() {
            let Unfiltered::Row(RowRef { clustering, row }) = cursor.unfiltered() else { continue };
            let (number, text) = (value(row, 0), value(row, 1));
            rows.push(Written {
                key: key.clone(),
                clustering: clustering.to_vec(),
                fixed: fixed.clone(),
                number,
                text,
            });
        }
    }
    rows
}

#[test]
fn every_row_of_an_sstable_is_found_by_each_of_its_values() {
    let (disk, table, indexers) = setting();
    let mut random = Random(seed(12));
    let rows: Vec<Written> = (0..400).map(|_| random_row(&mut random)).collect();
    let sstable = write_sstable(&disk, &table, &memtable(&table, &rows));
    build(&disk, &indexers, &mut sstable.cursor_with(&all(), ReadMode::Cached { may_block: true }).unwrap());
    let rows = rows_of(&sstable, &table);
    assert!(rows.len() > 100, "{} rows", rows.len());
    for (indexer, name) in indexers.iter().zip(COLUMNS) {
        let path = Path::new(INDEX).join(file_name(indexer.key()));
        let file =
            Arc::new(IndexFile::open(&*disk, &path, indexer.key(), &origin(), &BlockCache::new(1 << 20)).unwrap());
        for row in &rows {
            let Some(value) = row.value(name) else { continue };
            let parts = file.parts().map(|part| Box::new(part) as Box<dyn Source>).collect();
            let terms = indexer.terms_of(&value);
            let bounds = KeyBounds::of(&KeyRange::Single(row.key.clone()));
            let candidates = Candidates::open(parts, &terms, &bounds, true, SORTED_BYTES_MAX).unwrap();
            let mut candidates = candidates.expect("the entries of one value are sorted");
            let mut is_found = false;
            while let Some(candidate) = candidates.peek() {
                let place = decode_row_key(indexer.clustering(), candidate, &mut Vec::new()).unwrap();
                assert_eq!(place.partition, row.key);
                is_found |= place.clustering.is_none_or(|clustering| clustering == row.clustering);
                candidates.advance().unwrap();
            }
            assert!(is_found, "{name} of {:?}", row.key);
        }
    }
}

#[test]
fn a_scan_that_is_stopped_leaves_no_files() {
    let (disk, table, indexers) = setting();
    let mut random = Random(seed(13));
    let rows: Vec<Written> = (0..30).map(|_| random_row(&mut random)).collect();
    let memtable = memtable(&table, &rows);
    let mut partitions = 0;
    let goes_on = || {
        partitions += 1;
        partitions < 3
    };
    let mut builder = IndexBuilder::create(&disk, Path::new(INDEX), &indexers, goes_on).unwrap();
    let stopped = builder.scan(&mut memtable.clone().cursor(&table, &all()));
    assert!(stopped.is_err());
    drop(builder);
    assert!(disk.list(Path::new(INDEX)).unwrap().is_empty());
}

#[test]
fn a_scan_can_be_stopped_within_a_partition() {
    let (disk, _, _) = setting();
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil())).partition_key("p", CqlType::Int);
    let table = Arc::new(table.clustering("c", CqlType::Int, false).regular("v", CqlType::Int).build());
    let memtable = TrieMemtable::new(&table, 1);
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1_i32.to_be_bytes()));
    for row in 0..5000_i32 {
        let (mut builder, mut blob, mut clustering) = (RowBuilder::default(), Vec::new(), Vec::new());
        builder.start(table.regulars(), false);
        builder.cell(0, &Cell::live(1, &row.to_be_bytes()));
        builder.finish(&mut blob);
        push_component(Some(&row.to_be_bytes()), &mut clustering);
        update.row(&clustering, &blob);
    }
    memtable.apply(&update.build(), None).unwrap();
    let indexer = Indexer::new(&table, table.column("v").unwrap(), IndexPart::Whole);
    let mut looks = 0;
    let goes_on = || {
        looks += 1;
        looks < 3
    };
    let indexers = std::slice::from_ref(&indexer);
    let mut builder = IndexBuilder::create(&disk, Path::new(INDEX), indexers, goes_on).unwrap();
    assert!(builder.scan(&mut Arc::new(memtable).cursor(&table, &all())).is_err());
    drop(builder);
    assert_eq!(looks, 3, "it is asked while the partition goes on, and not again");
}

/// A source of an open SSTable.
struct Numbered<S>(S, u64);

impl<S: Source> Source for Numbered<S> {
    fn read(&self, start: Bound<&[u8]>, end: &[u8], may_block: bool, batch: &mut Batch) -> Result<(), SSTableError> {
        self.0.read(start, end, may_block, batch)
    }

    fn sstable(&self) -> Option<u64> {
        Some(self.1)
    }
}

#[test]
fn candidates_say_where_an_sstable_has_their_partitions_in_a_table_without_clustering() {
    let (disk, _, _) = setting();
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil())).partition_key("p", CqlType::Int);
    let table = Arc::new(table.regular("v", CqlType::Int).build());
    let memtable = TrieMemtable::new(&table, 2);
    for key in 0..500_i32 {
        let (mut row, mut blob) = (RowBuilder::default(), Vec::new());
        row.start(table.regulars(), false);
        row.cell(0, &Cell::live(1, &(key % 7).to_be_bytes()));
        row.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&key.to_be_bytes()));
        update.row(&[], &blob);
        memtable.apply(&update.build(), None).unwrap();
    }
    let sstable = write_sstable(&disk, &table, &Arc::new(memtable));
    let indexer = Indexer::new(&table, table.column("v").unwrap(), IndexPart::Whole);
    let mut cursor = sstable.cursor_with(&all(), ReadMode::Cached { may_block: true }).unwrap();
    build(&disk, std::slice::from_ref(&indexer), &mut cursor);
    let path = Path::new(INDEX).join(file_name(indexer.key()));
    let file = Arc::new(IndexFile::open(&*disk, &path, indexer.key(), &origin(), &BlockCache::new(1 << 20)).unwrap());
    let mut cursor = sstable.cursor_with(&all(), ReadMode::Cached { may_block: true }).unwrap();
    let mut positions = HashMap::new();
    while cursor.advance_partition().unwrap() {
        let position = UnfilteredCursor::data_position(&cursor).unwrap();
        positions.insert(cursor.partition().key.clone(), position);
    }
    let (three, five) = (3_i32.to_be_bytes(), 5_i32.to_be_bytes());
    for (terms, count) in [(indexer.terms_of(&three), 71), (indexer.terms_between(Some(&three), Some(&five)), 213)] {
        let parts = file.parts().map(|part| Box::new(Numbered(part, sstable.number())) as Box<dyn Source>).collect();
        let bounds = KeyBounds::of(&KeyRange::all());
        let mut candidates = Candidates::open(parts, &terms, &bounds, true, SORTED_BYTES_MAX).unwrap().unwrap();
        let mut found = 0;
        while let Some(key) = candidates.peek() {
            let place = decode_row_key(indexer.clustering(), key, &mut Vec::new()).unwrap();
            let position = positions[&place.partition];
            assert_eq!(candidates.hint(), Some(PartitionHint { sstable: sstable.number(), position }));
            found += 1;
            candidates.advance().unwrap();
        }
        assert!((count..=count + 3).contains(&found), "{found} candidates");
    }
}
