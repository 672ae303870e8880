//! The command line.

use clap::{Args, Parser, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

/// Espalier: a database that speaks Cassandra's query language, protocol and table format.
#[derive(Debug, Parser)]
#[command(name = "espalier", version, propagate_version = true)]
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
    /// Verify and load the SSTables that were put into the tables' own directories (a start loads them without
    /// verification)
    Refresh(Tables),
    /// Link the tables' files into snapshots/<tag>
    Snapshot {
        /// Name of the snapshot; the time in milliseconds if not given
        #[arg(short, long)]
        tag: Option<String>,
        /// How long it is kept, 60s or more: 1d, 12h; for ever if not given
        #[arg(long)]
        ttl: Option<String>,
        /// Which tables
        #[command(flatten)]
        tables: Tables,
    },
    /// Show the snapshots that there are, also of dropped tables
    Listsnapshots(Node),
    /// Remove snapshots, also of dropped tables
    Clearsnapshot {
        /// Name of the snapshots to remove
        #[arg(short, long, required_unless_present = "all")]
        tag: Option<String>,
        /// Remove snapshots of any name
        #[arg(long, conflicts_with = "tag")]
        all: bool,
        /// The node
        #[command(flatten)]
        node: Node,
        /// Keyspaces whose snapshots are removed; all if none is given
        #[arg(value_name = "KEYSPACE")]
        keyspaces: Vec<String>,
    },
    /// Show statistics of tables
    Tablestats(Tables),
    /// Show the memory of tables in memory, and their limits
    Inmemorystatus(Tables),
    /// Show running compactions
    Compactionstats(Node),
    /// Compact tables automatically
    Enableautocompaction(Tables),
    /// Compact tables only on request, until the next start
    Disableautocompaction(Tables),
    /// Return a quarantined table to service after its cause is removed, and replay the log records that were set aside
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
    /// Flush all tables and refuse later writes
    Drain(Node),
    /// Read the certificates for TLS again; connections stay
    Reloadssl(Node),
    /// Turn the audit log on, or change it; options that are not given are those of the configuration
    ///
    /// If the configuration turned the log on, names of keyspaces, categories and users that an earlier call gave stay,
    /// as in Cassandra.
    Enableauditlog(AuditLog),
    /// Turn the audit log off
    Disableauditlog(Node),
    /// Print the options of the audit log if it is on, or else those of the configuration
    Getauditlog(Node),
    /// Turn the full query log on; options that are not given are those of the configuration
    Enablefullquerylog(FullQueryLog),
    /// Turn the full query log off
    Disablefullquerylog(Node),
    /// Print the options of the full query log if it is on, or else those of the configuration
    Getfullquerylog(Node),
    /// Turn the full query log off, and remove its files
    Resetfullquerylog(Node),
    /// Create a group of addresses, or replace its blocks
    Updatecidrgroup {
        /// The node
        #[command(flatten)]
        node: Node,
        /// The name of the group
        #[arg(value_name = "GROUP")]
        group: String,
        /// CIDR blocks such as 10.0.0.0/8
        #[arg(value_name = "CIDR", required = true)]
        cidrs: Vec<String>,
    },
    /// Delete a group of addresses
    Dropcidrgroup {
        /// The node
        #[command(flatten)]
        node: Node,
        /// The name of the group
        #[arg(value_name = "GROUP")]
        group: String,
    },
    /// Print the groups of addresses, or the blocks of one
    Listcidrgroups {
        /// The node
        #[command(flatten)]
        node: Node,
        /// The name of a group
        #[arg(value_name = "GROUP")]
        group: Option<String>,
    },
    /// Print the groups that an address belongs to
    Getcidrgroupsofip {
        /// The node
        #[command(flatten)]
        node: Node,
        /// The address
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// Read the groups of addresses again, after their rows were written directly
    Reloadcidrgroupscache(Node),
    /// Print statistics of the checks of clients' addresses
    Cidrfilteringstats(Node),
    /// Empty the counter cache; each counter is read again at its next increment
    Invalidatecountercache(Node),
    /// Read roles again, after their rows were written directly
    Invalidaterolescache(Roles),
    /// Read permissions again, after their rows were written directly
    Invalidatepermissionscache(Roles),
    /// Read roles again, and hash the next password of each
    Invalidatecredentialscache(Roles),
    /// Read the data centers of roles again, after their rows were written directly
    Invalidatenetworkpermissionscache(Roles),
    /// Read the groups of addresses of roles again, after their rows were written directly
    Invalidatecidrpermissionscache(Roles),
    /// Read permissions again; those on MBeans have no effect
    Invalidatejmxpermissionscache(Roles),
    /// Inspect the commit log of a running or a stopped node
    Log(Log),
    /// Inspect, verify, salvage, import or export SSTables, ours or Cassandra's
    Sstable(SSTable),
    /// Adopt the schema and the SSTables of a drained and stopped Cassandra node, whose directory is not changed
    UpgradeFrom(UpgradeFrom),
    /// Write the tables of a stopped or running node as a data directory from which Cassandra 5.0 starts
    Export(ExportNode),
}

/// Roles of the node.
#[derive(Debug, Args)]
pub struct Roles {
    /// The node
    #[command(flatten)]
    pub node: Node,
    /// Names of roles; all if there are none
    #[arg(value_name = "ROLE")]
    pub roles: Vec<String>,
}

/// Options of the audit log.
#[derive(Debug, Args)]
pub struct AuditLog {
    /// The node
    #[command(flatten)]
    pub node: Node,
    /// Logger class; only FileAuditLogger is supported
    #[arg(long, value_name = "CLASS")]
    pub logger: Option<String>,
    /// Keyspaces to enter, separated by commas; all if there are none
    #[arg(long, value_name = "NAMES")]
    pub included_keyspaces: Option<String>,
    /// Keyspaces not to enter
    #[arg(long, value_name = "NAMES")]
    pub excluded_keyspaces: Option<String>,
    /// Categories to enter
    #[arg(long, value_name = "NAMES")]
    pub included_categories: Option<String>,
    /// Categories not to enter
    #[arg(long, value_name = "NAMES")]
    pub excluded_categories: Option<String>,
    /// Users to enter
    #[arg(long, value_name = "NAMES")]
    pub included_users: Option<String>,
    /// Users not to enter
    #[arg(long, value_name = "NAMES")]
    pub excluded_users: Option<String>,
    /// How its files are written
    #[command(flatten)]
    pub files: LogFiles,
}

/// Options of the full query log.
#[derive(Debug, Args)]
pub struct FullQueryLog {
    /// The node
    #[command(flatten)]
    pub node: Node,
    /// Directory of the log
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// How its files are written
    #[command(flatten)]
    pub files: LogFiles,
}

/// How the files of a log are written.
#[derive(Debug, Args)]
pub struct LogFiles {
    /// How often a new file is begun: MINUTELY, HOURLY, DAILY
    #[arg(long, value_name = "CYCLE")]
    pub roll_cycle: Option<String>,
    /// Whether requests wait while the queue of entries is full: true or false
    #[arg(long, value_name = "BOOLEAN")]
    pub blocking: Option<String>,
    /// Size of the queue, bytes
    #[arg(long, value_name = "BYTES")]
    pub max_queue_weight: Option<String>,
    /// Size of all files, bytes
    #[arg(long, value_name = "BYTES")]
    pub max_log_size: Option<String>,
}

/// A Cassandra node, and the Espalier node that adopts its data.
#[derive(Debug, Args)]
pub struct UpgradeFrom {
    /// The Espalier node, which must have no user keyspaces
    #[command(flatten)]
    pub node: Node,
    /// Configuration file of the Espalier node
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Cassandra's commit log directory [default: commitlog beside its data directory]
    #[arg(long, value_name = "DIR")]
    pub commitlog: Option<PathBuf>,
    /// Cassandra's storage directory (with data and commitlog), or its data directory; all of them if it has several
    #[arg(value_name = "DATA_DIR", required = true)]
    pub sources: Vec<PathBuf>,
}

/// The node to export, and the target.
#[derive(Debug, Args)]
pub struct ExportNode {
    /// The Espalier node
    #[command(flatten)]
    pub node: Node,
    /// Configuration file of the Espalier node
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory in which `data` is created
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
    /// Print the log's identity and the content of each used segment
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
    /// Configuration file of the node, if it names the log
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The log itself, a file or a device; wins over the above
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print one line of JSON for each
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
        /// Print a partition per line instead of one array
        #[arg(short = 'l', long)]
        lines: bool,
        /// Print a row per line instead of one array
        #[arg(short = 'r', long, conflicts_with = "lines")]
        rows: bool,
        /// Print times as numbers
        #[arg(short = 't', long)]
        raw_timestamps: bool,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Check that SSTables are sound; fails if one is not
    Verify {
        /// Check every row, and every entry of the indexes against the rows
        #[arg(short, long)]
        extended: bool,
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print the metadata of SSTables, as sstablemetadata does
    Metadata {
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
        /// Which SSTables
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Write the sound part of damaged SSTables into new ones and list the rest; fails if anything is lost
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
        /// Directory of the SSTables
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
    /// Address to which clients connect [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Port to which clients connect [default: 9042]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Configuration file; see docs/options.md
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Replay the sound part of a damaged commit log, keep a copy of the rest, log every gap
    #[arg(long)]
    pub commitlog_salvage: bool,
    /// Change nothing on the disk, and refuse writes and changes of the schema; replayed records stay in memory
    #[arg(long)]
    pub read_only: bool,
}

/// The running node that a command controls.
#[derive(Debug, Args)]
pub struct Node {
    /// Its data directory
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
}

/// The tables of the node that a command affects.
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
