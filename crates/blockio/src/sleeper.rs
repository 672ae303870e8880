//! A thread that sleeps either by parking or in a ring, and is woken in the same way. Parking is cheaper for both
//! threads, but only the ring reports completed writes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

/// The thread is awake, and there was no wake-up since.
const AWAKE: u8 = 0;
/// The thread was woken, or must not fall asleep.
const WOKEN: u8 = 1;
/// It parks.
const PARKED: u8 = 2;
/// It waits for the event counter.
const IN_RING: u8 = 3;

/// The state of one thread's sleep. A wake-up is one atomic exchange, and a system call only if the thread is asleep.
#[derive(Debug)]
pub(crate) struct Sleeper {
    state: AtomicU8,
    thread: Thread,
    event: OwnedFd,
}

impl Sleeper {
    /// A sleeper for this thread, with the event counter that its ring reads.
    pub fn new(event: OwnedFd) -> Sleeper {
        Sleeper { state: AtomicU8::new(AWAKE), thread: thread::current(), event }
    }

    /// The counter that the ring reads.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Ends the current sleep, or the next one if there is none.
    pub fn wake(&self) {
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            PARKED => self.thread.unpark(),
            IN_RING => self.wake_ring(),
            _ => {}
        }
    }

    /// Increments the event counter, whether the thread sleeps or not.
    pub fn wake_ring(&self) {
        // This only fails when the counter is about to overflow, and then the reader is awake.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Parks until woken or until the time; may return early.
    pub fn park(&self, until: Option<Instant>) {
        if self.falls_asleep(PARKED) {
            crate::queue::park(until);
        }
        self.awake();
    }

    /// Sleeps in the ring by calling `enter`, unless it was woken since the last sleep. Returns the result of `enter`.
    pub fn in_ring<T>(&self, enter: impl FnOnce() -> T) -> Option<T> {
        let entered = self.falls_asleep(IN_RING).then(enter);
        self.awake();
        entered
    }

    fn falls_asleep(&self, state: u8) -> bool {
        self.state.compare_exchange(AWAKE, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Makes everything visible that the waking thread wrote before.
    fn awake(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use rustix::event::{EventfdFlags, eventfd};

    /// However the thread sleeps and whenever it is woken, a lost wake-up would make this test hang.
    #[test]
    fn every_wake_up_ends_a_sleep() {
        const ROUNDS: u64 = 2000;
        let (send, receive) = std::sync::mpsc::channel();
        let (signalled, observed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let sleeping = std::thread::spawn({
            let (signalled, observed) = (Arc::clone(&signalled), Arc::clone(&observed));
            move || {
                let sleeper = Arc::new(Sleeper::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
                send.send(Arc::clone(&sleeper)).unwrap();
                for round in 1..=ROUNDS {
                    while signalled.load(Ordering::Relaxed) < round {
                        if round % 2 == 0 {
                            sleeper.park(None);
                        } else {
                            // As the ring does.
                            sleeper.in_ring(|| assert_eq!(rustix::io::read(sleeper.event(), &mut [0u8; 8][..]), Ok(8)));
                        }
                    }
                    observed.store(round, Ordering::Relaxed);
                }
            }
        });
        let sleeper = receive.recv().unwrap();
        for round in 1..=ROUNDS {
            signalled.store(round, Ordering::Relaxed);
            sleeper.wake();
            while observed.load(Ordering::Relaxed) < round {
                std::thread::yield_now();
            }
        }
        sleeping.join().unwrap();
    }
}
