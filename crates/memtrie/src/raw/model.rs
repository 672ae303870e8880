//! The hand-over between writer and readers, under every schedule and every memory order that the language allows
//! (loom): the crate's own epochs over a model checker's atomics. Cells stand for nodes, and detect an access that is
//! not ordered with a write.

#![allow(dead_code, reason = "a model uses a part of the module")]

#[path = "epoch.rs"]
mod epoch;

/// Replaces the crate's own primitives. There are few slots, because every reclamation reads all of them.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) const PIN_SLOTS: usize = 2;

    pub(crate) fn fence_behind_lock() {
        fence(Ordering::SeqCst);
    }
}

mod memory {
    /// Names a piece.
    #[derive(Clone, Copy)]
    pub(crate) struct Ptr(pub usize);
}

use std::sync::Arc;

use epoch::{Epochs, Limbo, Reach};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use memory::Ptr;
use sync::{AtomicU32, Ordering};

const RECLAIMED: u32 = u32::MAX;

/// A pointer word that leads to one of two pieces, and the pieces' values.
struct Shared {
    epochs: Epochs,
    word: AtomicU32,
    pieces: [UnsafeCell<u32>; 2],
}

// SAFETY: for the model: loom checks every access to the cells.
unsafe impl Sync for Shared {}
// SAFETY: as for Sync.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            epochs: Epochs::new(),
            word: AtomicU32::new(0),
            pieces: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn read(&self) -> u32 {
        let _pin = self.epochs.pin(Reach::ALL);
        let piece = self.word.load(Ordering::Acquire);
        // SAFETY: what the model checks: nothing writes the piece while the pin lives.
        self.pieces[piece as usize].with(|value| unsafe { *value })
    }

    fn set(&self, piece: u32, value: u32) {
        // SAFETY: as in `read`: no reader can reach the piece now.
        self.pieces[piece as usize].with_mut(|cell| unsafe { *cell = value });
    }
}

/// Replaces the content `rounds` times, and each time recycles the piece that was replaced, if no reader can reach it.
fn write(shared: &Shared, rounds: u32) {
    let mut limbo = Limbo::default();
    let mut free = vec![1_u32];
    let mut live = 0;
    for round in 1..=rounds {
        if let Some(next) = free.pop() {
            // Prepared where no reader looks, then published by one store.
            shared.set(next, round);
            shared.word.store(next, Ordering::Release);
            limbo.push(shared.epochs.advance(), &mut vec![Ptr(live as usize)]);
            live = next;
        }
        limbo.drain(shared.epochs.oldest_pin(), |ptr| {
            shared.set(ptr.0 as u32, RECLAIMED);
            free.push(ptr.0 as u32);
        });
    }
}

#[test]
fn a_reader_never_sees_recycled_memory() {
    loom::model(|| {
        let shared = Shared::new();
        let reader = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let first = shared.read();
                let second = shared.read();
                assert!(first != RECLAIMED && second != RECLAIMED);
                assert!(first <= second, "versions do not go back");
            })
        };
        write(&shared, 2);
        reader.join().expect("the reader is content");
    });
}

/// Two readers that want the same slot, in all orders with a limited number of forced switches; all orders would take
/// hours.
#[test]
fn pins_of_two_readers_both_count() {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new();
        let readers = [0, 1].map(|_| {
            let shared = shared.clone();
            loom::thread::spawn(move || assert_ne!(shared.read(), RECLAIMED))
        });
        write(&shared, 1);
        readers.into_iter().for_each(|reader| reader.join().expect("the reader is content"));
    });
}

/// Two keys below one prefix are put one after the other, in place unless a pin may read both.
#[test]
fn a_reader_that_sees_the_second_of_two_puts_sees_the_first() {
    loom::model(|| {
        let keys = Arc::new((Epochs::new(), AtomicU32::new(0), AtomicU32::new(0)));
        let reader = {
            let keys = keys.clone();
            loom::thread::spawn(move || {
                let (epochs, one, other) = &*keys;
                let _pin = epochs.pin(Reach::below(b"prefix"));
                // A cursor comes to the first key before the second.
                let (one, other) = (one.load(Ordering::Acquire), other.load(Ordering::Acquire));
                assert!(one >= other, "the second put is visible, the first is not");
            })
        };
        let (epochs, one, other) = &*keys;
        for key in [one, other] {
            if !epochs.is_read(Reach::below(b"prefix")) {
                key.store(1, Ordering::Release);
            }
            // Otherwise it goes to a copy, which the reader does not see.
        }
        reader.join().expect("the reader is content");
    });
}

/// A child is added to a node in place: pointer and character first, then the count, in separate words.
#[test]
fn a_reader_sees_only_the_children_below_the_published_count() {
    loom::model(|| {
        struct Node {
            child: AtomicU32,
            characters: AtomicU32,
            count: AtomicU32,
            content: UnsafeCell<u32>,
        }
        // SAFETY: for the model: loom checks every access to the cell.
        unsafe impl Sync for Node {}
        // SAFETY: as for Sync.
        unsafe impl Send for Node {}
        let node = Arc::new(Node {
            child: AtomicU32::new(0),
            characters: AtomicU32::new(0),
            count: AtomicU32::new(0),
            content: UnsafeCell::new(0),
        });
        let reader = {
            let node = node.clone();
            loom::thread::spawn(move || {
                if node.count.load(Ordering::Acquire) == 1 {
                    assert_eq!(node.characters.load(Ordering::Relaxed), 7);
                    assert_eq!(node.child.load(Ordering::Acquire), 9);
                    // SAFETY: what the model checks: it was written before the count was published.
                    assert_eq!(node.content.with(|content| unsafe { *content }), 5);
                }
            })
        };
        // SAFETY: no reader can reach it before the count is published.
        node.content.with_mut(|content| unsafe { *content = 5 });
        node.child.store(9, Ordering::Release);
        node.characters.store(7, Ordering::Relaxed);
        node.count.store(1, Ordering::Release);
        reader.join().expect("the reader is content");
    });
}
