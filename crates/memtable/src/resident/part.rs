//! A part: the data of a range of tokens, and the state that its writers share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use model::{PartitionUpdate, Table};
use types::Token;

use super::split::Halves;
use super::{PartOptions, Purge, PurgeWalk, lock, wait};
use crate::statistics::Bounds;
use crate::{Memtable, MemtableFull, TrieMemtable};

/// The data of the tokens from `first` up to the next part's first token.
pub(super) struct Part {
    pub first: Token,
    pub memtable: Arc<TrieMemtable>,
    pub writing: Mutex<Writing>,
    /// Notified when a split has ended.
    pub split_ended: Condvar,
    /// The first time, in seconds, at which something in it may be purged; the greatest value if there is none.
    pub purge_at: AtomicU32,
}

/// The state guarded by the part's write lock.
pub(super) struct Writing {
    /// Whether other parts have replaced it.
    pub is_replaced: bool,
    /// Its halves while it is being split; updates are applied to them too.
    pub halves: Option<Arc<Halves>>,
    /// The size in bytes beyond which it is split.
    pub split_bytes: u64,
}

impl Part {
    pub fn new(first: Token, table: &Arc<Table>, options: &PartOptions) -> Part {
        Part {
            first,
            memtable: Arc::new(TrieMemtable::with_options(table, 1, options.trie)),
            writing: Mutex::new(Writing { is_replaced: false, halves: None, split_bytes: options.split_bytes }),
            split_ended: Condvar::new(),
            purge_at: AtomicU32::new(u32::MAX),
        }
    }

    pub fn used_bytes(&self) -> i64 {
        self.memtable.memory().used_bytes as i64
    }

    /// Applies an update here, and to the halves if there are any. Returns by how many bytes the part grew.
    pub fn apply(&self, writing: &mut Writing, update: &PartitionUpdate) -> Result<i64, MemtableFull> {
        debug_assert!(!writing.is_replaced, "the halves of a part take its updates");
        debug_assert!(update.key().token() >= self.first, "a part takes the updates of its tokens");
        let growth_bytes = self.put(update)?;
        if let Some(halves) = &writing.halves {
            halves.apply(update);
        }
        Ok(growth_bytes)
    }

    /// Applies an update. Returns by how many bytes the part grew.
    pub fn put(&self, update: &PartitionUpdate) -> Result<i64, MemtableFull> {
        let growth_bytes = self.memtable.apply(update, None)?;
        self.purge_at.fetch_min(earliest_deletion(update), Ordering::Relaxed);
        Ok(growth_bytes)
    }

    /// As [`ResidentTable::purge`](super::ResidentTable::purge).
    pub fn purge(&self, now_seconds: u32, purge: &mut dyn Purge, grown: impl Fn(i64)) {
        if self.purge_at.load(Ordering::Relaxed) > now_seconds {
            return;
        }
        // Writes that arrive meanwhile set it again.
        self.purge_at.store(u32::MAX, Ordering::Relaxed);
        let mut walk = PurgeWalk::new(now_seconds);
        let mut more = true;
        while more {
            let writing = lock(&self.writing);
            if writing.is_replaced || writing.halves.is_some() {
                // Data that the halves still have to copy must stay as it is.
                walk.next_seconds = now_seconds;
                break;
            }
            let before = self.used_bytes();
            more = self.memtable.purge(&mut walk, purge);
            grown(self.used_bytes() - before);
        }
        debug_assert!(walk.next_seconds >= now_seconds, "the next purge is not in the past");
        self.purge_at.fetch_min(walk.next_seconds, Ordering::Relaxed);
    }

    /// Waits for the end of a split in progress. Returns false if there is none.
    pub fn wait_for_split(&self) -> bool {
        let mut writing = lock(&self.writing);
        let is_split = writing.halves.is_some();
        while writing.halves.is_some() {
            writing = wait(&self.split_ended, writing);
        }
        debug_assert!(!is_split || !self.memtable.is_empty(), "an empty part is not split");
        is_split
    }
}

/// The first time, in seconds, at which a cell of the update expires or was deleted; the greatest value if none is.
fn earliest_deletion(update: &PartitionUpdate) -> u32 {
    let mut bounds = Bounds::NONE;
    bounds.cover_update(update);
    bounds.statistics().local_deletion_time_min
}
