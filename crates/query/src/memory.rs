//! Memory that requests hold, counted for the node and for each client's address.
//!
//! A [`MemoryBudget`] has a limit and counts the bytes that are taken of it. The budget of an address is a part of the
//! node's budget: bytes taken of the part are taken of the whole too, and [`Lease::try_grow`] exceeds neither. A
//! [`Lease`] is what one holder has taken. It gives everything back when it is dropped.
//!
//! Each budget has a queue, in which holders wait in the order of their arrival. A holder that gets memory or gives up
//! wakes the next one. Holders take memory in large steps, so that many requests touch the shared counters once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long a holder that may exceed the limits waits for others to leave half of them.
const HALF_WAIT: Duration = Duration::from_millis(500);
/// How often it checks. There is one such holder at most.
const HALF_POLL: Duration = Duration::from_millis(1);
/// Work in the background waits for memory if it takes at least the limit divided by this.
const CONSIDERABLE_PART: usize = 16;

/// A limit on memory, and the count of the bytes taken of it.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    taken_bytes: AtomicUsize,
    /// The budget that this one is a part of.
    whole: Option<Arc<MemoryBudget>>,
    queue: Mutex<Queue>,
    /// The length of the queue. It is read without the lock whenever memory is given back, and is mostly 0.
    waiting: AtomicUsize,
    /// Of a whole: the holder that may exceed the limits; 0 if none does.
    overdrawer: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    last_id: u64,
    wakers: VecDeque<(u64, Waker)>,
}

impl MemoryBudget {
    /// A budget that is not a part of another.
    pub fn new(limit_bytes: usize) -> Arc<MemoryBudget> {
        MemoryBudget::with(limit_bytes, None)
    }

    /// A budget that is a part of another.
    pub fn part_of(whole: &Arc<MemoryBudget>, limit_bytes: usize) -> Arc<MemoryBudget> {
        MemoryBudget::with(limit_bytes, Some(whole.clone()))
    }

    fn with(limit_bytes: usize, whole: Option<Arc<MemoryBudget>>) -> Arc<MemoryBudget> {
        let [taken_bytes, waiting, overdrawer] = [const { AtomicUsize::new(0) }; 3];
        Arc::new(MemoryBudget { limit_bytes, taken_bytes, whole, queue: Mutex::default(), waiting, overdrawer })
    }

