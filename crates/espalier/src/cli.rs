//! The command line.

use clap::{Args, Parser, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

/// Espalier: a database that speaks Cassandra's query language, protocol and table format.
#[derive(Debug, Parser)]
#[command(name = "espalier", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node
    Serve(Serve),
    /// Print what every option of the configuration does
    Options,
    /// Show the running node: address, load, uptime, requests
    Status(Node),
    /// Write memtables to disk
    Flush(Tables),
    /// Merge all SSTables of the tables
    Compact(Tables),
    /// Link the tables' files into snapshots/<tag>
    Snapshot {
        /// Name of the snapshot; the time in milliseconds if not given
        #[arg(short, long)]
        tag: Option<String>,
        /// Which tables
        #[command(flatten)]
        tables: Tables,
    },
    /// Show numbers of tables
    Tablestats(Tables),
    /// Flush everything and refuse writes from then on
    Drain(Node),
}

/// Options of `serve`; they win over the environment and the file.
#[derive(Debug, Args)]
pub struct Serve {
    /// Directory of all files of the node [default: data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address that clients connect to [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Port that clients connect to [default: 9042]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Configuration file; see docs/options.md
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which running node is meant.
#[derive(Debug, Args)]
pub struct Node {
    /// Its data directory
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
}

/// Which tables of it.
#[derive(Debug, Args)]
pub struct Tables {
    /// The node
    #[command(flatten)]
    pub node: Node,
    /// The keyspace; all if not given
    #[arg(value_name = "KEYSPACE")]
    pub keyspace: Option<String>,
    /// The tables; all of the keyspace if not given
    #[arg(value_name = "TABLE", requires = "keyspace")]
    pub tables: Vec<String>,
}
