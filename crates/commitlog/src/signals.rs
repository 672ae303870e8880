//! The signals to the writer thread.

use std::sync::OnceLock;

use crate::primitive::{AtomicBool, AtomicU64, Ordering, QueueWaker, fence};

/// The signals to the writer thread. [`appended`](Signals::appended) describes the hand-off between it and appenders.
#[derive(Debug)]
pub(crate) struct Signals {
    /// An append that reaches this ring position wakes the writer; with `u64::MAX` none does.
    wake_at: AtomicU64,
    /// A thread waits for room in the ring, so the writer must not wait for more records.
    pub urgent: AtomicBool,
    /// A thread waits for the next segment.
    segment_wanted: AtomicBool,
    /// There will be no more appends; the writer writes what there is and exits.
    pub stopping: AtomicBool,
    /// A ring position that has to become durable now, whatever the mode.
    pub sync_wanted: AtomicU64,
    waker: OnceLock<QueueWaker>,
}

impl Signals {
    pub fn new() -> Signals {
        Signals {
            wake_at: AtomicU64::new(u64::MAX),
            urgent: AtomicBool::new(false),
            segment_wanted: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            sync_wanted: AtomicU64::new(0),
            waker: OnceLock::new(),
        }
    }

    /// Sets what wakes the writer; called once, before anything is appended.
    pub fn woken_by(&self, waker: QueueWaker) {
        let first = self.waker.set(waker).is_ok();
        debug_assert!(first, "the writer starts once");
    }

    /// Wakes the writer, or makes its next sleep end at once.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Called after an append that ends at a ring position: wakes the writer if that is what it sleeps for. Of several
    /// threads that find it asleep, one makes the system call.
    pub fn appended(&self, end: u64) {
        // Pairs with the fence in `fall_asleep`: either the writer sees this reservation, or this thread sees what it
        // waits for.
        fence(Ordering::SeqCst);
        let wake_at = self.wake_at.load(Ordering::Relaxed);
        let exchange =
            || self.wake_at.compare_exchange(wake_at, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if wake_at <= end && exchange() {
            self.wake();
        }
    }

    /// Puts the writer to sleep until an append reaches `wake_at`. Returns `false` if `ready` says that one already
    /// has.
    pub fn fall_asleep(&self, wake_at: u64, ready: impl FnOnce() -> bool) -> bool {
        self.wake_at.store(wake_at, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !ready()
    }

    /// Called for the sleeping writer by a thread that writes in its place: the writer sleeps on until an append
    /// reaches `wake_at`. It is woken now if `ready` says that one already has.
    pub fn sleep_on(&self, wake_at: u64, ready: impl FnOnce() -> bool) {
        if !self.fall_asleep(wake_at, ready) {
            self.wake();
        }
    }

    /// The writer is awake, so appends need not signal it.
    pub fn awake(&self) {
        self.wake_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Signals that a thread waits for room in memory.
    pub fn hurry(&self) {
        self.urgent.store(true, Ordering::Release);
        self.wake();
    }

    /// Signals that a thread waits for the next segment.
    pub fn want_segment(&self) {
        self.segment_wanted.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether a thread waits for the next segment; clears the signal.
    pub fn is_segment_wanted(&self) -> bool {
        self.segment_wanted.load(Ordering::Acquire) && self.segment_wanted.swap(false, Ordering::AcqRel)
    }
}
