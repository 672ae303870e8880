//! Point reads, slices in both directions and token ranges, compared with a plain list of a table's contents.

use std::cmp::Ordering;

use model::{
    ClusteringBound, ClusteringComparator, Clusterings, DeletionTime, KeyBound, KeyRange, PartitionKey, ReadRange,
    Side, Slice, Slices, Unfiltered, UnfilteredCursor, push_component,
};
use sstable::{BlockCache, SSTableReader};
use testkit::Random;

use crate::fixture::{Fixture, NAMES, disk};

/// A row or marker that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Row(Vec<u8>, Vec<u8>),
    Marker(ClusteringBound, DeletionTime, DeletionTime),
}

impl Item {
    fn of(unfiltered: &Unfiltered<'_>) -> Item {
        match unfiltered {
            Unfiltered::Row(row) => Item::Row(row.clustering.to_vec(), row.row.as_bytes().to_vec()),
            Unfiltered::Marker(marker) => {
                Item::Marker(ClusteringBound::new(marker.prefix.to_vec(), marker.side), marker.before, marker.after)
            }
        }
    }

    fn compare(&self, bound: &ClusteringBound, comparator: &ClusteringComparator) -> Ordering {
        match self {
            Item::Row(clustering, _) => comparator.compare_row_to_bound(clustering, bound),
            Item::Marker(at, ..) => comparator.compare_bounds(at, bound),
        }
    }
}

#[derive(Debug, PartialEq)]
struct Content {
    key: PartitionKey,
    deletion: DeletionTime,
    static_row: Option<Vec<u8>>,
    items: Vec<Item>,
}

fn read(reader: &SSTableReader, range: &ReadRange) -> Vec<Content> {
    let mut cursor = reader.cursor(range).unwrap();
    let mut contents = Vec::new();
    while cursor.advance_partition().unwrap() {
        let head = cursor.partition();
        let mut content = Content {
            key: head.key.clone(),
            deletion: head.deletion,
            static_row: head.static_row.map(|row| row.as_bytes().to_vec()),
            items: Vec::new(),
        };
        while cursor.advance().unwrap() {
            content.items.push(Item::of(&cursor.unfiltered()));
        }
        assert!(!cursor.advance().unwrap(), "the end of a partition is final");
        contents.push(content);
    }
    assert!(!cursor.advance_partition().unwrap(), "the end is final");
    contents
}

fn everything(reader: &SSTableReader) -> Vec<Content> {
    read(reader, &ReadRange::all_rows(KeyRange::all()))
}

/// What slices select, by definition.
fn select(items: &[Item], slices: &Slices, comparator: &ClusteringComparator) -> Vec<Item> {
    let mut selected = Vec::new();
    for Slice { start, end } in slices.as_slice() {
        let mut open = DeletionTime::LIVE;
        let mut inside = Vec::new();
        let mut open_at_start = DeletionTime::LIVE;
        for item in items.iter().take_while(|item| item.compare(end, comparator) == Ordering::Less) {
            if let Item::Marker(_, _, after) = item {
                open = *after;
            }
            if item.compare(start, comparator) == Ordering::Greater {
                inside.push(item.clone());
            } else {
                open_at_start = open;
            }
        }
        if !open_at_start.is_live() {
            selected.push(Item::Marker(start.clone(), DeletionTime::LIVE, open_at_start));
        }
        selected.append(&mut inside);
        if !open.is_live() {
            selected.push(Item::Marker(end.clone(), open, DeletionTime::LIVE));
        }
    }
    selected
}

/// A bound at some prefix of some row, or sometimes at a value between rows.
fn random_bound(items: &[Item], random: &mut Random) -> ClusteringBound {
    let whole = match items.get(random.below(items.len().max(1))) {
        Some(Item::Row(clustering, _)) => clustering.clone(),
        Some(Item::Marker(bound, ..)) => bound.prefix.clone(),
        None => Vec::new(),
    };
    let parts: Vec<_> = Clusterings(&whole).collect();
    let kept = random.below(parts.len() + 1);
    let mut prefix = Vec::new();
    for (index, part) in parts[..kept].iter().enumerate() {
        let mut value = part.unwrap_or_default().to_vec();
        if index + 1 == kept && random.one_in(4) && !value.is_empty() {
            let last = value.len() - 1;
            value[last] ^= 1 << random.below(7);
        }
        push_component(Some(&value), &mut prefix);
    }
    ClusteringBound::new(prefix, if random.one_in(2) { Side::Before } else { Side::After })
}

