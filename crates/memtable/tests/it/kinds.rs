//! All kinds of memtable, which must pass the same tests.

use std::sync::Arc;

use memtable::{Memtable, MemtableConfiguration, TrieMemtable};
use memtrie::{Layout, SparePages, TrieOptions};
use model::Table;

/// A kind of memtable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Trie,
    PaperTrie,
    SkipList,
    ShardedSkipList,
    SerializedSkipList,
}

pub const KINDS: [Kind; 5] =
    [Kind::Trie, Kind::PaperTrie, Kind::SkipList, Kind::ShardedSkipList, Kind::SerializedSkipList];

impl Kind {
    /// An empty memtable.
    pub fn open(self, table: &Arc<Table>, shards: usize) -> Arc<dyn Memtable> {
        let configuration = match self {
            Kind::Trie => MemtableConfiguration::default(),
            Kind::PaperTrie => {
                let options = TrieOptions { layout: Layout::Paper, ..TrieOptions::default() };
                MemtableConfiguration::Trie { shards: None, options }
            }
            Kind::SkipList => MemtableConfiguration::SkipList,
            Kind::ShardedSkipList => MemtableConfiguration::ShardedSkipList { shards: None, serialize_writes: false },
            Kind::SerializedSkipList => MemtableConfiguration::ShardedSkipList { shards: None, serialize_writes: true },
        };
        configuration.open(table, shards, &Arc::default(), &Arc::new(SparePages::new(0)))
    }

    /// Like `open`, for a kind that is made of tries; `None` for the others.
    pub fn open_tries(self, table: &Arc<Table>, shards: usize) -> Option<Arc<TrieMemtable>> {
        let layout = match self {
            Kind::Trie => Layout::Adaptive,
            Kind::PaperTrie => Layout::Paper,
            Kind::SkipList | Kind::ShardedSkipList | Kind::SerializedSkipList => return None,
        };
        let options = TrieOptions { layout, ..TrieOptions::default() };
        Some(Arc::new(TrieMemtable::with_options(table, shards, options)))
    }

    /// Whether a reader of a large partition sees changes that arrive while it reads.
    pub fn reads_on(self) -> bool {
        matches!(self, Kind::Trie | Kind::PaperTrie)
    }
}

/// Runs a test for each kind, and prints its name first.
pub fn for_all_kinds(test: impl Fn(Kind)) {
    for kind in KINDS {
        println!("{kind:?}");
        test(kind);
    }
}
