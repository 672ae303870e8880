//! A periodic check of a connection that holds memory, or whose client has not logged in yet, while it has nothing to
//! do.
//!
//! The check runs once a second. The buffers of a connection without traffic are shrunk. A connection whose request
//! does not end, or whose client does not read its answers, is closed after some seconds, but only while others wait
//! for its memory or for its writes; otherwise a slow client does no harm. A connection that does not send STARTUP, or
//! whose client has not logged in, in time is closed in any case.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The time between two checks.
const PERIOD: Duration = Duration::from_secs(1);

/// A connection is closed after this number of checks in a row that find its request unfinished, or its client hardly
/// reading.
const STALLED_CHECKS_MAX: u32 = 5;

/// A client that takes fewer bytes than this between two checks hardly reads.
const SENT_BYTES_MIN: usize = 16 * 1024;

/// A client that takes fewer bytes than this between two checks prevents the writes behind its answers from finishing.
const SENT_BEFORE_WRITES_BYTES_MIN: usize = 256 * 1024;

/// The checks of one connection, as the module's text describes them.
#[derive(Debug)]
pub(crate) struct IdleCheck {
    timer: Option<Pin<Box<Sleep>>>,
    connected: Instant,
    handshake_timeout: Duration,
    /// The bytes of answers that the socket took since the last check.
    sent_bytes: usize,
    has_received: bool,
    has_started: bool,
    /// The number of checks in a row that found a request unfinished. The next two count checks of a client that hardly
    /// reads, and checks of one that prevents writes from finishing.
    unfinished: u32,
    unread: u32,
    kept: u32,
}

/// The stages of a connection's start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// STARTUP has not arrived.
    AwaitsStartup,
    /// STARTUP was accepted, and the client has to log in.
    AwaitsLogin,
    /// The client's login is being checked, or waits to be checked.
    ChecksLogin,
    /// Requests are accepted.
    Done,
}

impl Start {
    /// Why the connection is closed if that took too long.
    const fn delay(self) -> Option<&'static str> {
        match self {
            Start::AwaitsStartup => Some("it has not sent STARTUP in time"),
            Start::AwaitsLogin => Some("its client has not logged in in time"),
            Start::ChecksLogin => Some("its login could not be checked in time: too many logins are being checked"),
            Start::Done => None,
        }
    }
}

/// The state of a connection at a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionState {
    pub(crate) start: Start,
    /// A request has begun to arrive.
    pub(crate) is_missing_some: bool,
    /// Answers wait for the socket.
    pub(crate) is_sending: bool,
    /// It holds memory that others wait for.
    pub(crate) blocks_others: bool,
    /// It has writes that are not finished before answers are sent. Locks and flushes may wait for them.
    pub(crate) keeps_writes: bool,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The connection must free the memory of its empty buffers.
    Shrink,
    /// The connection must be closed for this reason.
    Close(&'static str),
}

impl IdleCheck {
    pub(crate) fn new(connected: Instant, handshake_timeout: Duration) -> IdleCheck {
        IdleCheck {
            timer: None,
            connected,
            handshake_timeout,
            sent_bytes: 0,
            has_received: false,
            has_started: false,
            unfinished: 0,
            unread: 0,
            kept: 0,
        }
    }

