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
}

/// What the node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(String),
    Error(String),
}

/// Where the socket of a node is.
fn socket_path(data: &Path) -> PathBuf {
    data.join("espalier.sock")
}

/// Longest line taken from a peer.
const LINE_SIZE_BYTES_MAX: u64 = 1 << 20;
