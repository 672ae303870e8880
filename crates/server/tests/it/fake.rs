//! A handler whose action depends on the first word of a statement. `SELECT scan` ends only when it is cancelled.

use query::{
    ChangeKind, ClientState, ColumnSpec, QueryError, QueryOptions, Response, ResponseBody, ResultColumns, Rows,
    SchemaChange, SchemaTarget,
};
use server::{BatchEntry, BatchKind, Listener, QueryHandler, Server, ServerOptions, StatementInfo};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};
use types::CqlType;

pub struct Fake {
    /// A statement `WAIT n` is complete when this is at least n.
    pub gate: watch::Sender<u64>,
    /// The number of executed statements.
    pub executed: AtomicU64,
    /// The version of the schema, which also determines the columns of `SELECT *`.
    pub schema: AtomicU64,
    /// The keys of the requests that were prefetched, with the statement's text.
    pub looked_ahead: Mutex<Vec<(String, Vec<u8>)>>,
}

pub struct Statement {
    text: String,
    schema: u64,
    markers: Vec<ColumnSpec>,
    partition_key: Vec<u16>,
    result: Option<Arc<ResultColumns>>,
}

/// A server on a free port, and the thread that runs it.
pub struct Running {
    pub address: SocketAddr,
    pub handler: Arc<Fake>,
    pub metrics: Arc<server::Metrics>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub fn serve() -> Running {
    serve_with(ServerOptions::default())
}

pub fn serve_with(options: ServerOptions) -> Running {
    let options = ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..options };
    let (gate, _) = watch::channel(0);
    let handler =
        Arc::new(Fake { gate, executed: AtomicU64::new(0), schema: AtomicU64::new(0), looked_ahead: Mutex::default() });
    let (stop, stopped) = oneshot::channel();
    let (started, ready) = std::sync::mpsc::channel();
    let given = handler.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = Listener::bind(options).await.unwrap();
            let address = listener.local_addr();
            let server = Server::new(listener, given);
            started.send((address, server.metrics())).unwrap();
            server.run(async { drop(stopped.await) }).await;
        });
    });
    let (address, metrics) = ready.recv().unwrap();
    Running { address, handler, metrics, stop: Some(stop), thread: Some(thread) }
}

impl Running {
    /// Stops the server and waits until it has.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handler.gate.send_replace(u64::MAX);
        self.stop();
    }
}

fn column(name: &str) -> ColumnSpec {
    ColumnSpec { keyspace: "ks".into(), table: "t".into(), name: name.into(), ty: CqlType::Text }
}

impl Fake {
    async fn answer(&self, text: &str, client: &ClientState) -> Result<Response, QueryError> {
        let mut words = text.split(' ');
        let (verb, argument) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let body = match verb {
            "WAIT" => {
                let number = argument.parse().unwrap();
                self.gate.subscribe().wait_for(|gate| *gate >= number).await.unwrap();
                ResponseBody::Void
            }
            "INSERT" => {
                self.gate.subscribe().wait_for(|gate| *gate > 0).await.unwrap();
                ResponseBody::Void
            }
            "TRUNCATE" => {
                while *self.gate.borrow() == 0 {
                    std::thread::yield_now();
                }
                ResponseBody::Void
            }
            "USE" => ResponseBody::SetKeyspace(argument.into()),
            "CREATE" => {
                let change = change(ChangeKind::Created, SchemaTarget::Table(argument.into()));
                ResponseBody::SchemaChange { change, contained: Vec::new() }
            }
            "DROP" => {
                let contained = vec![change(ChangeKind::Dropped, SchemaTarget::Table("t".into()))];
                ResponseBody::SchemaChange { change: change(ChangeKind::Dropped, SchemaTarget::Keyspace), contained }
            }
            "KEYSPACE" => rows(vec![column("keyspace")], client.keyspace.as_deref().unwrap_or("none").as_bytes()),
            "ROW" => rows(vec![column("size")], &vec![b'x'; argument.parse().unwrap()]),
            "SELECT" => rows(self.columns(), b"v"),
            _ => return Err(QueryError::syntax(format!("no such thing: {verb}"))),
        };
        self.executed.fetch_add(1, Ordering::SeqCst);
        Ok(Response { body, warnings: if argument == "warn" { vec!["careful".into()] } else { Vec::new() } })
    }

    fn columns(&self) -> Vec<ColumnSpec> {
        (0..=self.schema.load(Ordering::SeqCst)).map(|number| column(&format!("c{number}"))).collect()
    }
}

/// A change of the keyspace `ks`, or of an object in it.
fn change(kind: ChangeKind, target: SchemaTarget) -> SchemaChange {
    SchemaChange { kind, target, keyspace: "ks".into() }
}

/// One row with the same value in each column.
fn rows(columns: Vec<ColumnSpec>, value: &[u8]) -> ResponseBody {
    let cell = [&(value.len() as u32).to_be_bytes()[..], value].concat();
    let cells = cell.repeat(columns.len());
    let metadata = Arc::new(ResultColumns::new(columns));
    ResponseBody::Rows(Rows { metadata, paging_state: None, row_count: 1, cells })
}

impl QueryHandler for Fake {
    type Statement = Statement;

    fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Arc<Statement>, QueryError> {
        if text.contains("unqualified") && keyspace.is_none() {
            return Err(QueryError::invalid("No keyspace has been specified."));
        }
        let schema = self.schema.load(Ordering::SeqCst);
        if text.contains("dropped") && schema > 0 {
            return Err(QueryError::invalid("table dropped does not exist"));
        }
        let result = text.starts_with("SELECT").then(|| Arc::new(ResultColumns::new(self.columns())));
        // The key's columns of `pair` are bound in the other order.
        let (markers, partition_key) = match text.contains("pair") {
            true => (vec![column("second"), column("first")], vec![1, 0]),
            false => (vec![column("marker")], vec![0]),
        };
        Ok(Arc::new(Statement { text: text.into(), schema, markers, partition_key, result }))
    }

    fn describe<'s>(&self, statement: &'s Statement) -> StatementInfo<'s> {
        StatementInfo {
            markers: &statement.markers,
            partition_key: &statement.partition_key,
            result: statement.result.as_ref(),
            warnings: &[],
            is_modification: statement.text.starts_with("INSERT"),
        }
    }

    fn is_current(&self, statement: &Statement) -> bool {
        statement.schema == self.schema.load(Ordering::SeqCst)
    }

    fn looks_far(&self, statement: &Statement) -> bool {
        statement.text.contains("far")
    }

    fn look_ahead(&self, coming: &[(&Statement, &[u8])]) {
        let coming = coming.iter().map(|(statement, key)| (statement.text.clone(), key.to_vec()));
        self.looked_ahead.lock().unwrap().extend(coming);
    }

    async fn query(
        &self,
        text: &str,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        if text == "SELECT scan" {
            while !options.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        }
        self.answer(text, client).await
    }

    async fn execute(
        &self,
        statement: &Statement,
        client: &ClientState,
        _: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        self.answer(&statement.text, client).await
    }

    async fn batch(
        &self,
        _: BatchKind,
        entries: &[BatchEntry<'_, Statement>],
        _: &ClientState,
        _: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        self.executed.fetch_add(entries.len() as u64, Ordering::SeqCst);
        Ok(Response { body: ResponseBody::Void, warnings: Vec::new() })
    }
}
