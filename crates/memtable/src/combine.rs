//! One writer at a time, who makes the changes of those that wait for it too (flat combining: Hendler, Incze, Shavit, Tzafrir,
//! *Flat Combining and the Synchronization-Parallelism Tradeoff*, SPAA 2010).
//!
//! Threads that queue on a lock pass it on one by one, each with the writer's data cold in its cache and often with a
//! switch of threads in between. Here a thread that finds the writer busy leaves its change in a queue; the one that
//! writes makes all queued changes before it leaves. Nobody is left behind: whoever leaves looks at the queue again
//! after it released the writer, and whoever queued tries for the writer after that, so that one of the two sees the other.

use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError};
use std::time::Instant;

use crate::puts::PutCounters;
use crate::sync::{
    Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, SERVED_MAX, SPINS, Thread, YIELDS, fence, thread,
};

/// A writer `W`, changes `C` to it and what comes of one, `O`.
pub(crate) struct Combiner<W, C, O> {
    writer: Mutex<W>,
    queue: Mutex<VecDeque<Arc<Request<C, O>>>>,
    /// How many are in the queue; changed under its lock.
    queued: AtomicUsize,
    puts: PutCounters,
}

struct Request<C, O> {
    change: C,
    outcome: Mutex<Option<O>>,
    is_done: AtomicBool,
    thread: Thread,
}

impl<W, C: Clone, O> Combiner<W, C, O> {
    pub fn new(writer: W) -> Self {
        Combiner {
            writer: Mutex::new(writer),
            queue: Mutex::new(VecDeque::new()),
            queued: AtomicUsize::new(0),
            puts: PutCounters::default(),
        }
    }

    /// Has `change` made: here, or by the thread that is writing. All callers' `make` do the same.
    pub fn write(&self, change: &C, make: impl Fn(&mut W, &C) -> O) -> O {
        if let Some(mut writer) = self.try_lock() {
            let outcome = make(&mut writer, change);
            self.puts.uncontended_alone();
            self.leave(writer, &make);
            return outcome;
        }
        let started = Instant::now();
        let outcome = self.have_made(change.clone(), make);
        self.puts.contended(started.elapsed());
        outcome
    }

    /// Makes a change that cannot be handed to another thread; waits for the writer.
    pub fn write_here<T>(&self, change: impl FnOnce(&mut W) -> T, make: impl Fn(&mut W, &C) -> O) -> T {
        let (mut writer, waited) = match self.try_lock() {
            Some(writer) => (writer, None),
            None => {
                let started = Instant::now();
                (self.writer.lock().unwrap_or_else(PoisonError::into_inner), Some(started.elapsed()))
            }
        };
        let outcome = change(&mut writer);
        match waited {
            None => self.puts.uncontended_alone(),
            Some(waited) => self.puts.contended(waited),
        }
        self.leave(writer, &make);
        outcome
    }

    /// Looks at the writer, or changes it on the side; waits for it.
    pub fn with<T>(&self, look: impl FnOnce(&mut W) -> T, make: impl Fn(&mut W, &C) -> O) -> T {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = look(&mut writer);
        self.leave(writer, &make);
        outcome
    }

    pub fn puts(&self) -> &PutCounters {
        &self.puts
    }

    fn have_made(&self, change: C, make: impl Fn(&mut W, &C) -> O) -> O {
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
                let outcome = lock(&request.outcome).take();
                return outcome.expect("whoever takes a request out of the queue answers it, unless it panicked");
            }
            if let Some(writer) = self.try_lock() {
                self.leave(writer, &make);
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

    /// Makes the queued changes and releases the writer.
    fn leave(&self, writer: MutexGuard<'_, W>, make: impl Fn(&mut W, &C) -> O) {
        let mut leaving = Leaving { combiner: self, writer: Some(writer), served: 0, is_over: false };
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

    /// A panic of a change leaves the writer as it was before it: whoever makes one sees to that.
    fn try_lock(&self) -> Option<MutexGuard<'_, W>> {
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<C, O> Request<C, O> {
    fn finish(&self, outcome: Option<O>) {
        *lock(&self.outcome) = outcome;
        self.is_done.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// A thread on its way out. If it panics, those that wait go on without it.
struct Leaving<'c, W, C, O> {
    combiner: &'c Combiner<W, C, O>,
    writer: Option<MutexGuard<'c, W>>,
    served: usize,
    /// Nobody is left to be told.
    is_over: bool,
}

/// Ends the wait of a request whose change panicked.
struct Answer<C, O>(Arc<Request<C, O>>, Option<O>);

impl<C, O> Drop for Answer<C, O> {
    fn drop(&mut self) {
        self.0.finish(self.1.take());
    }
}

impl<W, C: Clone, O> Leaving<'_, W, C, O> {
    /// Makes what is queued and releases the writer. True if more came meanwhile and nobody else writes.
    fn serve(&mut self, make: impl Fn(&mut W, &C) -> O) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        while self.served < SERVED_MAX
            && let Some(request) = self.combiner.pop()
        {
            let mut answer = Answer(request, None);
            answer.1 = Some(make(writer, &answer.0.change));
            self.served += 1;
        }
        self.writer = None;
        // Pairs with the fence of `have_made`.
        fence(Ordering::SeqCst);
        let is_more = self.combiner.queued.load(Ordering::Relaxed) > 0;
        if is_more && self.served < SERVED_MAX {
            self.writer = self.combiner.try_lock();
        }
        // Whoever has the writer now looks at the queue when it leaves.
        self.is_over = !is_more || (self.served < SERVED_MAX && self.writer.is_none());
        self.writer.is_some()
    }
}

impl<W, C, O> Drop for Leaving<'_, W, C, O> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.writer = None;
        fence(Ordering::SeqCst);
        if self.combiner.queued.load(Ordering::Relaxed) > 0
            && let Some(first) = lock(&self.combiner.queue).front()
        {
            first.thread.unpark();
        }
    }
}

/// What these locks guard is whole between statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
