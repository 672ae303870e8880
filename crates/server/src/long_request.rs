//! Requests that take long to read: because of their texts ([`crate::long_text`]), or because of their size, since a
//! large value is copied several times on its way to a memtable. They are read, begun and, if they wait for nothing but
//! the log, completed on a thread of a pool. The memory for reading a text is taken from the memory of its client
//! first.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use protocol::{Batch, Body, ErrorResponse, Header, Request};
use query::{
    Answer, BatchEntry, BatchStatement, ClientState, Lease, Outcome, Pending, Prepared, QueryError, QueryHandler,
    Statement, TraceLog, Turn,
};
use tokio::time::timeout;

use crate::blocking::CountedResponse;
use crate::blocking_pool::{BlockingPool, WorkSource};
use crate::turn::Reply;
use crate::{Shared, blocking, long_text};

/// A request whose body is larger takes long to read: some tenths of a millisecond for each copy.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// The reason why a request takes long to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Long {
    /// Its text, or the number of statements of a batch.
    Text,
    /// The size of its values.
    Values,
}

impl Long {
    /// The reason why this request takes long, if it does.
    #[inline]
    pub(crate) fn of(request: &Request<'_>, body_bytes: usize) -> Option<Long> {
        if long_text::is_long(request) {
            return Some(Long::Text);
        }
        (body_bytes > LARGE_BODY_BYTES).then_some(Long::Values)
    }

    fn pool(self, source: &WorkSource) -> &BlockingPool {
        match self {
            Long::Text => &source.pools.scans,
            Long::Values => &source.pools.large_writes,
        }
    }
}

/// A request that owns its parts.
pub(crate) struct LongRequest<H: QueryHandler> {
    pub(crate) shared: Arc<Shared<H>>,
    pub(crate) client: Arc<ClientState>,
    pub(crate) source: Arc<WorkSource>,
    pub(crate) header: Header,
    pub(crate) body: Bytes,
    pub(crate) long: Long,
    /// The prepared statement of an EXECUTE, or of each entry of a batch that has one.
    pub(crate) prepared: Vec<Option<Arc<Prepared<H::Plan>>>>,
    pub(crate) trace: Option<Arc<TraceLog>>,
}

/// The result of the beginning of a request.
enum LongOutcome<P> {
    Statement(Outcome),
    Reply(Reply<P>),
}

impl<H: QueryHandler> LongRequest<H> {
    /// The answer to the request, and the memory that it takes of the client's.
    pub(crate) async fn answer(self) -> (Reply<H::Plan>, Option<Lease>) {
        let (source, client, long) = (self.source.clone(), self.client.clone(), self.long);
        // The memory for the text is held until the request is complete.
        let started = blocking::run_long(long.pool(&source), &source, async move {
            let memory = Body::parse(&self.header, &self.body)
                .map_err(ErrorResponse::from)
                .and_then(|body| long_text::reserve_memory(&body.request, &self.client));
            match memory {
                Ok(memory) => (self.begin_and_write().await, memory),
                Err(error) => (LongOutcome::Reply(Reply::Error(error)), None),
            }
        });
        match started.await {
            Ok((LongOutcome::Statement(outcome), _memory)) => {
                let (response, memory) = complete(outcome, source, client).await;
                (Reply::Response(response), memory)
            }
            Ok((LongOutcome::Reply(reply), _memory)) => (reply, None),
            Err(overloaded) => (Reply::Response(Err(overloaded)), None),
        }
    }

    /// Begins the request, and completes it if it waits for the log or for memory: what was written is then copied to
    /// its memtable on this thread, too.
    async fn begin_and_write(self) -> LongOutcome<H::Plan> {
        let started = self.begin();
        drop(self);
        match started {
            LongOutcome::Statement(Outcome::Pending(pending)) => {
                LongOutcome::Reply(Reply::Response(complete_pending(pending).await.0))
            }
            started => started,
        }
    }

