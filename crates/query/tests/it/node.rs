//! A processor over an engine on a simulated disk, and short functions to use it.

use std::sync::Arc;
use std::time::Duration;

use blockio::SimulatedDisk;
use commitlog::SyncMode;
use engine::{Engine, EngineOptions};
use protocol::Version;
use query::{
    Answer, BatchEntry, BatchKind, ClientState, ColumnSpec, Outcome, Prepared, Processor, ProcessorOptions, QueryError,
    QueryHandler, QueryOptions, Request, Response, ResponseBody, Rows, Statement, TraceLog, Turn,
};
use types::collection;

/// Longer than a statement takes on any machine. Tests of time limits set their own.
const UNHURRIED: Duration = Duration::from_secs(3600);

/// A node and one client of it.
pub struct TestNode {
    pub processor: Arc<Processor>,
    pub client: Arc<ClientState>,
}

impl TestNode {
    pub fn new() -> TestNode {
        TestNode::with_options(ProcessorOptions {
            read_timeout: UNHURRIED,
            range_timeout: UNHURRIED,
            write_timeout: UNHURRIED,
            ..ProcessorOptions::default()
        })
    }

    pub fn with_options(processor_options: ProcessorOptions) -> TestNode {
        TestNode::in_directory(&SimulatedDisk::new(), "/node", processor_options)
    }

    /// A node on a disk that another node may have used.
    pub fn on_disk(disk: &SimulatedDisk) -> TestNode {
        TestNode::in_directory(disk, "/node", ProcessorOptions::default())
    }

    /// A node with all its files in this directory.
    pub fn in_directory(disk: &SimulatedDisk, directory: &str, processor_options: ProcessorOptions) -> TestNode {
        TestNode::with_engine(disk, directory, processor_options, |_| {})
    }

    /// A node whose engine has other options than most tests need.
    pub fn with_engine(
        disk: &SimulatedDisk,
        directory: &str,
        processor_options: ProcessorOptions,
        change: impl FnOnce(&mut EngineOptions),
    ) -> TestNode {
        let mut options = EngineOptions::new(Arc::new(disk.clone()), directory);
        options.commitlog.segment_size_bytes = 256 << 10;
        options.commitlog.total_space_bytes = 4 << 20;
        options.commitlog.sync = SyncMode::Batch;
        options.concurrent_compactors = 0;
        change(&mut options);
        let engine = Engine::open(options).unwrap();
        let processor = Arc::new(Processor::new(engine, processor_options));
        TestNode { processor, client: Arc::new(ClientState::default()) }
    }

    /// A node with the keyspace `ks`, which is the client's, and these tables.
    pub fn with(statements: &[&str]) -> TestNode {
        let node = TestNode::new().with_keyspace();
        statements.iter().for_each(|statement| drop(node.run(statement)));
        node
    }

    /// The same node with the keyspace `ks`, which is the client's.
    pub fn with_keyspace(mut self) -> TestNode {
        self.create_keyspace();
        self
    }

    /// Creates the keyspace `ks` and makes it the client's.
    pub fn create_keyspace(&mut self) {
        self.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        self.use_keyspace("ks");
    }

    /// The client is in this keyspace from now on.
    pub fn use_keyspace(&mut self, name: &str) {
        self.client = Arc::new(ClientState { keyspace: Some(name.into()), ..(*self.client).clone() });
    }

    pub fn try_run(&self, statement: &str, options: &QueryOptions<'_>) -> Result<Response, QueryError> {
        self.begin_statement(Statement::Text(statement), options, Turn::BLOCKING, None).into_response()
    }

    /// Begins a request of the node's client.
    pub fn begin_statement(
        &self,
        statement: Statement<'_>,
        options: &QueryOptions<'_>,
        turn: Turn<'_>,
        out: Option<&mut Vec<u8>>,
    ) -> Outcome {
        let request = Request { statement, client: &self.client, options, version: Version::V5, trace: None };
        self.processor.begin(&request, turn, out)
    }

