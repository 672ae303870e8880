//! Counters of the server; Cassandra's names where it has them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads that count share no line of the cache, up to this many.
const STRIPES: usize = 8;

/// A number that only this process changes.
#[derive(Debug, Default)]
pub struct Counter([Stripe; STRIPES]);

/// What some of the threads counted. A stripe may be below zero, and wraps; their sum is not.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0[own_stripe()].0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0[own_stripe()].0.fetch_sub(count, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.0.load(Ordering::Relaxed)))
    }
}

/// The stripe of this thread; given out in turn.
fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    OWN.with(|own| *own)
}

/// What the server counts.
#[derive(Debug, Default)]
pub struct Metrics {
    /// `ConnectedNativeClients`.
    pub connected_native_clients: Counter,
    /// Connections accepted since start.
    pub connections_accepted: Counter,
    /// `BytesReceived`.
    pub bytes_received: Counter,
    /// `BytesSent`.
    pub bytes_sent: Counter,
    /// Requests decoded.
    pub requests: Counter,
    /// `RegularStatementsExecuted`.
    pub regular_statements_executed: Counter,
    /// `PreparedStatementsExecuted`.
    pub prepared_statements_executed: Counter,
    /// Batches carried out.
    pub batches_executed: Counter,
    /// `ProtocolException`.
    pub protocol_errors: Counter,
    /// `RequestDiscarded`.
    pub requests_discarded: Counter,
    /// `PausedConnections`: times a connection was not read because it had too much under way.
    pub connections_paused: Counter,
    /// Connections cut because there were as many as the limits allow.
    pub connections_refused: Counter,
    /// Connections closed because they were in the way of others, or did not send STARTUP in time.
    pub connections_closed: Counter,
    /// Requests answered with a timeout.
    pub timeouts: Counter,
    /// Calls of the kernel that sent answers.
    pub socket_writes: Counter,
}