    /// The socket took this many bytes of answers.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
    }

    /// Something has arrived.
    pub(crate) fn received(&mut self) {
        self.has_received = true;
    }

    /// A request was complete, and was started.
    pub(crate) fn request_started(&mut self) {
        self.has_started = true;
    }

    /// The result of the next check of a connection that has nothing to do; pending until it is due.
    pub(crate) fn poll(&mut self, state: &ConnectionState, cx: &mut Context<'_>) -> Poll<Verdict> {
        let period = PERIOD.min(self.handshake_timeout);
        loop {
            ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(period))).as_mut().poll(cx));
            self.timer = None;
            if let Some(verdict) = self.check(state, self.connected.elapsed()) {
                return Poll::Ready(verdict);
            }
        }
    }

    fn check(&mut self, state: &ConnectionState, age: Duration) -> Option<Verdict> {
        if let Some(reason) = state.start.delay()
            && age >= self.handshake_timeout
        {
            return Some(Verdict::Close(reason));
        }
        let rests = !self.has_received && self.sent_bytes == 0;
        let is_unfinished = state.is_missing_some && !self.has_started;
        self.unfinished = if is_unfinished { self.unfinished + 1 } else { 0 };
        let is_unread = state.is_sending && self.sent_bytes < SENT_BYTES_MIN;
        self.unread = if is_unread { self.unread + 1 } else { 0 };
        let is_kept = state.keeps_writes && self.sent_bytes < SENT_BEFORE_WRITES_BYTES_MIN;
        self.kept = if is_kept { self.kept + 1 } else { 0 };
        (self.sent_bytes, self.has_received, self.has_started) = (0, false, false);
        if state.blocks_others && self.unfinished >= STALLED_CHECKS_MAX {
            return Some(Verdict::Close("its request does not end, and others wait for its memory"));
        }
        if state.blocks_others && self.unread >= STALLED_CHECKS_MAX {
            return Some(Verdict::Close("its client does not read its answers, and others wait for their memory"));
        }
        if self.kept >= STALLED_CHECKS_MAX {
            return Some(Verdict::Close("its client does not read its answers, and others wait for its writes"));
        }
        rests.then_some(Verdict::Shrink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: ConnectionState = ConnectionState {
        start: Start::Done,
        is_missing_some: false,
        is_sending: false,
        blocks_others: false,
        keeps_writes: false,
    };
    const LATER: Duration = Duration::from_secs(20);

    fn checks(
        idle_check: &mut IdleCheck,
        state: ConnectionState,
        mut before: impl FnMut(&mut IdleCheck),
    ) -> Vec<Option<Verdict>> {
        let check = |_| {
            before(idle_check);
            idle_check.check(&state, LATER)
        };
        (0..STALLED_CHECKS_MAX).map(check).collect()
    }

    #[test]
    fn a_client_that_does_not_start_in_time_is_closed_with_the_reason() {
        let mut idle_check = IdleCheck::new(Instant::now(), Duration::from_secs(10));
        for (start, reason) in [
            (Start::AwaitsStartup, "it has not sent STARTUP in time"),
            (Start::AwaitsLogin, "its client has not logged in in time"),
            (Start::ChecksLogin, "its login could not be checked in time: too many logins are being checked"),
        ] {
            let late = ConnectionState { start, ..IDLE };
            assert_eq!(idle_check.check(&late, Duration::from_secs(9)), Some(Verdict::Shrink));
            assert_eq!(idle_check.check(&late, Duration::from_secs(10)), Some(Verdict::Close(reason)));
        }
        assert_eq!(idle_check.check(&IDLE, LATER), Some(Verdict::Shrink));
    }

    #[test]
    fn a_request_that_does_not_end_is_closed_only_if_it_blocks_others() {
        let arriving = ConnectionState { is_missing_some: true, ..IDLE };
        let blocking = ConnectionState { blocks_others: true, ..arriving };
        let mut idle_check = IdleCheck::new(Instant::now(), LATER);
        assert_eq!(checks(&mut idle_check, arriving, IdleCheck::received), [None; STALLED_CHECKS_MAX as usize]);
        assert!(matches!(idle_check.check(&blocking, LATER), Some(Verdict::Close(_))));
        let finishes = |idle_check: &mut IdleCheck| {
            idle_check.received();
            idle_check.request_started();
        };
        assert_eq!(checks(&mut idle_check, blocking, finishes), [None; STALLED_CHECKS_MAX as usize]);
    }

    #[test]
    fn a_client_that_hardly_reads_is_closed_only_if_it_blocks_others() {
        let blocking = ConnectionState { is_sending: true, blocks_others: true, ..IDLE };
        let mut idle_check = IdleCheck::new(Instant::now(), LATER);
        assert_eq!(
            checks(&mut idle_check, blocking, |idle_check| idle_check.sent(SENT_BYTES_MIN)),
            [None; STALLED_CHECKS_MAX as usize]
        );
        let last = checks(&mut idle_check, blocking, |idle_check| idle_check.sent(1)).pop().unwrap();
        assert!(matches!(last, Some(Verdict::Close(_))));
    }

    #[test]
    fn a_client_that_keeps_writes_from_being_finished_is_closed_unless_it_reads() {
        let keeps = ConnectionState { is_sending: true, keeps_writes: true, ..IDLE };
        let mut idle_check = IdleCheck::new(Instant::now(), LATER);
        let reads = |idle_check: &mut IdleCheck| idle_check.sent(SENT_BEFORE_WRITES_BYTES_MIN);
        assert_eq!(checks(&mut idle_check, keeps, reads), [None; STALLED_CHECKS_MAX as usize]);
        let last = checks(&mut idle_check, keeps, |idle_check| idle_check.sent(SENT_BYTES_MIN)).pop().unwrap();
        assert!(matches!(last, Some(Verdict::Close(_))));
    }
}
