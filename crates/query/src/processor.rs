//! The processor. It holds the state that all statements share, and prepares statements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cql::ast::{ParsedStatement, Statement};
use engine::{Engine, Turn};
use model::{BoxCursor, ReadRange, Schema, Table};
use rustix::time::{ClockId, clock_gettime};
use types::timeuuid;

use crate::Guardrails;
use crate::audit::AuditOptions;
use crate::auth::{Auth, AuthOptions};
use crate::execution::Execution;
use crate::list_paths::PrependedPaths;
use crate::modify::ModificationPlan;
use crate::prepared::{Plan, Prepared, Work, plan_size_bytes};
use crate::preparing::Preparing;
use crate::request_logs::RequestLogs;
use crate::system::{Node, VirtualTables};
use crate::{Cause, DiskUsage, QueryError, RequestLog, Response, ResponseBody, ddl, describe, modify, select};

/// The options of the processor. Names and defaults are those of `cassandra.yaml`.
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
    /// The time limit of a read of given partitions (`read_request_timeout`).
    pub read_timeout: Duration,
    /// The time limit of a read of a range of partitions (`range_request_timeout`).
    pub range_timeout: Duration,
    /// The time limit of a write (`write_request_timeout`).
    pub write_timeout: Duration,
    /// The time limit of a conditional write (`cas_contention_timeout`).
    pub cas_contention_timeout: Duration,
    /// The time limit of TRUNCATE (`truncate_request_timeout`).
    pub truncate_timeout: Duration,
    /// The bytes that one statement may hold at a time: rows of its answer, rows to be sorted, values of groups. A read
    /// that would hold more fails.
    pub statement_memory_max_bytes: u64,
    /// A page ends after the row with which it reaches this size.
    pub page_max_bytes: usize,
    /// Limits on what requests may use.
    pub guardrails: Guardrails,
    /// How full the disk is, for the guardrail of writes. The owner of the processor updates it.
    pub disk_usage: Arc<DiskUsage>,
    /// Keep a snapshot of the data that DROP and TRUNCATE delete.
    pub auto_snapshot: bool,
    /// How long such a snapshot is kept (`auto_snapshot_ttl`); `None` is for ever.
    pub auto_snapshot_lifetime: Option<Duration>,
    /// The class of an index for which a statement names none (`default_secondary_index`); `None` if it must name one.
    pub default_index_class: Option<String>,
    /// Whether a storage-attached index goes before a plain one of the same column
    /// (`sai_options.prioritize_over_legacy_index`).
    pub prefers_attached_indexes: bool,
    /// Whether SASI indexes may be created.
    pub sasi_indexes_enabled: bool,
    /// Whether columns may be masked, and masks are applied.
    pub dynamic_data_masking_enabled: bool,
    /// Whether ALTER TABLE may DROP COMPACT STORAGE.
    pub drop_compact_storage_enabled: bool,
    /// Who may log in, and who may do what.
    pub auth: AuthOptions,
    /// The audit log; `None` if there is none.
    pub audit: Option<AuditOptions>,
    /// The full query log; `None` if there is none.
    pub query_log: Option<Arc<dyn RequestLog>>,
    /// The identity of the node.
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
            write_timeout: Duration::from_secs(2),
            cas_contention_timeout: Duration::from_millis(1_800),
            truncate_timeout: Duration::from_secs(60),
            statement_memory_max_bytes: 256 << 20,
            page_max_bytes: 16 << 20,
            guardrails: Guardrails::default(),
            disk_usage: Arc::default(),
            auto_snapshot: true,
            auto_snapshot_lifetime: None,
            default_index_class: Some("legacy_local_table".into()),
            prefers_attached_indexes: false,
            sasi_indexes_enabled: false,
            dynamic_data_masking_enabled: false,
            drop_compact_storage_enabled: false,
            auth: AuthOptions::default(),
            audit: None,
            query_log: None,
            node: Node::default(),
        }
    }
}

/// Prepares and executes statements. A node has one processor, which all connections use at the same time.
pub struct Processor {
    engine: Arc<Engine>,
    options: ProcessorOptions,
    virtual_tables: VirtualTables,
    auth: Auth,
    request_logs: RequestLogs,
    /// Whether guardrails watch the consistency levels of writes.
    watches_write_levels: bool,
    /// Whether guardrails watch the sizes of written values.
    watches_values: bool,
    /// Whether guardrails watch the terms of indexes.
    watches_terms: bool,
    /// Whether guardrails watch the sizes or the consistency levels of reads.
    watches_reads: bool,
    timeuuids: timeuuid::Generator,
    prepended_paths: PrependedPaths,
}