fn random_slices(items: &[Item], comparator: &ClusteringComparator, random: &mut Random) -> Slices {
    let count = 1 + random.below(4);
    let slices = (0..count).map(|_| {
        let (a, b) = (random_bound(items, random), random_bound(items, random));
        if comparator.compare_bounds(&a, &b) == Ordering::Less {
            Slice { start: a, end: b }
        } else {
            Slice { start: b, end: a }
        }
    });
    Slices::new(slices.collect(), comparator)
}

#[test]
fn slices_in_both_directions_select_what_they_say() {
    let mut skipped = 0;
    for name in ["wide", "wide_rt", "wide16k", "wide_blocks", "tombs", "desc_ck", "statics", "comp_pk"] {
        let fixture = Fixture::load(name);
        let reader = fixture.open();
        let comparator = fixture.table.comparator();
        let mut random = Random(7);
        for content in everything(&reader) {
            for _ in 0..60 {
                let slices = random_slices(&content.items, comparator, &mut random);
                let mut expected = select(&content.items, &slices, comparator);
                let keys = KeyRange::Single(content.key.clone());
                let matches = reader.may_match(&ReadRange { keys, slices: slices.clone(), reversed: false });
                skipped += usize::from(!matches);
                assert!(matches || expected.is_empty() && content.deletion.is_live(), "{name} {slices:?}");
                for reversed in [false, true] {
                    let keys = KeyRange::Single(content.key.clone());
                    let got = read(&reader, &ReadRange { keys, slices: slices.clone(), reversed });
                    assert_eq!(got.len(), 1);
                    assert_eq!(got[0].items, expected, "{name} {slices:?} reversed {reversed}");
                    assert_eq!((got[0].deletion, &got[0].static_row), (content.deletion, &content.static_row));
                    expected.reverse();
                }
            }
        }
    }
    assert!(skipped > 0, "some reads need not open the table");
}

#[test]
fn whole_partitions_reversed_are_the_reverse_and_partitions_stay_in_order() {
    for name in NAMES {
        let reader = Fixture::load(name).open();
        let forward = everything(&reader);
        let reversed = read(&reader, &ReadRange { reversed: true, ..ReadRange::all_rows(KeyRange::all()) });
        assert_eq!(forward.len(), reversed.len());
        for (mut forward, reversed) in forward.into_iter().zip(reversed) {
            forward.items.reverse();
            assert_eq!((forward.key, forward.items), (reversed.key, reversed.items), "{name}");
        }
    }
}

#[test]
fn slices_over_many_partitions_are_those_of_each() {
    for name in ["wide_rt", "tombs", "comp_pk", "statics"] {
        let fixture = Fixture::load(name);
        let reader = fixture.open();
        let comparator = fixture.table.comparator();
        let all = everything(&reader);
        let mut random = Random(11);
        for round in 0..40 {
            let slices = match round {
                0 => Slices::none(),
                _ => random_slices(&all[random.below(all.len())].items, comparator, &mut random),
            };
            for reversed in [false, true] {
                let got = read(&reader, &ReadRange { keys: KeyRange::all(), slices: slices.clone(), reversed });
                assert_eq!(got.len(), all.len());
                for (content, got) in all.iter().zip(got) {
                    let mut expected = select(&content.items, &slices, comparator);
                    if reversed {
                        expected.reverse();
                    }
                    assert_eq!(got.items, expected, "{name} {slices:?} reversed {reversed}");
                }
            }
        }
    }
}

