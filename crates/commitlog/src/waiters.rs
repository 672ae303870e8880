//! The threads and tasks that wait for the device.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::primitive::{AtomicU64, Mutex, MutexGuard, OnceLock, Ordering};

/// Wakers by the ring position that they wait for. The durable horizon is stored beside them, so that most look-ups
/// take no lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    horizon: AtomicU64,
    list: Mutex<List>,
    /// The reason why nothing more will reach the device, if the log is closed.
    closed: OnceLock<Arc<str>>,
}

#[derive(Debug, Default)]
struct List {
    next_key: u64,
    /// In order of positions, which is nearly the order of arrival.
    waiting: VecDeque<Waiting>,
    /// The written ranges after the horizon, in the mode that acknowledges records independently.
    written: Vec<Range<u64>>,
    /// The time of a recent change of this list. The clock is not read for each change.
    clock: Option<Instant>,
    waits: u64,
    waited: Duration,
}

/// The event that a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// The record that ends at this ring position.
    Record(u64),
    /// All records that end at or before it; in `each` that may be later.
    AllUpTo(u64),
}

impl Awaits {
    pub fn position(self) -> u64 {
        match self {
            Awaits::Record(position) | Awaits::AllUpTo(position) => position,
        }
    }

    /// Whether this is a record in that part of the log.
    fn is_in(self, range: &Range<u64>) -> bool {
        matches!(self, Awaits::Record(end) if range.start < end && end <= range.end)
    }
}

#[derive(Debug)]
struct Waiting {
    awaits: Awaits,
    key: u64,
    since: Instant,
    waker: Waker,
}

impl Waiters {
    /// Everything before this ring position is on the device.
    pub fn horizon(&self) -> u64 {
        self.horizon.load(Ordering::Acquire)
    }

    /// The number of waiters.
    pub fn count(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// The number of finished waits and their total duration. Waits that begin between two device writes count from the
    /// first of them.
    pub fn waits(&self) -> (u64, Duration) {
        let list = self.lock();
        (list.waits, list.waited)
    }

    /// Moves the horizon and wakes the waiters that it passes. `ready` is scratch space, left empty.
    pub fn advance(&self, horizon: u64, ready: &mut Vec<Waker>) {
        self.horizon.store(horizon, Ordering::Release);
        let mut list = self.lock();
        list.written.retain(|range| range.end > horizon);
        debug_assert!(list.written.iter().all(|range| range.start < range.end), "written ranges are not empty");
        list.take(0..horizon, |_| true, ready);
        drop(list);
        wake(ready);
    }

    /// Wakes the waiters for records in the range, wherever the horizon is.
    pub fn written(&self, range: Range<u64>, ready: &mut Vec<Waker>) {
        debug_assert!(range.start < range.end, "a frame was written");
        let mut list = self.lock();
        list.take(range.clone(), |awaits| awaits.is_in(&range), ready);
        list.written.push(range);
        drop(list);
        wake(ready);
    }

    /// Wakes all waiters because nothing more will reach the device. The first reason stays; returns whether this call
    /// set it.
    pub fn close(&self, reason: &str) -> bool {
        let first = self.closed.set(reason.into()).is_ok();
        let mut ready = Vec::new();
        self.lock().take(0..u64::MAX, |_| true, &mut ready);
        wake(&mut ready);
        first
    }

    /// The reason why nothing more will reach the device, if the log is closed.
    pub fn closed(&self) -> Option<Arc<str>> {
        self.closed.get().cloned()
    }

    /// Whether what is waited for is on the device, or never will be. Otherwise registers the waker, unless
    /// `record_wait` says that the polling thread collects the position itself.
    pub fn poll(
        &self,
        awaits: Awaits,
        key: &mut Option<u64>,
        waker: &Waker,
        record_wait: impl FnOnce() -> bool,
    ) -> Poll<Result<(), Arc<str>>> {
        if self.horizon() >= awaits.position() || !record_wait() && !self.register(awaits, key, waker) {
            return Poll::Ready(Ok(()));
        }
        // A failure wakes all registered waiters, so look for one that came before this registration.
        self.closed().map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
    }

    /// Registers a waker, or renews it under its key. Returns `false` if what it waits for has reached the device
    /// meanwhile.
    pub fn register(&self, awaits: Awaits, key: &mut Option<u64>, waker: &Waker) -> bool {
        let mut list = self.lock();
        // Checked under the lock: the writer moves the horizon first and takes the lock afterwards.
        if self.horizon() >= awaits.position() || list.written.iter().any(|range| awaits.is_in(range)) {
            return false;
        }
        match key.and_then(|key| list.find(awaits.position(), key)) {
            Some(waiting) => waiting.waker.clone_from(waker),
            None => *key = Some(list.add(awaits, waker.clone())),
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl List {
    fn find(&mut self, position: u64, key: u64) -> Option<&mut Waiting> {
        debug_assert!(key < self.next_key, "keys are given out in order");
        let first = self.waiting.partition_point(|waiting| waiting.awaits.position() < position);
        let equal = self.waiting.range_mut(first..).take_while(|waiting| waiting.awaits.position() == position);
        equal.into_iter().find(|waiting| waiting.key == key)
    }

    /// Whether the waiter at an index stands between its neighbours in order of positions; for assertions.
    fn is_in_order_at(&self, at: usize) -> bool {
        let around = at.saturating_sub(1)..self.waiting.len().min(at + 2);
        self.waiting.range(around).is_sorted_by_key(|waiting| waiting.awaits.position())
    }

    /// Returns the new waiter's key.
    fn add(&mut self, awaits: Awaits, waker: Waker) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        let since = match self.clock {
            Some(clock) if !self.waiting.is_empty() => clock,
            _ => *self.clock.insert(Instant::now()),
        };
        let is_before = |waiting: &Waiting| waiting.awaits.position() <= awaits.position();
        let at = self.waiting.iter().rposition(is_before).map_or(0, |before| before + 1);
        self.waiting.insert(at, Waiting { awaits, key, since, waker });
        debug_assert!(self.is_in_order_at(at), "waiters are in order of positions");
        key
    }

    /// Moves the wakers of waiters for a position in the range to `ready`, if `have` says that their wait is over.
    fn take(&mut self, range: Range<u64>, have: impl Fn(Awaits) -> bool, ready: &mut Vec<Waker>) {
        let first = self.waiting.partition_point(|waiting| waiting.awaits.position() <= range.start);
        let end = self.waiting.partition_point(|waiting| waiting.awaits.position() <= range.end);
        if first == end {
            return;
        }
        debug_assert!(first < end && end <= self.waiting.len());
        let now = Instant::now();
        self.clock = Some(now);
        let mut left = Vec::new();
        for waiting in self.waiting.drain(first..end) {
            if !have(waiting.awaits) {
                left.push(waiting);
                continue;
            }
            self.waits += 1;
            self.waited += now.saturating_duration_since(waiting.since);
            ready.push(waiting.waker);
        }
        left.into_iter().rev().for_each(|waiting| self.waiting.insert(first, waiting));
        debug_assert!(self.is_in_order_at(first), "those that stay are still in order");
    }
}

/// Wakes them all, without holding a lock, because that may take long.
fn wake(ready: &mut Vec<Waker>) {
    for waker in ready.drain(..) {
        waker.wake();
    }
}
