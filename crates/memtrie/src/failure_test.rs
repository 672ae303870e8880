//! Every allocation of every change fails in turn: the change is refused, and the trie stays as it was.

use std::collections::BTreeMap;

use crate::{Bounds, Direction, Edit, Layout, Trie, TrieFull, TrieOptions, Writer};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn entries(writer: &Writer<'_>) -> Model {
    let mut cursor = writer.cursor(Bounds::ALL, Direction::Forward);
    let mut entries = Model::new();
    while cursor.advance() {
        entries.insert(cursor.key().to_vec(), cursor.content().to_vec());
    }
    entries
}

/// Runs a change with no successful allocation, with one, with two, until it succeeds. Returns how often it was
/// refused.
fn refuse_first(trie: &Trie, model: &Model, change: impl Fn(&mut Writer<'_>) -> Result<(), TrieFull>) -> u32 {
    let used = trie.memory().used;
    for granted in 0.. {
        let mut writer = trie.writer();
        writer.let_allocations_fail_after(Some(granted));
        let result = change(&mut writer);
        writer.let_allocations_fail_after(None);
        writer.verify().expect("sound");
        if result.is_ok() {
            return granted;
        }
        assert_eq!(trie.memory().used, used, "what a refused change took is free again");
        assert_eq!(entries(&writer), *model);
    }
    unreachable!("a change needs finitely many allocations");
}

fn every_allocation_fails_in_turn(layout: Layout, alphabet: &[u8], length_max: usize, steps: usize) {
    let random = &mut testkit::Random(alphabet.len() as u64);
    let mut key = |length_max: usize| -> Vec<u8> {
        let length = random.below(length_max + 1);
        let mut key: Vec<u8> = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
        if random.below(6) == 0 {
            key.extend(std::iter::repeat_n(b'~', random.below(90)));
        }
        key
    };
    let trie = Trie::new(TrieOptions { layout, ..TrieOptions::default() });
    trie.writer().put(b"the first write opens the trie", b"").expect("room");
    let mut model = Model::from([(b"the first write opens the trie".to_vec(), Vec::new())]);
    let (mut refused, mut groups, mut alone) = (0, 0, 0);
    for step in 0..steps {
        let content = vec![step as u8; [1, 8, 24, 25, 300, 2000][step % 6]];
        let growing = (step * 4 / steps).is_multiple_of(2);
        let chosen = model.keys().nth(step * 7 % model.len().max(1)).cloned().unwrap_or_default();
        match step % 5 {
            0 | 1 if growing => {
                let key = key(length_max);
                refused += refuse_first(&trie, &model, |writer| writer.put(&key, &content));
                model.insert(key, content);
            }
            2 => {
                let (prefix, mut suffixes) = (key(length_max / 2), vec![key(length_max / 2), key(length_max / 2)]);
                suffixes
                    .extend(model.keys().filter_map(|full| full.strip_prefix(&prefix[..])).take(3).map(<[u8]>::to_vec));
                suffixes.sort();
                suffixes.dedup();
                let edits: Vec<Edit<'_>> = suffixes
                    .iter()
                    .enumerate()
                    .map(|(at, suffix)| Edit { suffix, content: (at % 2 == step % 2).then_some(&content[..]) })
                    .collect();
                groups += refuse_first(&trie, &model, |writer| writer.apply(&prefix, &edits));
                for edit in &edits {
                    let full = [&prefix, edit.suffix].concat();
                    match edit.content {
                        Some(content) => model.insert(full, content.to_vec()),
                        None => model.remove(&full),
                    };
                }
            }
            4 if step % 7 < 2 => {
                let prefix = &chosen[..chosen.len() - chosen.len().min(2)];
                alone += refuse_first(&trie, &model, |writer| writer.put_alone(prefix, &content));
                model.retain(|key, _| !key.starts_with(prefix));
                model.insert(prefix.to_vec(), content);
            }
            _ => {
                refused += refuse_first(&trie, &model, |writer| writer.remove(&chosen).map(drop));
                model.remove(&chosen);
            }
        }
        assert_eq!(entries(&trie.writer()), model);
    }
    assert!(alone as usize > steps / 20, "{alone} refused");
    assert!(refused as usize > steps / 2 && groups as usize > steps / 5, "{refused} and {groups} refused");
}

#[test]
fn a_refused_allocation_leaves_the_paper_trie_unchanged() {
    every_allocation_fails_in_turn(Layout::Paper, b"abc", 6, 300);
    every_allocation_fails_in_turn(Layout::Paper, b"abcdefghijklmnopqrstuvwxyz", 2, 500);
}

#[test]
fn a_refused_allocation_leaves_the_adaptive_trie_unchanged() {
    every_allocation_fails_in_turn(Layout::Adaptive, b"abc", 6, 300);
    let all: Vec<u8> = (0..=255).collect();
    every_allocation_fails_in_turn(Layout::Adaptive, &all, 2, 500);
}
