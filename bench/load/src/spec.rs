//! What to do.

use serde::Deserialize;

/// A load, as the orchestrator describes it.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// `address:port` of the node.
    pub node: String,
    /// The server's process, measured while the load runs.
    pub server_pid: u32,
    pub keyspace: String,
    pub connections: usize,
    /// Operations under way at a time, each by a worker of its own.
    pub in_flight: usize,
    /// The generator's own threads.
    pub threads: usize,
    pub seed: u64,
    /// Not measured, before what is measured.
    #[serde(default)]
    pub warmup_seconds: f64,
    /// How long is measured. Ignored when `operations` is given.
    #[serde(default)]
    pub seconds: f64,
    /// Ends after so many operations instead.
    #[serde(default)]
    pub operations: Option<u64>,
    /// Open loop: operations per second, each with an intended start; closed loop without.
    #[serde(default)]
    pub rate: Option<f64>,
    /// The share of reads among operations, 0 to 100.
    pub reads_percent: u8,
    /// Of reads and writes.
    #[serde(default)]
    pub consistency: Consistency,
    /// How many of the partitions written are read back at the end.
    #[serde(default = "default_check")]
    pub check: usize,
    pub workload: Workload,
}

fn default_fields() -> usize {
    1
}

fn default_check() -> usize {
    10_000
}

/// The consistency level of a load.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Consistency {
    #[default]
    One,
    LocalQuorum,
}

/// The tables and how their keys are chosen.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Workload {
    /// `key blob PRIMARY KEY, value blob`; with several fields `field0 blob, field1 blob, …` in place of the value,
    /// each of `value_bytes`.
    KeyValue {
        table: String,
        value_bytes: usize,
        #[serde(default = "default_fields")]
        fields: usize,
        /// Fields are written one by one: this run writes the one of this number, and those before it have been
        /// written.
        #[serde(default)]
        apart: Option<usize>,
        choice: Choice,
    },
    /// `key blob, row bigint, value blob, PRIMARY KEY (key, row)`: a share of operations meets one partition; or, to
    /// fill the table, each
    /// place is written in turn.
    Skew {
        table: String,
        value_bytes: usize,
        partitions: u64,
        hot_percent: u8,
        hot_rows: u64,
        #[serde(default)]
        fill: bool,
    },
    /// Time series of `columns` texts in a row, plain or as a frozen UDT; reads take the newest 20 rows, with every
    /// column
    /// listed or as `*`.
    Columns { table: String, columns: usize, text_bytes: usize, udt: bool, listed: bool, partitions: u64 },
    /// `key blob, row bigint, value blob, PRIMARY KEY (key, row)`: one partition of `rows` rows, of which every
    /// `live_every`th was not deleted. Reads begin at a random row and take `limit` of them, or that row alone where
    /// it is 0.
    Partition {
        table: String,
        rows: u64,
        #[serde(default)]
        live_every: u64,
        value_bytes: usize,
        #[serde(default)]
        limit: u64,
        #[serde(default)]
        reversed: bool,
    },
}

/// Which partitions a key-value load meets.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    /// Any of partitions 0 to `partitions`, all equally likely.
    Uniform { partitions: u64 },
    /// The same partitions, a few of them most of the time: Zipf's law with YCSB's exponent of 0.99.
    Zipfian { partitions: u64 },
    /// Partitions 0 to `partitions` in steps of `step`, which has no factor in common with their number: each once
    /// before any again,
    /// neighbours far apart.
    CoPrime { partitions: u64, step: u64 },
    /// Writes make new partitions from `first` on; reads prefer recent ones.
    Insert { first: u64 },
}
