//! Those who wait: for the device, or for room.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::LogError;
use crate::shared::Shared;

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
    fn register(&self, position: u64, key: &mut Option<u64>, waker: &Waker) -> bool {
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
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Resolves when a record is on the device, or can no longer get there.
#[must_use = "a record is acknowledged only after its future has resolved"]
pub struct Durable {
    shared: Arc<Shared>,
    position: u64,
    key: Option<u64>,
    waiting_since: Option<Instant>,
}

impl Durable {
    pub(crate) fn new(shared: Arc<Shared>, position: u64) -> Durable {
        Durable { shared, position, key: None, waiting_since: None }
    }

    /// Waits on this thread.
    pub fn wait(mut self) -> Result<(), LogError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Durable {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let waiters = &this.shared.waiters;
        if waiters.horizon() < this.position {
            let registered = waiters.register(this.position, &mut this.key, context.waker());
            // A failure is announced by waking all who are registered: look for one that came before we were.
            if registered {
                this.waiting_since.get_or_insert_with(Instant::now);
                return match this.shared.closed() {
                    None => Poll::Pending,
                    Some(reason) => Poll::Ready(Err(reason)),
                };
            }
        }
        if let Some(since) = this.waiting_since.take() {
            this.shared.counters.commit_waits.add(since.elapsed());
        }
        Poll::Ready(Ok(()))
    }
}

/// News of room: counted, so that whoever looks, fails and then waits misses nothing.
#[derive(Debug, Default)]
pub(crate) struct Room {
    epoch: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    changed: Condvar,
}

impl Room {
    /// The count so far; take it before looking for room.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// There may be room now.
    pub fn announce(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        let wakers = std::mem::take(&mut *waiting);
        drop(waiting);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits until there is news since `epoch`, or the deadline; `false` if that came first.
    pub fn wait(&self, epoch: u64, deadline: Instant) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.epoch() == epoch {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (waiting, _) = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

/// Resolves when there may be room for a record that was refused for want of it.
#[derive(Debug)]
#[must_use = "it only waits when polled"]
pub struct RoomChange {
    shared: Arc<Shared>,
    epoch: u64,
}

impl RoomChange {
    pub(crate) fn new(shared: Arc<Shared>) -> RoomChange {
        let epoch = shared.room.epoch();
        RoomChange { shared, epoch }
    }
}

impl Future for RoomChange {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let room = &self.shared.room;
        let mut waiting = room.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if room.epoch() != self.epoch {
            return Poll::Ready(());
        }
        waiting.push(context.waker().clone());
        Poll::Pending
    }
}