    fn begin(&self) -> LongOutcome<H::Plan> {
        let body = match Body::parse(&self.header, &self.body) {
            Ok(body) => body,
            Err(error) => return LongOutcome::Reply(Reply::Error(error.into())),
        };
        match &body.request {
            Request::Query { query, options } => self.begin_statement(Statement::Text(query), options),
            Request::Execute { id, result_metadata_id, options } => match self.prepared.first() {
                Some(Some(statement)) => {
                    let client_columns = *result_metadata_id;
                    self.begin_statement(Statement::Prepared { statement, client_columns }, options)
                }
                _ => LongOutcome::Reply(Reply::Error(ErrorResponse::unprepared(id))),
            },
            Request::Batch(batch) => self.begin_batch(batch),
            Request::Prepare { query, keyspace } => self.prepare(query, *keyspace),
            _ => LongOutcome::Reply(Reply::Response(Err(QueryError::server("no other request takes long")))),
        }
    }

    fn begin_batch(&self, batch: &Batch<'_>) -> LongOutcome<H::Plan> {
        let mut entries = Vec::with_capacity(batch.queries.len());
        for (query, prepared) in batch.queries.iter().zip(&self.prepared) {
            let statement = match (query.statement, prepared) {
                (BatchStatement::Text(text), _) => BatchStatement::Text(text),
                (BatchStatement::Prepared(_), Some(prepared)) => BatchStatement::Prepared(prepared.clone()),
                (BatchStatement::Prepared(id), None) => {
                    return LongOutcome::Reply(Reply::Error(ErrorResponse::unprepared(id)));
                }
            };
            entries.push(BatchEntry { statement, values: query.values });
        }
        self.begin_statement(Statement::Batch { kind: batch.kind, entries: &entries }, &batch.options)
    }

    fn begin_statement(
        &self,
        statement: Statement<'_, H::Plan>,
        options: &protocol::QueryOptions<'_>,
    ) -> LongOutcome<H::Plan> {
        let (client, version, trace) = (&self.client, self.header.version, self.trace.as_ref());
        let request = query::Request { statement, client, options, version, trace };
        LongOutcome::Statement(self.shared.handler.begin(&request, Turn::NON_BLOCKING, None))
    }

    fn prepare(&self, text: &str, named: Option<&str>) -> LongOutcome<H::Plan> {
        let prepared = self.shared.prepared.prepare(&*self.shared.handler, &self.client, text, named);
        LongOutcome::Reply(match prepared {
            Ok((id, statement)) => Reply::Prepared(id, statement),
            Err(error) => Reply::Response(Err(error)),
        })
    }
}

/// The answer to a request that was begun. Its time limit counts from now on.
async fn complete(outcome: Outcome, source: Arc<WorkSource>, client: Arc<ClientState>) -> CountedResponse {
    match outcome {
        Outcome::Done(Answer::Response(response)) => {
            let memory = blocking::count_memory(&client, &response);
            (*response, memory)
        }
        Outcome::Done(Answer::Written) => (Err(QueryError::server("an answer was written to no output")), None),
        Outcome::Pending(pending) => complete_pending(pending).await,
        Outcome::MustBlock(work) => {
            let limit = *work.limit();
            let deadline = limit.duration().map(|duration| Instant::now() + duration);
            within(&limit, blocking::run(source, client, *work, deadline)).await
        }
    }
}

async fn complete_pending(mut pending: Box<Pending>) -> CountedResponse {
    let limit = *pending.limit();
    within(&limit, poll_fn(move |context| pending.poll(context).map(|response| (response, None)))).await
}

async fn within(limit: &query::TimeLimit, work: impl Future<Output = CountedResponse>) -> CountedResponse {
    match limit.duration() {
        Some(duration) => timeout(duration, work).await.unwrap_or_else(|_| (Err(limit.error()), None)),
        None => work.await,
    }
}
