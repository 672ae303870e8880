//! Threads that may not wait for a device.
//!
//! A read of a file is fast if the kernel has its pages, and otherwise takes as long as the device needs. A thread that
//! serves many clients, of which few use that device, reads within [`without_waiting`]: a read that would have to wait
//! fails with [`WouldWait`](crate::DiskErrorKind::WouldWait) instead. The task that gets this error awaits [`to_wait`]
//! and starts again. This tells the poller of the task that the task must be polled where it may wait.

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
