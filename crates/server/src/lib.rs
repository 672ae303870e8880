//! The native protocol of the node: its listener, connections, prepared statements and events.
//!
//! A connection is one task. It decodes requests, passes them to a [`QueryHandler`](query::QueryHandler), and writes
//! the answers in the order in which they become ready.
#![forbid(unsafe_code)]

mod blocking;
mod connection;
mod events;
mod in_flight;
mod login;
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

/// The state that all connections share.
struct Shared<H: query::QueryHandler> {
    handler: std::sync::Arc<H>,
    options: ServerOptions,
    prepared: prepared::PreparedCache<H::Plan>,
    events: std::sync::Arc<events::EventBus>,
    metrics: std::sync::Arc<Metrics>,
    /// A permit for each password that may be hashed at a time.
    logins: std::sync::Arc<tokio::sync::Semaphore>,
    /// The address at which clients reach the server.
    local: std::net::SocketAddr,
}
