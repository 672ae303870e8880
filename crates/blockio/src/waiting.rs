//! Whether the thread that polls a statement's task may be blocked.
//!
//! Reads are told by an argument (`may_block`). This is how a task learns what to pass: a connection polls it within
//! [`without_waiting`]. A statement that then would have to wait for a device, or needs more than its turn, awaits
//! [`to_wait`]. This tells the connection that the task must be polled on the blocking pool.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

thread_local! {
    static WAITING: Cell<Waiting> = const { Cell::new(Waiting::Allowed) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Allowed,
    Forbidden,
    /// Waiting is forbidden, and a task needs to wait.
    Wanted,
}

/// Restores the previous rule, also after a panic.
struct Before(Waiting);

impl Drop for Before {
    fn drop(&mut self) {
        WAITING.set(self.0);
    }
}

/// Calls `act` while waiting for a device is forbidden on this thread. Also returns whether a task in it needs to wait
/// for a device, and so continues ([`to_wait`]) only where waiting is allowed.
pub fn without_waiting<T>(act: impl FnOnce() -> T) -> (T, bool) {
    let _before = Before(WAITING.replace(Waiting::Forbidden));
    let outcome = act();
    (outcome, WAITING.get() == Waiting::Wanted)
}

/// Whether this thread may wait for a device now.
pub fn may_wait() -> bool {
    WAITING.get() == Waiting::Allowed
}

/// Completes when it is polled where waiting is allowed.
pub async fn to_wait() {
    poll_fn(|_| match may_wait() {
        true => Poll::Ready(()),
        false => {
            WAITING.set(Waiting::Wanted);
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_read_that_would_wait_is_refused_and_succeeds_where_waiting_is_allowed() {
        let mut work = pin!(to_wait());
        let mut poll = || work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!(without_waiting(may_wait), (false, false));
        assert_eq!(without_waiting(&mut poll), (false, true));
        assert!(may_wait() && poll());
        let panicked = std::panic::catch_unwind(|| without_waiting(|| panic!("on purpose")));
        assert!(panicked.is_err() && may_wait());
    }
}
