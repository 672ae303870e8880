//! Waiting: for the device, or for room.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::LogError;
use crate::hold::{self, release_held_wake_ups};
use crate::shared::Shared;

/// Resolves when a record is on the device, or can no longer get there.
#[must_use = "a record is acknowledged only after its future has resolved"]
pub struct Durable {
    shared: Arc<Shared>,
    position: u64,
    key: Option<u64>,
    /// Whoever polls it wants to be woken by itself, not to be told what it waits for.
    registers: bool,
}

impl Durable {
    pub(crate) fn new(shared: Arc<Shared>, position: u64) -> Durable {
        Durable { shared, position, key: None, registers: false }
    }

    /// Wakes who polls it, whatever [`HeldWakeUps`](crate::HeldWakeUps) say.
    pub(crate) fn registered(shared: Arc<Shared>, position: u64) -> Durable {
        Durable { registers: true, ..Durable::new(shared, position) }
    }

    /// Waits on this thread.
    pub fn wait(mut self) -> Result<(), LogError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => {
                    release_held_wake_ups();
                    thread::park();
                }
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
            let waker = context.waker();
            let registered = !this.registers && hold::notes(&this.shared, this.position, waker)
                || waiters.register(this.position, &mut this.key, waker);
            // A failure is announced by waking all who are registered: look for one that came before we were.
            if registered {
                return match this.shared.closed() {
                    None => Poll::Pending,
                    Some(reason) => Poll::Ready(Err(reason)),
                };
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// News of room: counted, so that whoever looks, fails and then waits misses nothing.
#[derive(Debug, Default)]
pub(crate) struct Room {
    epoch: AtomicU64,
    waiting: Mutex<RoomWaiters>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RoomWaiters {
    wakers: Vec<Waker>,
    /// Threads that wait for `changed`: telling nobody costs a system call too, and there is news after every device write.
    blocked: usize,
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
        if waiting.blocked > 0 {
            self.changed.notify_all();
        }
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits until there is news since `epoch`, or the deadline; `false` once that has passed, whatever the news.
    pub fn wait(&self, epoch: u64, deadline: Instant) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if self.epoch() != epoch {
                return true;
            }
            waiting.blocked += 1;
            (waiting, _) = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner);
            waiting.blocked -= 1;
        }
    }
}

/// Resolves when there may be room for a record that was refused for want of it.
#[derive(Debug)]
#[must_use = "it only waits when polled"]
pub struct RoomChange {
    shared: Arc<Shared>,
    epoch: u64,
    waiting_since: Option<Instant>,
}

impl RoomChange {
    pub(crate) fn new(shared: Arc<Shared>) -> RoomChange {
        let epoch = shared.room.epoch();
        RoomChange { shared, epoch, waiting_since: None }
    }
}

impl Future for RoomChange {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let room = &this.shared.room;
        let mut waiting = room.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if room.epoch() != this.epoch {
            return Poll::Ready(());
        }
        this.waiting_since.get_or_insert_with(Instant::now);
        waiting.wakers.push(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for RoomChange {
    /// Whether it ended with room or was given up: it was waited for.
    fn drop(&mut self) {
        if let Some(since) = self.waiting_since {
            self.shared.counters.allocation_waits.add(since.elapsed());
        }
    }
}
