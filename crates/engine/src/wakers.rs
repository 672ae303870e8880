//! Waiting for resources that others return.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use crate::lock::lock;

/// The wakers of waiting tasks. A task that waits adds its waker and then checks again whether it must wait. A task
/// that returns a resource wakes all tasks after that. So no task misses it. Waking costs one load if no task waits.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    waiting: Mutex<Vec<Waker>>,
    /// The number of wakers, which changes under the lock.
    count: AtomicUsize,
}

impl Wakers {
    /// Wakes `waker` once, at the next `wake_all`.
    pub fn add(&self, waker: &Waker) {
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Wakes all wakers that were added since the last call.
    pub fn wake_all(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let waiting = {
            let mut waiting = lock(&self.waiting);
            self.count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
