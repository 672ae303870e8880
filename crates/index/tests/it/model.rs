//! Random updates: the candidates of a memtable's index and of an SSTable's are the rows that were written with such a
//! value, in the order of reading.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytecomp::encode_decorated_key;
use bytecomp::separator::EXCLUDED;
use index::{Candidates, Indexer, KeyBounds, MemoryIndex, RowKey, SORTED_BYTES_MAX, Source, TermRange, decode_row_key};
use memtrie::TrieOptions;
use model::{IndexPart, KeyBound, KeyRange, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder};
use testkit::{Random, seed};
use types::CqlType;

use crate::rows::{COLUMNS, Written, number, random_row, table, update};
use crate::support::{disk, open, write};

/// Whether a value is in the range, as far as cut terms show.
fn is_between(ty: &CqlType, first: Option<&[u8]>, last: Option<&[u8]>, value: &[u8]) -> bool {
    let cut = |value: &[u8]| value[..value.len().min(1023)].to_vec();
    first.is_none_or(|first| ty.compare(&cut(first), &cut(value)).is_le())
        && last.is_none_or(|last| ty.compare(&cut(value), &cut(last)).is_le())
}

fn row_keys(candidates: Option<Candidates>, indexer: &Indexer) -> Vec<RowKey> {
    let mut candidates = candidates.expect("they are few");
    let mut keys = Vec::new();
    while let Some(key) = candidates.peek() {
        keys.push(decode_row_key(indexer.clustering(), key, &mut Vec::new()).unwrap());
        candidates.advance().unwrap();
    }
    keys
}

#[test]
fn candidates_are_the_rows_that_had_such_a_value_in_reading_order() {
    let (table, mut random) = (table(), Random(seed(4)));
    for (rows, shards, options) in [(30, 1, None), (1_500, 3, None), (400, 2, Some(TINY))] {
        let rows: Vec<Written> = (0..rows).map(|_| random_row(&mut random)).collect();
        for name in COLUMNS {
            let column = table.column(name).unwrap();
            let indexer = Indexer::new(&table, column, IndexPart::Whole);
            let memory = match options {
                Some(options) => MemoryIndex::with_options(shards, options),
                None => MemoryIndex::new(shards),
            };
            let (memory, mut on_disk, mut buffer) = (Arc::new(memory), Vec::new(), Vec::new());
            let mut growth = 0;
            for (place, row) in rows.iter().enumerate() {
                let update = update(&table, row);
                let mut put_count = 0;
                indexer.of_update(&update, &mut buffer, |entry, length| {
                    put_count += 1;
                    match place % 2 {
                        0 => growth += memory.put(row.key.token(), entry, length),
                        _ => on_disk.push((entry.to_vec(), length)),
                    }
                });
                assert_eq!(indexer.growth(&update, u64::MAX).entries, put_count, "{name}");
            }
            assert_eq!(growth, memory.used_bytes() as i64, "what puts report is what the index uses");
            let disk = disk();
            write(&disk, on_disk.iter().map(|(entry, length)| (entry.as_slice(), *length)), 3_000);
            let file = open(&disk).unwrap();
            for _ in 0..12 {
                let [one, other] = [(); 2].map(|()| rows[random.below(rows.len())].value(name));
                let (range, first, last) = match random.below(3) {
                    0 => match &one {
                        Some(value) => (TermRange::equal(&column.ty, value), one.clone(), one.clone()),
                        None => continue,
                    },
                    1 => (TermRange::between(&column.ty, one.as_deref(), None), one.clone(), None),
                    _ => (TermRange::between(&column.ty, one.as_deref(), other.as_deref()), one, other),
                };
                let from = random.one_in(2).then(|| rows[random.below(rows.len())].key.clone());
                let keys = match &from {
                    Some(key) if random.one_in(2) => KeyRange::Single(key.clone()),
                    Some(key) => KeyRange::Range {
                        start: KeyBound::Key { key: key.clone(), inclusive: random.one_in(2) },
                        end: KeyBound::Unbounded,
                    },
                    None => KeyRange::all(),
                };
                let memory_parts = memory.parts().map(|part| Box::new(part) as Box<dyn Source>);
                let parts = memory_parts.chain(file.parts().map(|part| Box::new(part) as Box<dyn Source>));
                let bounds = KeyBounds::of(&keys);
                let found = Candidates::open(parts.collect(), &range, &bounds, true, SORTED_BYTES_MAX).unwrap();
                let found = row_keys(found, &indexer);
                let is_whole = matches!(name, "p1" | "p2" | "s");
                let mut expected: Vec<RowKey> = Vec::new();
                for row in &rows {
                    let value = row.value(name);
                    let is_in = |value: &Vec<u8>| is_between(&column.ty, first.as_deref(), last.as_deref(), value);
                    if keys.contains(&row.key) && value.as_ref().is_some_and(is_in) {
                        let clustering = (!is_whole).then(|| row.clustering.clone());
                        expected.push(RowKey { partition: row.key.clone(), clustering, hint: None });
                    }
                }
                expected.sort_by(|one, other| {
                    let order = |key: &RowKey| key.clustering.clone().unwrap_or_default();
                    let rows = || table.comparator().compare(&order(one), &order(other));
                    one.partition.cmp(&other.partition).then_with(rows)
                });
                expected.dedup();
                let (found_count, count) = (found.len(), expected.len());
                assert!(found == expected, "{found_count} candidates and not {count} of {name} in {keys:?}");
            }
        }
    }
}

