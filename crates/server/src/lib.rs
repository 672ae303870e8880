//! The node's front door: listeners and connections of the native protocol, prepared statements, events.
//!
//! A connection is one task that decodes requests, has a [`QueryHandler`] carry them out, and writes the answers as
//! they come. Error codes of the protocol are chosen here and nowhere else.
#![forbid(unsafe_code)]

mod awaiting;
mod blocking_pool;
mod connection;
mod events;
mod handler;
mod in_flight;
mod known;
mod limits;
mod long_text;
mod look_ahead;
mod metrics;
mod options;
mod paths;
mod patrol;
mod prepared;
mod processor;
mod reply;
mod server;
mod session;
mod start;
mod startup;
mod trace;

pub use handler::{BatchEntry, BatchKind, BatchStatement, QueryHandler, StatementInfo};
pub use metrics::{Counter, Metrics};
pub use options::ServerOptions;
pub use server::{Listener, Server};

/// The version of CQL that SUPPORTED names, Cassandra 5.0's.
pub const CQL_VERSION: &str = "3.4.7";

/// What all connections share.
struct Shared<H: QueryHandler> {
    handler: std::sync::Arc<H>,
    options: ServerOptions,
    prepared: prepared::PreparedCache<H>,
    events: std::sync::Arc<events::EventBus>,
    metrics: std::sync::Arc<Metrics>,
    limits: std::sync::Arc<limits::Limits>,
    pools: std::sync::Arc<blocking_pool::Pools>,
    /// Where clients reach the server.
    local: std::net::SocketAddr,
}
