//! Administration of a running node through a socket in its data directory, which only its owner may open.
//!
//! One request per connection, one line each way:
//!
//! ```text
//! {"verb":"flush","keyspace":"ks","tables":["t"],"tag":null}
//! {"ok":"text to print"}      or      {"error":"what went wrong"}
//! ```

mod auth_caches;
mod cidr_groups;
pub mod client;
mod report;
mod request_logs;
pub mod server;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A request to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    verb: Verb,
    #[serde(default)]
    keyspace: Option<String>,
    #[serde(default)]
    tables: Vec<String>,
    #[serde(default)]
    tag: Option<String>,
    /// How long a snapshot is kept.
    #[serde(default)]
    ttl_seconds: Option<u64>,
    /// The keyspaces whose snapshots are removed.
    #[serde(default)]
    keyspaces: Vec<String>,
    /// The directory of SSTables to import, or the target of an export.
    #[serde(default)]
    directory: Option<PathBuf>,
    /// The options of a log, by their keys in the configuration.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// A group of addresses, and blocks or addresses.
    #[serde(default)]
    cidr_group: Option<String>,
    #[serde(default)]
    addresses: Vec<String>,
    /// The roles that are read again; all if there are none.
    #[serde(default)]
    roles: Vec<String>,
}

impl Request {
    fn new(verb: Verb) -> Request {
        Request {
            verb,
            keyspace: None,
            tables: Vec::new(),
            tag: None,
            ttl_seconds: None,
            keyspaces: Vec::new(),
            directory: None,
            options: BTreeMap::new(),
            cidr_group: None,
            addresses: Vec::new(),
            roles: Vec::new(),
        }
    }
}

/// The verbs, named as in nodetool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Status,
    Flush,
    Compact,
    Snapshot,
    ListSnapshots,
    ClearSnapshot,
    Tablestats,
    Drain,
    RepairTable,
    Import,
    Refresh,
    Export,
    CompactionStats,
    EnableAutoCompaction,
    DisableAutoCompaction,
    InMemoryStatus,
    ReloadSsl,
    EnableAuditLog,
    DisableAuditLog,
    GetAuditLog,
    EnableFullQueryLog,
    DisableFullQueryLog,
    GetFullQueryLog,
    ResetFullQueryLog,
    UpdateCidrGroup,
    DropCidrGroup,
    ListCidrGroups,
    GetCidrGroupsOfIp,
    ReloadCidrGroupsCache,
    CidrFilteringStats,
    InvalidateCounterCache,
    InvalidateRolesCache,
    InvalidatePermissionsCache,
    InvalidateCredentialsCache,
    InvalidateNetworkPermissionsCache,
    InvalidateCidrPermissionsCache,
    InvalidateJmxPermissionsCache,
}

/// The node's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(String),
    Error(String),
}

/// The socket of a node, in its data directory.
const SOCKET_NAME: &str = "espalier.sock";

/// A path to a file of the data directory that is short enough for a socket's address, which holds about a hundred
/// bytes. It is valid as long as the returned file lives.
fn short_path(data: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    const ADDRESS_SIZE_BYTES: usize = 100;
    let path = data.join(name);
    if path.as_os_str().len() < ADDRESS_SIZE_BYTES {
        return Ok((path, None));
    }
    let directory = File::open(data)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())), Some(directory)))
}

/// The longest line accepted from a peer.
const LINE_SIZE_BYTES_MAX: u64 = 1 << 20;
