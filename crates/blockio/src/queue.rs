//! Block writes under way: many handed to the device, done in any order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Instant;

use crate::sleeper::Sleeper;
use crate::{DiskError, Durability, File, Frame};

/// Writes of one file's blocks, several at a time. It belongs to the thread that made it.
///
/// Frames that are under way are kept until the device is done with them, even when the queue is dropped.
pub trait BlockQueue: fmt::Debug {
    /// Hands a frame to the device, for a place that is a multiple of [`BLOCK_SIZE`](crate::BLOCK_SIZE). With
    /// [`Durability::Durable`] it is on the device when it is told as written.
    fn submit(&mut self, frame: Frame, offset: u64, durability: Durability);

    /// As [`submit`](Self::submit), for a caller who has nothing to do until it is written: it may be when this
    /// returns.
    fn submit_alone(&mut self, frame: Frame, offset: u64, durability: Durability) {
        self.submit(frame, offset, durability);
    }

    /// Writes that were submitted and not told yet.
    fn in_flight(&self) -> usize;

    /// The next write that is done.
    fn next_written(&mut self) -> Option<Written>;

    /// Waits for a write to be done, a wake-up or the time, whichever is first; wake-ups since the last wait count. May
    /// return early. An error is final: nothing will ever be told of the writes that are under way, and the queue is of
    /// no more use.
    fn wait(&mut self, until: Option<Instant>) -> Result<(), DiskError>;

    /// What ends a wait of this queue from another thread.
    fn waker(&self) -> QueueWaker;

    /// How many writes it keeps under way, and by what means: for one line in a log.
    fn means(&self) -> QueueMeans;
}

/// A write that is done.
#[derive(Debug)]
pub struct Written {
    /// What was written.
    pub frame: Frame,
    /// Where.
    pub offset: u64,
    /// Whether it was.
    pub result: Result<(), DiskError>,
}

/// How a queue reaches the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueMeans {
    /// By a ring of the kernel's (io_uring): any number of writes at a time.
    Ring,
    /// One write at a time, by plain system calls; `reason` says why.
    Plain {
        /// Why there is no ring.
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

    /// Wakes whoever sleeps there.
    pub(crate) fn sleeper(sleeper: Arc<Sleeper>) -> QueueWaker {
        QueueWaker(Wake::Sleeper(sleeper))
    }

    /// Ends the wait that is under way, or else the next one.
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

/// The queue of depth one: each write is done when `submit` returns.
#[derive(Debug)]
pub(crate) struct PlainQueue {
    file: Box<dyn File>,
    written: VecDeque<Written>,
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
        self.written.push_back(Written { frame, offset, result });
    }

    fn in_flight(&self) -> usize {
        self.written.len()
    }

    fn next_written(&mut self) -> Option<Written> {
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
