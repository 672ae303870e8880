//! The command line's side of the socket.

use super::{Answer, Request, SOCKET_NAME, Verb, short_path};
use crate::cli::{AuditLog, Command, FullQueryLog, LogFiles, Node, Roles, Tables};
use crate::config::{SNAPSHOT_LIFETIME_MIN, parse_duration};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf, absolute};

/// Sends the command to the running node, and prints its answer.
pub fn run(command: Command) -> Result<(), String> {
    let (node, request) = request(command)?;
    ask(&node, &request)
}

/// Whether a node listens on its socket.
pub fn is_running(node: &Node) -> bool {
    short_path(&node.data, SOCKET_NAME).and_then(|(path, _open)| UnixStream::connect(path)).is_ok()
}

/// Makes the running node import the SSTables of a directory, and prints how many there were.
pub fn import(node: &Node, keyspace: String, table: String, directory: PathBuf) -> Result<(), String> {
    let (keyspace, directory) = (Some(keyspace), Some(directory));
    ask(node, &Request { keyspace, tables: vec![table], directory, ..Request::new(Verb::Import) })
}

/// The output of an import.
pub fn imported(count: usize) -> String {
    format!("{count} SSTables imported")
}

/// Makes the running node write a data directory that Cassandra can start from.
pub fn export(node: &Node, data: PathBuf) -> Result<(), String> {
    ask(node, &Request { directory: Some(data), ..Request::new(Verb::Export) })
}

/// The output of an export.
pub fn exported(count: usize, data: &Path) -> String {
    format!("{count} SSTables in {}", data.display())
}

fn ask(node: &Node, request: &Request) -> Result<(), String> {
    let connect = short_path(&node.data, SOCKET_NAME).and_then(|(path, _open)| UnixStream::connect(path));
    let mut socket = connect.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            format!("no node is running on {} (--data names another directory)", node.data.display())
        }
        _ => format!("{}: {error}", node.data.join(SOCKET_NAME).display()),
    })?;
    match exchange(&mut socket, request).map_err(|error| format!("the node did not answer: {error}"))? {
        Answer::Ok(text) => {
            print!("{text}");
            Ok(())
        }
        Answer::Error(message) => Err(message),
    }
}

fn exchange(socket: &mut UnixStream, request: &Request) -> std::io::Result<Answer> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    socket.write_all(&line)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// How long a snapshot is to be kept.
fn lifetime_seconds(text: &str) -> Result<u64, String> {
    let lifetime = parse_duration(text).map_err(|error| format!("--ttl: {error}"))?;
    if lifetime < SNAPSHOT_LIFETIME_MIN {
        return Err(format!("--ttl: a snapshot is kept for {SNAPSHOT_LIFETIME_MIN:?} at least"));
    }
    Ok(lifetime.as_secs())
}

