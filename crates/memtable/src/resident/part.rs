//! A part: the data of a range of tokens, and what its writers agree on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use model::{PartitionUpdate, Table};
use types::Token;

use super::split::Halves;
use super::{PartOptions, Purge, Walk, lock, wait};
use crate::statistics::Bounds;
use crate::{Memtable, MemtableFull, TrieMemtable};

/// The data of the tokens from `first` to the next part's.
pub(super) struct Part {
    pub first: Token,
    pub memtable: Arc<TrieMemtable>,
    pub writing: Mutex<Writing>,
    /// Told when a split has ended.
    pub split_ended: Condvar,
    /// When something in it may be purged first, seconds; the greatest value if nothing ever.
    pub purge_at: AtomicU32,
}

/// Held by the one who writes.
pub(super) struct Writing {
    /// Whether others took over from it.
    pub is_replaced: bool,
    /// Those who will, while it is being split: what is written goes to them too.
    pub halves: Option<Arc<Halves>>,
    /// It is split when it has more than this, bytes.
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

    /// Applies an update here, and to the halves that there may be. Returns by how many bytes it grew.
    pub fn apply(&self, writing: &mut Writing, update: &PartitionUpdate) -> Result<i64, MemtableFull> {
        let growth_bytes = self.put(update)?;
        if let Some(halves) = &writing.halves {
            halves.apply(update);
        }
        Ok(growth_bytes)
    }

    /// Applies an update. Returns by how many bytes it grew.
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
        // What is written meanwhile sets it anew.
        self.purge_at.store(u32::MAX, Ordering::Relaxed);
        let mut walk = Walk::new(now_seconds);
        let mut more = true;
        while more {
            let writing = lock(&self.writing);
            if writing.is_replaced || writing.halves.is_some() {
                // What the halves are to get stays as it is.
                walk.next_seconds = now_seconds;
                break;
            }
            let before = self.used_bytes();
            more = self.memtable.purge(&mut walk, purge);
            grown(self.used_bytes() - before);
        }
        self.purge_at.fetch_min(walk.next_seconds, Ordering::Relaxed);
    }

    /// Waits for the end of a split that is under way; false if none is.
    pub fn wait_for_split(&self) -> bool {
        let mut writing = lock(&self.writing);
        let is_split = writing.halves.is_some();
        while writing.halves.is_some() {
            writing = wait(&self.split_ended, writing);
        }
        is_split
    }
}

/// The first time that an update's cells expire or were deleted at, seconds; the greatest value if none do.
fn earliest_deletion(update: &PartitionUpdate) -> u32 {
    let mut bounds = Bounds::NONE;
    bounds.cover_update(update);
    bounds.statistics().local_deletion_time_min
}
