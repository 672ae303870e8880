//! The listener. It accepts connections and stops them.

use crate::Shared;
use crate::blocking_pool::Pools;
use crate::connection::Connection;
use crate::events::EventBus;
use crate::limits::{Limits, Place};
use crate::login::LOGINS_AT_A_TIME;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::prepared::PreparedCache;
use crate::request_rate::RequestRate;
use query::QueryHandler;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// The time that connections have at a stop to answer requests that wait for the log, and to send answers. Requests on
/// the blocking pools are cancelled instead.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A bound address. Clients that connect wait until a server runs on it.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    local: SocketAddr,
    options: ServerOptions,
}

impl Listener {
    /// Binds the address in the options.
    pub async fn bind(options: ServerOptions) -> io::Result<Listener> {
        let listener = TcpListener::bind(options.listen).await?;
        Ok(Listener { local: listener.local_addr()?, listener, options })
    }

    /// The bound address with its actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// A server that does not accept connections yet.
pub struct Server<H: QueryHandler> {
    listener: TcpListener,
    shared: Arc<Shared<H>>,
}

impl<H: QueryHandler> Server<H> {
    /// A server for the clients of this listener.
    pub fn new(listener: Listener, handler: Arc<H>) -> Server<H> {
        let Listener { listener, local, options } = listener;
        let shared = Shared {
            prepared: PreparedCache::new(options.prepared_statements_cache_size_bytes),
            local,
            events: Arc::new(EventBus::default()),
            metrics: Arc::new(Metrics::default()),
            limits: Limits::new(&options),
            pools: Pools::new(),
            request_rate: options.requests_per_second_max.map(|max| RequestRate::new(max.get())),
            logins: Arc::new(Semaphore::new(LOGINS_AT_A_TIME)),
            handler,
            options,
        };
        Server { listener, shared: Arc::new(shared) }
    }

    /// The server's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.shared.metrics.clone()
    }

    /// Serves clients until `stop` resolves. After that it accepts no connections, and connected clients still receive
    /// the answers to the requests that they have sent.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { listener, shared } = self;
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        let mut next_id: u32 = 0;
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            match accepted {
                Ok((socket, peer)) => {
                    next_id = next_id.wrapping_add(1);
                    // A connection beyond a limit is closed, as in Cassandra.
                    let Some(place) = shared.limits.admit(peer.ip()) else {
                        tracing::debug!(%peer, "connection refused: the limit is reached");
                        shared.metrics.connections_refused.add(1);
                        continue;
                    };
                    let served = serve(shared.clone(), socket, peer, next_id, stopped.clone(), place);
                    connections.spawn(served);
                }
                Err(error) => {
                    // Most likely there are no descriptors left until another connection closes.
                    tracing::error!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        stopping.send_replace(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("some connections did not finish in time and were cut");
        }
    }
}

async fn serve<H: QueryHandler>(
    shared: Arc<Shared<H>>,
    socket: TcpStream,
    peer: SocketAddr,
    id: u32,
    stopped: watch::Receiver<bool>,
    place: Place,
) {
    shared.metrics.connections_accepted.add(1);
    shared.metrics.connected_native_clients.add(1);
    let metrics = shared.metrics.clone();
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot switch off Nagle's algorithm");
    }
    if let Err(error) = Connection::new(shared, socket, peer, id, &place).run(stopped).await {
        tracing::debug!(%peer, %error, "connection broke");
    }
    metrics.connected_native_clients.subtract(1);
    drop(place);
}
