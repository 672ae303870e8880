//! The events of a traced request.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Collects the events of one request. Shared by the threads that work on it.
#[derive(Debug)]
pub struct TraceLog {
    started: Instant,
    events: Mutex<Vec<TraceEvent>>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The activity, in Cassandra's words if they have the same meaning.
    pub activity: String,
    /// The time since the request began.
    pub elapsed: Duration,
}

impl TraceLog {
    /// Creates the log of a request that begins now.
    pub fn begin() -> TraceLog {
        TraceLog { started: Instant::now(), events: Mutex::new(Vec::new()) }
    }

    /// Adds an event with the current time.
    pub fn note(&self, activity: impl Into<String>) {
        let event = TraceEvent { activity: activity.into(), elapsed: self.elapsed() };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// The time since the request began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The events so far, in order.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
