//! TLS for clients: whether a connection is encrypted, and the handshake.
//!
//! A handshake runs in the connection's task, before the connection itself. It counts among the connections, it ends
//! after the time that a client has to send STARTUP, and what the client sends in it is counted against the budgets of
//! `limits.rs`.

use crate::limits::{Account, ConnectionPermit};
use crate::stream::{HandshakeSocket, Stream};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
pub use tokio_rustls::rustls;

/// The first byte of a TLS connection: the type of a record with a handshake. No version of the protocol has this
/// number.
const HANDSHAKE_RECORD: u8 = 0x16;

/// How clients reach the server with TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificates and rules in force. New connections take the current value.
    pub config: watch::Receiver<Arc<rustls::ServerConfig>>,
    /// Whether clients may also connect without TLS.
    pub optional: bool,
}

impl Tls {
    /// The stream of a client that has just connected.
    pub(crate) async fn accept(&self, socket: TcpStream, place: &ConnectionPermit) -> io::Result<Stream> {
        if self.optional {
            let mut first = [0];
            if socket.peek(&mut first).await? == 0 || first[0] != HANDSHAKE_RECORD {
                return Ok(Stream::Plain(socket));
            }
        }
        let socket = HandshakeSocket::new(socket, Account::new(place.budget().clone()));
        let config = self.config.borrow().clone();
        Stream::accept(&TlsAcceptor::from(config), socket).await
    }
}
