//! Unions of cursors, and cursors within sets of ranges.

use std::ops::Bound;

use memtrie::{Bounds, Direction, Trie, Union};

use super::model::{Model, Random, expected, seeds, trie};

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

fn key(random: &mut Random) -> Vec<u8> {
    (0..random.below(6)).map(|_| b"abcdefgh"[random.below(8)]).collect()
}

fn filled(random: &mut Random, keys: usize, name: u8) -> (Trie, Model) {
    let (trie, mut model) = (trie(), Model::new());
    for _ in 0..keys {
        let (key, content) = (key(random), vec![name; 1 + random.below(3)]);
        trie.writer().put(&key, &content).expect("room");
        model.insert(key, content);
    }
    (trie, model)
}

fn is_after(direction: Direction, key: &[u8], target: &[u8]) -> bool {
    if direction == Direction::Forward { key >= target } else { key <= target }
}

/// Unions of no, one, two and many tries; contents of the same key are joined in the order of the tries.
#[test]
fn a_union_gives_every_key_once_with_all_its_contents() {
    for seed in seeds(0..60) {
        let random = &mut Random(seed);
        let count = random.below(6);
        let tries: Vec<_> = (0..count)
            .map(|i| {
                let keys = [0, 5, 200][random.below(3)];
                filled(random, keys, i as u8)
            })
            .collect();
        let mut joined = Model::new();
        for (key, content) in tries.iter().flat_map(|(_, model)| model) {
            joined.entry(key.clone()).or_default().extend_from_slice(content);
        }
        let pins: Vec<_> = tries.iter().map(|(trie, _)| trie.pin()).collect();
        for direction in DIRECTIONS {
            let all = expected(&joined, Bounds::ALL, direction);
            let new = || {
                let cursors = pins.iter().map(|pin| pin.cursor(Bounds::ALL, direction)).collect();
                Union::new(cursors, direction, |contents: &[&[u8]], out: &mut Vec<u8>| {
                    assert!(contents.len() > 1 && out.is_empty());
                    contents.iter().for_each(|content| out.extend_from_slice(content));
                })
            };
            let mut union = new();
            let mut found = Vec::new();
            while union.advance() {
                found.push((union.key().to_vec(), union.content().to_vec()));
            }
            assert!(!union.advance() && union.key().is_empty() && union.content().is_empty());
            assert_eq!(found, all, "seed {seed}");
            // Alternates between skipping and advancing.
            let mut union = new();
            let (mut at, mut on_entry) = (0, false);
            loop {
                let reached = if random.below(2) == 0 {
                    let target = key(random);
                    let mut later = at..all.len();
                    at = later.find(|&index| is_after(direction, &all[index].0, &target)).unwrap_or(all.len());
                    union.skip_to(&target)
                } else {
                    at += usize::from(on_entry);
                    union.advance()
                };
                on_entry = true;
                assert_eq!(reached, at < all.len(), "seed {seed}");
                let Some((key, content)) = all.get(at) else { break };
                assert_eq!((union.key(), union.content()), (key.as_slice(), content.as_slice()), "seed {seed}");
            }
        }
    }
}

fn random_ranges<'k>(bounds: &'k [Vec<u8>], random: &mut Random) -> Vec<Bounds<'k>> {
    let bound = |key: &'k [u8], random: &mut Random| {
        if random.below(2) == 0 { Bound::Included(key) } else { Bound::Excluded(key) }
    };
    let mut ranges: Vec<Bounds<'k>> = Vec::new();
    for pair in bounds.chunks_exact(2) {
        let (mut start, mut end) = (bound(&pair[0], random), bound(&pair[1], random));
        if random.below(6) == 0 {
            start = Bound::Included(&pair[0]);
            end = Bound::Included(&pair[0]);
        }
        ranges.push(Bounds { start, end });
    }
    if let Some(first) = ranges.first_mut().filter(|_| random.below(3) == 0) {
        first.start = Bound::Unbounded;
    }
    if let Some(last) = ranges.last_mut().filter(|_| random.below(3) == 0) {
        last.end = Bound::Unbounded;
    }
    ranges
}

