//! Two indexes of a memtable together give the rows that both have, in the order of reading.

use std::collections::BTreeSet;
use std::sync::Arc;

use index::{Candidates, Indexer, KeyBounds, MemoryIndex, TermRange, decode_row_key};
use memtrie::TrieOptions;
use model::{IndexPart, KeyBound, KeyRange, PartitionKey};
use testkit::{Random, seed};

use crate::model::TINY;
use crate::rows::{Written, random_row, table, update};

struct Filled {
    indexer: Indexer,
    memory: Arc<MemoryIndex>,
}

fn filled(column: &'static str, rows: &[Written], shards: usize, options: Option<TrieOptions>) -> Filled {
    let table = table();
    let indexer = Indexer::new(&table, table.column(column).unwrap(), IndexPart::Whole);
    let memory = options.map_or_else(|| MemoryIndex::new(shards), |options| MemoryIndex::with_options(shards, options));
    for row in rows {
        indexer.of_update(&update(&table, row), &mut Vec::new(), |entry, length| {
            memory.put(row.key.token(), entry, length);
        });
    }
    Filled { indexer, memory: Arc::new(memory) }
}

fn random_keys(random: &mut Random, rows: &[Written]) -> KeyRange {
    let mut key = || rows[random.below(rows.len())].key.clone();
    let (one, other) = (key(), key());
    match random.below(4) {
        0 => KeyRange::Single(one),
        1 => KeyRange::Range {
            start: KeyBound::Key { key: one.clone().min(other.clone()), inclusive: random.one_in(2) },
            end: KeyBound::Token { token: one.max(other).token(), inclusive: random.one_in(2) },
        },
        _ => KeyRange::all(),
    }
}

#[test]
fn the_candidates_of_two_indexes_are_the_rows_that_both_have() {
    let (described, mut random) = (table(), Random(seed(8)));
    let mut found_count = 0;
    for (row_count, shards) in [(40, 1), (6_000, 1), (6_000, 3)] {
        let rows: Vec<Written> = (0..row_count).map(|_| random_row(&mut random)).collect();
        for columns in [["c1", "c2"], ["v", "w"], ["c1", "v"], ["v", "v"], ["p1", "s"], ["p1", "p2"]] {
            let indexes = columns.map(|column| filled(column, &rows, shards, None));
            for _ in 0..12 {
                let row = &rows[random.below(rows.len())];
                let [Some(one), Some(other)] = columns.map(|column| row.value(column)) else { continue };
                let keys = random_keys(&mut random, &rows);
                let terms = [indexes[0].indexer.terms_of(&one), indexes[1].indexer.terms_of(&other)];
                let found = places(&indexes, terms.each_ref(), &keys);
                // Values that agree where terms are cut are one.
                let cut = |value: Option<Vec<u8>>| value.map(|value| value[..value.len().min(1023)].to_vec());
                let is_of_rows = indexes[0].indexer.is_of_rows();
                let having = |column: &str, value: &Vec<u8>| -> BTreeSet<(PartitionKey, Option<Vec<u8>>)> {
                    let value = cut(Some(value.clone()));
                    let has = |row: &&Written| cut(row.value(column)) == value && keys.contains(&row.key);
                    let place = |row: &Written| (row.key.clone(), is_of_rows.then(|| row.clustering.clone()));
                    rows.iter().filter(has).map(place).collect()
                };
                let having_other = having(columns[1], &other);
                let mut expected: Vec<_> = having(columns[0], &one).into_iter().collect();
                expected.retain(|place| having_other.contains(place));
                expected.sort_by(|one, other| {
                    let order = |place: &Option<Vec<u8>>| place.clone().unwrap_or_default();
                    let rows = || described.comparator().compare(&order(&one.1), &order(&other.1));
                    one.0.cmp(&other.0).then_with(rows)
                });
                found_count += found.len();
                let (count, due) = (found.len(), expected.len());
                assert!(found == expected, "{count} candidates and not {due} of {columns:?} in {keys:?}");
            }
        }
    }
    assert!(found_count > 2_000, "{found_count} were found");
}

fn places(indexes: &[Filled; 2], terms: [&TermRange; 2], keys: &KeyRange) -> Vec<(PartitionKey, Option<Vec<u8>>)> {
    let memory = [indexes[0].memory.clone(), indexes[1].memory.clone()];
    let mut candidates = Candidates::of_two(memory, terms, &KeyBounds::of(keys)).expect("both are in tries");
    let mut places = Vec::new();
    loop {
        while candidates.is_waiting() {
            candidates.read_on();
        }
        let Some(key) = candidates.peek() else { return places };
        let place = decode_row_key(indexes[0].indexer.clustering(), key, &mut Vec::new()).unwrap();
        places.push((place.partition, place.clustering));
        candidates.advance().unwrap();
    }
}

#[test]
fn indexes_whose_tries_are_full_or_divided_differently_are_read_one_by_one() {
    let mut random = Random(seed(9));
    let rows: Vec<Written> = (0..400).map(|_| random_row(&mut random)).collect();
    let open = |one: &Filled, other: &Filled| {
        let value = 1_i32.to_be_bytes();
        let terms = [one.indexer.terms_of(&value), other.indexer.terms_of(&value)];
        let memory = [one.memory.clone(), other.memory.clone()];
        Candidates::of_two(memory, terms.each_ref(), &KeyBounds::of(&KeyRange::all())).is_some()
    };
    let (sound, full) = (filled("v", &rows, 2, None), filled("c1", &rows, 2, Some(TINY)));
    assert!(!open(&sound, &full) && !open(&full, &sound));
    assert!(!open(&sound, &filled("c1", &rows, 3, None)));
    assert!(open(&sound, &filled("c1", &rows, 2, None)));
    let ranges = [sound.indexer.terms_between(None, None), sound.indexer.terms_of(b"")];
    let memory = [sound.memory.clone(), sound.memory.clone()];
    assert!(Candidates::of_two(memory, ranges.each_ref(), &KeyBounds::of(&KeyRange::all())).is_none());
}
