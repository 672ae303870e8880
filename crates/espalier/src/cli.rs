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
    /// Verify the SSTables that were put into the tables' own directories, and take them over (a start takes them as
    /// they are)
    Refresh(Tables),
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
    /// Show what tables in memory take, and may take
    Inmemorystatus(Tables),
    /// Show what compaction is doing
    Compactionstats(Node),
    /// Let tables be compacted without being asked
    Enableautocompaction(Tables),
    /// Compact tables only when asked, until the next start
    Disableautocompaction(Tables),
    /// Take a quarantined table back into service once the cause is gone, with the log records that were set aside
    RepairTable {
        /// The node
        #[command(flatten)]
        node: Node,
        /// The keyspace
        #[arg(value_name = "KEYSPACE")]
        keyspace: String,
        /// The table
        #[arg(value_name = "TABLE")]
        table: String,
    },
    /// Flush everything and refuse writes from then on
    Drain(Node),
    /// Look into the commit log of a running or a stopped node
    Log(Log),
    /// Look into SSTables, ours or Cassandra's; verify, salvage, import, export them
    Sstable(SSTable),
    /// Adopt the schema and the SSTables of a stopped Cassandra node, drained before; its directory stays as it is
    UpgradeFrom(UpgradeFrom),
    /// Write a stopped or running node's tables as a data directory that Cassandra 5.0 starts from
    Export(ExportNode),
}

/// From which Cassandra node to which of ours.
#[derive(Debug, Args)]
pub struct UpgradeFrom {
    /// Our node, without user keyspaces so far
    #[command(flatten)]
    pub node: Node,
    /// Configuration file of our node
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Cassandra's commit log directory [default: commitlog beside its data directory]
    #[arg(long, value_name = "DIR")]
    pub commitlog: Option<PathBuf>,
    /// Cassandra's storage directory (with data and commitlog), or its data directory; all of them where it has
    /// several
    #[arg(value_name = "DATA_DIR", required = true)]
    pub sources: Vec<PathBuf>,
}

/// What to export where.
#[derive(Debug, Args)]
pub struct ExportNode {
    /// Our node
    #[command(flatten)]
    pub node: Node,
    /// Configuration file of our node
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory in which `data` is made
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// What to do with the commit log.
#[derive(Debug, Args)]
pub struct Log {
    /// What to do
    #[command(subcommand)]
    pub command: LogCommand,
}

/// What to do with the commit log. Nothing is locked or changed.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print what log it is, and what each segment in use holds
    Describe(LogPlace),
    /// Print all damage; fails if there is any
    Verify(LogPlace),
    /// Print every sound record: position, tables, data
    Dump(LogPlace),
}

/// Which commit log, and how to print.
#[derive(Debug, Args)]
pub struct LogPlace {
    /// The node
    #[command(flatten)]
    pub node: Node,
    /// Configuration file of the node, if it says where the log is
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The log itself, a file or a device; wins over the above
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A line of JSON for each
    #[arg(long)]
    pub json: bool,
}

/// What to do with SSTables.
#[derive(Debug, Args)]
pub struct SSTable {
    /// What to do
    #[command(subcommand)]
    pub command: SSTableCommand,
}

/// What to do with SSTables. A path is a file of an SSTable, or a directory: all SSTables in it.
#[derive(Debug, Subcommand)]
pub enum SSTableCommand {
    /// Print all rows as JSON, as sstabledump does
    Dump {
        /// A partition per line instead of one array
        #[arg(short = 'l', long)]
        lines: bool,
        /// A row per line instead of one array
        #[arg(short = 'r', long, conflicts_with = "lines")]
        rows: bool,
        /// Times as numbers
        #[arg(short = 't', long)]
        raw_timestamps: bool,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Check that SSTables are sound; fails if one is not
    Verify {
        /// Every row, and every entry of the indexes against the rows
        #[arg(short, long)]
        extended: bool,
        /// A line of JSON for each
        #[arg(long)]
        json: bool,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print what SSTables say of themselves, as sstablemetadata does
    Metadata {
        /// A line of JSON for each
        #[arg(long)]
        json: bool,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Write what is sound of damaged SSTables into new ones and list the rest; fails if anything is lost
    Salvage {
        /// Directory for the new SSTables
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Verify the SSTables of a directory (of every format) and copy them into a table of a running or a stopped node
    Import {
        /// The node
        #[command(flatten)]
        node: Node,
        /// Configuration file of a stopped node
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The keyspace
        #[arg(value_name = "KEYSPACE")]
        keyspace: String,
        /// The table
        #[arg(value_name = "TABLE")]
        table: String,
        /// Where the SSTables are
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
    /// Verify SSTables and copy them, with Cassandra's components only, into a directory that Cassandra can import
    Export {
        /// Directory for the copies
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
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
    /// Replay what is sound of a damaged commit log, keep a copy of the rest, log every gap
    #[arg(long)]
    pub commitlog_salvage: bool,
    /// Change nothing on the disk and refuse writes and changes of the schema; what the start replays is in memory
    /// only
    #[arg(long)]
    pub read_only: bool,
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
