//! The options of the server.

use crate::tls::Tls;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use query::MemoryBudget;

/// The options of the listener and its connections. Each one is listed with its name in `espalier.yaml`.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// `rpc_address` and `native_transport_port`.
    pub listen: SocketAddr,
    /// `native_transport_port_ssl`: where clients with TLS connect if it is not `listen`, which then is plain.
    pub listen_tls: Option<SocketAddr>,
    /// `client_encryption_options`; `None` means that all connections are plain.
    pub tls: Option<Tls>,
    /// `native_transport_max_frame_size`.
    pub frame_size_bytes_max: usize,
    /// `native_transport_max_concurrent_connections`; `None` means no limit.
    pub connections_max: Option<usize>,
    /// `native_transport_max_concurrent_connections_per_ip`; `None` means no limit.
    pub connections_per_ip_max: Option<usize>,
    /// A connection is not read while it has this number of requests in flight.
    pub requests_in_flight_max: usize,
    /// `native_transport_max_request_data_in_flight`: memory of the node for requests, what statements hold, and
    /// answers; above it connections are not read.
    pub request_memory: Arc<MemoryBudget>,
    /// `native_transport_max_request_data_in_flight_per_ip`: the same for all connections from one address.
    pub request_bytes_in_flight_per_ip_max: usize,
    /// `native_transport_max_requests_per_second`, of all clients together; `None` means no limit.
    pub requests_per_second_max: Option<NonZeroU32>,
    /// How long a connection may take to send STARTUP, including the handshake of TLS.
    pub handshake_timeout: Duration,
    /// `native_transport_idle_timeout`; `None` means for ever.
    pub idle_timeout: Option<Duration>,
    /// `prepared_statements_cache_size`.
    pub prepared_statements_cache_size_bytes: u64,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            listen: ([127, 0, 0, 1], 9042).into(),
            listen_tls: None,
            tls: None,
            frame_size_bytes_max: protocol::MAX_FRAME_SIZE_BYTES,
            connections_max: None,
            connections_per_ip_max: None,
            requests_in_flight_max: 8192,
            request_memory: MemoryBudget::new(256 * 1024 * 1024),
            request_bytes_in_flight_per_ip_max: 64 * 1024 * 1024,
            requests_per_second_max: None,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: None,
            prepared_statements_cache_size_bytes: 10 * 1024 * 1024,
        }
    }
}
