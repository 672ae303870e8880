//! Those who wait for something that others give back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use crate::store::lock;

/// Wakers of tasks. Whoever waits adds its own and then looks again whether it still has to wait; whoever gives back
/// does so, and then wakes all: so nobody is missed. Waking costs one load while nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    waiting: Mutex<Vec<Waker>>,
    /// How many of those there are; changed under the lock.
    count: AtomicUsize,
}

impl Wakers {
    /// Has `waker` woken the next time, once.
    pub fn add(&self, waker: &Waker) {
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Wakes all that were added since the last time.
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
