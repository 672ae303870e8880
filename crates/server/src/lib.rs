//! The node's listeners and connections of the native protocol, prepared statements, events.
//!
//! A connection is one task that decodes requests, has a [`QueryHandler`](query::QueryHandler) begin them, and writes
//! the answers as they come.
#![forbid(unsafe_code)]

mod blocking;
mod connection;
mod events;
mod in_flight;
mod metrics;
mod options;
mod prepared;
mod server;
mod session;
mod startup;
mod trace;
mod turn;

pub use metrics::{Counter, Metrics};
pub use options::ServerOptions;
pub use server::{Listener, Server};

/// The version of CQL that SUPPORTED names, Cassandra 5.0's.
pub const CQL_VERSION: &str = "3.4.7";

/// What all connections share.
struct Shared<H: query::QueryHandler> {
    handler: std::sync::Arc<H>,
    options: ServerOptions,
    prepared: prepared::PreparedCache<H::Plan>,
    events: std::sync::Arc<events::EventBus>,
    metrics: std::sync::Arc<Metrics>,
    /// Where clients reach the server.
    local: std::net::SocketAddr,
}
