//! Memory that requests hold, counted for the node and for each client's address.
//!
//! A [`MemoryBudget`] is a limit and what is taken of it. The budget of an address is a part of the node's: what is
//! taken of the part is taken of the whole too, and neither is exceeded by [`Lease::try_grow`]. A [`Lease`] is what one
//! holder has taken; it gives everything back when it is dropped, so that nothing is lost on any way out.
//!
//! Holders that may wait do so in a queue for each budget, first come first served: who gets memory, or gives up, wakes
//! the next. Holders take large steps, so that the shared counters are touched once for many requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A limit on memory, and what is taken of it.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    taken_bytes: AtomicUsize,
    /// The budget that this one is a part of.
    whole: Option<Arc<MemoryBudget>>,
    queue: Mutex<Queue>,
    /// The queue's length, for those that give back: mostly nobody waits.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    last_id: u64,
    wakers: VecDeque<(u64, Waker)>,
}

impl MemoryBudget {
    /// A budget of its own.
    pub fn new(limit_bytes: usize) -> Arc<MemoryBudget> {
        MemoryBudget::with(limit_bytes, None)
    }

    /// A budget that is a part of another.
    pub fn part_of(whole: &Arc<MemoryBudget>, limit_bytes: usize) -> Arc<MemoryBudget> {
        MemoryBudget::with(limit_bytes, Some(whole.clone()))
    }

    fn with(limit_bytes: usize, whole: Option<Arc<MemoryBudget>>) -> Arc<MemoryBudget> {
        let (taken_bytes, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(MemoryBudget { limit_bytes, taken_bytes, whole, queue: Mutex::default(), waiting })
    }

    /// What holders have taken.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::SeqCst)
    }

    /// The limit.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Whether somebody waits for this budget or the whole, or the last eighth of one is begun.
    pub fn is_short(&self) -> bool {
        let is_short = self.waiting.load(Ordering::Relaxed) > 0
            || self.taken_bytes() > self.limit_bytes - self.limit_bytes / 8
            || self.limit_bytes == 0;
        is_short || self.whole.as_ref().is_some_and(|whole| whole.is_short())
    }

    /// Takes so much of this and of the whole. The error is the budget that has too little; then nothing is taken.
    fn try_take(&self, bytes: usize) -> Result<(), &MemoryBudget> {
        let grown = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.limit_bytes);
        self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).map_err(|_| self)?;
        let Some(whole) = &self.whole else { return Ok(()) };
        whole.try_take(bytes).inspect_err(|_| {
            self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Takes so much whatever the limits say.
    fn take(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.whole.iter().for_each(|whole| whole.take(bytes));
    }

    fn give_back(&self, bytes: usize) {
        // Sequentially consistent, as `enqueue` and the look at the counter after it: one of the two sees the other.
        let before = self.taken_bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "{bytes} bytes are given back, and {before} are taken");
        self.whole.iter().for_each(|whole| whole.give_back(bytes));
        self.wake_next();
    }

    /// Wakes who waits longest, of this budget only.
    fn wake_next(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut queue = self.lock();
        let next = queue.wakers.pop_front();
        self.waiting.store(queue.wakers.len(), Ordering::SeqCst);
        drop(queue);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue, or renews the waker of a place in it.
    fn enqueue(&self, place: Option<u64>, waker: &Waker) -> u64 {
        let mut queue = self.lock();
        let known = queue.wakers.iter_mut().find(|(id, _)| Some(*id) == place);
        let id = match known {
            Some((id, known)) => {
                known.clone_from(waker);
                *id
            }
            None => {
                queue.last_id += 1;
                let id = queue.last_id;
                queue.wakers.push_back((id, waker.clone()));
                id
            }
        };
        self.waiting.store(queue.wakers.len(), Ordering::SeqCst);
        id
    }

    /// Leaves the queue. Who was woken in vain wakes the next instead.
    fn leave(&self, id: u64) {
        let mut queue = self.lock();
        let place = queue.wakers.iter().position(|(known, _)| *known == id);
        place.map(|place| queue.wakers.remove(place));
        self.waiting.store(queue.wakers.len(), Ordering::SeqCst);
        drop(queue);
        if place.is_none() {
            self.wake_next();
        }
    }
}

/// What one holder has taken of a budget.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<MemoryBudget>,
    bytes: usize,
    /// Its place in the queue of a budget: this one, or the whole.
    waits: Option<(bool, u64)>,
}

impl Lease {
    /// A lease of nothing yet.
    pub fn new(budget: Arc<MemoryBudget>) -> Lease {
        Lease { budget, bytes: 0, waits: None }
    }

