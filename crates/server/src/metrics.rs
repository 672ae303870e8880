//! The counters of the server. A counter that Cassandra has too is named as in Cassandra.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Up to this number of threads, no two threads write to the same cache line.
const STRIPES: usize = 8;

/// A counter of this process.
#[derive(Debug, Default)]
pub struct Counter([Stripe; STRIPES]);

/// The count of some of the threads. A stripe may wrap below zero, but the sum of all stripes does not.
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

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.0.load(Ordering::Relaxed)))
    }
}

/// The stripe of this thread. Threads get stripes in turn.
fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    OWN.with(|own| *own)
}

/// All counters of the server.
#[derive(Debug, Default)]
pub struct Metrics {
    /// `ConnectedNativeClients`.
    pub connected_native_clients: Counter,
    /// Connections accepted since the start.
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
    /// Batches executed.
    pub batches_executed: Counter,
    /// `ProtocolException`.
    pub protocol_errors: Counter,
    /// `RequestDiscarded`.
    pub requests_discarded: Counter,
    /// `PausedConnections`: how often a connection was not read because it had too much in flight.
    pub connections_paused: Counter,
    /// Connections cut because there were as many as the limits allow.
    pub connections_refused: Counter,
    /// Connections closed because they delayed others, or did not start in time.
    pub connections_closed: Counter,
    /// Requests answered with a timeout.
    pub timeouts: Counter,
    /// System calls that sent answers.
    pub socket_writes: Counter,
}
