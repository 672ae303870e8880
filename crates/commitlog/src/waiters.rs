//! Those who wait for the device.

use std::ops::Range;
use std::task::Waker;

use crate::primitive::{AtomicU64, Mutex, MutexGuard, Ordering};

/// Wakers by the ring position they wait for. The durable horizon itself lies beside, so that most look-ups take no lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    horizon: AtomicU64,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next_key: u64,
    waiting: Vec<Waiting>,
    /// What is written behind the horizon, where records are acknowledged by themselves.
    written: Vec<Range<u64>>,
}

#[derive(Debug)]
struct Waiting {
    position: u64,
    key: u64,
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

    /// Wakes everyone, to look again (the log has failed).
    pub fn wake_all(&self) {
        let mut ready = Vec::new();
        self.lock().take(0..u64::MAX, &mut ready);
        wake(&mut ready);
    }

    /// Registers a waker, or renews it under its key. `false` if the horizon has passed meanwhile.
    pub fn register(&self, position: u64, key: &mut Option<u64>, waker: &Waker) -> bool {
        let mut list = self.lock();
        // Looked at under the lock: the writer moves the horizon first and takes the lock then.
        if self.horizon() >= position || list.written.iter().any(|range| ends_in(range, position)) {
            return false;
        }
        let known = key.and_then(|key| list.waiting.iter().position(|waiting| waiting.key == key));
        match known.and_then(|at| list.waiting.get_mut(at)) {
            Some(waiting) => waiting.waker.clone_from(waker),
            None => {
                let new_key = list.next_key;
                list.next_key += 1;
                list.waiting.push(Waiting { position, key: new_key, waker: waker.clone() });
                *key = Some(new_key);
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl List {
    /// Moves the wakers of those who wait for a position in the range.
    fn take(&mut self, range: Range<u64>, ready: &mut Vec<Waker>) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if ends_in(&range, waiting.position) {
                ready.push(self.waiting.swap_remove(at).waker);
            } else {
                at += 1;
            }
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
