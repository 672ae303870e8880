//! One writer at full speed, with readers and walkers beside it. Every content names its key, so that anything recycled
//! too early or incomplete is detected.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memtrie::{Bounds, Direction, Edit, Trie};

use super::model::{Random, seeds, trie};

/// Version, then the key, then filling that depends on both.
fn content(key: &[u8], version: u64, length: usize) -> Vec<u8> {
    let mut content = version.to_le_bytes().to_vec();
    content.push(key.len() as u8);
    content.extend_from_slice(key);
    let fill = key.iter().fold(version as u8, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte));
    content.resize(content.len() + length, fill);
    content
}

/// The version of a content, which must belong to `key` and be complete.
fn version_of(key: &[u8], found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[..8].try_into().expect("a version"));
    assert_eq!(found, content(key, version, found.len() - 9 - key.len()), "of {key:02x?}");
    version
}

/// Keys that lead to all node kinds: dense, sparse, and long chains; some are prefixes of others.
fn key(number: usize) -> Vec<u8> {
    let random = &mut Random(number as u64);
    let mut key = match number % 4 {
        0 => vec![b'd', (number / 4) as u8, (number / 1024) as u8],
        1 => (0..random.below(7)).map(|_| b"abc"[random.below(3)]).collect(),
        2 => [b"a long way that many keys share until they part at ".as_slice(), &number.to_be_bytes()].concat(),
        _ => random.number().to_be_bytes().to_vec(),
    };
    if number % 4 == 1 {
        // The keys are distinct, and each is a prefix of the next.
        key.extend(format!("{number:05}").bytes().take(1 + number % 5));
    }
    key
}

const KEYS: usize = 1500;
/// Every permanent key always exists, and its version never goes back.
fn is_permanent(number: usize) -> bool {
    number % 4 != 1 && number.is_multiple_of(3)
}

fn write(trie: &Trie, seed: u64, done: &AtomicBool, progress: &AtomicU64, floor: u64) {
    let random = &mut Random(seed);
    let mut version = 1;
    // A reader that fails sets `done`.
    while (version < 30_000 || progress.load(Ordering::Relaxed) < floor) && !done.load(Ordering::Relaxed) {
        version += 1;
        let number = random.below(KEYS);
        let key = key(number);
        let length = if random.below(50) == 0 { random.below(9000) } else { random.below(60) };
        let mut writer = trie.writer();
        if !is_permanent(number) && random.below(3) == 0 {
            writer.remove(&key).expect("room");
        } else {
            writer.put(&key, &content(&key, version, length)).expect("room");
        }
        if version % 8 == 0 {
            write_group(&mut writer, random.below(20), version);
        }
        if version == 30_000 {
            writer.verify().expect("sound");
        }
    }
    done.store(true, Ordering::Relaxed);
}

/// All keys of a group always have one version; which keys exist depends on the version.
fn write_group(writer: &mut memtrie::Writer<'_>, group: usize, version: u64) {
    let suffixes: Vec<Vec<u8>> = (0..12).map(|i| vec![b'x'; i % 4].into_iter().chain([i as u8]).collect()).collect();
    let contents: Vec<Option<Vec<u8>>> = suffixes
        .iter()
        .enumerate()
        .map(|(i, suffix)| (version >> 3 >> (i % 7) & 1 == 1).then(|| content(suffix, version, i * 3)))
        .collect();
    let mut edits: Vec<Edit<'_>> =
        suffixes.iter().zip(&contents).map(|(suffix, content)| Edit { suffix, content: content.as_deref() }).collect();
    edits.sort_by_key(|edit| edit.suffix);
    writer.apply(&group_prefix(group), &edits).expect("room");
}

fn group_prefix(group: usize) -> Vec<u8> {
    format!("group {:02}", group * 37 % 20).into_bytes()
}

