//! The front door: prepares and carries out statements.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cql::ast::{BatchKind, ParsedStatement, Statement};
use engine::{Engine, Turn};
use model::{BoxCursor, PartitionKey, ReadRange, Schema, Table};
use types::timeuuid;

use crate::Guardrails;
use crate::execution::Execution;
use crate::prepared::Plan;
use crate::preparing::Preparing;
use crate::system::{Node, VirtualTables};
use crate::{Cause, ClientState, Prepared, QueryError, QueryOptions, Response, ResponseBody, Value, Values};
use crate::{ddl, describe, modify, select};

/// What the processor may be told. Names and defaults are those of `cassandra.yaml`.
#[derive(Clone, Debug)]
pub struct ProcessorOptions {
    /// Warn of a read that meets more tombstones than this.
    pub tombstone_warn_threshold: u64,
    /// Fail a read that meets more tombstones than this.
    pub tombstone_failure_threshold: u64,
    /// Warn of a batch larger than this, bytes.
    pub batch_size_warn_threshold_bytes: u64,
    /// Refuse a batch larger than this, bytes.
    pub batch_size_fail_threshold_bytes: u64,
    /// Warn of an unlogged batch over more partitions than this.
    pub unlogged_batch_across_partitions_warn_threshold: usize,
    /// How long a read of given partitions may take (`read_request_timeout`).
    pub read_timeout: Duration,
    /// How long a read of a range of partitions may take (`range_request_timeout`).
    pub range_timeout: Duration,
    /// What one statement may hold at a time, bytes: rows of its answer, rows to be sorted, values of groups. A read
    /// that would hold more fails.
    pub statement_memory_max_bytes: u64,
    /// A page ends behind the row with which it reaches this size.
    pub page_max_bytes: usize,
    /// What requests should not exceed or may not use.
    pub guardrails: Guardrails,
    /// Keep a snapshot of what DROP and TRUNCATE delete.
    pub auto_snapshot: bool,
    /// Who the node is.
    pub node: Node,
}

impl Default for ProcessorOptions {
    fn default() -> Self {
        ProcessorOptions {
            tombstone_warn_threshold: 1_000,
            tombstone_failure_threshold: 100_000,
            batch_size_warn_threshold_bytes: 5 * 1024,
            batch_size_fail_threshold_bytes: 50 * 1024,
            unlogged_batch_across_partitions_warn_threshold: 10,
            read_timeout: Duration::from_secs(5),
            range_timeout: Duration::from_secs(10),
            statement_memory_max_bytes: 256 << 20,
            page_max_bytes: 16 << 20,
            guardrails: Guardrails::default(),
            auto_snapshot: true,
            node: Node::default(),
        }
    }
}

/// A statement of a protocol BATCH.
#[derive(Clone, Copy, Debug)]
pub enum BatchStatement<'a> {
    /// Its text.
    Text(&'a str),
    /// Prepared before.
    Prepared(&'a Prepared),
}

/// A statement of a protocol BATCH and its values.
#[derive(Clone, Copy, Debug)]
pub struct BatchEntry<'a> {
    /// The statement.
    pub statement: BatchStatement<'a>,
    /// Its values by number of the marker.
    pub values: &'a [Value<'a>],
}

/// Prepares and carries out statements. One per node; used by all connections at once.
pub struct Processor {
    engine: Arc<Engine>,
    options: ProcessorOptions,
    virtual_tables: VirtualTables,
    timeuuids: timeuuid::Generator,
    prepended_paths: modify::PrependedPaths,
}

impl Processor {
    /// A processor of statements over this engine.
    pub fn new(engine: Arc<Engine>, options: ProcessorOptions) -> Self {
        let virtual_tables = VirtualTables::new(&engine, &options);
        let node = uuid::Uuid::new_v4().into_bytes();
        let node = u64::from_be_bytes([0, 0, node[0] | 1, node[1], node[2], node[3], node[4], node[5]]);
        let clock_sequence = (node >> 8) as u16 & 0x3fff;
        let timeuuids = timeuuid::Generator::new(clock_sequence, node);
        let prepended_paths = modify::PrependedPaths::new(clock_sequence, node);
        Processor { engine, options, virtual_tables, timeuuids, prepended_paths }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The schema as it is now.
    pub fn schema(&self) -> Arc<Schema> {
        self.engine.schema()
    }

    pub(crate) fn options(&self) -> &ProcessorOptions {
        &self.options
    }

    pub(crate) fn virtual_tables(&self) -> &VirtualTables {
        &self.virtual_tables
    }

    /// Microseconds since the epoch.
    pub(crate) fn now_micros(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros() as i64)
    }

