//! Requests on the blocking pools. A request that may wait for a device or for other requests, or that may run for
//! long, runs on a thread of the pool for its need, so that no thread that serves connections waits for it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use protocol::ErrorKind;
use query::{MustBlock, QueryError, Response};

use crate::blocking_pool::{Line, Overloaded};

/// Runs a request on the pool for its need. If the future is dropped before it is ready, the request is cancelled.
pub(crate) async fn run(line: Arc<Line>, work: MustBlock, deadline: Option<Instant>) -> Result<Response, QueryError> {
    let cancel = CancelOnDrop(work.cancel_flag());
    let pool = line.pools.for_need(work.need());
    let response = match pool.run(&line, async move { work.run(deadline) }) {
        Ok(response) => response.await,
        Err(Overloaded) => Err(overloaded()),
    };
    drop(cancel);
    response
}

/// Runs the beginning of a request that is long to read on the pool for scans, and then the rest of it.
pub(crate) async fn run_long<T: Send + 'static>(
    line: Arc<Line>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, QueryError> {
    match line.pools.scans.run(&line, work) {
        Ok(outcome) => Ok(outcome.await),
        Err(Overloaded) => Err(overloaded()),
    }
}

fn overloaded() -> QueryError {
    QueryError::new(ErrorKind::Overloaded, "Too many requests wait for a thread")
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