impl Processor {
    /// A processor of statements over this engine.
    pub fn new(engine: Arc<Engine>, options: ProcessorOptions) -> Self {
        let virtual_tables = VirtualTables::new(&engine, &options);
        let node = uuid::Uuid::new_v4().into_bytes();
        let node = u64::from_be_bytes([0, 0, node[0] | 1, node[1], node[2], node[3], node[4], node[5]]);
        let clock_sequence = (node >> 8) as u16 & 0x3fff;
        let timeuuids = timeuuid::Generator::new(clock_sequence, node);
        let prepended_paths = PrependedPaths::new(clock_sequence, node);
        let auth = Auth::new(options.auth);
        let (watches_values, watches_reads) = (options.guardrails.watches_values(), options.guardrails.watches_reads());
        let watches_terms = options.guardrails.watches_terms();
        let watches_write_levels = options.guardrails.write_consistency_levels.is_set();
        let host = SocketAddr::new(options.node.broadcast_address, options.node.storage_port);
        let request_logs = RequestLogs::new(options.audit.clone(), options.query_log.clone(), host);
        Processor {
            request_logs,
            watches_write_levels,
            engine,
            options,
            virtual_tables,
            auth,
            watches_values,
            watches_terms,
            watches_reads,
            timeuuids,
            prepended_paths,
        }
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

    /// Whether written values can cause a warning or an error by their size.
    #[inline]
    pub(crate) fn watches_values(&self) -> bool {
        self.watches_values
    }

    /// Whether terms of indexes can cause a warning or an error by their size.
    #[inline]
    pub(crate) fn watches_terms(&self) -> bool {
        self.watches_terms
    }

    /// Refuses the consistency levels of a write, or warns about them.
    #[inline]
    pub(crate) fn check_write_levels(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        if self.watches_write_levels { self.options.guardrails.check_write_levels(execution) } else { Ok(()) }
    }

    /// Whether reads can cause a warning or an error by their size or their consistency level.
    #[inline]
    pub(crate) fn watches_reads(&self) -> bool {
        self.watches_reads
    }

    /// The audit log and the full query log.
    #[inline]
    pub(crate) fn request_logs(&self) -> &RequestLogs {
        &self.request_logs
    }

    /// Turns the audit log on with these options, or off.
    pub fn set_audit(&self, options: Option<AuditOptions>) {
        self.request_logs.set_audit(options);
    }

    /// Turns the full query log on, or off.
    pub fn set_query_log(&self, log: Option<Arc<dyn RequestLog>>) {
        self.request_logs.set_queries(log);
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.auth
    }

    pub(crate) fn virtual_tables(&self) -> &VirtualTables {
        &self.virtual_tables
    }

    /// Microseconds since the epoch.
    pub(crate) fn now_micros(&self) -> i64 {
        // The arithmetic of `SystemTime` takes as long as the clock itself.
        let now = clock_gettime(ClockId::Realtime);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
    }

    /// A timeuuid of the current time that this node has never returned before.
    pub(crate) fn next_timeuuid(&self) -> [u8; 16] {
        self.timeuuids.next(self.now_micros())
    }

    /// Makes the paths of elements prepended to lists.
    pub(crate) fn prepended_paths(&self) -> &PrependedPaths {
        &self.prepended_paths
    }

    /// Opens a cursor over stored or virtual rows for a reader at `now_seconds`.
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

    /// Refuses a keyspace that a request names for itself and that does not exist. As in Cassandra, this comes before
    /// all other checks.
    pub(crate) fn check_keyspace(&self, keyspace: Option<&str>) -> Result<(), QueryError> {
        let Some(keyspace) = keyspace else { return Ok(()) };
        if self.engine.borrow_schema().keyspace(keyspace).is_some() || self.virtual_tables.has_keyspace(keyspace) {
            return Ok(());
        }
        Err(QueryError::invalid(format!("Keyspace '{keyspace}' does not exist")))
    }

    /// Prepares a statement. Unqualified names belong to `keyspace`.
    pub fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Arc<Prepared>, QueryError> {
        let prepared = self.prepare_checked(text, keyspace)?;
        let (count, limit) = (prepared.variables.len(), usize::from(u16::MAX));
        if count > limit {
            let message = format!("Too many markers(?). {count} markers exceed the allowed maximum of {limit}");
            return Err(QueryError::invalid(message));
        }
        Ok(Arc::new(prepared))
    }

    /// Prepares a statement that is executed later, with those checks that need no values.
    pub(crate) fn prepare_checked(&self, text: &str, keyspace: Option<&str>) -> Result<Prepared, QueryError> {
        let prepared = self.prepare_parsed(text, cql::parse(text)?, keyspace)?;
        match &prepared.plan.work {
            Work::Modification(modification) | Work::Derived(modification) => modification.refuse_with_any_values()?,
            Work::Batch(batch) => batch.statements().iter().try_for_each(ModificationPlan::refuse_with_any_values)?,
            _ => {}
        }
        Ok(prepared)
    }

    /// Prepares a statement, and returns the number of steps in which types and functions were chosen, also if it
    /// failed. The number is linear in the length of the text. For tests.
    #[doc(hidden)]
    pub fn prepare_counting(&self, text: &str, keyspace: Option<&str>) -> (Result<Prepared, QueryError>, u64) {
        let parsed = match cql::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return (Err(error.into()), 0),
        };
        let mut preparing = Preparing::new(self.schema(), keyspace, &self.virtual_tables, &parsed.markers);
        let prepared = self.prepare_with(text, parsed.statement, parsed.tokens, &mut preparing);
        (prepared, preparing.findings().borrow().steps())
    }

