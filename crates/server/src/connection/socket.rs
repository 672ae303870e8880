//! Reading and writing a connection's socket, and the time limit of an idle client.

use super::Connection;
use bytes::BytesMut;
use query::QueryHandler;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

/// A buffer that one large request has grown keeps at most this size.
const READ_BUFFER_KEPT_BYTES: usize = 512 * 1024;

/// The free space that the buffer has for a read. The second size is for connections whose last read took half of the
/// first size or more, so that one read takes all that has arrived.
const READ_SIZES_BYTES: [usize; 2] = [8 * 1024, 128 * 1024];

/// The most that one turn sends. The kernel copies the bytes on this thread, which takes some tenths of a millisecond;
/// without the limit, other clients would wait for all of a client's large answers.
const SENT_PER_TURN_BYTES: usize = 256 * 1024;

impl<H: QueryHandler> Connection<H> {
    /// Sends the answers that are ready, up to the limit of the turn. Returns true if the kernel took some bytes.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.encoder.flush();
        let mut progress = false;
        while !self.encoder.output().is_empty() && self.sent_bytes < SENT_PER_TURN_BYTES {
            let output = self.encoder.output();
            let part = &output[..output.len().min(SENT_PER_TURN_BYTES)];
            let Poll::Ready(count) = self.stream.poll_write(part, cx)? else { break };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.encoder.sent(count);
            self.sent_bytes += count;
            self.idle_check.sent(count);
            self.shared.metrics.bytes_sent.add(count as u64);
            self.shared.metrics.socket_writes.add(1);
            progress = true;
        }
        // If it has to wait, the task is woken.
        let _ = self.stream.poll_flush(cx)?;
        Ok(progress)
    }

    /// Whether the turn has sent as much as it may, and there is more.
    pub(super) fn has_more_to_send(&self) -> bool {
        self.sent_bytes >= SENT_PER_TURN_BYTES && !self.encoder.output().is_empty()
    }

    /// Reads the bytes that have arrived, and returns their number; `None` if there are none. At 0 the input has ended.
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> io::Result<Option<usize>> {
        let buffer = self.decoder.buffer();
        if buffer.is_empty() && buffer.capacity() > READ_BUFFER_KEPT_BYTES {
            *buffer = BytesMut::new();
        }
        let reads_much = self.reads_much && !self.account.is_short();
        let room = READ_SIZES_BYTES[usize::from(reads_much)];
        if buffer.capacity() - buffer.len() < room / 2 {
            buffer.reserve(room);
        }
        // Unlike `try_read`, this call knows that a read that left free space has emptied the socket. That saves a
        // call.
        let Poll::Ready(count) = pin!(self.stream.read_buf(buffer)).poll(cx)? else { return Ok(None) };
        if count == 0 {
            self.closing = true;
            self.give_up_blocking();
        }
        self.idle_check.received();
        self.reads_much = count >= READ_SIZES_BYTES[0] / 2;
        self.shared.metrics.bytes_received.add(count as u64);
        self.restart_idle_timer();
        Ok(Some(count))
    }

    pub(super) fn restart_idle_timer(&mut self) {
        if let (Some(timer), Some(timeout)) = (&mut self.idle, self.shared.options.idle_timeout) {
            timer.as_mut().reset(Instant::now() + timeout);
        }
    }

    /// Waits for input, but not longer than a client may be idle.
    pub(super) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let has_none_under_way = self.under_way() == 0;
        match &mut self.idle {
            Some(timer) if has_none_under_way => timer.as_mut().poll(cx).map(|()| {
                let client = self.session.client.address;
                self.shared.notices.closings.log(|left_out| {
                    tracing::info!(?client, "closing idle connection{left_out}");
                });
                Ok(())
            }),
            _ => Poll::Pending,
        }
    }
}
