//! Requests on the blocking pools. A request that may wait for a device or for other requests, or that may run for
//! long, runs on a thread of the pool for its need, so that no thread that serves connections waits for it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use protocol::ErrorKind;
use query::{ClientState, Lease, MustBlock, QueryError, Response, ResponseBody};

use crate::blocking_pool::{BlockingPool, Overloaded, WorkSource};
use crate::limits::FREE_BYTES;

/// The answer to a statement, and the lease of its client's memory that the answer holds.
pub(crate) type CountedResponse = (Result<Response, QueryError>, Option<Lease>);

/// Runs a request on the pool for its need. If the future is dropped before it is ready, the request is cancelled.
///
/// The memory of the answer is counted on the thread of the pool, since a connection that has many answers to send
/// looks at this one much later.
pub(crate) async fn run(
    source: Arc<WorkSource>,
    client: Arc<ClientState>,
    work: MustBlock,
    deadline: Option<Instant>,
) -> CountedResponse {
    let cancel = CancelOnDrop(work.cancel_flag());
    let pool = source.pools.for_need(work.need());
    let run = async move {
        let response = work.run(deadline);
        let memory = count_memory(&client, &response);
        (response, memory)
    };
    let answer = match pool.run(&source, run) {
        Ok(answer) => answer.await,
        Err(Overloaded) => (Err(overloaded()), None),
    };
    drop(cancel);
    answer
}

/// Counts rows, and the copy of them that is sent, as memory of this client until they are encoded. The statement had
/// taken the same amount while it ran.
pub(crate) fn count_memory(client: &ClientState, response: &Result<Response, QueryError>) -> Option<Lease> {
    let Ok(Response { body: ResponseBody::Rows(rows), .. }) = response else { return None };
    let memory = client.memory.as_ref().filter(|_| rows.cells.len() > FREE_BYTES)?;
    let mut lease = Lease::new(memory.clone());
    lease.grow(rows.cells.capacity() + rows.cells.len());
    Some(lease)
}

/// Runs the beginning of a request that takes long to read on this pool.
pub(crate) async fn run_long<T: Send + 'static>(
    pool: &BlockingPool,
    source: &Arc<WorkSource>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, QueryError> {
    match pool.run(source, work) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking_pool::Pools;
    use protocol::{MetadataForm, ResultColumns, Rows};
    use query::{MemoryBudget, Need, TimeLimit};
    use std::task::Poll;
    use std::time::Duration;

    const CELLS_BYTES: usize = 100_000;

    fn large_answer(_: Option<Instant>, _: &AtomicBool) -> Result<Response, QueryError> {
        let (metadata, cells) = (Arc::new(ResultColumns::new(Vec::new())), vec![0; CELLS_BYTES]);
        let rows = Rows { metadata, form: MetadataForm::default(), paging_state: None, row_count: 1, cells };
        Ok(Response { body: ResponseBody::Rows(rows), warnings: Vec::new() })
    }

    #[test]
    fn the_memory_of_an_answer_is_counted_before_its_connection_receives_it() {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
            let budget = MemoryBudget::new(1 << 20);
            let client = Arc::new(ClientState { memory: Some(budget.clone()), ..ClientState::default() });
            let work = MustBlock::new(TimeLimit::NONE, Need::Processor, large_answer);
            let mut answer = Box::pin(run(WorkSource::new(Pools::new()), client, work, None));
            let first = std::future::poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_ready()));
            if !first.await {
                while budget.taken_bytes() == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(budget.taken_bytes(), 2 * CELLS_BYTES);
                let (response, memory) = answer.await;
                assert!(response.is_ok() && memory.is_some());
                drop(memory);
            }
            assert_eq!(budget.taken_bytes(), 0);
        });
    }
}
