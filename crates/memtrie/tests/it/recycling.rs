//! Memory under changes without end.

use memtrie::{Bounds, Direction, Edit, Trie};

use super::model::{Random, trie};

fn key(number: usize) -> Vec<u8> {
    Random(number as u64).number().to_be_bytes().to_vec()
}

/// Scans a little under one pin, then goes on under the next, for ever.
struct Scan {
    last: Vec<u8>,
}

impl Scan {
    fn step(&mut self, trie: &Trie) {
        let pin = trie.pin();
        let bounds = Bounds { start: std::ops::Bound::Excluded(&self.last), end: std::ops::Bound::Unbounded };
        let mut cursor = pin.cursor(bounds, Direction::Forward);
        let mut last = Vec::new();
        for _ in 0..20 {
            if !cursor.advance() {
                last.clear();
                break;
            }
            last = cursor.key().to_vec();
        }
        self.last = last;
    }
}

fn fresh(keys: usize, size: usize) -> usize {
    let trie = trie();
    (0..keys).for_each(|number| trie.writer().put(&key(number), &vec![1; size]).expect("room"));
    trie.memory().reserved
}

/// Sizes drift from 16 bytes to 4 KiB and back while a scan goes on; memory follows.
#[test]
fn overwriting_holds_memory_near_that_of_a_fresh_trie() {
    const KEYS: usize = 2000;
    let trie = trie();
    let random = &mut Random(3);
    let mut scan = Scan { last: Vec::new() };
    let mut number = 0;
    for size in [16, 40, 100, 500, 1500, 4096, 4096, 1000, 100, 16, 16] {
        for round in 0..5 * KEYS {
            // Every key comes at least twice, in some order, and some more often.
            number = if round % 5 < 2 { (number + 1) % KEYS } else { random.below(KEYS) };
            trie.writer().put(&key(number), &vec![round as u8; size]).expect("room");
            if round % 10 == 0 {
                scan.step(&trie);
            }
        }
        (0..KEYS).for_each(|number| trie.writer().put(&key(number), &vec![0; size]).expect("room"));
        let (held, fresh) = (trie.memory().reserved, fresh(KEYS, size));
        assert!(held <= fresh * 13 / 10 + (4 << 20), "size {size}: {held} held, {fresh} fresh");
        trie.writer().verify().expect("sound");
    }
}

/// Keys come and go, one by one and in groups: nothing is lost.
#[test]
fn removing_and_adding_again_does_not_grow() {
    let trie = trie();
    let random = &mut Random(5);
    let mut highest = 0;
    for round in 0..60 {
        for number in 0..2000 {
            trie.writer().put(&key(number), &[round; 30]).expect("room");
        }
        let group: Vec<[u8; 2]> = (0..500_u16).map(u16::to_be_bytes).collect();
        let put = |suffix| Edit { suffix, content: Some(b"some content".as_slice()) };
        let edits: Vec<Edit<'_>> = group.iter().map(|suffix| put(suffix.as_slice())).collect();
        trie.writer().apply(b"group", &edits).expect("room");
        let edits: Vec<Edit<'_>> = group.iter().map(|suffix| Edit { suffix, content: None }).collect();
        trie.writer().apply(b"group", &edits).expect("room");
        while !trie.is_empty() {
            let first = random.below(2000);
            let step = 1 + random.below(5);
            for number in (first..2000).step_by(step) {
                trie.writer().remove(&key(number)).expect("room");
            }
            if random.below(10) == 0 {
                for number in 0..2000 {
                    trie.writer().remove(&key(number)).expect("room");
                }
            }
        }
        assert_eq!(trie.memory().used, 0);
        if round == 5 {
            highest = trie.memory().reserved;
        }
    }
    assert!(trie.memory().reserved <= highest + (256 << 10), "{} after {highest}", trie.memory().reserved);
}

/// What loses most of its keys takes what it would take if they had never been there.
#[test]
fn after_removals_a_trie_is_as_compact_as_a_new_one() {
    // In the paper's layout a chain is not joined with one that comes after it when what was between them goes.
    let percent_more = if super::LAYOUT == memtrie::Layout::Adaptive { 1 } else { 60 };
    for key in [url as fn(usize) -> Vec<u8>, key] {
        let (thinned, loaded) = (trie(), trie());
        let random = &mut Random(11);
        (0..6000).for_each(|number| thinned.writer().put(&key(number), b"the content").expect("room"));
        for number in 0..6000 {
            if random.below(8) == 0 {
                loaded.writer().put(&key(number), b"the content").expect("room");
            } else {
                assert!(thinned.writer().remove(&key(number)).expect("room"));
            }
        }
        let (thinned, loaded) = (thinned.memory().used, loaded.memory().used);
        assert!(thinned <= loaded * (100 + percent_more) / 100, "{thinned} used, {loaded} if loaded so");
    }
}

/// Long shared prefixes, and keys that are prefixes of others.
fn url(number: usize) -> Vec<u8> {
    let random = &mut Random(number as u64);
    let mut url = format!("https://host-{}.example/some/where", random.below(40));
    for part in 0..random.below(4) {
        url += &format!("/directory-{part}-{}", random.below(12));
    }
    if random.below(3) > 0 {
        url += &format!("/page-{number}.html");
    } else {
        url += &number.to_string();
    }
    url.into_bytes()
}
