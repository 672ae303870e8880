//! The blocking pool. A request that may wait for a device, or that may run for long, runs on a thread of this pool, so
//! that no thread that serves connections waits for it. The number of threads is bounded.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use query::{MustBlock, QueryError, Response};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// The number of requests that have a thread at the same time. Further requests wait in order, without a thread.
const THREADS_MAX: usize = 64;

static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// Runs a request on the blocking pool. If the future is dropped before it is ready, the request is cancelled.
pub(crate) async fn run(work: MustBlock, deadline: Option<Instant>) -> Result<Response, QueryError> {
    let cancel = CancelOnDrop(work.cancel_flag());
    let (thread, is_cancelled) = (THREADS.acquire().await, work.cancel_flag());
    let task = spawn_blocking(move || {
        // The client may have left while its request waited for a thread.
        let response = match is_cancelled.load(Ordering::Relaxed) {
            true => Err(work.limit().error()),
            false => work.run(deadline),
        };
        drop(thread);
        response
    });
    let outcome = task.await;
    drop(cancel);
    match outcome.map_err(JoinError::try_into_panic) {
        Ok(response) => response,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime is shutting down, so nobody waits for the answer.
        Err(Err(_)) => pending().await,
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
