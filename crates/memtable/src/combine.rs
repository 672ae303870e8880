//! Flat combining: one thread at a time writes, and it also makes the changes of the threads that wait for it (Hendler,
//! Incze, Shavit, Tzafrir, *Flat Combining and the Synchronization-Parallelism Tradeoff*, SPAA 2010).
//!
//! Threads that queue on a lock pass it on one by one, each with the writer's data cold in its cache, and often with a
//! thread switch in between. Here a thread that finds the writer busy puts its change in a queue, and the writing
//! thread makes all queued changes before it leaves. No change is left behind: the writing thread checks the queue
//! again after it has released the writer, and a thread that queued a change tries to become the writer after that, so
//! that one of the two sees the other.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Instant;

use crate::puts::PutCounters;
use crate::sync::{
    Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, SERVED_MAX, SPINS, Thread, YIELDS, fence, thread,
};

/// Lets one thread at a time write. An implementation must leave the guarded data unchanged if a change panics.
pub(crate) trait Gate {
    /// Permission to write, held until it is dropped.
    type Guard<'g>
    where
        Self: 'g;

    /// Takes the permission if no thread has it.
    fn try_acquire(&self) -> Option<Self::Guard<'_>>;

    /// Waits for the permission.
    fn acquire(&self) -> Self::Guard<'_>;
}

/// Changes of type `C`, with outcomes of type `O`, behind one gate. All access to the gate must go through the
/// combiner.
pub(crate) struct Combiner<C, O> {
    queue: Mutex<VecDeque<Arc<Request<C, O>>>>,
    /// The number of queued changes, modified under the queue's lock.
    queued: AtomicUsize,
    puts: PutCounters,
}

struct Request<C, O> {
    change: C,
    outcome: Mutex<Option<O>>,
    is_done: AtomicBool,
    thread: Thread,
}

impl<C: Clone, O> Combiner<C, O> {
    pub fn new() -> Self {
        Combiner { queue: Mutex::new(VecDeque::new()), queued: AtomicUsize::new(0), puts: PutCounters::default() }
    }

    /// Makes `change` on this thread, or waits until the writing thread has made it. All callers must pass a `make`
    /// that does the same thing.
    #[inline]
    pub fn write<'g, G: Gate>(&'g self, gate: &'g G, change: &C, make: impl Fn(&mut G::Guard<'g>, &C) -> O) -> O {
        if let Some(mut guard) = gate.try_acquire() {
            let outcome = make(&mut guard, change);
            self.puts.uncontended_alone();
            self.leave(gate, guard, &make);
            return outcome;
        }
        let started = Instant::now();
        let outcome = self.have_made(gate, change.clone(), make);
        self.puts.contended(started.elapsed());
        outcome
    }

    /// Makes a change that cannot be handed to another thread. Waits for the gate.
    pub fn write_here<'g, G: Gate, T>(
        &'g self,
        gate: &'g G,
        change: impl FnOnce(&mut G::Guard<'g>) -> T,
        make: impl Fn(&mut G::Guard<'g>, &C) -> O,
    ) -> T {
        let (mut guard, waited) = match gate.try_acquire() {
            Some(guard) => (guard, None),
            None => {
                let started = Instant::now();
                (gate.acquire(), Some(started.elapsed()))
            }
        };
        let outcome = change(&mut guard);
        match waited {
            None => self.puts.uncontended_alone(),
            Some(waited) => self.puts.contended(waited),
        }
        self.leave(gate, guard, &make);
        outcome
    }

    /// Reads or changes the guarded data directly. Waits for the gate.
    pub fn with<'g, G: Gate, T>(
        &'g self,
        gate: &'g G,
        access: impl FnOnce(&mut G::Guard<'g>) -> T,
        make: impl Fn(&mut G::Guard<'g>, &C) -> O,
    ) -> T {
        let mut guard = gate.acquire();
        let outcome = access(&mut guard);
        self.leave(gate, guard, &make);
        outcome
    }

    /// The number of waiting changes.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub fn puts(&self) -> &PutCounters {
        &self.puts
    }

    #[cold]
    fn have_made<'g, G: Gate>(&'g self, gate: &'g G, change: C, make: impl Fn(&mut G::Guard<'g>, &C) -> O) -> O {
        let request = Arc::new(Request {
            change,
            outcome: Mutex::new(None),
            is_done: AtomicBool::new(false),
            thread: thread::current(),
        });
        {
            let mut queue = lock(&self.queue);
            queue.push_back(request.clone());
            self.queued.store(queue.len(), Ordering::Relaxed);
        }
        // Pairs with the fence of `leave`.
        fence(Ordering::SeqCst);
        let mut looked = 0;
        loop {
            if request.is_done.load(Ordering::Acquire) {
                if looked > SPINS + YIELDS {
                    // A thread has one token for all wake-ups. A park here may have taken one that is meant for what
                    // the caller waits for: a thread that polls several writes applies one of them.
                    request.thread.unpark();
                }
                let outcome = lock(&request.outcome).take();
                return outcome.expect("a request that leaves the queue is answered, unless its writer panicked");
            }
            if let Some(guard) = gate.try_acquire() {
                self.leave(gate, guard, &make);
            } else if looked < SPINS {
                std::hint::spin_loop();
            } else if looked < SPINS + YIELDS {
                thread::yield_now();
            } else {
                thread::park();
            }
            looked += 1;
        }
    }

    /// Makes the queued changes and releases the gate.
    #[inline]
    fn leave<'g, G: Gate>(&'g self, gate: &'g G, guard: G::Guard<'g>, make: impl Fn(&mut G::Guard<'g>, &C) -> O) {
        if self.queued.load(Ordering::Relaxed) == 0 {
            drop(guard);
            // Pairs with the fence of `have_made`.
            fence(Ordering::SeqCst);
            if self.queued.load(Ordering::Relaxed) == 0 {
                return;
            }
            // The thread that holds the gate now checks the queue when it leaves.
            let Some(guard) = gate.try_acquire() else { return };
            return self.serve(gate, guard, make);
        }
        self.serve(gate, guard, make);
    }

    #[cold]
    fn serve<'g, G: Gate>(&'g self, gate: &'g G, guard: G::Guard<'g>, make: impl Fn(&mut G::Guard<'g>, &C) -> O) {
        let mut leaving = Leaving { combiner: self, gate, guard: Some(guard), served: 0, is_over: false };
        while leaving.serve(&make) {}
    }

    fn pop(&self) -> Option<Arc<Request<C, O>>> {
        if self.queued.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = lock(&self.queue);
        let request = queue.pop_front();
        self.queued.store(queue.len(), Ordering::Relaxed);
        request
    }
}

