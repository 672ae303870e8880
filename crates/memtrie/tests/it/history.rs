//! Seeded random histories of puts, removals, upserts and applied groups.

use memtrie::{Edit, Trie, Upsert};

use super::model::{Model, Random, check_all, check_around, seeds, trie};

/// Keys over few characters, so that all node kinds and transitions occur; some are long, for chains of several blocks.
fn key(random: &mut Random, alphabet: &[u8], length_max: usize) -> Vec<u8> {
    let length = random.below(length_max + 1);
    let mut key: Vec<u8> = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
    if random.below(8) == 0 {
        let at = random.below(key.len() + 1);
        let run = 1 + random.below(70);
        key.splice(at..at, std::iter::repeat_n(b'~', run));
    }
    key
}

fn content(random: &mut Random) -> Vec<u8> {
    let length = match random.below(20) {
        0 => random.below(100_000),
        1..4 => random.below(3000),
        _ => random.below(40),
    };
    vec![random.number() as u8; length]
}

fn apply_some(random: &mut Random, trie: &Trie, model: &mut Model, alphabet: &[u8], length_max: usize) {
    let prefix = key(random, alphabet, length_max / 2);
    let mut group = Model::new();
    let mut removed = Vec::new();
    for _ in 0..random.below(12) {
        let suffix = key(random, alphabet, length_max / 2);
        group.insert(suffix, content(random));
    }
    if random.below(3) == 0 {
        // Removes much of what is below the prefix.
        for full in model.keys().filter(|full| full.starts_with(&prefix)) {
            if random.below(4) > 0 {
                removed.push(full[prefix.len()..].to_vec());
            }
        }
    }
    for suffix in group.keys() {
        if random.below(4) == 0 {
            removed.push(suffix.clone());
        }
    }
    let mut edits: Vec<Edit<'_>> = group
        .iter()
        .filter(|(suffix, _)| !removed.contains(suffix))
        .map(|(suffix, content)| Edit { suffix, content: Some(content) })
        .collect();
    removed.sort();
    removed.dedup();
    edits.extend(removed.iter().map(|suffix| Edit { suffix, content: None }));
    edits.sort_by_key(|edit| edit.suffix);
    trie.writer().apply(&prefix, &edits).expect("room");
    for edit in &edits {
        let full = [&prefix, edit.suffix].concat();
        match edit.content {
            Some(content) => model.insert(full, content.to_vec()),
            None => model.remove(&full),
        };
    }
}

fn history(seed: u64, alphabet: &[u8], length_max: usize, steps: usize) {
    println!("seed {seed}");
    let random = &mut Random(seed);
    let trie = trie();
    let mut model = Model::new();
    // Phases of growing and of shrinking.
    for step in 0..steps {
        let shrinking = step * 6 / steps % 2 == 1;
        let key = if shrinking && random.below(2) == 0 && !model.is_empty() {
            model.keys().nth(random.below(model.len())).expect("in range").clone()
        } else {
            key(random, alphabet, length_max)
        };
        match random.below(10) {
            0..3 if !shrinking => {
                let content = content(random);
                trie.writer().put(&key, &content).expect("room");
                model.insert(key.clone(), content);
            }
            0..6 => {
                assert_eq!(trie.writer().remove(&key).expect("room"), model.remove(&key).is_some());
            }
            6 | 7 => apply_some(random, &trie, &mut model, alphabet, length_max),
            _ => {
                let content = content(random);
                let choice = random.below(3);
                let before = model.get(&key).cloned();
                let upsert = |existing: Option<&[u8]>, out: &mut Vec<u8>| {
                    assert_eq!(existing, before.as_deref());
                    out.extend_from_slice(&content);
                    [Upsert::Keep, Upsert::Replace, Upsert::Remove][choice]
                };
                trie.writer().upsert(&key, upsert).expect("room");
                match choice {
                    0 => {}
                    1 => drop(model.insert(key.clone(), content.clone())),
                    _ => drop(model.remove(&key)),
                }
            }
        }
        trie.writer().verify().unwrap_or_else(|wrong| panic!("step {step}: {wrong}"));
        if step % 16 == 0 {
            check_all(&trie, &model);
            let other = model.keys().nth(random.below(model.len().max(1))).cloned().unwrap_or_default();
            check_around(&trie, &model, &[&key, &other, &[&key[..], b"a"].concat(), &other[..other.len() / 2]]);
        }
    }
    for key in model.keys() {
        trie.writer().remove(key).expect("room");
    }
    assert!(trie.is_empty());
    trie.writer().verify().expect("sound");
    assert_eq!(trie.memory().used, 0);
}

#[test]
fn histories_over_three_characters_agree_with_the_model() {
    for seed in seeds(0..30) {
        history(seed, b"abc", 6, 400);
    }
}

#[test]
fn histories_over_many_characters_agree_with_the_model() {
    let all: Vec<u8> = (0..=255).collect();
    for seed in seeds(100..110) {
        history(seed, &all, 3, 400);
        history(seed, &all[120..140], 8, 400);
    }
}

#[test]
fn histories_over_long_shared_prefixes_agree_with_the_model() {
    for seed in seeds(200..210) {
        history(seed, b"aaaaaaab", 80, 300);
    }
}
