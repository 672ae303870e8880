//! `espalier serve`: opens the engine, listens, and drains at the end.

mod node_log;
mod roles;
mod sizes;

use crate::admin::server::{AdminSocket, NodeState};
use crate::cli::Serve;
use crate::config::{CommitFailurePolicy, CommitlogSync, Config, DiskFailurePolicy};
use crate::free_pages;
use crate::request_logs::RequestLogs;
use crate::tls::Certificates;
use blockio::SystemDisk;
use commitlog::{BlockWrites, FailureHook, QueueMeans, SyncMode};
use engine::{
    DiskFailureHook, DiskFailureKind, Engine, EngineError, EngineOptions, InMemoryNotice, InMemoryNotices,
    IndexBuildNotice, IndexBuildNotices, QuarantineHook,
};
use query::{
    AuditOptions, BackgroundRows, Guardrails, MemoryBudget, Node, Processor, ProcessorOptions, ReadThresholds,
};
use server::{Listener, Server, ServerOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// The threads that serve connections: one for each core, and at least two, so that a long request leaves one for the
/// others.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// The failed part of the node, if clients must be disconnected because of it.
type Failed = Option<&'static str>;

/// The time for flushes at a stop, beside the 2 s for connections: the node ends within 10 s.
const STOP_FLUSH_TIME: Duration = Duration::from_secs(5);
/// How long a stop waits for the last entries of the audit log and the full query log to be written.
const STOP_LOGS_TIME: Duration = Duration::from_secs(2);

/// The process's exit status when `commit_failure_policy` or `disk_failure_policy` is `die`; the same as Cassandra's.
const FAILED_STATUS: i32 = 100;

/// Runs a node until SIGTERM or SIGINT. The error is one line for the user.
pub fn serve(flags: Serve) -> Result<(), String> {
    let started = Instant::now();
    let mut config = configuration(flags)?;
    node_log::start();
    for (option, reason) in &config.inert {
        tracing::info!("{option} is accepted and has no effect: {reason}");
    }
    if let Some(limit) = blockio::raise_descriptor_limit() {
        tracing::debug!("at most {limit} files and connections may be open");
        config.leave_descriptors_to_files(limit);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .on_thread_start(blockio::request_short_slices)
        .event_interval(POLLS_PER_LOOK_AT_SOCKETS)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let ended = runtime.block_on(run(config, started));
    // The engine is closed, so threads that still run or wait for a device must not delay the exit.
    runtime.shutdown_background();
    ended
}

/// The number of connections that a thread serves before it checks whether others have become ready. A turn of a
/// connection may take some milliseconds, and tokio's default is 61 of them.
const POLLS_PER_LOOK_AT_SOCKETS: u32 = 4;

/// Opens a stopped node's engine, as `serve` would.
pub fn open_engine(data: PathBuf, config: Option<PathBuf>) -> Result<Arc<Engine>, String> {
    let config = configuration(of_data(data, config))?;
    Engine::open(engine_options(&config)).map_err(|error| open_failed(&config, &error))
}

/// The path of a node's commit log.
pub fn log_path(data: PathBuf, config: Option<PathBuf>) -> Result<PathBuf, String> {
    let config = configuration(of_data(data, config))?;
    Ok(engine_options(&config).commitlog.log_path())
}

fn of_data(data: PathBuf, config: Option<PathBuf>) -> Serve {
    Serve { data: Some(data), listen: None, port: None, config, commitlog_salvage: false, read_only: false }
}

/// Combines file, environment and flags.
fn configuration(flags: Serve) -> Result<Config, String> {
    let environment = std::env::vars_os();
    let environment =
        environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut config = Config::load(flags.config.as_deref(), environment)?;
    if let Some(data) = flags.data {
        config.data_directory = data;
    }
    if let Some(listen) = flags.listen {
        config.listen = listen;
    }
    if let Some(port) = flags.port {
        config.port = port;
    }
    config.commitlog_salvage = flags.commitlog_salvage;
    config.read_only = flags.read_only;
    Ok(config)
}

async fn run(config: Config, started: Instant) -> Result<(), String> {
    let data = config.data_directory.clone();
    let address = SocketAddr::new(config.listen, config.port);
    let certificates = Certificates::load(&config.client_encryption)?;
    // Lock the directory first: its holder owns the node, whatever its port.
    let mut options = engine_options(&config);
    let request_memory = request_memory(&config, &mut options);
    let failed = watch_failures(&config, &mut options);
    let engine = Engine::open(options).map_err(|error| open_failed(&config, &error))?;
    let request_logs =
        Arc::new(RequestLogs::new(config.auditing.clone(), config.full_query_logging.clone(), &config.data_directory));
    // A read-only node writes no log.
    let audit = if config.read_only { None } else { request_logs.start_audit()? };
    let mut options = server_options(&config, request_memory.clone());
    options.tls = certificates.as_ref().map(|certificates| certificates.for_server());
    // The control socket is created before the port is opened, because scripts that find the port open send commands at
    // once. A read-only node has no control socket, which would be a new file.
    let admin = match config.read_only {
        true => None,
        false => Some(AdminSocket::bind(&data).map_err(|error| format!("{}: {error}", data.display()))?),
    };
    let mut signals = Signals::new()?;
    let listener = Listener::bind(options).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    log_opened(&engine);
    let address = listener.local_addr();
    log_tls(certificates.as_deref(), listener.tls_addr());
    let options = processor_options(&config, address, audit);
    let generation = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i32);
    options.node.write_local(&engine, generation).map_err(|error| open_failed(&config, &error))?;
    let disk_usage = options.disk_usage.clone();
    let processor = Arc::new(Processor::new(engine.clone(), options));
    roles::start(&config, &processor).await?;
    let server = Server::new(listener, processor.clone());
    let node = Arc::new(NodeState {
        engine: engine.clone(),
        metrics: server.metrics(),
        address,
        data: data.clone(),
        cluster_name: config.cluster_name.clone(),
        started,
        drained: AtomicBool::new(false),
        certificates: certificates.clone(),
        request_logs: request_logs.clone(),
        processor,
    });
    warn_of_shown_address(&config, address);
    if let Err(error) = free_pages::Watch::start(request_memory.limit_bytes() as u64) {
        tracing::warn!("the memory of the process is not watched: {error}");
    }
    log_listening(address, &data, started);
    if let Some(certificates) = certificates {
        tokio::spawn(certificates.watch());
    }
    if !config.read_only {
        tokio::spawn(expire_snapshots(engine.clone()));
        tokio::spawn(config.disk_watch().run(disk_usage));
    }
    tokio::select! {
        () = serve_until_stopped(server, &mut signals, failed) => {}
        () = serve_control_socket(admin.as_ref(), &node) => {}
    }
    drop(admin);
    let drained = if config.read_only { Ok(()) } else { drain(engine).await };
    // The device of a log may stall, which delays neither the drain nor, for long, the exit.
    let closed = tokio::task::spawn_blocking(move || request_logs.close());
    if tokio::time::timeout(STOP_LOGS_TIME, closed).await.is_err() {
        tracing::warn!("the audit log or the full query log takes too long to write: its last entries are lost");
    }
    drained
}

/// Sends the failures after which clients must be disconnected to the receiver.
fn watch_failures(config: &Config, options: &mut EngineOptions) -> watch::Receiver<Failed> {
    let (failure, failed) = watch::channel(None);
    let failure = Arc::new(failure);
    options.commitlog.on_failure = Some(on_log_failure(config.commit_failure_policy, failure.clone()));
    // A read-only start serves everything that can be read.
    let policy = if config.read_only { DiskFailurePolicy::BestEffort } else { config.disk_failure_policy };
    options.on_disk_failure = Some(on_disk_failure(policy, failure));
    failed
}

/// Serves clients until a signal arrives. After a failure no client is served, and the signal is waited for.
async fn serve_until_stopped(server: Server<Processor>, signals: &mut Signals, failed: watch::Receiver<Failed>) {
    let mut of_failure = failed.clone();
    let stop = async {
        tokio::select! {
            () = signals.next() => tracing::info!("stopping: no new connections, then drain"),
            Ok(what) = of_failure.wait_for(Option::is_some) => {
                tracing::error!("clients are disconnected: {} failed", what.unwrap_or_default());
            }
        }
    };
    server.run(stop).await;
    if failed.borrow().is_some() {
        signals.next().await;
    }
}

/// Flushes all tables and closes the engine.
async fn drain(engine: Arc<Engine>) -> Result<(), String> {
    match tokio::task::spawn_blocking(move || engine.shutdown_within(STOP_FLUSH_TIME)).await {
        Ok(Ok(left)) => {
            match left {
                0 => tracing::info!("drained"),
                left => tracing::info!("{left} tables keep records in the commit log, which the next start replays"),
            }
            Ok(())
        }
        Ok(Err(error @ EngineError::NotDrained(_))) => Err(format!("drained all tables but these: {error}")),
        Ok(Err(error)) => Err(format!("drain failed, the log will be replayed: {error}")),
        Err(error) => Err(format!("drain failed, the log will be replayed: {error}")),
    }
}

fn log_listening(address: SocketAddr, data: &Path, started: Instant) {
    tracing::info!(
        %address,
        data = %data.display(),
        startup_ms = started.elapsed().as_millis() as u64,
        "Starting listening for CQL clients"
    );
}

/// Logs how clients use TLS, if they do.
fn log_tls(certificates: Option<&Certificates>, port: Option<SocketAddr>) {
    let Some(certificates) = certificates else { return };
    let clients = if certificates.is_optional() { "may" } else { "must" };
    match port {
        Some(address) => tracing::info!(%address, "clients {clients} use TLS on a port of its own"),
        None => tracing::info!("clients {clients} use TLS"),
    }
}

/// Warns if clients are given an address that none can connect to.
fn warn_of_shown_address(config: &Config, address: SocketAddr) {
    if address.ip().is_unspecified() && config.broadcast_rpc_address.is_none() {
        tracing::warn!("clients are told to connect to {}: set broadcast_rpc_address", address.ip());
    }
}

/// Removes snapshots whose lifetime is over, as often as Cassandra does.
async fn expire_snapshots(engine: Arc<Engine>) {
    const PERIOD: Duration = Duration::from_secs(60);
    loop {
        tokio::time::sleep(PERIOD).await;
        let engine = engine.clone();
        match tokio::task::spawn_blocking(move || engine.clear_expired_snapshots()).await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(count)) => tracing::info!("{count} snapshots have expired and were removed"),
            Ok(Err(error)) => tracing::warn!("expired snapshots could not be removed: {error}"),
        }
    }
}

