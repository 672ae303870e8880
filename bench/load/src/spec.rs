//! The description of a load.

use serde::Deserialize;

/// A load, as the orchestrator describes it.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The node's `address:port`.
    pub node: String,
    /// The server's process, which is measured while the load runs.
    pub server_pid: u32,
    pub keyspace: String,
    /// The name and the password of a role, if the server wants to know them.
    #[serde(default)]
    pub login: Option<(String, String)>,
    pub connections: usize,
    /// The number of operations in flight, each by a worker of its own.
    pub in_flight: usize,
    /// The number of the generator's own threads.
    pub threads: usize,
    pub seed: u64,
    /// The seconds of the warm-up, which precedes the measured time.
    #[serde(default)]
    pub warmup_seconds: f64,
    /// The measured time in seconds. It is ignored if `operations` is given.
    #[serde(default)]
    pub seconds: f64,
    /// The number of operations after which the load ends, in place of a time.
    #[serde(default)]
    pub operations: Option<u64>,
    /// Operations per second of an open loop, in which each operation has an intended start. A load without it is a
    /// closed loop.
    #[serde(default)]
    pub rate: Option<f64>,
    /// The share of reads among operations, from 0 to 100.
    pub reads_percent: u8,
    /// The consistency level of reads and writes.
    #[serde(default)]
    pub consistency: Consistency,
    /// The number of written partitions that are read back at the end.
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

/// The tables and the way in which keys are chosen.
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
        /// The field that this run writes, if fields are written one by one. Earlier runs wrote the fields before it.
        #[serde(default)]
        apart: Option<usize>,
        choice: Choice,
    },
    /// `key blob, row bigint, value blob, PRIMARY KEY (key, row)`. A share of the operations meets one partition. To
    /// fill the table, each place is written in turn.
    Skew {
        table: String,
        value_bytes: usize,
        partitions: u64,
        hot_percent: u8,
        hot_rows: u64,
        #[serde(default)]
        fill: bool,
    },
    /// Time series with `columns` texts in a row, plain or as a frozen UDT. Reads take the newest 20 rows, with every
    /// column listed or with `*`.
    Columns { table: String, columns: usize, text_bytes: usize, udt: bool, listed: bool, partitions: u64 },
    /// `key blob, row bigint, value blob, PRIMARY KEY (key, row)`: one partition of `rows` rows, of which every
    /// `live_every`th was not deleted. Reads begin at a random row and take `limit` rows, or only that row if `limit`
    /// is 0.
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
    /// `key blob, row bigint, value blob, PRIMARY KEY (key, row)`: `INSERT … IF NOT EXISTS` of rows of 100 B, in
    /// partitions from `first` on, of which earlier runs wrote none.
    Conditions { table: String, first: u64, meeting: Meeting },
    /// `key blob PRIMARY KEY, c counter`: increments of the counters of partitions 0 to `partitions`, all with the
    /// same chance.
    Counters { table: String, partitions: u64 },
    /// `key bigint PRIMARY KEY, one int, ten int, thousand int, other int, name text`: rows whose values follow from
    /// their keys, so that one, ten and a thousand of the `rows` rows (a power of two) have each value. Writes make
    /// rows from key `first` on.
    Indexed {
        table: String,
        rows: u64,
        #[serde(default)]
        first: u64,
        #[serde(default)]
        search: Search,
    },
    /// `key bigint PRIMARY KEY, v vector<float, dimension>`: rows 0 to `rows`, with vectors in clusters or not. Without
    /// writes it searches for the `limit` nearest of new vectors.
    Vectors {
        table: String,
        rows: u64,
        dimension: usize,
        clustered: bool,
        #[serde(default)]
        writes: VectorWrites,
        #[serde(default)]
        changes: Changes,
        #[serde(default)]
        limit: u64,
    },
}

/// What a load on indexes searches for.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum Search {
    /// Nothing: it writes.
    #[default]
    Nothing,
    /// A value in a column, which one, ten or a thousand rows have.
    One,
    Ten,
    Thousand,
    /// A text, which one row has.
    Name,
    /// A range of values that this number of rows have.
    Range(u64),
    /// Two values, each of which a thousand rows have, and few rows both.
    Both,
}

/// What a load of vectors writes.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum VectorWrites {
    #[default]
    None,
    /// Each row once, in order.
    All,
    /// Of every ten rows the first gets another vector, and the second is deleted.
    Changes,
}

/// Whether those changes have been made.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum Changes {
    #[default]
    None,
    Made,
}

/// Where the conditional inserts of a load meet.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Meeting {
    /// Nowhere: every row has a partition of its own.
    Nothing,
    /// All rows are in one partition.
    Partition,
    /// All insert the same row.
    Row,
}

/// The partitions that a key-value load meets.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    /// Partitions 0 to `partitions`, all with the same chance.
    Uniform { partitions: u64 },
    /// The same partitions, with a few of them most of the time: Zipf's law with YCSB's exponent of 0.99.
    Zipfian { partitions: u64 },
    /// Partitions 0 to `partitions` in steps of `step`, which has no factor in common with their number. Each partition
    /// comes once before any comes again, and neighbours are far apart.
    CoPrime { partitions: u64, step: u64 },
    /// Writes make new partitions from `first` on, and reads prefer recent ones.
    Insert { first: u64 },
}