#[test]
fn a_set_of_ranges_returns_the_union_of_its_ranges() {
    for seed in seeds(0..200) {
        let random = &mut Random(seed);
        let keys = [0, 150, 150][random.below(3)];
        let (trie, model) = filled(random, keys, 7);
        let mut bounds: Vec<Vec<u8>> = (0..2 * random.below(6)).map(|_| key(random)).collect();
        bounds.sort();
        bounds.dedup();
        let ranges = random_ranges(&bounds, random);
        let pin = trie.pin();
        for direction in DIRECTIONS {
            let within = ranges.iter().flat_map(|&range| expected(&model, range, Direction::Forward));
            let mut within: Vec<_> = within.collect();
            if direction == Direction::Reverse {
                within.reverse();
            }
            let mut cursor = pin.tail(&[]).ranges(&ranges, direction);
            let mut found = Vec::new();
            while cursor.advance() {
                found.push((cursor.key().to_vec(), cursor.content().to_vec()));
            }
            assert!(!cursor.advance() && cursor.key().is_empty());
            assert_eq!(found, within, "seed {seed}: {ranges:?} {direction:?}");
            for _ in 0..10 {
                let target = key(random);
                let mut cursor = pin.tail(&[]).ranges(&ranges, direction);
                let first = within.iter().position(|(key, _)| is_after(direction, key, &target));
                assert_eq!(cursor.skip_to(&target), first.is_some(), "seed {seed}: {target:02x?} in {ranges:?}");
                for (key, content) in &within[first.unwrap_or(within.len())..] {
                    assert_eq!((cursor.key(), cursor.content()), (key.as_slice(), content.as_slice()));
                    cursor.advance();
                }
                assert!(!cursor.advance());
            }
        }
    }
}

/// Keys of four characters out of ten, so that all of them pass nodes of one size.
fn ten_thousand_keys() -> Trie {
    let trie = trie();
    for number in 0..10_000 {
        trie.writer().put(format!("{number:04}").as_bytes(), b"some content").expect("room");
    }
    trie
}

/// The allocations for making a cursor over a trie and taking this many entries from it.
fn allocations(entries: usize, take: impl Fn(usize)) -> u64 {
    allocation_counter::measure(|| take(entries)).count_total
}

#[test]
fn a_walk_through_a_trie_allocates_nothing_per_node() {
    let (trie, other) = (ten_thousand_keys(), ten_thousand_keys());
    let (pin, other_pin) = (trie.pin(), other.pin());
    let key = |number: usize| format!("{number:04}").into_bytes();
    let ends: Vec<_> = (0..10_000).step_by(50).map(|number| (key(number), key(number + 49))).collect();
    let ranges_of_fifty: Vec<_> = ends.iter().map(|(first, last)| Bounds::inclusive(first, last)).collect();
    for direction in DIRECTIONS {
        let all = || pin.cursor(Bounds::ALL, direction);
        let cursor = |entries| {
            let mut cursor = all();
            (0..entries).for_each(|_| assert!(cursor.advance()));
        };
        let nodes = |entries| {
            let (mut nodes, mut met) = (pin.node_cursor(direction), 0);
            while met < entries {
                met += usize::from(nodes.content().is_some());
                nodes.advance();
            }
        };
        let ranges = |entries| {
            let mut ranges = pin.tail(&[]).ranges(&ranges_of_fifty, direction);
            (0..entries).for_each(|_| assert!(ranges.advance()));
        };
        let union = |entries| {
            let first = |contents: &[&[u8]], out: &mut Vec<u8>| out.extend_from_slice(contents[0]);
            let cursors = vec![all(), other_pin.cursor(Bounds::ALL, direction)];
            let mut union = Union::new(cursors, direction, first);
            (0..entries).for_each(|_| assert!(union.advance()));
        };
        let contents = |entries| assert_eq!(pin.tail(&[]).contents(direction).take(entries).count(), entries);
        let ways: [(&str, &dyn Fn(usize)); 5] =
            [("cursor", &cursor), ("nodes", &nodes), ("ranges", &ranges), ("union", &union), ("contents", &contents)];
        for (name, way) in ways {
            let [few, many] = [100, 10_000].map(|entries| allocations(entries, way));
            // A buffer for prefetched items may grow once more.
            assert!(few <= many && many <= few + 1, "{name}, {direction:?}: {few} for 100, {many} for 10,000");
        }
    }
}
