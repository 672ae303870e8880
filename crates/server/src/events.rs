//! The delivery of events to the connections that registered for them.

use crate::log_limit::LogRateLimit;
use protocol::Event;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// The number of events that may wait for one connection. Further events are dropped, so that a client that does not
/// read costs a bounded amount of memory.
const EVENTS_WAITING_MAX: usize = 4096;

/// The connections that receive events.
#[derive(Debug, Default)]
pub(crate) struct EventBus {
    listeners: Mutex<Listeners>,
    /// Limits messages about dropped events.
    limit: LogRateLimit,
}

#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    by_id: HashMap<u64, mpsc::Sender<Arc<Event>>>,
}

/// A connection's subscription. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    id: u64,
    bus: Arc<EventBus>,
    events: mpsc::Receiver<Arc<Event>>,
}

impl EventBus {
    /// Adds a subscription.
    pub(crate) fn subscribe(self: &Arc<EventBus>) -> Subscription {
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let mut listeners = self.lock();
        let id = listeners.next;
        listeners.next += 1;
        listeners.by_id.insert(id, sender);
        Subscription { id, bus: self.clone(), events }
    }

    /// Sends an event to all subscriptions.
    pub(crate) fn publish(&self, event: Event) {
        let event = Arc::new(event);
        for (id, listener) in &self.lock().by_id {
            if listener.try_send(event.clone()).is_err() {
                self.limit.log(|left_out| {
                    tracing::warn!(listener = id, "event dropped: the client does not read{left_out}");
                });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// The next event. Pending while there is none.
    pub(crate) fn poll(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Arc<Event>>> {
        self.events.poll_recv(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.bus.lock().by_id.remove(&self.id);
    }
}
