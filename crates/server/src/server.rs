//! The listener. It accepts connections and stops them.

use crate::Shared;
use crate::blocking_pool::{Pools, WorkSource};
use crate::connection::Connection;
use crate::events::EventBus;
use crate::hash_permits::HashPermits;
use crate::limits::{ConnectionPermit, Limits};
use crate::log_limit::{LogRateLimit, Notices};
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::prepared::PreparedCache;
use crate::request_rate::RequestRate;
use crate::stream::Stream;
use crate::tls::Tls;
use query::QueryHandler;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

/// At a stop, the time that connections have to answer requests that wait for the log, and to send answers. Requests on
/// the blocking pools are cancelled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A bound address. Clients that connect wait until a server runs on it.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    /// The port for TLS, if it has one of its own.
    tls_listener: Option<TcpListener>,
    local: SocketAddr,
    options: ServerOptions,
}

impl Listener {
    /// Binds the address in the options.
    pub async fn bind(options: ServerOptions) -> io::Result<Listener> {
        let listener = TcpListener::bind(options.listen).await?;
        let tls_listener = match options.listen_tls {
            Some(address) => Some(TcpListener::bind(address).await?),
            None => None,
        };
        Ok(Listener { local: listener.local_addr()?, listener, tls_listener, options })
    }

    /// The bound address with its actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The bound address for TLS, if it has one of its own.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls_listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

/// A server that does not accept connections yet.
pub struct Server<H: QueryHandler> {
    listener: TcpListener,
    tls_listener: Option<TcpListener>,
    shared: Arc<Shared<H>>,
}

impl<H: QueryHandler> Server<H> {
    /// A server for the clients of this listener.
    pub fn new(listener: Listener, handler: Arc<H>) -> Server<H> {
        let Listener { listener, tls_listener, local, options } = listener;
        let pools = Pools::new();
        let shared = Shared {
            prepared: PreparedCache::new(options.prepared_statements_cache_size_bytes),
            local,
            events: Arc::new(EventBus::default()),
            metrics: Arc::new(Metrics::default()),
            limits: Limits::new(&options),
            trace_source: WorkSource::new(pools.clone()),
            pools,
            request_rate: options.requests_per_second_max.map(|max| RequestRate::new(max.get())),
            hash_permits: HashPermits::new(),
            notices: Notices::default(),
            handler,
            options,
        };
        Server { listener, tls_listener, shared: Arc::new(shared) }
    }

    /// The server's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.shared.metrics.clone()
    }

    /// Serves clients until `stop` resolves. After that it accepts no connections, and connected clients still receive
    /// the answers to the requests that they have sent.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { listener, tls_listener, shared } = self;
        // With a port for TLS, the other is plain.
        let (first_tls, second_tls) = match tls_listener {
            Some(_) => (None, shared.options.tls.clone()),
            None => (shared.options.tls.clone(), None),
        };
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        let mut next_id: u32 = 0;
        loop {
            let (accepted, tls) = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => (accepted, &first_tls),
                accepted = accept_if(tls_listener.as_ref()) => (accepted, &second_tls),
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            match accepted {
                Ok((socket, peer)) => {
                    let peer = plain(peer);
                    next_id = next_id.wrapping_add(1);
                    // A connection beyond a limit is closed, as in Cassandra.
                    let Some(place) = shared.limits.admit(peer.ip()) else {
                        tracing::debug!(%peer, "connection refused: the limit is reached");
                        shared.metrics.connections_refused.add(1);
                        continue;
                    };
                    let client = Accepted { socket, peer, id: next_id, connected: Instant::now(), place };
                    connections.spawn(serve(shared.clone(), client, tls.clone(), stopped.clone()));
                }
                Err(error) => {
                    // Most likely there are no descriptors left until another connection closes.
                    tracing::error!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop((listener, tls_listener));
        stopping.send_replace(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("some connections did not finish in time and were cut");
        }
    }
}

/// The address of a client. On a listener for both versions of IP, that of an IPv4 client comes in the form of IPv6.
/// Nothing else needs to know of that form: CIDR groups, limits for addresses, logs.
fn plain(peer: SocketAddr) -> SocketAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(address) => (address, peer.port()).into(),
        // It keeps its scope.
        IpAddr::V6(_) => peer,
    }
}

/// The next client of a listener, if there is one.
async fn accept_if(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// A client that was admitted.
struct Accepted {
    socket: TcpStream,
    peer: SocketAddr,
    id: u32,
    connected: Instant,
    place: ConnectionPermit,
}

async fn serve<H: QueryHandler>(
    shared: Arc<Shared<H>>,
    client: Accepted,
    tls: Option<Tls>,
    mut stopped: watch::Receiver<bool>,
) {
    let Accepted { socket, peer, id, connected, place } = client;
    shared.metrics.connections_accepted.add(1);
    shared.metrics.connected_native_clients.add(1);
    let metrics = shared.metrics.clone();
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot switch off Nagle's algorithm");
    }
    let stream = match tls {
        None => Some(Stream::Plain(socket)),
        Some(tls) => {
            let handshake = timeout_at(connected + shared.options.handshake_timeout, tls.accept(socket, &place));
            tokio::select! {
                shaken = handshake => encrypted(shaken, peer, &metrics, &shared.notices.handshakes),
                _ = stopped.wait_for(|stopped| *stopped) => None,
            }
        }
    };
    if let Some(stream) = stream
        && let Err(error) = Connection::new(shared, stream, peer, connected, id, &place).run(stopped).await
    {
        tracing::debug!(%peer, %error, "connection broke");
    }
    metrics.connected_native_clients.subtract(1);
    drop(place);
}

/// The stream of a client whose handshake has ended. The log says what failed.
fn encrypted(
    shaken: Result<io::Result<Stream>, Elapsed>,
    peer: SocketAddr,
    metrics: &Metrics,
    limit: &LogRateLimit,
) -> Option<Stream> {
    let reason = match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    metrics.connections_closed.add(1);
    limit.log(|left_out| {
        tracing::info!(client = %peer, "closing connection: the TLS handshake failed: {reason}{left_out}");
    });
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_ipv4_client_of_an_ipv6_listener_has_its_ipv4_address() {
        let plain = |address: &str| super::plain(address.parse().unwrap()).to_string();
        assert_eq!(plain("[::ffff:10.1.2.3]:4242"), "10.1.2.3:4242");
        for address in ["10.1.2.3:4242", "[2001:db8::1]:4242", "[::1]:4242", "[fe80::1%3]:4242"] {
            assert_eq!(plain(address), address);
        }
    }
}
