//! Finishing writes whose callers gave up.
//!
//! A client that disconnects or times out drops the future of its write. If the record is in the log by then, the write
//! must still become visible when it is durable, because flushes wait for its group, and their intervals will cover the
//! record. A separate thread does that. A flushing thread cannot do it, because it may be waiting for that group.
//!
//! The thread waits for all of these writes together, because one of them may become visible only after another.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::thread;

use super::Writes;
use super::order::{AbandonedWrite, Finishing};
use crate::block_on::Unpark;
use crate::error::EngineError;
use crate::lock::lock;
use crate::worker::Worker;

/// Takes over writes whose futures were dropped.
pub(super) struct Finisher {
    abandoned: Mutex<Option<Sender<AbandonedWrite>>>,
    worker: Worker,
}

impl Finisher {
    pub fn new() -> Self {
        Finisher { abandoned: Mutex::new(None), worker: Worker::new() }
    }

    /// Starts the thread; it ends with the component.
    pub(super) fn start(&self, writes: &Arc<Writes>) -> Result<(), EngineError> {
        let (sender, receiver) = channel();
        self.worker.start("finisher", writes, move |writes| run(&writes, &receiver))?;
        *lock(&self.abandoned) = Some(sender);
        Ok(())
    }

    /// Takes over a write, or returns it if the thread has not started or has ended: the write must not be left half
    /// way.
    pub(super) fn take_over(&self, write: AbandonedWrite) -> Option<AbandonedWrite> {
        let Some(abandoned) = &*lock(&self.abandoned) else { return Some(write) };
        let unsent = abandoned.send(write).err().map(|unsent| unsent.0);
        self.worker.unpark();
        unsent
    }

    /// Ends the thread after it has finished all writes that it took over.
    pub fn stop(&self) {
        drop(lock(&self.abandoned).take());
        self.worker.unpark();
        self.worker.join();
    }
}

impl Writes {
    /// Finishes a write whose caller gave up, on the finisher's thread. If that thread does not run, this thread does
    /// it.
    pub(super) fn finish_in_background(&self, write: AbandonedWrite) {
        if let Some(write) = self.finisher.take_over(write) {
            write.finish(self);
        }
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(writes: &Weak<Writes>, abandoned: &Receiver<AbandonedWrite>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut finishing: Vec<Finishing<Arc<Writes>>> = Vec::new();
    loop {
        let is_over = loop {
            match abandoned.try_recv() {
                Ok(write) => {
                    let Some(writes) = writes.upgrade() else { return };
                    finishing.push(write.resume(writes));
                }
                Err(nothing) => break nothing == TryRecvError::Disconnected,
            }
        };
        finishing.retain_mut(|write| write.poll(&mut context).is_pending());
        if is_over && finishing.is_empty() {
            return;
        }
        // A waker of one of these writes ends this, and so do another write and the end of the engine.
        thread::park();
    }
}
