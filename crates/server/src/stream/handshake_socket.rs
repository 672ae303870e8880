//! The socket under a TLS session. During the handshake it counts the bytes that the client sends.
//!
//! A client may begin a handshake and never end it. The TLS session then holds the bytes that the client has sent, so
//! these are counted as memory of the connection. An ordinary handshake takes nothing from the budgets, because it is
//! shorter than the memory that any connection may hold without taking it.

use crate::limits::Account;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket that counts the bytes that arrive during the handshake.
#[derive(Debug)]
pub(crate) struct HandshakeSocket {
    socket: TcpStream,
    /// `None` once the handshake has ended. The connection counts what it reads itself.
    received: Option<Box<Received>>,
}

/// The bytes that the client has sent in its handshake, and their account.
#[derive(Debug)]
struct Received {
    bytes: usize,
    account: Account,
}

impl HandshakeSocket {
    pub(crate) fn new(socket: TcpStream, account: Account) -> HandshakeSocket {
        HandshakeSocket { socket, received: Some(Box::new(Received { bytes: 0, account })) }
    }

    /// Ends the counting, and frees the memory that was taken for the handshake.
    pub(crate) fn end_handshake(&mut self) {
        self.received = None;
    }
}

impl AsyncRead for HandshakeSocket {
    /// During the handshake, reading waits until there is room for the bytes that have arrived already.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let HandshakeSocket { socket, received } = self.get_mut();
        let Some(received) = received else { return Pin::new(socket).poll_read(cx, buffer) };
        ready!(received.account.poll_grow(received.bytes, cx));
        let before = buffer.filled().len();
        let read = ready!(Pin::new(socket).poll_read(cx, buffer));
        received.bytes += buffer.filled().len() - before;
        Poll::Ready(read)
    }
}

impl AsyncWrite for HandshakeSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
