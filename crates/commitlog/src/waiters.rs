//! Those who wait for the device.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::primitive::{AtomicU64, Mutex, MutexGuard, OnceLock, Ordering};

/// Wakers by the ring position they wait for. The durable horizon itself lies beside, so that most look-ups take no lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    horizon: AtomicU64,
    list: Mutex<List>,
    /// Why nothing more will be on the device, if so.
    closed: OnceLock<Arc<str>>,
}

#[derive(Debug, Default)]
struct List {
    next_key: u64,
    /// In order of positions, which is nearly that of coming.
    waiting: VecDeque<Waiting>,
    /// What is written behind the horizon, where records are acknowledged by themselves.
    written: Vec<Range<u64>>,
    /// The time when waiters last came or went, as far as it is known without asking for every one of them.
    clock: Option<Instant>,
    waits: u64,
    waited: Duration,
}

#[derive(Debug)]
struct Waiting {
    position: u64,
    key: u64,
    since: Instant,
    waker: Waker,
}

impl Waiters {
    /// Everything before this ring position is on the device.
    pub fn horizon(&self) -> u64 {
        self.horizon.load(Ordering::Acquire)
    }

    /// How many wait.
    pub fn count(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// How many waits ended, and how long they were together. Those that begin between two device writes count from the first of them.
    pub fn waits(&self) -> (u64, Duration) {
        let list = self.lock();
        (list.waits, list.waited)
    }

    /// Moves the horizon and wakes those it passes. `ready` is scratch space, left empty.
    pub fn advance(&self, horizon: u64, ready: &mut Vec<Waker>) {
        self.horizon.store(horizon, Ordering::Release);
        let mut list = self.lock();
        list.written.retain(|range| range.end > horizon);
        list.take(0..horizon, ready);
        drop(list);
        wake(ready);
    }

    /// Those who wait for a position in the range have it, wherever the horizon is.
    pub fn written(&self, range: Range<u64>, ready: &mut Vec<Waker>) {
        let mut list = self.lock();
        list.take(range.clone(), ready);
        list.written.push(range);
        drop(list);
        wake(ready);
    }

    /// Nothing more will be on the device: everyone looks again. The first reason stays; answers whether this is it.
    pub fn close(&self, reason: &str) -> bool {
        let first = self.closed.set(reason.into()).is_ok();
        let mut ready = Vec::new();
        self.lock().take(0..u64::MAX, &mut ready);
        wake(&mut ready);
        first
    }

    /// Why nothing more will be on the device, if so.
    pub fn closed(&self) -> Option<Arc<str>> {
        self.closed.get().cloned()
    }

    /// Whether what ends at the position is on the device, or why it never will be. Else the waker is registered, unless `notes` says that
    /// whoever polls asks for the position himself.
    pub fn poll(
        &self,
        position: u64,
        key: &mut Option<u64>,
        waker: &Waker,
        notes: impl FnOnce() -> bool,
    ) -> Poll<Result<(), Arc<str>>> {
        if self.horizon() >= position || !notes() && !self.register(position, key, waker) {
            return Poll::Ready(Ok(()));
        }
        // A failure is announced by waking all who are registered: look for one that came before we were.
        self.closed().map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
    }

    /// Registers a waker, or renews it under its key. `false` if the horizon has passed meanwhile.
    pub fn register(&self, position: u64, key: &mut Option<u64>, waker: &Waker) -> bool {
        let mut list = self.lock();
        // Looked at under the lock: the writer moves the horizon first and takes the lock then.
        if self.horizon() >= position || list.written.iter().any(|range| ends_in(range, position)) {
            return false;
        }
        match key.and_then(|key| list.find(position, key)) {
            Some(waiting) => waiting.waker.clone_from(waker),
            None => *key = Some(list.add(position, waker.clone())),
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl List {
    fn find(&mut self, position: u64, key: u64) -> Option<&mut Waiting> {
        let first = self.waiting.partition_point(|waiting| waiting.position < position);
        let equal = self.waiting.range_mut(first..).take_while(|waiting| waiting.position == position);
        equal.into_iter().find(|waiting| waiting.key == key)
    }

    /// Answers the new waiter's key.
    fn add(&mut self, position: u64, waker: Waker) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        let since = match self.clock {
            Some(clock) if !self.waiting.is_empty() => clock,
            _ => *self.clock.insert(Instant::now()),
        };
        let at = self.waiting.iter().rposition(|waiting| waiting.position <= position).map_or(0, |before| before + 1);
        self.waiting.insert(at, Waiting { position, key, since, waker });
        key
    }

    /// Moves the wakers of those who wait for a position in the range.
    fn take(&mut self, range: Range<u64>, ready: &mut Vec<Waker>) {
        let first = self.waiting.partition_point(|waiting| waiting.position <= range.start);
        let end = self.waiting.partition_point(|waiting| waiting.position <= range.end);
        if first == end {
            return;
        }
        let now = Instant::now();
        self.clock = Some(now);
        self.waits += (end - first) as u64;
        for waiting in self.waiting.drain(first..end) {
            self.waited += now.saturating_duration_since(waiting.since);
            ready.push(waiting.waker);
        }
    }
}

/// Whether a record that ends at the position lies in the range.
fn ends_in(range: &Range<u64>, position: u64) -> bool {
    range.start < position && position <= range.end
}

/// Wakes them all; with no lock held, because it may take long.
fn wake(ready: &mut Vec<Waker>) {
    for waker in ready.drain(..) {
        waker.wake();
    }
}
