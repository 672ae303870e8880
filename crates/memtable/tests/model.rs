//! Flat combining under every schedule with a bounded number of forced switches and every memory order that the
//! language allows: the crate's own source over a model checker's atomics, locks and threads. A change that is left
//! behind is a deadlock, which the checker finds.

#![allow(dead_code, reason = "combining alone is driven, not all that the modules have")]
#![allow(clippy::absurd_extreme_comparisons, reason = "here no thread checks again before it sleeps")]

#[path = "../src/combine.rs"]
mod combine;
#[path = "../src/puts.rs"]
mod puts;

/// Replaces the crate's own primitives. A waiting thread sleeps at once. Reference counts are not modelled, because
/// they would multiply the schedules.
mod sync {
    use std::ops::{Deref, DerefMut};
    pub(crate) use std::sync::Arc;
    use std::sync::{LockResult, TryLockError, TryLockResult};

    pub(crate) use loom::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
        thread::{self, Thread},
    };

    /// A flag. With the checker's own lock no thread could try for the lock in vain between lock and unlock, and both
    /// would be fences.
    pub(crate) struct Mutex<T> {
        is_held: AtomicBool,
        inner: std::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'m, T> {
        inner: Option<std::sync::MutexGuard<'m, T>>,
        is_held: &'m AtomicBool,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(inner: T) -> Self {
            Mutex { is_held: AtomicBool::new(false), inner: std::sync::Mutex::new(inner) }
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            match self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let inner = self.inner.try_lock().expect("one at a time, as the flag says");
                    Ok(MutexGuard { inner: Some(inner), is_held: &self.is_held })
                }
                Err(_) => Err(TryLockError::WouldBlock),
            }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            loop {
                match self.try_lock() {
                    Ok(guard) => return Ok(guard),
                    Err(_) => thread::yield_now(),
                }
            }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.inner = None;
            self.is_held.store(false, Ordering::Release);
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.inner.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.inner.as_mut().expect("held")
        }
    }

    pub(crate) const SERVED_MAX: usize = 1;
    pub(crate) const SPINS: u32 = 0;
    pub(crate) const YIELDS: u32 = 0;
}

use std::sync::Arc;

use combine::{Combiner, Gate};
use loom::model::Builder;

impl Gate for sync::Mutex<Vec<u32>> {
    type Guard<'g> = sync::MutexGuard<'g, Vec<u32>>;

    fn try_acquire(&self) -> Option<Self::Guard<'_>> {
        self.try_lock().ok()
    }

    fn acquire(&self) -> Self::Guard<'_> {
        self.lock().expect("no assertion failed")
    }
}

/// A gate, and the number of threads that want to pass it.
struct Written {
    gate: sync::Mutex<Vec<u32>>,
    combiner: Combiner<u32, u32>,
}

/// This many threads make a change each, the model's first thread among them. Every change is made once, by any thread,
/// and each thread learns the outcome of its own. With a visitor the first thread's change may not be handed over.
fn every_change_is_made_once(threads: u32, with_visitor: bool, switches: usize) {
    let mut model = Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || {
        let written = Arc::new(Written { gate: sync::Mutex::new(Vec::new()), combiner: Combiner::new() });
        let make = |made: &mut sync::MutexGuard<'_, Vec<u32>>, change: &u32| {
            made.push(*change);
            *change * 10
        };
        let others: Vec<_> = (2..=threads)
            .map(|change| {
                let written = written.clone();
                loom::thread::spawn(move || {
                    assert_eq!(written.combiner.write(&written.gate, &change, make), change * 10);
                })
            })
            .collect();
        if with_visitor {
            written.combiner.write_here(&written.gate, |made| made.push(1), make);
        } else {
            assert_eq!(written.combiner.write(&written.gate, &1, make), 10);
        }
        others.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
        let mut made = written.combiner.with(&written.gate, |made| made.clone(), make);
        made.sort_unstable();
        assert_eq!(made, (1..=threads).collect::<Vec<_>>());
        let counts = written.combiner.puts().counts();
        assert_eq!(counts.uncontended + counts.contended, u64::from(threads));
    });
}

#[test]
fn two_writers_never_deadlock() {
    every_change_is_made_once(2, false, 4);
}

/// A thread serves only one other here, so that the last one has to learn that the gate is free.
#[test]
fn three_writers_never_deadlock() {
    every_change_is_made_once(3, false, 2);
}

#[test]
fn a_change_that_stays_on_its_thread_serves_those_that_wait() {
    every_change_is_made_once(3, true, 2);
}
