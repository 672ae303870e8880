//! `bench-memtrie COUNT PEER [KEYS]`: one map under one kind of keys. `loads` in place of a peer measures the latency
//! of the machine's memory, and `beside` measures a reader with a writer beside it. The program prints one line of JSON
//! per figure, in the thread's processor time, which other processes disturb least, and checks answers.
//!
//! Single operations run in sessions of a thousand, with one pin or lock each.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::{BPlusTree, BTree, Blart, KeyKind, Keys, OrderedMap, SkipList, TriePeer, mix};
use blockio::AlignedBuffer;
use memtrie::{Layout, Trie};
use rustix::time::{ClockId, clock_gettime};

const PAGE_BYTES: u64 = 4096;
const STRIDE: u64 = 7_368_787;
/// The number of gets of a kind, over all keys.
const GETS_MAX: u64 = 1_000_000;
/// The number of operations of a session.
const SESSION: u64 = 1000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let map = arguments.next();
    let keys = match arguments.next().as_deref() {
        None | Some("random") => KeyKind::Random,
        Some("bare") => KeyKind::Bare,
        Some("rows") => KeyKind::Rows,
        Some("urls") => KeyKind::Urls,
        Some("sequential") => KeyKind::Sequential,
        _ => return usage(),
    };
    match map.as_deref() {
        Some("memtrie") => peer(count, keys, || TriePeer::new(Layout::Adaptive)),
        Some("paper") => peer(count, keys, || TriePeer::new(Layout::Paper)),
        Some("btree") => peer(count, keys, BTree::default),
        Some("skiplist") => peer(count, keys, SkipList::default),
        Some("bplustree") => peer(count, keys, BPlusTree::default),
        Some("blart") => peer(count, keys, Blart::default),
        Some("loads") => dependent_loads(footprint(count)),
        Some("beside") => beside_a_writer(count),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: bench-memtrie COUNT memtrie|paper|btree|skiplist|bplustree|blart [random|bare|rows|urls|sequential]\n\
         bench-memtrie COUNT loads|beside"
    );
    ExitCode::from(2)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn say(peer: &str, figure: &str, value: f64) {
    println!("{{\"peer\": \"{peer}\", \"figure\": \"{figure}\", \"value\": {value:.2}}}");
}

/// Prints nanoseconds per key.
fn timed(peer: &str, figure: &str, count: u64, run: impl FnOnce()) {
    let start = cpu_time();
    run();
    say(peer, figure, (cpu_time() - start).as_nanos() as f64 / count as f64);
}

fn sessions(count: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..count).step_by(SESSION as usize).map(move |first| first..count.min(first + SESSION))
}

/// The entries that are read, which are chosen before the measurement.
fn probes(gets: u64, count: u64) -> Vec<u64> {
    (0..gets).map(|index| mix(index) % count).collect()
}

fn insert_all<M: OrderedMap>(map: &mut M, keys: &mut Keys, count: u64) {
    for session in sessions(count) {
        map.writing(&mut |insert| session.clone().for_each(|index| insert(keys.encoded(index), index)));
    }
}

