//! A handler whose action depends on the first word of a statement.

use query::{
    Authentication, ChangeKind, ClientState, ColumnSpec, KeptForms, MetadataForm, MustBlock, Need, Outcome, Pending,
    Prepared, QueryError, QueryHandler, Request, Response, ResponseBody, ResultColumns, Rows, SchemaChange,
    SchemaTarget, Statement, TimeLimit, Turn, Value, Values, WriteType,
};
use server::{Listener, Server, ServerOptions};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::CqlType;

pub struct Fake {
    /// A statement `WAIT n` is complete when this is at least n.
    pub gate: watch::Sender<u64>,
    /// The number of executed statements.
    pub executed: AtomicU64,
    /// The version of the schema, which also determines the columns of `SELECT *`.
    pub schema: AtomicU64,
    /// The statements that were offered for a prefetch: the text and the first value, if there is one.
    pub prefetched: Mutex<Vec<(String, Option<Vec<u8>>)>>,
    /// The time limit of writes and truncations.
    pub time_limit: Duration,
    /// `WORK` holds its thread until this is set.
    pub may_work: AtomicBool,
}

/// What the handler keeps of a prepared statement.
pub struct FakePlan {
    schema: u64,
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
    serve_with_limit(options, Duration::from_secs(60))
}

/// A server whose connections share one thread.
pub fn serve_on_one_thread() -> Running {
    serve_on(1, ServerOptions::default(), Duration::from_secs(60))
}

/// A server whose writes and truncations may take so long.
pub fn serve_with_limit(options: ServerOptions, time_limit: Duration) -> Running {
    serve_on(2, options, time_limit)
}

fn serve_on(threads: usize, options: ServerOptions, time_limit: Duration) -> Running {
    let options = ServerOptions { listen: (options.listen.ip(), 0).into(), ..options };
    let (gate, _) = watch::channel(0);
    let (executed, schema) = (AtomicU64::new(0), AtomicU64::new(0));
    let may_work = AtomicBool::new(false);
    let handler = Arc::new(Fake { gate, executed, schema, prefetched: Mutex::default(), time_limit, may_work });
    let (stop, stopped) = oneshot::channel();
    let (started, ready) = std::sync::mpsc::channel();
    let given = handler.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
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
        self.handler.may_work.store(true, Ordering::SeqCst);
        self.handler.gate.send_replace(u64::MAX);
        self.stop();
    }
}

fn column(name: &str) -> ColumnSpec {
    ColumnSpec { keyspace: "ks".into(), table: "t".into(), name: name.into(), ty: CqlType::Text }
}

impl Fake {
    /// Answers what needs no waiting.
    fn answer(&self, text: &str, client: &ClientState) -> Result<Response, QueryError> {
        let mut words = text.split(' ');
        let (verb, argument) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let body = match verb {
            "WAIT" | "WORK" | "INSERT" | "TRUNCATE" | "SCAN" => ResponseBody::Void,
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
            "EXECUTED" => {
                let executed = self.executed.load(Ordering::SeqCst);
                rows(vec![column("executed")], executed.to_string().as_bytes())
            }
            "ADDRESS" => {
                let address = client.address.map_or_else(String::new, |address| address.to_string());
                rows(vec![column("address")], address.as_bytes())
            }
            "ROW" => rows(vec![column("size")], &vec![b'x'; argument.parse().unwrap()]),
            "SELECT" => rows(self.columns(), b"v"),
            _ => return Err(QueryError::syntax(format!("no such thing: {verb}"))),
        };
        self.executed.fetch_add(1, Ordering::SeqCst);
        Ok(Response { body, warnings: if argument == "warn" { vec!["careful".into()] } else { Vec::new() } })
    }

    /// Waits until this number of statements hold a thread or wait for the gate.
    pub fn wait_for_scans(&self, count: usize) {
        while self.gate.receiver_count() != count {
            std::thread::yield_now();
        }
    }

    /// Begins a statement: `WAIT n` and `INSERT` wait for the gate, `WORK` waits for it and then works on the
    /// connection's thread for longer than a turn; `TRUNCATE` and `SCAN` hold a thread until it opens; a scan ends when
    /// it is cancelled, too.
    fn begin_text(self: &Arc<Self>, text: &str, client: &Arc<ClientState>) -> Outcome {
        let (fake, text, client) = (self.clone(), text.to_owned(), client.clone());
        let opens_at = text.strip_prefix("WAIT ").map_or(1, |number| number.parse().unwrap());
        let limit = match text.split(' ').next() {
            Some("WAIT" | "WORK") => TimeLimit::NONE,
            Some("INSERT") => TimeLimit::write(self.time_limit, query::Consistency::One, WriteType::Simple),
            Some("TRUNCATE" | "SCAN") => {
                let is_scan = text.starts_with("SCAN");
                let limit = TimeLimit::truncate(self.time_limit);
                let need = if is_scan { Need::Processor } else { Need::Requests };
                return Outcome::MustBlock(Box::new(MustBlock::new(limit, need, move |_, cancelled| {
                    let gate = fake.gate.subscribe();
                    while *gate.borrow() == 0 && !(is_scan && cancelled.load(Ordering::SeqCst)) {
                        std::thread::yield_now();
                    }
                    fake.answer(&text, &client)
                })));
            }
            _ => return Outcome::done(self.answer(&text, &client)),
        };
        Outcome::Pending(Box::new(Pending::of_future(limit, async move {
            fake.gate.subscribe().wait_for(|gate| *gate >= opens_at).await.unwrap();
            if text == "WORK" {
                fake.work();
            }
            fake.answer(&text, &client)
        })))
    }

