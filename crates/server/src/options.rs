//! What the server is told.

use std::net::SocketAddr;
use std::time::Duration;

/// Options of the listener and its connections; the names in `espalier.yaml` stand beside.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// `rpc_address` and `native_transport_port`.
    pub listen: SocketAddr,
    /// `native_transport_max_frame_size`.
    pub frame_size_bytes_max: usize,
    /// `native_transport_max_concurrent_connections`; `None` is no limit.
    pub connections_max: Option<usize>,
    /// `native_transport_max_concurrent_connections_per_ip`; `None` is no limit.
    pub connections_per_ip_max: Option<usize>,
    /// Requests under way on one connection before it is not read any more.
    pub requests_in_flight_max: usize,
    /// `native_transport_max_request_data_in_flight`: memory of the node for requests, what statements hold, and
    /// answers; above it connections are not read.
    pub request_bytes_in_flight_max: usize,
    /// `native_transport_max_request_data_in_flight_per_ip`: the same for all connections from one address.
    pub request_bytes_in_flight_per_ip_max: usize,
    /// How long a connection may take to send STARTUP.
    pub handshake_timeout: Duration,
    /// `native_transport_idle_timeout`; `None` is for ever.
    pub idle_timeout: Option<Duration>,
    /// `prepared_statements_cache_size`.
    pub prepared_statements_cache_size_bytes: u64,
    /// `read_request_timeout`.
    pub read_timeout: Duration,
    /// `range_request_timeout`.
    pub range_timeout: Duration,
    /// `write_request_timeout`.
    pub write_timeout: Duration,
    /// `truncate_request_timeout`.
    pub truncate_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            listen: ([127, 0, 0, 1], 9042).into(),
            frame_size_bytes_max: protocol::MAX_FRAME_SIZE_BYTES,
            connections_max: None,
            connections_per_ip_max: None,
            requests_in_flight_max: 8192,
            request_bytes_in_flight_max: 256 * 1024 * 1024,
            request_bytes_in_flight_per_ip_max: 64 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: None,
            prepared_statements_cache_size_bytes: 10 * 1024 * 1024,
            read_timeout: Duration::from_millis(5000),
            range_timeout: Duration::from_millis(10000),
            write_timeout: Duration::from_millis(2000),
            truncate_timeout: Duration::from_millis(60000),
        }
    }
}