#[test]
fn reads_past_the_page_cache_find_the_same() {
    let direct = BlockCache::new(1 << 20).with_direct_reads();
    for name in NAMES {
        let fixture = Fixture::load(name);
        let reader = SSTableReader::open(&*disk(), &fixture.descriptor, &fixture.table, &direct).unwrap();
        let contents = everything(&reader);
        assert!(contents == everything(&fixture.open()), "{name}");
        for content in contents.iter().step_by(contents.len() / 20 + 1) {
            let single = read(&reader, &ReadRange::all_rows(KeyRange::Single(content.key.clone())));
            assert!(single.len() == 1 && single[0] == *content, "{name} {:?}", content.key);
        }
    }
}

/// Blocks, pages of both indexes and waypoints.
#[test]
fn an_sstable_that_is_closed_leaves_nothing_in_the_cache() {
    let cache = BlockCache::new(64 << 20);
    for name in NAMES {
        let fixture = Fixture::load(name);
        let reader = SSTableReader::open(&*disk(), &fixture.descriptor, &fixture.table, &cache).unwrap();
        let keys = everything(&reader).into_iter().map(|content| content.key);
        for (index, key) in keys.enumerate().take(200) {
            let range = ReadRange::all_rows(KeyRange::Single(key));
            read(&reader, &ReadRange { reversed: index % 2 == 0, ..range });
        }
        let cursor = reader.cursor(&ReadRange::all_rows(KeyRange::all())).unwrap();
        drop(reader);
        assert!(cache.used_bytes() > 0, "{name}: a cursor has it open");
        drop(cursor);
        assert_eq!(cache.used_bytes(), 0, "{name}");
    }
}

#[test]
fn every_key_is_found_and_others_are_not() {
    for name in NAMES {
        let reader = Fixture::load(name).open();
        let mut cursor = reader.scan().unwrap();
        let mut keys = Vec::new();
        while cursor.advance_partition().unwrap() {
            keys.push(cursor.partition().key.clone());
        }
        assert_eq!(keys.len() as u64, reader.partition_count());
        assert_eq!((keys.first(), keys.last()), (Some(reader.first_key()), Some(reader.last_key())));
        for key in keys.iter().step_by(keys.len() / 200 + 1) {
            let got = read(&reader, &ReadRange::all_rows(KeyRange::Single(key.clone())));
            assert!(got.len() == 1 && got[0].key == *key, "{name} {key:?}");
            let mut other = key.bytes().to_vec();
            other.push(1);
            let other = PartitionKey::new(&other);
            assert!(read(&reader, &ReadRange::all_rows(KeyRange::Single(other))).is_empty());
        }
    }
}

#[test]
fn ranges_of_partitions_begin_and_end_where_they_say() {
    for name in ["many", "kv", "tombs", "types_empty"] {
        let reader = Fixture::load(name).open();
        let all: Vec<PartitionKey> = {
            let mut cursor = reader.scan().unwrap();
            let mut keys = Vec::new();
            while cursor.advance_partition().unwrap() {
                keys.push(cursor.partition().key.clone());
            }
            keys
        };
        let mut random = Random(3);
        for _ in 0..150 {
            let mut bound = || {
                let key = all[random.below(all.len())].clone();
                let inclusive = random.one_in(2);
                match random.below(5) {
                    0 => KeyBound::Unbounded,
                    1 => KeyBound::Token { token: types::Token(key.token().0 ^ 0x0000_5555_0000_1111), inclusive },
                    2 => KeyBound::Token { token: key.token(), inclusive },
                    3 => KeyBound::Key { key: PartitionKey::with_token(key.token(), b"~"), inclusive },
                    _ => KeyBound::Key { key, inclusive },
                }
            };
            let keys = KeyRange::Range { start: bound(), end: bound() };
            let expected: Vec<_> = all.iter().filter(|key| keys.contains(key)).cloned().collect();
            let mut got = Vec::new();
            let mut cursor =
                reader.cursor(&ReadRange { slices: Slices::none(), ..ReadRange::all_rows(keys.clone()) }).unwrap();
            while got.len() < 300 && cursor.advance_partition().unwrap() {
                got.push(cursor.partition().key.clone());
            }
            assert_eq!(got, expected[..expected.len().min(300)], "{name} {keys:?}");
            assert!(expected.is_empty() || reader.may_contain(&keys));
        }
    }
}
