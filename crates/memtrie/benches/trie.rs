//! Put, get and scan of random keys, compared with `BTreeMap` as the baseline. The answers are checked.
//!
//! `cargo bench -p memtrie -- 10000000`. Without a number the run is too small to mean anything.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use memtrie::{Bounds, Direction, Trie, TrieOptions};

const KEY_BYTES: usize = 26;
type Key = [u8; KEY_BYTES];

/// A partition's path: a separator, 8 bytes of token, a separator, 16 bytes of key.
fn key(index: u64) -> Key {
    let mut key = [0x40; KEY_BYTES];
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let seed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[1..9].copy_from_slice(&mix(seed).to_be_bytes());
    key[10..18].copy_from_slice(&mix(seed ^ 1).to_be_bytes());
    key[18..26].copy_from_slice(&mix(seed ^ 2).to_be_bytes());
    key
}

fn timed(what: &str, count: u64, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    let nanos = start.elapsed().as_nanos() as f64 / count as f64;
    println!("{what:42} {nanos:8.1} ns");
}

fn main() {
    let count: u64 = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(10_000);
    println!("{count} random keys of {KEY_BYTES} bytes, contents of 8 bytes; per key:");
    let trie = Trie::new(TrieOptions::default());
    timed("put, new memory", count, || {
        let mut writer = trie.writer();
        (0..count).for_each(|index| writer.put(&key(index), &index.to_le_bytes()).expect("room"));
    });
    timed("put, replacing", count, || {
        let mut writer = trie.writer();
        (0..count).for_each(|index| writer.put(&key(index), &index.to_le_bytes()).expect("room"));
    });
    timed("get, one pin", count, || {
        let pin = trie.pin();
        (0..count).for_each(|index| {
            let probe = index.wrapping_mul(7_368_787) % count;
            assert_eq!(pin.get(&key(probe)), Some(probe.to_le_bytes().as_slice()));
        });
    });
    timed("get, a pin each", count, || {
        (0..count).for_each(|index| {
            let probe = index.wrapping_mul(7_368_787) % count;
            assert_eq!(trie.pin().get(&key(probe)), Some(probe.to_le_bytes().as_slice()));
        });
    });
    timed("get, absent", count, || {
        let pin = trie.pin();
        (count..2 * count).for_each(|index| assert!(pin.get(&key(index)).is_none()));
    });
    timed("get, dependent", count, || {
        let pin = trie.pin();
        let mut probe = 0;
        (0..count).for_each(|_| {
            let content = pin.get(&key(probe)).and_then(|content| content.try_into().ok());
            probe = (u64::from_le_bytes(content.expect("present")) + 7_368_787) % count;
        });
        black_box(probe);
    });
    for direction in [Direction::Forward, Direction::Reverse] {
        timed(&format!("scan {direction:?}, keys rebuilt"), count, || {
            let pin = trie.pin();
            let mut cursor = pin.cursor(Bounds::ALL, direction);
            let mut seen = 0;
            while cursor.advance() {
                seen += 1;
                black_box((cursor.key(), cursor.content()));
            }
            assert_eq!(seen, count);
        });
    }
    let memory = trie.memory();
    println!(
        "memory {:.1} bytes per key used, {:.1} reserved",
        memory.used as f64 / count as f64,
        memory.reserved as f64 / count as f64
    );
    timed("put, memory touched before", count, || {
        let mut writer = trie.writer();
        (0..count).for_each(|index| assert!(writer.remove(&key(index)).expect("room")));
        writer.reclaim();
    });
    timed("  (that was removal) put again", count, || {
        let mut writer = trie.writer();
        (0..count).for_each(|index| writer.put(&key(index), &index.to_le_bytes()).expect("room"));
    });
    if count <= 1_000_000 {
        let mut map = BTreeMap::new();
        timed("BTreeMap insert", count, || {
            map.extend((0..count).map(|index| (key(index), index)));
        });
        timed("BTreeMap get", count, || {
            (0..count).for_each(|index| {
                let probe = index.wrapping_mul(7_368_787) % count;
                assert_eq!(map.get(&key(probe)), Some(&probe));
            });
        });
    }
}
