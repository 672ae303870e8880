//! Gets of single keys of every length, through nodes of every size.

use std::collections::BTreeMap;

use super::model::{Random, trie};

/// Existing keys are found, and no key that differs in a byte, ends earlier or is longer.
#[test]
fn a_get_finds_its_key_and_no_other() {
    for (seed, count) in [(1, 3), (2, 60), (3, 600), (4, 3000)] {
        let random = &mut Random(seed);
        let trie = trie();
        let mut keys = BTreeMap::new();
        for number in 0..count {
            // A few bytes that all keys begin with, one that leads to many nodes, and few different ones.
            let mut key = b"@@@"[..random.below(3).min(seed as usize - 1)].to_vec();
            key.push(random.below(256) as u8);
            key.extend((0..random.below(44)).map(|_| b"abc"[random.below(3)]));
            let content = vec![number as u8; [0, 1, 8, 9, 12, 300][random.below(6)]];
            trie.writer().put(&key, &content).unwrap();
            keys.insert(key, content);
        }
        let pin = trie.pin();
        let is_as_expected = |key: &[u8]| assert_eq!(pin.get(key), keys.get(key).map(Vec::as_slice), "{key:02x?}");
        for key in keys.keys() {
            is_as_expected(key);
            is_as_expected(&[key, &b"a"[..]].concat());
            (0..key.len()).for_each(|length| is_as_expected(&key[..length]));
            for place in 0..key.len() {
                let mut other = key.clone();
                other[place] = other[place].wrapping_add(1);
                is_as_expected(&other);
            }
        }
        is_as_expected(&[]);
        is_as_expected(&[0x40; 200]);
    }
}

/// The leaf of a branch is its only key, wherever in the leaf the branch begins.
#[test]
fn a_branch_that_is_a_leaf_has_one_key() {
    for seed in 0..20 {
        let (random, trie, mut keys) = (&mut Random(seed), trie(), BTreeMap::new());
        for number in 0..[1, 30, 300][random.below(3)] {
            let key: Vec<u8> = (0..random.below(20)).map(|_| b"ab"[random.below(2)]).collect();
            trie.writer().put(&key, &[number as u8]).unwrap();
            keys.insert(key, vec![number as u8]);
        }
        let (pin, mut leaves) = (trie.pin(), 0);
        for prefix in keys.keys().flat_map(|key| (0..=key.len()).map(|length| &key[..length])) {
            if let Some((rest, content)) = pin.tail(prefix).leaf() {
                let following = keys.range(prefix.to_vec()..);
                let below: Vec<_> = following.take_while(|(key, _)| key.starts_with(prefix)).collect();
                assert_eq!(below, [(&[prefix, rest].concat(), &content.to_vec())], "seed {seed}");
                leaves += 1;
            }
        }
        assert!(leaves >= keys.len() / 2, "seed {seed}: {leaves} leaves of {} keys", keys.len());
        assert_eq!(pin.tail(b"c").leaf(), None);
    }
}
