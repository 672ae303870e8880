//! A table's kind of memtable: the entries under `memtable: configurations:` in Cassandra's configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrie::{Layout, SparePages, TrieOptions};
use model::Table;

use crate::address_space::small;
use crate::{AddressSpace, Memtable, SkipListMemtable, TrieMemtable};

/// A kind of memtable with its parameters, by Cassandra's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemtableConfiguration {
    /// `TrieMemtable`: a trie for each shard. Parameters: `shards`, and of our own `layout` (`adaptive` or `paper`).
    Trie {
        /// The number of shards; the caller's default if not given.
        shards: Option<usize>,
        /// The node layout and the limits of each trie.
        options: TrieOptions,
    },
    /// `SkipListMemtable`: one skip list of partitions that many threads write at once.
    SkipList,
    /// `ShardedSkipListMemtable`: a skip list for each shard. Parameters: `shards`, `serialize_writes` (`false`).
    ShardedSkipList {
        /// The number of shards; the caller's default if not given.
        shards: Option<usize>,
        /// Whether a shard has one writer at a time.
        serialize_writes: bool,
    },
}

/// The package of a class name that is given in full.
const PACKAGE: &str = "org.apache.cassandra.db.memtable.";

/// The most shards: each costs memory and is visited by range reads.
const SHARDS_MAX: usize = 1024;

impl Default for MemtableConfiguration {
    fn default() -> Self {
        MemtableConfiguration::Trie { shards: None, options: TrieOptions::default() }
    }
}

impl MemtableConfiguration {
    /// Parses `class_name` (with or without its package) and `parameters`. Errors have Cassandra's texts.
    pub fn parse(class_name: &str, parameters: &BTreeMap<String, String>) -> Result<Self, String> {
        if class_name.is_empty() {
            return Err("The 'class_name' option must be specified.".into());
        }
        let mut rest = parameters.clone();
        let class = class_name.strip_prefix(PACKAGE).unwrap_or(class_name);
        let configuration = match class {
            "TrieMemtable" => {
                let options = TrieOptions { layout: take_layout(&mut rest)?, ..TrieOptions::default() };
                MemtableConfiguration::Trie { shards: take_shards(&mut rest)?, options }
            }
            "SkipListMemtable" => MemtableConfiguration::SkipList,
            "ShardedSkipListMemtable" => {
                // As Java reads it: anything but "true" is false.
                let serialize_writes = rest.remove("serialize_writes").is_some_and(|v| v.eq_ignore_ascii_case("true"));
                MemtableConfiguration::ShardedSkipList { shards: take_shards(&mut rest)?, serialize_writes }
            }
            _ => {
                let class = if class_name.contains('.') { class_name.into() } else { format!("{PACKAGE}{class_name}") };
                return Err(format!("Could not create memtable factory for class {class}"));
            }
        };
        if !rest.is_empty() {
            let rest: Vec<_> = rest.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let rest = rest.join(", ");
            return Err(format!(
                "Memtable class {PACKAGE}{class} does not accept any futher parameters, but {{{rest}}} were given."
            ));
        }
        Ok(configuration)
    }

    /// Opens an empty memtable. It has `default_shards` shards where the configuration gives no number, or fewer where
    /// the address space already has many shards. A memtable of tries first grows into the spare pages.
    pub fn open(
        &self,
        table: &Arc<Table>,
        default_shards: usize,
        address_space: &Arc<AddressSpace>,
        spare_pages: &Arc<SparePages>,
    ) -> Arc<dyn Memtable> {
        match *self {
            MemtableConfiguration::Trie { shards, options } => {
                let share = address_space.share(shards.unwrap_or(default_shards));
                Arc::new(TrieMemtable::with_share(table, share, options, spare_pages))
            }
            MemtableConfiguration::SkipList => Arc::new(SkipListMemtable::new(table)),
            MemtableConfiguration::ShardedSkipList { shards, serialize_writes } => {
                Arc::new(SkipListMemtable::sharded(table, shards.unwrap_or(default_shards), serialize_writes))
            }
        }
    }
}

/// Opens an empty memtable of one shard for a small table. A node has many such tables, such as the system tables, and
/// where address space is limited (`ulimit -v`, valgrind) they must leave some for other tables. If such a memtable
/// becomes full, another one follows it.
pub fn open_small(table: &Arc<Table>) -> Arc<dyn Memtable> {
    Arc::new(TrieMemtable::with_options(table, 1, small(TrieOptions::default())))
}

fn take_shards(parameters: &mut BTreeMap<String, String>) -> Result<Option<usize>, String> {
    let Some(text) = parameters.remove("shards") else { return Ok(None) };
    match text.parse() {
        Ok(shards) if (1..=SHARDS_MAX).contains(&shards) => Ok(Some(shards)),
        _ => Err(format!("Memtable parameter shards: expected a number from 1 to {SHARDS_MAX}, got {text}")),
    }
}

fn take_layout(parameters: &mut BTreeMap<String, String>) -> Result<Layout, String> {
    match parameters.remove("layout").as_deref() {
        None | Some("adaptive") => Ok(Layout::Adaptive),
        Some("paper") => Ok(Layout::Paper),
        Some(other) => Err(format!("Memtable parameter layout: expected adaptive or paper, got {other}")),
    }
}