    /// What it has taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The budget that it takes from.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Takes what is missing to so many bytes, if the limits allow it; says whether they do.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.bytes);
        let fits = missing == 0 || self.budget.try_take(missing).is_ok();
        if fits {
            self.bytes = self.bytes.max(bytes);
        }
        fits
    }

    /// Takes what is missing to so many bytes whatever the limits say: the memory is used already.
    pub fn grow(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.bytes);
        if missing > 0 {
            self.budget.take(missing);
            self.bytes = bytes;
        }
    }

    /// As [`Lease::try_grow`]; where it does not fit the context is woken when it may.
    pub fn poll_grow(&mut self, bytes: usize, cx: &Context<'_>) -> Poll<()> {
        let missing = bytes.saturating_sub(self.bytes);
        if missing == 0 {
            self.stop_waiting();
            return Poll::Ready(());
        }
        loop {
            let budget = self.budget.clone();
            let Err(short) = budget.try_take(missing) else {
                self.bytes = bytes;
                self.stop_waiting();
                return Poll::Ready(());
            };
            let of_whole = !std::ptr::eq(short, &*budget);
            let place = match self.waits {
                Some((waits_for_whole, place)) if waits_for_whole == of_whole => Some(place),
                _ => {
                    self.stop_waiting();
                    None
                }
            };
            self.waits = Some((of_whole, short.enqueue(place, cx.waker())));
            // What was given back before the place in the queue was taken woke nobody.
            if short.taken_bytes().saturating_add(missing) > short.limit_bytes {
                return Poll::Pending;
            }
        }
    }

    /// Gives up a place in the queue, if it has one.
    pub fn stop_waiting(&mut self) {
        let Some((of_whole, place)) = self.waits.take() else { return };
        match &self.budget.whole {
            Some(whole) if of_whole => whole.leave(place),
            _ => self.budget.leave(place),
        }
    }

    /// Gives back what is more than so many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.budget.give_back(self.bytes - bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop_waiting();
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A lease and how often it was woken.
    fn waiting(budget: &Arc<MemoryBudget>, bytes: usize) -> (Lease, Arc<Woken>) {
        let (mut lease, woken) = (Lease::new(budget.clone()), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        assert!(lease.poll_grow(bytes, &Context::from_waker(&waker)).is_pending());
        (lease, woken)
    }

    fn count(woken: &Woken) -> u64 {
        woken.0.load(Ordering::SeqCst)
    }

    #[test]
    fn a_part_is_taken_of_the_whole_too_and_neither_is_exceeded() {
        let node = MemoryBudget::new(100);
        let (one, other) = (MemoryBudget::part_of(&node, 80), MemoryBudget::part_of(&node, 80));
        let (mut first, mut second) = (Lease::new(one.clone()), Lease::new(other.clone()));
        assert!(!first.try_grow(81));
        assert!(first.try_grow(70));
        assert!(!second.try_grow(31), "the whole has 30 left");
        assert_eq!((one.taken_bytes(), other.taken_bytes(), node.taken_bytes()), (70, 0, 70));
        assert!(second.try_grow(30));
        assert!(node.is_short() && other.is_short());
        second.grow(50);
        assert_eq!(node.taken_bytes(), 120, "what is used already is counted");
        drop(first);
        drop(second);
        assert_eq!((one.taken_bytes(), other.taken_bytes(), node.taken_bytes()), (0, 0, 0));
        assert!(!node.is_short());
    }

    #[test]
    fn who_waits_is_woken_in_turn_and_wakes_the_next() {
        let budget = MemoryBudget::new(10);
        let mut holder = Lease::new(budget.clone());
        assert!(holder.try_grow(10));
        let (mut first, first_woken) = waiting(&budget, 4);
        let (_second, second_woken) = waiting(&budget, 4);
        holder.shrink(0);
        assert_eq!((count(&first_woken), count(&second_woken)), (1, 0));
        assert!(first.poll_grow(4, &Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(count(&second_woken), 1);
    }

    #[test]
    fn who_is_woken_and_goes_away_wakes_the_next() {
        let node = MemoryBudget::new(10);
        let part = MemoryBudget::part_of(&node, 10);
        let mut holder = Lease::new(node.clone());
        assert!(holder.try_grow(10));
        let (first, first_woken) = waiting(&part, 1);
        let (_second, second_woken) = waiting(&part, 1);
        holder.shrink(0);
        assert_eq!((count(&first_woken), count(&second_woken)), (1, 0));
        drop(first);
        assert_eq!(count(&second_woken), 1);
    }

    #[test]
    fn all_threads_get_their_memory_in_the_end() {
        let budget = MemoryBudget::new(8);
        std::thread::scope(|scope| {
            for bytes in 1..=8 {
                let budget = &budget;
                scope.spawn(move || {
                    let thread = std::thread::current();
                    struct Unpark(std::thread::Thread);
                    impl Wake for Unpark {
                        fn wake(self: Arc<Self>) {
                            self.0.unpark();
                        }
                    }
                    let waker = Waker::from(Arc::new(Unpark(thread)));
                    for _ in 0..500 {
                        let mut lease = Lease::new(budget.clone());
                        while lease.poll_grow(bytes, &Context::from_waker(&waker)).is_pending() {
                            std::thread::park();
                        }
                        assert!(budget.taken_bytes() <= 8);
                    }
                });
            }
        });
        assert_eq!(budget.taken_bytes(), 0);
    }
}