/// Serves the node's socket, if there is one; never returns.
async fn serve_control_socket(admin: Option<&AdminSocket>, node: &Arc<NodeState>) {
    match admin {
        Some(admin) => admin.serve(node).await,
        None => std::future::pending().await,
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Signals, String> {
        let watch = |kind| signal(kind).map_err(|error| format!("cannot watch signals: {error}"));
        Ok(Signals { terminate: watch(SignalKind::terminate())?, interrupt: watch(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Implements `commit_failure_policy`; sends to `failure` if clients have to be disconnected.
fn on_log_failure(policy: CommitFailurePolicy, failure: Arc<watch::Sender<Failed>>) -> FailureHook {
    Arc::new(move |reason| {
        tracing::error!("the commit log failed, and no write is acknowledged any more: {reason}");
        match policy {
            CommitFailurePolicy::Stop => {
                let _ = failure.send(Some("the commit log"));
            }
            CommitFailurePolicy::Die => std::process::exit(FAILED_STATUS),
            CommitFailurePolicy::StopCommit | CommitFailurePolicy::Ignore => {}
        }
    })
}

/// Implements `disk_failure_policy`; sends to `failure` if clients have to be disconnected.
fn on_disk_failure(policy: DiskFailurePolicy, failure: Arc<watch::Sender<Failed>>) -> DiskFailureHook {
    DiskFailureHook::new(move |kind, reason| {
        if kind == DiskFailureKind::Index {
            return tracing::warn!("{reason}; it is tried again, and all rows are read until it is built");
        }
        tracing::error!("an SSTable cannot be used: {reason}");
        match (policy, kind) {
            (DiskFailurePolicy::Die, _) => std::process::exit(FAILED_STATUS),
            (DiskFailurePolicy::StopParanoid, _) | (DiskFailurePolicy::Stop, DiskFailureKind::FileSystem) => {
                // This only fails when clients are no longer served.
                let _ = failure.send(Some("the disk"));
            }
            (DiskFailurePolicy::Stop, DiskFailureKind::Corruption | DiskFailureKind::Index)
            | (DiskFailurePolicy::BestEffort | DiskFailurePolicy::Ignore, _) => {}
        }
    })
}

/// Logs how the commit log is written, and what was replayed.
fn log_opened(engine: &Engine) {
    match engine.log_means() {
        (BlockWrites::Direct, QueueMeans::Plain { reason }) => {
            tracing::info!("the commit log is written one frame at a time: {reason}");
        }
        (BlockWrites::Direct, _) => tracing::info!("the commit log is written past the page cache, by io_uring"),
        (BlockWrites::Buffered { reason }, _) => {
            tracing::info!("the commit log is written through the page cache: {reason}");
        }
    }
    match engine.time_durable_write() {
        Ok(time) => tracing::info!("a durable write to the commit log's device takes {} us", time.as_micros()),
        Err(error) => tracing::warn!("a durable write to the commit log's device could not be timed: {error}"),
    }
    if !engine.writes_wait() {
        tracing::info!(
            "commitlog_sync is periodic: a crash may undo the last acknowledged writes, conditional ones too"
        );
    }
    if let BlockWrites::Buffered { reason } = engine.sstable_writes() {
        tracing::info!("SSTables are written through the page cache: {reason}");
    }
    let (report, replayed) = (engine.log_report(), engine.replay_summary());
    for gap in &report.gaps {
        tracing::error!("the commit log had a gap: {gap}");
    }
    for file in engine.leftovers() {
        tracing::warn!("a Data.db file without its other components was set aside: {}", file.display());
    }
    for table in engine.quarantined_tables() {
        tracing::error!("table {}.{} is quarantined: {}", table.keyspace, table.table, table.reason);
    }
    for fault in engine.faults() {
        tracing::error!("{fault}");
    }
    for damage in engine.schema_damage() {
        tracing::error!(
            "{damage}; it is left out, its files stay, and its records are in the commit log's copies (commitlog.damaged-*)"
        );
    }
    if replayed.unreadable > 0 {
        tracing::error!(
            "{} records are left out: they have columns whose schema change was in the damaged part of the commit log",
            replayed.unreadable
        );
    }
    if report.records > 0 || report.cut_records > 0 {
        tracing::info!(
            segments = report.segments,
            records = report.records,
            bytes = report.data_bytes,
            cut_records = report.cut_records,
            mutations = replayed.replayed,
            in_tables_already = replayed.covered,
            of_dropped_tables = replayed.of_dropped_tables,
            unreadable = replayed.unreadable,
            millis = engine.recovery_time().as_millis() as u64,
            "the commit log was replayed"
        );
    }
}

fn open_failed(config: &Config, error: &EngineError) -> String {
    format!("{}: {error}", config.data_directory.display())
}

/// The memory of the node's requests, in which the engine counts its copies of large rows as well.
fn request_memory(config: &Config, options: &mut EngineOptions) -> Arc<MemoryBudget> {
    let memory = MemoryBudget::new(config.request_bytes_in_flight_max().0);
    options.background_rows = Some(Arc::new(BackgroundRows::new(memory.clone())));
    memory
}

fn engine_options(config: &Config) -> EngineOptions {
    let mut options = EngineOptions::new(Arc::new(SystemDisk::new()), &config.data_directory);
    if let Some(directory) = &config.commitlog_directory {
        options.commitlog.directory = directory.clone();
    }
    options.commitlog.device = config.commitlog_device.clone();
    options.commitlog.salvage = config.commitlog_salvage;
    options.read_only = config.read_only;
    options.commitlog.sync = match config.commitlog_sync {
        CommitlogSync::Periodic => SyncMode::Periodic { period: config.commitlog_sync_period },
        CommitlogSync::Batch => SyncMode::Batch,
        CommitlogSync::Each => SyncMode::Each,
        CommitlogSync::Group => SyncMode::Group { window: config.commitlog_sync_group_window },
    };
    options.commitlog.segment_size_bytes = config.commitlog_segment_size_bytes;
    options.commitlog.total_space_bytes = config.commitlog_total_space_bytes;
    options.memtable_space_bytes = config.memtable_space_bytes();
    options.memtable_configurations = config.memtable_configurations.clone();
    options.memtable_cleanup_threshold = config.memtable_cleanup_threshold;
    options.memtable_flush_writers = config.memtable_flush_writers;
    options.column_index_size_bytes = config.column_index_size_bytes;
    options.cache_bytes = config.file_cache_size_bytes;
    options.counter_cache_bytes = config.counter_cache_size_bytes;
    options.disk_access = config.disk_access;
    options.concurrent_compactors = config.concurrent_compactors;
    options.compaction_throughput_bytes = config.compaction_throughput_bytes;
    options.opens_damaged =
        !matches!(config.disk_failure_policy, DiskFailurePolicy::StopParanoid | DiskFailurePolicy::Die);
    options.on_quarantine = Some(QuarantineHook(Arc::new(|refusal| tracing::error!("{refusal}"))));
    options.max_memory_to_lock_bytes = max_memory_to_lock_bytes(config);
    options.in_memory_notices = Some(InMemoryNotices(Arc::new(warn_of_memory)));
    options.index_build_notices = Some(IndexBuildNotices(Arc::new(log_index_build)));
    options.size_limits = config.guardrails.size_limits();
    options.size_hook = Some(sizes::hook(config.guardrails));
    options
}

/// The most memory that tables in memory may take together.
fn max_memory_to_lock_bytes(config: &Config) -> u64 {
    match config.max_memory_to_lock_mb {
        0 => (crate::config::system_memory_bytes() as f64 * config.max_memory_to_lock_fraction) as u64,
        megabytes => megabytes.saturating_mul(1 << 20),
    }
}

fn warn_of_memory(notice: &InMemoryNotice) {
    let InMemoryNotice { keyspace, table, percent, used_bytes, limit_bytes } = notice;
    tracing::warn!(
        "table {keyspace}.{table} lives in memory and takes {percent}% of what it may: {used_bytes} of {limit_bytes} bytes; beyond \
         that writes are refused"
    );
}

fn log_index_build(notice: &IndexBuildNotice) {
    match notice {
        IndexBuildNotice::SSTable { keyspace, table, sstable, data_bytes, remaining } => tracing::info!(
            "building the indexes of SSTable {sstable} of {keyspace}.{table}, which has {data_bytes} bytes; {remaining} \
             SSTables of the table remain with this one"
        ),
        IndexBuildNotice::Complete { keyspace, index } => tracing::info!("index {keyspace}.{index} is built"),
    }
}

fn processor_options(config: &Config, address: SocketAddr, audit: Option<AuditOptions>) -> ProcessorOptions {
    let shown = config.broadcast_rpc_address.unwrap_or(address.ip());
    ProcessorOptions {
        tombstone_warn_threshold: config.tombstone_warn_threshold,
        tombstone_failure_threshold: config.tombstone_failure_threshold,
        batch_size_warn_threshold_bytes: config.batch_size_warn_threshold_bytes,
        batch_size_fail_threshold_bytes: config.batch_size_fail_threshold_bytes,
        unlogged_batch_across_partitions_warn_threshold: config.unlogged_batch_across_partitions_warn_threshold,
        read_timeout: config.read_timeout,
        range_timeout: config.range_timeout,
        write_timeout: config.write_timeout,
        cas_contention_timeout: config.cas_contention_timeout,
        truncate_timeout: config.truncate_timeout,
        statement_memory_max_bytes: config.statement_memory_max_bytes,
        page_max_bytes: usize::try_from(config.page_max_bytes).unwrap_or(usize::MAX),
        disk_usage: Arc::default(),
        guardrails: guardrails(config),
        auto_snapshot: config.auto_snapshot,
        auto_snapshot_lifetime: config.auto_snapshot_lifetime,
        prefers_attached_indexes: config.prefers_attached_indexes,
        sasi_indexes_enabled: config.sasi_indexes_enabled,
        default_index_class: config.has_default_index.then(|| config.default_index_class.clone()),
        dynamic_data_masking_enabled: config.dynamic_data_masking_enabled,
        drop_compact_storage_enabled: config.drop_compact_storage_enabled,
        auth: config.auth,
        audit,
        query_log: None,
        node: Node {
            cluster_name: config.cluster_name.clone(),
            broadcast_address: shown,
            rpc_address: shown,
            rpc_port: address.port(),
            tokens: Node::evenly_spaced_tokens(config.num_tokens),
            ..Node::default()
        },
    }
}

/// The guardrails in force: thresholds of reads only where they are enabled.
fn guardrails(config: &Config) -> Guardrails {
    let read_thresholds = match config.read_thresholds_enabled {
        true => config.guardrails.read_thresholds,
        false => ReadThresholds::default(),
    };
    Guardrails { read_thresholds, ..config.guardrails }
}

fn server_options(config: &Config, request_memory: Arc<MemoryBudget>) -> ServerOptions {
    ServerOptions {
        listen: SocketAddr::new(config.listen, config.port),
        listen_tls: config
            .port_ssl
            .filter(|port| *port != config.port)
            .map(|port| SocketAddr::new(config.listen, port)),
        frame_size_bytes_max: config.frame_size_bytes_max,
        connections_max: config.connections_max,
        connections_per_ip_max: config.connections_per_ip_max,
        request_memory,
        request_bytes_in_flight_per_ip_max: config.request_bytes_in_flight_max().1,
        requests_per_second_max: Some(config.requests_per_second_max).filter(|_| config.limits_request_rate),
        idle_timeout: config.idle_timeout,
        prepared_statements_cache_size_bytes: config.prepared_statements_cache_size_bytes,
        ..ServerOptions::default()
    }
}

#[cfg(test)]
mod tests;
