//! Events to the connections that registered for them.

use protocol::Event;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Events that wait for one connection before further ones are dropped: a client that reads nothing must not cost
/// memory without bound.
const EVENTS_WAITING_MAX: usize = 4096;

/// Who wants to be told.
#[derive(Debug, Default)]
pub(crate) struct EventBus {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    by_id: HashMap<u64, mpsc::Sender<Arc<Event>>>,
}

/// A connection's end of the bus; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    id: u64,
    bus: Arc<EventBus>,
    events: mpsc::Receiver<Arc<Event>>,
}

impl EventBus {
    /// Joins the bus.
    pub(crate) fn subscribe(self: &Arc<EventBus>) -> Subscription {
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let mut listeners = self.lock();
        let id = listeners.next;
        listeners.next += 1;
        listeners.by_id.insert(id, sender);
        Subscription { id, bus: self.clone(), events }
    }

    /// Tells everyone.
    pub(crate) fn publish(&self, event: Event) {
        let event = Arc::new(event);
        for (id, listener) in &self.lock().by_id {
            if listener.try_send(event.clone()).is_err() {
                tracing::warn!(listener = id, "event dropped: the client does not read");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// The next event; pending while there is none.
    pub(crate) fn poll(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Arc<Event>>> {
        self.events.poll_recv(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.bus.lock().by_id.remove(&self.id);
    }
}
