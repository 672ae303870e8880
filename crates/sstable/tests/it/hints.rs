//! A row is found by the position of its partition as it is found by the index, and a wrong position changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use model::{
    Cell, DeletionTime, KeyRange, Liveness, PartitionHead, PartitionKey, ReadRange, Row, RowBuilder, RowRef, Table,
    TableBuilder, TableId, Unfiltered, UnfilteredCursor,
};
use sstable::{
    Descriptor, PartitionHint, ReadMode, RowLookup, SSTableId, SSTableReader, SSTableWriter, WriterOptions,
    find_only_row, prefetch_hinted,
};
use testkit::{Random, seeds};
use types::CqlType;
use uuid::Uuid;

use crate::fixture::cache;

const KEYS: usize = 300;

fn table() -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(9))).partition_key("key", CqlType::Int);
    Arc::new(builder.regular("value", CqlType::Blob).build())
}

/// An SSTable of some of the keys, of which a few are deleted.
fn write(disk: &Arc<dyn Disk>, table: &Arc<Table>, id: u32, random: &mut Random) -> Arc<SSTableReader> {
    let descriptor = Descriptor::new("/t", SSTableId::from_sequence(id));
    let mut writer = SSTableWriter::create(disk, &descriptor, table, WriterOptions::for_table(table).unwrap()).unwrap();
    let mut keys: Vec<_> = (0..KEYS as i32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
    keys.retain(|_| random.one_in(2));
    keys.sort();
    for key in &keys {
        let deletion = if random.one_in(10) { DeletionTime::new(5, 5) } else { DeletionTime::LIVE };
        writer.begin_partition(&PartitionHead { key, deletion, static_row: None }).unwrap();
        let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
        builder.start(table.regulars(), false);
        builder.liveness(Liveness::at(10));
        builder.cell(0, &Cell::live(10, &vec![id as u8; random.below(300)]));
        builder.finish(&mut blob);
        writer.add(&Unfiltered::Row(RowRef { clustering: &[], row: Row::new(&blob) })).unwrap();
        writer.end_partition().unwrap();
    }
    let descriptor = writer.finish().unwrap().unwrap();
    Arc::new(SSTableReader::open(&**disk, &descriptor, table, &cache()).unwrap())
}

/// The positions of all partitions. Their blocks and index pages are in the cache then.
fn positions(sstable: &SSTableReader) -> BTreeMap<PartitionKey, u64> {
    let mut positions = BTreeMap::new();
    let mut cursor = sstable.scan().unwrap();
    while cursor.advance_partition().unwrap() {
        let key = cursor.partition().key.clone();
        positions.insert(key, UnfilteredCursor::data_position(&cursor).unwrap());
    }
    for key in positions.keys() {
        let range = ReadRange::all_rows(KeyRange::Single(key.clone()));
        let mut cursor = sstable.cursor(&range).unwrap();
        while cursor.advance_partition().unwrap() {
            while cursor.advance().unwrap() {}
        }
    }
    positions
}

fn look_up(
    sstables: &[Arc<SSTableReader>],
    table: &Table,
    key: &PartitionKey,
    hint: Option<PartitionHint>,
) -> (RowLookup, Option<Vec<u8>>) {
    let mut row = None;
    let lookup = find_only_row(sstables, table, (key.token(), key.bytes()), hint, &mut |found| {
        row = Some(found.as_bytes().to_vec());
    });
    (lookup, row)
}

#[test]
fn a_hint_changes_no_answer_whether_it_is_right_or_wrong() {
    for seed in seeds(0..10) {
        let (mut random, table) = (Random(seed), table());
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        disk.create_dir_all(Path::new("/t")).unwrap();
        let sstables: Vec<_> = (1..=1 + seed as u32 % 3).map(|id| write(&disk, &table, id, &mut random)).collect();
        let known: Vec<_> = sstables.iter().map(|sstable| positions(sstable)).collect();
        let (mut right, mut found) = (0, 0);
        for _ in 0..2_000 {
            let key = PartitionKey::new(&(random.below(KEYS) as i32).to_be_bytes());
            let expected = look_up(&sstables, &table, &key, None);
            let which = random.below(sstables.len());
            let position = match known[which].get(&key) {
                Some(position) if random.one_in(2) => {
                    right += 1;
                    *position
                }
                _ => match random.below(4) {
                    0 => u64::MAX,
                    1 => sstables[which].data_length_bytes() + random.below(9) as u64,
                    2 => random.below(sstables[which].data_length_bytes() as usize) as u64,
                    _ => known[which].values().nth(random.below(known[which].len())).copied().unwrap_or_default(),
                },
            };
            let sstable = if random.one_in(9) { u64::MAX } else { sstables[which].number() };
            let hinted = look_up(&sstables, &table, &key, Some(PartitionHint { sstable, position }));
            assert!(hinted == expected, "seed {seed}, {key:?} at {position} of {which}");
            found += u64::from(expected.0 == RowLookup::Found);
        }
        assert!(right > 300 && found > 300, "{right} hints are right, and {found} rows found");
    }
}

#[test]
fn a_right_hint_finds_rows_whose_index_is_not_in_the_cache() {
    let (mut random, table) = (Random(1), table());
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    disk.create_dir_all(Path::new("/t")).unwrap();
    let sstable = write(&disk, &table, 1, &mut random);
    let known = positions(&sstable);
    // The cache of this one has its data, and nothing of its index.
    let other = Arc::new(SSTableReader::open(&*disk, sstable.descriptor(), &table, &cache()).unwrap());
    let mode = ReadMode::Cached { may_block: true };
    let mut cursor = other.cursor_with(&ReadRange::all_rows(KeyRange::all()), mode).unwrap();
    while cursor.advance_partition().unwrap() {
        while cursor.advance().unwrap() {}
    }
    let other = std::slice::from_ref(&other);
    let mut found = 0;
    for (key, position) in known {
        assert!(look_up(other, &table, &key, None).0 == RowLookup::Unknown, "the index has to be read first");
        let hint = PartitionHint { sstable: other[0].number(), position };
        found += usize::from(look_up(other, &table, &key, Some(hint)).0 == RowLookup::Found);
    }
    assert!(found > 90, "{found} rows");
}

#[test]
fn prefetching_at_right_and_wrong_places_reads_nothing() {
    let (mut random, table) = (Random(2), table());
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    disk.create_dir_all(Path::new("/t")).unwrap();
    let read = write(&disk, &table, 1, &mut random);
    let known = positions(&read);
    let unread = Arc::new(SSTableReader::open(&*disk, read.descriptor(), &table, &cache()).unwrap());
    let sstables = [read, unread];
    let bytes_read = sstables.each_ref().map(|sstable| sstable.data_bytes_read());
    for count in 0..40 {
        let hints: Vec<_> = (0..count)
            .map(|_| PartitionHint {
                sstable: [sstables[0].number(), sstables[1].number(), u64::MAX][random.below(3)],
                position: match random.below(3) {
                    0 => known.values().nth(random.below(known.len())).copied().unwrap_or_default(),
                    1 => sstables[0].data_length_bytes() + random.below(9) as u64,
                    _ => u64::MAX,
                },
            })
            .collect();
        prefetch_hinted(&sstables, &hints);
    }
    assert_eq!(sstables.each_ref().map(|sstable| sstable.data_bytes_read()), bytes_read);
    let key = known.keys().next().unwrap();
    assert!(look_up(&sstables[1..], &table, key, None).0 == RowLookup::Unknown, "nothing came into the cache");
}