    pub fn begin(
        &self,
        prepared: &Arc<Prepared>,
        options: &QueryOptions<'_>,
        turn: Turn<'_>,
        out: Option<&mut Vec<u8>>,
    ) -> Outcome {
        let statement = Statement::Prepared { statement: prepared, client_columns: None };
        self.begin_statement(statement, options, turn, out)
    }

    /// Carries out a prepared statement where it may wait.
    pub fn execute(&self, prepared: &Arc<Prepared>, options: &QueryOptions<'_>) -> Result<Response, QueryError> {
        self.begin(prepared, options, Turn::BLOCKING, None).into_response()
    }

    /// Appends the cells of the rows that a prepared SELECT asks for if they are found at once; how many rows that are.
    pub fn find_rows(
        &self,
        prepared: &Arc<Prepared>,
        options: &QueryOptions<'_>,
        cells: &mut Vec<u8>,
    ) -> Option<usize> {
        // After the kind, the flags, and the number of columns.
        const COUNT_AT: usize = 16;
        let options = QueryOptions { skip_metadata: true, ..*options };
        let mut out = b"before".to_vec();
        let outcome = self.begin(prepared, &options, Turn::NON_BLOCKING, Some(&mut out));
        let body = out.strip_prefix(b"before").unwrap();
        if !matches!(outcome, Outcome::Done(Answer::Written)) {
            assert!(body.is_empty(), "nothing is left in the output");
            return None;
        }
        cells.extend_from_slice(&body[COUNT_AT..]);
        Some(u32::from_be_bytes(body[COUNT_AT - 4..COUNT_AT].try_into().unwrap()) as usize)
    }

    /// Executes a statement that must succeed.
    pub fn run(&self, statement: &str) -> Response {
        self.try_run(statement, &QueryOptions::default()).unwrap_or_else(|error| panic!("{statement}: {error:?}"))
    }

    /// The error message of a statement.
    pub fn failure(&self, statement: &str) -> String {
        match self.try_run(statement, &QueryOptions::default()) {
            Ok(response) => panic!("{statement} succeeded: {response:?}"),
            Err(error) => error.message,
        }
    }

    /// The rows of a statement's result, each as CQL literals joined by blanks, `null` for null.
    pub fn rows(&self, statement: &str) -> Vec<String> {
        self.rows_with(statement, &QueryOptions::default())
    }

    /// Like [`rows`](Self::rows), with options of the request.
    pub fn rows_with(&self, statement: &str, options: &QueryOptions<'_>) -> Vec<String> {
        let response = self.try_run(statement, options).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        texts(&rows_of(response))
    }

    /// The activities of a statement that must succeed, as its trace has them.
    pub fn trace(&self, statement: &str) -> Vec<String> {
        let (trace, options) = (Arc::new(TraceLog::begin()), QueryOptions::default());
        let statement = Statement::Text(statement);
        let (client, version) = (&self.client, Version::V5);
        let request = Request { statement, client, options: &options, version, trace: Some(&trace) };
        self.processor.begin(&request, Turn::BLOCKING, None).into_response().unwrap();
        trace.events().into_iter().map(|event| event.activity).collect()
    }

    pub fn batch(
        &self,
        kind: BatchKind,
        entries: &[BatchEntry<'_>],
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        self.begin_statement(Statement::Batch { kind, entries }, options, Turn::BLOCKING, None).into_response()
    }
}

pub fn rows_of(response: Response) -> Rows {
    match response.body {
        ResponseBody::Rows(rows) => rows,
        other => panic!("no rows but {other:?}"),
    }
}

pub fn texts(rows: &Rows) -> Vec<String> {
    let mut rest = rows.cells.as_slice();
    let mut cell = |column: &ColumnSpec| match collection::read_part(&mut rest).unwrap() {
        Some(bytes) => column.ty.to_cql_literal(bytes),
        None => "null".to_owned(),
    };
    let row = |_| rows.metadata.specs().iter().map(&mut cell).collect::<Vec<_>>().join(" ");
    let texts: Vec<String> = (0..rows.row_count).map(row).collect();
    assert!(rest.is_empty(), "cells left over");
    texts
}
