//! The node's side of the socket.

use super::report::{compactionstats, inmemorystatus, listsnapshots, status, tablestats};
use super::{Answer, LINE_SIZE_BYTES_MAX, Request, SOCKET_NAME, Verb, short_path};
use super::{auth_caches, cidr_groups, request_logs};
use crate::request_logs::RequestLogs;
use crate::tls::Certificates;
use engine::{Engine, EngineError, TableStats};
use model::Table;
use query::Processor;
use server::Metrics;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// The parts of the node that the verbs need.
pub struct NodeState {
    pub engine: Arc<Engine>,
    pub metrics: Arc<Metrics>,
    pub address: SocketAddr,
    pub data: PathBuf,
    pub cluster_name: String,
    pub started: Instant,
    /// DRAIN was executed: no more writes.
    pub drained: AtomicBool,
    /// The certificates, if clients use TLS.
    pub certificates: Option<Arc<Certificates>>,
    pub request_logs: Arc<RequestLogs>,
    pub processor: Arc<Processor>,
}

/// The socket, removed when dropped.
pub struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl AdminSocket {
    /// Makes the socket. The caller holds the directory's lock, so an existing socket is left over from a crash.
    pub fn bind(data: &Path) -> io::Result<AdminSocket> {
        // No other user may connect even for a moment: the name appears only after the permissions are set.
        const UNNAMED: &str = "espalier.sock.new";
        let path = data.join(SOCKET_NAME);
        let unnamed = data.join(UNNAMED);
        for left_over in [&path, &unnamed] {
            match std::fs::remove_file(left_over) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let (short, _open) = short_path(data, UNNAMED)?;
        let listener = UnixListener::bind(short)?;
        std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&unnamed, &path)?;
        Ok(AdminSocket { listener, path })
    }

    /// Answers requests, one connection at a time, because each is a large operation.
    pub async fn serve(&self, node: &Arc<NodeState>) {
        loop {
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    let node = node.clone();
                    tokio::spawn(async move {
                        if let Err(error) = serve_client(socket, &node).await {
                            tracing::debug!(%error, "admin connection broke");
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "cannot accept an admin connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "admin socket not removed");
        }
    }
}

async fn serve_client(socket: UnixStream, node: &Arc<NodeState>) -> io::Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new(socket.take(LINE_SIZE_BYTES_MAX));
    reader.read_line(&mut line).await?;
    let answer = match serde_json::from_str::<Request>(&line) {
        Err(error) => Answer::Error(format!("cannot read the request: {error}")),
        Ok(request) => {
            let node = node.clone();
            let work = tokio::task::spawn_blocking(move || execute(&node, &request));
            match work.await {
                Ok(Ok(text)) => Answer::Ok(text),
                Ok(Err(message)) => Answer::Error(message),
                Err(_) => Answer::Error("the request failed unexpectedly; see the node's log".to_owned()),
            }
        }
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    let mut socket = reader.into_inner().into_inner();
    socket.write_all(&bytes).await?;
    socket.shutdown().await
}

/// Executes a request. Blocks on the disk.
fn execute(node: &NodeState, request: &Request) -> Result<String, String> {
    let engine = &*node.engine;
    match request.verb {
        Verb::Status => return Ok(status(node)),
        Verb::Tablestats => return Ok(tablestats(&table_stats(engine, request)?)),
        Verb::InMemoryStatus => return Ok(inmemorystatus(engine, &table_stats(engine, request)?)),
        Verb::CompactionStats => return Ok(compactionstats(engine)),
        Verb::Flush => drop(for_each_table(engine, request, |table| engine.flush(table))?),
        Verb::Compact => drop(for_each_table(engine, request, |table| engine.compact(table))?),
        Verb::EnableAutoCompaction => {
            for_each_table(engine, request, |table| engine.set_autocompaction(table, true))?;
        }
        Verb::DisableAutoCompaction => {
            for_each_table(engine, request, |table| engine.set_autocompaction(table, false))?;
        }
        Verb::Snapshot => return snapshot(engine, request),
        Verb::ListSnapshots => return Ok(listsnapshots(&engine.snapshots().map_err(text)?)),
        Verb::ClearSnapshot => {
            let count = engine.clear_snapshots(&request.keyspaces, request.tag.as_deref()).map_err(text)?;
            return Ok(format!("{count} snapshots removed\n"));
        }
        Verb::Refresh => return imported(for_each_table(engine, request, |table| engine.refresh(table))?),
        Verb::Import => {
            let directory = request.directory.as_deref().ok_or("import of which directory?")?;
            return imported(for_each_table(engine, request, |table| engine.import(table, directory))?);
        }
        Verb::Export => {
            let directory = request.directory.as_deref().ok_or("export to which directory?")?;
            let count = engine.export(directory).map_err(text)?;
            return Ok(format!("{}\n", super::client::exported(count, directory)));
        }
        Verb::RepairTable => return repair_table(engine, request),
        Verb::EnableAuditLog
        | Verb::DisableAuditLog
        | Verb::GetAuditLog
        | Verb::EnableFullQueryLog
        | Verb::DisableFullQueryLog
        | Verb::ResetFullQueryLog
        | Verb::GetFullQueryLog => return request_logs::execute(node, request),
        Verb::UpdateCidrGroup
        | Verb::DropCidrGroup
        | Verb::ListCidrGroups
        | Verb::GetCidrGroupsOfIp
        | Verb::CidrFilteringStats
        | Verb::ReloadCidrGroupsCache => {
            return cidr_groups::execute(&node.processor, request).map_err(|error| error.message);
        }
        Verb::InvalidateCounterCache => engine.forget_counters(),
        Verb::InvalidateRolesCache
        | Verb::InvalidatePermissionsCache
        | Verb::InvalidateCredentialsCache
        | Verb::InvalidateNetworkPermissionsCache
        | Verb::InvalidateCidrPermissionsCache
        | Verb::InvalidateJmxPermissionsCache => {
            return auth_caches::execute(&node.processor, request).map_err(|error| error.message);
        }
        Verb::ReloadSsl => node.certificates.as_ref().ok_or("client_encryption_options are not enabled")?.reload()?,
        Verb::Drain => {
            engine.shutdown().map_err(text)?;
            node.drained.store(true, Ordering::Relaxed);
        }
    }
    Ok(String::new())
}

fn text(error: EngineError) -> String {
    error.to_string()
}

/// Calls a function with each table that the request names. Returns its results; ends at the first error.
fn for_each_table<R>(
    engine: &Engine,
    request: &Request,
    act: impl Fn(&Arc<Table>) -> Result<R, EngineError>,
) -> Result<Vec<R>, String> {
    tables(engine, request)?.iter().map(|table| act(table).map_err(text)).collect()
}

fn table_stats(engine: &Engine, request: &Request) -> Result<Vec<TableStats>, String> {
    for_each_table(engine, request, |table| engine.table_stats(table))
}

fn imported(counts: Vec<usize>) -> Result<String, String> {
    Ok(format!("{}\n", super::client::imported(counts.iter().sum())))
}

fn snapshot(engine: &Engine, request: &Request) -> Result<String, String> {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let tag = request.tag.clone().unwrap_or_else(|| millis.to_string());
    if !is_snapshot_name(&tag) {
        return Err(format!("{tag:?} is no name for a snapshot"));
    }
    let schema = engine.schema();
    let lifetime = request.ttl_seconds.map(Duration::from_secs);
    for_each_table(engine, request, |table| {
        let cql = query::snapshot_schema(&schema, table);
        engine.snapshot_as_first_of(table, [tag.clone()], &cql, lifetime)
    })?;
    Ok(format!("Snapshot directory: {tag}\n"))
}

fn repair_table(engine: &Engine, request: &Request) -> Result<String, String> {
    let (Some(keyspace), [table]) = (&request.keyspace, &*request.tables) else {
        return Err("repair of which table?".to_owned());
    };
    let applied = engine.repair_table(keyspace, table).map_err(text)?;
    Ok(format!("{keyspace}.{table} is served again; {applied} updates had been set aside\n"))
}

/// Whether a snapshot may have this name, which is the name of a directory, and is shown on a line.
fn is_snapshot_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/') && !name.contains(char::is_control)
}

/// The tables that the request names, in order of their names. If it names none, quarantined tables are left out.
fn tables(engine: &Engine, request: &Request) -> Result<Vec<Arc<Table>>, String> {
    let schema = engine.schema();
    let quarantined = engine.quarantined_tables();
    let is_served = |table: &&Arc<Table>| {
        !quarantined.iter().any(|other| *other.keyspace == *table.keyspace && *other.table == *table.name)
    };
    let Some(name) = &request.keyspace else {
        let all = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        return Ok(all.filter(is_served).cloned().collect());
    };
    let keyspace = schema.keyspace(name).ok_or_else(|| format!("Keyspace [{name}] does not exist."))?;
    if request.tables.is_empty() {
        return Ok(keyspace.tables.values().filter(is_served).cloned().collect());
    }
    let named = request.tables.iter().map(|table| {
        schema.table(name, table).cloned().ok_or_else(|| format!("Unknown keyspace/table pair ({name}.{table})"))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::is_snapshot_name;

    #[test]
    fn the_name_of_a_snapshot_is_one_directory_and_one_line() {
        for name in ["s1", "before the upgrade", "é", "a.b"] {
            assert!(is_snapshot_name(name), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a\0b", "a\nERROR forged", "a\u{1b}[2J", "a\u{85}"] {
            assert!(!is_snapshot_name(name), "{name:?}");
        }
    }
}
