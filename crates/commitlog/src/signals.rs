//! How the writer thread is told things.

use std::sync::OnceLock;

use crate::primitive::{AtomicBool, AtomicU64, Ordering, QueueWaker, fence};

/// How the writer thread is told things. See [`appended`](Signals::appended) for the hand-off between it and those who
/// append.
#[derive(Debug)]
pub(crate) struct Signals {
    /// An append that reaches this ring position wakes the writer; `u64::MAX`: none does.
    wake_at: AtomicU64,
    /// Somebody waits for room in the ring: do not wait for company.
    pub urgent: AtomicBool,
    /// Somebody waits for a segment to go on in.
    segment_wanted: AtomicBool,
    /// No more appends; write what there is and exit.
    pub stopping: AtomicBool,
    /// A ring position that somebody wants durable now, whatever the mode.
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

    /// What wakes the writer; set once, before anything is appended.
    pub fn woken_by(&self, waker: QueueWaker) {
        let _ = self.waker.set(waker);
    }

    /// Wakes the writer, or has its next sleep end at once.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// After an append that ends at a ring position: wakes the writer if that is what it sleeps for. One of those who
    /// find it asleep pays for waking it.
    pub fn appended(&self, end: u64) {
        // Pairs with the fence in `fall_asleep`: either the writer sees our reservation, or we see what it waits for.
        fence(Ordering::SeqCst);
        let wake_at = self.wake_at.load(Ordering::Relaxed);
        let exchange =
            || self.wake_at.compare_exchange(wake_at, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if wake_at <= end && exchange() {
            self.wake();
        }
    }

    /// The writer goes to sleep until something is appended that reaches `wake_at`; `false` if `ready` says that it is
    /// there.
    pub fn fall_asleep(&self, wake_at: u64, ready: impl FnOnce() -> bool) -> bool {
        self.wake_at.store(wake_at, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !ready()
    }

    /// For the writer, which sleeps, by whoever writes in its place: it sleeps on until something is appended that
    /// reaches `wake_at`. It is woken if `ready` says that it is there.
    pub fn sleep_on(&self, wake_at: u64, ready: impl FnOnce() -> bool) {
        if !self.fall_asleep(wake_at, ready) {
            self.wake();
        }
    }

    /// The writer is awake: appends need not tell it.
    pub fn awake(&self) {
        self.wake_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Somebody waits for room in memory.
    pub fn hurry(&self) {
        self.urgent.store(true, Ordering::Release);
        self.wake();
    }

    /// Somebody waits for a segment to go on in.
    pub fn want_segment(&self) {
        self.segment_wanted.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether somebody does; forgets it.
    pub fn is_segment_wanted(&self) -> bool {
        self.segment_wanted.load(Ordering::Acquire) && self.segment_wanted.swap(false, Ordering::AcqRel)
    }
}