fn peer<M: OrderedMap>(count: u64, kind: KeyKind, new: impl FnOnce() -> M) {
    let before = resident_bytes();
    let (mut map, mut keys) = (new(), Keys::of(kind));
    let name = map.name();
    timed(name, "insert, cold memory", count, || insert_all(&mut map, &mut keys, count));
    let held = map.held_bytes().unwrap_or(resident_bytes().saturating_sub(before));
    // The trie's content is a value of 8 bytes, like the peers'.
    say(name, "bytes per key without the value", held as f64 / count as f64 - 8.0);
    let gets = count.min(GETS_MAX);
    let probes = probes(gets, count);
    timed(name, "get, hit", gets, || {
        for session in probes.chunks(SESSION as usize) {
            map.reading(&mut |get| {
                for &probe in session {
                    assert_eq!(get(keys.encoded(probe)), Some(probe));
                }
            });
        }
    });
    timed(name, "get, hit, each by itself", gets, || {
        probes.iter().for_each(|&probe| {
            assert_eq!(map.get(keys.encoded(probe)), Some(probe));
        });
    });
    timed(name, "get, miss", gets, || {
        for session in sessions(gets) {
            map.reading(&mut |get| {
                session.clone().for_each(|index| assert_eq!(get(keys.encoded(count + index)), None));
            });
        }
    });
    get_together(&map, kind, &probes);
    timed(name, "get, dependent", gets, || {
        let mut probe = 0;
        for session in sessions(gets) {
            map.reading(&mut |get| {
                for _ in session.clone() {
                    probe = (get(keys.encoded(probe)).expect("present") + STRIDE) % count;
                }
            });
        }
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
    for (figure, reverse) in [("scan forward, keys not rebuilt", false), ("scan reverse, keys not rebuilt", true)] {
        let (mut sum, start) = (0u64, cpu_time());
        let visited = map.scan_values(reverse, &mut |value| sum = sum.wrapping_add(value));
        let Some(visited) = visited else { continue };
        say(name, figure, (cpu_time() - start).as_nanos() as f64 / count as f64);
        assert_eq!((visited, sum), (count, count * (count - 1) / 2), "every entry once");
    }
    let empty = |map: &mut M| map.empty(&mut |index| (index < count).then(|| Keys::of(kind).encoded(index).to_vec()));
    if empty(&mut map) && map.get_many(&[]).is_some() {
        insert_together(&mut map, kind, count);
    }
    if empty(&mut map) {
        timed(name, "insert, touched memory", count, || {
            insert_all(&mut map, &mut keys, count);
        });
    }
}

/// Here too, keys are encoded within the measured time.
fn get_together<M: OrderedMap>(map: &M, kind: KeyKind, probes: &[u64]) {
    if map.get_many(&[]).is_none() {
        return;
    }
    let mut keys: Vec<Keys> = (0..64).map(|_| Keys::of(kind)).collect();
    timed(map.name(), "get, 64 at a time", probes.len() as u64, || {
        for probes in probes.chunks(64) {
            let encoded: Vec<&[u8]> = probes.iter().zip(&mut keys).map(|(&probe, keys)| keys.encoded(probe)).collect();
            let expected: Vec<_> = probes.iter().map(|&probe| Some(probe)).collect();
            assert_eq!(map.get_many(&encoded), Some(expected));
        }
    });
}

fn insert_together<M: OrderedMap>(map: &mut M, kind: KeyKind, count: u64) {
    let mut keys: Vec<Keys> = (0..32).map(|_| Keys::of(kind)).collect();
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

/// A reader's gets while a writer overwrites the same trie, and while it overwrites another trie.
fn beside_a_writer(count: u64) {
    const ROUNDS: u64 = 5;
    let (mut own, mut other) = (TriePeer::new(Layout::Adaptive), TriePeer::new(Layout::Adaptive));
    let mut keys = Keys::default();
    insert_all(&mut own, &mut keys, count);
    insert_all(&mut other, &mut keys, count);
    let gets = count.min(GETS_MAX);
    let probes = probes(gets, count);
    for _ in 0..ROUNDS {
        for (figure, written) in [("get beside a writer of another trie", &other), ("get beside its own writer", &own)]
        {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| overwrite(written.trie(), count, &done));
                timed("memtrie", figure, gets, || {
                    for session in probes.chunks(SESSION as usize) {
                        own.reading(&mut |get| {
                            for &probe in session {
                                assert_eq!(get(keys.encoded(probe)), Some(probe));
                            }
                        });
                    }
                });
                done.store(true, Ordering::Relaxed);
            });
        }
    }
}

fn overwrite(trie: &Trie, count: u64, done: &AtomicBool) {
    let (mut keys, mut round) = (Keys::default(), 0);
    while !done.load(Ordering::Relaxed) {
        round += 1;
        let index = mix(round) % count;
        trie.writer().put(keys.encoded(index), &index.to_le_bytes()).expect("room for the benchmark's keys");
    }
}

/// The memory of a trie of `count` keys.
fn footprint(count: u64) -> u64 {
    let mut trie = TriePeer::new(Layout::Adaptive);
    insert_all(&mut trie, &mut Keys::default(), count);
    trie.held_bytes().expect("a trie knows what it holds")
}

/// The time of one load that depends on the load before, over as much memory as the trie takes, and on huge pages,
/// which the trie uses too.
fn dependent_loads(bytes: u64) {
    let slots = bytes / 8;
    let mut buffer = AlignedBuffer::new(bytes as usize);
    // One cycle through all slots (Sattolo).
    let mut cycle: Vec<u64> = (0..slots).collect();
    (1..slots).rev().for_each(|place| cycle.swap(place as usize, (mix(place) % place) as usize));
    cycle.iter().zip(buffer.chunks_exact_mut(8)).for_each(|(place, slot)| slot.copy_from_slice(&place.to_ne_bytes()));
    drop(cycle);
    let (next, _) = buffer.as_chunks::<8>();
    let loads = slots.min(5_000_000);
    timed("this machine", "dependent load", loads, || {
        let mut place = 0;
        (0..loads).for_each(|_| place = u64::from_ne_bytes(next[place as usize]));
        black_box(place);
    });
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_BYTES
}
