//! The model, and a comparison of every query of a trie.

use std::collections::BTreeMap;
use std::ops::Bound;

use memtrie::{Bounds, Direction, Trie, TrieOptions};
pub use testkit::{Random, seeds};

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// An empty trie of the layout under test.
pub fn trie() -> Trie {
    Trie::new(TrieOptions { layout: super::LAYOUT, ..TrieOptions::default() })
}

/// The entries of the trie in the given bounds and direction.
pub fn entries(trie: &Trie, bounds: Bounds<'_>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pin = trie.pin();
    let mut cursor = pin.cursor(bounds, direction);
    let mut found = Vec::new();
    while cursor.advance() {
        found.push((cursor.key().to_vec(), cursor.content().to_vec()));
    }
    assert!(!cursor.advance(), "a cursor that ended stays ended");
    found
}

fn in_bounds(bounds: Bounds<'_>, key: &[u8]) -> bool {
    (match bounds.start {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    }) && match bounds.end {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    }
}

pub fn expected(model: &Model, bounds: Bounds<'_>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<_> =
        model.iter().filter(|(key, _)| in_bounds(bounds, key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if direction == Direction::Reverse {
        entries.reverse();
    }
    entries
}

/// Checks all content, in both directions, and the structure.
pub fn check_all(trie: &Trie, model: &Model) {
    for direction in [Direction::Forward, Direction::Reverse] {
        assert_eq!(entries(trie, Bounds::ALL, direction), expected(model, Bounds::ALL, direction));
    }
    trie.writer().verify().expect("sound");
    check_contents(trie, model);
    check_nodes(trie, model);
    check_many(trie, model);
}

/// Checks that contents without keys equal those of the cursor, for the whole trie and below a key.
fn check_contents(trie: &Trie, model: &Model) {
    let pin = trie.pin();
    let middle = model.keys().nth(model.len() / 2).map_or(&[][..], |key| &key[..key.len() / 2]);
    for prefix in [&[][..], middle] {
        for direction in [Direction::Forward, Direction::Reverse] {
            let all = expected(model, Bounds::ALL, direction);
            let wanted: Vec<&[u8]> =
                all.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(_, content)| content.as_slice()).collect();
            let mut contents = pin.tail(prefix).contents(direction);
            assert_eq!(contents.by_ref().collect::<Vec<_>>(), wanted, "below {prefix:02x?} {direction:?}");
            assert_eq!(contents.next(), None, "what ended stays ended");
        }
    }
}

/// Checks every key, and as many that do not exist, looked up together.
fn check_many(trie: &Trie, model: &Model) {
    let absent: Vec<Vec<u8>> = model.keys().map(|key| [key.as_slice(), b"\0"].concat()).collect();
    let keys: Vec<&[u8]> = model.keys().zip(&absent).flat_map(|(key, absent)| [key.as_slice(), absent]).collect();
    let mut found = vec![None; keys.len()];
    trie.pin().get_many(&keys, |index, content| {
        assert!(found[index].is_none(), "once for each key");
        found[index] = Some(content.map(<[u8]>::to_vec));
    });
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_ref().map(Option::as_ref), Some(model.get(*key)), "{key:02x?}");
    }
    trie.writer().prefetch(&keys);
}

/// Checks that the node cursor visits every key once, in order of paths, with its content.
fn check_nodes(trie: &Trie, model: &Model) {
    for direction in [Direction::Forward, Direction::Reverse] {
        let pin = trie.pin();
        let mut cursor = pin.node_cursor(direction);
        let mut path = Vec::new();
        let mut found = Vec::new();
        while let Some(depth) = cursor.depth() {
            path.truncate(depth.saturating_sub(1));
            path.extend(cursor.incoming());
            assert_eq!(path.len(), depth);
            if let Some(content) = cursor.content() {
                found.push((path.clone(), content.to_vec()));
            }
            cursor.advance();
        }
        if direction == Direction::Reverse {
            found.sort();
        }
        assert_eq!(found, expected(model, Bounds::ALL, Direction::Forward));
    }
}

/// Checks slices, seeks and gets around `targets`.
pub fn check_around(trie: &Trie, model: &Model, targets: &[&[u8]]) {
    for &target in targets {
        assert_eq!(trie.pin().get(target), model.get(target).map(Vec::as_slice), "get {target:02x?}");
        for &other in targets {
            for start in [Bound::Unbounded, Bound::Included(target), Bound::Excluded(target)] {
                for end in [Bound::Unbounded, Bound::Included(other), Bound::Excluded(other)] {
                    let bounds = Bounds { start, end };
                    for direction in [Direction::Forward, Direction::Reverse] {
                        let wanted = expected(model, bounds, direction);
                        assert_eq!(entries(trie, bounds, direction), wanted, "{bounds:?} {direction:?}");
                    }
                }
            }
            check_skip(trie, model, target, other);
            check_tail(trie, model, target, other);
        }
    }
}

/// Skips from the first entry at or after `from` to `to`.
fn check_skip(trie: &Trie, model: &Model, from: &[u8], to: &[u8]) {
    let pin = trie.pin();
    for direction in [Direction::Forward, Direction::Reverse] {
        let all = expected(model, Bounds::ALL, direction);
        let after = |key: &[u8], target: &[u8]| match direction {
            Direction::Forward => key >= target,
            Direction::Reverse => key <= target,
        };
        let mut cursor = pin.cursor(Bounds::ALL, direction);
        let first = all.iter().position(|(key, _)| after(key, from));
        assert_eq!(cursor.skip_to(from), first.is_some(), "{from:02x?} {direction:?}");
        let Some(first) = first else { continue };
        assert_eq!(cursor.key(), all[first].0, "{from:02x?} {direction:?}");
        let second = (first..all.len()).find(|&index| after(&all[index].0, to));
        assert_eq!(cursor.skip_to(to), second.is_some(), "{from:02x?} {to:02x?} {direction:?}");
        let Some(mut index) = second else { continue };
        loop {
            assert_eq!((cursor.key(), cursor.content()), (all[index].0.as_slice(), all[index].1.as_slice()));
            index += 1;
            assert_eq!(cursor.advance(), index < all.len());
            if index == all.len() {
                break;
            }
        }
    }
}

/// Checks that the branch at `prefix` has the keys that start with it, without the prefix; also from a cursor on it.
fn check_tail(trie: &Trie, model: &Model, prefix: &[u8], other: &[u8]) {
    let below: Model =
        model.iter().filter_map(|(key, content)| Some((key.strip_prefix(prefix)?.to_vec(), content.clone()))).collect();
    let pin = trie.pin();
    let mut tails = vec![pin.tail(prefix)];
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = pin.cursor(Bounds::inclusive(prefix, prefix), direction);
        tails.extend(cursor.advance().then(|| cursor.tail()));
    }
    for tail in tails {
        assert_eq!(tail.is_empty(), below.is_empty());
        assert_eq!(tail.get(other), below.get(other).map(Vec::as_slice));
        for direction in [Direction::Forward, Direction::Reverse] {
            let bounds = Bounds { start: Bound::Unbounded, end: Bound::Excluded(other) };
            let mut cursor = tail.cursor(bounds, direction);
            let mut found = Vec::new();
            while cursor.advance() {
                found.push((cursor.key().to_vec(), cursor.content().to_vec()));
            }
            assert_eq!(found, expected(&below, bounds, direction));
        }
    }
}
