//! Everything that can happen within a tiny scope.

use memtrie::Edit;

use super::model::{Model, check_all, check_around, trie};

/// All strings over the alphabet of at most this length.
fn strings(alphabet: &[u8], length_max: usize) -> Vec<Vec<u8>> {
    let mut all = vec![vec![]];
    let mut last = all.clone();
    for _ in 0..length_max {
        last = last.iter().flat_map(|s| alphabet.iter().map(|&c| [s.as_slice(), &[c]].concat())).collect();
        all.extend_from_slice(&last);
    }
    all
}

/// Contents of these lengths: small enough for every place, too long for an inner node of the adaptive layout, and too
/// long for a leaf with a tail.
const LENGTHS: [usize; 3] = [1, 25, 2000];

fn content(byte: u8, length: usize) -> Vec<u8> {
    vec![byte; length]
}

/// From every set of keys to every other that differs in one key: by induction over the sets this covers all orders of
/// puts.
#[test]
fn every_set_of_short_keys_takes_every_put_and_removal() {
    let keys = strings(b"ab", 2);
    let targets: Vec<&[u8]> = keys.iter().map(Vec::as_slice).chain([b"aab".as_slice(), b"0", b"c"]).collect();
    for (set, first, old) in (0_u32..1 << keys.len()).flat_map(|set| [0, 1, 2].map(|i| (set, i, LENGTHS[i]))) {
        let members = |set: u32| keys.iter().enumerate().filter(move |(i, _)| set >> i & 1 == 1).map(|(_, k)| k);
        for (flip, flipped) in keys.iter().enumerate() {
            // Every length follows every other, with other sets.
            let new = LENGTHS[(first + flip + set as usize) % LENGTHS.len()];
            let trie = trie();
            let mut model = Model::new();
            for (number, key) in (0..).zip(members(set)) {
                let content = content(number, old);
                trie.writer().put(key, &content).expect("room");
                model.insert(key.clone(), content);
            }
            if flip == 0 {
                check_around(&trie, &model, &targets);
            }
            if set >> flip & 1 == 1 {
                assert!(trie.writer().remove(flipped).expect("room"));
                model.remove(flipped);
            } else {
                let content = content(b'n', new);
                trie.writer().put(flipped, &content).expect("room");
                model.insert(flipped.clone(), content);
            }
            check_all(&trie, &model);
        }
    }
}

/// Every set of keys becomes every other set by one `apply` at every prefix.
#[test]
fn every_set_of_short_keys_becomes_every_other_by_one_apply() {
    let keys: Vec<Vec<u8>> = strings(b"ab", 2);
    for from in 0_u32..1 << keys.len() {
        for to in 0_u32..1 << keys.len() {
            for (number, prefix) in [b"".as_slice(), b"a", b"ab"].into_iter().enumerate() {
                // Every length occurs with every pair of sets, at one of the prefixes.
                let length = |shift: usize| LENGTHS[(number + (from + to) as usize + shift) % LENGTHS.len()];
                let (old, new) = (content(b'o', length(0)), content(b'n', length(to.count_ones() as usize)));
                let trie = trie();
                let mut model = Model::new();
                let mut writer = trie.writer();
                for (i, key) in keys.iter().enumerate() {
                    if from >> i & 1 == 1 {
                        writer.put(key, &old).expect("room");
                        model.insert(key.clone(), old.clone());
                    }
                }
                let mut edits: Vec<Edit<'_>> = Vec::new();
                for (i, key) in keys.iter().enumerate() {
                    let Some(suffix) = key.strip_prefix(prefix) else { continue };
                    if to >> i & 1 == 1 {
                        edits.push(Edit { suffix, content: Some(&new) });
                        model.insert(key.clone(), new.clone());
                    } else {
                        edits.push(Edit { suffix, content: None });
                        model.remove(key);
                    }
                }
                edits.sort_by_key(|edit| edit.suffix);
                writer.apply(prefix, &edits).expect("room");
                writer.verify().unwrap_or_else(|wrong| panic!("{from:b} to {to:b} at {prefix:02x?}: {wrong}"));
                drop(writer);
                let found = super::model::entries(&trie, memtrie::Bounds::ALL, memtrie::Direction::Forward);
                let wanted: Vec<_> = model.into_iter().collect();
                assert_eq!(found, wanted, "{from:b} to {to:b} at {prefix:02x?}");
            }
        }
    }
}

/// One node goes through all its sizes, up and down, with and without content, in place and copied.
#[test]
fn a_node_takes_every_number_of_children_up_and_down() {
    for inner in [None, Some(1), Some(25), Some(2000)] {
        for copying in [false, true] {
            for path in [b"".as_slice(), b"p", b"a path that is longer than one block has room for"] {
                for reversed in [false, true] {
                    grow_and_shrink(path, inner, copying, reversed);
                }
            }
        }
    }
}

/// `inner` is the length of the content on the node; with `reversed` the children are removed in the reverse order of
/// their addition.
fn grow_and_shrink(path: &[u8], inner: Option<usize>, copying: bool, reversed: bool) {
    let trie = trie();
    let mut model = Model::new();
    let change = |suffix: &[u8], content: Option<&[u8]>, model: &mut Model| {
        let full = [path, suffix].concat();
        let mut writer = trie.writer();
        match content {
            _ if copying => writer.apply(path, &[Edit { suffix, content }]).expect("room"),
            Some(content) => writer.put(&full, content).expect("room"),
            None => assert!(writer.remove(&full).expect("room")),
        }
        writer.verify().expect("sound");
        match content {
            Some(content) => drop(model.insert(full, content.to_vec())),
            None => drop(model.remove(&full)),
        }
    };
    let inner = inner.map(|length| content(b'i', length));
    if let Some(inner) = &inner {
        change(b"", Some(inner), &mut model);
    }
    let mut characters: Vec<u8> = (0..=255_u8).map(|c| c.wrapping_mul(167)).collect();
    for (count, &c) in characters.iter().enumerate() {
        change(&[c, b'x'], Some(&[c]), &mut model);
        if count < 12 || count % 50 == 0 {
            check_all(&trie, &model);
        }
    }
    if let Some(inner) = &inner {
        change(b"", None, &mut model);
        change(b"", Some(inner), &mut model);
    }
    if reversed {
        characters.reverse();
    }
    for (count, &c) in characters.iter().enumerate() {
        change(&[c, b'x'], None, &mut model);
        if count > 240 || count % 50 == 0 {
            check_all(&trie, &model);
        }
    }
}