    pub(crate) fn prepare_parsed(
        &self,
        text: &str,
        parsed: ParsedStatement,
        keyspace: Option<&str>,
    ) -> Result<Prepared, QueryError> {
        let mut preparing = Preparing::new(self.schema(), keyspace, &self.virtual_tables, &parsed.markers);
        self.prepare_with(text, parsed.statement, parsed.tokens, &mut preparing)
    }

    fn prepare_with(
        &self,
        text: &str,
        statement: Statement,
        tokens: usize,
        preparing: &mut Preparing<'_>,
    ) -> Result<Prepared, QueryError> {
        let (schema_version, keyspace) = (preparing.schema.version, preparing.keyspace);
        preparing.prefers_attached = self.options.prefers_attached_indexes;
        let flags = &self.options.guardrails.flags;
        flags.check_use(&statement)?;
        let mut forbidden = flags.check(&statement, keyspace).err();
        if !self.auth.has_logins()
            && let Some(error) = forbidden.take()
        {
            return Err(error);
        }
        let work = work(statement, preparing)?;
        if let Work::Select(select) = &work
            && select.is_scan()
            && select.uses_index()
            && let Err(error) = flags.check_index_scan()
        {
            if !self.auth.has_logins() {
                return Err(error);
            }
            forbidden.get_or_insert(error);
        }
        let result_metadata = match &work {
            Work::Select(select) => Some(select.result_metadata()),
            Work::Describe(describe) => Some(describe::result_metadata(describe)),
            _ => None,
        };
        let variables = preparing.variables();
        let plan_size_bytes = plan_size_bytes(&work, tokens, variables.len());
        let plan = Plan::new(work, preparing.tables().to_vec(), schema_version, forbidden);
        let mut prepared = Prepared::new(text.into(), keyspace.map(Arc::from), variables, plan);
        prepared.plan_size_bytes = plan_size_bytes;
        prepared.partition_key_bind_indexes = preparing.partition_key_bind_indexes();
        prepared.result_metadata = result_metadata;
        Ok(prepared)
    }
}

/// The answer of a statement with its warnings. An error has warnings too.
pub(crate) fn with_warnings(
    body: Result<ResponseBody, QueryError>,
    warnings: Vec<String>,
    engine: &Engine,
) -> Result<Response, QueryError> {
    match body {
        Ok(body) => Ok(Response { body, warnings }),
        Err(error) => Err(QueryError { warnings, ..noted(error, engine) }),
    }
}

/// Returns the error. If the disk caused it, this reports it to the engine.
pub(crate) fn noted(error: QueryError, engine: &Engine) -> QueryError {
    if let Cause::Disk(kind) = error.cause {
        engine.disk_failed(kind, &error.message);
    }
    error
}

fn work(statement: Statement, preparing: &mut Preparing<'_>) -> Result<Work, QueryError> {
    Ok(match statement {
        Statement::Select(select) => Work::Select(Box::new(select::prepare(&select, preparing)?)),
        Statement::Insert(_) | Statement::InsertJson(_) | Statement::Update(_) | Statement::Delete(_) => {
            let modification = Box::new(modify::prepare(statement, preparing)?);
            if modification.derives() { Work::Derived(modification) } else { Work::Modification(modification) }
        }
        Statement::Batch(batch) => Work::Batch(Box::new(modify::prepare_batch(batch, preparing)?)),
        Statement::Use(keyspace) => Work::Use(keyspace.as_str().into()),
        Statement::Truncate(name) => match preparing.table(&name) {
            Ok(table) => Work::Truncate(table),
            // As in Cassandra, a client without permission is not told that there is no such table. The execution
            // finds both.
            Err(_) => {
                let statement = Statement::Truncate(name);
                ddl::prepare(&statement, preparing)?;
                Work::Schema(Box::new(statement))
            }
        },
        Statement::Describe(describe) => Work::Describe(describe),
        other => {
            ddl::prepare(&other, preparing)?;
            Work::Schema(Box::new(other))
        }
    })
}
