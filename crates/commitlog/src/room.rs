//! News of room in the log, for those who wait for it. `tests/model.rs` has them come in every order.

use std::task::Waker;
use std::time::Instant;

use crate::primitive::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// News of room: counted, so that whoever looks, fails and then waits misses nothing.
#[derive(Debug, Default)]
pub(crate) struct Room {
    epoch: AtomicU64,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// Threads that wait for `changed`: telling nobody costs a system call too, and there is news after every device
    /// write.
    blocked: usize,
}

impl Room {
    /// The count so far; take it before looking for room.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// There may be room now.
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

    /// Waits until there is news since `epoch`, or the deadline; `false` once that has passed, whatever the news.
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
            waiting.blocked -= 1;
        }
    }

    /// Whether there is news since `epoch`; if not, the next wakes the waker.
    pub fn has_news(&self, epoch: u64, waker: &Waker) -> bool {
        let mut waiting = self.lock();
        let has_news = self.epoch() != epoch;
        if !has_news {
            waiting.wakers.push(waker.clone());
        }
        has_news
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
