//! Keys that two branches have in common.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use memtrie::{Bounds, Intersection, Tail, Trie};

use super::model::{Model, Random, expected, seeds, trie};
use memtrie::Direction::Forward;

/// Few characters, so that keys are prefixes of one another, or many, so that nodes are large; sometimes with a long
/// part that keys share.
fn key(random: &mut Random, kind: usize) -> Vec<u8> {
    match kind {
        0 => (0..random.below(7)).map(|_| b"ab"[random.below(2)]).collect(),
        1 => (0..1 + random.below(3)).map(|_| random.below(256) as u8).collect(),
        2 => {
            let shared = &b"a part that keys share, of more bytes than a chain has steps, until they part "[..];
            let end: Vec<u8> = (0..random.below(4)).map(|_| b"abcdefgh"[random.below(8)]).collect();
            [&shared[..shared.len() - random.below(2) * random.below(40)], &end].concat()
        }
        _ => [&[random.below(4) as u8; 3][..], &random.number().to_be_bytes()[..2]].concat(),
    }
}

/// A trie with keys below a prefix, and others beside it.
fn filled(random: &mut Random, prefix: &[u8], kind: usize, count: usize) -> (Trie, Model) {
    let (trie, mut model) = (trie(), Model::new());
    for _ in 0..count {
        let (key, beside) = (key(random, kind), key(random, kind));
        trie.writer().put(&[prefix, &key].concat(), b"x").expect("room");
        trie.writer().put(&[&[prefix[0] + 1], &beside[..]].concat(), b"beside").expect("room");
        model.insert(key, Vec::new());
    }
    (trie, model)
}

fn bound<'k>(random: &mut Random, key: &'k [u8]) -> Bound<&'k [u8]> {
    [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)][random.below(3)]
}

/// All common keys, by intersections of at most `steps_max` steps.
fn common(one: &Tail<'_>, other: &Tail<'_>, bounds: Bounds<'_>, steps_max: usize) -> Vec<Vec<u8>> {
    let (mut found, mut start) = (Vec::new(), bounds.start.map(<[u8]>::to_vec));
    loop {
        let bounds = Bounds { start: start.as_ref().map(Vec::as_slice), end: bounds.end };
        let mut intersection = Intersection::new(one, other, bounds, steps_max);
        while intersection.advance() {
            found.push(intersection.key().to_vec());
        }
        let Some(rest) = intersection.rest() else { return found };
        if let Bound::Included(start) | Bound::Excluded(start) = &start {
            assert!(rest > *start, "it gets further");
        }
        start = Bound::Included(rest);
    }
}

#[test]
fn an_intersection_gives_the_keys_that_both_have() {
    let mut found_count = 0;
    let seeds = seeds(0..400);
    let are_all = seeds == (0..400);
    for seed in seeds {
        let random = &mut Random(seed);
        let kind = random.below(4);
        let prefixes = [b"one".as_slice(), b"t"];
        let [one, other] = prefixes.map(|prefix| {
            let count = [0, 1, 3, 40, 400][random.below(5)];
            filled(random, prefix, kind, count)
        });
        let both: Model =
            one.1.iter().filter(|(key, _)| other.1.contains_key(*key)).map(|(k, v)| (k.clone(), v.clone())).collect();
        let pins = [one.0.pin(), other.0.pin()];
        let tails = [pins[0].tail(prefixes[0]), pins[1].tail(prefixes[1])];
        for _ in 0..8 {
            let (low, high) = (key(random, kind), key(random, kind));
            let bounds = Bounds { start: bound(random, &low), end: bound(random, &high) };
            let steps_max = [1, 2, 10, usize::MAX][random.below(4)];
            let due: Vec<Vec<u8>> = expected(&both, bounds, Forward).into_iter().map(|(key, _)| key).collect();
            assert_eq!(common(&tails[0], &tails[1], bounds, steps_max), due, "seed {seed}, {bounds:?}");
            assert_eq!(common(&tails[1], &tails[0], bounds, steps_max), due, "seed {seed}, {bounds:?}, exchanged");
            found_count += due.len();
        }
    }
    assert!(found_count > 3_000 || !are_all, "{found_count}");
}

/// Large nodes of both tries without a common child take long, although no place is entered below them.
#[test]
fn children_that_are_looked_up_count_as_steps() {
    let tries = [trie(), trie()];
    for prefix in 0..64_u8 {
        for end in 0..=u8::MAX {
            tries[usize::from(end % 2)].writer().put(&[prefix, end], b"x").expect("room");
        }
    }
    let pins = [tries[0].pin(), tries[1].pin()];
    let (one, other) = (pins[0].tail(&[]), pins[1].tail(&[]));
    let (mut start, mut count) = (Vec::new(), 0);
    loop {
        let bounds = Bounds { start: Bound::Included(&start[..]), end: Bound::Unbounded };
        let mut intersection = Intersection::new(&one, &other, bounds, 64);
        assert!(!intersection.advance(), "they have no common key");
        count += 1;
        match intersection.rest() {
            Some(rest) => start = rest,
            None => break,
        }
    }
    assert!((10..=64).contains(&count), "{count} intersections for {} children", 64 * 128);
}

/// Keys that are there from the beginning are found while others come and go, and nothing else is found.
#[test]
fn an_intersection_beside_a_writer_finds_what_stays() {
    let random = &mut Random(7);
    let keys: Vec<[u8; 3]> =
        (0..6000).map(|_| [random.below(3) as u8, random.number() as u8, random.number() as u8]).collect();
    let is_permanent = |key: &[u8]| key[2].is_multiple_of(4);
    let tries = [trie(), trie()];
    for key in keys.iter().filter(|key| is_permanent(*key)) {
        tries.iter().for_each(|trie| trie.writer().put(key, b"stays").expect("room"));
    }
    let mut due: Vec<Vec<u8>> = keys.iter().filter(|key| is_permanent(*key)).map(|key| key.to_vec()).collect();
    due.sort();
    due.dedup();
    let known: BTreeSet<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = tries.each_ref().map(|trie| {
            let (keys, done) = (&keys, &done);
            scope.spawn(move || {
                let random = &mut Random(8);
                while !done.load(Ordering::Relaxed) {
                    let key = keys[random.below(keys.len())];
                    let mut writer = trie.writer();
                    match random.below(2) {
                        _ if is_permanent(&key) => writer.put(&key, &key[..random.below(4)]).expect("room"),
                        0 => writer.put(&key, b"comes").expect("room"),
                        _ => drop(writer.remove(&key).expect("room")),
                    }
                }
            })
        });
        for _ in 0..300 {
            let pins = [tries[0].pin(), tries[1].pin()];
            let found = common(&pins[0].tail(&[]), &pins[1].tail(&[]), Bounds::ALL, 100);
            let stay: Vec<Vec<u8>> = found.iter().filter(|key| is_permanent(key)).cloned().collect();
            assert_eq!(stay, due);
            assert!(found.is_sorted() && found.iter().all(|key| known.contains(&key[..])));
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    });
}
