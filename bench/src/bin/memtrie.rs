//! `bench-memtrie COUNT PEER`: one map, or `loads` for what the machine's memory costs. One line of JSON per figure, in the
//! thread's processor time, which other processes disturb least. Answers are checked.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use bench::{BTree, Blart, Keys, OrderedMap, SkipList, TriePeer, mix};
use memtrie::Layout;
use rustix::time::{ClockId, clock_gettime};

const PAGE_BYTES: u64 = 4096;
const STRIDE: u64 = 7_368_787;
/// About what a trie takes for a key and its content.
const FOOTPRINT_BYTES: u64 = 54;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    match arguments.next().as_deref() {
        Some("memtrie") => peer(count, || TriePeer::new(Layout::Adaptive)),
        Some("paper") => peer(count, || TriePeer::new(Layout::Paper)),
        Some("btree") => peer(count, BTree::default),
        Some("skiplist") => peer(count, SkipList::default),
        Some("blart") => peer(count, Blart::default),
        Some("loads") => dependent_loads(count * FOOTPRINT_BYTES),
        _ => {
            eprintln!("usage: bench-memtrie COUNT memtrie|paper|btree|skiplist|blart|loads");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn say(peer: &str, figure: &str, value: f64) {
    println!("{{\"peer\": \"{peer}\", \"figure\": \"{figure}\", \"value\": {value:.2}}}");
}

/// Nanoseconds per key.
fn timed(peer: &str, figure: &str, count: u64, run: impl FnOnce()) {
    let start = cpu_time();
    run();
    say(peer, figure, (cpu_time() - start).as_nanos() as f64 / count as f64);
}

fn peer<M: OrderedMap>(count: u64, new: impl FnOnce() -> M) {
    let before = resident_bytes();
    let (mut map, mut keys) = (new(), Keys::default());
    let name = map.name();
    timed(name, "insert, cold memory", count, || (0..count).for_each(|index| map.insert(keys.encoded(index), index)));
    let held = map.held_bytes().unwrap_or(resident_bytes().saturating_sub(before));
    // The trie's content is a value of 8 bytes, as the peers' is.
    say(name, "bytes per key without the value", held as f64 / count as f64 - 8.0);
    timed(name, "get, hit", count, || {
        (0..count).for_each(|index| {
            let probe = mix(index) % count;
            assert_eq!(map.get(keys.encoded(probe)), Some(probe));
        });
    });
    timed(name, "get, miss", count, || {
        (count..2 * count).for_each(|index| assert_eq!(map.get(keys.encoded(index)), None));
    });
    get_together(&map, count);
    timed(name, "get, dependent", count, || {
        let mut probe = 0;
        (0..count).for_each(|_| probe = (map.get(keys.encoded(probe)).expect("present") + STRIDE) % count);
        black_box(probe);
    });
    for (figure, reverse) in [("scan forward", false), ("scan reverse", true)] {
        let mut sum = 0u64;
        timed(name, figure, count, || {
            let visited = map.scan(reverse, &mut |key, value| {
                black_box(key);
                sum = sum.wrapping_add(value);
            });
            assert_eq!(visited, Some(count));
        });
        assert_eq!(sum, count * (count - 1) / 2, "every entry once");
    }
    let empty = |map: &mut M| map.empty(&mut |index| (index < count).then(|| Keys::default().encoded(index).to_vec()));
    if empty(&mut map) && map.get_many(&[]).is_some() {
        insert_together(&mut map, count);
    }
    if empty(&mut map) {
        timed(name, "insert, touched memory", count, || {
            (0..count).for_each(|index| map.insert(keys.encoded(index), index))
        });
    }
}

/// Keys are translated in the measured time here too.
fn get_together<M: OrderedMap>(map: &M, count: u64) {
    if map.get_many(&[]).is_none() {
        return;
    }
    let mut keys: Vec<Keys> = (0..64).map(|_| Keys::default()).collect();
    timed(map.name(), "get, 64 at a time", count, || {
        for start in (0..count).step_by(64) {
            let probes = start..count.min(start + 64);
            let encoded: Vec<&[u8]> =
                probes.clone().zip(&mut keys).map(|(index, keys)| keys.encoded(mix(index) % count)).collect();
            let expected: Vec<_> = probes.map(|index| Some(mix(index) % count)).collect();
            assert_eq!(map.get_many(&encoded), Some(expected));
        }
    });
}

fn insert_together<M: OrderedMap>(map: &mut M, count: u64) {
    let mut keys: Vec<Keys> = (0..32).map(|_| Keys::default()).collect();
    timed(map.name(), "insert, 32 at a time, touched memory", count, || {
        for start in (0..count).step_by(32) {
            let entries: Vec<(&[u8], u64)> = (start..count.min(start + 32))
                .zip(&mut keys)
                .map(|(index, keys)| (keys.encoded(index), index))
                .collect();
            assert!(map.insert_many(&entries));
        }
    });
}

/// What one load costs that depends on the one before, over as much memory as a map takes.
fn dependent_loads(bytes: u64) {
    let slots = bytes / 8;
    // One cycle through all slots (Sattolo).
    let mut next: Vec<u64> = (0..slots).collect();
    (1..slots).rev().for_each(|place| next.swap(place as usize, (mix(place) % place) as usize));
    let loads = slots.min(5_000_000);
    timed("this machine", "dependent load", loads, || {
        let mut place = 0;
        (0..loads).for_each(|_| place = next[place as usize]);
        black_box(place);
    });
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_BYTES
}
