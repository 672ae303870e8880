//! The writer, and readers that prevent the reuse of what it replaced.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Layout, Trie, TrieOptions};

const KEYS: usize = 100;
const VALUE: [u8; 4096] = [7; 4096];
/// The most bytes that readers hold back, with the pieces that the trie consists of.
const HELD_UP_BYTES_MAX: usize = 3 << 20;

fn trie(patience: Duration) -> Trie {
    let trie = Trie::new(TrieOptions { layout: Layout::Adaptive, ..TrieOptions::default() });
    overwrite(&trie, KEYS, &AtomicUsize::new(0));
    trie.writer().store().expect("open").patience = patience;
    trie
}

/// The largest number of reusable bytes seen.
fn overwrite(trie: &Trie, count: usize, done: &AtomicUsize) -> usize {
    (0..count)
        .map(|number| {
            trie.writer().put(&(number % KEYS).to_be_bytes(), &VALUE).expect("room");
            done.fetch_add(1, Ordering::Relaxed);
            trie.memory().reusable
        })
        .max()
        .unwrap_or_default()
}

#[test]
fn the_writer_waits_for_a_reader_that_was_interrupted() {
    let trie = trie(Duration::from_secs(60));
    let (done, is_pinned) = (AtomicUsize::new(0), AtomicBool::new(false));
    let reusable_max = std::thread::scope(|scope| {
        scope.spawn(|| {
            let pin = trie.pin();
            is_pinned.store(true, Ordering::Relaxed);
            // Until the writer stops making progress.
            let mut seen = 0;
            while seen == 0 || done.load(Ordering::Relaxed) != seen {
                seen = done.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
            }
            drop(pin);
        });
        while !is_pinned.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        overwrite(&trie, 5000, &done)
    });
    assert!(reusable_max < HELD_UP_BYTES_MAX, "{reusable_max} bytes waited");
}

#[test]
fn the_writer_waits_for_an_endless_reader_each_time_the_backlog_doubles() {
    let trie = trie(Duration::ZERO);
    for round in 1..=2 {
        let pin = trie.pin();
        let reusable_max = overwrite(&trie, 5000, &AtomicUsize::new(0));
        assert!(reusable_max > 5000 * VALUE.len(), "it sees what there was");
        // It waits at a little more than 1, 2, 4, 8 and 16 MiB.
        assert_eq!(trie.writer().store().expect("open").waits, 5 * round);
        drop(pin);
        trie.writer().reclaim();
    }
    trie.writer().verify().expect("sound");
}
