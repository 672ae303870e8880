//! Requests that may wait for a device, or hold their thread for long, run on a bounded pool of threads: none of those
//! that serve connections stands still with them.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use query::{MustBlock, QueryError, Response};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// So many requests have a thread at a time; more wait for their turn, without a thread.
const THREADS_MAX: usize = 64;

static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// Runs a request on a thread that may wait. Dropped before it is ready, the request is cancelled.
pub(crate) async fn run(work: MustBlock, deadline: Option<Instant>) -> Result<Response, QueryError> {
    let cancel = CancelOnDrop(work.cancel_flag());
    let (thread, is_cancelled) = (THREADS.acquire().await, work.cancel_flag());
    let task = spawn_blocking(move || {
        // Its client went while it waited for the thread.
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
        // The runtime is shutting down, and all that wait with it.
        Err(Err(_)) => pending().await,
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
