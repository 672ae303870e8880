//! Notification of room in the log. `tests/model.rs` checks it in every order of events.

use std::task::Waker;
use std::time::Instant;

use crate::primitive::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// Notification of room. Announcements are counted, so that a thread which looks for room, fails and then waits does
/// not miss one.
#[derive(Debug, Default)]
pub(crate) struct SpaceSignal {
    epoch: AtomicU64,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// The number of threads blocked on `changed`. Notifying costs a system call even when none is, and there is an
    /// announcement after every device write.
    blocked: usize,
}

impl SpaceSignal {
    /// The current count. Take it before looking for room.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Announces that there may be room now.
    pub fn announce(&self) {
        let mut waiting = self.lock();
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

    /// Waits until there is an announcement after `epoch`, or until the deadline. Returns `false` once the deadline has
    /// passed, in any case.
    pub fn wait(&self, epoch: u64, deadline: Instant) -> bool {
        let mut waiting = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if self.epoch() != epoch {
                return true;
            }
            waiting.blocked += 1;
            (waiting, _) = self.changed.wait_timeout(waiting, left).unwrap_or_else(|poisoned| poisoned.into_inner());
            debug_assert!(waiting.blocked > 0, "this thread counted itself");
            waiting.blocked -= 1;
        }
    }

    /// Whether there was an announcement after `epoch`. If not, the next one wakes the waker.
    pub fn is_announced_after(&self, epoch: u64, waker: &Waker) -> bool {
        let mut waiting = self.lock();
        let is_announced = self.epoch() != epoch;
        if !is_announced {
            waiting.wakers.push(waker.clone());
        }
        is_announced
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
