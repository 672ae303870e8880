//! A benchmark of maps that answer differently compares nothing.

use crate::{BPlusTree, BTree, Blart, KeyKind, Keys, OrderedMap, SkipList, TriePeer};
use memtrie::Layout;

const KEYS: u64 = 2_000;

fn filled<M: OrderedMap + Default>() -> M {
    fill(M::default())
}

fn trie(layout: Layout) -> TriePeer {
    fill(TriePeer::new(layout))
}

fn fill<M: OrderedMap>(mut map: M) -> M {
    let mut keys = Keys::default();
    (0..KEYS).for_each(|index| map.insert(keys.encoded(index), index));
    map
}

fn entries(map: &dyn OrderedMap, reverse: bool) -> Vec<(Vec<u8>, u64)> {
    let mut entries = Vec::new();
    assert_eq!(map.scan(reverse, &mut |key, value| entries.push((key.to_vec(), value))), Some(KEYS), "{}", map.name());
    entries
}

#[test]
fn peers_hold_the_same_entries_in_the_same_order() {
    let expected = entries(&filled::<BTree>(), false);
    let reversed: Vec<_> = expected.iter().rev().cloned().collect();
    let peers: [Box<dyn OrderedMap>; 5] = [
        Box::new(trie(Layout::Adaptive)),
        Box::new(trie(Layout::Paper)),
        Box::new(filled::<SkipList>()),
        Box::new(filled::<BPlusTree>()),
        Box::new(filled::<Blart>()),
    ];
    for peer in peers {
        assert_eq!(entries(peer.as_ref(), false), expected, "{}", peer.name());
        assert_eq!(entries(peer.as_ref(), true), reversed, "{} in reverse", peer.name());
    }
}

#[test]
fn absent_keys_are_absent_in_all() {
    let mut keys = Keys::default();
    let peers: [Box<dyn OrderedMap>; 6] = [
        Box::new(trie(Layout::Adaptive)),
        Box::new(trie(Layout::Paper)),
        Box::new(filled::<BTree>()),
        Box::new(filled::<SkipList>()),
        Box::new(filled::<BPlusTree>()),
        Box::new(filled::<Blart>()),
    ];
    for peer in peers {
        assert_eq!(peer.get(keys.encoded(KEYS)), None, "{}", peer.name());
        assert_eq!(peer.get(keys.encoded(KEYS - 1)), Some(KEYS - 1), "{}", peer.name());
        peer.reading(&mut |get| {
            assert_eq!([get(keys.encoded(KEYS)), get(keys.encoded(1))], [None, Some(1)], "{}", peer.name());
        });
    }
}

#[test]
fn an_emptied_trie_takes_the_same_keys_again() {
    for layout in [Layout::Adaptive, Layout::Paper] {
        let (mut map, mut keys) = (trie(layout), Keys::default());
        assert!(map.empty(&mut |index| (index < KEYS).then(|| keys.encoded(index).to_vec())));
        assert_eq!(map.scan(false, &mut |_, _| ()), Some(0));
        (0..KEYS).for_each(|index| map.insert(keys.encoded(index), index));
        assert_eq!(entries(&map, false), entries(&filled::<BTree>(), false));
    }
}

#[test]
fn keys_of_every_kind_are_different_and_none_starts_another() {
    for kind in [KeyKind::Random, KeyKind::Bare, KeyKind::Rows, KeyKind::Urls, KeyKind::Sequential] {
        let mut keys: Vec<Vec<u8>> = (0..20_100).map(|index| Keys::of(kind).encoded(index).to_vec()).collect();
        keys.sort();
        assert!(keys.windows(2).all(|pair| !pair[1].starts_with(&pair[0])), "{kind:?}");
    }
}
