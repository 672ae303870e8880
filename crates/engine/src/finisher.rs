//! Finishing writes that nobody waits for any more.
//!
//! A client that hangs up or times out drops the future of its write. If the record is in the log by then, the write
//! still has to become visible once it is durable: its group is waited for by flushes, whose intervals will claim the
//! record. A thread of its own does that; the flushing thread cannot, because it may be waiting for that very group.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use crate::engine::Engine;
use crate::store::lock;
use crate::write::LoggedWrite;

/// Takes over writes whose futures were dropped.
pub(crate) struct Finisher {
    abandoned: Mutex<Option<Sender<LoggedWrite>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Finisher {
    pub fn new() -> Self {
        Finisher { abandoned: Mutex::new(None), thread: Mutex::new(None) }
    }

    /// Starts the thread; it ends with the engine.
    pub fn start(&self, engine: &Arc<Engine>) {
        let (sender, receiver) = channel();
        let engine = Arc::downgrade(engine);
        let thread = std::thread::Builder::new().name("finisher".into()).spawn(move || run(&engine, &receiver));
        *lock(&self.abandoned) = Some(sender);
        *lock(&self.thread) = thread.ok();
    }

    /// Takes over a write. Before the thread runs and after it ended there is no engine to make it visible in.
    pub fn take_over(&self, write: LoggedWrite) {
        if let Some(abandoned) = &*lock(&self.abandoned) {
            // Without a receiver the engine is going away, and the log with what it holds is all that is left.
            let _ = abandoned.send(write);
        }
    }

    /// Ends the thread after all writes it took over.
    pub fn stop(&self) {
        drop(lock(&self.abandoned).take());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic there was reported by the panic hook; the engine goes on closing.
            let _ = thread.join();
        }
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
