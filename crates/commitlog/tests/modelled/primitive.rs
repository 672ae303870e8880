//! A model checker's atomics, locks and threads, in place of those in `src/primitive.rs`.

#![allow(unused_imports, reason = "each model needs its part")]

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use loom::{hint, thread};

pub(crate) use crate::ring::{BlockRing, FilledBatch, Frame, Reservation, ReserveError, Seal, SealedBatch};

macro_rules! modelled_thread_local {
    (static $name:ident: $type:ty = const { $value:expr };) => {
        loom::thread_local! { static $name: $type = $value; }
    };
}
pub(crate) use modelled_thread_local as thread_local;

/// The standard one; its uses are steps of the model.
#[derive(Debug, Default)]
pub(crate) struct OnceLock<T>(std::sync::OnceLock<T>, AtomicBool);

impl<T> OnceLock<T> {
    pub fn set(&self, value: T) -> Result<(), T> {
        let set = self.0.set(value);
        self.1.store(true, Ordering::Release);
        set
    }

    pub fn get(&self) -> Option<&T> {
        // A thread that sees that the value was set, or that comes later in the model's order of steps, sees the value.
        if self.1.load(Ordering::Acquire) { self.0.get() } else { None }
    }
}

/// Ends a queue's wait.
#[derive(Clone, Debug)]
pub(crate) enum QueueWaker {
    /// The queue waits by parking, and for nothing else. In the model `unpark` also wakes a thread that waits for a
    /// lock, and is then lost.
    Parked(loom::thread::Thread),
    Bell(std::sync::Arc<Bell>),
}

impl QueueWaker {
    pub fn wake(&self) {
        match self {
            QueueWaker::Parked(thread) => thread.unpark(),
            QueueWaker::Bell(bell) => bell.ring(),
        }
    }
}

/// Wakes the thread that waits for it, and none that waits for something else.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<bool>, Condvar);

impl Bell {
    pub fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }

    pub fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.ring();
    }
}

/// The ring's memory, which no thread reads here.
pub(crate) struct AlignedBuffer(blockio::AlignedBuffer);

impl AlignedBuffer {
    pub fn new(length: usize) -> AlignedBuffer {
        AlignedBuffer(blockio::AlignedBuffer::new(length))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut()
    }
}

/// Like `blockio`'s trait, for frames of the modelled ring.
pub(crate) trait BlockQueue: std::fmt::Debug {
    fn submit(&mut self, frame: Frame, offset: u64, durability: blockio::Durability);

    fn submit_alone(&mut self, frame: Frame, offset: u64, durability: blockio::Durability) {
        self.submit(frame, offset, durability);
    }

    fn next_written(&mut self) -> Option<CompletedWrite>;

    fn wait(&mut self, until: Option<std::time::Instant>) -> Result<(), blockio::DiskError>;

    fn waker(&self) -> QueueWaker;

    fn means(&self) -> QueueMeans {
        QueueMeans
    }
}

/// A write that is complete.
#[derive(Debug)]
pub(crate) struct CompletedWrite {
    pub frame: Frame,
    pub offset: u64,
    pub result: Result<(), blockio::DiskError>,
}

pub(crate) struct QueueMeans;