    /// The bytes that holders have taken.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::SeqCst)
    }

    /// The limit.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Whether a holder waits for this budget or for the whole, or less than an eighth of one of them is left.
    pub fn is_short(&self) -> bool {
        let is_short = self.waiting.load(Ordering::Relaxed) > 0
            || self.taken_bytes() > self.limit_bytes - self.limit_bytes / 8
            || self.limit_bytes == 0;
        is_short || self.whole.as_ref().is_some_and(|whole| whole.is_short())
    }

    /// Takes this many bytes of this budget and of the whole. The error is the budget that has too few; nothing is then
    /// taken.
    fn try_take(&self, bytes: usize) -> Result<(), &MemoryBudget> {
        let grown = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.limit_bytes);
        self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).map_err(|_| self)?;
        let Some(whole) = &self.whole else { return Ok(()) };
        whole.try_take(bytes).inspect_err(|_| {
            self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Takes this many bytes even if that exceeds the limits.
    fn take(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.whole.iter().for_each(|whole| whole.take(bytes));
    }

    /// Takes this many bytes. If there are too few, one holder at a time may exceed the limits, until
    /// [`MemoryBudget::end_overdraft`]. That is allowed once all holders but this one, which has taken `own_bytes`,
    /// leave half of the limits, since an earlier holder's answer may be waiting for its client. The thread waits for
    /// that up to [`HALF_WAIT`]; meanwhile others that need too much fail, and so make room. Returns whether the bytes
    /// are taken.
    pub(crate) fn take_or_overdraw(&self, bytes: usize, holder: usize, own_bytes: usize) -> bool {
        if self.try_take(bytes).is_ok() {
            return true;
        }
        let overdrawer = &self.whole().overdrawer;
        match overdrawer.compare_exchange(0, holder, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {}
            Err(other) if other == holder => {
                self.take(bytes);
                return true;
            }
            Err(_) => return false,
        }
        let end = Instant::now() + HALF_WAIT;
        while !self.others_leave_half(own_bytes) || !self.whole().others_leave_half(own_bytes) {
            if Instant::now() >= end {
                self.end_overdraft(holder);
                return false;
            }
            std::thread::sleep(HALF_POLL);
        }
        self.take(bytes);
        true
    }

    /// Takes this many bytes in any case. If there are too few, and it is a considerable part of the limit, the thread
    /// waits up to [`HALF_WAIT`] for others to leave half of the limit. Smaller steps do not wait, since there may be
    /// many of them.
    pub(crate) fn take_after_a_wait(&self, bytes: usize) {
        let end = Instant::now() + HALF_WAIT;
        while self.try_take(bytes).is_err() {
            let is_small = bytes < self.limit_bytes / CONSIDERABLE_PART;
            if is_small || self.others_leave_half(0) || Instant::now() >= end {
                return self.take(bytes);
            }
            std::thread::sleep(HALF_POLL);
        }
    }

    /// Ends the holder's right to exceed the limits, if it has it.
    pub(crate) fn end_overdraft(&self, holder: usize) {
        let _ = self.whole().overdrawer.compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether all holders but one, which has taken `own_bytes`, leave half of the limit.
    fn others_leave_half(&self, own_bytes: usize) -> bool {
        self.taken_bytes().saturating_sub(own_bytes) <= self.limit_bytes / 2
    }

    fn whole(&self) -> &MemoryBudget {
        self.whole.as_ref().map_or(self, |whole| whole.whole())
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        // Sequentially consistent, like `enqueue` and the check of the counter after it: one of the two sees the other.
        let before = self.taken_bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "{bytes} bytes are given back, and {before} are taken");
        self.whole.iter().for_each(|whole| whole.give_back(bytes));
        self.wake_next();
    }

    /// Wakes the holder that has waited longest for this budget.
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

    /// Leaves the queue. A holder that was woken already wakes the next one instead.
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

/// The bytes that one holder has taken from a budget.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<MemoryBudget>,
    bytes: usize,
    /// Its place in the queue of a budget: this one, or the whole.
    waits: Option<(bool, u64)>,
}

impl Lease {
    /// An empty lease.
    pub fn new(budget: Arc<MemoryBudget>) -> Lease {
        Lease { budget, bytes: 0, waits: None }
    }

    /// The bytes taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The budget that it takes from.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Grows the lease to this many bytes if the limits allow it. Returns whether they do.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.bytes);
        let fits = missing == 0 || self.budget.try_take(missing).is_ok();
        if fits {
            self.bytes = self.bytes.max(bytes);
        }
        fits
    }

    /// Grows the lease to this many bytes. Where the limits do not allow it, one holder at a time may exceed them
    /// ([`MemoryBudget::take_or_overdraw`]); it has taken `other_bytes` besides the lease. Returns whether it grew.
    pub(crate) fn grow_or_overdraw(&mut self, bytes: usize, holder: usize, other_bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.bytes);
        let is_taken = missing == 0 || self.budget.take_or_overdraw(missing, holder, self.bytes + other_bytes);
        if is_taken {
            self.bytes = self.bytes.max(bytes);
        }
        is_taken
    }

    /// Grows the lease to this many bytes even if that exceeds the limits, because the memory is in use already.
    pub fn grow(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.bytes);
        if missing > 0 {
            self.budget.take(missing);
            self.bytes = bytes;
        }
    }

    /// Like [`Lease::try_grow`]. If the limits do not allow it, the context is woken when they may.
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
            // Bytes that were released before this entered the queue woke no waiter.
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

    /// Shrinks the lease to this many bytes.
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
    fn waiters_are_woken_in_order_and_each_wakes_the_next() {
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
    fn a_woken_waiter_that_is_dropped_wakes_the_next() {
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