    fn work(&self) {
        while !self.may_work.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(3));
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
    ResponseBody::Rows(Rows { metadata, form: MetadataForm::default(), paging_state: None, row_count: 1, cells })
}

/// The form of the columns that the query layer chooses.
fn with_form(outcome: Outcome, statement: &Prepared<FakePlan>, client_columns: Option<&[u8]>, skip: bool) -> Outcome {
    let Outcome::Done(query::Answer::Response(response)) = outcome else { return outcome };
    let mut response = match *response {
        Ok(response) => response,
        Err(error) => return Outcome::done(Err(error)),
    };
    if let ResponseBody::Rows(rows) = &mut response.body {
        let changed_id = client_columns.filter(|id| *id != statement.result_id()).map(|_| *statement.result_id());
        rows.form = MetadataForm { skip: skip && changed_id.is_none(), changed_id };
    }
    Outcome::done(Ok(response))
}

impl Authentication for Fake {}

impl QueryHandler for Fake {
    type Plan = FakePlan;

    fn prepare(
        &self,
        client: &ClientState,
        text: &str,
        named: Option<&str>,
        kept: KeptForms<'_, FakePlan>,
    ) -> Result<Arc<Prepared<FakePlan>>, QueryError> {
        let schema = self.schema.load(Ordering::SeqCst);
        let known = kept.in_keyspace.or(kept.qualified);
        if let Some(known) = known.filter(|known| known.plan.schema == schema) {
            return Ok(known.clone());
        }
        let is_unqualified = text.contains("unqualified");
        let keyspace = named.or(client.keyspace.as_deref()).filter(|_| is_unqualified).map(Arc::from);
        if is_unqualified && keyspace.is_none() {
            return Err(QueryError::invalid("No keyspace has been specified."));
        }
        if text.contains("dropped") && schema > 0 {
            return Err(QueryError::invalid("table dropped does not exist"));
        }
        let mut prepared = Prepared::new(text.into(), keyspace, vec![column("marker")], FakePlan { schema });
        prepared.partition_key_bind_indexes = vec![0];
        prepared.plan_size_bytes = if text.contains("huge") { 1 << 20 } else { 1000 };
        prepared.result_metadata = text.starts_with("SELECT").then(|| Arc::new(ResultColumns::new(self.columns())));
        prepared.check_size(kept.size_bytes_max)?;
        Ok(Arc::new(prepared))
    }

    fn begin(self: &Arc<Self>, request: &Request<'_, FakePlan>, _: Turn<'_>, _: Option<&mut Vec<u8>>) -> Outcome {
        if request.options.page_size == Some(0) {
            return Outcome::done(Err(QueryError::protocol("The page size cannot be 0")));
        }
        match &request.statement {
            Statement::Text(text) => self.begin_text(text, request.client),
            Statement::Prepared { statement, client_columns } => {
                let is_stale = statement.plan.schema != self.schema.load(Ordering::SeqCst);
                if is_stale && statement.result_metadata.is_some() {
                    let id = statement.id().to_vec();
                    return Outcome::done(Err(QueryError::new(query::ErrorKind::Unprepared { id }, "not prepared")));
                }
                let outcome = self.begin_text(&statement.text, request.client);
                with_form(outcome, statement, *client_columns, request.options.skip_metadata)
            }
            Statement::Batch { entries, .. } => {
                self.executed.fetch_add(entries.len() as u64, Ordering::SeqCst);
                Outcome::done(Ok(Response { body: ResponseBody::Void, warnings: Vec::new() }))
            }
            Statement::Unknown { id, .. } => {
                let error = protocol::ErrorResponse::unprepared(id);
                Outcome::done(Err(QueryError::new(error.kind, error.message)))
            }
        }
    }

    fn prefetch<'c>(
        &self,
        coming: impl Iterator<Item = (&'c Prepared<FakePlan>, impl FnOnce() -> Option<Values<'c>>)>,
    ) {
        let value = |values: Values<'_>| match values.iter().next() {
            Some((_, Value::Bytes(value))) => Some(value.to_vec()),
            _ => None,
        };
        let coming = coming.map(|(statement, values)| (statement.text.to_string(), values().and_then(value)));
        self.prefetched.lock().unwrap().extend(coming);
    }
}
