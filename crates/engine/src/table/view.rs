//! A table's content at one time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sstable::SSTableReader;

use super::generation::Generation;
use super::in_memory::Resident;

/// A table's content at one time.
pub(crate) struct View {
    pub active: Arc<Generation>,
    /// Memtables being flushed, newest first.
    pub frozen: Vec<Arc<Generation>>,
    /// Newest first.
    pub sstables: Vec<Arc<SSTableReader>>,
}

impl View {
    /// Whether no generation is in the view twice.
    pub(super) fn has_each_once(&self) -> bool {
        let is_later =
            |at: usize, other: &Arc<Generation>| self.generations().skip(at + 1).any(|g| Arc::ptr_eq(g, other));
        !self.generations().enumerate().any(|(at, generation)| is_later(at, generation))
    }

    /// Whether the generation is in the view.
    pub(super) fn has(&self, wanted: &Arc<Generation>) -> bool {
        self.generations().any(|generation| Arc::ptr_eq(generation, wanted))
    }

    /// The generations, newest first.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The least timestamp in memtables, microseconds; `i64::MAX` if they are empty.
    pub fn oldest_in_memory(&self) -> i64 {
        self.oldest_in_memory_but(None)
    }

    /// Like `oldest_in_memory`, without one of the generations.
    pub fn oldest_in_memory_but(&self, left_out: Option<&Arc<Generation>>) -> i64 {
        debug_assert!(self.has_each_once(), "what is left out is in the view once");
        let is_left_out = |generation: &Arc<Generation>| left_out.is_some_and(|other| Arc::ptr_eq(generation, other));
        let others = self.generations().filter(|generation| !is_left_out(generation));
        others.map(|generation| generation.memtable.statistics().timestamp_min).min().unwrap_or(i64::MAX)
    }

    /// Whether SSTables of full memtables may hold records that no SSTable covers yet. The flush of the successor
    /// covers them.
    pub fn has_uncovered(&self) -> bool {
        self.generations().any(|generation| generation.takes_over.load(Ordering::Acquire))
    }

    /// The resident data of a table that lives in memory, if reads need nothing else.
    pub fn resident(&self) -> Option<&Arc<Resident>> {
        self.active.resident.as_ref().filter(|resident| resident.is_complete())
    }
}
