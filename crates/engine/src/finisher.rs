//! Finishing writes that nobody waits for any more.
//!
//! A client that hangs up or times out drops the future of its write. If the record is in the log by then, the write
//! still has to become visible once it is durable: its group is waited for by flushes, whose intervals will claim the
//! record. A thread of its own does that; the flushing thread cannot, because it may be waiting for that very group.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::lock;
use crate::worker::Worker;
use crate::write::LoggedWrite;

/// Takes over writes whose futures were dropped.
pub(crate) struct Finisher {
    abandoned: Mutex<Option<Sender<LoggedWrite>>>,
    worker: Worker,
}

impl Finisher {
    pub fn new() -> Self {
        Finisher { abandoned: Mutex::new(None), worker: Worker::new() }
    }

    /// Starts the thread; it ends with the engine.
    pub fn start(&self, engine: &Arc<Engine>) -> Result<(), EngineError> {
        let (sender, receiver) = channel();
        self.worker.start("finisher", engine, move |engine| run(&engine, &receiver))?;
        *lock(&self.abandoned) = Some(sender);
        Ok(())
    }

    /// Takes over a write, or gives it back if there is no thread (any more): it must not be left half way.
    pub fn take_over(&self, write: LoggedWrite) -> Option<LoggedWrite> {
        match &*lock(&self.abandoned) {
            Some(abandoned) => abandoned.send(write).err().map(|unsent| unsent.0),
            None => Some(write),
        }
    }

    /// Ends the thread after all writes it took over.
    pub fn stop(&self) {
        drop(lock(&self.abandoned).take());
        self.worker.join();
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(engine: &Weak<Engine>, abandoned: &Receiver<LoggedWrite>) {
    while let Ok(write) = abandoned.recv() {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.finish_abandoned(write);
    }
}