/// Ends the test when a thread panics.
struct Failing<'a>(&'a AtomicBool);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn read_keys(trie: &Trie, seed: u64, done: &AtomicBool, progress: &AtomicU64) {
    let random = &mut Random(seed);
    let mut versions = vec![0; KEYS];
    let _failing = Failing(done);
    while !done.load(Ordering::Relaxed) {
        let pin = trie.pin();
        for _ in 0..20 {
            let number = random.below(KEYS);
            let key = key(number);
            match pin.get(&key) {
                Some(found) => {
                    let version = version_of(&key, found);
                    assert!(!is_permanent(number) || version >= versions[number], "versions do not go back");
                    versions[number] = version;
                }
                None => assert!(versions[number] == 0 || !is_permanent(number), "a permanent key stays"),
            }
        }
        read_group(&pin, random.below(20));
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

fn read_group(pin: &memtrie::Pin<'_>, group: usize) {
    let tail = pin.tail(&group_prefix(group));
    let mut cursor = tail.cursor(Bounds::ALL, Direction::Forward);
    let mut seen: Vec<(Vec<u8>, u64)> = Vec::new();
    while cursor.advance() {
        seen.push((cursor.key().to_vec(), version_of(cursor.key(), cursor.content())));
    }
    let Some((_, version)) = seen.first() else { return };
    let expected = (0..12).filter(|i| version >> 3 >> (i % 7) & 1 == 1).count();
    assert!(seen.iter().all(|(_, other)| other == version), "one version: {seen:?}");
    assert_eq!(seen.len(), expected, "all of it");
}

fn walk(trie: &Trie, direction: Direction, done: &AtomicBool, progress: &AtomicU64) {
    let _failing = Failing(done);
    while !done.load(Ordering::Relaxed) {
        let pin = trie.pin();
        let mut cursor = pin.cursor(Bounds::ALL, direction);
        let mut last: Option<Vec<u8>> = None;
        while cursor.advance() {
            let key = cursor.key();
            if let Some(last) = &last {
                assert!(if direction == Direction::Forward { key > last.as_slice() } else { key < last.as_slice() });
            }
            if !key.starts_with(b"group ") {
                version_of(key, cursor.content());
            }
            last = Some(key.to_vec());
        }
        let mut nodes = pin.node_cursor(direction);
        let mut path = Vec::new();
        while let Some(depth) = nodes.depth() {
            path.truncate(depth.saturating_sub(1));
            path.extend(nodes.incoming());
            if let Some(found) = nodes.content()
                && !path.starts_with(b"group ")
            {
                version_of(&path, found);
            }
            nodes.advance();
        }
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn concurrent_readers_see_only_written_values_and_the_newest_of_them() {
    let trie = trie();
    {
        let mut writer = trie.writer();
        (0..KEYS).filter(|&number| is_permanent(number)).for_each(|number| {
            let key = key(number);
            writer.put(&key, &content(&key, 1, 10)).expect("room");
        });
    }
    let (done, read, walked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (trie, done, read, walked) = (&trie, &done, &read, &walked);
        for seed in 0..2 {
            scope.spawn(move || read_keys(trie, seed, done, read));
        }
        scope.spawn(move || walk(trie, Direction::Forward, done, walked));
        scope.spawn(move || walk(trie, Direction::Reverse, done, walked));
        let seed = seeds(17..18).start;
        println!("seed {seed}");
        write(trie, seed, done, read, 300);
    });
    assert!(walked.load(Ordering::Relaxed) > 0);
    trie.writer().verify().expect("sound");
}

/// What a pin can see stays as it is while the pin lives, however much is written; when it ends, it is recycled.
#[test]
fn a_stalled_reader_keeps_what_it_sees() {
    let trie = trie();
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    keys.iter().for_each(|key| trie.writer().put(key, &content(key, 1, 100)).expect("room"));
    let pin = trie.pin();
    let seen: Vec<_> = keys.iter().map(|key| pin.get(key).expect("there")).collect();
    let mut cursor = pin.cursor(Bounds::ALL, Direction::Forward);
    assert!(cursor.advance());
    for version in 2..20 {
        keys.iter().for_each(|key| trie.writer().put(key, &content(key, version, 100)).expect("room"));
    }
    for key in &keys {
        trie.writer().remove(key).expect("room");
    }
    for (key, found) in keys.iter().zip(seen) {
        assert_eq!(found, content(key, 1, found.len() - 9 - key.len()));
    }
    while cursor.advance() {
        version_of(cursor.key(), cursor.content());
    }
    let held = trie.memory();
    assert!(held.reusable > 19 * KEYS * 100);
    drop(cursor);
    drop(pin);
    trie.writer().reclaim();
    keys.iter().for_each(|key| trie.writer().put(key, &content(key, 1, 100)).expect("room"));
    assert_eq!(trie.memory().reserved.max(held.reserved), held.reserved, "recycled, not taken anew");
}

/// More pins at once than there are slots in one group.
#[test]
fn any_number_of_pins_can_be_held() {
    let trie = trie();
    trie.writer().put(b"key", b"one").expect("room");
    let pins: Vec<_> = (0..100).map(|_| trie.pin()).collect();
    let seen: Vec<_> = pins.iter().map(|pin| pin.get(b"key")).collect();
    for _ in 0..2000 {
        trie.writer().put(b"key", b"two").expect("room");
    }
    assert!(seen.iter().all(|found| *found == Some(b"one")));
    assert_eq!(pins[50].get(b"key"), Some(b"two".as_slice()));
}
