//! The cursor over nodes.

use memtrie::{Direction, NodeCursor, Trie};

use super::model::{Random, trie};

/// All nodes as (path, content), parents first.
fn nodes(mut cursor: NodeCursor<'_>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut path = Vec::new();
    let mut found = Vec::new();
    while let Some(depth) = cursor.depth() {
        path.truncate(depth.saturating_sub(1));
        path.extend(cursor.incoming());
        assert_eq!(path.len(), depth);
        found.push((path.clone(), cursor.content().map(<[u8]>::to_vec)));
        cursor.advance();
    }
    found
}

fn some_trie(seed: u64, keys: usize) -> Trie {
    let random = &mut Random(seed);
    let trie = trie();
    for _ in 0..keys {
        let key: Vec<u8> =
            (0..random.below(8)).map(|_| b"abcdefghij"[random.below(10) * random.below(10) / 10]).collect();
        trie.writer().put(&key, &key).expect("room");
    }
    trie
}

#[test]
fn every_step_of_a_chain_is_a_node() {
    for seed in 0..20 {
        for direction in [Direction::Forward, Direction::Reverse] {
            let trie = some_trie(seed, 40);
            let pin = trie.pin();
            let all = nodes(pin.node_cursor(direction));
            for (path, _) in &all[1..] {
                assert!(all.iter().any(|(parent, _)| *parent == path[..path.len() - 1]), "no node without parent");
            }
        }
    }
}

/// From every node to every byte at every depth, compared with the list of all nodes.
#[test]
fn skipping_goes_to_the_first_node_at_or_after_the_byte() {
    for seed in 0..8 {
        for direction in [Direction::Forward, Direction::Reverse] {
            let trie = some_trie(seed, 12);
            let pin = trie.pin();
            let all = nodes(pin.node_cursor(direction));
            for (from, (path, _)) in all.iter().enumerate() {
                for depth in 1..=path.len() + 1 {
                    for byte in b'`'..=b'k' {
                        let mut cursor = pin.node_cursor(direction);
                        (0..from).for_each(|_| {
                            cursor.advance();
                        });
                        let is_there = |candidate: &[u8]| {
                            let reached =
                                |last: u8| if direction == Direction::Forward { last >= byte } else { last <= byte };
                            candidate.len() < depth
                                || candidate.len() == depth && candidate.last().is_some_and(|&last| reached(last))
                        };
                        let expected = all[from + 1..].iter().find(|(candidate, _)| is_there(candidate));
                        let found = cursor.skip_to(depth, byte);
                        assert_eq!(found, expected.map(|(path, _)| path.len()), "{path:02x?} to {depth} {byte}");
                        assert_eq!(cursor.incoming(), expected.and_then(|(path, _)| path.last().copied()));
                        assert_eq!(cursor.content(), expected.and_then(|(_, content)| content.as_deref()));
                    }
                }
            }
        }
    }
}

#[test]
fn a_graph_names_every_kind_of_node() {
    let trie = trie();
    for key in ["ab", "abcd", "abxd", "sa", "sb", "sc", "sd", "se", "sf", "sg"] {
        trie.writer().put(key.as_bytes(), b"content").expect("room");
    }
    trie.writer().put(b"s", b"content that is not small").expect("room");
    let graph = trie.pin().graph();
    let own: &[&str] = match super::LAYOUT {
        memtrie::Layout::Paper => &["\"sparse @", "split", "prefix"],
        memtrie::Layout::Adaptive => &["sparse of 3", "sparse of 12", "prefix", "chain with content", "leaf d: content"],
    };
    for part in ["digraph", "chain", "leaf content"].iter().chain(own) {
        assert!(graph.contains(part), "{part} in {graph}");
    }
    assert_eq!(graph.matches("leaf").count(), 9);
}
