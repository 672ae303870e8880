//! What happens to a traced request, step by step.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Collects the events of one request. Shared by the threads that work on it.
#[derive(Debug)]
pub struct TraceLog {
    started: Instant,
    events: Mutex<Vec<TraceEvent>>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// In Cassandra's words where they mean the same.
    pub activity: String,
    /// Since the request began.
    pub elapsed: Duration,
}

impl TraceLog {
    /// A log without events, of a request that begins now.
    pub fn begin() -> TraceLog {
        TraceLog { started: Instant::now(), events: Mutex::new(Vec::new()) }
    }

    /// Notes something that happens now.
    pub fn note(&self, activity: impl Into<String>) {
        let event = TraceEvent { activity: activity.into(), elapsed: self.elapsed() };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// How long ago the request began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The events so far, in order.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
