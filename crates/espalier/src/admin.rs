//! Steering a running node through a socket in its data directory, which only its owner may open.
//!
//! One request per connection, one line each way:
//!
//! ```text
//! {"verb":"flush","keyspace":"ks","tables":["t"],"tag":null}
//! {"ok":"text to print"}      or      {"error":"what went wrong"}
//! ```

pub mod client;
mod report;
pub mod server;

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// What the node is asked to do.
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
    /// Where SSTables to be imported are, or exported ones are to be.
    #[serde(default)]
    directory: Option<PathBuf>,
}

/// The verbs, nodetool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Status,
    Flush,
    Compact,
    Snapshot,
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
}

/// What the node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(String),
    Error(String),
}

/// The socket of a node, in its data directory.
const SOCKET_NAME: &str = "espalier.sock";

/// A path to a file of the data directory that is short enough for a socket's address, which holds about a hundred
/// bytes. It holds as long as what is returned with it lives.
fn short_path(data: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    const ADDRESS_SIZE_BYTES: usize = 100;
    let path = data.join(name);
    if path.as_os_str().len() < ADDRESS_SIZE_BYTES {
        return Ok((path, None));
    }
    let directory = File::open(data)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())), Some(directory)))
}

/// Longest line taken from a peer.
const LINE_SIZE_BYTES_MAX: u64 = 1 << 20;
