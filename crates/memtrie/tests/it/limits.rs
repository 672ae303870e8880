//! Behaviour at the memory limit, and with contents of any size.

use memtrie::{Edit, Trie, TrieFull, TrieOptions};

use super::model::{Model, Random, check_all, trie};

fn key(random: &mut Random) -> Vec<u8> {
    (0..1 + random.below(40)).map(|_| b"abcdefghijk"[random.below(11)]).collect()
}

/// Whatever does not fit is refused and changes nothing; removing makes room again.
#[test]
fn a_full_trie_refuses_writes_and_stays_unchanged() {
    for (blocks_bytes_max, blobs_bytes_max) in [(8 << 10, 1 << 30), (1 << 20, 64 << 10), (20 << 10, 128 << 10)] {
        let random = &mut Random(blocks_bytes_max as u64);
        let trie = Trie::new(TrieOptions { layout: super::LAYOUT, blocks_bytes_max, blobs_bytes_max });
        let mut model = Model::new();
        let mut refused = [0; 2];
        for round in 0..3000 {
            let key = key(random);
            let content = vec![round as u8; random.below(200)];
            if random.below(3) == 0 {
                let other = [key.as_slice(), b"~"].concat();
                let edits =
                    [Edit { suffix: &key, content: Some(&content) }, Edit { suffix: &other, content: Some(&content) }];
                match trie.writer().apply(b"", &edits) {
                    Ok(()) => model.extend([(key, content.clone()), (other, content)]),
                    Err(TrieFull) => refused[0] += 1,
                }
            } else {
                match trie.writer().put(&key, &content) {
                    Ok(()) => drop(model.insert(key, content)),
                    Err(TrieFull) => refused[1] += 1,
                }
            }
            trie.writer().verify().expect("sound");
            if round % 500 == 499 {
                check_all(&trie, &model);
                let keys: Vec<_> = model.keys().step_by(2).cloned().collect();
                for key in keys {
                    if trie.writer().remove(&key).is_ok() {
                        model.remove(&key);
                    }
                }
                trie.writer().reclaim();
            }
        }
        assert!(refused[0] > 10 && refused[1] > 10, "{refused:?}");
        check_all(&trie, &model);
        assert!(trie.memory().reserved <= blocks_bytes_max + blobs_bytes_max);
    }
}

#[test]
fn a_trie_says_that_it_is_half_full_well_before_it_refuses_a_write() {
    for (blocks_bytes_max, blobs_bytes_max) in [(1 << 20, 1 << 30), (1 << 30, 1 << 20)] {
        let random = &mut Random(blobs_bytes_max as u64);
        let trie = Trie::new(TrieOptions { layout: super::LAYOUT, blocks_bytes_max, blobs_bytes_max });
        let mut keys = Vec::new();
        let mut used_at_half = None;
        loop {
            let key = [key(random), key(random)].concat();
            if trie.writer().put(&key, &[7; 20]).is_err() {
                break;
            }
            keys.push(key);
            if used_at_half.is_none() && trie.is_half_full() {
                used_at_half = Some(trie.memory().used);
            }
        }
        let half = used_at_half.expect("half of the limit comes before all of it");
        assert!(trie.is_half_full());
        let all = trie.memory().used;
        assert!(half * 3 > all && half * 3 < all * 2, "{half} bytes are no half of {all}");
        // Removing may need a block, of which there may be none.
        keys.retain(|key| trie.writer().remove(key).is_err());
        trie.writer().reclaim();
        assert!(!trie.is_half_full(), "what was removed makes room");
    }
}

#[test]
fn contents_of_every_size_are_kept() {
    let trie = trie();
    let mut model = Model::new();
    let sizes = (0..600).chain((600..40_000).step_by(373)).chain([1 << 16, 100_000, 1 << 20, (5 << 20) + 3]);
    for size in sizes {
        let key = u64::try_from(size).expect("small").to_be_bytes();
        let content = vec![size as u8; size];
        trie.writer().put(&key, &content).expect("room");
        model.insert(key.to_vec(), content);
    }
    check_all(&trie, &model);
    for key in model.keys() {
        trie.writer().remove(key).expect("room");
    }
    trie.writer().reclaim();
    assert_eq!(trie.memory().used, 0);
}

#[test]
fn an_empty_and_a_small_trie_cost_little() {
    let trie = trie();
    assert_eq!(trie.memory().reserved, 0);
    assert!(trie.is_empty() && trie.pin().get(b"").is_none());
    trie.writer().remove(b"not there").expect("room");
    trie.writer().put(b"key", b"content").expect("room");
    assert!(trie.memory().reserved <= 128 << 10, "{:?}", trie.memory());
}

/// Keys of 64 KiB that are prefixes of one another: the depth of the trie must not become the depth of the stack.
#[test]
fn very_long_keys_are_kept() {
    let trie = trie();
    let long = vec![b'k'; 65_535];
    let mut model = Model::new();
    for length in (0..long.len()).step_by(13) {
        trie.writer().put(&long[..length], &length.to_le_bytes()).expect("room");
        model.insert(long[..length].to_vec(), length.to_le_bytes().to_vec());
    }
    for length in [65_535, 30_000, 7, 0] {
        let found = trie.pin().get(&long[..length]).map(<[u8]>::to_vec);
        assert_eq!(found, model.get(&long[..length]).cloned());
    }
    let edits: Vec<Edit<'_>> =
        (0..long.len()).step_by(26).map(|length| Edit { suffix: &long[..length], content: None }).collect();
    trie.writer().apply(b"", &edits).expect("room");
    edits.iter().for_each(|edit| drop(model.remove(edit.suffix)));
    trie.writer().verify().expect("sound");
    let pin = trie.pin();
    let mut cursor = pin.cursor(memtrie::Bounds::ALL, memtrie::Direction::Reverse);
    for (key, content) in model.iter().rev() {
        assert!(cursor.advance());
        assert!(cursor.key() == key.as_slice() && cursor.content() == content.as_slice());
    }
    assert!(!cursor.advance());
}