impl<C, O> Request<C, O> {
    fn finish(&self, outcome: Option<O>) {
        let earlier = std::mem::replace(&mut *lock(&self.outcome), outcome);
        debug_assert!(earlier.is_none(), "a request is answered once");
        self.is_done.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// A thread that is leaving the gate. If it panics, the waiting threads continue without it.
struct Leaving<'g, G: Gate, C, O> {
    combiner: &'g Combiner<C, O>,
    gate: &'g G,
    guard: Option<G::Guard<'g>>,
    served: usize,
    /// No queued change is left for this thread.
    is_over: bool,
}

/// Ends a request's wait even if its change panics.
struct AnswerGuard<C, O>(Arc<Request<C, O>>, Option<O>);

impl<C, O> Drop for AnswerGuard<C, O> {
    fn drop(&mut self) {
        self.0.finish(self.1.take());
    }
}

impl<'g, G: Gate, C: Clone, O> Leaving<'g, G, C, O> {
    /// Makes the queued changes and releases the gate. Returns true if more arrived meanwhile and no other thread
    /// writes.
    fn serve(&mut self, make: impl Fn(&mut G::Guard<'g>, &C) -> O) -> bool {
        let Some(guard) = &mut self.guard else { return false };
        while self.served < SERVED_MAX
            && let Some(request) = self.combiner.pop()
        {
            let mut answer = AnswerGuard(request, None);
            answer.1 = Some(make(guard, &answer.0.change));
            self.served += 1;
        }
        debug_assert!(self.served <= SERVED_MAX, "one writer served {} requests", self.served);
        self.guard = None;
        // Pairs with the fence of `have_made`.
        fence(Ordering::SeqCst);
        let is_more = self.combiner.queued.load(Ordering::Relaxed) > 0;
        if is_more && self.served < SERVED_MAX {
            self.guard = self.gate.try_acquire();
        }
        // The thread that holds the gate now checks the queue when it leaves.
        self.is_over = !is_more || (self.served < SERVED_MAX && self.guard.is_none());
        debug_assert!(!self.is_over || self.guard.is_none(), "a writer that stops serving does not hold the gate");
        debug_assert!(
            self.served < SERVED_MAX || self.guard.is_none(),
            "a writer that served the maximum leaves the gate"
        );
        self.guard.is_some()
    }
}

impl<G: Gate, C, O> Drop for Leaving<'_, G, C, O> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.guard = None;
        fence(Ordering::SeqCst);
        if self.combiner.queued.load(Ordering::Relaxed) > 0
            && let Some(first) = lock(&self.combiner.queue).front()
        {
            first.thread.unpark();
        }
    }
}

/// The data that these locks guard is consistent between statements, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