    /// A timeuuid of now that this node never gave before.
    pub(crate) fn next_timeuuid(&self) -> [u8; 16] {
        self.timeuuids.next(self.now_micros())
    }

    /// Makes the paths of elements prepended to lists.
    pub(crate) fn prepended_paths(&self) -> &modify::PrependedPaths {
        &self.prepended_paths
    }

    /// Opens a cursor over rows, stored or virtual, for a reader at `now_seconds`.
    pub(crate) fn read<'c>(
        &'c self,
        table: &'c Arc<Table>,
        range: &ReadRange,
        now_seconds: u32,
        turn: Turn<'_>,
    ) -> Result<BoxCursor<'c>, QueryError> {
        if self.virtual_tables.contains(table) {
            return self.virtual_tables.read(self, table, range);
        }
        Ok(self.engine.read_at(table, range, now_seconds, turn)?)
    }

    /// Refuses a keyspace that a request names for itself and that is not there: before anything else is looked at, as
    /// Cassandra does.
    pub fn check_keyspace(&self, keyspace: Option<&str>) -> Result<(), QueryError> {
        let Some(keyspace) = keyspace else { return Ok(()) };
        if self.engine.borrow_schema().keyspace(keyspace).is_some() || self.virtual_tables.has_keyspace(keyspace) {
            return Ok(());
        }
        Err(QueryError::invalid(format!("Keyspace '{keyspace}' does not exist")))
    }

    /// Prepares a statement; unqualified names are looked up in `keyspace`.
    pub fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Arc<Prepared>, QueryError> {
        self.prepare_parsed(cql::parse(text)?, keyspace).map(Arc::new)
    }

    /// Prepares a statement, and says in how many steps types and functions were chosen, also where that failed. It is
    /// linear in the length of the text.
    pub fn prepare_counting(&self, text: &str, keyspace: Option<&str>) -> (Result<Prepared, QueryError>, u64) {
        let parsed = match cql::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return (Err(error.into()), 0),
        };
        let mut preparing = Preparing::new(self.schema(), keyspace, &self.virtual_tables, &parsed.markers);
        let prepared = self.prepare_with(parsed.statement, &mut preparing);
        (prepared, preparing.findings().borrow().steps())
    }

    fn prepare_parsed(&self, parsed: ParsedStatement, keyspace: Option<&str>) -> Result<Prepared, QueryError> {
        let mut preparing = Preparing::new(self.schema(), keyspace, &self.virtual_tables, &parsed.markers);
        self.prepare_with(parsed.statement, &mut preparing)
    }

    fn prepare_with(&self, statement: Statement, preparing: &mut Preparing<'_>) -> Result<Prepared, QueryError> {
        let (schema_version, keyspace) = (preparing.schema.version, preparing.keyspace);
        self.options.guardrails.flags.check(&statement, keyspace)?;
        let plan = plan(statement, preparing)?;
        let result_metadata = match &plan {
            Plan::Select(select) => Some(select.result_metadata()),
            Plan::Describe(describe) => Some(describe::result_metadata(describe)),
            _ => None,
        };
        Ok(Prepared {
            variables: preparing.variables(),
            partition_key_bind_indexes: preparing.partition_key_bind_indexes(),
            result_metadata,
            warnings: Vec::new(),
            schema_version,
            keyspace: keyspace.map(Arc::from),
            plan,
            tables: preparing.tables().to_vec(),
        })
    }

    /// Carries out a prepared statement.
    pub async fn execute(
        &self,
        prepared: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        check_value_count(prepared, options)?;
        self.carry_out(prepared, client, options).await
    }

    /// Appends to `cells` the rows that a prepared SELECT asks for, in the form of [`crate::Rows::cells`], if they are
    /// a few of one partition and found at once; how many they are. `None`, without any effect, for everything
    /// else, and if the statement is not current any more.
    pub fn find_rows(
        &self,
        prepared: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
        cells: &mut Vec<u8>,
    ) -> Option<usize> {
        let (Plan::Select(select), Values::Positional(values)) = (&prepared.plan, options.values) else { return None };
        if prepared.variables.len() != values.len() || self.options.guardrails.watches_reads() {
            return None;
        }
        let schema = self.engine.borrow_schema();
        if !prepared.is_current(&schema) {
            return None;
        }
        let execution = Execution::new(self, client, options, values, prepared.keyspace.as_deref(), &schema);
        select.find_rows(&execution, cells)
    }

    /// Whether the memtables of the statement's table hold so much that [`Processor::look_ahead`] is worth its time.
    /// Writes that wait for the log meet them later, and look ahead then.
    pub fn looks_far(&self, prepared: &Prepared) -> bool {
        let comes_later = prepared.is_modification() && self.engine.writes_wait();
        !comes_later && matches!(&prepared.tables[..], [table] if self.engine.has_large_memtables(table))
    }

    /// Has memtables bring near what prepared statements look at that are carried out right after, by their partitions'
    /// serialized keys.
    pub fn look_ahead(&self, coming: &[(&Prepared, &[u8])]) {
        for same in coming.chunk_by(|(one, _), (other, _)| ptr::eq(*one, *other)) {
            let [table] = &same[0].0.tables[..] else { continue };
            let keys: Vec<PartitionKey> = same.iter().map(|(_, key)| PartitionKey::new(key)).collect();
            self.engine.prefetch(table, &keys.iter().collect::<Vec<_>>());
        }
    }

    /// Carries out a prepared SELECT of stored rows on the spot. `None` for everything else, which
    /// [`Processor::execute`] carries out; an error of the cause [`Cause::WouldWait`] where it would have to wait
    /// for a device.
    pub fn execute_at_once(
        &self,
        prepared: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Option<Result<Response, QueryError>> {
        let (Plan::Select(select), Values::Positional(values)) = (&prepared.plan, options.values) else { return None };
        if self.virtual_tables.contains(select.table()) {
            return None;
        }
        let schema = self.engine.borrow_schema();
        let execution = Execution::new(self, client, options, values, prepared.keyspace.as_deref(), &schema);
        let (body, _) =
            engine::without_waiting(|| check_value_count(prepared, options).and_then(|()| select.execute(&execution)));
        Some(with_warnings(body, execution.into_warnings(), &self.engine))
    }

    /// Prepares and carries out a statement once.
    pub async fn query(
        &self,
        text: &str,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        self.check_keyspace(options.keyspace)?;
        let keyspace = options.keyspace.or(client.keyspace.as_deref());
        options.note(|| format!("Parsing {text}"));
        let parsed = cql::parse(text)?;
        options.note(|| "Preparing statement".to_owned());
        let prepared = self.prepare_parsed(parsed, keyspace)?;
        if prepared.variables.len() != value_count(&prepared, options.values) {
            return Err(QueryError::invalid("Invalid amount of bind variables"));
        }
        self.carry_out(&prepared, client, options).await
    }

    async fn carry_out(
        &self,
        prepared: &Prepared,
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        let ordered;
        let values = match options.values {
            Values::Positional(values) => values,
            Values::Named(named) => {
                ordered = order_by_name(prepared, named).collect::<Vec<_>>();
                &ordered
            }
        };
        let schema = self.engine.borrow_schema();
        let execution = Execution::new(self, client, options, values, prepared.keyspace.as_deref(), &schema);
        let body = loop {
            let body = self.dispatch(&prepared.plan, &execution).await;
            if !execution.begins_anew(&body).await {
                break body;
            }
        };
        with_warnings(body, execution.into_warnings(), &self.engine)
    }

    async fn dispatch(&self, plan: &Plan, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
        match plan {
            Plan::Select(select) => select.execute(execution),
            Plan::Modification(modification) => modification.execute(execution).await,
            Plan::Batch(batch) => batch.execute(execution).await,
            Plan::Use(keyspace) => {
                self.check_keyspace(Some(keyspace))?;
                Ok(ResponseBody::SetKeyspace(keyspace.clone()))
            }
            Plan::Truncate(table) => modify::truncate(table, execution).await,
            Plan::Describe(statement) => describe::execute(statement, execution),
            Plan::Schema(statement) => ddl::execute(statement, execution).await,
        }
    }

    /// Carries out a protocol BATCH.
    pub async fn batch(
        &self,
        kind: BatchKind,
        entries: &[BatchEntry<'_>],
        client: &ClientState,
        options: &QueryOptions<'_>,
    ) -> Result<Response, QueryError> {
        self.check_keyspace(options.keyspace)?;
        let keyspace = options.keyspace.or(client.keyspace.as_deref());
        let mut parsed = Vec::with_capacity(entries.len());
        for entry in entries {
            parsed.push(match entry.statement {
                BatchStatement::Text(text) => Some(self.prepare_parsed(cql::parse(text)?, keyspace)?),
                BatchStatement::Prepared(_) => None,
            });
        }
        let mut statements = Vec::with_capacity(entries.len());
        for (entry, parsed) in entries.iter().zip(&parsed) {
            let prepared = match (entry.statement, parsed) {
                (BatchStatement::Prepared(prepared), _) => prepared,
                (_, Some(parsed)) => parsed,
                (BatchStatement::Text(_), None) => continue,
            };
            let Plan::Modification(modification) = &prepared.plan else {
                let message = "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.";
                return Err(QueryError::invalid(message));
            };
            let (expected, got) = (prepared.variables.len(), entry.values.len());
            if expected != got {
                let message = format!("There were {expected} markers(?) in CQL but {got} bound variables");
                return Err(QueryError::invalid(message));
            }
            statements.push((&**modification, entry.values));
        }
        let schema = self.engine.borrow_schema();
        let execution = Execution::new(self, client, options, &[], keyspace, &schema);
        let body = loop {
            let body = modify::execute_batch(kind, &statements, &execution).await;
            if !execution.begins_anew(&body).await {
                break body;
            }
        };
        with_warnings(body, execution.into_warnings(), &self.engine)
    }
}

fn check_value_count(prepared: &Prepared, options: &QueryOptions<'_>) -> Result<(), QueryError> {
    let (expected, got) = (prepared.variables.len(), value_count(prepared, options.values));
    if expected != got {
        let message = format!("there were {expected} markers(?) in CQL but {got} bound variables");
        return Err(QueryError::invalid(message));
    }
    Ok(())
}

/// For how many markers there is a value; of values by number, how many there are.
fn value_count(prepared: &Prepared, values: Values<'_>) -> usize {
    match values {
        Values::Positional(values) => values.len(),
        Values::Named(named) => order_by_name(prepared, named).count(),
    }
}

/// The answer with the warnings of its making; a failure has them too.
pub(crate) fn with_warnings(
    body: Result<ResponseBody, QueryError>,
    warnings: Vec<String>,
    engine: &Engine,
) -> Result<Response, QueryError> {
    match body {
        Ok(body) => Ok(Response { body, warnings }),
        Err(error) => {
            if let Cause::Disk(kind) = error.cause {
                engine.disk_failed(kind, &error.message);
            }
            Err(QueryError { warnings, ..error })
        }
    }
}

fn plan(statement: Statement, preparing: &mut Preparing<'_>) -> Result<Plan, QueryError> {
    Ok(match statement {
        Statement::Select(select) => Plan::Select(Box::new(select::prepare(&select, preparing)?)),
        Statement::Insert(_) | Statement::InsertJson(_) | Statement::Update(_) | Statement::Delete(_) => {
            Plan::Modification(Box::new(modify::prepare(statement, preparing)?))
        }
        Statement::Batch(batch) => Plan::Batch(Box::new(modify::prepare_batch(batch, preparing)?)),
        Statement::Use(keyspace) => Plan::Use(keyspace.as_str().into()),
        Statement::Truncate(name) => Plan::Truncate(preparing.table(&name)?),
        Statement::Describe(describe) => Plan::Describe(describe),
        other => {
            ddl::prepare(&other, preparing)?;
            Plan::Schema(Box::new(other))
        }
    })
}

/// Brings values that were sent by name into the order of the markers; those of no marker are left out.
fn order_by_name<'v>(prepared: &Prepared, named: &[(&str, Value<'v>)]) -> impl Iterator<Item = Value<'v>> {
    // Of two values of one name the last counts.
    let values: HashMap<&str, Value<'v>> = named.iter().copied().collect();
    prepared.variables.iter().filter_map(move |variable| values.get(&*variable.name).copied())
}
