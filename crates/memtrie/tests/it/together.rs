//! Many puts at once.

use memtrie::{Edit, Trie, TrieFull, TrieOptions};

use super::model::{Model, Random, check_all, trie};

/// One of few first bytes, each of which leads to many: large nodes at three levels.
fn key(random: &mut Random) -> Vec<u8> {
    let mut few = |of: usize| if random.below(3) > 0 { 7 } else { random.below(of) as u8 };
    let mut key = vec![b'@', few(60), few(90)];
    key.push(random.below(256) as u8);
    key.extend((0..random.below(30)).map(|_| b"abc"[random.below(3)]));
    key.truncate(1 + random.below(40));
    key
}

/// Together with removals that make large nodes small again, and groups that are copied.
#[test]
fn puts_of_many_keys_equal_single_puts() {
    for seed in 1..4 {
        let random = &mut Random(seed);
        let (trie, mut model) = (trie(), Model::new());
        for round in 0..180_usize {
            let shrinking = round / 30 % 2 == 1;
            let mut entries: Vec<(Vec<u8>, Vec<u8>)> = (0..random.below(if shrinking { 20 } else { 200 }))
                .map(|number| (key(random), vec![number as u8; [0, 1, 8, 9, 12, 30, 300, 2000][random.below(8)]]))
                .collect();
            // Some keys occur twice, and some existed before.
            entries.extend(entries.first().cloned().map(|(key, _)| (key, b"again".to_vec())));
            entries.extend(model.keys().take(random.below(3)).map(|key| (key.clone(), b"other".to_vec())));
            let borrowed: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, content)| (&key[..], &content[..])).collect();
            trie.writer().put_many(&borrowed).expect("room");
            model.extend(entries);
            trie.writer().verify().expect("sound");
            let removed: Vec<_> = model.keys().filter(|_| shrinking && random.below(8) == 0).cloned().collect();
            for key in removed {
                assert!(trie.writer().remove(&key).expect("room"));
                model.remove(&key);
            }
            let (prefix, suffix) = (&key(random)[..1], [key(random), vec![round as u8]].concat());
            trie.writer().apply(prefix, &[Edit { suffix: &suffix, content: Some(b"applied") }]).expect("room");
            model.insert([prefix, &suffix].concat(), b"applied".to_vec());
            if round % 15 == 14 {
                check_all(&trie, &model);
            }
        }
        trie.writer().put_many(&[]).expect("nothing to do");
        check_all(&trie, &model);
    }
}

/// The entries before the one without room are there, and the others are not.
#[test]
fn a_trie_that_becomes_full_keeps_what_was_put_before() {
    let random = &mut Random(5);
    let options = TrieOptions { layout: super::LAYOUT, blocks_bytes_max: 64 << 10, blobs_bytes_max: 1 << 20 };
    let (trie, mut model) = (Trie::new(options), Model::new());
    let mut refused = 0;
    for round in 0..40 {
        let entries: Vec<(Vec<u8>, Vec<u8>)> =
            (0..100).map(|number| ([&key(random)[..], &[round, number]].concat(), vec![number; 40])).collect();
        let borrowed: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, content)| (&key[..], &content[..])).collect();
        let result = trie.writer().put_many(&borrowed);
        let put = entries.iter().take_while(|(key, _)| trie.pin().get(key).is_some()).count();
        assert_eq!(result, if put == entries.len() { Ok(()) } else { Err(TrieFull) });
        refused += usize::from(result.is_err());
        model.extend(entries.into_iter().take(put));
        trie.writer().verify().expect("sound");
        check_all(&trie, &model);
    }
    assert!(refused > 3, "{refused}");
}
