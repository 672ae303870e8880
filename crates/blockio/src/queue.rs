//! Asynchronous block writes: many in flight, which complete in any order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Instant;

use crate::sleeper::Sleeper;
use crate::{DiskError, Durability, File, Frame};

/// Writes of one file's blocks, several at a time. It belongs to the thread that made it.
///
/// Frames in flight are kept until the device is done with them, even when the queue is dropped.
pub trait BlockQueue: fmt::Debug {
    /// Submits a frame to the device, at an offset that is a multiple of [`BLOCK_SIZE`](crate::BLOCK_SIZE). With
    /// [`Durability::Durable`] it is on the device when it is returned as written.
    fn submit(&mut self, frame: Frame, offset: u64, durability: Durability);

    /// Like [`submit`](Self::submit), for a caller that has nothing to do until the write is complete: it may be
    /// complete when this returns.
    fn submit_alone(&mut self, frame: Frame, offset: u64, durability: Durability) {
        self.submit(frame, offset, durability);
    }

    /// The number of writes that were submitted and not returned yet.
    fn in_flight(&self) -> usize;

    /// The next completed write.
    fn next_written(&mut self) -> Option<CompletedWrite>;

    /// Waits for a write to complete, a wake-up or the time, whichever comes first; wake-ups since the last wait count.
    /// It may return early. An error is final: the outcome of the writes in flight will never be known, and the queue
    /// is unusable.
    fn wait(&mut self, until: Option<Instant>) -> Result<(), DiskError>;

    /// A handle that ends a wait of this queue from another thread.
    fn waker(&self) -> QueueWaker;

    /// How many writes it keeps in flight, and how: for one line in a log.
    fn means(&self) -> QueueMeans;
}

/// A completed write.
#[derive(Debug)]
pub struct CompletedWrite {
    /// The frame that was written.
    pub frame: Frame,
    /// The offset in the file.
    pub offset: u64,
    /// Whether the write succeeded.
    pub result: Result<(), DiskError>,
}

/// How a queue reaches the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueMeans {
    /// Through an io_uring: any number of writes at a time.
    Ring,
    /// One write at a time, by plain system calls; `reason` says why.
    Plain {
        /// The reason why there is no ring.
        reason: String,
    },
    /// In memory.
    Simulated,
}

/// Ends a wait from another thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueueWaker(Wake);

#[derive(Clone, Debug)]
enum Wake {
    Unpark(Thread),
    Sleeper(Arc<Sleeper>),
}

impl QueueWaker {
    /// Wakes this thread, which waits by parking.
    pub(crate) fn current_thread() -> QueueWaker {
        QueueWaker(Wake::Unpark(thread::current()))
    }

    /// Wakes the thread that sleeps there.
    pub(crate) fn sleeper(sleeper: Arc<Sleeper>) -> QueueWaker {
        QueueWaker(Wake::Sleeper(sleeper))
    }

    /// Ends the current wait, or the next one if there is none.
    pub fn wake(&self) {
        match &self.0 {
            Wake::Unpark(thread) => thread.unpark(),
            Wake::Sleeper(sleeper) => sleeper.wake(),
        }
    }
}

/// Parks until the time, or until unparked.
pub(crate) fn park(until: Option<Instant>) {
    match until {
        Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
        None => thread::park(),
    }
}

/// A queue of depth one: each write is complete when `submit` returns.
#[derive(Debug)]
pub(crate) struct PlainQueue {
    file: Box<dyn File>,
    written: VecDeque<CompletedWrite>,
    reason: String,
}

impl PlainQueue {
    pub fn new(file: Box<dyn File>, reason: String) -> PlainQueue {
        PlainQueue { file, written: VecDeque::new(), reason }
    }
}

impl BlockQueue for PlainQueue {
    fn submit(&mut self, frame: Frame, offset: u64, durability: Durability) {
        let result = self.file.write_blocks(frame.blocks(), offset, durability);
        self.written.push_back(CompletedWrite { frame, offset, result });
    }

    fn in_flight(&self) -> usize {
        self.written.len()
    }

    fn next_written(&mut self) -> Option<CompletedWrite> {
        self.written.pop_front()
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), DiskError> {
        if self.written.is_empty() {
            park(until);
        }
        Ok(())
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::current_thread()
    }

    fn means(&self) -> QueueMeans {
        QueueMeans::Plain { reason: self.reason.clone() }
    }
}
