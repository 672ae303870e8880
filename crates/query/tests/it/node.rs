//! A processor over an engine whose disk is memory, and the shortest ways to ask it.

use std::sync::Arc;

use blockio::SimulatedDisk;
use engine::{Engine, EngineOptions, block_on};
use query::{
    BatchEntry, ClientState, Processor, ProcessorOptions, QueryError, QueryOptions, Response, ResponseBody, Rows,
};

/// A node and one client of it.
pub struct TestNode {
    pub processor: Processor,
    pub client: ClientState,
}

impl TestNode {
    pub fn new() -> TestNode {
        let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
        options.commitlog.segment_size_bytes = 256 << 10;
        options.commitlog.total_space_bytes = 4 << 20;
        options.concurrent_compactors = 0;
        let engine = Engine::open(options).unwrap();
        TestNode { processor: Processor::new(engine, ProcessorOptions::default()), client: ClientState::default() }
    }

    pub fn try_run(&self, statement: &str, options: &QueryOptions<'_>) -> Result<Response, QueryError> {
        block_on(self.processor.query(statement, &self.client, options))
    }

    /// Carries out a statement that must not fail.
    pub fn run(&self, statement: &str) -> Response {
        self.try_run(statement, &QueryOptions::default()).unwrap_or_else(|error| panic!("{statement}: {error:?}"))
    }

    pub fn batch(
        &self,
        kind: cql::ast::BatchKind,
        entries: &[BatchEntry<'_>],
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        block_on(self.processor.batch(kind, entries, &self.client, options))
    }
}

pub fn rows_of(response: Response) -> Rows {
    match response.body {
        ResponseBody::Rows(rows) => rows,
        other => panic!("no rows but {other:?}"),
    }
}
