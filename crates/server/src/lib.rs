//! The native protocol of the node: its listener, connections, prepared statements and events.
//!
//! A connection is one task. It decodes requests, passes them to a [`QueryHandler`](query::QueryHandler), and writes
//! the answers in the order in which they become ready.
#![forbid(unsafe_code)]

mod blocking;
mod blocking_pool;
mod connection;
mod connection_turn;
mod events;
mod hash_permits;
mod idle_check;
mod in_flight;
mod limits;
mod log_limit;
mod login;
mod long_request;
mod long_text;
mod metrics;
mod options;
mod paths;
mod prepared;
mod request_rate;
mod server;
mod session;
mod startup;
mod stream;
mod tls;
mod trace;
mod turn;

pub use log_limit::{LeftOut, LogRateLimit};
pub use metrics::{Counter, Metrics};
pub use options::ServerOptions;
pub use server::{Listener, Server};
pub use tls::{Tls, rustls};

/// The version of CQL that SUPPORTED names, Cassandra 5.0's.
pub const CQL_VERSION: &str = "3.4.7";

/// The state that all connections share.
struct Shared<H: query::QueryHandler> {
    handler: std::sync::Arc<H>,
    options: ServerOptions,
    prepared: prepared::PreparedCache<H::Plan>,
    events: std::sync::Arc<events::EventBus>,
    metrics: std::sync::Arc<Metrics>,
    limits: std::sync::Arc<limits::Limits>,
    pools: std::sync::Arc<blocking_pool::Pools>,
    /// The traces that wait for a thread.
    trace_source: std::sync::Arc<blocking_pool::WorkSource>,
    /// The limit on requests a second, if there is one.
    request_rate: Option<request_rate::RequestRate>,
    /// The places for hashes of passwords.
    hash_permits: std::sync::Arc<hash_permits::HashPermits>,
    /// The limits of log messages that clients cause.
    notices: log_limit::Notices,
    /// The address at which clients reach the server.
    local: std::net::SocketAddr,
}
