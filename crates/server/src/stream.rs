//! The byte stream of a connection: a plain socket, or TLS on one.
//!
//! Plain sockets are read and written directly. TLS keeps some bytes of its own: at most one record that has arrived,
//! and [`UNSENT_BYTES_MAX`] of answers.

mod handshake_socket;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) use handshake_socket::HandshakeSocket;

/// The answers that TLS takes before the socket has taken them.
const UNSENT_BYTES_MAX: usize = 32 * 1024;

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<HandshakeSocket>>),
}

impl Stream {
    /// Performs the handshake of a client.
    pub(crate) fn accept(acceptor: &TlsAcceptor, socket: HandshakeSocket) -> impl Future<Output = io::Result<Stream>> {
        let handshake = acceptor.accept_with(socket, |session| session.set_buffer_limit(Some(UNSENT_BYTES_MAX)));
        async {
            let mut stream = handshake.await?;
            stream.get_mut().0.end_handshake();
            Ok(Stream::Tls(Box::new(stream)))
        }
    }

    /// The certificate with which the client has authenticated itself, in DER.
    pub(crate) fn client_certificate(&self) -> Option<&[u8]> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.get_ref().1.peer_certificates()?.first().map(|certificate| &certificate[..]),
        }
    }

    /// Writes some of the bytes.
    pub(crate) fn poll_write(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => loop {
                ready!(socket.poll_write_ready(cx))?;
                match socket.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return Poll::Ready(written),
                }
            },
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Ready if the socket has taken all that was written.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Tells the client that no more answers come. A plain socket does that when it is dropped.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            // The client may have left.
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx).map(|_| Ok(())),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Tls(stream) => match Pin::new(stream).poll_read(cx, buffer) {
                // Many clients close the socket without the message that TLS has for that.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
        }
    }
}
