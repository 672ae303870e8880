//! Waiting for a future on a thread that may block.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Wakes a thread that is parked.
pub(crate) struct Unpark(pub Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future of the engine to its end on this thread. For callers without a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        commitlog::release_held_wake_ups();
        std::thread::park();
    }
}

/// Runs a future as [`block_on`] does, until the deadline at most, if there is one. Then the future is dropped, and
/// there is no result.
pub fn block_on_until<T>(future: impl Future<Output = T>, deadline: Option<Instant>) -> Option<T> {
    let Some(deadline) = deadline else { return Some(block_on(future)) };
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        commitlog::release_held_wake_ups();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_at_its_deadline_and_a_result_that_is_there_is_returned_after_it() {
        let deadline = Instant::now() + Duration::from_millis(1);
        assert_eq!(block_on_until(std::future::pending::<()>(), Some(deadline)), None);
        assert!(Instant::now() >= deadline);
        assert_eq!(block_on_until(std::future::ready(5), Some(deadline)), Some(5));
        assert_eq!(block_on_until(std::future::ready(5), None), Some(5));
    }
}
