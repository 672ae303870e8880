//! A thread that serves a component of the engine and ends before it.

use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use crate::error::EngineError;
use crate::lock::lock;

/// A thread of a component. Its owner requests the end of the thread before it joins.
pub(crate) struct Worker {
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub fn new() -> Self {
        Worker { thread: Mutex::new(None) }
    }

    /// Starts the thread. It must hold the component weakly, because the component waits for it when it closes.
    pub fn start<R: Send + Sync + 'static>(
        &self,
        name: &str,
        room: &Arc<R>,
        run: impl FnOnce(Weak<R>) + Send + 'static,
    ) -> Result<(), EngineError> {
        let room = Arc::downgrade(room);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(room));
        let thread = thread.map_err(|error| EngineError::Startup(format!("no thread for the {name}: {error}")))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Wakes the thread if it is parked.
    pub fn unpark(&self) {
        lock(&self.thread).iter().for_each(|thread| thread.thread().unpark());
    }

    /// Waits for the end of the thread, unless this is that thread, which may drop the last reference to the component.
    pub fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // The panic hook reported a panic in it, and the engine continues to close.
            let _ = thread.join();
        }
    }
}