/// A trie that is soon full.
pub const TINY: TrieOptions =
    TrieOptions { layout: memtrie::Layout::Adaptive, blocks_bytes_max: 8 << 10, blobs_bytes_max: 8 << 10 };

#[test]
fn deleted_cells_and_deletions_of_rows_have_no_entries() {
    let table = table();
    let row = Written { number: None, ..random_row(&mut Random(5)) };
    let of = |name: &str, update: &PartitionUpdate| {
        let indexer = Indexer::new(&table, table.column(name).unwrap(), IndexPart::Whole);
        let mut entries = BTreeSet::new();
        indexer.of_update(update, &mut Vec::new(), |entry, _| {
            entries.insert(entry.to_vec());
        });
        entries.len()
    };
    assert_eq!((of("v", &update(&table, &row)), of("c1", &update(&table, &row))), (0, 1));
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    builder.deletion(model::DeletionTime::new(1, 1));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    let mut deletion = PartitionUpdateBuilder::new(table.clone(), row.key.clone());
    deletion.row(&row.clustering, &blob);
    assert_eq!(of("c1", &deletion.build()), 0);
    let mut partition = PartitionUpdateBuilder::new(table.clone(), row.key.clone());
    partition.delete_partition(model::DeletionTime::new(1, 1));
    assert_eq!(of("p1", &partition.build()), 0);
}

#[test]
fn a_range_with_too_many_keys_to_sort_is_not_answered() {
    let (table, mut random) = (table(), Random(seed(6)));
    let indexer = Indexer::new(&table, table.column("c1").unwrap(), IndexPart::Whole);
    let memory = Arc::new(MemoryIndex::new(1));
    for _ in 0..200 {
        let row = random_row(&mut random);
        indexer.of_update(&update(&table, &row), &mut Vec::new(), |entry, length| {
            memory.put(row.key.token(), entry, length);
        });
    }
    let open = |range: &TermRange, keys: &KeyRange, max: usize| {
        let parts = memory.parts().map(|part| Box::new(part) as Box<dyn Source>).collect();
        Candidates::open(parts, range, &KeyBounds::of(keys), true, max).unwrap()
    };
    let all = TermRange::between(&CqlType::Int, None, None);
    assert!(open(&all, &KeyRange::all(), 1_000).is_none());
    assert!(open(&all, &KeyRange::all(), SORTED_BYTES_MAX).is_some());
    let partition = KeyRange::Single(PartitionKey::new(b"without rows"));
    assert!(open(&all, &partition, 1_000).is_none(), "the keys of other partitions have to be read too");
    assert!(open(&all, &partition, SORTED_BYTES_MAX).is_some());
    let one = TermRange::equal(&CqlType::Int, &0_i32.to_be_bytes());
    assert!(open(&one, &KeyRange::all(), 0).is_some(), "the entries of one value are sorted already");
}

#[test]
fn long_keys_of_which_a_batch_has_few_are_known_to_be_many() {
    let memory = Arc::new(MemoryIndex::new(1));
    let term = TermRange::equal(&CqlType::Text, b"a");
    for number in 0..300_u16 {
        let key = PartitionKey::new(&[&number.to_be_bytes()[..], &[b'k'; 4_000][..]].concat());
        let mut entry = b"\x40a\x00\x38".to_vec();
        encode_decorated_key(key.token(), key.bytes(), &mut entry);
        entry.push(EXCLUDED);
        memory.put(key.token(), &entry, 4);
    }
    let parts = memory.parts().map(|part| Box::new(part) as Box<dyn Source>).collect();
    let candidates = Candidates::open(parts, &term, &KeyBounds::of(&KeyRange::all()), true, 0).unwrap().unwrap();
    assert!(candidates.known_count() >= 300, "{}", candidates.known_count());
}

#[test]
fn keys_that_are_no_candidates_are_refused() {
    let mut random = Random(seed(7));
    let indexer = Indexer::new(&table(), table().column("v").unwrap(), IndexPart::Whole);
    let row = random_row(&mut random);
    let mut keys = Vec::new();
    let update = update(&table(), &Written { number: Some(number(&mut random)), ..row });
    indexer.of_update(&update, &mut Vec::new(), |entry, length| keys.push(entry[length..].to_vec()));
    let key = &keys[0];
    assert!(decode_row_key(indexer.clustering(), key, &mut Vec::new()).is_ok());
    for length in 0..key.len() {
        assert!(
            decode_row_key(indexer.clustering(), &key[..length], &mut Vec::new()).is_err(),
            "the first {length} bytes"
        );
    }
    for _ in 0..3_000 {
        let mut damaged = key.clone();
        damaged[random.below(key.len())] = random.number() as u8;
        let _ = decode_row_key(indexer.clustering(), &damaged, &mut Vec::new());
    }
}