impl LogFiles {
    /// The options by their keys in the configuration.
    fn options(self) -> [(&'static str, Option<String>); 4] {
        let LogFiles { roll_cycle, blocking, max_queue_weight, max_log_size } = self;
        [
            ("roll_cycle", roll_cycle),
            ("block", blocking),
            ("max_queue_weight", max_queue_weight),
            ("max_log_size", max_log_size),
        ]
    }
}

fn with_options(verb: Verb, options: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Request {
    let given = options.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Request { options: given.collect(), ..Request::new(verb) }
}

impl AuditLog {
    fn request(self) -> (Node, Request) {
        let own = [
            ("logger", self.logger),
            ("included_keyspaces", self.included_keyspaces),
            ("excluded_keyspaces", self.excluded_keyspaces),
            ("included_categories", self.included_categories),
            ("excluded_categories", self.excluded_categories),
            ("included_users", self.included_users),
            ("excluded_users", self.excluded_users),
        ];
        (self.node, with_options(Verb::EnableAuditLog, own.into_iter().chain(self.files.options())))
    }
}

impl FullQueryLog {
    fn request(self) -> Result<(Node, Request), String> {
        // The node may have another working directory.
        let path = self.path.map(|path| absolute(&path).map(|path| path.display().to_string())).transpose();
        let path = path.map_err(|error| format!("--path: {error}"))?;
        let options = std::iter::once(("log_dir", path)).chain(self.files.options());
        Ok((self.node, with_options(Verb::EnableFullQueryLog, options)))
    }
}

fn request(command: Command) -> Result<(Node, Request), String> {
    let bare = |verb, node| (node, Request::new(verb));
    let of_tables = |verb, tables: Tables, tag| {
        (tables.node, Request { keyspace: tables.keyspace, tables: tables.tables, tag, ..Request::new(verb) })
    };
    let of_roles = |verb, Roles { node, roles }: Roles| (node, Request { roles, ..Request::new(verb) });
    Ok(match command {
        Command::Status(node) => bare(Verb::Status, node),
        Command::Drain(node) => bare(Verb::Drain, node),
        Command::Reloadssl(node) => bare(Verb::ReloadSsl, node),
        Command::Enableauditlog(options) => options.request(),
        Command::Disableauditlog(node) => bare(Verb::DisableAuditLog, node),
        Command::Getauditlog(node) => bare(Verb::GetAuditLog, node),
        Command::Enablefullquerylog(options) => options.request()?,
        Command::Disablefullquerylog(node) => bare(Verb::DisableFullQueryLog, node),
        Command::Getfullquerylog(node) => bare(Verb::GetFullQueryLog, node),
        Command::Resetfullquerylog(node) => bare(Verb::ResetFullQueryLog, node),
        Command::Updatecidrgroup { node, group, cidrs } => {
            (node, Request { cidr_group: Some(group), addresses: cidrs, ..Request::new(Verb::UpdateCidrGroup) })
        }
        Command::Dropcidrgroup { node, group } => {
            (node, Request { cidr_group: Some(group), ..Request::new(Verb::DropCidrGroup) })
        }
        Command::Listcidrgroups { node, group } => {
            (node, Request { cidr_group: group, ..Request::new(Verb::ListCidrGroups) })
        }
        Command::Getcidrgroupsofip { node, address } => {
            (node, Request { addresses: vec![address], ..Request::new(Verb::GetCidrGroupsOfIp) })
        }
        Command::Cidrfilteringstats(node) => bare(Verb::CidrFilteringStats, node),
        Command::Invalidatecountercache(node) => bare(Verb::InvalidateCounterCache, node),
        Command::Invalidaterolescache(roles) => of_roles(Verb::InvalidateRolesCache, roles),
        Command::Invalidatepermissionscache(roles) => of_roles(Verb::InvalidatePermissionsCache, roles),
        Command::Invalidatecredentialscache(roles) => of_roles(Verb::InvalidateCredentialsCache, roles),
        Command::Invalidatenetworkpermissionscache(roles) => of_roles(Verb::InvalidateNetworkPermissionsCache, roles),
        Command::Invalidatecidrpermissionscache(roles) => of_roles(Verb::InvalidateCidrPermissionsCache, roles),
        Command::Invalidatejmxpermissionscache(roles) => of_roles(Verb::InvalidateJmxPermissionsCache, roles),
        Command::Reloadcidrgroupscache(node) => bare(Verb::ReloadCidrGroupsCache, node),
        Command::Compactionstats(node) => bare(Verb::CompactionStats, node),
        Command::Enableautocompaction(tables) => of_tables(Verb::EnableAutoCompaction, tables, None),
        Command::Disableautocompaction(tables) => of_tables(Verb::DisableAutoCompaction, tables, None),
        Command::Inmemorystatus(tables) => of_tables(Verb::InMemoryStatus, tables, None),
        Command::Flush(tables) => of_tables(Verb::Flush, tables, None),
        Command::Refresh(tables) => of_tables(Verb::Refresh, tables, None),
        Command::Compact(tables) => of_tables(Verb::Compact, tables, None),
        Command::Tablestats(tables) => of_tables(Verb::Tablestats, tables, None),
        Command::Snapshot { tag, ttl, tables } => {
            let ttl_seconds = ttl.map(|ttl| lifetime_seconds(&ttl)).transpose()?;
            let (node, request) = of_tables(Verb::Snapshot, tables, tag);
            (node, Request { ttl_seconds, ..request })
        }
        Command::Listsnapshots(node) => bare(Verb::ListSnapshots, node),
        Command::Clearsnapshot { tag, all: _, node, keyspaces } => {
            (node, Request { tag, keyspaces, ..Request::new(Verb::ClearSnapshot) })
        }
        Command::RepairTable { node, keyspace, table } => {
            let (keyspace, tables) = (Some(keyspace), vec![table]);
            (node, Request { keyspace, tables, ..Request::new(Verb::RepairTable) })
        }
        Command::Serve(_)
        | Command::Options
        | Command::Log(_)
        | Command::Sstable(_)
        | Command::UpgradeFrom(_)
        | Command::Export(_) => {
            return Err("not for a running node".to_owned());
        }
    })
}
