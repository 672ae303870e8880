//! The query layer behind the seam.

use crate::handler::{BatchEntry, BatchKind, BatchStatement, QueryHandler, StatementInfo};
use query::{Begun, ClientState, LogHold, Prepared, Processor, QueryError, QueryOptions, Response};
use std::sync::Arc;
use std::task::Waker;

impl QueryHandler for Processor {
    type Statement = Prepared;

    fn check_keyspace(&self, keyspace: Option<&str>) -> Result<(), QueryError> {
        Processor::check_keyspace(self, keyspace)
    }

    fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Arc<Prepared>, QueryError> {
        Processor::prepare(self, text, keyspace)
    }

    fn bunch(&self, waker: &Waker) -> Option<LogHold> {
        Some(self.engine().hold_log(waker))
    }

    fn describe<'s>(&self, statement: &'s Prepared) -> StatementInfo<'s> {
        StatementInfo {
            markers: &statement.variables,
            partition_key: &statement.partition_key_bind_indexes,
            result: statement.result_metadata.as_ref(),
            warnings: &statement.warnings,
            is_modification: statement.is_modification(),
            size_bytes: statement.size_bytes(),
        }
    }

    fn is_current(&self, statement: &Prepared) -> bool {
        statement.is_current(&self.engine().borrow_schema())
    }

    async fn query(
        &self,
        text: &str,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        Processor::query(self, text, client, options).await
    }

    async fn execute(
        &self,
        statement: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        Processor::execute(self, statement, client, options).await
    }

    fn execute_at_once(
        &self,
        statement: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Option<Result<Response, QueryError>> {
        Processor::execute_at_once(self, statement, client, options)
    }

    fn find_rows(
        &self,
        statement: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
        cells: &mut Vec<u8>,
    ) -> Option<usize> {
        Processor::find_rows(self, statement, client, options, cells)
    }

    fn looks_far(&self, statement: &Prepared) -> bool {
        Processor::looks_far(self, statement)
    }

    fn look_ahead(&self, coming: &[(&Prepared, &[u8])]) {
        Processor::look_ahead(self, coming);
    }

    fn begin(&self, statement: &Prepared, client: &ClientState, options: &QueryOptions<'_>) -> Option<Begun> {
        Processor::begin(self, statement, client, options)
    }

    async fn batch(
        &self,
        kind: BatchKind,
        entries: &[BatchEntry<'_, Prepared>],
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        let kind = match kind {
            BatchKind::Logged => cql::ast::BatchKind::Logged,
            BatchKind::Unlogged => cql::ast::BatchKind::Unlogged,
            BatchKind::Counter => cql::ast::BatchKind::Counter,
        };
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| query::BatchEntry {
                statement: match &entry.statement {
                    BatchStatement::Text(text) => query::BatchStatement::Text(text),
                    BatchStatement::Prepared(prepared) => query::BatchStatement::Prepared(prepared),
                },
                values: &entry.values,
            })
            .collect();
        Processor::batch(self, kind, &entries, client, options).await
    }
}
